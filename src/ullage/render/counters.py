"""The views of what can be counted on a chip."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from ullage.cupti.counters.host import WHICH
from ullage.cupti.counters.plan import CollectionWay
from ullage.errors import did_you_mean, harmless
from ullage.reports.counters.counters import Chips, DescribedMetric, DescribedMetrics, Listing, Planned
from ullage.views.declared import At, Document, filled, plain, plain_data
from ullage.views.notation import COUNT, UNCUT
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Paragraph, Section, Table, Value, View

LINES = 40  # of a list, that a person gets without --limit
_BY = {"range": "by ranges", "pm": "by PM sampling"}
_SUBMETRIC = re.compile(r"\.(avg|max|min|sum)(\..*)?")


def chips_view(found: Chips) -> View:
    """Return the chips, each with its GPUs."""
    rows: list[list[Value]] = [[chip, ", ".join(gpus) or "-"] for chip, gpus in found.gpus.items()]
    table = Table("chips", [Column("chip"), Column("GPUs that `ullage gpus` knows", wraps=True)], rows, brief=len(rows))
    others = f"metrics of {', '.join(found.others)} are known too, as other releases of CUPTI have them"
    return View(
        kind="cupti-chips",
        subject="Hardware counters",
        headline=Headline(f"{len(found.gpus)} chips", f" can be counted on, {found.told}"),
        sections=[Section("chips", "Chips", [table])],
        notes=[others] if found.others else [],
    )


class CountedChipDocument(Document):
    """A chip by CUPTI's name, and the GPUs that have it."""

    chip: str
    gpus: list[str]


class CuptiChipsDocument(Document):
    """The answer of `ullage cupti chips`."""

    source: Annotated[str, At("told")]
    chips: list[CountedChipDocument]
    others: list[str]


def chips_record(found: Chips) -> dict[str, Any]:
    """Return the chips for JSON."""
    chips = [CountedChipDocument(chip=chip, gpus=list(gpus)) for chip, gpus in found.gpus.items()]
    return plain_data(CuptiChipsDocument, found, chips=chips)


def listing_view(found: Listing) -> View:
    """Return the metrics of a chip, of which short forms show the first: as many as are wanted, or 40."""
    limit = LINES if found.limit is None else found.limit
    counts = ", ".join(counted(count, kind) for kind, count in found.counts.items())
    match = f": {len(found.found):,} match '{harmless(found.pattern, 60)}'" if found.pattern else ""
    rows: list[list[Value]] = [[m.name, m.kind, m.unit, m.description or ""] for m in found.found]
    columns = [Column("metric", UNCUT), Column("kind"), Column("unit"), Column("NVIDIA says")]
    columns = columns if any(row[-1] for row in rows) else columns[:-1]
    rows, more = [row[: len(columns)] for row in rows], "give a pattern, or --limit 0"
    table = Table("metrics", columns, rows, brief=limit or len(rows), elsewhere=more)
    hint = did_you_mean(found.pattern, found.catalogue.by_name, f"ullage cupti metrics {found.catalogue.chip}") if not found.found else ""
    return View(
        kind="cupti-metrics",
        subject="Hardware counters",
        headline=Headline(found.catalogue.chip, f" has {counts}{match}"),
        sections=[Section("metrics", "Metrics", [table, Paragraph(hint)])],
        notes=[found.catalogue.told],
    )


class CuptiMetricDocument(Document):
    """A metric that a chip counts."""

    name: str
    kind: str
    unit: str
    hardware: str
    description: str


class CuptiMetricsDocument(Document):
    """The answer of `ullage cupti metrics`."""

    chip: Annotated[str, At("catalogue.chip")]
    source: Annotated[str, At("catalogue.told")]
    counts: dict[str, int]
    matching: int
    metrics: list[CuptiMetricDocument]


def listing_record(found: Listing) -> dict[str, Any]:
    """Return the metrics for JSON: all, unless fewer are wanted."""
    shown = found.found[: found.limit] if found.limit else found.found
    metrics = [filled(CuptiMetricDocument, one) for one in shown]
    return plain_data(CuptiMetricsDocument, found, matching=len(found.found), metrics=metrics)


