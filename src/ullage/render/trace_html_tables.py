"""The tables of a trace report's page."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.errors import harmless
from ullage.metrics.losses import Bill
from ullage.metrics.tree import Node
from ullage.render import trace_sequences, trace_what_if
from ullage.render.gemms import sizes, summary
from ullage.render.html_tables import Cell, more, table
from ullage.render.svg.tree import bounds
from ullage.render.trace_code import Table, tables, where
from ullage.render.trace_links import bandwidths, said
from ullage.render.trace_parts import CAUSES, NCCL_COLUMNS, columns, device_states, host_states, time_or_unknown, times
from ullage.reports.lane_shares import device_shares, host_shares
from ullage.reports.trace import TraceReport
from ullage.reports.view import View
from ullage.sums.nccl_arrivals import NcclArrivals
from ullage.views.markup import Markup, element
from ullage.views.numbers import UNKNOWN, factor, money, percent
from ullage.views.times import seconds

ROWS, VIEWS, NAMES, GAPS = 200, 40, 30, 10
_LONG = 400  # characters of a kernel's name, template arguments and all


def host_seconds(report: TraceReport) -> str:
    """Return the unit of the hosts' time: seconds of processes, of threads or of CPUs."""
    totals = report.whole.host_totals
    return f"{'process' if totals is None else totals.resource}-seconds"


def bill(found: Bill, whose: str, unit: str) -> Markup:
    """Return what each factor costs; the shares add up to 100 %."""
    priced = found.money is not None
    head = ["factor", "share", unit, *(["money"] if priced else [])]
    rows = [
        [
            Cell(loss.label),
            Cell(percent(share(loss.share), 1), loss.share),
            Cell(f"{loss.seconds if abs(loss.seconds) >= 1e-9 else 0.0:,.4g}", loss.seconds),
            *([Cell(money(loss.money), loss.money)] if priced else []),
        ]
        for loss in sorted(found.losses, key=lambda loss: -(loss.share or 0))
    ]
    return table(f"loss of the {whose}", head, rows, sorts=True)


def share(value: float | None) -> float | None:
    """Return a share without what rounding left of nothing.

    >>> share(-1e-17), share(0.25)
    (0.0, 0.25)
    """
    return None if value is None else round(value, 6) + 0.0


def gaps(report: TraceReport) -> Markup | None:
    """Return the longest gaps, each with its main cause and what ran around it."""
    if report.idle is None or report.run is None:
        return None
    numbers = {d.key: n for n, d in enumerate(report.run.devices)}
    rows = [
        [
            Cell(f"GPU {numbers.get(gap.device, '?')}"),
            Cell(CAUSES.get(gap.cause, gap.cause)),
            Cell(where(gap, 100)),
            Cell(_kernel(gap.before) if gap.before else "the begin"),
            Cell(_kernel(gap.after) if gap.after else "the end"),
            Cell(seconds(gap.start - report.idle.origin), gap.start - report.idle.origin),
            Cell(seconds(gap.end - gap.start), gap.end - gap.start),
        ]
        for gap in report.idle.gaps[:GAPS]
    ]
    return table("longest gaps", ["device", "mostly", "in", "after", "before", "at", "idle"], rows, words=5, sorts=True)


def code(report: TraceReport) -> list[Markup]:
    """Return the tables of what code the run's time belongs to, each under its title."""
    return [child for part in tables(report, top=NAMES, wide=_LONG) for child in _titled(part)]


def _titled(part: Table) -> list[Markup]:
    rows = [[Cell(*cell) for cell in row] for row in part.rows]
    return [element("h3", part.title[:1].upper() + part.title[1:]), table(part.title, part.head, rows, words=part.words, sorts=True)]


def lengths(report: TraceReport) -> list[Markup]:
    """Return what ranks were fed and what each token cost them; nothing where that is not known of two or more."""
    if report.sequences is None:
        return []
    words, hidden = trace_sequences.said(report.sequences), more(len(report.sequences.ranks) - ROWS)
    part = trace_sequences.ranks(report, top=ROWS, wide=80)
    return [*_titled(part), *([hidden] if hidden else []), element("p", f"{words[:1].upper()}{words[1:]}.")]


def links(report: TraceReport) -> list[Markup]:
    """Return how fast collectives moved data; nothing where no size is known."""
    if not report.bandwidths:
        return []
    words, hidden = said(report), more(len(report.bandwidths) - ROWS)
    return [
        *_titled(bandwidths(report, top=ROWS, wide=80)),
        *([hidden] if hidden else []),
        element("p", f"{words[:1].upper()}{words[1:]}."),
    ]


