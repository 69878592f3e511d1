"""NVIDIA's command-line tools: where they are, though often beside the PATH, and what Compute Sanitizer's log says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu.check import NotMeasured

PLACES = {
    "ncu": ("/opt/nvidia/nsight-compute", "/usr/local/cuda/bin", "/usr/local/cuda/nsight-compute*"),
    "compute-sanitizer": ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/usr/local/cuda-*/bin"),
}
SUMMARY = re.compile(r"ERROR SUMMARY: (?P<errors>\d+) error")
HAZARDS = re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \((?P<errors>\d+) errors?, (?P<warnings>\d+) warnings?\)")
TITLES = {"ncu": "Nsight Compute (ncu)", "compute-sanitizer": "Compute Sanitizer (compute-sanitizer)"}


def find_tool(name: str, places: Sequence[str] | None = None) -> str:
    """Return the path of a tool: that on the PATH, else the newest that there is; raises NotMeasured where there is none."""
    on_path = shutil.which(name)
    if on_path:
        return on_path
    folders = [folder for place in places or PLACES[name] for folder in _folders(place)]
    there = [path for folder in folders for path in (folder / name, *folder.glob(f"*/{name}")) if path.is_file()]
    if not there:
        raise NotMeasured(f"{TITLES[name]} is not installed")
    return str(max(there, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))]))


def _folders(place: str) -> list[Path]:
    parent, _, name = place.rpartition("/")
    return [path for path in Path(parent).glob(name) if path.is_dir()]


def sanitizer_report(log: str) -> dict[str, Any]:
    """Return what Compute Sanitizer's log says: how many errors and warnings, None without a summary, and what it reports first.

    >>> sanitizer_report("========= Invalid __global__ read of size 4 bytes\\n========= ERROR SUMMARY: 2 errors\\n")
    {'errors': 2, 'warnings': 0, 'first': 'Invalid __global__ read of size 4 bytes'}
    >>> sanitizer_report("========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)\\n")
    {'errors': 1, 'warnings': 2, 'first': ''}
    >>> sanitizer_report("========= COMPUTE-SANITIZER\\n========= Error: Device not supported\\n")
    {'errors': None, 'warnings': None, 'first': 'Error: Device not supported'}
    """
    lines = [line.removeprefix("=========").strip() for line in log.splitlines() if line.startswith("=========")]
    said = [line for line in lines if line and "SUMMARY" not in line and line != "COMPUTE-SANITIZER"]
    found = HAZARDS.search(log) or SUMMARY.search(log)
    counts: dict[str, int | None] = {"errors": None, "warnings": None}
    if found is not None:
        counts = {"errors": int(found["errors"]), "warnings": int(found.groupdict().get("warnings") or 0)}
    return {**counts, "first": said[0][:200] if said else ""}
