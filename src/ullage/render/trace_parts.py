"""The tables below the trees: why devices idled, what ran on them, who came late, and the trees of ranks, regions and steps."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.render.gemms import summary
from ullage.render.trace_code import where
from ullage.reports.lane_shares import device_shares, host_shares
from ullage.reports.late import Late
from ullage.reports.restated import Restatement
from ullage.reports.trace import TraceReport
from ullage.reports.view import View
from ullage.sums.lanes.idle import Gap
from ullage.sums.nccl_arrivals import NcclArrivals
from ullage.views.numbers import UNKNOWN, factor, percent
from ullage.views.table import table
from ullage.views.times import seconds

# What the host did while a device had nothing to do, in words.
CAUSES = {
    "useful": "host computing (or Python)",
    "offload": "in GPU calls (launch, copy, allocate)",
    "sync": "host waiting for a device",
    "communication": "in MPI or a host collective",
    "off": "host thread descheduled",
    "launched": "launched already, not begun",
    "unknown": "not known",
}

WIDTH = 100  # columns of a terminal; a wider table of gaps cuts names, or says what ran around each gap in a line of its own
SMALL = 0.0005  # a share that is 0.0 % in a table


def causes(report: TraceReport) -> str:
    """Return idle time by what the host thread that launched next did meanwhile."""
    idle = report.idle
    if idle is None or not idle.total:
        return ""
    ranked = sorted(((ns, cause) for cause, ns in idle.causes.items() if ns >= SMALL * idle.total), reverse=True)
    rows = [[CAUSES[cause], percent(ns / idle.total, 1), seconds(ns)] for ns, cause in ranked]
    return "\n".join(
        said
        for said in (table([f"why devices idled: what their host did{of_all(report)}", "share", "device time"], rows), rhythm(report))
        if said
    )


def rhythm(report: TraceReport) -> str:
    """Return in a line how the devices are fed: gaps, and how long work waits from launch to begin."""
    found = None if report.idle is None else report.idle.rhythm
    if found is None:
        return ""
    words = [f"{found.gaps:,} gaps, median {seconds(found.median)}"]
    if found.short is not None:
        words.append(f"{percent(found.short, 1)} of idle time in gaps under 10 µs")
    if found.delay is not None:
        words.append(f"from launch to begin {seconds(found.delay)} (median), {seconds(found.delay_95)} (95th percentile)")
    return "; ".join(words)


def gaps(report: TraceReport, *, top: int) -> str:
    """Return the longest gaps, each with the code that its host was in, or its main cause, and what ran around it."""
    if report.idle is None or not report.idle.gaps or report.run is None:
        return ""
    number, origin, kept = {d.key: n for n, d in enumerate(report.run.devices)}, report.idle.origin, report.idle.gaps[:top]
    devices = [f"GPU {number.get(gap.device, '?')}" for gap in kept]
    times = [(seconds(gap.start - origin), seconds(gap.end - gap.start)) for gap in kept]
    for names in (30, 26, 22):
        rows = [[device, _mostly(gap, 40), _between(gap, names), *time] for device, gap, time in zip(devices, kept, times, strict=True)]
        wide = table(["longest gaps", "mostly", "between", "at", "idle"], rows, left=3)
        if max(map(len, wide.splitlines())) <= WIDTH:
            return wide
    pairs = [
        [[device, _mostly(gap, 26), *time], ["", _between(gap, 28), "", ""]] for device, gap, time in zip(devices, kept, times, strict=True)
    ]
    return table(["longest gaps", "mostly, and between", "at", "idle"], [row for pair in pairs for row in pair], left=2)


def _mostly(gap: Gap, width: int) -> str:
    return where(gap, width) or CAUSES.get(gap.cause, gap.cause)


def _between(gap: Gap, width: int) -> str:
    return f"{_short(gap.before, width) or 'the begin'} → {_short(gap.after, width) or 'the end'}"


def _short(name: str, width: int) -> str:
    """Return a kernel's name without its return type and arguments, cut to a width.

    >>> _short("void gemm<(int)128, float>(float*, int)", 20), _short("Memcpy HtoD (Pinned -> Device)", 20)
    ('gemm<(int)128, floa…', 'Memcpy HtoD (Pinned…')
    """
    plain = harmless(name.removeprefix("void ").replace("(anonymous namespace)::", ""), 400)
    depth = 0
    for place, sign in enumerate(plain):
        if sign == "(" and depth == 0 and place and plain[place - 1] != " ":
            plain = plain[:place]
            break
        depth += (sign == "<") - (sign == ">" and plain[place - 1 : place] != "-")
    return plain if len(plain) <= width else plain[: width - 1].rstrip() + "…"


def of_all(report: TraceReport) -> str:
    """Return the words for what a table is of, where that is more than the trees."""
    return f", of {report.tables_of}" if report.tables_of else ""


def families(report: TraceReport, *, top: int) -> str:
    """Return kernels by family, the most time first, and what of communication computing hid."""
    found = report.kernels
    if found is None or not found.kernel_time:
        return ""
    rows = [[row.family, f"{row.count:,}", seconds(row.time), percent(row.share, 1)] for row in found.families[:top]]
    more = len(found.families) - len(rows)
    said = [table([f"kernels by family{of_all(report)}", "count", "time", "share"], rows)]
    if more:
        said.append(f"… {more:,} more; --top shows them")
    return "\n".join([*said, *([words] if (words := hidden(report)) else [])])


def hidden(report: TraceReport) -> str:
    """Return in a line how much of collectives and copies computing hid; "" without any."""
    if report.kernels is None:
        return ""
    found, words = report.kernels.overlap_all, []
    if found.collective:
        words.append(f"{percent(found.collective_hidden)} of {seconds(found.collective)} of collectives hidden behind computing")
    if found.memory:
        words.append(f"{percent(found.memory_hidden)} of {seconds(found.memory)} of copies hidden behind kernels")
    return "; ".join(words)


def gemms(report: TraceReport) -> str:
    """Return in a line what tiles cost of the matrix products; "" where that is not known."""
    found = report.gemms
    if found is None or found.tile_efficiency is None:
        return ""
    return f"{summary(found)}{of_all(report)}: `ullage trace gemms` lists them"


def names(report: TraceReport, *, top: int) -> str:
    """Return the kernels that took the most time, by name."""
    found = report.kernels
    if found is None or not found.kernels:
        return ""
    rows = [
        [_short(row.name, 60), f"{row.count:,}", seconds(row.time), seconds(row.mean), percent(row.share, 1)] for row in found.kernels[:top]
    ]
    return table([f"kernels by name{of_all(report)}", "count", "time", "mean", "share"], rows)


def collectives(report: TraceReport) -> str:
    """Return who came late to collectives, and how far apart the ranks came."""
    found = report.late
    if found is None:
        return ""
    lines = [matched(found, of_all(report))]
    rows = [
        [harmless(s.label, 40), f"{s.last:,} of {s.collectives:,}", seconds(s.lost), seconds(s.waited)]
        for s in found.stragglers[:8]
        if s.last
    ]
    if rows:
        lines.append(table(["who came last", "times", "others waited", "waited itself"], rows))
    return "\n".join(lines)


def matched(found: Late, of: str) -> str:
    """Return in a line how many collectives were matched across ranks, and how far apart the ranks come."""
    said = f"{found.collectives:,} {'collective' if found.collectives == 1 else 'collectives'} matched across ranks{of}"
    if found.skew is None:
        return said
    return f"{said}; ranks come {seconds(found.skew.median)} apart (median), {seconds(found.skew.percentile_95)} (95th percentile)"


def nccl(report: TraceReport) -> str:
    """Return who arrives last at collectives by what NCCL itself told."""
    found = report.nccl
    if found is None or not found.collectives:
        return ""
    shown = found.processes[:MOST_RANKS]
    rows = [
        [
            harmless(one.label, 40),
            times(one.last, one.compared),
            *map(time_or_unknown, (one.behind, one.worst)),
            times(one.gpu_last, one.gpu_compared),
            *map(time_or_unknown, (one.gpu_lost, one.gpu_waited)),
        ]
        for one in shown
    ]
    more = len(found.processes) - len(shown)
    return "\n".join([told_by_nccl(found), table(["who arrived last", *NCCL_COLUMNS], rows), *([f"… {more:,} more ranks"] if more else [])])


MOST_RANKS = 8  # in the table of what NCCL told
NCCL_COLUMNS = ("program last", "behind (median)", "behind (worst)", "GPU last", "others waited", "waited itself")


def told_by_nccl(found: NcclArrivals) -> str:
    """Return in a line what was matched by what NCCL itself told."""
    said = f"{found.collectives:,} {'collective' if found.collectives == 1 else 'collectives'} matched by NCCL's own numbers"
    groups = f"{found.communicators:,} {'communicator' if found.communicators == 1 else 'communicators'}"
    when = "when programs enqueued them" + (", and when their GPUs began them" if found.gpus_compared else "")
    return f"{said} in {groups}, of all that was recorded: {when}"


def times(count: int, of: int) -> str:
    """Return how often something was so, of how often it could be.

    >>> times(2, 30), times(0, 0)
    ('2 of 30', '–')
    """
    return f"{count:,} of {of:,}" if of else UNKNOWN


def time_or_unknown(nanoseconds: int | None) -> str:
    """Return a time in words."""
    return UNKNOWN if nanoseconds is None else seconds(nanoseconds)


def restatement(report: TraceReport) -> str:
    """Return how the efficiencies that the source printed compare with those that its raw times give."""
    found = report.restated
    if found is None or not found.compared:
        return ""
    rows = [[harmless(r.region, 40), r.key, f"{r.stated:.2f}", factor(r.recomputed)] for r in found.contradictions[:12]]
    heads = ["contradictions", "TALP's name", "printed", "by its times"]
    return "\n".join([compared(found), *([table(heads, rows, left=2)] if rows else []), *reasons(found)])


def compared(found: Restatement) -> str:
    """Return in a line how many of TALP's printed efficiencies agree with its raw times."""
    said = f"{found.compared:,} printed efficiencies compared with the raw times: {found.agree:,} agree"
    said += f", {found.explained:,} differ by their definition" if found.explained else ""
    return said + (f", {len(found.contradictions):,} contradict them" if found.contradictions else "")


