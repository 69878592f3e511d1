"""What the power limit of a board costs its products: the clock that it holds under full load beside the one that it holds alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.benches.result import BenchResult, CaseRow
from ullage.errors import harmless
from ullage.metrics.metric import ratio
from ullage.sources.naming.clock_reasons import REASONS
from ullage.views.notation import TERAFLOPS

BENCH = "power-curve"
POWER = (REASONS[0x4], REASONS[0x80], REASONS[0x8])  # a limit of the board's power; the hardware slows for power or heat
HEAT = (REASONS[0x20], REASONS[0x40])
VOLTAGE = "voltage is in no row of power-curve: NVML tells none on data-centre GPUs, and it is not computed from clock and power"


@dataclass(frozen=True)
class PowerCost:
    """What full load on random data loses to a clock that is held back. FLOP/s, Hz, W; None: not known.

    `free` is what all SMs would do at the highest clock at which the same product ran while nothing held it back, on `free_data` and
    `free_sms` SMs, scaled to all `sms`. `reasons` are what held the clock back under full load (None: the driver does not tell);
    `certain` says that the free row was held back by nothing: otherwise the loss is at least this.
    """

    load: str
    limit: float | None
    sms: int
    throughput: float
    clock: float | None
    power: float | None
    reasons: tuple[str, ...] | None
    free: float
    free_clock: float | None
    free_data: str
    free_sms: int
    certain: bool

    @property
    def lost(self) -> float:
        """FLOP/s that a free clock would add; below 0 where random data on all SMs did more than was scaled from others."""
        return self.free - self.throughput

    @property
    def share(self) -> float:
        """The part of the free throughput that is lost."""
        return ratio(self.lost, self.free) or 0.0

    @property
    def held_back(self) -> bool:
        """Whether power or heat held the clock back under full load."""
        return bool(_held(self.reasons))


def power_cost(results: Sequence[BenchResult]) -> PowerCost | None:
    """Return what the power limit costs, from the newest power curve; None where no product ran on random data on all SMs."""
    found = max((result for result in results if result.bench == BENCH), key=lambda one: one.date, default=None)
    if found is None:
        return None
    rows = [row for row in found.rows if "throughput" in row.values and row.precision is not None and row.stamp is not None and _sms(row)]
    sms = max((_sms(row) for row in rows), default=0)
    full = next((row for row in rows if _sms(row) == sms and row.stamp is not None and row.stamp.data == "random"), None)
    if full is None or full.stamp is None:
        return None
    alike = [row for row in rows if row.labels.get("load") == full.labels.get("load")]
    unheld = [row for row in alike if row.stamp is not None and row.stamp.throttle is not None and not _held(row.stamp.throttle)]
    best = max(unheld or alike, key=lambda row: _scaled(row, sms))
    assert best.stamp is not None, "rows without a stamp are left out above"
    limit = found.machine.get("power_limit")
    return PowerCost(
        load=str(full.labels.get("load")),
        limit=float(limit) if isinstance(limit, int | float) else None,
        sms=sms,
        throughput=full.values["throughput"].value,
        clock=full.stamp.sm_clock,
        power=full.stamp.power,
        reasons=full.stamp.throttle,
        free=_scaled(best, sms),
        free_clock=best.stamp.sm_clock,
        free_data=best.stamp.data,
        free_sms=_sms(best),
        certain=bool(unheld),
    )


def _sms(row: CaseRow) -> int:
    """Return on how many SMs a row ran; 0 where it does not say."""
    told = row.labels.get("SMs")
    return told if isinstance(told, int) and told > 0 else 0


def _scaled(row: CaseRow, sms: int) -> float:
    """Return what all SMs would do at the clock that a row had: an SM's products need no other SM."""
    return row.values["throughput"].value * sms / _sms(row)


def _held(reasons: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(reason for reason in reasons or () if reason in (*POWER, *HEAT))


def power_notes(results: Sequence[BenchResult]) -> tuple[str, ...]:
    """Return in sentences what the power limit costs, and what the power curve can't tell; nothing without one."""
    cost = power_cost(results)
    return () if cost is None else (sentence(cost), VOLTAGE)


def sentence(cost: PowerCost) -> str:
    """Return in a sentence what the power limit costs.

    >>> print(sentence(PowerCost("BF16 wgmma", 700.0, 132, 640e12, 1.41e9, 698.0, ("power cap",), 1000e12, 1.98e9, "random", 33, True)))
    the power limit of 700 W costs BF16 wgmma 36.0 % (360.0 TFLOP/s): 640.0 TFLOP/s on random data at 1,410 MHz and 698 W, where all 132 SMs
    would do 1,000.0 at the 1,980 MHz that 33 of them hold on random data
    """
    now = f"{TERAFLOPS.words(cost.throughput)} TFLOP/s on random data{_at(cost)}"
    many = "all of them" if cost.free_sms == cost.sms else f"{cost.free_sms} of them"
    zeros = "zeros" if cost.free_data == "zero" else f"{cost.free_data} data"
    clock = "clock" if cost.free_clock is None else f"{cost.free_clock / 1e6:,.0f} MHz"
    would = f"where all {cost.sms} SMs would do {TERAFLOPS.words(cost.free)} at the {clock} that {many} hold on {zeros}"
    loss = f"{cost.share * 100:.1f} % ({TERAFLOPS.words(cost.lost)} TFLOP/s)"
    if cost.held_back:
        return f"{_subject(cost)} costs {harmless(cost.load, 60)} {'' if cost.certain else 'at least '}{loss}: {now}, {would}"
    why = "the driver does not tell what holds clocks back" if cost.reasons is None else "neither power nor heat held the clock back"
    return f"{harmless(cost.load, 60)} does {now}, {would}, a difference of {loss}: {why}{_limit(cost, ' at a limit of ')}"


def _subject(cost: PowerCost) -> str:
    if any(reason in POWER for reason in _held(cost.reasons)):
        return f"the power limit{_limit(cost, ' of ')}"
    return "heat"


def _limit(cost: PowerCost, before: str) -> str:
    return "" if cost.limit is None else f"{before}{cost.limit:,.0f} W"


def _at(cost: PowerCost) -> str:
    parts = [
        "" if cost.clock is None else f"{cost.clock / 1e6:,.0f} MHz",
        "" if cost.power is None else f"{cost.power:,.0f} W",
    ]
    known = [part for part in parts if part]
    return f" at {' and '.join(known)}" if known else ""
