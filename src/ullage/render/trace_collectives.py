"""Who arrives last at collectives, what ranks were fed, and how fast collectives moved data."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.reports.trace.late_ranks import Late
from ullage.reports.trace.links import Bandwidth
from ullage.reports.trace.sequences import Sequences, verdict
from ullage.reports.trace.trace import TraceReport
from ullage.sums.nccl_arrivals import NcclArrivals
from ullage.views.notation import BYTE_RATE, BYTES, COUNT, FACTOR, PERCENT, TIME, Notation
from ullage.views.numbers import UNKNOWN, counted, factor, flops
from ullage.views.times import seconds
from ullage.views.view import Cell, Column, Paragraph, Part, Table, Value

ROWS = 200  # of a table on a page
RANKS = 8  # in a table of a terminal
_OPERATIONS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send, receive",
}


def collectives(report: TraceReport, top: int) -> Iterator[Part]:
    """Yield what is known of collectives: who arrives last, by the trace and by NCCL, cost per token, bandwidths."""
    of = f", of {report.tables_of}" if report.tables_of else ""
    if report.late is not None:
        yield from _late(report.late, of)
    if report.nccl is not None and report.nccl.collectives:
        yield from _told_by_nccl(report.nccl)
    if report.sequences is not None:
        yield from _sequences(report.sequences, of, top)
    if report.bandwidths:
        yield _bandwidths(report, of, top)


def _late(found: Late, of: str) -> Iterator[Part]:
    said = f"{counted(found.collectives, 'collective')} matched across ranks{of}"
    if found.skew is not None:
        said += f"; ranks arrive {seconds(found.skew.median)} apart (median), {seconds(found.skew.percentile_95)} (95th percentile)"
    yield Paragraph(f"{said}.")
    columns = [Column("rank", room=40), Column("times", COUNT), Column("made others wait", TIME), Column("waited", TIME)]
    rows: list[list[Value | Cell]] = [
        [one.label, _times(one.last, one.collectives), one.lost, one.waited] for one in found.stragglers if one.last
    ]
    yield Table("who arrives last", columns, rows, "Who arrived last", brief=RANKS, page=ROWS, elsewhere="--out FILE.html shows them")


def _told_by_nccl(found: NcclArrivals) -> Iterator[Part]:
    """Yield who arrives last at collectives by what NCCL itself told."""
    yield Paragraph(f"{told_by_nccl(found)}.")
    columns = [Column("rank", room=40), Column("program last", COUNT), Column("behind (median)", TIME), Column("behind (worst)", TIME)]
    columns += [Column("GPU last", COUNT), Column("made others wait", TIME), Column("waited", TIME)]
    rows: list[list[Value | Cell]] = [
        [
            *(one.label, _times(one.last, one.compared), one.behind, one.worst),
            *(_times(one.gpu_last, one.gpu_compared), one.gpu_lost, one.gpu_waited),
        ]
        for one in found.processes
    ]
    title = "Who arrived last, as NCCL told it"
    yield Table("who arrived last by NCCL", columns, rows, title, brief=RANKS, page=ROWS, elsewhere="--out FILE.html shows them")


def told_by_nccl(found: NcclArrivals) -> str:
    """Return in a line what was matched by what NCCL itself told."""
    said = f"{counted(found.collectives, 'collective')} matched by NCCL's own numbers in {counted(found.communicators, 'communicator')}"
    when = "when programs enqueued them" + (", and when their GPUs began them" if found.gpus_compared else "")
    return f"{said}, of all that was recorded: {when}"


def _times(count: int, of: int) -> Cell:
    """Return how often something was so, of how often it could be."""
    return Cell(count, f"{count:,} of {of:,}") if of else Cell(None)


def _sequences(found: Sequences, of: str, top: int) -> Iterator[Part]:
    """Yield what ranks were fed and what a token cost them, those with a finding first; and what it comes to."""
    columns = [Column("rank", room=40), Column("tokens", COUNT), Column("of median", FACTOR), Column("kernel time", TIME)]
    columns += [Column("per token", TIME), Column("of median", FACTOR, key="time of median"), Column("finding")]
    rows: list[list[Value]] = [
        [row.label, row.tokens, row.relative_tokens, row.time, row.per_token * 1e9, row.relative_cost, row.finding]
        for row in sorted(found.ranks, key=lambda row: not row.finding)
    ]
    where = f"in {counted(found.steps, 'step')}" if found.steps else "in all"
    times = f"{factor(found.imbalance)} times as long as the mean one, {factor(found.at_equal_tokens)} at equal tokens"
    why = verdict(found)
    said = f"{where} the longest rank computes {times}{f': {why}' if why else ''}."
    yield Table(
        "cost per token", columns, rows, f"Cost per token{of}", brief=top, page=ROWS, elsewhere="--top shows them",
        note=said[:1].upper() + said[1:],
    )  # fmt: skip


def _bandwidths(report: TraceReport, of: str, top: int) -> Table:
    """Return a row for each operation, group and size, the most bytes first, and what must be known of it."""
    columns = [Column("operation"), Column("group", room=30), Column("ranks", COUNT), Column("size", BYTES), Column("count", COUNT)]
    columns += [Column("time, mean", TIME), Column("algorithm", BYTE_RATE), Column("bus", BYTE_RATE), Column("of link", PERCENT)]
    rows = [_bandwidth(row) for row in report.bandwidths]
    links = dict.fromkeys(f"{r.link} ({BYTE_RATE.words(r.rate)} one way)" for r in report.bandwidths if r.link and r.rate)
    words = ["Time from the last rank's arrival to the end"]
    if any(row.waiting for row in report.bandwidths):
        words.append("≥: not all ranks are recorded, so waiting may be within")
    if links:
        words.append(f"link: {', '.join(links)}")
    if any(row.share is None for row in report.bandwidths):
        words.append("–: not known to be within one host; --link gives the rate of their link")
    return Table(
        "bandwidth of collectives", columns, rows, f"Bandwidth of collectives{of}", brief=top, page=ROWS, elsewhere="--top shows them",
        note=f"{'; '.join(words)}.",
    )  # fmt: skip


def _bandwidth(row: Bandwidth) -> list[Value | Cell]:
    least, most = flops(row.least, "B"), flops(row.most, "B")
    size = Cell(row.least, least if row.least == row.most else f"{least} to {most}")
    rates = [
        _at_least(row, value, notation) for value, notation in ((row.algorithm, BYTE_RATE), (row.bus, BYTE_RATE), (row.share, PERCENT))
    ]
    return [_OPERATIONS.get(row.operation, row.operation), row.group or UNKNOWN, row.members, size, row.count, round(row.mean), *rates]


def _at_least(row: Bandwidth, value: float | None, notation: Notation) -> Cell:
    return Cell(value, f"≥ {notation.words(value)}" if row.waiting and value is not None else "")