def what_if(report: TraceReport) -> list[Markup]:
    """Return what a replay of the run says; nothing where none was asked for."""
    if report.what_if is None:
        return []
    speedups, *path = trace_what_if.tables(report.what_if, top=NAMES, wide=_LONG)
    words = [f"{line[:1].upper()}{line[1:]}." for line in trace_what_if.said(report.what_if)]
    return [*_titled(speedups), *(element("p", line) for line in words), *(child for part in path for child in _titled(part))]


def _kernel(name: str) -> Markup:
    """Return a kernel's bare name; the whole one shows when it is pointed at."""
    whole = harmless(name, _LONG)
    return element("span", bare(whole), title=whole)


def bare(name: str) -> str:
    """Return a C++ function's name without return type, template arguments and parameters; other names as they are.

    >>> bare("void at::native::<unnamed>::norm<float, (int)4>(int, T *)"), bare("Memcpy HtoD (Pinned -> Device)")
    ('at::native::norm', 'Memcpy HtoD (Pinned -> Device)')
    """
    if "::" not in name and "<" not in name and not name.startswith("void "):
        return name
    depth, kept = 0, []
    for sign in name.removeprefix("void ").replace("<unnamed>::", "").replace("(anonymous namespace)::", "").replace("->", ""):
        depth -= sign in ">)" and depth > 0
        if not depth and sign not in "<>()":
            kept.append(sign)
        depth += sign in "<("
    return "".join(kept).strip()[:120] or name


def families(report: TraceReport) -> Markup | None:
    """Return kernels by family, the most time first."""
    if report.kernels is None:
        return None
    rows = [
        [
            Cell(row.family),
            Cell(f"{row.names:,}", row.names),
            Cell(f"{row.count:,}", row.count),
            Cell(seconds(row.time), row.time),
            Cell(percent(row.share, 1), row.share),
        ]
        for row in report.kernels.families
    ]
    return table("kernels by family", ["family", "names", "count", "time", "share"], rows, sorts=True)


def names(report: TraceReport) -> Markup | None:
    """Return the kernels that took the most time, by name."""
    if report.kernels is None:
        return None
    found = report.kernels.kernels
    rows = [
        [
            Cell(_kernel(row.name)),
            Cell(row.family),
            Cell(f"{row.count:,}", row.count),
            Cell(seconds(row.time), row.time),
            Cell(seconds(row.mean), row.mean),
            Cell(seconds(row.longest), row.longest),
            Cell(percent(row.share, 1), row.share),
        ]
        for row in found[:NAMES]
    ]
    listed = table("kernels by name", ["kernel", "family", "count", "time", "mean", "longest", "share"], rows, words=2, sorts=True)
    return Markup(listed + (more(len(found) - NAMES) or ""))


def gemms(report: TraceReport) -> list[Markup] | None:
    """Return the matrix products that took the most time, with what tiles cost of each; None where the trace tells no shapes."""
    found = report.gemms
    if found is None or found.tile_efficiency is None:
        return None
    uses = [use for use in found.rows if use.product is not None]
    rows = [
        [
            Cell(_kernel(use.kernel)),
            Cell(sizes(use.product)),
            Cell(f"{use.count:,}", use.count),
            Cell(seconds(use.time), use.time),
            Cell(UNKNOWN if use.tile_efficiency is None else f"{use.tile_efficiency:.4f}", use.tile_efficiency),
            Cell(UNKNOWN if use.rate is None else f"{use.rate / 1e12:,.0f}", use.rate),
            Cell(percent(use.share_of_peak), use.share_of_peak),
        ]
        for use in uses[:NAMES]
    ]
    head, said = ["kernel", "M × N × K", "count", "time", "tile efficiency", "TFLOP/s", "of peak"], summary(found)
    listed = table("matrix products", head, rows, words=2, sorts=True)
    return [
        element("h3", "Matrix products"),
        element("p", f"{said[:1].upper()}{said[1:]}."),
        Markup(listed + (more(len(uses) - NAMES) or "")),
    ]


def late(report: TraceReport) -> Markup | None:
    """Return who came last to collectives; None where nobody can be said to have."""
    found = [s for s in report.late.stragglers if s.last] if report.late is not None else []
    if not found:
        return None
    rows = [
        [
            Cell(harmless(s.label, 80)),
            Cell(f"{s.last:,} of {s.collectives:,}", s.last),
            Cell(seconds(s.lost), s.lost),
            Cell(seconds(s.waited), s.waited),
        ]
        for s in found[:ROWS]
    ]
    return table("who comes late", ["last to come", "times", "others waited", "waited itself"], rows, sorts=True)


