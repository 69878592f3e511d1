"""The view of what came and went between two lists of counter metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.cupti.metric_names.changes import Changes
from ullage.cupti.metric_names.dictionary import DictionaryMetric
from ullage.errors import harmless
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
    one, other = _whole(before), _whole(after)
    return ", ".join(f"{key} {one[key]} → {other[key]}" for key in ("kind", "unit", "hardware") if one[key] != other[key])


def record(report: CounterChanges) -> dict[str, Any]:
    """Return the changes for JSON; `same` is None where a pattern chose among them."""
    before, after, found, pattern = report.before, report.after, report.changes, report.pattern
    return {
        "before": {"chip": before[0], "release": before[1]},
        "after": {"chip": after[0], "release": after[1]},
        "match": pattern,
        "counts": {
            "came": len(found.came), "went": len(found.went), "renamed": len(found.renamed), "changed": len(found.changed),
            "same": found.same if pattern is None else None,
        },
        "came": [_whole(metric) for metric in found.came],
        "went": [_whole(metric) for metric in found.went],
        "renamed": [{"before": _whole(first), "after": _whole(second)} for first, second in found.renamed],
        "changed": [{"before": _whole(first), "after": _whole(second)} for first, second in found.changed],
    }  # fmt: skip


def _whole(metric: DictionaryMetric) -> dict[str, str]:
    return {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "hardware": metric.hardware}
