"""A run's report: the view of its trace with OFU above the device's efficiency, and the same as plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.render.svg.tree import tree as tree_picture
from ullage.render.trace import SHOWN
from ullage.render.trace import view as trace_view
from ullage.render.trace_json import record as trace_record
from ullage.render.trace_parts import trees_table
from ullage.reports.trace.run import RunReport
from ullage.views.declared import Document, Ratio, plain
from ullage.views.names import lowered
from ullage.views.numbers import percent
from ullage.views.view import Headline, Picture, Section, View

METHODS = {"exact": "exact, by cycle counters", "sampled": "sampled, by activities and clocks"}


def view(report: RunReport, *, by: str | None = None, top: int = SHOWN) -> View:
    """Return the report as data, the answer first."""
    notes = [harmless(note, 1000) for note in report.notes]
    if report.trace is None:
        return View("run", "Report on a run", Headline("No report on the run"), notes=notes)
    made = trace_view(report.trace, by=by, top=top)
    made = replace(made, kind="run", subject="Report on a run", notes=[*made.notes, *notes])
    return made if report.ofu is None else _with_ofu(made, report, shallow(report.ofu))


def _with_ofu(made: View, report: RunReport, ofu: Node) -> View:
    """Return a view whose answer is OFU, with the tree of which that is the top."""
    answer = made.headline
    strong = "OFU unknown" if ofu.value is None else f"OFU {percent(ofu.value)}"
    headline = replace(answer, strong=strong, rest=f", {lowered(answer.strong)}{answer.rest}")
    basis = f"OFU is {METHODS[report.method]}{f' (read by {harmless(report.by, 60)})' if report.by else ''}"
    table = replace(trees_table([("Device", ofu)]), name="ofu")
    picture = Picture(lambda w: tree_picture(None, ofu, title="OFU", width=w, standalone=False))
    section = Section(
        "ofu", "OFU", [picture, table], "OFU is how long devices compute times how full their tensor cores are while they do."
    )
    return replace(made, headline=headline, basis=[basis], sections=[section, *made.sections])


def shallow(tree: Node) -> Node:
    """Return OFU's tree without what stands in the device's tree already."""
    parallel, computed = tree.children
    return replace(tree, children=(replace(parallel, children=()), computed))


class RunDocument(Document):
    """The answer of `ullage run`: beside these keys, where there is a trace, all those of `ullage.trace`."""

    exit: int
    ofu: dict[str, Ratio | str | None] | None
    run_notes: list[str]


def record(report: RunReport) -> dict[str, Any]:
    """Return the report as plain data: the record of the trace, with `exit`, `ofu` and `run_notes`."""
    found = None
    if report.ofu is not None:
        values = {node.metric: node.value for _, node in shallow(report.ofu).walk()}
        found = {**values, "method": report.method, "by": report.by}
    data = plain(RunDocument(exit=report.code, ofu=found, run_notes=list(report.notes)))
    return data if report.trace is None else trace_record(report.trace) | data
