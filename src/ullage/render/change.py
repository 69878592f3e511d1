"""What changed from run A to run B, as text and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.errors import harmless
from ullage.render.scaling import glyphs, lowered
from ullage.reports.change import Change, ChangeReport, Check, Part, Quantity, Side, Verdict
from ullage.totals import RESOURCES
from ullage.views.numbers import UNKNOWN, factor
from ullage.views.table import table
from ullage.views.times import seconds

SHOWN = 12  # regions before "… n more"
WRITTEN: dict[str, Callable[[float], str]] = {"ns": seconds, "": "{:,.0f}".format, "1": factor}


def text(report: ChangeReport, verdict: Verdict | None = None, *, top: int = SHOWN) -> str:
    """Return the answer, what each side did in both runs, the regions, the verdict of a gate if there is one, and the notes."""
    parts = [
        headline(report),
        *(side(found) for found in report.whole.sides),
        regions(report, top),
        "" if verdict is None else "\n".join(map(_said, verdict.checks)),
        "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(report: ChangeReport) -> str:
    """Return in a line how much longer B takes, and what explains more of it than anything else."""
    whole = report.whole
    a, b = (letter if name == letter else f"{letter} '{harmless(name, 100)}'" for letter, name in (("A", report.a), ("B", report.b)))
    elapsed = whole.find("elapsed")
    ratio = None if elapsed is None else elapsed.ratio
    if ratio is None:
        return f"{b} against {a}"
    times = f"{seconds(whole.a_elapsed)} to {seconds(whole.b_elapsed)}"
    said = f"{b} takes {ratio.value:.3f} times as long as {a}: {times}"
    return f"{said}; {_cause(whole)} explains {_signed(whole.cause.elapsed)}" if whole.cause is not None else said


def side(found: Side) -> str:
    """Return what the devices (or the hosts) did in both runs, with what each row explains of the elapsed time."""
    rows = [row for row in found.rows if row.unit != "" or row.metric == "launches" or row.a != row.b]
    ties = glyphs([row.depth for row in rows])
    cells = [
        [tie + row.label, _value(row, row.a), _value(row, row.b), _ratio(row), *_explains(row)] for tie, row in zip(ties, rows, strict=True)
    ]
    unit = f"all {'devices' if found.resource is None else RESOURCES[found.resource]}"
    return table([found.name.capitalize(), "A", "B", "ratio", "elapsed", unit], cells)


def regions(report: ChangeReport, top: int = SHOWN) -> str:
    """Return the regions that both runs have, a row each, the most changed first."""
    rows = []
    for part in report.parts[1 : top + 1]:
        elapsed, device = part.find("elapsed"), part.find("device_parallel_efficiency")
        rows.append(
            [
                harmless(part.name, 40),
                seconds(part.a_elapsed or None),
                seconds(part.b_elapsed or None),
                UNKNOWN if elapsed is None else _ratio(elapsed),
                *([UNKNOWN] * 2 if device is None else [_value(device, device.a), _value(device, device.b)]),
                _cause(part),
            ]
        )
    if not rows:
        return ""
    more = f"\n… {len(report.parts) - 1 - top:,} more; --top shows them" if len(report.parts) - 1 > top else ""
    head = ["region", "A", "B", "ratio", "device, A", "device, B", "explained by"]
    wide = max(len(row[-1]) for row in [head, *rows])
    return table([*head[:-1], head[-1].ljust(wide)], [[*row[:-1], row[-1].ljust(wide)] for row in rows]) + more


def record(report: ChangeReport, verdict: Verdict | None = None) -> dict[str, Any]:
    """Return the comparison as plain data: ratios, times in s, None for what is not known or can't be told."""
    data: dict[str, Any] = {
        "a": report.a,
        "b": report.b,
        "mode": report.mode,
        "whole": _part(report.whole),
        "regions": [{"name": part.name, **_part(part)} for part in report.parts[1:]],
        "notes": list(report.notes),
    }
    if verdict is not None:
        data["passed"] = verdict.passed
        data["checks"] = [
            {"metric": c.metric, "limit": c.limit, "ratio": _bounded(c.change.ratio, 1), "passed": c.passed} for c in verdict.checks
        ]
    return data


def _part(part: Part) -> dict[str, Any]:
    return {
        "elapsed_s": {"a": part.a_elapsed / 1e9, "b": part.b_elapsed / 1e9},
        "explained_by": None if part.cause is None else part.cause.metric,
        **{found.name: [_row(row) for row in found.rows] for found in part.sides},
    }


def _row(row: Change) -> dict[str, Any]:
    scale = 1e-9 if row.unit == "ns" else 1
    return {
        "metric": row.metric,
        "label": row.label,
        "depth": row.depth,
        "unit": {"ns": "s", "": "count"}.get(row.unit, row.unit),
        "a": _bounded(row.a, scale),
        "b": _bounded(row.b, scale),
        "ratio": _bounded(row.ratio, 1),
        "settled": row.settled,
        "elapsed_s": None if row.elapsed is None else row.elapsed / 1e9,
        "resource_s": None if row.resources is None else row.resources / 1e9,
    }


def _bounded(found: Quantity | None, scale: float) -> dict[str, float | None] | None:
    if found is None:
        return None
    high = found.high * scale
    return {"value": found.value * scale, "low": found.low * scale, "high": high if high != float("inf") else None}


def _value(row: Change, found: Quantity | None) -> str:
    if found is None:
        return UNKNOWN
    written = WRITTEN[row.unit]
    low, high = written(found.low), written(found.high)
    return written(found.value) if low == high else f"{low}–{high}"


def _ratio(row: Change) -> str:
    ratio = row.ratio
    if ratio is None:
        return UNKNOWN
    low, high = f"{ratio.low:.3f}", f"{ratio.high:.3f}"
    return f"{ratio.value:.3f}" if low == high else f"{low}–{high}"


def _explains(row: Change) -> list[str]:
    if row.ratio is not None and not row.settled:
        return ["cannot tell", ""]
    about = "" if row.ratio is None or row.ratio.exact or row.elapsed is None else "≈ "
    return [about + _signed(row.elapsed), about + _signed(row.resources)]


def _signed(time: float | None) -> str:
    """Return what is added to a time, with its sign.

    >>> _signed(1_500_000), _signed(-7), _signed(0.2), _signed(None)
    ('+1.500 ms', '−7 ns', '0', '–')
    """
    if time is None:
        return UNKNOWN
    return "0" if abs(time) < 0.5 else f"{'+' if time > 0 else '−'}{seconds(abs(time))}"


def _cause(part: Part) -> str:
    return (
        ""
        if part.cause is None
        else f"{lowered(part.cause.label)} ({_value(part.cause, part.cause.a)} to {_value(part.cause, part.cause.b)})"
    )


def _said(check: Check) -> str:
    ratio = "unknown" if check.change.ratio is None else _ratio(check.change)
    said = {True: "passed", False: "failed", None: "cannot tell, so not passed"}[check.passed]
    return f"{said}: {lowered(check.label)} ({check.metric}) is {ratio} of A's, the limit is {check.limit:g}"