def described_view(report: DescribedMetrics) -> View:
    """Return all that is known of some metrics: of a single one its kind in the first line, of several in a section each."""
    chip, found = report.chip, report.metrics
    single = len(found) == 1
    answer = Headline(found[0].metric.name, f": {_kind(chip, found[0])}") if single else Headline(f"{len(found)} metrics", f" of {chip}")
    columns = [Column(""), Column("", wraps=True)]
    sections = [
        Section(
            f"metric-{number}",
            f"{one.metric.name}: {_kind(chip, one)}",
            [Table(f"metric-{number}", columns, [[*row] for row in _known(one)])],
            headed=not single,
        )
        for number, one in enumerate(found)
    ]
    return View("cupti-describe", "Hardware counters", answer, sections=sections, notes=[report.told, *report.notes])


def _kind(chip: str, found: DescribedMetric) -> str:
    metric = found.metric
    unit = {"1": "without a unit", "unknown": "of a unit that isn't told"}.get(metric.unit, f"in {metric.unit}")
    return f"a {metric.kind} of {chip}, counted by {metric.hardware}, {unit}"


def _known(found: DescribedMetric) -> Iterator[tuple[str, str]]:
    if found.metric.description:
        yield "NVIDIA says", harmless(found.metric.description, 400)
    if found.passes:
        modes = [f"{_passes(count)} {_BY[mode]}" if count else f"not {_BY[mode]}" for mode, count in found.passes.items()]
        yield "collected in", ", ".join(modes)
    if found.endings:
        yield "as", endings(found.endings)
    if found.twin is not None:
        scale = f" × {found.twin.factor:g}" if found.twin.factor != 1 else ""
        yield "in DCGM", f"field {found.twin.dcgm} ({found.twin.field}) = {found.twin.metric}{scale}, {found.twin.status}"


def endings(found: Sequence[str]) -> str:
    """Return what may follow a name, said shortly.

    >>> endings([".avg", ".avg.per_second", ".sum", ".sum.per_second"])
    '.avg .sum, each alone or with .per_second'
    >>> endings([".max_rate", ".pct", ".ratio"])
    '.max_rate .pct .ratio'
    """
    parts = [match.groups("") for text in found if (match := _SUBMETRIC.fullmatch(text))]
    if not parts:
        return " ".join(found)
    rollups = list(dict.fromkeys(rollup for rollup, _ in parts))
    more = list(dict.fromkeys(rest for _, rest in parts if rest))
    alone = "each alone or with" if ("avg", "") in parts or ("sum", "") in parts else "each with"
    return " ".join(f".{rollup}" for rollup in rollups) + (f", {alone} {' '.join(more)}" if more else "")


class DcgmFieldDocument(Document):
    """The field of DCGM that says the same as a metric."""

    field: str
    dcgm: int
    metric: str
    factor: float
    status: str


class CuptiDescribedDocument(CuptiMetricDocument):
    """All that is known of a metric."""

    submetrics: list[str]
    passes: dict[str, int | None]
    dcgm: DcgmFieldDocument | None


class CuptiDescribeDocument(Document):
    """The answer of `ullage cupti describe`."""

    chip: str
    source: str
    metrics: list[CuptiDescribedDocument]


def described_record(report: DescribedMetrics) -> dict[str, Any]:
    """Return the metrics for JSON."""
    metrics = [_described_document(each) for each in report.metrics]
    return plain(CuptiDescribeDocument(chip=report.chip, source=report.told, metrics=metrics))


def _described_document(found: DescribedMetric) -> CuptiDescribedDocument:
    twin = None if found.twin is None else filled(DcgmFieldDocument, found.twin)
    return filled(CuptiDescribedDocument, found.metric, submetrics=list(found.endings), passes=dict(found.passes), dcgm=twin)


