"""How many tokens a PyTorch profile's operators looked up: the indices that `aten::embedding` was given, where shapes were recorded."""

from __future__ import annotations

import math

from ullage.traces.kineto.event import value
from ullage.traces.kineto.part import NOT_KNOWN, KinetoPart, numbers, words
from ullage.traces.kineto.timed import TimedEvents

OPERATOR = "aten::embedding"  # of a table (rows × width) and the indices of the rows wanted, in any shape
_MOST = 2**53


def lookups(operators: TimedEvents) -> KinetoPart | None:
    """Return the lookups among a chunk's operators, each with its table as its name and how many tokens it was of; None without any."""
    mask = operators.name.are(OPERATOR.__eq__)
    if not mask.any():
        return None
    rows = operators.where(mask)
    given = [_given(value(args.dims)) for args in rows.args]
    found = {"process": rows.process, "thread": rows.thread, "tokens": numbers([tokens for _, tokens in given])}
    part = KinetoPart("lookup", rows.start, rows.end, found, {"name": words([table for table, _ in given], {})})
    return part.where(found["tokens"] > 0)


def _given(dims: object) -> tuple[str, int]:
    """Return the table and the number of indices of a lookup's input shapes; `NOT_KNOWN` where these are none.

    >>> _given([[151936, 1024], [16, 559], [], [], []]), _given([])
    (('151936x1024', 8944), ('', -1))
    """
    if not isinstance(dims, list) or len(dims) < 2 or not all(isinstance(shape, list) and shape for shape in dims[:2]):
        return "", NOT_KNOWN
    table, indices = dims[:2]
    if not all(isinstance(size, int) and 0 < size < _MOST for size in (*table, *indices)) or math.prod(indices) >= _MOST:
        return "", NOT_KNOWN
    return "x".join(map(str, table)), math.prod(indices)
