"""Spans of time in words."""

from __future__ import annotations

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def seconds(nanoseconds: float | None) -> str:
    """Return a time with four digits and the unit that fits.

    >>> seconds(1_500_000_000), seconds(2_345), seconds(7), seconds(None)
    ('1.500 s', '2.345 µs', '7 ns', '–')
    """
    if nanoseconds is None:
        return "–"
    if nanoseconds >= 60_000 * 1_000_000_000:
        return f"{nanoseconds / 3.6e12:,.4g} h"
    for size, unit in _UNITS:
        if abs(nanoseconds) >= size:
            value = nanoseconds / size
            digits = 3 if abs(value) < 10 else 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0
            return f"{value:,.{digits}f} {unit}"
    return f"{nanoseconds:.0f} ns"


def whole_units(milliseconds: int) -> str:
    """Return a span in the largest unit that divides it: the length of a step, a bin.

    >>> whole_units(900_000), whole_units(3_600_000), whole_units(1_500)
    ('15 min', '1 h', '1.5 s')
    """
    for unit, name in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if milliseconds % unit == 0:
            return f"{milliseconds // unit:,} {name}"
    return f"{milliseconds / 1000:,.10g} s"


def in_seconds(nanoseconds: int) -> str:
    """Return a span in seconds, for a note.

    >>> in_seconds(1_500_000), in_seconds(1_000_000_000_000)
    ('0.0015 s', '1,000 s')
    """
    return f"{nanoseconds / 1e9:,.0f} s" if nanoseconds >= 10**11 else f"{nanoseconds / 1e9:.3g} s"
