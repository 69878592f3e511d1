"""Upkeep: few large parts instead of many small ones, old days dropped, files that nobody needs any more removed.

Each change is one commit of the manifest, so a kill leaves the store as it was before or as it is after. Files are
removed only after the commit that made them useless, and those that were live only when their readers had time to end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby

from ullage.store.devices import untangled
from ullage.store.durable import refused
from ullage.store.manifest import Manifest, StoreFolder, StorePart
from ullage.store.rewrite import PART_ROWS, rewrite
from ullage.store.rollups import files_of
from ullage.units import DAY_MS, HOUR_MS

GRACE_MS = HOUR_MS  # how long a replaced file stays for a query that began before
AHEAD_MS = HOUR_MS  # by which a sample may lie ahead of the clock without a word: clocks that are kept differ by seconds


@dataclass(frozen=True)
class Kept:
    """What upkeep did: parts and bytes before and after, rows dropped, leftover files removed.

    `newest_ahead` is the time of the newest sample (ms) where it lies ahead of the clock; days are then counted back from now.
    """

    parts_before: int
    parts_after: int
    bytes_before: int
    bytes_after: int
    rows_dropped: int
    files_removed: int
    newest_ahead: int | None = None


def compact(folder: StoreFolder, now: Callable[[], int], *, part_rows: int = PART_ROWS, grace_ms: int = GRACE_MS) -> Kept:
    """Merge each day's small parts into parts of about `part_rows` rows, sorted by device; return what was done.

    The rows stay exactly as they are. Parts of half that size and more are large enough, and a day with one small part
    is compact: they are not touched, but for a large one whose devices have rows before and behind it in small ones. The
    caller holds the lock.
    """
    before = manifest = folder.read()
    for _, of_day in groupby(sorted(before.parts, key=lambda p: p.day), key=lambda p: p.day):
        parts = tuple(p for p in of_day if 2 * p.rows < part_rows)
        if len(parts) > 1:
            parts = untangled(folder, manifest.parts, None, parts)
            manifest = folder.replace(manifest, parts, rewrite(folder, manifest, parts, None, part_rows=part_rows), now())
    return _kept(before, *clean(folder, manifest, now, grace_ms))


def retain(folder: StoreFolder, days: int, now: Callable[[], int], *, grace_ms: int = GRACE_MS) -> Kept:
    """Drop the parts of days that ended more than `days` days before the newest sample; return what was done.

    "Old" is measured from the newest sample and not from the clock, so that a store of last year's recordings does not
    vanish; from the clock where a sample lies ahead of it, so that one host with a wrong clock does not drop all the
    others' samples. The caller holds the lock.
    """
    before, at = folder.read(), now()
    limit = oldest_kept(before, days, at)
    old = tuple(p for p in before.parts if p.last < limit)
    manifest = folder.replace(before, old, (), now()) if old else before
    kept, newest = _kept(before, *clean(folder, manifest, now, grace_ms)), _newest(before)
    return replace(kept, newest_ahead=newest if is_ahead(newest, at) else None)


def oldest_kept(manifest: Manifest, days: int, now: int) -> int:
    """Return the time (ms) before which samples are dropped when `days` days are kept."""
    return min(_newest(manifest), now) - days * DAY_MS


def is_ahead(newest: int, now: int) -> bool:
    """Return whether a sample's time (ms) lies so far ahead of the clock that one of the two clocks is wrong."""
    return newest > now + AHEAD_MS


def _newest(manifest: Manifest) -> int:
    return max((p.last for p in manifest.parts), default=0)


def clean(folder: StoreFolder, manifest: Manifest, now: Callable[[], int], grace_ms: int = GRACE_MS) -> tuple[Manifest, int]:
    """Remove files that were replaced longer than `grace_ms` ago, and what a killed process left; return what remains.

    The caller holds the lock, so that no other process can be between writing a part and committing it.
    """
    waiting = tuple(d for d in manifest.dead if d.since > now() - grace_ms)
    kept = {p.file for p in manifest.parts} | {d.file for d in waiting}
    removed = _remove_halves(folder, now() - grace_ms)
    removed += folder.remove_others(kept | {_tail(name) for name in kept}.union(*(files_of(name) for name in kept)))
    if len(waiting) < len(manifest.dead):
        manifest = Manifest(parts=manifest.parts, dead=waiting)
        folder.write(manifest)
    return manifest, removed


def _tail(file: str) -> str:
    return StorePart(file, "", 0, 0, 0, 0, "").tail


def _remove_halves(folder: StoreFolder, before: int) -> int:
    """Remove files that nobody has gone on writing since a time (ms); a younger one may be another thread's, which needs no lock."""
    removed = 0
    with refused(folder.path):
        for path in folder.path.glob(".*.tmp"):
            with suppress(FileNotFoundError):  # its writer has come to an end meanwhile
                if path.stat().st_mtime * 1000 <= before:
                    path.unlink()
                    removed += 1
    return removed


def _kept(before: Manifest, after: Manifest, removed: int) -> Kept:
    rows, size = (tuple(sum(getattr(p, name) for p in m.parts) for m in (before, after)) for name in ("rows", "bytes"))
    return Kept(len(before.parts), len(after.parts), size[0], size[1], rows[0] - rows[1], removed)
