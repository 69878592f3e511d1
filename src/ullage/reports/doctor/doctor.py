"""What this machine has and what it lacks, and what places of telemetry are good for."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ullage.reports.doctor.fields import CapabilityShare
from ullage.views.shown import ShownByView

# what an extra is for; those that only developers need are left out
EXTRAS = {
    "gpu": "reading this machine's NVIDIA GPUs, and the microbenchmarks",
    "cupti": "tracing programs and counting, where no CUDA toolkit is installed",
    "kernels": "compiling and disassembling kernels, where no CUDA toolkit is installed",
    "heuristics": "which tile cuBLAS would take",
    "otf2": "reading Score-P's traces",
    "mcp": "serving the questions to assistants",
    "serve": "pages that stay open, and their numbers as JSON",
    "spark": "fleets that lie in Spark",
    "bucket": "stores on object storage",
    "certify": "certifying a model's FLOPs against its PyTorch code",
    "trainers": "MFU inside PyTorch, Transformers and Lightning",
}
TOOLS = {
    "sacct": "job records of Slurm",
    "nvidia-smi": "reading NVIDIA GPUs without the gpu extra",
    "gcc": "building the recorder, where the wheel has none for this machine",
}


@dataclass(frozen=True)
class MachinePart:
    """Something that Ullage can use: whether it is `there`, what it is for, what is known of it, and how to get it."""

    name: str
    there: bool
    purpose: str
    known: str = ""
    how: str = ""


@dataclass(frozen=True)
class TelemetryCheck:
    """What a place of telemetry is good for, in the window that was read; `jobs_on` is for how many GPUs it names jobs."""

    place: str
    shares: tuple[CapabilityShare, ...]
    jobs_on: int
    notes: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """How many GPUs it tells of."""
        return self.shares[0].of


@dataclass(frozen=True)
class DoctorReport(ShownByView, view="ullage.render.doctor"):
    """What is there and what is missing: the parts of this machine, what CUPTI allows, and places of telemetry.

    `permissions` is what `ullage cupti check` answers.
    """

    version: str
    python: str
    system: str
    parts: tuple[MachinePart, ...]
    permissions: dict[str, Any]
    places: tuple[TelemetryCheck, ...]
    partial_because: str = ""
    command: str = ""

    @property
    def complete(self) -> bool:
        """Whether every place was read to its end."""
        return not self.partial_because


def machine_parts() -> list[MachinePart]:
    """Return the extras and the tools that this machine has or lacks."""
    extras = [_extra(name, purpose) for name, purpose in EXTRAS.items()]
    tools = [MachinePart(name, shutil.which(name) is not None, purpose, shutil.which(name) or "") for name, purpose in TOOLS.items()]
    return [*extras, *tools]


def this_python() -> tuple[str, str, str]:
    """Return the versions of Ullage and of Python, and the system."""
    return (
        importlib.metadata.version("ullage"),
        platform.python_version(),
        f"{platform.system()} {platform.release()}, {platform.machine()}",
    )


def _extra(name: str, purpose: str) -> MachinePart:
    needed = _libraries(importlib.metadata.requires("ullage") or [], name)
    lacking = [library for library in needed if _version(library) is None]
    known = f"lacks {', '.join(lacking)}" if lacking else ", ".join(f"{library} {_version(library)}" for library in needed[:1])
    return MachinePart(f"ullage[{name}]", not lacking, purpose, known, f"pip install 'ullage[{name}]'" if lacking else "")


def _libraries(requirements: Sequence[str], extra: str) -> list[str]:
    """Return the libraries of an extra, from requirements as a wheel's metadata has them.

    >>> _libraries(['mcp>=2.3; extra == "mcp"', 'click>=8', 'ibis-framework[pyspark]>=12; extra == "spark"'], "mcp")
    ['mcp']
    """
    marked = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    return [re.split(r"[\s\[<>=!~;(]", one, maxsplit=1)[0] for one in requirements if marked.search(one)]


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
