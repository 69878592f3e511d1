"""The view of what a store holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ullage.store.store import Info
from ullage.store.upkeep import Kept
from ullage.views.declared import Document, plain_data
from ullage.views.notation import COUNT
from ullage.views.numbers import counted, moment, size
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Section, Table, View

SMALL = 1_000_000  # rows of a part that isn't worth merging
PARTS = 8  # a day that are fine


@dataclass(frozen=True)
class StoreContents(ShownByView, view="ullage.render.store"):
    """What a store holds; `checked` is whether every file was read and is as it was written."""

    info: Info
    checked: bool = False


class StoreDocument(Document):
    """The answer of `ullage store info`; times are ms since 1970, UTC."""

    folder: str
    rows: int
    devices: int
    jobs: int
    parts: int
    bytes: int
    first: int | None
    last: int | None
    days: dict[str, int]


def record(report: StoreContents) -> dict[str, Any]:
    """Return what a store holds for JSON."""
    return plain_data(StoreDocument, report.info)


def view(report: StoreContents) -> View:
    """Return the answer as data: how much a store holds, of how many devices, from when to when, and its days."""
    found = report.info
    whole = ["every part is as it was written"] if report.checked else []
    if found.first is None or found.last is None:
        return View("store", "Store", Headline("no samples", f" in {found.folder}"), notes=whole)
    about = f"{size(found.bytes)} in {counted(found.parts, 'part')}, {found.bytes / found.rows:.1f} bytes a sample"
    table = Table("days", [Column("day"), Column("samples", COUNT)], [[*day] for day in sorted(found.days.items())], brief=len(found.days))
    many = found.parts > PARTS * len(found.days) and found.rows < SMALL * found.parts
    return View(
        kind="store",
        subject=f"Store {found.folder}",
        window=f"{moment(found.first)} to {moment(found.last)} UTC",
        headline=Headline(counted(found.rows, "sample"), f" of {counted(found.devices, 'device')}"),
        basis=[f"{about}; {counted(found.jobs, 'job record')}", *whole],
        sections=[Section("days", "Days", [table])],
        notes=["many small parts; `ullage store compact` merges them"] if many else [],
    )


class StoreUpkeepDocument(Document):
    """The answer of `ullage store compact` and `ullage store retain`: parts and bytes before and after, and what was dropped.

    `newest_ahead` is the time of the newest sample (ms since 1970, UTC) where it lies ahead of the clock: days are then counted from now.
    """

    parts_before: int
    parts_after: int
    bytes_before: int
    bytes_after: int
    rows_dropped: int
    files_removed: int
    parts_added_up: int
    newest_ahead: int | None


@dataclass(frozen=True)
class CompactedStore(ShownByView, view="ullage.render.store:compacted"):
    """What merging a store's parts did; `parts_added_up` parts have their sums beside them now."""

    upkeep: Kept
    parts_added_up: int


@dataclass(frozen=True)
class RetainedStore(ShownByView, view="ullage.render.store:retained"):
    """What dropping a store's old samples did."""

    upkeep: Kept


def compacted_record(report: CompactedStore) -> dict[str, Any]:
    """Return what merging did for JSON."""
    return plain_data(StoreUpkeepDocument, report.upkeep, parts_added_up=report.parts_added_up)


def retained_record(report: RetainedStore) -> dict[str, Any]:
    """Return what dropping did for JSON."""
    return plain_data(StoreUpkeepDocument, report.upkeep, parts_added_up=0)


def compacted_view(report: CompactedStore) -> View:
    """Return how many parts became how many, and how many have their sums beside them now."""
    kept, added_up = report.upkeep, report.parts_added_up
    parts = f"{kept.parts_before:,} parts became {kept.parts_after:,}"
    answer = Headline(parts, f"; {size(kept.bytes_before)} became {size(kept.bytes_after)}")
    if kept.parts_after == kept.parts_before:
        answer = Headline("nothing to merge", f" in {counted(kept.parts_before, 'part')}, {size(kept.bytes_before)}")
    added = [f"{counted(added_up, 'part')} added up for reports"] if added_up else []
    return View("store-upkeep", "Store", answer, basis=[*added, *_removed(kept)])


def retained_view(report: RetainedStore) -> View:
    """Return how many samples were dropped, with how many parts."""
    kept = report.upkeep
    dropped = kept.parts_before - kept.parts_after
    answer = Headline(f"{counted(kept.rows_dropped, 'sample')} dropped", f" with {dropped:,} of {counted(kept.parts_before, 'part')}")
    notes = [] if kept.newest_ahead is None else [f"{words_of_newest_ahead(kept.newest_ahead)}: days are counted back from now"]
    return View("store-upkeep", "Store", answer, basis=_removed(kept), notes=notes)


def words_of_newest_ahead(newest: int) -> str:
    """Return what is wrong where the newest sample (ms) lies ahead of the clock."""
    return f"the newest sample is of {moment(newest)} UTC, later than now: the clock of its host is wrong, or the one of this machine"


def _removed(kept: Kept) -> list[str]:
    return [f"{counted(kept.files_removed, 'file')} that nobody needs any more removed"] if kept.files_removed else []
