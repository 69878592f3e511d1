"""Numbers as trainers write them: with thousands separators, letters for magnitudes, units, or NumPy's wrapping."""

from __future__ import annotations

import re
from typing import Final

TERA: Final = 1e12
_WRAPPED = re.compile(r"^\s*(?:np|numpy|torch)?\.?\w*\(")  # np.float64(0.41), tensor(0.41)
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?|[+-]?(?:nan|inf)\b", re.ASCII | re.IGNORECASE
)
_MAGNITUDES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
_RATE = re.compile(r"\s*([KMGTPE]?)FLOP", re.IGNORECASE)
_RATES: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SPANS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "min": 60.0}
_LONGEST: Final = 200  # characters; no number is longer


def number(text: str) -> float | None:
    """Return the first number of a text, None where it has none; NaN and infinity are numbers here.

    >>> number(" 7,312  "), number("496.3 (avg 496.1)"), number("np.float64(0.41)"), number("N/A")
    (7312.0, 496.3, 0.41, None)
    """
    found = _found(text)
    return None if found is None else found[0]


def human(text: str) -> float | None:
    """Return a number with a letter for its magnitude behind it.

    >>> human("8.79K"), human("480B"), human("699")
    (8790.0, 480000000000.0, 699.0)
    """
    found = _found(text)
    if found is None:
        return None
    letter = found[1].strip()[:1].upper()
    return found[0] * _MAGNITUDES.get(letter, 1.0)


def flops(text: str) -> float | None:
    """Return a rate in FLOP/s; without a unit the number is in TFLOP/s.

    >>> flops("68.2"), flops("150.3TFLOPS"), flops("772.89 GFLOPS")
    (68200000000000.0, 150300000000000.0, 772890000000.0)
    """
    found = _found(text)
    if found is None:
        return None
    unit = _RATE.match(found[1])
    return found[0] * (_RATES[unit[1].upper()] if unit else TERA)


def span(text: str) -> float | None:
    """Return a span of time in seconds; without a unit the number is in seconds.

    >>> span("500 ms"), span("7.77 s"), span("1.83")
    (0.5, 7.77, 1.83)
    """
    found = _found(text)
    if found is None:
        return None
    word = re.match(r"\s*([a-z]*)", found[1], re.IGNORECASE)
    return found[0] * _SPANS.get(word[1].lower() if word else "", 1.0)


def _found(text: str) -> tuple[float, str] | None:
    """Return the first number of a text and what stands behind it."""
    text = _WRAPPED.sub("", text[:_LONGEST])
    match = _NUMBER.search(text)
    return None if match is None else (float(match[0].replace(",", "")), text[match.end() :])
