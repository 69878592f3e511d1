"""How each quantity follows from what was timed and what a case declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ullage.benches.bench import AnyCase, Case
from ullage.metrics.metric import ratio


@dataclass(frozen=True)
class TimedLaunch:
    """One timed launch: seconds by events, SM cycles of the longest-running block (None for library calls), mean power in W."""

    seconds: float
    cycles: float | None
    power: float | None
    sms: int


Rule = Callable[[AnyCase, TimedLaunch], float | None]

UNITS = {
    "latency": "cycles",
    "throughput": "FLOP/s",
    "bandwidth": "B/s",
    "bytes_per_cycle": "B/cycle",
    "bytes_per_cycle_sm": "B/cycle/SM",
    "results_per_cycle_sm": "1/cycle/SM",
    "time": "s",
    "rate": "1/s",
    "power": "W",
    "efficiency": "FLOP/J",
}

RULES: dict[str, Rule] = {
    "latency": lambda case, timed: ratio(timed.cycles, case.trips * case.steps) if isinstance(case, Case) else None,
    "throughput": lambda case, timed: ratio(case.flops, timed.seconds),
    "bandwidth": lambda case, timed: ratio(case.bytes, timed.seconds),
    "bytes_per_cycle": lambda case, timed: ratio(case.bytes, timed.cycles),
    "bytes_per_cycle_sm": lambda case, timed: _of_an_sm(case.bytes, case, timed),
    "results_per_cycle_sm": lambda case, timed: _of_an_sm(case.items, case, timed),
    "time": lambda case, timed: timed.seconds,  # noqa: ARG005
    "rate": lambda case, timed: ratio(case.items, timed.seconds),
    "power": lambda case, timed: timed.power,  # noqa: ARG005
    "efficiency": lambda case, timed: None if timed.power is None else ratio(case.flops, timed.seconds * timed.power),
}


def _of_an_sm(count: int, case: AnyCase, timed: TimedLaunch) -> float | None:
    """Return what comes of a launch's `count` on an SM in a cycle."""
    return None if timed.cycles is None else ratio(count, timed.cycles * _used(case, timed.sms))


def _used(case: AnyCase, sms: int) -> int:
    """Return how many SMs a launch can reach: a grid of fewer blocks leaves the others idle."""
    if not isinstance(case, Case):
        return sms
    grid = case.grid if isinstance(case.grid, tuple) else (case.grid, 1, 1)
    return min(sms, grid[0] * grid[1] * grid[2])


def value(quantity: str, case: AnyCase, timed: TimedLaunch) -> float | None:
    """Return a quantity in its SI unit, None where it can't be told.

    64 dependent steps in each of 100 trips took 185,600 cycles:

    >>> from ullage.benches.bench import Case
    >>> case = Case({}, "", "k", 1, 32, 100, (), lambda i, t: (), ("latency",), steps=64)
    >>> value("latency", case, TimedLaunch(1e-4, 185_600, None, 132))
    29.0
    """
    return RULES[quantity](case, timed)
