"""Which times of a profile can be true, judged by all the others: a clock that was never read gives 0, a lost end gives centuries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ullage.traces.kineto.part import KinetoPart

_MARGIN = 3_600 * 10**9  # ns; what lies within an hour of everything else is never doubted
_TIMES = 10  # nor what lies within this many times the span of everything else
_FAR = 86_400 * 10**9  # ns from the middle of all starts beyond which a row says nothing about the others
_HOST = ("api", "region", "step", "mpi")


def believable(parts: Sequence[KinetoPart], lived: Iterable[tuple[int, int]]) -> tuple[int, int] | None:
    """Return between which moments (in ns) an event may lie; None when there is nothing to judge by.

    The reference is what hosts did, whose clock is read when something happens; what devices did only where no host was recorded.
    """
    filled = [part for part in parts if len(part)]
    starts = np.concatenate([part.start for part in filled]) if filled else np.zeros(0, np.int64)
    seen = list(lived)
    middle = int(np.median(starts)) if len(starts) else seen[0][0] if seen else 0
    hosts = [part for part in filled if part.kind in _HOST]
    edges = [edge for edge in seen if abs(edge[0] - middle) < _FAR] + _edges(hosts, middle) or _edges(filled, middle)
    if not edges:
        return None
    low, high = min(first for first, _ in edges), max(last for _, last in edges)
    margin = _MARGIN + _TIMES * (high - low)
    return low - margin, high + margin


def _edges(parts: Sequence[KinetoPart], middle: int) -> list[tuple[int, int]]:
    """Return the first and last moment of each part's rows that lie within a day of the middle."""
    found = []
    for part in parts:
        near = (np.abs(part.start - middle) < _FAR) & (np.abs(part.end - middle) < _FAR)
        if near.any():
            found.append((int(part.start[near].min()), int(part.end[near].max())))
    return found
