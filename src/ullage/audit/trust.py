"""A verdict per series: whether a device's telemetry can be believed, with the evidence.

Verdicts, worst first. The first that applies is the series' own; only those marked * take it out of the totals.

- `impossible`*: readings that no device can give (a ratio above 1.1, a clock far above the GPU's highest or too low for a GPU that
  computes, two models under one UUID, two different readings of one device for one time)
- `contradictory`*: gauges of one device that can't both be right (tensor activity above SM activity, half the GPU's power at an idle clock)
- `stuck at zero`*: every activity gauge reads exactly 0 while the GPU works (a profiling module that stopped)
- `stale`*: gauges that repeat to the last digit (an exporter that serves its last reading for ever), all of them or one while others move
- `locked`*: every scrape meets the same phase of the job's step, so that samples of an instant (power, clock) are not its mean
- `sentinel`*: most readings were "no value" numbers
- `faulty in part`: one of the above for a part of the time, which is left out where it is known when that was; the rest counts
- `wrong unit`: readings were not in the unit that their name promises; settled by magnitude
- `duplicated`: the same reading came several times (jobs, pods, a scrape faster than the collector); counted once
- `slow interval`: more than 30 s between readings: an average of averages
- `ok`

A clock that walks through the step from scrape to scrape (a beat) is no fault: it visits all phases evenly. What nobody can tell from
gauges: a constant plausible clock, tensor activity of exactly 0 beside SM activity, and a GPU that goes by another model's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ullage.metrics.metric import Value
from ullage.sums.spans import Span, joined_spans, length

VERDICTS = (
    *("impossible", "contradictory", "stuck at zero", "stale", "locked", "sentinel"),
    *("faulty in part", "wrong unit", "duplicated", "slow interval", "ok"),
)
UNTRUSTED = frozenset({"impossible", "contradictory", "stuck at zero", "stale", "locked", "sentinel"})

RARE = 0.01  # of the readings: fewer are accidents of a bus or a scrape
STUCK_MS = 600_000  # ten minutes of zeros under load are no accident of sampling
SLOW_MS = 31_500  # 30 s, and the jitter of a scrape
PART = 0.1  # of the time: what a fault may spoil, nobody can tell when, before the series is left out
SPOILT = 0.5  # of the time: what may be left out before the rest is not believed either
LEAST_MS = 300_000  # five minutes: what is shorter may be an accident of sampling
UTIL_GAP = 0.1  # engine activity above "GPU utilization"; both are shares of time, the second of a second or less
IDLE_POWER, HIGH_POWER = (
    0.2,
    0.5,
)  # of the GPU's stated power: a GPU at rest draws less than the first, one at an idle clock than the second
IDLE_CLOCK = 0.3  # of the GPU's highest clock
LOCK = 0.1  # by how much sampled power may differ from the energy counter; both come from one sensor
ODDS = 4  # standard errors of a mean of samples


@dataclass(frozen=True)
class SeenClocks:
    """The lowest and highest clock (Hz) seen at each level of activity (tenths, then exactly 1; None: no sample) while no cycles are
    counted, the time of all those samples (ms), and their tensor activity × ms."""

    time: float
    tensor: float
    lowest: tuple[float | None, ...]
    highest: tuple[float | None, ...]


@dataclass(frozen=True)
class GaugeEvidence:
    """What a device's samples show beyond its sums: `sums` of `ullage.sums.gauges`, and the spans of time of what is wrong, by kind.

    `lasted` is for how long (ms) where nobody looked when. `ofu_bounds` are the least and the most that OFU can be by the clocks seen at
    each level of activity, for a tensor clock of 1 Hz, while no cycles are counted; `clocks` are those clocks.
    """

    sums: Mapping[str, float]
    spans: Mapping[str, tuple[Span, ...]] = field(default_factory=dict)
    ofu_bounds: tuple[float, float] | None = None
    lasted: Mapping[str, int] = field(default_factory=dict)
    clocks: SeenClocks | None = None


@dataclass(frozen=True)
class Verdict:
    """What is to be thought of one device's series, why, how much time it covers, and where the device is; `mig` is None for a whole GPU.

    `spans` is when something was wrong (ms), where that can be told. The clock is sampled at an instant, activity is a mean: where both
    move together sampled OFU is biased, and the true one lies between `ofu_bounds`: of the time without counted cycles, None without any.
    `clocks` are those on which the bounds rest.
    """

    gpu: str
    verdict: str
    evidence: str
    gpu_hours: float
    host: str | None = None
    index: int | None = None
    spans: tuple[Span, ...] = ()
    ofu_bounds: tuple[float, float] | None = None
    mig: str | None = None
    clocks: SeenClocks | None = None

    @property
    def trusted(self) -> bool:
        """Whether the series counts in the totals, but for `left_out`."""
        return self.verdict not in UNTRUSTED

    @property
    def left_out(self) -> tuple[Span, ...]:
        """When a series that counts was faulty: those spans do not count."""
        return self.spans if self.trusted else ()

    @property
    def place(self) -> str:
        """Host and index, as far as they are known: what a person looks for in a rack.

        >>> Verdict("GPU-1", "ok", "", 1.0, "node-7", 3).place, Verdict("GPU-1", "ok", "", 1.0, "node-7").place
        ('node-7 GPU 3', 'node-7')
        """
        words = (self.host, None if self.index is None else f"GPU {self.index}", None if self.mig is None else f"instance {self.mig}")
        return " ".join(filter(None, words))


@dataclass(frozen=True)
class SeriesFault:
    """One thing that is wrong: the verdict that it deserves, the evidence, which share of the time it spoils, and when."""

    verdict: str
    evidence: str
    share: float = 1.0
    spans: tuple[Span, ...] = ()


def verdict(
    row: Mapping[str, float],
    evidence: GaugeEvidence | None = None,
    *,
    same_device: bool = True,
    exact: bool = False,
    stated_power: float | None = None,
    highest_clock: float | None = None,
) -> SeriesFault:
    """Return the worst finding about one device from its sums (`ullage.sums.devices`) and what its samples show.

    `same_device` is False when two models reported under one UUID; `exact` says that cycle counters give its OFU, so that a lock
    does no harm; `stated_power` (W) and `highest_clock` (Hz) are the GPU's, None where it is not known.

    >>> quiet = dict(rows=100, span_ms=3e6, stuck_ms=0, gap_rows=0) | {f"{f}_rows": 0 for f in
    ...     ("impossible", "frozen", "repeated", "sentinel", "unit_guessed", "copied", "conflict")}
    >>> verdict(quiet).verdict
    'ok'
    >>> found = verdict(quiet | {"stuck_ms": 1.8e6})
    >>> found.verdict, found.evidence
    ('stuck at zero', 'activity reads 0 for 30 min while GPU utilization is 50 % or more')
    """
    found = [
        *_of_rows(row, same_device, () if evidence is None else evidence.spans.get("impossible", ())),
        *(_of_sums(row) if evidence is None else _of_spans(row, evidence)),
    ]
    if evidence is not None:
        found += _of_power(evidence.sums, row["span_ms"], stated_power, highest_clock)
        found += _of_phases(evidence.sums, exact)
    if not found:
        return SeriesFault("ok", "")
    doubts = [f for f in found if f.verdict in UNTRUSTED]
    whole = [f for f in found if f not in doubts] + _whole(doubts, row["span_ms"])
    partly = {
        f.verdict: f for f in sorted(doubts, key=lambda f: f.share) if f not in whole
    }  # two of one verdict are two views of one fault
    if partly:
        spans = _spoilt(doubts)
        share = max(length(spans) / max(row["span_ms"], 1), *(f.share for f in partly.values()))
        whole.append(SeriesFault("faulty in part", "; ".join(f"{f.verdict}: {f.evidence}" for f in partly.values()), share, spans))
    return min(whole, key=lambda f: VERDICTS.index(f.verdict), default=SeriesFault("ok", ""))


def _whole(doubts: Sequence[SeriesFault], time: float) -> list[SeriesFault]:
    """Return the findings that spoil a series altogether.

    What is known to have been at some time is left out for that time, up to half of it all; what nobody can date spoils the rest as well,
    beyond a tenth of the time. An undated view of a dated fault tells of the same time.
    """
    dated = [f for f in doubts if f.spans]
    lost = {f.verdict: length(_spoilt([g for g in dated if g.verdict == f.verdict])) / max(time, 1) for f in dated}
    undated = {f.verdict: f for f in sorted(doubts, key=lambda f: f.share) if not f.spans}
    beyond = {word: f.share - lost.get(word, 0.0) for word, f in undated.items()}
    found = [f for word, f in undated.items() if beyond[word] > PART or sum(max(0.0, part) for part in beyond.values()) > PART]
    return found + (dated if length(_spoilt(dated)) > SPOILT * time else [])


def _spoilt(found: Iterable[SeriesFault]) -> tuple[Span, ...]:
    """Return the spans that findings spoil; what lies between two of them for less than `LEAST_MS` is no evidence of health."""
    return joined_spans((span for f in found for span in f.spans), apart=LEAST_MS)


def _of_rows(row: Mapping[str, float], same_device: bool, impossible: tuple[Span, ...]) -> list[SeriesFault]:
    """Return what the flags of the samples say; `impossible` is when readings were outside what a device can give, one after the other."""
    rows = max(row["rows"], 1)
    found = [] if same_device else [SeriesFault("impossible", "two models reported under one UUID")]
    interval = row["span_ms"] / rows

    def share(name: str) -> float:
        return row[f"{name}_rows"] / rows

    def count(name: str) -> str:
        return f"{row[f'{name}_rows']:,.0f} of {rows:,.0f} readings"

    if share("impossible") > RARE:
        dated = length(impossible) / max(row["span_ms"], 1)
        text = f"{count('impossible')} are outside what a device can give"
        # beyond a time that can be left out there may be no others: those that come here and there make all of it doubtful
        found.append(
            SeriesFault("impossible", text) if share("impossible") - dated > RARE else SeriesFault("impossible", text, dated, impossible)
        )
    if share("conflict") > RARE:
        found.append(
            SeriesFault("impossible", f"{count('conflict')} came with another value for the same time: are two devices under one name?")
        )
    if share("sentinel") > 0.5:
        found.append(SeriesFault("sentinel", f"{count('sentinel')} hold a 'no value' number"))
    elif share("sentinel") > RARE:
        found.append(SeriesFault("ok", f"{count('sentinel')} hold a 'no value' number; left out"))
    if share("unit_guessed") > RARE:
        found.append(SeriesFault("wrong unit", f"{count('unit_guessed')} contradict the unit of their name; settled by magnitude"))
    if share("copied") > RARE:
        differ = f", {row['conflict_rows']:,.0f} of them disagreeing" if row["conflict_rows"] else ""
        found.append(SeriesFault("duplicated", f"{count('copied')} came more than once{differ}; counted once"))
    elif share("repeated") > 0.4:
        found.append(SeriesFault("duplicated", "every reading comes about twice: the scrape is faster than the collector"))
    if interval > SLOW_MS:
        found.append(SeriesFault("slow interval", f"{interval / 1000:,.0f} s between readings; DCGM averages over at most 30 s"))
    return found


_STUCK = "activity reads 0 for {} while GPU utilization is 50 % or more"


def _of_sums(row: Mapping[str, float]) -> list[SeriesFault]:
    """Return what is stuck or stale where only sums are at hand, which don't say when."""
    found, rows = [], max(row["rows"], 1)
    if row["stuck_ms"] > max(STUCK_MS, 0.02 * row["span_ms"]):
        found.append(SeriesFault("stuck at zero", _STUCK.format(_minutes(row["stuck_ms"]))))
    if row["frozen_rows"] > 0.1 * rows:
        found.append(SeriesFault("stale", f"{row['frozen_rows']:,.0f} of {rows:,.0f} readings repeat the ones before to the last digit"))
    return found


