"""The section that says what came of a fleet's GPU-hours: goodput, the runs that did not complete, and how long jobs waited."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.errors import harmless
from ullage.findings.fleet_evidence import QueueWaits
from ullage.metrics.metric import ratio
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.goodput import FleetGoodput
from ullage.views.markup import known
from ullage.views.notation import COUNT, FACTOR, GPU_HOURS, PERCENT_1
from ullage.views.numbers import hours, percent
from ullage.views.view import Column, Paragraph, Part, Section, Table, Value


def goodput_sections(report: FleetReport) -> Iterator[Section]:
    """Yield the section; none where records tell neither how runs ended nor how long they waited."""
    made = report.goodput if report.goodput is not None and known(report.goodput.goodput) is not None else None
    parts: list[Part] = [] if made is None else [*_product(made)]
    if report.queue is not None:
        parts.append(Paragraph(_waits(report.queue)))
    if parts:
        yield Section("goodput", "What came of it", parts, "" if made is None else _HOW, headed=True)


def _product(made: FleetGoodput) -> Iterator[Part]:
    rows: list[list[Value]] = [
        ["scheduling: jobs held GPUs", made.scheduling, made.capacity - made.allocated],
        ["runtime: the work was kept", made.runtime, made.allocated - made.kept],
        ["program: OFU meanwhile", made.program, made.kept - made.useful],
        ["= goodput", made.goodput, made.capacity - made.useful],
    ]
    yield Table("goodput", [Column("goodput"), Column("factor", FACTOR), Column("missing, GPU-hours", GPU_HOURS)], rows)
    if not made.ended:
        yield Paragraph("No run that records tell of failed, was started again, was cancelled or reached its time limit.")
        return
    ended: list[list[Value]] = [[one.ending, one.runs, one.gpu_hours, one.ofu_hours, "lost" if one.lost else "kept"] for one in made.ended]
    columns = [Column("runs that did not complete"), Column("runs", COUNT), Column("GPU-hours", GPU_HOURS)]
    columns += [Column("of them at the peak", GPU_HOURS, key="ofu_hours"), Column("counts as")]
    yield Table("ended-runs", columns, ended)
    if made.bounds is not None:
        least, most = made.bounds
        yield Paragraph(
            f"Goodput is {percent(least, 1)} if all their work was lost, and {percent(most, 1)} if checkpoints saved all of it: "
            "records do not say."
        )


def _waits(queue: QueueWaits) -> str:
    one = queue.runs == 1
    said = f"{queue.runs:,} run{'' if one else 's'} that started in the window waited in the queue for {_span(queue.mean)}"
    longest = f"{_span(queue.longest)} (job {harmless(queue.longest_job, 60)})"
    said += "." if one else f" on average over their GPUs; the median run waited {_span(queue.median)}, the longest {longest}."
    share = ratio(queue.gpu_hours, queue.ran)
    worth = "" if share is None else f", {PERCENT_1.words(share)} of the {GPU_HOURS.words(queue.ran)} that followed in the window"
    unknown = f" {queue.unknown:,} more do not say when they began to wait." if queue.unknown else ""
    return f"{said} GPUs × wait is {GPU_HOURS.words(queue.gpu_hours)} GPU-hours{worth}.{unknown}"


def _span(seconds: float) -> str:
    return f"{hours(seconds / 3600)} h"


_HOW = (
    "Goodput = scheduling × runtime × program: the share of the peak that went into work that was kept. The program's part is the chain "
    "from “held idle” on, over the runs that were kept. Time whose owner is not known stands outside."
)
