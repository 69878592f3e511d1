"""A long plain profile read in regions, side by side: each process decodes its own parts, and only columns come back.

Regions are many and small, so that this process, which begins at once, and those that it starts end at about the same time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.memory import give_back
from ullage.traces.json.array import Array
from ullage.traces.json.regions import FileRegion, regions
from ullage.traces.json.source import JsonSource
from ullage.traces.kineto.columns import PARTS, KinetoColumns
from ullage.traces.kineto.event import Event, events, usable
from ullage.traces.trace import File, TraceOptions
from ullage.workers import side_by_side

WORTH = 96 << 20  # bytes of a file from which on starting processes costs less than it saves
_REGION = 12 << 20  # bytes of a region: a tenth of a second
_PLAIN = (b"{", b"[", b" ", b"\n", b"\xef")


@dataclass(frozen=True)
class Shared:
    """What the regions of a file gave together, and what stands behind its array of events."""

    columns: KinetoColumns
    after: bytes


def in_regions(file: File, options: TraceOptions, begin: int, wanted: bool) -> Shared | None:
    """Return a plain file's events, read by `options.workers` processes (this is one of them), from byte `begin` on.

    None where that isn't worth it, and where a region isn't whole by itself (a damaged file, or a boundary that was none): then the
    file has to be read in one piece. `wanted` says whether operators are kept.
    """
    size = file.path.stat().st_size
    if options.workers < 2 or options.strict or not WORTH <= size <= options.limit or not _plain(file):
        return None
    parts = regions(file.path, begin, max(options.workers, size // _REGION))
    if len(parts) < 2:
        return None
    try:
        found = side_by_side(
            read_region,
            [(part, wanted) for part in parts],
            min(options.workers, len(parts)),
            lambda done: options.progress(f"{done} of {len(parts)} parts of {size / 1e6:,.0f} MB"),
            with_this_process=True,
        )
    except UllageError:
        return None
    give_back()
    if any(shared is None for shared in found):
        return None
    shares = [shared for shared in found if shared is not None]
    columns = merged([shared.columns for shared in shares])
    columns.join()
    give_back()
    return Shared(columns, shares[-1].after)


def read_region(task: tuple[FileRegion, bool]) -> Shared | None:
    """Return the events of one region, None when it isn't whole by itself."""
    region, wanted = task
    columns, source = KinetoColumns(), JsonSource(region, 1 << 62)
    columns.operators.wanted = wanted
    try:
        array = Array[Event](source, events, usable, b"")
        with no_collector():
            for chunk in array:
                columns.add(chunk)
        columns.join()
        after = array.remainder()
    finally:
        source.close()
    whole = not array.cut and not array.repaired and not array.dropped
    return Shared(columns, after) if whole and (region.last or not after.strip()) else None


def merged(found: Sequence[KinetoColumns]) -> KinetoColumns:
    """Return the columns of several regions of one file as one, which are let go."""
    whole = KinetoColumns(operators=found[0].operators)
    for each in found:
        for name in PARTS:
            getattr(whole, name).extend(getattr(each, name))
            getattr(each, name).clear()
        if each is not found[0]:
            whole.operators.columns += each.operators.columns
        for seen, more in ((whole.lived, each.lived), (whole.traced, each.traced)):
            for process, (first, last) in more.items():
                old = seen.get(process, (first, last))
                seen[process] = min(old[0], first), max(old[1], last)
        whole.names |= each.names
        whole.bad.update(each.bad)
        whole.untimed += each.untimed
        whole.impossible += each.impossible
        whole.whole_microseconds &= each.whole_microseconds
    return whole


@contextmanager
def no_collector() -> Iterator[None]:
    """Keep the garbage collector off while millions of objects come and go that hold no cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _plain(file: File) -> bool:
    with file.path.open("rb") as raw:
        return raw.read(1) in _PLAIN
