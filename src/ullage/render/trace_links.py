"""How fast collectives moved data, as tables for a terminal and for a page."""

from __future__ import annotations

from ullage.errors import harmless
from ullage.render.trace_code import Table
from ullage.reports.links import Bandwidth
from ullage.reports.trace import TraceReport
from ullage.views.numbers import UNKNOWN, flops, percent
from ullage.views.table import table
from ullage.views.times import seconds

NAMES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "send, receive",
}
_HEAD = ("operation", "group", "ranks", "size", "count", "time, mean", "algorithm", "bus", "of link")


def text(report: TraceReport, *, top: int) -> str:
    """Return the table and what must be known of it; "" without collectives of known size."""
    if not report.bandwidths:
        return ""
    part, more = bandwidths(report, top=top, wide=30), len(report.bandwidths) - top
    cells = [[shown for shown, _ in row] for row in part.rows]
    lines = [table([part.title, *part.head[1:]], cells, left=part.words), *([f"… {more:,} more; --top shows them"] if more > 0 else [])]
    return "\n".join([*lines, said(report)])


def bandwidths(report: TraceReport, *, top: int, wide: int) -> Table:
    """Return a row for each operation, group and size, the most bytes first; groups' names cut to `wide` characters."""
    title = "bandwidth of collectives" + (f", of {report.tables_of}" if report.tables_of else "")
    return Table(title, _HEAD, [_row(row, wide) for row in report.bandwidths[:top]], words=2)


def _row(row: Bandwidth, wide: int) -> list[tuple[str, float | None]]:
    return [
        (NAMES.get(row.operation, row.operation), None),
        (harmless(row.group, wide) or UNKNOWN, None),
        (f"{row.members:,}", row.members),
        (flops(row.least, "B") if row.least == row.most else f"{flops(row.least, 'B')} to {flops(row.most, 'B')}", row.least),
        (f"{row.count:,}", row.count),
        (seconds(round(row.mean)), row.mean),
        *((_least(row, None if value is None else flops(round(value), "B/s")), value) for value in (row.algorithm, row.bus)),
        (_least(row, None if row.share is None else percent(row.share)), row.share),
    ]


def _least(row: Bandwidth, shown: str | None) -> str:
    if shown is None:
        return UNKNOWN
    return f"≥ {shown}" if row.waiting else shown


def said(report: TraceReport) -> str:
    """Return in a line from when to when time counts, and what the shares are of."""
    links = dict.fromkeys(f"{r.link} ({flops(round(r.rate), 'B/s')} one way)" for r in report.bandwidths if r.link and r.rate)
    words = ["time from the last rank's arrival to the end"]
    if any(row.waiting for row in report.bandwidths):
        words.append("≥: not all ranks are recorded, so waiting may be within")
    if links:
        words.append(f"link: {', '.join(links)}")
    if any(row.share is None for row in report.bandwidths):
        words.append("–: not known to be within one host; --link gives the rate of their link")
    return "; ".join(words)
