"""Tracks and slices in the form of Perfetto's trace packets, and where slices go that overlap on one track.

Perfetto keeps a stack for each track: slices on it must lie inside one another or apart, else some are cut or lost. So what
overlaps goes on a further track of the same name, which the viewer shows as one. Of two packets at one moment the earlier in
the file counts first: an end has to be written before a begin at the same moment.

Source: perfetto.dev, "Writing TrackEvent Protos Synthetically"; protos/perfetto/trace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ullage.protobuf import double, message, number, string, varint
from ullage.sums.lanes.spans import Times

SLICES = 4096  # that are written at once
MOMENT = 9  # bytes of a moment: 63 bits
NAMES = 200_000  # that are written once and then referred to; a million different names would fill the memory
LONGEST = 1_000  # characters of a name

_PACKET = 1
_PACKET_TAG, _MOMENT_TAG, _TRACK_EVENT, _FLOW_TAG = varint(1 << 3 | 2), varint(8 << 3), varint(11 << 3 | 2), varint(47 << 3 | 1)
_BEGINS, _GOES_ON = number(13, 1), number(13, 2)  # a sequence
_BEGIN, _END, _COUNTER = 1, 2, 4


class TrackWriter:
    """Packets of one sequence. `number` tells it from the other sequences of a file, so that several can be joined."""

    def __init__(self, number_: int = 0) -> None:
        self._sequence = number(10, number_ + 1)
        self._tail = self._sequence + _GOES_ON
        self._base = (number_ + 1) << 32
        self._pids = (number_ << 16) + 1
        self._tracks = 0
        self._names: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._notes: dict[tuple[str, int | str], bytes] = {}
        self._forms: dict[tuple[int, str, int], tuple[bytes, bytes]] = {}
        self._written: list[bytes] = [message(_PACKET, self._sequence, _BEGINS)]

    def group(self) -> int:
        """Return a new group of tracks, which the viewer shows like a process. It gets its name by `name_group`."""
        group = self._new()
        self._describe(number(1, group), message(3, number(1, self._pid(group))))
        return group

    def name_group(self, group: int, name: str) -> None:
        """Name a group: once, when the name is known."""
        self._describe(number(1, group), message(3, number(1, self._pid(group)), string(6, name[:LONGEST])))

    def track(self, name: str, group: int) -> int:
        """Return a new track in a group; those of one name are shown as one."""
        track = self._new()
        self._describe(number(1, track), string(2, name[:LONGEST]), number(5, group))
        return track

    def counter(self, name: str, group: int, unit: str) -> int:
        """Return a new track that shows a number over time."""
        track = self._new()
        self._describe(number(1, track), string(2, name[:LONGEST]), number(5, group), message(8, string(6, unit)))
        return track

    def slices(self, tracks: Sequence[int], start: Times, end: Times, names: Sequence[str], more: Sequence[bytes] = ()) -> Iterator[bytes]:
        """Write what happened from `start` to `end` (ns), each on its track; `more` has further fields of each. Yields what is full."""
        for first in range(0, len(tracks), SLICES):
            last = min(first + SLICES, len(tracks))
            begins, ends = _moments(start[first:last]), _moments(end[first:last])
            for n, place in enumerate(range(first, last)):
                track, extra = tracks[place], more[place] if more else b""
                form = self._forms.get((track, names[place], len(extra))) or self._form(track, names[place], len(extra))
                finish = self._forms.get((track, "", -1)) or self._ending(track)
                at = slice(MOMENT * n, MOMENT * n + MOMENT)
                self._written += (form[0], begins[at], form[1], extra, self._tail, finish[0], ends[at], finish[1])
            yield from self.taken()

    def values(self, track: int, moments: Times, values: Sequence[float]) -> None:
        """Write a number's values, each from its moment on."""
        for moment, value in zip(moments.tolist(), values, strict=True):
            event = message(11, number(9, _COUNTER), number(11, track), double(44, value))
            self._written.append(message(_PACKET, number(8, moment), event, self._tail))

    def note(self, label: str, value: int | str) -> bytes:
        """Return a further field of a slice: something said of it."""
        known = self._notes.get((label, value))
        if known is not None:
            return known
        code = self._labels.get(label)
        if code is None:
            code = self._labels[label] = len(self._labels) + 1
            self._written.append(message(_PACKET, message(12, message(3, number(1, code), string(2, label))), self._tail))
        said = message(4, number(1, code), string(6, value[:LONGEST]) if isinstance(value, str) else number(4, value))
        if len(self._notes) < NAMES:
            self._notes[label, value] = said
        return said

    def taken(self) -> Iterator[bytes]:
        """Yield what was written since the last time."""
        if self._written:
            yield b"".join(self._written)
            self._written.clear()

    def _describe(self, *fields: bytes) -> None:
        self._written.append(message(_PACKET, message(60, *fields), self._sequence))

    def _new(self) -> int:
        self._tracks += 1
        return self._base + self._tracks

    def _pid(self, group: int) -> int:
        return self._pids + group - self._base

    def _form(self, track: int, name: str, extra: int) -> tuple[bytes, bytes]:
        """Return a begin's bytes before and after its moment, when `extra` bytes of further fields follow."""
        code = self._names.get(name) or self._interned(name)
        fields = number(9, _BEGIN) + number(11, track) + (number(10, code) if code else string(23, name[:LONGEST]))
        event = _TRACK_EVENT + varint(len(fields) + extra) + fields
        form = _head(len(event) + extra + len(self._tail)), event
        if len(self._forms) < NAMES:
            self._forms[track, name, extra] = form
        return form

    def _ending(self, track: int) -> tuple[bytes, bytes]:
        event = message(11, number(9, _END), number(11, track)) + self._tail
        form = self._forms[track, "", -1] = _head(len(event)), event
        return form

    def _interned(self, name: str) -> int:
        """Return the number that stands for a name, 0 when there are too many."""
        if len(self._names) >= NAMES:
            return 0
        code = self._names[name] = len(self._names) + 1
        self._written.append(message(_PACKET, message(12, message(2, number(1, code), string(2, name[:LONGEST]))), self._tail))
        return code