def reasons(found: Restatement) -> list[str]:
    """Return why printed efficiencies differ, and what else the raw times don't account for."""
    return [*(f"differs by definition: {why}" for why in dict.fromkeys(r.why for r in found.rows if r.why)), *found.notes[:3]]


def lanes(report: TraceReport) -> str:
    """Return each process' and each device's times as shares of the run's elapsed time; left out where there is only one of each."""
    whole = report.whole
    if max(len(whole.host_parts), len(whole.device_parts)) < 2:
        return ""
    parts = []
    if whole.host_parts:
        states = host_states(whole)
        hosts = [
            [harmless(p.process.label, 40), *(percent(host_shares(p, whole.elapsed).get(name), 1) for name in states)]
            for p in whole.host_parts[:16]
        ]
        parts.append(table(["process", *states.values()], hosts) + _more(len(whole.host_parts), 16, "rank"))
    if whole.device_parts:
        columns = device_states(whole)
        rows = [
            [
                f"GPU {n} {harmless(p.device.name, 40)}".strip(),
                *(percent(device_shares(p, whole.elapsed, report.mode).get(name), 1) for name in columns),
            ]
            for n, p in enumerate(whole.device_parts[:16])
        ]
        parts.append(table(["device", *columns.values()], rows) + _more(len(whole.device_parts), 16, "device"))
    return "\n\n".join(parts)