# Which verdict a kind of `ullage.sums.gauges` deserves, and how the evidence reads.
_KINDS = {
    "no_clock": ("impossible", "the SM clock reads below 100 MHz for {} while the GPU computes: is it in another unit?"),
    "disorder": ("contradictory", "tensor activity is above SM activity, or SM above engine activity, for {}"),
    "stuck": ("stuck at zero", _STUCK),
    "frozen": ("stale", "every gauge of activity repeats to the last digit for {}"),
    "gauge_frozen": ("stale", "one gauge of activity repeats to the last digit for {} while others move"),
}


def _of_spans(row: Mapping[str, float], evidence: GaugeEvidence) -> list[SeriesFault]:
    found = []
    for kind, (word, text) in _KINDS.items():
        spans = evidence.spans.get(kind, ())
        time = evidence.lasted.get(kind, 0) + sum(end - start for start, end in spans)
        if time >= LEAST_MS:
            found.append(SeriesFault(word, text.format(_minutes(time)), time / max(row["span_ms"], 1), spans))
    return found


def _of_power(sums: Mapping[str, float], span: float, stated: float | None, highest: float | None) -> list[SeriesFault]:
    """Return where activity or clock can't be right beside power or "GPU utilization"."""
    found = []
    if sums["util_ms"] >= LEAST_MS and (gap := sums["util_gap_sum"] / sums["util_ms"]) > allowed_gap(sums["util_rows"]):
        found.append(SeriesFault("contradictory", f"activity is {gap * 100:.0f} points above GPU utilization, which counts every kernel"))
    if stated is None:
        return found

    def power(kind: str) -> float:
        return sums[f"{kind}_power_sum"] / sums[f"{kind}_ms"]

    if sums["hard_ms"] >= LEAST_MS and power("hard") < IDLE_POWER * stated:
        text = (
            f"tensor activity of 30 % or more at {power('hard'):,.0f} W for {_minutes(sums['hard_ms'])}: a GPU of {stated:,.0f} W at rest"
        )
        found.append(SeriesFault("contradictory", text, sums["hard_ms"] / max(span, 1)))
    if sums["zero_ms"] >= LEAST_MS and power("zero") > HIGH_POWER * stated:
        text = f"activity reads 0 for {_minutes(sums['zero_ms'])} while the GPU draws {power('zero'):,.0f} W"
        found.append(SeriesFault("stuck at zero", text, sums["zero_ms"] / max(span, 1)))
    if not highest or sums["low_ms"] < LEAST_MS:
        return found
    clock = sums["low_clock_sum"] / sums["low_ms"]
    if clock < IDLE_CLOCK * highest and power("low") > HIGH_POWER * stated:
        seen = f"an SM clock of {clock / 1e6:,.0f} MHz at {power('low'):,.0f} W for {_minutes(sums['low_ms'])}"
        text = f"{seen}: no GPU draws that at an idle clock"
        found.append(SeriesFault("contradictory", text, sums["low_ms"] / max(span, 1)))
    return found


