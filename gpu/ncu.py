"""Nsight Compute: hardware counters of every kernel that a program launches between the profiler's marks, by name."""

from __future__ import annotations

import csv
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu.check import NotMeasured
from gpu.machine import Machine
from gpu.tools import find_tool

QUERY, LIMIT = 60.0, 120.0  # seconds for the list of metrics, and for the program under ncu


@dataclass(frozen=True)
class Profiled:
    """A kernel and its metrics, in base units; one that could not be counted is missing."""

    kernel: str
    metrics: Mapping[str, float]


def tool(machine: Machine) -> str:
    """Return the path of ncu, or of what the machine brings in its place; raises NotMeasured where there is none."""
    own: str | None = getattr(machine, "ncu", None)
    return own or find_tool("ncu")


def names(ncu: str) -> list[str]:
    """Return the base names of all metrics that ncu knows for this GPU, none where it can't tell."""
    try:
        said = _ran([ncu, "--query-metrics"], QUERY).stdout
    except NotMeasured:
        return []
    return re.findall(r"^([a-z]\w*__\w+)", said, re.MULTILINE)


def profiled(ncu: str, metrics: Sequence[str], program: Sequence[str]) -> tuple[list[Profiled], str]:
    """Return the kernels that a program launches between cudaProfilerStart and …Stop, in order, and what the program printed.

    Clocks and caches are left as they are. Raises NotMeasured, with ncu's own words, where it counts nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        options = ["--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "demangled", "--profile-from-start", "off"]
        untouched = ["--clock-control", "none", "--cache-control", "none"]
        command = [ncu, *options, *untouched, "--log-file", str(log), "--metrics", ",".join(metrics), *program]
        done = _ran(command, LIMIT)
        told = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    kernels = table(told)
    if not kernels:
        raise NotMeasured(f"Nsight Compute counts nothing here ({_reason([told, done.stdout, done.stderr])})")
    return kernels, done.stdout


def _ran(command: Sequence[str], limit: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"Nsight Compute did not end within {limit:.0f} s") from None
    except OSError as error:
        raise NotMeasured(f"Nsight Compute can't be started ({error.strerror})") from error


def _reason(said: Sequence[str]) -> str:
    """Return the line that says best why nothing came."""
    lines = [line.strip() for text in said for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "ERR_" in line or "==ERROR==" in line] or [line for line in lines if "rror" in line]
    return (errors or lines or ["it says nothing"])[0].removeprefix("==ERROR==").strip()[:200]


def table(told: str) -> list[Profiled]:
    """Return the kernels of ncu's CSV: one line a kernel under names and units, whatever stands before it.

    >>> table('==PROF== x\\n"ID","Kernel Name","sm__ops.sum"\\n"","","inst"\\n"0","gemm","1,024"\\n')
    [Profiled(kernel='gemm', metrics={'sm__ops.sum': 1024.0})]
    """
    lines = [line for line in told.splitlines() if line.startswith('"')]
    kernels = []
    for row in csv.DictReader(lines):
        if row.get("ID"):  # the line of units has none
            counted = {name: value for name, text in row.items() if name and "__" in name and (value := number(text)) is not None}
            kernels.append(Profiled(row.get("Kernel Name") or "", counted))
    return kernels


def number(text: str | None) -> float | None:
    """Return a value as ncu prints it; None for "n/a" and the like.

    >>> number("1,099,511,627,776"), number("97.5"), number("n/a")
    (1099511627776.0, 97.5, None)
    """
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
