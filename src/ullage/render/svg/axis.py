"""The time axis of a picture: round moments, in the unit in which they are shortest."""

from __future__ import annotations

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
LONGEST = 7  # characters of a label's number; a longer one is counted from the left edge instead


def ticks(low: int, high: int, most: int) -> tuple[list[tuple[int, str]], bool]:
    """Return at most `most` + 1 round moments from `low` to `high` (ns) with labels, and whether these count from `low`.

    Far into a long run the moments would need many digits to be told apart; then they are distances from the left edge.

    >>> ticks(0, 1_000_000_000, 4)
    ([(0, '0'), (500000000, '0.5 s'), (1000000000, '1.0 s')], False)
    >>> ticks(12_345_678_000, 12_345_682_000, 4)[0][1]
    (12345679000, '+1 µs')
    """
    step = _step(max(high - low, 1), max(most, 1))
    moments = range(-(-low // step) * step, high + 1, step)
    labels = [_label(moment, step, moments[-1]) for moment in moments]
    if all(len(word.split(" ")[0]) <= LONGEST for word in labels):
        return list(zip(moments, labels, strict=True)), False
    return [(low + ahead, f"+{_label(ahead, step, high - low)}" if ahead else "0") for ahead in range(0, high - low + 1, step)], True


def _step(span: int, most: int) -> int:
    """Return the least 1, 2 or 5 × 10ⁿ ns that fits into a span at most so often."""
    size = 1
    while True:
        for digit in (1, 2, 5):
            if span <= digit * size * most:
                return digit * size
        size *= 10


def _label(moment: int, step: int, highest: int) -> str:
    """Return a moment in the largest unit in which the highest one is at least 1 and a step has at most three digits."""
    if moment == 0:
        return "0"
    size, unit = next((size, unit) for size, unit in _UNITS if size == 1 or (highest >= size and step * 1000 % size == 0))
    digits = next((n for n in range(4) if step * 10**n % size == 0), 3)
    return f"{moment / size:,.{digits}f} {unit}"
