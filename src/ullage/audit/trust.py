"""A verdict per series: whether a device's telemetry can be believed, with the evidence.

Verdicts, worst first. The first that applies is the series' own; only those marked * take it out of the totals.

- `impossible`*: readings that no device can give (a ratio above 1.1, a clock far above the GPU's highest, two models under one UUID)
- `stuck at zero`*: every activity gauge reads exactly 0 while the GPU works (a profiling module that stopped)
- `stale`*: gauges that repeat to the last digit for many samples (an exporter that serves its last reading for ever)
- `beating`*: the scrape interval and the job's step time beat: clock samples walk through the step, sampled OFU is biased
- `sentinel`*: most readings were "no value" numbers
- `wrong unit`: readings were not in the unit that their name promises; settled by magnitude
- `duplicated`: the same reading came several times (jobs, pods, a scrape faster than the collector); counted once
- `slow interval`: more than 30 s between readings: an average of averages
- `ok`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.metrics.clocks import Beat

Array = npt.NDArray[np.float64]

VERDICTS = ("impossible", "stuck at zero", "stale", "beating", "sentinel", "wrong unit", "duplicated", "slow interval", "ok")
UNTRUSTED = frozenset({"impossible", "stuck at zero", "stale", "beating", "sentinel"})

STUCK_MS = 600_000  # ten minutes of zeros under load are no accident of sampling
SLOW_MS = 31_500  # 30 s, and the jitter of a scrape
BEAT_SHARE = 0.5
BEAT_ODDS = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of one device's series, why, and how much time it covers."""

    gpu: str
    verdict: str
    evidence: str
    gpu_hours: float

    @property
    def trusted(self) -> bool:
        """Whether the series counts in the totals."""
        return self.verdict not in UNTRUSTED


def verdict(row: Mapping[str, float], *, same_device: bool = True, beat: Beat | None = None) -> tuple[str, str]:
    """Return (verdict, evidence) for one device from its sums (`ullage.sums.devices`), worst finding first.

    `same_device` is False when two models reported under one UUID; `beat` is the line found in its clock samples.

    >>> quiet = dict(rows=100, span_ms=3e6, stuck_ms=0, gap_rows=0) | {f"{f}_rows": 0 for f in
    ...     ("impossible", "frozen", "repeated", "sentinel", "unit_guessed", "copied", "conflict")}
    >>> verdict(quiet)
    ('ok', '')
    >>> verdict(quiet | {"stuck_ms": 1.8e6})
    ('stuck at zero', 'activity reads 0 for 30 min while GPU utilization is 50 % or more')
    """
    rows = max(row["rows"], 1)
    interval = row["span_ms"] / rows
    if not same_device:
        return "impossible", "two models reported under one UUID"
    if row["impossible_rows"] > 0.01 * rows:
        return "impossible", f"{row['impossible_rows']:,.0f} of {rows:,.0f} readings are outside what a device can give"
    if row["stuck_ms"] > max(STUCK_MS, 0.02 * row["span_ms"]):
        return "stuck at zero", f"activity reads 0 for {row['stuck_ms'] / 60_000:,.0f} min while GPU utilization is 50 % or more"
    if row["frozen_rows"] > 0.1 * rows:
        return "stale", f"{row['frozen_rows']:,.0f} of {rows:,.0f} readings repeat the ones before to the last digit"
    if beat is not None and beat.share > BEAT_SHARE and beat.odds < BEAT_ODDS:
        return "beating", f"{beat.share:.0%} of the clock's variance is one line, {beat.period:.1f} samples long"
    if row["sentinel_rows"] > 0.5 * rows:
        return "sentinel", f"{row['sentinel_rows']:,.0f} of {rows:,.0f} readings hold a 'no value' number"
    if row["unit_guessed_rows"] > 0.01 * rows:
        return (
            "wrong unit",
            f"{row['unit_guessed_rows']:,.0f} of {rows:,.0f} readings contradict the unit of their name; settled by magnitude",
        )
    if row["copied_rows"] > 0.01 * rows:
        differ = f", {row['conflict_rows']:,.0f} of them disagreeing" if row["conflict_rows"] else ""
        return "duplicated", f"{row['copied_rows']:,.0f} of {rows:,.0f} readings came more than once{differ}; counted once"
    if row["repeated_rows"] > 0.4 * rows:
        return "duplicated", "every reading comes about twice: the scrape is faster than the collector"
    if interval > SLOW_MS:
        return "slow interval", f"{interval / 1000:,.0f} s between readings; DCGM averages over at most 30 s"
    if row["sentinel_rows"] > 0.01 * rows:
        return "ok", f"{row['sentinel_rows']:,.0f} of {rows:,.0f} readings hold a 'no value' number; left out"
    return "ok", ""
