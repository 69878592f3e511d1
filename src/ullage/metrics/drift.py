"""How far a device has moved from what it was: in cycles, which no clock changes, and in rates, which the clock does."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="Ullage: now over before, less 1")
def drift(now: Value, before: Value) -> Value:
    """How much more a quantity is than it was: 0 unchanged, 0.1 a tenth more.

    Cycles of what is clocked with the SM don't change with the clock, those of L2 and memory do a little: part of their time is fixed.
    Rates change with the clock.

    >>> drift(now=110, before=100)
    0.1
    """
    return ratio(now - before, before)


@metric(unit="1", source="Ullage: the change of a rate that the change of the clock does not explain")
def drift_beyond_clock(now: Value, before: Value, clock_now: Value, clock_before: Value) -> Value:
    """How much a rate has moved per cycle: 0 where it moved as the clock did, and power or heat is to blame.

    A tenth less at nine tenths of the clock:

    >>> drift_beyond_clock(now=90, before=100, clock_now=1.62e9, clock_before=1.8e9)
    0.0
    """
    return ratio(now * clock_before, before * clock_now) - 1
