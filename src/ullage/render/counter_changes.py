"""What came and went between two lists of counter metrics, as text for a terminal and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ullage.cupti.changes import Changes
from ullage.cupti.dictionary import Metric
from ullage.errors import harmless

Side = tuple[str, str]  # chip and release


def record(before: Side, after: Side, found: Changes, pattern: str | None) -> dict[str, Any]:
    """Return the changes for JSON; `same` is None where a pattern chose among them."""
    return {
        "before": {"chip": before[0], "release": before[1]},
        "after": {"chip": after[0], "release": after[1]},
        "match": pattern,
        "counts": {
            "came": len(found.came), "went": len(found.went), "renamed": len(found.renamed), "changed": len(found.changed),
            "same": found.same if pattern is None else None,
        },
        "came": [_whole(metric) for metric in found.came],
        "went": [_whole(metric) for metric in found.went],
        "renamed": [{"before": _whole(first), "after": _whole(second)} for first, second in found.renamed],
        "changed": [{"before": _whole(first), "after": _whole(second)} for first, second in found.changed],
    }  # fmt: skip


def text(record: Mapping[str, Any], shown: int) -> str:
    """Return a record as text: the counts, then of each list the first `shown` names (0: all)."""
    counts = record["counts"]
    names = [f"{side['chip']} in CUPTI {side['release']}" for side in (record["before"], record["after"])]
    only = f", of {harmless(record['match'])}" if record["match"] else ""
    kept = "" if counts["same"] is None else f"; {counts['same']:,} are as they were"
    answer = f"{counts['came']:,} came, {counts['went']:,} went, {counts['renamed']:,} renamed, {counts['changed']:,} changed"
    lines = [f"{answer}: {names[0]} → {names[1]}{only}{kept}"]
    for title in ("renamed", "changed", "went", "came"):
        rows = record[title]
        first = rows[:shown] if shown else rows
        if rows:
            lines += ["", f"{title}{_summary(title, rows)}", *(_line(title, row) for row in first)]
        if len(first) < len(rows):
            lines.append(f"  … and {len(rows) - len(first):,} more; --all lists them")
    return "\n".join(lines)


def _whole(metric: Metric) -> dict[str, str]:
    return {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "hardware": metric.hardware}


def _summary(title: str, rows: list[dict[str, Any]]) -> str:
    """Return of what the list mostly consists: changes of unit, or hardware units."""
    if title == "renamed":
        return ""
    if title == "changed":
        counted = Counter(_change(row) for row in rows)
    else:
        counted = Counter(row["hardware"] for row in rows)
    return ": " + ", ".join(f"{number:,} {what}" for what, number in counted.most_common(6)) + (", …" if len(counted) > 6 else "")


def _line(title: str, row: dict[str, Any]) -> str:
    if title == "renamed":
        return f"  {row['before']['name']} → {row['after']['name']}"
    if title == "changed":
        return f"  {row['before']['name']}: {_change(row)}"
    return f"  {row['name']} ({row['kind']}, {row['unit']})"


def _change(row: dict[str, Any]) -> str:
    before, after = row["before"], row["after"]
    return ", ".join(f"{key} {before[key]} → {after[key]}" for key in ("kind", "unit", "hardware") if before[key] != after[key])
