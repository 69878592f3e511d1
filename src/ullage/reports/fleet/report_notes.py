"""What a fleet's report says beside its numbers: what nobody measured, what contradicts itself, whose clock is wrong."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from ullage.errors import harmless
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import TelemetryTree
from ullage.reports.fleet.agreement import Agreement
from ullage.reports.fleet.groups import exact_share, gauge, gpu_hours, method_of
from ullage.reports.fleet.judged import JudgedFleet
from ullage.reports.fleet.rated import Rated
from ullage.reports.fleet.trusted import bounds_note, sampled_bounds
from ullage.units import DAY_MS, HOUR_MS
from ullage.views.numbers import percent


def report_notes(asked: JudgedFleet, tree: TelemetryTree, compared: Agreement | None) -> list[str]:
    """Return what must be said beside the numbers of a report."""
    rated, good = asked.rated, asked.good
    bounds = bounds_note(sampled_bounds(good, asked.verdicts))
    return [
        *_remarks(rated, good),
        *_told_clocks(good),
        *_strange_clocks(rated),
        *_contradictions(tree),
        *_two_opinions(compared),
        *([bounds] if bounds else []),
    ]


def names_any(rated: Rated, column: str) -> bool:
    """Return whether any row has a name in a column."""
    return bool(pc.any(pc.not_equal(rated.sums[column].cast("string"), "")).as_py())


def memory_unknown(rated: Rated) -> list[str]:
    """Say why it is not known which jobs memory bounds, where nothing tells it."""
    known = rated.take(np.array([chip.memory_clock is not None for chip in rated.chips] + [False])[rated.chip])
    if known.column("memory_ms").any():
        return []
    if rated.column("memory_ms").any():
        return [f"it is not known which jobs memory bounds: nobody states the highest memory clock of {rated.chips[0].name}"]
    return [
        "it is not known which jobs memory bounds: nobody measured dram_active and memory_clock together (DCGM_FI_PROF_DRAM_ACTIVE and "
        "DCGM_FI_DEV_MEM_CLOCK, both in dcgm-exporter's default list)"
    ]


_TENSOR = (
    "nobody measured tensor_active, without which there is no OFU: dcgm-exporter has DCGM_FI_PROF_PIPE_TENSOR_ACTIVE in its default list, "
    "nvidia-smi dmon needs --gpm-metrics 2,3,5 (Hopper and later)"
)


def _remarks(rated: Rated, good: Rated) -> list[str]:
    remarks = [chip.warning for chip in rated.chips if chip.warning]
    if not (rated.column("tensor_active_ms") + rated.column("cycles_ms")).any():
        remarks.append(_TENSOR)
    elif not (rated.column("ofu_ms") + rated.column("cycles_ms")).any():
        remarks.append(_bound(good))
    if not names_any(rated, "job"):
        remarks.append("no sample names a job, so nobody knows whose the busy hours were; --jobs takes Slurm's records, a CSV and others")
    covered = _covered(good)
    if 0 < covered < 0.95:
        remarks.append(f"OFU is known for {percent(covered)} of the trusted GPU-hours; for the rest tensor_active or sm_clock is missing")
    if not rated.column("sm_active_ms").any():
        remarks.append(
            "nobody measured sm_active: DCGM_FI_PROF_SM_ACTIVE is off in the exporter's default list; 'SM fill' joins its neighbour"
        )
    doubted = gpu_hours(rated) - gpu_hours(good)
    if doubted > 0:
        remarks.append(f"{doubted:,.1f} GPU-hours of series that can't be trusted are left out of OFU and the tree; see trust")
    share = exact_share(good)
    if method_of(share) == "mixed":
        remarks.append(f"{percent(share)} of the time OFU comes from cycle counters (exact), the rest from clock samples")
    return remarks


def _told_clocks(good: Rated) -> list[str]:
    """Say whose clocks the driver tells wrong, of the GPUs whose OFU rests on them."""
    sampled = set(good.chip[(good.ofu_time > 0) & ~good.exact & (good.chip >= 0)].tolist())
    return [one.clock_warning for number, one in enumerate(good.chips) if number in sampled and one.clock_warning]


def _strange_clocks(rated: Rated) -> list[str]:
    """Name the hosts whose samples reach more than a day beyond those of every other host, on either side: clocks that are set wrong."""
    seen = rated.sums.group_by(["cluster", "host"], use_threads=False).aggregate([("start_ms", "min"), ("last_ms", "max")])
    found: list[str] = []
    if len(seen) < 2:
        return found
    for ends, side in ((seen["last_ms_max"].to_numpy(), "later"), (-seen["start_ms_min"].to_numpy(), "earlier")):
        order = np.argsort(ends)
        beyond = ends[order[-1]] - ends[order[-2]]
        if beyond > DAY_MS:
            cluster, host = (seen[name][int(order[-1])].as_py() for name in ("cluster", "host"))
            name = harmless("/".join(part for part in (cluster, host or "no name") if part))
            found.append(
                f"host {name} has samples up to {beyond / DAY_MS:,.1f} days {side} than every other host: "
                "if its clock is wrong, its hours are too; leave them out with --since or --until"
            )
    return found


def _two_opinions(compared: Agreement | None) -> list[str]:
    """Name the jobs whose reported MFU depends on whom one asks; what was named in the question counts."""
    told = [] if compared is None else compared.contradictions
    lines = [
        f"job {harmless(c.job, 60)} reported an MFU of {percent(c.counted, 1)}, which counts, "
        f"and {percent(c.other, 1)} elsewhere in its records"
        for c in told
    ]
    return lines if len(lines) <= 3 else [*lines[:3], f"{len(lines) - 3:,} more jobs reported two MFUs; `--json` lists them"]


def _contradictions(tree: TelemetryTree) -> list[str]:
    """A clock may pass the tensor clock; of any other factor nothing passes 1 but gauges that disagree."""
    over = [f for f in tree.factors if f.name != "clock" and f.value is not None and f.value > 1.05]
    return [f"{f.label} comes to {f.value:.2f}, above 1: the gauges that it is made of contradict each other" for f in over]


def _covered(good: Rated) -> float:
    """The share of the time of GPUs that are known for which there is an OFU."""
    named = good.take(good.chip >= 0)
    return float(ratio(float((named.ofu_time * named.weight).sum()) / HOUR_MS, gpu_hours(named)) or 0.0)


def _bound(good: Rated) -> str:
    over = max(((chip.sm_clock or chip.tensor_clock) / chip.tensor_clock for chip in good.chips), default=1.0)
    activity = gauge(good, "tensor_active")
    bound = "" if activity is None else f": OFU is at most {percent(activity * over, 1)} (tensor activity at the highest clock)"
    return f"nobody measured sm_clock, so OFU can't be computed{bound}"
