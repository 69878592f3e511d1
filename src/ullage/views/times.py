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
