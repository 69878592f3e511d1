"""The trust verdict of every device of a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ullage.audit.trust import GaugeEvidence, SeenClocks, SeriesFault, Verdict, verdict
from ullage.metrics.clocks import LEVELS, along_hull, clock_hulls
from ullage.metrics.metric import ratio
from ullage.reports.fleet.rated import TOO_FAST, Array, Codes, Rated, codes_of
from ullage.units import HOUR_MS
from ullage.views.numbers import percent

Device = tuple[str, str | None]  # gpu, mig
# what a verdict is told of a device's sums, beside its rows by flag
_JUDGED = ("gpu", "mig", "host", "index", "model", "other_model", "span_ms", "stuck_ms", "rows")
ROUNDING = 1e-9  # of sums of the same samples, in another order
NO_CLOCK = (None,) * (LEVELS + 1)
WIDE = 0.1  # bounds of OFU further apart than this, relatively, are worth a word


def judge(devices: Rated, evidence: Mapping[Device, GaugeEvidence]) -> dict[Device, Verdict]:
    """Return a verdict per device. `devices` has a row per (gpu, mig); `evidence` what the samples of each show beyond its sums.

    Each MIG instance speaks for itself: one with a fault says nothing of its neighbours.
    """
    judged: dict[Device, Verdict] = {}
    speed, counted = _speed(devices), devices.exact
    named = [name for name in devices.sums.column_names if name in _JUDGED or name.endswith("_rows")]
    for number, row in enumerate(devices.sums.select(named).to_pylist()):
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
            found = SeriesFault("impossible", _too_fast(devices, number, float(speed[number])))
        bounds = shown.ofu_bounds if shown and known else None
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
            shown.clocks if shown else None,
        )
    return judged


def sampled_bounds(good: Rated, verdicts: Mapping[Device, Verdict]) -> tuple[float, float] | None:
    """Return the least and the most that the OFU of trusted rows may be; None where no series of them is bounded by its clocks."""
    moves = clock_moves(good, verdicts)
    return None if moves is None else moves.bounds(np.zeros(len(good), np.int64), 1)[0]


@dataclass(frozen=True)
class ClockMoves:
    """By how much the OFU of trusted rows may be less or more than it is, by the clocks of their series.

    By row: `kept` is its OFU-time and `time` its time (ms), `device` its device's number; of what was sampled `ofu` is the OFU-time,
    `tensor` activity × ms and `sampled` ms, not weighted by the device's `weight`. By device: `least` and `most` are the OFU-times that
    all of its samples may have, `whole` their activity × ms, `hulls` the OFU that any of them may have, by their mean activity.
    """

    kept: Array
    time: Array
    device: Codes
    weight: Array
    ofu: Array
    tensor: Array
    sampled: Array
    least: Array
    most: Array
    whole: Array
    hulls: tuple[Array, Array]

    def bounds(self, codes: Codes, count: int) -> list[tuple[float, float] | None]:
        """Return the least and the most that the OFU of each of `count` groups of rows may be; None where a group has no OFU.

        All rows of a device together have its own bounds. What a group has of a device otherwise may be any of its samples with the same
        mean activity.
        """
        devices = len(self.whole)
        pairs, of_row = np.unique(codes * devices + self.device, return_inverse=True)
        device, group = pairs % devices, pairs // devices
        ofu, tensor, sampled = (np.bincount(of_row, part, len(pairs)) for part in (self.ofu, self.tensor, self.sampled))
        weight = ratio(np.bincount(of_row, self.ofu * self.weight, len(pairs)), ofu)
        activity, all_of_it = ratio(tensor, sampled), tensor >= self.whole[device] * (1 - ROUNDING)
        edges = []
        for whole, hull, clamp in ((self.least, self.hulls[0], np.fmin), (self.most, self.hulls[1], np.fmax)):
            part = along_hull(hull[device], np.nan_to_num(activity)) * sampled
            edge = clamp(np.where(all_of_it, whole[device], part), ofu)  # a series without bounds counts as it is
            edges.append(np.bincount(group, np.nan_to_num((edge - ofu) * weight), count))
        kept, time = np.bincount(codes, self.kept, count), np.bincount(codes, self.time, count)
        return [
            (float((kept[n] + edges[0][n]) / time[n]), float((kept[n] + edges[1][n]) / time[n])) if time[n] > 0 else None
            for n in range(count)
        ]


def clock_moves(good: Rated, verdicts: Mapping[Device, Verdict]) -> ClockMoves | None:
    """Return how far the clocks of trusted rows leave their OFU open; None where no series of them is bounded.

    Where cycles were counted OFU is what it is. Where it was sampled it may be what the clocks that the series shows at each level of
    activity allow; a series without bounds counts as it is.
    """
    time = good.ofu_time * good.weight
    if not time.any() or not any(verdict.trusted and verdict.ofu_bounds for verdict in verdicts.values()):
        return None
    clock = np.array([chip.tensor_clock for chip in good.chips] + [np.nan])[good.chip]
    ofu, tensor, sampled = (np.nan_to_num(good.column(name)) for name in ("ofu_sum", "ofu_tensor_sum", "ofu_ms"))
    ofu = np.nan_to_num(ofu / clock)
    codes, _count = codes_of(good.sums, "gpu", "mig")
    first = np.unique(codes, return_index=True)[1]
    names = good.sums.select(["gpu", "mig"]).take(pa.array(first)).to_pylist()
    found = [verdicts.get((row["gpu"], row["mig"])) for row in names]
    known = np.array([(np.nan, np.nan) if one is None or one.ofu_bounds is None else one.ofu_bounds for one in found]).T
    clocks = [SeenClocks(np.nan, np.nan, NO_CLOCK, NO_CLOCK) if one is None or one.clocks is None else one.clocks for one in found]
    hulls = clock_hulls(*(np.array([getattr(one, edge) for one in clocks], np.float64) for edge in ("lowest", "highest")))
    own = clock[first][:, None]
    times, whole = np.array([(one.time, one.tensor) for one in clocks]).T
    least, most = known * times
    return ClockMoves(
        np.nan_to_num(good.ofu_part) * good.weight, time, codes, good.weight, ofu, tensor, sampled, least, most, whole,
        (hulls[0] / own, hulls[1] / own),
    )  # fmt: skip


def bounds_note(bounds: tuple[float, float] | None) -> str | None:
    """Return what to say of the bias of clock samples; None where OFU is bounded closely enough, or by cycle counters."""
    if bounds is None or bounds[1] - bounds[0] <= WIDE * bounds[1]:
        return None
    return (
        f"clock samples bound OFU to {percent(bounds[0], 1)} to {percent(bounds[1], 1)}: activity is a mean and the clock a sample, "
        "and where both move together their product is biased, mostly upwards; cycle counters (DCGM 4.6 fields 1084 to 1096, NVML "
        "GPM) have no such bias"
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
