"""The tables below the trees: why devices idled, what ran on them, who came late, and the trees of ranks, regions and steps."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.errors import harmless
from ullage.metrics.tree import Node
from ullage.render.gemms import summary
from ullage.render.numbers import UNKNOWN, factor, percent
from ullage.render.table import table
from ullage.render.times import seconds
from ullage.render.trace_code import where
from ullage.reports.trace import TraceReport
from ullage.reports.view import View

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

SMALL = 0.0005  # a share that is 0.0 % in a table


def causes(report: TraceReport) -> str:
    """Return idle time by what the host thread that launched next did meanwhile."""
    idle = report.idle
    if idle is None or not idle.total or report.region is not None:
        return ""
    ranked = sorted(((ns, cause) for cause, ns in idle.causes.items() if ns >= SMALL * idle.total), reverse=True)
    rows = [[CAUSES[cause], percent(ns / idle.total, 1), seconds(ns)] for ns, cause in ranked]
    return table(["why devices idled: what their host did", "share", "device time"], rows) + _rhythm(report)


def _rhythm(report: TraceReport) -> str:
    assert report.idle is not None
    rhythms = [r for r in report.idle.rhythms.values() if r.gaps]
    if not rhythms:
        return ""
    worst = max(rhythms, key=lambda r: r.short or 0)
    words = [f"{sum(r.gaps for r in rhythms):,} gaps, median {seconds(worst.median)}"]
    if worst.short is not None:
        words.append(f"{percent(worst.short, 1)} of idle time in gaps under 10 µs")
    if worst.delay is not None:
        words.append(f"from launch to begin {seconds(worst.delay)} (median), {seconds(worst.delay_95)} (95th percentile)")
    return "\n" + "; ".join(words)


def gaps(report: TraceReport, *, top: int) -> str:
    """Return the longest gaps, each with the code that its host was in, or its main cause, and what ran around it."""
    if report.idle is None or not report.idle.gaps or report.run is None or report.region is not None:
        return ""
    zero = min(c.window[0] for c in report.run.captures)
    number = {d.key: n for n, d in enumerate(report.run.devices)}
    rows = [
        [
            f"GPU {number.get(gap.device, '?')}",
            where(gap, 40) or CAUSES.get(gap.cause, gap.cause),
            f"{_short(gap.before, 30) or 'the begin'} → {_short(gap.after, 30) or 'the end'}",
            seconds(gap.start - zero),
            seconds(gap.end - gap.start),
        ]
        for gap in report.idle.gaps[:top]
    ]
    return table(["longest gaps", "mostly", "between", "at", "idle"], rows, left=3)


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


def _of_all(report: TraceReport) -> str:
    """Return the words for what a region doesn't narrow down."""
    return "" if report.region is None else ", of the whole run"


def families(report: TraceReport, *, top: int) -> str:
    """Return kernels by family, the most time first, and what of communication computing hid."""
    found = report.kernels
    if found is None or not found.kernel_time:
        return ""
    rows = [[row.family, f"{row.count:,}", seconds(row.time), percent(row.share, 1)] for row in found.families[:top]]
    more = len(found.families) - len(rows)
    said = [table([f"kernels by family{_of_all(report)}", "count", "time", "share"], rows)]
    if more:
        said.append(f"… {more:,} more; --top shows them")
    hidden = found.overlap_all
    words = []
    if hidden.collective:
        words.append(f"{percent(hidden.collective_hidden)} of {seconds(hidden.collective)} of collectives hidden behind computing")
    if hidden.memory:
        words.append(f"{percent(hidden.memory_hidden)} of {seconds(hidden.memory)} of copies hidden behind kernels")
    if words:
        said.append("; ".join(words))
    return "\n".join(said)


def gemms(report: TraceReport) -> str:
    """Return in a line what tiles cost of the matrix products; "" where that is not known."""
    found = report.gemms
    if found is None or found.tile_efficiency is None:
        return ""
    return f"{summary(found)}{_of_all(report)}: `ullage trace gemms` lists them"


