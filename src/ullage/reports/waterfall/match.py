"""Whether a job's sources are of one job: the same time, the same GPUs, as many of them. What does not match is said, not repaired."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from ullage.errors import UllageError, harmless
from ullage.gpus.chip import find
from ullage.metrics.waterfall import Waterfall
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.trace.trace import TraceReport
from ullage.reports.waterfall.known import SourceReports, models
from ullage.units import HOUR_MS

NS = 1_000_000  # in a ms


def mismatches(found: SourceReports, chain: Waterfall) -> Iterator[str]:
    """Yield what tells that two sources are not of the same job, and over which times they are."""
    if found.telemetry is not None and found.trace is not None:
        yield _times(found.telemetry, found.trace, chain)
        if (seen := _uuids(found.trace)) and (held := _held(found.telemetry)) and not seen & held:
            yield "the trace's GPUs are none of the telemetry's: the two may be of different jobs"
    yield from _counts(found)
    yield from _models(found)


def _times(telemetry: FleetReport, trace: TraceReport, chain: Waterfall) -> str:
    hours, seconds = (telemetry.window[1] - telemetry.window[0]) / HOUR_MS, trace.whole.elapsed / 1e9
    where = next((step.label for step in chain.steps if "tensor_issue" in step.names or "sm_fill" in step.names), "the next step")
    when = _when(trace)
    if when is not None and (when[1] < telemetry.window[0] or when[0] > telemetry.window[1]):
        apart = f"telemetry begins at {_moment(telemetry.window[0])} and ends at {_moment(telemetry.window[1])}"
        return f"{apart}, and the trace is of {_moment(when[0])}, another time: where the job changed, the difference is in {where}"
    inside = "" if when is None else " of them"
    return f"telemetry covers {hours:,.3g} h and the trace {seconds:,.3g} s{inside}: where these differ, the difference is in {where}"


def _when(trace: TraceReport) -> tuple[int, int] | None:
    """Return when a trace was recorded, in ms since 1970; None where its clock does not tell."""
    if trace.run is None or any(capture.recording.clock != "utc" for capture in trace.run.captures):
        return None
    windows = [capture.window for capture in trace.run.captures]
    return (min(w[0] for w in windows) // NS, max(w[1] for w in windows) // NS) if windows else None


def _moment(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _uuids(trace: TraceReport) -> set[str]:
    return {d.key for d in trace.run.devices if d.key.startswith("GPU-")} if trace.run is not None else set()


def _held(telemetry: FleetReport) -> set[str]:
    keys = {group.key for group in telemetry.groups} if telemetry.by == "gpu" else set()
    return keys if all(key.startswith("GPU-") for key in keys) else set()


def _counts(found: SourceReports) -> Iterator[str]:
    """Yield where the number of GPUs that counts is not what a source holds; that a trace holds only some is said elsewhere."""
    if found.gpus is None:
        return
    if found.telemetry is not None and round(found.telemetry.gpus) != found.gpus:
        yield f"telemetry is of {found.telemetry.gpus:,.3g} GPUs, and the job is said to have {found.gpus:,}"
    totals = None if found.trace is None else found.trace.whole.device_totals
    if totals is not None and totals.devices > found.gpus:
        yield f"the trace holds {totals.devices:,} GPUs, and the job has {found.gpus:,}: MFU and the times in the trace are not of the same"


def _models(found: SourceReports) -> Iterator[str]:
    seen = models(found)
    if len(seen) > 1:
        listed = ", ".join(harmless(name, 60) for name in seen[:4])
        yield f"the job's GPUs are of {len(seen)} models ({listed}): each counts against its own peak, and a step's MFU needs --gpu"
    elif seen and found.gpu is not None and _other(seen[0], found.gpu):
        yield f"the sources call the GPUs {harmless(seen[0], 60)}, and --gpu {harmless(found.gpu, 60)}: their peaks differ"


def _other(one: str, two: str) -> bool:
    try:
        return find(one).name != find(two).name
    except UllageError:
        return False


def above_ceiling(value: float, share: float | None) -> list[str]:
    """Return what is to be said of an answer that lies above the measured ceiling.

    >>> above_ceiling(0.5, 0.8), len(above_ceiling(0.5, 0.3))
    ([], 1)
    """
    if share is None or value <= share:
        return []
    return ["the answer lies above the measured ceiling: that is another precision's or GPU's, or it was measured at a lower clock"]
