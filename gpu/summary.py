"""The summary of a GPU's evidence, `results/<gpu>/README.md`: what is confirmed, what is refuted, what is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu.evidence import CONFIRMED, REFUTED, attempts, put, read
from gpu.timetable import STAGES, TABLE, Entry

Evidence = Mapping[str, Any]


def write_summary(folder: Path) -> Path:
    """Write the summary of a GPU's folder from the evidence in it, and return its path."""
    path = folder / "README.md"
    put(path, summary(folder).encode())
    return path


def summary(folder: Path) -> str:
    """Return the summary in Markdown."""
    found = [(entry, read(folder, entry.name)) for entry in TABLE]
    there = [one for _, one in found if one is not None]
    if not there:
        return "# Nothing measured yet\n"
    confirmed = [(entry, one) for entry, one in found if one is not None and one["verdict"] == CONFIRMED]
    refuted = [(entry, one) for entry, one in found if one is not None and one["verdict"] == REFUTED]
    open_ = [(entry, one) for entry, one in found if one is None or one["verdict"] not in (CONFIRMED, REFUTED) or one["unfinished"]]
    parts = [
        f"# {plain(there[-1]['machine'].get('gpu'))}",
        f"{len(confirmed)} of {len(TABLE)} checks confirmed, {len(refuted)} refuted, {len(open_)} open. {_measured_on(there)}",
        "Written by `make gpu` from the evidence beside it; docs/gpu-checks.md explains each check.",
        _part("Confirmed", ("check", "question", "result"), [(_named(e), plain(o["question"]), plain(o["result"])) for e, o in confirmed]),
        _part("Refuted", ("check", "contradiction", "result"), [(_named(e), plain(o["reason"]), plain(o["result"])) for e, o in refuted]),
        _part("Open", ("check", "stage", "why"), [(_named(e), STAGES[e.stage], plain(_why(folder, e, o))) for e, o in open_]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measured_on(there: Sequence[Evidence]) -> str:
    boards = {str(one["machine"].get("uuid_hash")) for one in there}
    drivers = sorted({str(one["machine"].get("driver")) for one in there})
    dates = sorted(str(one["date"])[:10] for one in there)
    span = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return f"Measured {span} on {len(boards)} {'board' if len(boards) == 1 else 'boards'}, driver {' and '.join(map(plain, drivers))}."


def _why(folder: Path, entry: Entry, found: Evidence | None) -> str:
    """Return why a check has no final answer: its evidence says it, else its last attempt."""
    if found is not None:
        return found["unfinished"] if found["verdict"] in (CONFIRMED, REFUTED) else f"{found['verdict']}: {found['reason']}"
    last = [one for one in attempts(folder) if one["check"] == entry.name]
    return f"{last[-1]['verdict']}: {last[-1]['reason']}" if last else "not reached yet"


def _named(entry: Entry) -> str:
    return f"[`{entry.name}`]({entry.name}.json)"


def _part(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def plain(value: object) -> str:
    """Return words fit for a table's cell: whatever a driver or a program said, on one line and without markup.

    >>> plain("a|b <i>"), plain(None)
    ('a/b ‹i›', '–')
    """
    words = "–" if value is None else str(value).replace("|", "/").replace("<", "‹").replace(">", "›")
    return " ".join(words.split())[:500]
