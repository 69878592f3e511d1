"""Where each record of an activity buffer begins: a chain in which only a record's own kind tells where the next one is.

Followed record by record that is slow in Python, so many links are followed at once. The buffer is cut into lanes; for each a place is
guessed where a record may begin (a place from which the chain goes on for a while through known kinds), and all lanes are followed
together, each to where the next one begins. A guess is never believed: a lane counts only if the lane before, begun at a proven place,
arrives exactly at its beginning. Where one does not, the chain is followed singly to the next lane at which it does arrive. So the
result is what following every link would give, whatever the bytes are; only the time differs.

Places are counted in units of 4 bytes, the size of a kind; all sizes are multiples of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LANE = 4096  # units of a lane; even
TRIAL = 8  # links that a guess must go on for
STRIDE = 16  # links that are followed before it is asked which lanes are done


@dataclass(frozen=True)
class Chain:
    """Places at which records begin, in order, their kinds, and where the chain ends: after the last record, or at what nobody knows."""

    starts: Array
    kinds: Array
    end: int


@dataclass(frozen=True)
class Links:
    """The links of a buffer: its bytes as units; the units of a record by kind, whose last entry, 0, stands for all kinds beyond; and
    what all of those are multiples of, the distance of places at which a record may begin."""

    units: Array
    by_kind: Array
    apart: int

    def lengths(self, at: Array) -> Array:
        """Return the units of the records that begin at some places, 0 where none can begin."""
        return self.by_kind.take(self.units.take(at, mode="clip"), mode="clip")

    def singly(self, at: int, limit: int) -> tuple[Array, int]:
        """Follow the chain link by link up to `limit`; return the places visited and where it ends."""
        lengths = self.lengths(np.arange(at, limit)).tolist()
        here, visited = 0, []
        while here < len(lengths) and (length := lengths[here]):
            visited.append(here)
            here += length
        return np.array(visited, dtype=np.int64) + at, at + here


def chain(links: Links) -> Chain:
    """Return the chain from the beginning. The last record may reach beyond the end.

    Records of kind 1 have 2 units here, those of kind 2 have 3; nobody knows kind 9.

    >>> found = chain(Links(np.array([1, 7, 2, 7, 7, 1, 7, 9], dtype=np.uint32), np.array([0, 2, 3, 0]), 1))
    >>> found.starts.tolist(), found.kinds.tolist(), found.end
    ([0, 2, 5], [1, 2, 1], 7)
    """
    count = len(links.units)
    begins = np.arange(0, max(count - LANE, 1), LANE)
    begins[1:] = _guessed(links, begins[1:])
    limits = np.minimum(np.append(begins[1:], count), count)
    lanes, ends = _followed(links, begins, limits)
    starts, end = _joined(links, begins, limits, lanes, ends)
    kinds = links.units[starts]
    known = links.by_kind.take(kinds, mode="clip") > 0  # all but the place where the last lane is stuck
    return Chain(starts[known], kinds[known], end)


def _guessed(links: Links, near: Array) -> Array:
    """Return for each place in `near` one somewhat later at which a record may begin; `near` itself where none was found."""
    tried = np.arange(0, int(links.by_kind.max()), links.apart)
    places, origin = (near[:, None] + tried).ravel(), np.repeat(np.arange(len(near)), len(tried))
    for _ in range(TRIAL):
        length = links.lengths(places)
        alive = np.flatnonzero(length)
        places, origin = places[alive] + length[alive], origin[alive]
    first = np.flatnonzero(np.diff(origin, prepend=-1))
    guessed = near.copy()
    guessed[origin[first]] = places[first]
    return guessed


def _followed(links: Links, begins: Array, limits: Array) -> tuple[Array, Array]:
    """Return the places that each lane visits, a row each, and where each ends: at its limit, beyond it, or stuck before it.

    What a lane visits from its limit on is no part of it; the place where it is stuck stands there several times.
    """
    ends, going, blocks = begins.copy(), np.arange(len(begins)), []
    while len(going):
        block = np.empty((STRIDE + 1, len(going)), dtype=np.int64)
        block[0] = ends[going]
        for step in range(STRIDE):
            np.add(block[step], links.lengths(block[step]), out=block[step + 1])
        blocks.append((going, block))
        ends[going] = block[-1]
        going = going[(block[-1] < limits[going]) & (block[-1] > block[-2])]
    lanes = np.full((len(begins), STRIDE * len(blocks) + 1), np.iinfo(np.int64).max)
    for at, (rows, block) in enumerate(blocks):
        lanes[rows, at * STRIDE : (at + 1) * STRIDE + 1] = block.T
    arrived = (lanes < limits[:, None]).sum(axis=1)
    return lanes, np.where(ends < limits, ends, lanes[np.arange(len(lanes)), np.minimum(arrived, lanes.shape[1] - 1)])


def _joined(links: Links, begins: Array, limits: Array, lanes: Array, ends: Array) -> tuple[Array, int]:
    """Return the chain made of the lanes that begin where it arrives, and of single links between them; and where it ends."""
    parts: list[Array] = []
    lasts = np.append(np.flatnonzero(ends[:-1] != begins[1:]), len(begins) - 1)  # of lanes that hang together
    at, lane = 0, 0
    while lane < len(begins):
        last = lane
        if at == begins[lane]:
            last = int(lasts[np.searchsorted(lasts, lane)])
            run = lanes[lane : last + 1]
            parts.append(run[run < limits[lane : last + 1, None]])
            at = int(ends[last])
        else:
            single, at = links.singly(at, int(limits[lane]))
            parts.append(single)
        if at < limits[last]:
            break
        lane = last + 1
    return np.concatenate(parts), at