def _head(rest: int) -> bytes:
    """Return what stands before a packet's moment: that it is a packet, how long, and that a moment comes first."""
    return _PACKET_TAG + varint(1 + MOMENT + rest) + _MOMENT_TAG


def _moments(times: Times) -> bytes:
    """Return moments as varints of nine bytes each, which may end in noughts: so all are written at once.

    >>> _moments(np.array([300])).hex()
    'ac8280808080808000'
    """
    groups = (times.astype(np.uint64)[:, None] >> (np.arange(MOMENT, dtype=np.uint64) * np.uint64(7))).astype(np.uint8) & 0x7F
    groups[:, :-1] |= 0x80
    return groups.tobytes()


def flows(numbers: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return for each slice a further field that ties it by an arrow to the other slices with the same number."""
    written = numbers.astype("<u8").tobytes()
    return [_FLOW_TAG + written[at : at + 8] for at in range(0, len(written), 8)]


class FreeTracks:
    """Finds for each slice of a track the first of several tracks on which it overlaps nothing that is there.

    It remembers a stretch for each run of slices in order, not the slices: memory doesn't grow with a trace that comes in order.
    With `nests` a slice may also lie inside another one.
    """

    def __init__(self, *, nests: bool) -> None:
        self._nests = nests
        self._rows: list[_Row] = []

    def place(self, slices: Iterable[tuple[int, int]]) -> Iterator[int]:
        """Yield a number for each slice (start, end); they come sorted by their start, the longer first."""
        for row in self._rows:
            row.current = None
        for start, end in slices:
            place = next((n for n, row in enumerate(self._rows) if row.takes(start, end, self._nests)), None)
            if place is None:
                place = len(self._rows)
                self._rows.append(_Row())
                self._rows[-1].takes(start, end, self._nests)
            yield place


class _Stretch:
    """Slices that came in order: from the first's start to the last's end, and the ends of those still open."""

    __slots__ = ("ends", "high")

    def __init__(self, end: int) -> None:
        self.high, self.ends = end, [end]


class _Row:
    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stretches: list[_Stretch] = []
        self.current: _Stretch | None = None  # the one that grows with this run of slices

    def takes(self, start: int, end: int, nests: bool) -> bool:
        """Put a slice here if it overlaps nothing, and say whether it did."""
        at = bisect_right(self.starts, start)
        if at < len(self.starts) and end >= self.starts[at]:  # an end after a begin at the same moment would close the wrong one
            return False
        before = self.stretches[at - 1] if at else None
        if before is None or before is not self.current:
            if before is not None and before.high > start:
                return False
            self.starts.insert(at, start)
            self.current = _Stretch(end)
            self.stretches.insert(at, self.current)
            return True
        while before.ends and before.ends[-1] <= start:
            before.ends.pop()
        if before.ends and (not nests or end > before.ends[-1]):
            return False
        before.ends.append(end)
        before.high = max(before.high, end)
        return True
