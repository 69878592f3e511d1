"""The trust verdict of every device of a report."""

from __future__ import annotations

from collections.abc import Mapping

from ullage.audit.trust import Verdict, verdict
from ullage.metrics.clocks import Beat
from ullage.reports.rated import Rated
from ullage.units import HOUR_MS


def judge(devices: Rated, beats: Mapping[str, Beat]) -> dict[str, Verdict]:
    """Return a verdict per GPU. `devices` has a row per (gpu, mig); `beats` the line found in a GPU's clock samples, if any.

    A GPU's MIG instances are judged together: its worst instance speaks for it. With exact OFU a beat does no harm.
    """
    judged: dict[str, Verdict] = {}
    rows = devices.sums.to_pylist()
    for number, row in enumerate(rows):
        gpu = row["gpu"]
        same = row["model"] == row["other_model"]
        beat = None if devices.exact[number] else beats.get(gpu)
        found, evidence = verdict(row, same_device=same, beat=beat)
        own = Verdict(gpu, found, evidence, row["span_ms"] * float(devices.weight[number]) / HOUR_MS)
        judged[gpu] = _worse(judged[gpu], own) if gpu in judged else own
    return judged


def _worse(first: Verdict, second: Verdict) -> Verdict:
    from ullage.audit.trust import VERDICTS

    worse, other = sorted((first, second), key=lambda v: VERDICTS.index(v.verdict))
    return Verdict(worse.gpu, worse.verdict, worse.evidence, worse.gpu_hours + other.gpu_hours)