def host_states(whole: View) -> dict[str, str]:
    """Return what a process' time is spent on, with the column's head; what threads lose only where there are threads that do."""
    lost = {"parallel": "waiting threads"} if any(p.parallel for p in whole.host_parts) else {}
    held = {"recorder": "the recorder"} if any(p.recorder for p in whole.host_parts) else {}
    return {name: name for name in ("useful", "offload", "communication")} | lost | held


def device_states(whole: View) -> dict[str, str]:
    """Return what a device's time is spent on, with the column's head."""
    doubted = {"unknown": "of it unknown"} if any(p.unknown for p in whole.device_parts) else {}
    return {"kernel": "kernels", "collective": "collectives", "memory": "memory", "idle": "idle"} | doubted


def _more(count: int, shown: int, by: str) -> str:
    return f"\n… {count - shown:,} more; --by {by} shows them" if count > shown else ""


_NONE = {
    "rank": "no times by rank are known",
    "device": "no times by device are known",
    "region": "no region was recorded",
    "step": "no step was recorded",
}


def views(by: str, found: Sequence[View], top: int, brief: bool) -> str:
    """Return a row of efficiencies for each rank, device, region or step; `brief` says that nobody asked for it."""
    if not found:
        return "" if brief else _NONE[by]
    if brief and by != "region":
        return ""
    metrics = columns(found)
    head = [by, "elapsed", *(label for _, label in metrics)]
    rows = [[harmless(v.name, 48), seconds(v.elapsed), *(_cell(v, metric) for metric, _ in metrics)] for v in found[:top]]
    more = f"\n… {len(found) - top:,} more; --top shows them" if len(found) > top else ""
    return table(head, rows) + more


_SHORT = {
    "host_parallel_efficiency": "host PE",
    "mpi_parallel_efficiency": "MPI PE",
    "hybrid_mpi_parallel_efficiency": "MPI PE",
    "openmp_parallel_efficiency": "OpenMP PE",
    "device_offload_efficiency": "offload",
    "device_parallel_efficiency": "device PE",
    "device_load_balance": "balance",
    "device_communication_efficiency": "comm.",
    "orchestration_efficiency": "orchestr.",
}


def columns(found: Sequence[View]) -> list[tuple[str, str]]:
    """Return which efficiencies a table of parts of a run has, each with its short name: the same in text and page."""
    present = {node.metric for v in found for tree in (v.host, v.device) if tree for _, node in tree.walk()}
    return [(metric, label) for metric, label in _SHORT.items() if metric in present]


def _cell(found: View, metric: str) -> str:
    node: Node | None = next((n for tree in (found.host, found.device) if tree and (n := tree.find(metric))), None)
    if node is None or node.value is None:
        return UNKNOWN
    return factor(node.value) if node.certain else "?"
