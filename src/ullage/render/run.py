"""A run's report as text and as plain data: the trees, OFU above the device's, the notes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.render.trace import Paint, drawn, plain
from ullage.render.trace import text as trace_text
from ullage.render.trace_json import record as trace_record
from ullage.reports.run import RunReport
from ullage.views.numbers import UNKNOWN, percent

METHODS = {"exact": "exact: cycle counters", "sampled": "sampled: activities and clocks"}


def text(report: RunReport, *, by: str | None = None, top: int = 12, paint: Paint = plain) -> str:
    """Return the report as text, the answer first."""
    parts = [computing(report, paint)] if report.ofu is not None else []
    if report.trace is not None:
        parts.append(trace_text(report.trace, by=by, top=top, paint=paint).rstrip("\n"))
    parts.append("\n".join(f"note: {harmless(note, 1000)}" for note in report.notes))
    return "\n\n".join(part for part in parts if part) + "\n"


def computing(report: RunReport, paint: Paint = plain) -> str:
    """Return OFU and its factors, a line a node."""
    assert report.ofu is not None
    by = f", by {harmless(report.by, 60)}" if report.by else ""
    head = f"OFU {UNKNOWN if report.ofu.value is None else percent(report.ofu.value)} ({METHODS[report.method]}{by})"
    return head + "\n" + drawn([("Device", shallow(report.ofu))], paint)


def shallow(tree: Node) -> Node:
    """Return OFU's tree without what stands in the device's tree already."""
    parallel, computed = tree.children
    return replace(tree, children=(replace(parallel, children=()), computed))


def record(report: RunReport) -> dict[str, Any]:
    """Return the report as plain data: the record of the trace, with `exit`, `ofu` and `run_notes`."""
    found: dict[str, Any] = {"exit": report.code, "ofu": None, "run_notes": list(report.notes)}
    if report.ofu is not None:
        values = {node.metric: node.value for _, node in shallow(report.ofu).walk()}
        found["ofu"] = {**values, "method": report.method, "by": report.by}
    return found if report.trace is None else trace_record(report.trace) | found
