"""Units as sources write them, and the factor to SI units without prefixes."""

from __future__ import annotations

# One table for every reader. A ratio is a plain number in [0, 1].
TO_SI: dict[str, float] = {
    "1": 1.0,
    "%": 0.01,
    "Hz": 1.0,
    "kHz": 1e3,
    "MHz": 1e6,
    "GHz": 1e9,
    "W": 1.0,
    "mW": 1e-3,
    "uW": 1e-6,
    "J": 1.0,
    "mJ": 1e-3,
    "uJ": 1e-6,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "B/s": 1.0,
    "MiB/s": 2.0**20,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "C": 1.0,
    "cycles": 1.0,
    "mask": 1.0,
}

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def to_si(value: float, unit: str) -> float:
    """Return `value`, given in `unit`, in the SI unit without prefix (percent becomes a ratio).

    >>> to_si(1830, "MHz"), to_si(58, "%")
    (1830000000.0, 0.58)
    """
    return value * TO_SI[unit]
