"""A program that ran with the recorder inside: its trees, and what its devices made of the time in which they computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ullage.metrics.computation import computation
from ullage.metrics.metric import ratio
from ullage.metrics.tree import Node
from ullage.reports.trace.run_counters import RunMeans, counted
from ullage.reports.trace.trace import TraceReport
from ullage.views.numbers import percent

TOO_MUCH = 1.05  # SMs can't be active while no kernel runs: more than this, and a point, is no rounding
OTHERS = (
    "the SMs were active in {active} of the time, and the recorded kernels ran in {kernels}: did another program use these GPUs, "
    "or were kernels not recorded? OFU counts the work of all"
)


@dataclass(frozen=True)
class RunReport:
    """The answer to `ullage run`: the program's exit `code` and the `trace` report (None: nothing was recorded).

    `ofu` is OFU over the device tree, None where the counters say too little: a note says why. `method` is "exact" (cycle counters)
    or "sampled" (a clock sample beside each activity), `by` is what read the counters.
    """

    code: int
    trace: TraceReport | None
    ofu: Node | None
    method: str
    by: str
    notes: tuple[str, ...]


def run_report(code: int, trace: TraceReport | None, folder: Path, notes: Sequence[str] = ()) -> RunReport:
    """Return the report on a run whose recordings and telemetry lie in `folder`."""
    said = list(notes)
    ofu, found = None, None
    if trace is not None and (found := counted(trace, folder, said)) is not None:
        assert trace.whole.device is not None
        ofu = computation(trace.whole.device, ofu=found.ofu, tensor=found.tensor)
        said += _others(trace, found)
    method, by = (found.method, found.by) if found is not None else ("", "")
    return RunReport(code, trace, ofu, method, by, tuple(dict.fromkeys(said)))


def _others(trace: TraceReport, found: RunMeans) -> list[str]:
    """Return a warning where the counters saw work for which the recorded kernels leave no room."""
    totals, tree = trace.whole.device_totals, trace.whole.device
    assert totals is not None and tree is not None
    kernels = ratio(totals.kernel_time + totals.collective_time, totals.devices * totals.elapsed) or 0.0
    room = max(kernels, tree.high or 0.0)
    active = found.tensor if found.sm is None else max(found.sm, found.tensor)
    return [OTHERS.format(active=percent(active), kernels=percent(kernels))] if active > TOO_MUCH * room + 0.01 else []