def names(report: TraceReport, *, top: int) -> str:
    """Return the kernels that took the most time, by name."""
    found = report.kernels
    if found is None or not found.kernels:
        return ""
    rows = [
        [_short(row.name, 60), f"{row.count:,}", seconds(row.time), seconds(row.mean), percent(row.share, 1)] for row in found.kernels[:top]
    ]
    return table([f"kernels by name{_of_all(report)}", "count", "time", "mean", "share"], rows)


def collectives(report: TraceReport) -> str:
    """Return who came late to collectives, and how far apart the ranks came."""
    found = report.late
    if found is None:
        return ""
    lines = [f"{found.collectives:,} {'collective' if found.collectives == 1 else 'collectives'} matched across ranks{_of_all(report)}"]
    if found.skew is not None:
        lines[0] += f"; ranks come {seconds(found.skew.median)} apart (median), {seconds(found.skew.percentile_95)} (95th percentile)"
    rows = [
        [harmless(s.label, 40), f"{s.last:,} of {s.collectives:,}", seconds(s.lost), seconds(s.waited)]
        for s in found.stragglers[:8]
        if s.last
    ]
    if rows:
        lines.append(table(["who came last", "times", "others waited", "waited itself"], rows))
    return "\n".join(lines)


def restatement(report: TraceReport) -> str:
    """Return how the efficiencies that the source printed compare with those that its raw times give."""
    found = report.restated
    if found is None or not found.compared:
        return ""
    wrong, explained = found.contradictions, len(found.rows) - len(found.contradictions)
    said = f"{found.compared:,} printed efficiencies compared with the raw times: {found.compared - len(found.rows):,} agree"
    said += f", {explained:,} differ by their definition" if explained else ""
    said += f", {len(wrong):,} contradict them" if wrong else ""
    rows = [[harmless(r.region, 40), r.key, f"{r.stated:.2f}", factor(r.recomputed)] for r in wrong[:12]]
    lines = [said, *([table(["contradictions", "TALP's name", "printed", "by its times"], rows, left=2)] if rows else [])]
    lines += [f"differs by definition: {why}" for why in dict.fromkeys(r.why for r in found.rows if r.why)]
    return "\n".join(lines + list(found.notes[:3]))


def lanes(report: TraceReport) -> str:
    """Return each process' and each device's times as shares of the elapsed time; left out where there is only one of each."""
    whole = report.whole
    if max(len(whole.host_parts), len(whole.device_parts)) < 2:
        return ""
    elapsed = whole.elapsed or 1
    parts = []
    if whole.host_parts:
        hosts = [
            [harmless(p.process.label, 40), *(percent(ns / elapsed, 1) for ns in (p.useful, p.offload, p.communication))]
            for p in whole.host_parts[:16]
        ]
        parts.append(table(["process", "useful", "offload", "communication"], hosts) + _more(len(whole.host_parts), 16, "rank"))
    if whole.device_parts:
        rows = [
            [
                f"GPU {n} {harmless(p.device.name, 40)}".strip(),
                *(percent(ns / elapsed, 1) for ns in (p.kernel, p.collective, p.memory, p.idle)),
            ]
            for n, p in enumerate(whole.device_parts[:16])
        ]
        parts.append(table(["device", "kernels", "collectives", "memory", "idle"], rows) + _more(len(whole.device_parts), 16, "device"))
    return "\n\n".join(parts)


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
    metrics = _columns(found)
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


def _columns(found: Sequence[View]) -> list[tuple[str, str]]:
    present = {node.metric for v in found for tree in (v.host, v.device) if tree for _, node in tree.walk()}
    return [(metric, label) for metric, label in _SHORT.items() if metric in present]


def _cell(found: View, metric: str) -> str:
    node: Node | None = next((n for tree in (found.host, found.device) if tree and (n := tree.find(metric))), None)
    if node is None or node.value is None:
        return UNKNOWN
    return factor(node.value) if node.certain else "?"
