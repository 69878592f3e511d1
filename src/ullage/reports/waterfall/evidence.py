"""From reports to evidence: what telemetry, a trace, a step's ledger and matrix products say of a job's waterfall, with its errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ullage.audit.mfu import TILE_UNKNOWN
from ullage.errors import UllageError, did_you_mean, harmless
from ullage.metrics.evidence import Held, Measured, Telemetry, TraceEvidence
from ullage.metrics.metric import ratio
from ullage.metrics.tree import Node
from ullage.metrics.trees import device_load_balance, device_parallel_efficiency
from ullage.reports.fleet.fleet import FleetReport, fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.flops import FlopsReport
from ullage.reports.trace.trace import TraceReport
from ullage.sums.devices import within
from ullage.sums.lanes.residency import NO_RESIDENCY
from ullage.sums.lanes.run import DevicePart
from ullage.totals import DeviceTotals


class TileLoss(Protocol):
    """What the matrix products of a job lose to tiles: executed over needed FLOPs, and the share of them of which that is known."""

    @property
    def theoretical_flops(self) -> int:
        """What the products need."""

    @property
    def executed_flops(self) -> int:
        """What whole tiles execute."""

    @property
    def executed_at_most(self) -> int:
        """The same, with kernels whose name is silent on clusters in the one that pads most."""

    @property
    def tile_efficiency(self) -> float | None:
        """The first over the second."""

    @property
    def covered(self) -> float:
        """The share of the products' time, or FLOPs, of which the tile is known."""


def job_report(samples: Any, jobs: Any, job: str | None, question: FleetRequest, notes: list[str]) -> FleetReport:
    """Return the fleet report of one job's samples (an Ibis table of settled ones); without a name, of the only job there is.

    Raises UllageError for a job that has no samples, and where several jobs might be meant.
    """
    samples = within(samples, question.since, question.until)
    held = samples.group_by("job").agg(rows=samples.count()).to_pyarrow().to_pylist()
    names = [str(row["job"]) for row in sorted(held, key=lambda row: (-row["rows"], str(row["job"]))) if row["job"] is not None]
    if job is None and len(names) > 1:
        listed = ", ".join(f"'{harmless(name, 40)}'" for name in names[:5]) + (", …" if len(names) > 5 else "")
        raise UllageError(f"these samples are of {len(names):,} jobs", f"a waterfall is one job's: --job NAME, such as {listed}")
    wanted = job or (names[0] if names else None)
    if job is not None and job not in names:
        raise UllageError(f"no sample is of the job '{harmless(job, 80)}'", did_you_mean(job, names, "ullage fleet SOURCE --by job"))
    if wanted is not None:
        samples = samples.filter(samples.job == wanted)
    return fleet(samples, jobs, replace(question, one_job=True), notes)


def telemetry(report: FleetReport, error: float) -> Telemetry | None:
    """Return what a job's telemetry says; OFU's error is that of sampling the clock, or `error` (relative) where that can't be told.

    Where clock and activity may move together it is no less than the clocks that were seen allow (`FleetReport.ofu_bounds`).
    """
    if not report.tree.factors:
        return None
    ofu = None if report.ofu is None else _ofu(report, report.ofu, error)
    return Telemetry(report.tree, max(1, round(report.gpus)), ofu)


def _ofu(report: FleetReport, ofu: float, error: float) -> Measured:
    if report.method == "exact":
        return Measured.exact(ofu, "telemetry")
    off = sampling_error(report)
    low, high = (ofu * (1 - error), ofu * (1 + error)) if off is None else (max(ofu - off, 0.0), ofu + off)
    least, most = report.ofu_bounds or (ofu, ofu)
    return Measured(ofu, min(low, least), max(high, most), "telemetry")


def sampling_error(report: FleetReport) -> float | None:
    """Return what sampling the clock costs OFU at the interval it was sampled at; None for series too short to tell.

    Means of every k-th sample differ from the mean of all by √(k − 1) times what that mean is off itself.
    """
    return max((noise.bound / math.sqrt(noise.phases - 1) for noise in report.noise if noise.phases > 1), default=None)


def trace(report: TraceReport, gpus: int | None) -> TraceEvidence | None:
    """Return what a trace says of `gpus` GPUs (None: those it holds); None where no device computes in it, or where that can't be told.

    It is read in `ai` mode: a collective is not computing.
    """
    totals, tree = report.whole.device_totals, report.whole.device
    if totals is None or tree is None or not totals.kernel_time or not tree.certain:
        return None
    busy = totals.kernel_time + totals.collective_time
    return TraceEvidence(
        load_balance=_node(tree, "device_load_balance"),
        communication=_node(tree, "device_communication_efficiency"),
        orchestration=_node(tree, "orchestration_efficiency"),
        parallel=_node(tree, "device_parallel_efficiency"),
        held=_held(report.whole.device_parts, totals),
        busy=Measured.exact(device_parallel_efficiency(busy, totals.devices, totals.elapsed), "trace"),
        busy_balance=Measured.exact(device_load_balance(busy, totals.devices, totals.max_kernel_collective_time), "trace"),
        whole=gpus is None or gpus <= totals.devices,
    )


TOLD = 0.9  # the share of computing from which on grids say how many SMs kernels are on


def _held(parts: Sequence[DevicePart], totals: DeviceTotals) -> Held:
    """Return of how many SMs use was made; of a source without kernels, between none and all while a collective runs."""
    time = totals.devices * totals.elapsed
    if not parts:
        exposed = totals.collective_time / time
        return Held(Measured(exposed / 2, 0.0, exposed, "trace"), 0.0, 1.0, None)
    found = sum((part.resident for part in parts), NO_RESIDENCY)
    least, most = (found.apart + found.least_exposed) / time, (found.hidden + found.exposed) / time
    told = found.told and found.told >= TOLD * found.computing
    equal = found.equal_computed / found.told * found.computing / time if told else None
    return Held(
        Measured(max(most - found.unsized / time / 2, least), least, most, "trace"), found.hidden / time, found.most_computed / time, equal
    )


def _node(tree: Node, name: str) -> Measured:
    node = tree.find(name)
    assert node is not None and node.value is not None
    return Measured(node.value, node.low, node.high, "trace")


def tile(found: TileLoss, source: str, untiled: float = 0.0) -> Measured | None:
    """Return the tile efficiency of matrix products; what is not covered lies where large products do (0.90 to 1.00).

    So does the share `untiled` of the work, that of kernels without a tile model.

    Where names are silent on clusters, it is at least what is left when each such kernel runs in the cluster that pads most.
    """
    value = found.tile_efficiency
    if value is None or found.covered <= 0:
        return None
    covered, least = min(found.covered, 1.0) * (1 - untiled), ratio(found.theoretical_flops, found.executed_at_most)
    low, high = (sure * covered + other * (1 - covered) for sure, other in zip((least, value), TILE_UNKNOWN, strict=True))
    return Measured(value, min(low, value), max(high, value), source)


def model(report: FlopsReport) -> Measured | None:
    """Return the model efficiency of a step: what is counted in integers has no error."""
    value = ratio(report.ledger.training, report.ledger.executed)
    return None if value is None else Measured.exact(value, "step")


def mean_step(report: TraceReport) -> float | None:
    """Return the mean time of a trace's profiler steps in s, None where it has none."""
    lengths = [view.elapsed for view in report.steps if view.elapsed > 0]
    return sum(lengths) / len(lengths) / 1e9 if lengths else None
