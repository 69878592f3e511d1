"""The collectives of one capture, as they are kept when its events are let go.

Those of the devices are taken; of a program without any, those that the hosts themselves run (MPI). How they are found again
in other ranks: `ullage.sums.lanes.collectives.matching`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.events_before_sums import events
from ullage.sums.lanes.gather import KIND, NOT_KNOWN, Capture, Codes, LaneRows
from ullage.sums.lanes.spans import Times

# The first that a word holds, in small letters and without underscores, decides.
_OPERATIONS = (
    ("allreduce", re.compile(r"allreduce|crossdevicereduce|quickreduce")),
    ("reducescatter", re.compile(r"reducescatter")),
    ("allgather", re.compile(r"allgather")),
    ("alltoall", re.compile(r"alltoall")),
    ("barrier", re.compile(r"barrier")),
    ("broadcast", re.compile(r"broadcast|bcast")),
    ("sendrecv", re.compile(r"sendrecv")),
    ("send", re.compile(r"send")),
    ("recv", re.compile(r"recv|receive")),
    ("gather", re.compile(r"gather")),
    ("scatter", re.compile(r"scatter")),
    ("reduce", re.compile(r"reduce")),
)

# No rank can leave these before all have come, so all ranks leave them together.
TOGETHER = frozenset({"allreduce", "reducescatter", "allgather", "alltoall", "barrier"})
POINT_TO_POINT = frozenset({"send", "recv", "sendrecv"})


def operation(word: str) -> str:
    """Return the operation that a library's word or a kernel's name means; "" where neither tells.

    >>> operation("_allgather_base"), operation("MPI_Iallreduce"), operation("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)")
    ('allgather', 'allreduce', 'reducescatter')
    """
    plain = word.lower().replace("_", "")
    return next((found for found, pattern in _OPERATIONS if pattern.search(plain)), "")


def _empty() -> Times:
    return np.zeros(0, np.int64)


def _no_codes() -> Codes:
    return np.zeros(0, np.int32)


@dataclass(frozen=True)
class Collectives:
    """The kernels of one capture's collectives in the order of their start, columns of one length; times in ns, never clipped.

    `device` is the place of the device in `Reduced.devices` (-1: on a host); `process` and `stream` are the capture's numbers
    (of a host's collectives, `stream` is the thread). `operation` (as `operation()` says it) and `group` are codes into
    `words`. `sequence`, `bytes` and `members` are -1 where not known.
    """

    start: Times = field(default_factory=_empty)
    end: Times = field(default_factory=_empty)
    process: Codes = field(default_factory=_no_codes)
    device: Codes = field(default_factory=_no_codes)
    stream: Times = field(default_factory=_empty)
    operation: Codes = field(default_factory=_no_codes)
    group: Codes = field(default_factory=_no_codes)
    sequence: Times = field(default_factory=_empty)
    bytes: Times = field(default_factory=_empty)
    members: Codes = field(default_factory=_no_codes)
    words: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.start)


def collectives(capture: Capture, window: tuple[int, int]) -> Collectives:
    """Return the collectives of a capture that run within a window, in full length."""
    on_device = capture.device.where((capture.device.kind == KIND["collective"]) & (capture.device.device != NOT_KNOWN))
    rows = _within(on_device, window)
    if len(rows):
        known = np.unique(capture.device.device)
        place = np.searchsorted(known[known != NOT_KNOWN], rows.device)
        return _columns(rows, place, rows.stream, capture.words, _operations(rows, capture.words))
    return host_collectives(capture, window)


def host_collectives(capture: Capture, window: tuple[int, int]) -> Collectives:
    """Return the collectives of a capture that hosts themselves run within a window and that no rank can leave before all have come."""
    rows = _within(capture.host.where(capture.host.kind == KIND["mpi"]), window)
    rows = rows.where(events(rows, capture.recording.summed))
    rows = rows.where(_holding_all(rows, capture.words))
    operations = _operations(rows, capture.words)
    together = np.isin(operations, [code for code, word in enumerate(_KNOWN) if word in TOGETHER])
    rows = rows.where(together)
    return _columns(rows, np.full(len(rows), NOT_KNOWN), _queue(rows, capture.words), capture.words, operations[together])


def _within(rows: LaneRows, window: tuple[int, int]) -> LaneRows:
    return rows.where((rows.end > window[0]) & (rows.start < window[1]) & (rows.end >= rows.start))


_KNOWN = tuple(name for name, _ in _OPERATIONS)
# MPI_Iallreduce and MPI_Allreduce_init come back before anything has happened, neighbourhood collectives when the neighbours came
_HOLDS_NOT_ALL = re.compile(r"(?i)^mpi_(i(?!nit)|neighbor_|\w+_init$)")


def _holding_all(rows: LaneRows, words: list[str]) -> npt.NDArray[np.bool_]:
    used, inverse = np.unique(rows.name, return_inverse=True)
    return np.array([code == NOT_KNOWN or _HOLDS_NOT_ALL.match(words[code]) is None for code in used], np.bool_)[inverse]


def _queue(rows: LaneRows, words: list[str]) -> Times:
    """Return the thread that collectives run on; those of gloo are taken from one queue by whichever of its threads is free."""
    pooled = [code for code in np.unique(rows.name) if code >= 0 and words[code].startswith("gloo:")]
    return np.where(np.isin(rows.name, pooled), NOT_KNOWN, rows.thread)


def _operations(rows: LaneRows, words: list[str]) -> Codes:
    """Return each row's operation as a code into `_KNOWN`: from what the source says, else from the kernel's name."""
    table: dict[int, int] = {NOT_KNOWN: NOT_KNOWN}
    for code in np.unique(np.concatenate((rows.operation, rows.name))):
        if code != NOT_KNOWN:
            found = operation(words[code])
            table[int(code)] = _KNOWN.index(found) if found else NOT_KNOWN
    said, named = _mapped(rows.operation, table), _mapped(rows.name, table)
    return np.where(said == NOT_KNOWN, named, said)


def _mapped(codes: Codes, table: dict[int, int]) -> Codes:
    used, inverse = np.unique(codes, return_inverse=True)
    return np.array([table[int(code)] for code in used], np.int32)[inverse]


def _columns(rows: LaneRows, device: npt.NDArray[np.int64], stream: Times, words: list[str], operations: Codes) -> Collectives:
    order = np.lexsort((rows.end, rows.start))
    groups = [int(code) for code in np.unique(rows.group) if code != NOT_KNOWN]
    table = {NOT_KNOWN: NOT_KNOWN} | {code: len(_KNOWN) + place for place, code in enumerate(groups)}
    return Collectives(
        start=rows.start[order],
        end=rows.end[order],
        process=rows.process[order].astype(np.int32),
        device=device[order].astype(np.int32),
        stream=stream[order],
        operation=operations[order],
        group=_mapped(rows.group, table)[order],
        sequence=rows.sequence[order],
        bytes=rows.bytes[order],
        members=rows.members[order].astype(np.int32),
        words=(*_KNOWN, *(words[code] for code in groups)),
    )
