"""Times by what code is called: sums of a capture, and of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.sums.lanes.gather import Codes
from ullage.sums.lanes.spans import Times

MOST = 2000  # names kept of a capture; the rest is one row
OTHERS = "(others)"


@dataclass(frozen=True)
class CodeRow:
    """Time by one name, ns: in how many gaps or kernels (`count`), how long in all, and the `longest` in one of them; of kernels also how
    much of it went by on gradients (`backward`)."""

    name: str
    count: int
    time: int
    longest: int
    backward: int = 0


@dataclass(frozen=True)
class CodeTimes:
    """Times by name at one level, the most first. `outside` is the time in which nothing of this level was open, ns."""

    rows: tuple[CodeRow, ...] = ()
    outside: int = 0


def code_times(
    names: Sequence[str], code: Codes, of: Times, time: Times, outside: int, backward: Times | None = None, most: int = MOST
) -> CodeTimes:
    """Return the sums of shares of `time` (ns): `code` says which of the `names` each has, `of` which gap or kernel it is part of,
    `backward` how much of it went by on gradients."""
    order = np.lexsort((of, code))
    code, of, time = code[order], of[order], time[order]
    back = np.zeros_like(time) if backward is None else backward[order]
    parts = np.flatnonzero((np.diff(code, prepend=-2) != 0) | (np.diff(of, prepend=-2) != 0))
    if not len(parts):
        return CodeTimes((), outside)
    time, back, code = np.add.reduceat(time, parts), np.add.reduceat(back, parts), code[parts]
    at = np.flatnonzero(np.diff(code, prepend=-2))
    count, total, longest = np.diff(np.append(at, len(code))), np.add.reduceat(time, at), np.maximum.reduceat(time, at)
    behind = np.add.reduceat(back, at)
    sums = zip(code[at].tolist(), count.tolist(), total.tolist(), longest.tolist(), behind.tolist(), strict=True)
    return CodeTimes(_merged((CodeRow(names[c], n, t, m, b) for c, n, t, m, b in sums), most), outside)


def merge_code_times(parts: Iterable[CodeTimes], most: int = MOST) -> CodeTimes:
    """Return the sums over several devices or captures.

    >>> merge_code_times([CodeTimes((CodeRow("a", 1, 5, 5),), 2), CodeTimes((CodeRow("a", 2, 9, 8),), 1)])
    CodeTimes(rows=(CodeRow(name='a', count=3, time=14, longest=8, backward=0),), outside=3)
    """
    found = list(parts)
    return CodeTimes(_merged((row for part in found for row in part.rows), most), sum(part.outside for part in found))


def _merged(rows: Iterable[CodeRow], most: int) -> tuple[CodeRow, ...]:
    sums: dict[str, CodeRow] = {}
    for row in rows:
        sums[row.name] = _plus(sums[row.name], row) if row.name in sums else row
    others = sums.pop(OTHERS, None)
    ranked = sorted(sums.values(), key=lambda row: (-row.time, row.name))
    for row in ranked[most:]:
        others = _plus(others or CodeRow(OTHERS, 0, 0, 0), row)
    return (*ranked[:most], *([others] if others is not None else []))


def _plus(one: CodeRow, other: CodeRow) -> CodeRow:
    return CodeRow(one.name, one.count + other.count, one.time + other.time, max(one.longest, other.longest), one.backward + other.backward)
