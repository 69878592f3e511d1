"""Where a measured curve is flat: levels of memory in latency over footprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Point = tuple[float, float]
FLAT = 0.06  # how far the greatest value of a plateau may lie above its least, relative
FEWEST = 3  # points that make a plateau


@dataclass(frozen=True)
class Plateau:
    """A flat stretch: its level (the median), and the first and the last place where the curve has it."""

    level: float
    first: float
    last: float


def plateaus(places: Sequence[float], values: Sequence[float], flat: float = FLAT, fewest: int = FEWEST) -> list[Plateau]:
    """Return the flat stretches of a curve in order of place: the longest first come to choose, and none overlap.

    A stretch is flat when its greatest value is at most `flat` above its least; one of less than `fewest` points is none. Points may
    come in any order; values are greater than 0. Among stretches of equal length the flatter one wins.

    Three points at 33, one on the way, three at about 260:

    >>> [round(one.level) for one in plateaus([1, 2, 4, 8, 16, 32, 64], [33, 33, 33, 120, 258, 260, 262])]
    [33, 260]
    """
    return _plateaus(sorted(zip(places, values, strict=True)), flat, fewest)


def _plateaus(points: list[Point], flat: float, fewest: int) -> list[Plateau]:
    begin, end = max(
        (_flat_from(points, begin, flat) for begin in range(len(points))),
        key=lambda stretch: (stretch[1] - stretch[0], -_spread(points[slice(*stretch)])),
        default=(0, 0),
    )
    if end - begin < fewest:
        return []
    middle = Plateau(median(value for _, value in points[begin:end]), points[begin][0], points[end - 1][0])
    return [*_plateaus(points[:begin], flat, fewest), middle, *_plateaus(points[end:], flat, fewest)]


def _flat_from(points: list[Point], begin: int, flat: float) -> tuple[int, int]:
    """Return the longest flat stretch that begins there."""
    end = begin + 1
    while end < len(points) and _spread(points[begin : end + 1]) <= flat:
        end += 1
    return begin, end


def _spread(points: list[Point]) -> float:
    values = [value for _, value in points]
    return max(values) / min(values) - 1
