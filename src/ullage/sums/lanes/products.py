"""What kernels did of the matrix products that operators asked for: count and time by kernel, product and layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.arrays import chosen
from ullage.product import EARLIER, GRAPH
from ullage.sums.lanes.code.gradients import Gradients
from ullage.sums.lanes.code.levels import annotation_level
from ullage.sums.lanes.gather import CALL, KIND, NOT_KNOWN, Capture, Codes, LaneRows
from ullage.sums.lanes.launches import only
from ullage.sums.lanes.observed import time_seen
from ullage.sums.lanes.spans import Spans, Times

MOST = 20_000  # rows kept of a capture; of more, the rest is one row for each kernel's name


@dataclass(frozen=True)
class KernelProduct:
    """Kernels of one name that did the same: `product` is a word of `ullage.product`, "" where nothing is told.

    `layer` is the path of what was open around the launch. `blocks` and `threads` (of a block) are `NOT_KNOWN` where the product is.
    """

    kernel: str
    product: str
    layer: str
    blocks: int
    threads: int
    count: int
    time: int

    @property
    def what(self) -> tuple[str, str, str, int, int]:
        """All but how often and how long."""
        return self.kernel, self.product, self.layer, self.blocks, self.threads


def products(capture: Capture, seen: Mapping[int, Spans], most: int = MOST) -> tuple[KernelProduct, ...]:
    """Return the kernels of each device while that is looked at, most time first; of one across an edge the time inside counts (ns)."""
    rows = capture.device
    time = time_seen(rows, seen)
    inside = (time > 0) & (rows.kind == KIND["kernel"])
    rows, time = only(rows, inside, "process", "correlation", "name", "product", "blocks", "threads"), time[inside]
    if not len(rows):
        return ()
    call = _launches(rows, capture.calls)
    layer, paths = _layers(capture, call)
    words = [*capture.words, GRAPH, EARLIER]
    keys = (
        rows.name,
        _told(rows, capture.calls, call, len(capture.words)),
        layer,
        np.where(rows.product != NOT_KNOWN, rows.blocks, NOT_KNOWN),
        np.where(rows.product != NOT_KNOWN, rows.threads, NOT_KNOWN),
    )
    first, place, count = row_groups(keys)
    total = np.zeros(len(first), np.int64)
    np.add.at(total, place, time)
    order = np.lexsort((first, -total))
    found = [_row(words, paths, [int(key[first[n]]) for key in keys], int(count[n]), int(total[n])) for n in order.tolist()]
    return (*found[:most], *_folded(found[most:]))


def _layers(capture: Capture, call: Times) -> tuple[Codes, list[str]]:
    """Return the layer in which each kernel was launched, by its call, as a code into paths; `NOT_KNOWN` without one."""
    calls, is_called = capture.calls, np.zeros(len(capture.calls), bool)
    is_called[call[call >= 0]] = True
    called = np.flatnonzero(is_called)
    named, gradients = annotation_level(capture.host, capture.words), Gradients(capture.host)
    process, thread, start = chosen(calls.process, called), chosen(calls.thread, called), calls.start[called]
    layer = gradients.layers(named, process, thread, start, gradients.origin(process, thread, start))
    of_call = np.full(len(calls) + 1, NOT_KNOWN, np.int32)  # the last is that of NOT_KNOWN
    of_call[called] = layer
    return of_call[call], named.names


def _launches(rows: LaneRows, calls: LaneRows) -> Times:
    """Return the place of the call that launched each kernel: that of its process with its correlation; `NOT_KNOWN` without one."""
    found = np.full(len(rows), NOT_KNOWN, np.int64)
    for process in np.unique(rows.process):
        own = np.flatnonzero(calls.process == process)
        mine = np.flatnonzero((rows.process == process) & (rows.correlation != NOT_KNOWN))
        if len(own) and len(mine):
            own = own[np.argsort(calls.correlation[own], kind="stable")]
            at = np.minimum(np.searchsorted(calls.correlation[own], rows.correlation[mine]), len(own) - 1)
            found[mine] = np.where(calls.correlation[own][at] == rows.correlation[mine], own[at], NOT_KNOWN)
    return found


def _told(rows: LaneRows, calls: LaneRows, call: Times, words: int) -> npt.NDArray[np.int32]:
    """Return what is known of each kernel's product, and else how it was launched, where that is why; codes of words and two more."""
    if not len(calls):
        return rows.product
    graph = (call >= 0) & (calls.call[call] == CALL["graph"])
    why = np.where(graph, words, np.where(call < 0, words + 1, NOT_KNOWN))
    return np.where(rows.product != NOT_KNOWN, rows.product, why).astype(np.int32)


def row_groups(
    keys: tuple[npt.NDArray[np.signedinteger[Any]], ...],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return, of rows with equal keys, where the first one stands, which group each row is in, and how many there are."""
    code, many = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        place, values = _ranked(key.astype(np.int64))
        code, many = _ranked(code * values + place)
    first = np.zeros(many, np.intp)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return first, code, np.bincount(code, minlength=many)


def _ranked(values: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Return each value's place among the different ones, and how many there are; without sorting where they lie close together."""
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > 4 * len(values) + 65536:
        different, place = np.unique(values, return_inverse=True)
        return place, len(different)
    there = np.zeros(span, bool)
    there[values - low] = True
    rank = np.cumsum(there) - 1
    return rank[values - low], int(rank[-1]) + 1


def _row(words: list[str], paths: list[str], key: list[int], count: int, time: int) -> KernelProduct:
    name, product, layer, blocks, threads = key
    spoken = [table[code] if code >= 0 else "" for table, code in ((words, name), (words, product), (paths, layer))]
    return KernelProduct(spoken[0], spoken[1], spoken[2], blocks, threads, count, time)


def _folded(rows: Iterable[KernelProduct]) -> tuple[KernelProduct, ...]:
    return merge_products([[KernelProduct(row.kernel, "", "", NOT_KNOWN, NOT_KNOWN, row.count, row.time) for row in rows]])


def merge_products(parts: Iterable[Iterable[KernelProduct]]) -> tuple[KernelProduct, ...]:
    """Return the sums over several captures, most time first.

    >>> merge_products([[KernelProduct("k", "1x1x1x1", "", 1, 32, 1, 5)], [KernelProduct("k", "1x1x1x1", "", 1, 32, 2, 7)]])
    (KernelProduct(kernel='k', product='1x1x1x1', layer='', blocks=1, threads=32, count=3, time=12),)
    """
    sums: dict[tuple[str, str, str, int, int], list[int]] = {}
    for row in (row for part in parts for row in part):
        known = sums.setdefault(row.what, [0, 0])
        known[0] += row.count
        known[1] += row.time
    return tuple(KernelProduct(*key, *sums[key]) for key in sorted(sums, key=lambda key: (-sums[key][1], key)))
