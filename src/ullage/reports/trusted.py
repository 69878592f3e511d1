"""The trust verdict of every device of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ullage.audit.trust import Finding, GaugeEvidence, Verdict, verdict
from ullage.metrics.metric import ratio
from ullage.reports.rated import TOO_FAST, Array, Rated
from ullage.units import HOUR_MS

Device = tuple[str, str | None]  # gpu, mig
WIDE = 0.1  # bounds of OFU further apart than this, relatively, are worth a word


def judge(devices: Rated, evidence: Mapping[Device, GaugeEvidence]) -> dict[Device, Verdict]:
    """Return a verdict per device. `devices` has a row per (gpu, mig); `evidence` what the samples of each show beyond its sums.

    Each MIG instance speaks for itself: one with a fault says nothing of its neighbours.
    """
    judged: dict[Device, Verdict] = {}
    speed, counted = _speed(devices), devices.exact
    for number, row in enumerate(devices.sums.to_pylist()):
        gpu, chip, whole = row["gpu"], int(devices.chip[number]), row["mig"] is None
        known, exact = devices.chips[chip] if chip >= 0 else None, bool(counted[number])
        shown = evidence.get((gpu, row["mig"]))
        found = verdict(
            row,
            shown,
            same_device=row["model"] == row["other_model"],
            exact=exact,
            stated_power=known.power if known and whole else None,  # an instance reports the power of its board, if any
            highest_clock=(known.sm_clock or known.tensor_clock) if known else None,
        )
        if speed[number] > TOO_FAST:
            found = Finding("impossible", _too_fast(devices, number, float(speed[number])))
        bounds = shown.ofu_bounds if shown and known and whole and not exact else None
        judged[gpu, row["mig"]] = Verdict(
            gpu,
            found.verdict,
            found.evidence,
            row["span_ms"] * float(devices.weight[number]) / HOUR_MS,
            row.get("host"),
            None if row.get("index") is None else int(row["index"]),
            found.spans,
            (bounds[0] / known.tensor_clock, bounds[1] / known.tensor_clock) if bounds and known else None,
            row["mig"],
        )
    return judged


def sampled_bounds(verdicts: Iterable[Verdict]) -> tuple[float, float] | None:
    """Return the bounds of OFU over trusted series, by GPU-hours; None where no trusted series has any.

    >>> sampled_bounds([Verdict("a", "ok", "", 1.0, ofu_bounds=(0.25, 0.5)), Verdict("b", "ok", "", 1.0, ofu_bounds=(0.5, 0.5))])
    (0.375, 0.5)
    """
    bounded = [(v.gpu_hours, v.ofu_bounds) for v in verdicts if v.trusted and v.ofu_bounds]
    hours = sum(spent for spent, _ in bounded)
    if not hours:
        return None
    return sum(spent * low for spent, (low, _) in bounded) / hours, sum(spent * high for spent, (_, high) in bounded) / hours


def bounds_note(verdicts: Iterable[Verdict]) -> str | None:
    """Return what to say of the bias of clock samples; None where OFU is bounded closely enough, or by cycle counters."""
    bounds = sampled_bounds(verdicts)
    if bounds is None or bounds[1] - bounds[0] <= WIDE * bounds[1]:
        return None
    return (
        f"clock samples bound OFU to {bounds[0]:.1%} to {bounds[1]:.1%}: activity is a mean and the clock a sample, and where both move "
        "together their product is biased, mostly upwards; cycle counters (DCGM 4.6 fields 1084 to 1096, NVML GPM) have no such bias"
    )


def _speed(devices: Rated) -> Array:
    """Each row's SM clock under load over the highest that its GPU has; NaN where that is not known."""
    limit = np.array([(chip.sm_clock or chip.tensor_clock) / chip.tensor_clock for chip in devices.chips] + [np.nan])[devices.chip]
    ofu, tensor = ratio(devices.ofu_part, devices.ofu_time), ratio(devices.tensor_part, devices.ofu_time)
    speed: Array = ratio(ratio(ofu, tensor), limit)
    return speed


def _too_fast(devices: Rated, number: int, speed: float) -> str:
    chip = devices.chips[devices.chip[number]]
    highest = chip.sm_clock or chip.tensor_clock
    return f"an SM clock of {highest * speed / 1e6:,.0f} MHz, where {chip.name} has at most {highest / 1e6:,.0f}: is it another GPU?"
