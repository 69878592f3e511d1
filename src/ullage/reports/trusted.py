"""The trust verdict of every device of a report."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ullage.audit.trust import Verdict, verdict
from ullage.metrics.clocks import Beat
from ullage.metrics.metric import ratio
from ullage.reports.rated import Array, Rated
from ullage.units import HOUR_MS

TOO_FAST = 1.25  # boards run a little above their stated clock, none a quarter


def judge(devices: Rated, beats: Mapping[str, Beat]) -> dict[str, Verdict]:
    """Return a verdict per GPU. `devices` has a row per (gpu, mig); `beats` the line found in a GPU's clock samples, if any.

    A GPU's MIG instances are judged together: its worst instance speaks for it. With exact OFU a beat does no harm.
    """
    judged: dict[str, Verdict] = {}
    rows, speed = devices.sums.to_pylist(), _speed(devices)
    for number, row in enumerate(rows):
        gpu = row["gpu"]
        same = row["model"] == row["other_model"]
        beat = None if devices.exact[number] else beats.get(gpu)
        found, evidence = verdict(row, same_device=same, beat=beat)
        if speed[number] > TOO_FAST:
            found, evidence = "impossible", _too_fast(devices, number, float(speed[number]))
        own = Verdict(gpu, found, evidence, row["span_ms"] * float(devices.weight[number]) / HOUR_MS)
        judged[gpu] = _worse(judged[gpu], own) if gpu in judged else own
    return judged


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


def _worse(first: Verdict, second: Verdict) -> Verdict:
    from ullage.audit.trust import VERDICTS

    worse, other = sorted((first, second), key=lambda v: VERDICTS.index(v.verdict))
    return Verdict(worse.gpu, worse.verdict, worse.evidence, worse.gpu_hours + other.gpu_hours)
