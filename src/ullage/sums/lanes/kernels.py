"""What ran on the devices, by name: how often, how long, how many bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture
from ullage.sums.lanes.launches import only
from ullage.sums.lanes.observed import time_seen
from ullage.sums.lanes.spans import Spans
from ullage.tables import KINDS

MOST = 4000  # names kept; the rest is one row a kind
OTHERS = "(others)"

Row = tuple[str, str, int, int, int, int]


@dataclass(frozen=True)
class Kernels:
    """Sums by name of what ran on a capture's devices: `kind`, `count`, `time` (summed over streams, ns), `longest` (ns), `bytes`.

    The most time stands first. `folded` names were too many and are in one row "(others)" for each kind, at the end.
    """

    rows: tuple[Row, ...] = ()  # name, kind, count, time, longest, bytes
    folded: int = 0


def kernels(capture: Capture, seen: Mapping[int, Spans], most: int = MOST) -> Kernels:
    """Return what ran on each of a capture's devices while that is looked at; what crosses an edge counts with the time inside."""
    rows = capture.device
    time = time_seen(rows, seen)
    inside = (time >= 0) & (rows.kind != KIND["lost"])
    rows, time = only(rows, inside, "kind", "name", "bytes"), time[inside]
    if not len(rows):
        return Kernels()
    code = (rows.name.astype(np.int64) + 1) * len(KINDS) + rows.kind
    order = np.argsort(code, kind="stable")
    at = np.flatnonzero(np.diff(code[order], prepend=-1))
    size = np.maximum(rows.bytes, 0)
    sums = np.stack(
        [
            np.diff(np.append(at, len(order))),
            np.add.reduceat(time[order], at),
            np.maximum.reduceat(time[order], at),
            np.add.reduceat(size[order], at),
        ]
    )
    return _ranked(capture.words, code[order][at], sums, most)


def _ranked(words: list[str], code: npt.NDArray[np.int64], sums: npt.NDArray[np.int64], most: int) -> Kernels:
    """Return the rows with the most time, from codes of name and kind and their sums (count, time, longest, bytes)."""
    ranked, kinds = np.lexsort((code, -sums[1])), code % len(KINDS)
    kept, rest = ranked[:most], ranked[most:]
    found = [_row(_name(words, int(code[i])), int(kinds[i]), sums[:, [i]]) for i in kept]
    found += [_row(OTHERS, int(kind), sums[:, rest[kinds[rest] == kind]]) for kind in np.unique(kinds[rest])]
    return Kernels(tuple(found), len(rest))


def _row(name: str, kind: int, sums: npt.NDArray[np.int64]) -> Row:
    count, time, longest, size = sums
    return name, KINDS[kind], int(count.sum()), int(time.sum()), int(longest.max()), int(size.sum())


def _name(words: list[str], code: int) -> str:
    place = code // len(KINDS) - 1
    return "" if place == NOT_KNOWN else words[place]


def merge_kernels(parts: Sequence[Kernels], most: int = MOST) -> Kernels:
    """Return the sums over several captures. Rows that were folded in one of them stay folded."""
    sums: dict[tuple[str, str], _Sums] = {}
    for row in (row for part in parts for row in part.rows):
        _add(sums, row[:2], row[2:])
    ranked = sorted((key for key in sums if key[0] != OTHERS), key=lambda key: (-sums[key][1], key))
    for name, kind in ranked[most:]:
        _add(sums, (OTHERS, kind), sums.pop((name, kind)))
    others = sorted(key for key in sums if key[0] == OTHERS)
    rows = tuple((name, kind, *sums[name, kind]) for name, kind in (*ranked[:most], *others))
    return Kernels(rows, sum(part.folded for part in parts) + len(ranked[most:]))


_Sums = tuple[int, int, int, int]  # count, time, longest, bytes


def _add(sums: dict[tuple[str, str], _Sums], key: tuple[str, str], more: _Sums) -> None:
    old = sums.get(key, (0, 0, 0, 0))
    sums[key] = (old[0] + more[0], old[1] + more[1], max(old[2], more[2]), old[3] + more[3])