def allowed_gap(rows: Value) -> Value:
    """Return by how much mean activity may be above the mean of so many samples of "GPU utilization", each of which may be 0 or 1.

    >>> round(float(allowed_gap(400)), 6)
    0.2
    """
    return UTIL_GAP + ODDS * 0.5 / np.sqrt(np.maximum(rows, 1))


def _of_phases(sums: Mapping[str, float], exact: bool) -> list[SeriesFault]:
    """Return a lock between scrape and step: samples of power, over a long time, are far from the mean that the energy counter gives."""
    if exact or sums["energy_ms"] < LEAST_MS or sums["energy_sum"] <= 0:
        return []
    mean, sampled = (sums[name] / sums["energy_ms"] for name in ("energy_sum", "energy_power_sum"))
    variance = max(0.0, sums["energy_power_squares"] / sums["energy_ms"] - sampled**2)
    if abs(sampled - mean) <= LOCK * mean + ODDS * math.sqrt(variance / sums["energy_rows"]):
        return []
    return [
        SeriesFault(
            "locked",
            f"samples of power come to {sampled:,.0f} W where the energy counter gives {mean:,.0f} W: scrapes meet the same phase "
            "of each step, and so do samples of the clock; cycle counters have no such bias",
        )
    ]


def _minutes(milliseconds: float) -> str:
    return f"{milliseconds / 60_000:,.0f} min"
