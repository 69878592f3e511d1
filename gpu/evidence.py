"""Evidence: what a check found on a GPU, as a JSON file that says when, where, with what, and which numbers."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu.check import Check, Findings

FORMAT = 1
VERDICTS = ("passed", "failed", "not measured")
MOST = 1_000_000  # bytes of one recording; what is larger does not belong into a repository
TYPES: dict[str, type] = {
    "format": int, "check": str, "question": str, "date": str, "seconds": float, "verdict": str, "reason": str, "machine": dict,
    "versions": dict, "settings": dict, "answers": dict, "rows": list, "notes": list, "recordings": list,
    "unfinished": str,
}  # fmt: skip


def slug(name: str) -> str:
    """Return the folder name of a GPU.

    >>> slug("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def evidence(
    check: Check, findings: Findings, *, verdict: str, reason: str, now: float, seconds: float, machine: Mapping[str, Any], versions: Any
) -> dict[str, Any]:
    """Return the evidence of one run as a dictionary fit for JSON; what is not finite becomes null."""
    return {
        "format": FORMAT,
        "check": check.name,
        "question": check.question,
        "date": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(float(seconds), 3),
        "verdict": verdict,
        "reason": reason,
        "machine": dict(machine),
        "versions": dict(versions),
        "settings": {name: _finite(value) for name, value in findings.settings.items()},
        "answers": {name: _finite(value) for name, value in findings.answers.items()},
        "rows": [{name: _finite(value) for name, value in row.items()} for row in findings.rows],
        "notes": list(findings.notes),
        "recordings": sorted(findings.recordings),
        "unfinished": findings.unfinished,
    }


def _finite(value: Any) -> Any:
    if hasattr(value, "item"):  # a NumPy number
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def problems_of(found: Mapping[str, Any], check: Check) -> list[str]:
    """Return what is wrong with the form of evidence, a sentence each; nothing for good evidence."""
    wrong = [f"'{name}' is missing or no {kind.__name__}" for name, kind in TYPES.items() if not isinstance(found.get(name), kind)]
    if wrong:
        return wrong
    wrong += [f"'{name}' is not part of evidence" for name in set(found) - set(TYPES)]
    if found["verdict"] not in VERDICTS:
        wrong.append(f"the verdict is '{found['verdict']}'")
    if found["verdict"] == "passed" and set(found["answers"]) != set(check.answers):
        wrong.append(f"the answers are {sorted(found['answers'])}, not {sorted(check.answers)}")
    wrong += [f"a row has {sorted(row)}, not {sorted(check.columns)}" for row in found["rows"] if set(row) != set(check.columns)][:1]
    for group in (found["machine"], found["settings"], found["answers"], *found["rows"]):
        wrong += [f"'{name}' is no plain value" for name, value in group.items() if not isinstance(value, str | float | int | None)]
    return wrong


def write(folder: Path, found: Mapping[str, Any], recordings: Mapping[str, bytes]) -> Path:
    """Write the evidence and its recordings into the GPU's folder, whole or not at all; returns the JSON file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in recordings.items():
        if len(data) > MOST:
            raise ValueError(f"the recording {name} has {len(data):,} bytes, more than {MOST:,}")
        put(folder / name, data)
    path = folder / f"{found['check']}.json"
    put(path, (json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whatever ends the process meanwhile; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(data)
    os.replace(new, path)  # noqa: PTH105 - atomic on every platform


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the evidence of a check in a GPU's folder, or None when there is none that can be read."""
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def age(found: Mapping[str, Any], now: float) -> float:
    """Return how old evidence is, in hours.

    >>> age({"date": "1970-01-01T00:00:00Z"}, now=7200)
    2.0
    """
    made = datetime.strptime(str(found.get("date", "")), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (now - made.timestamp()) / 3600
