"""Activity buffers decoded in bulk: for each kind one structured array, a record an element, as CUPTI left them.

The order of records of one kind is that of the buffer, which is not one of time. NVIDIA's walker (cuptiActivityGetNextRecord) finds the
same records, one by one; where it ends without a word (a record cut by the buffer's end), `Decoded.stopped` says so.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.layouts import Layouts
from ullage.cupti.walking import Links, chain

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Decoded:
    """What one buffer holds: the records of each kind; why reading ended before the buffer did ("" if it didn't); which kind it was
    whose size nobody knows. `offsets` and `kinds` have, in the buffer's order, where each record begins and what it is."""

    records: dict[int, Array]
    stopped: str
    unknown: Counter[int]
    offsets: Array
    kinds: Array

    def column(self, kind: int, name: str) -> Array:
        """Return one field of all records of a kind, empty where there are none.

        >>> decode(b"", Layouts({})).column(10, "start")
        array([], dtype=uint64)
        """
        return self.records[kind][name] if kind in self.records else np.zeros(0, dtype=np.uint64)


def decode(buffer: Buffer, layouts: Layouts) -> Decoded:
    """Return the records of an activity buffer's valid bytes, copied out of it.

    A kind whose size isn't known ends it, for nothing tells where the next record begins; so does a record that the buffer cuts. What
    came before is good. Zeros up to the end are room that was not used. Any bytes may be given: there is no input for which this raises.

    >>> from ullage.cupti.releases import release
    >>> from ullage.cupti.layouts import layouts
    >>> runtime, unheard_of = (5).to_bytes(4, "little") + bytes(36), (99).to_bytes(4, "little") + bytes(4)
    >>> found = decode(runtime + runtime + unheard_of, layouts(release(130101)))
    >>> {kind: len(records) for kind, records in found.records.items()}, found.stopped
    ({5: 2}, 'at byte 80 of 88, at a record of kind 99, whose size is not known')
    """
    data = np.frombuffer(buffer, dtype=np.uint8)
    offsets, kinds, end = _walked(data, layouts)
    stopped, unknown = _why(data, end, layouts)
    return Decoded(_gathered(data, offsets, kinds, layouts), stopped, unknown, offsets, kinds)


def _walked(data: Array, layouts: Layouts) -> tuple[Array, Array, int]:
    """Return at which bytes whole records begin, their kinds, and the byte at which reading ended."""
    units = data[: len(data) // 4 * 4].view("<u4")
    if not len(units):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32), 0
    lengths = np.zeros(max(layouts.sizes, default=0) + 2, dtype=np.int64)
    for kind, size in layouts.sizes.items():
        lengths[kind] = size // 4
    found = chain(Links(units, lengths, math.gcd(2, *lengths.tolist())))
    starts, kinds, end = found.starts, found.kinds, found.end
    if end > len(units):
        starts, kinds, end = starts[:-1], kinds[:-1], int(starts[-1])
    return starts * 4, kinds, end * 4


def _gathered(data: Array, offsets: Array, kinds: Array, layouts: Layouts) -> dict[int, Array]:
    records = {}
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        layout = layouts.of(kind)
        assert layout is not None, "the chain goes through known kinds alone"
        # at each byte those from there on as one element: NumPy copies the elements asked for whole
        wholes = np.ndarray(len(data) - layout.size + 1, f"V{layout.size}", data, 0, (1,))
        records[kind] = wholes[offsets[kinds == kind]].view(layout.dtype)
    return records


def _why(data: Array, end: int, layouts: Layouts) -> tuple[str, Counter[int]]:
    """Return why reading ended at a byte, and the kind that nobody knows there."""
    left = data[end:]
    if not left.any():
        return "", Counter()
    place = f"at byte {end:,} of {len(data):,}"
    if len(left) < 4:
        return f"{place}, inside a record's kind", Counter()
    kind = int(left[:4].view("<u4")[0])
    if kind in layouts.sizes:
        return f"{place}, inside a record of kind {kind} ({layouts.sizes[kind]} bytes, of which {len(left)} are there)", Counter()
    return f"{place}, at a record of kind {kind}, whose size is not known", Counter({kind: 1})