def nccl(found: NcclArrivals) -> Markup:
    """Return who arrives last at collectives by what NCCL itself told."""
    rows = [
        [
            Cell(harmless(one.label, 80)),
            Cell(times(one.last, one.compared), one.last),
            *(Cell(time_or_unknown(value), value) for value in (one.behind, one.worst)),
            Cell(times(one.gpu_last, one.gpu_compared), one.gpu_last),
            *(Cell(time_or_unknown(value), value) for value in (one.gpu_lost, one.gpu_waited)),
        ]
        for one in found.processes[:ROWS]
    ]
    listed = table("who arrived last by NCCL", ["who arrived last", *NCCL_COLUMNS], rows, sorts=True)
    return Markup(listed + (more(len(found.processes) - ROWS) or ""))


def contradictions(report: TraceReport) -> Markup | None:
    """Return TALP's printed efficiencies that its own raw times contradict, None without any."""
    found = report.restated.contradictions if report.restated is not None else ()
    rows = [
        [Cell(harmless(r.region, 80)), Cell(r.key), Cell(f"{r.stated:.2f}", r.stated), Cell(factor(r.recomputed), r.recomputed)]
        for r in found[:ROWS]
    ]
    head = ["region", "TALP's name", "printed", "by its times"]
    return Markup(table("contradictions", head, rows, words=2, sorts=True) + (more(len(found) - ROWS) or "")) if rows else None


def processes(report: TraceReport) -> Markup:
    """Return each process' times, as shares of the run's elapsed time."""
    whole = report.whole
    parts, states = whole.host_parts, host_states(whole)
    rows = [
        [
            Cell(harmless(p.process.label, 80) + (f", {harmless(p.process.host, 60)}" if p.process.host else "")),
            Cell(seconds(p.elapsed), p.elapsed),
            *(_share(host_shares(p, whole.elapsed).get(name)) for name in states),
        ]
        for p in parts[:ROWS]
    ]
    found = table("processes", ["process", "elapsed", *states.values()], rows, sorts=True)
    return Markup(found + (more(len(parts) - ROWS) or ""))


def _share(value: float | None) -> Cell:
    return Cell(percent(value, 1), value)


def devices(report: TraceReport) -> Markup:
    """Return each device's times, as shares of the run's elapsed time."""
    whole = report.whole
    parts, states = whole.device_parts, device_states(whole)
    rows = [
        [
            Cell(f"GPU {number}" + (f", {harmless(p.device.name, 60)}" if p.device.name else "")),
            *(_share(device_shares(p, whole.elapsed, report.mode).get(name)) for name in states),
            Cell(f"{p.device.launches:,}", p.device.launches),
        ]
        for number, p in enumerate(parts[:ROWS])
    ]
    return Markup(table("devices", ["device", *states.values(), "launches"], rows, sorts=True) + (more(len(parts) - ROWS) or ""))


_COLUMNS = {
    "host_parallel_efficiency": "host parallel",
    "mpi_parallel_efficiency": "MPI parallel",
    "hybrid_mpi_parallel_efficiency": "MPI parallel",
    "openmp_parallel_efficiency": "OpenMP parallel",
    "device_offload_efficiency": "device offload",
    "device_parallel_efficiency": "device parallel",
    "device_load_balance": "device balance",
    "device_communication_efficiency": "device communication",
    "orchestration_efficiency": "orchestration",
}


def views(by: str, found: Sequence[View]) -> Markup:
    """Return a row of efficiencies for each region or step."""
    metrics = [metric for metric, _ in columns(found)]
    head = [by, "elapsed", *(_COLUMNS[metric] for metric in metrics)]
    rows = [[Cell(harmless(v.name, 80)), Cell(seconds(v.elapsed), v.elapsed), *(_cell(v, m) for m in metrics)] for v in found[:VIEWS]]
    return Markup(table(f"by {by}", head, rows, sorts=True) + (more(len(found) - VIEWS) or ""))


def _cell(found: View, metric: str) -> Cell:
    nodes = (tree.find(metric) for tree in (found.host, found.device) if tree is not None)
    node: Node | None = next((n for n in nodes if n is not None), None)
    if node is None or node.value is None:
        return Cell(UNKNOWN)
    return Cell(factor(node.value), node.value) if node.certain else Cell(bounds(node), None, "doubt")
