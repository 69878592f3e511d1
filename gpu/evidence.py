"""Evidence: what a check found on a GPU, as a JSON file that says when, where, with what, and which numbers."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpu.check import Check, Findings

FORMAT = 2
CONFIRMED, REFUTED, BROKEN, NOT_MEASURED = "confirmed", "refuted", "broken", "not measured"
VERDICTS = (CONFIRMED, REFUTED, BROKEN, NOT_MEASURED)
ANSWERED = (CONFIRMED, REFUTED)  # the GPU has spoken: nothing is gained by asking it again
JOURNAL = "attempts.jsonl"
CUT_OFF = "it was cut off"  # `unfinished` of evidence that was written on the way
MOST = 1_000_000  # bytes of one recording; what is larger does not belong into a repository
TYPES: dict[str, type] = {
    "format": int, "check": str, "question": str, "date": str, "seconds": float, "verdict": str, "reason": str, "result": str,
    "code": str, "machine": dict, "versions": dict, "settings": dict, "answers": dict, "rows": list, "notes": list, "recordings": list,
    "unfinished": str,
}  # fmt: skip


def slug(name: str) -> str:
    """Return the folder name of a GPU.

    >>> slug("NVIDIA H100 80GB HBM3")
    'nvidia-h100-80gb-hbm3'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"


def branch(driver: object) -> str:
    """Return the branch of a driver's version: within one, counters and interfaces stay what they are.

    >>> branch("580.159.04"), branch(None)
    ('580', '')
    """
    return str(driver or "").partition(".")[0]


def timestamp(now: float) -> str:
    """Return a time (s since 1970) as evidence has it: UTC, ISO."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def evidence(
    check: Check,
    findings: Findings,
    *,
    verdict: str,
    reason: str,
    now: float,
    seconds: float,
    code: str,
    machine: Mapping[str, Any],
    versions: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the evidence of one run as a dictionary fit for JSON; what is not finite becomes null."""
    return {
        **bare_evidence(check.name, verdict=verdict, reason=reason, now=now, seconds=seconds, code=code, machine=machine),
        "question": check.question,
        "result": check.result_line(findings.answers) if findings.answers else "",
        "versions": dict(versions),
        "settings": {name: _finite(value) for name, value in findings.settings.items()},
        "answers": {name: _finite(value) for name, value in findings.answers.items()},
        "rows": [{name: _finite(value) for name, value in row.items()} for row in findings.rows],
        "notes": list(findings.notes),
        "recordings": sorted(findings.recordings),
        "unfinished": findings.unfinished,
    }


def bare_evidence(
    name: str, *, verdict: str, reason: str, now: float, seconds: float, code: str, machine: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the evidence of a check that found nothing, which needs nothing of the check itself."""
    return {
        "format": FORMAT,
        "check": name,
        "question": "",
        "date": timestamp(now),
        "seconds": round(float(seconds), 3),
        "verdict": verdict,
        "reason": reason,
        "result": "",
        "code": code,
        "machine": dict(machine),
        "versions": {},
        "settings": {},
        "answers": {},
        "rows": [],
        "notes": [],
        "recordings": [],
        "unfinished": "",
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
    if found["verdict"] == CONFIRMED and set(found["answers"]) != set(check.answers):
        wrong.append(f"the answers are {sorted(found['answers'])}, not {sorted(check.answers)}")
    wrong += [f"a row has {sorted(row)}, not {sorted(check.columns)}" for row in found["rows"] if set(row) != set(check.columns)][:1]
    for group in (found["machine"], found["settings"], found["answers"], *found["rows"]):
        wrong += [f"'{name}' is no plain value" for name, value in group.items() if not isinstance(value, str | float | int | None)]
    return wrong


def answered(found: Mapping[str, Any] | None, *, driver: object, code: str, board: str | None = None) -> bool:
    """Whether evidence settles its question for a driver's branch and a mark of the code, to its end; `board` asks for that very GPU."""
    if found is None or found.get("verdict") not in ANSWERED or found.get("unfinished"):
        return False
    machine = found.get("machine", {})
    same = branch(machine.get("driver")) == branch(driver) and found.get("code") == code
    return same and board in (None, machine.get("uuid_hash"))


def is_of_attempt(found: Mapping[str, Any] | None, begin: float) -> bool:
    """Whether evidence is of the attempt that began at a time (s since 1970)."""
    return found is not None and found.get("date") == timestamp(begin)


def write(folder: Path, found: Mapping[str, Any], recordings: Mapping[str, bytes]) -> Path:
    """Write the evidence and its recordings into the GPU's folder, whole or not at all; returns the JSON file's path."""
    for name, data in recordings.items():
        if len(data) > MOST:
            raise ValueError(f"the recording {name} has {len(data):,} bytes, more than {MOST:,}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in recordings.items():
        put(folder / name, data)
    path = folder / f"{found['check']}.json"
    put(path, (json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())
    return path


def put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whatever ends the process meanwhile; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(data)
        os.replace(new, path)  # noqa: PTH105 - atomic on every platform
    except OSError:  # a full disk: what was written of it is in the way of others
        with suppress(OSError):
            new.unlink()
        raise


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the evidence of a check in a GPU's folder, or None when there is none that can be read."""
    try:
        found = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("format") == FORMAT else None


def outweighs(new: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> bool:
    """Whether new evidence takes the place of earlier evidence: what a GPU has answered is not given up for an attempt that failed.

    >>> outweighs({"verdict": "broken"}, {"verdict": "confirmed"}), outweighs({"verdict": "broken"}, {"verdict": "not measured"})
    (False, True)
    """
    worth = {NOT_MEASURED: 0, BROKEN: 1, REFUTED: 2, CONFIRMED: 2}
    return earlier is None or worth.get(str(new["verdict"]), 0) >= worth.get(str(earlier.get("verdict")), 0)


def note_attempt(folder: Path, found: Mapping[str, Any]) -> None:
    """Add a line to the journal of attempts: what was tried, when, on which GPU, at which code, and how it ended."""
    machine = found["machine"]
    line = {name: found[name] for name in ("check", "date", "seconds", "verdict", "reason", "code", "unfinished")}
    line |= {"uuid_hash": machine.get("uuid_hash"), "driver": machine.get("driver")}
    add_line(folder / JOURNAL, line)


def add_line(path: Path, line: Mapping[str, Any]) -> None:
    """Add an object to a file of JSON lines; a last line that was cut off does not spoil it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(max(0, file.tell() - 1))
        torn = file.read(1) not in (b"", b"\n")
        file.write((("\n" if torn else "") + json.dumps(line, ensure_ascii=False) + "\n").encode())


def attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the journal's lines, the oldest first."""
    return [one for one in read_lines(folder / JOURNAL) if "check" in one]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, none where there is no such file; a line that was cut off is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            one = json.loads(line)
            if isinstance(one, dict):
                found.append(one)
    return found