def plan_view(found: Planned, *, groups: bool = False) -> View:
    """Return the answer in a line, then what makes it so, then a cheaper choice; with `groups` also what goes together in a pass."""
    made = found.plan
    answers = [_answer(way, named=not index) for index, way in enumerate(made.ways.values())]
    answers += [f"{_BY[mode]} not known here" for mode in made.unknown]
    lines = [line for way in made.ways.values() for line in _single(way, groups)]
    for cheaper in made.cheaper.values():
        lines += [f"cheaper under other names for the same: {_answer(cheaper.way)}"]
        lines += [f"  {old} → {new}" for old, new in cheaper.renamed.items()]
    notes = [f"{name} was taken as {full}" for name, full in found.completed.items()]
    notes += [f"{_BY[mode]}: {reason}; {WHICH}" for mode, reason in made.unknown.items()]
    most = [f"{way.most} {_BY[way.mode]}" for way in made.ways.values() if way.most]
    notes += [f"at most this many of the hardware's counters fit a pass: {', '.join(most)}"] if most else []
    return View(
        kind="cupti-plan",
        subject="Hardware counters",
        headline=Headline(counted(len(made.metrics), "metric"), f" on {made.chip}: {', '.join(answers)}"),
        sections=[Section("passes", "Passes", [_alone(found), Paragraph("\n".join(lines), kept=True)])],
        notes=[*notes, *found.notes, found.told],
    )


def _alone(found: Planned) -> Table:
    ways = [*found.plan.ways.values()]
    columns = [Column("passes of each alone", UNCUT), *(Column(_BY[way.mode], COUNT) for way in ways)]
    rows: list[list[Value]] = [[name, *(way.alone.get(name) for way in ways)] for name in found.plan.metrics]
    return Table("alone", columns, rows, brief=len(rows))


def _answer(way: CollectionWay, named: bool = True) -> str:
    """Say the passes; `named` with the word, which stands once in a line."""
    without = f" without {_listed(way.refused)}, which it doesn't have" if way.refused and way.alone else ""
    if not way.alone:
        return f"not to be had {_BY[way.mode]}"
    if way.passes is None:
        return f"not together {_BY[way.mode]}{without}"
    return f"{_passes(way.passes) if named else f'{way.passes:,}'} {_BY[way.mode]}{without}"


def _passes(count: int) -> str:
    return counted(count, "pass", "passes")


def _listed(metrics: Sequence[str], most: int = 3) -> str:
    return ", ".join(metrics[:most]) + (f" and {len(metrics) - most} more" if len(metrics) > most else "")


def _single(way: CollectionWay, groups: bool) -> list[str]:
    """Say what one pass holds, where it doesn't hold all, and with `groups` what each does."""
    if way.passes == 1 or not way.alone:
        return []
    lines = [f"a single pass {_BY[way.mode]} holds {len(way.kept)} of them, without {_listed(way.dropped)}"]
    if not way.kept:
        lines = [f"no single pass {_BY[way.mode]} holds {'any of them' if len(way.alone) > 1 else 'it'}"]
    return lines + [f"  together {_BY[way.mode]}: {', '.join(group)}" for group in (way.groups if groups else ())]


class CollectionWayDocument(Document):
    """A way to collect metrics: in how many passes, and what a single one holds."""

    passes: int | None
    alone: dict[str, int]
    not_collected: Annotated[list[str], At("refused")]
    groups: list[list[str]]
    single_pass: Annotated[list[str], At("kept")]
    left_out: Annotated[list[str], At("dropped")]
    most_counters_per_pass: Annotated[int | None, At("most")]


class CheaperWayDocument(CollectionWayDocument):
    """A cheaper way, under other names for the same."""

    renamed: dict[str, str]


class CuptiPlanDocument(Document):
    """The answer of `ullage cupti plan`."""

    chip: Annotated[str, At("plan.chip")]
    source: Annotated[str, At("told")]
    metrics: Annotated[list[str], At("plan.metrics")]
    completed: dict[str, str]
    modes: Annotated[dict[str, CollectionWayDocument], At("plan.ways")]
    cheaper: dict[str, CheaperWayDocument]
    unknown: Annotated[dict[str, str], At("plan.unknown")]


def plan_record(found: Planned) -> dict[str, Any]:
    """Return the plan for JSON."""
    cheaper = {mode: filled(CheaperWayDocument, each.way, renamed=dict(each.renamed)) for mode, each in found.plan.cheaper.items()}
    return plain_data(CuptiPlanDocument, found, cheaper=cheaper)
