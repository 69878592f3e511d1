"""The view of what came and went between two lists of counter metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.cupti.metric_names.changes import Changes
from ullage.cupti.metric_names.dictionary import DictionaryMetric
from ullage.errors import harmless
from ullage.views.declared import Document, filled, plain_data
from ullage.views.notation import UNCUT
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Paragraph, Section, Table, Value, View

Side = tuple[str, str]  # chip and release
SHOWN = 20  # names of a list that a person gets without --all
MOST = 6  # sorts of changes, or hardware units, that a summary names


@dataclass(frozen=True)
class CounterChanges(ShownByView, view="ullage.render.counter_changes"):
    """What came and went from one side to the other; `pattern` chose among the metrics, if there was one."""

    before: Side
    after: Side
    changes: Changes
    pattern: str | None = None


def view(report: CounterChanges, *, everything: bool = False) -> View:
    """Return the answer as data: the counts, then of each list the first names in short forms, or `everything`."""
    before, after, found, pattern = report.before, report.after, report.changes, report.pattern
    shown = 0 if everything else SHOWN
    counts = f"{len(found.came):,} came, {len(found.went):,} went, {len(found.renamed):,} renamed, {len(found.changed):,} changed"
    sides = " → ".join(f"{chip} in CUPTI {release}" for chip, release in (before, after))
    kept = f", of {harmless(pattern)}" if pattern else f"; {found.same:,} are as they were"
    single = [Column("name", UNCUT), Column("kind"), Column("unit"), Column("hardware", detail=True)]
    renamed = [[one.name, other.name] for one, other in found.renamed]
    changed = [[one.name, _change(one, other)] for one, other in found.changed]
    return View(
        kind="cupti-diff",
        subject="Counter metrics",
        headline=Headline(counts, f": {sides}{kept}"),
        sections=[
            _section("renamed", [Column("before", UNCUT), Column("after")], renamed, shown),
            _section("changed", [Column("name", UNCUT), Column("change")], changed, shown),
            _section("went", single, [_cells(metric) for metric in found.went], shown),
            _section("came", single, [_cells(metric) for metric in found.came], shown),
        ],
    )


def _section(name: str, columns: Sequence[Column], rows: Sequence[Sequence[Value]], shown: int) -> Section:
    """Return a list under its name and what it mostly consists of: sorts of changes, or hardware units."""
    told = Paragraph("" if name == "renamed" else _most(str(row[-1]) for row in rows))
    table = Table(name, columns, rows, brief=shown or len(rows), page=len(rows), elsewhere="--all lists them")
    return Section(name, name.capitalize(), [told, table], headed=True)


def _most(sorts: Iterable[str]) -> str:
    counted = Counter(sorts)
    return ", ".join(f"{number:,} {what}" for what, number in counted.most_common(MOST)) + (", …" if len(counted) > MOST else "")


def _cells(metric: DictionaryMetric) -> list[Value]:
    return [metric.name, metric.kind, metric.unit, metric.hardware]


def _change(before: DictionaryMetric, after: DictionaryMetric) -> str:
    sides = ((key, getattr(before, key), getattr(after, key)) for key in ("kind", "unit", "hardware"))
    return ", ".join(f"{key} {one} → {other}" for key, one, other in sides if one != other)


class ChipReleaseDocument(Document):
    """A chip in a release of CUPTI."""

    chip: str
    release: str


class DictionaryMetricDocument(Document):
    """A metric of the dictionary."""

    name: str
    kind: str
    unit: str
    hardware: str


class MetricPairDocument(Document):
    """A metric before and after."""

    before: DictionaryMetricDocument
    after: DictionaryMetricDocument


class MetricCountsDocument(Document):
    """How many metrics came, went, …; `same` is null where a pattern chose among them."""

    came: int
    went: int
    renamed: int
    changed: int
    same: int | None


class CuptiDiffDocument(Document):
    """The answer of `ullage cupti diff`."""

    before: ChipReleaseDocument
    after: ChipReleaseDocument
    match: str | None
    counts: MetricCountsDocument
    came: list[DictionaryMetricDocument]
    went: list[DictionaryMetricDocument]
    renamed: list[MetricPairDocument]
    changed: list[MetricPairDocument]


def record(report: CounterChanges) -> dict[str, Any]:
    """Return the changes for JSON."""
    found = report.changes
    counts = {name: len(getattr(found, name)) for name in ("came", "went", "renamed", "changed")}
    return plain_data(
        CuptiDiffDocument,
        found,
        before=ChipReleaseDocument(chip=report.before[0], release=report.before[1]),
        after=ChipReleaseDocument(chip=report.after[0], release=report.after[1]),
        match=report.pattern,
        counts=MetricCountsDocument(**counts, same=found.same if report.pattern is None else None),
        renamed=_pairs(found.renamed),
        changed=_pairs(found.changed),
    )


def _pairs(found: Sequence[tuple[DictionaryMetric, DictionaryMetric]]) -> list[MetricPairDocument]:
    pairs = ([filled(DictionaryMetricDocument, one) for one in pair] for pair in found)
    return [MetricPairDocument(before=before, after=after) for before, after in pairs]
