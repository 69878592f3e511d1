"""Counters of each kernel of a program, in place of its trace: planned before it starts, evaluated when it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ullage.cupti.counters import perfworks
from ullage.cupti.counters.evaluate import Values, evaluate
from ullage.cupti.counters.recorded import VARIABLE, counted, plan
from ullage.cupti.counters.wanted import wanted
from ullage.cupti.library import Library, find
from ullage.errors import UllageError, harmless
from ullage.problems import Problems

PLAN = "counters.plan"


NOT_COUNTED = "kernels are not counted"


@dataclass(frozen=True)
class CountingPlan:
    """What is to be counted: the `chip` (CUPTI's name), how many `launches` of each context, and by which libcupti."""

    chip: str
    launches: int
    cupti: Path | None = None


def this_gpu(nvml: Any = None) -> str:
    """Return what this machine's first GPU is called. Raises UllageError where NVML can't say."""
    try:
        nvml = nvml or import_module("pynvml")
        nvml.nvmlInit()
        name = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0))
        nvml.nvmlShutdown()
    except Exception as error:  # the library is missing, or raises an error of its own
        raise UllageError(f"which GPU the program will use is not known ({error})", "name it: --gpu H100") from error
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def planned(folder: Path, asked: CountingPlan) -> dict[str, str]:
    """Write the plan into a run's folder and return what the program's environment gets.

    Raises UllageError for a chip that CUPTI doesn't know, and where it can't plan on this machine.
    """
    library = find(asked.cupti)
    with perfworks.Evaluator(library, asked.chip) as evaluator:
        known = [metric.name for metric in evaluator.metrics()]
    path = folder / PLAN
    path.write_bytes(plan(library, asked.chip, list(wanted("kernel", known).values()), asked.launches))
    return {VARIABLE: str(path)}


def evaluated(files: list[Path], library: Library, problems: Problems) -> Iterator[Values]:
    """Yield the values of every image in some recordings: a row a launch, by the kernel's name."""
    for path in files:
        for found in counted(path):
            problems.drop("launches that CUPTI could not count", found.dropped, where=path.name)
            if found.foreign:
                problems.note(f"libcupti counted with {harmless(found.foreign)}, which is not the library beside it: is it of its release?")
            yield evaluate(found.image, library)
