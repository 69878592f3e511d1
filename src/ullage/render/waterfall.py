"""The view of a waterfall: the answer first, then the chain, what disagrees, what binds the kernels, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ullage.metrics.evidence import GIVEN, REST, Measured
from ullage.render import waterfall_kernels
from ullage.reports.waterfall.step import StepContradiction
from ullage.reports.waterfall.waterfall import Cost, WaterfallReport
from ullage.views.declared import At, Document, Hours, Made, Moment, Rate, Ratio, filled, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.notation import FACTOR_3, FIGURES, GPU_HOURS, PERCENT_1, PERCENTAGE_POINTS, change
from ullage.views.numbers import part_read, percent
from ullage.views.view import Cell, Column, Headline, Item, ItemList, Paragraph, Part, Picture, Section, Table, Value, View

WIDE = 1.0  # points: what is less certain is told by its bounds
ADVISED = 2  # steps, the largest, whose usual remedies a terminal shows


def view(report: WaterfallReport) -> View:
    """Return the answer as data: what is left of the peak, the chain to it, what its sources say of one another, what to do."""
    return View(
        kind="waterfall",
        subject="From peak to MFU",
        headline=headline(report),
        basis=report.rests_on,
        sections=[
            Section("steps", "Step by step", [Picture(lambda width: _picture(report, width)), _chain(report)], _STEPS, opens=True),
            Section("closes", "Does it close", [Paragraph(ceiling(report)), Paragraph(closure(report))]),
            Section("sources", "What two sources say", [_disagreements(report)]),
            *([] if report.kernels is None else [waterfall_kernels.section(report.kernels)]),
            Section("remedies", "What to do", [*_advice(report)], _REMEDIES),
        ],
        notes=report.notes,
    )


def _picture(report: WaterfallReport, width: int) -> Markup:
    from ullage.render.svg.waterfall import waterfall

    return waterfall(report, width=width, standalone=False)


def headline(report: WaterfallReport) -> Headline:
    """Return the answer in one line: how much of the peak is left, and what takes the most, or that the numbers contradict one another.

    What the end is when MFU is not known is said: OFU, OFU × tile, what OFU, tile and model allow. An answer from a part says so first.
    """
    chain, before = report.chain, part_read(report.complete, report.read_until)
    value = percent(report.headline.value, 1)
    if report.contradiction is not None:
        return Headline(report.contradiction.words, ": one of the two is of another step", before)
    if chain.allowed is not None:
        by = "all else allows" if chain.closure is None else "OFU × tile × model allow"
        rest = f" of peak, where {by} {percent(chain.allowed.value, 1)}: one of these numbers is wrong"
        return Headline(f"MFU {value}", rest, before)
    if chain.reaches == "what is known":
        return Headline(value, f" of peak is left by what is known: {_largest(report)}", before)
    return Headline(f"{chain.reaches} {value}", f" of peak: {_largest(report)}", before)


def _largest(report: WaterfallReport) -> str:
    """Return which step takes the most, and which other one may take more."""
    largest = max(report.costs, key=lambda cost: cost.points)
    if largest.points <= 0:
        return "nothing is lost"
    rivals = [cost for cost in report.costs if cost is not largest and _most(cost) > _least(largest)]
    told = f"{lost(largest)} points are lost to {largest.step.short}"
    if rivals:
        rival = max(rivals, key=_most)
        return f"{told}, and {rival.step.short} may take more ({lost(rival)})"
    return told + (", the most of any step" if len(report.costs) > 1 else "")


def _least(cost: Cost) -> float:
    return cost.points if cost.points_between is None else cost.points_between[0]


def _most(cost: Cost) -> float:
    return cost.points if cost.points_between is None else cost.points_between[1]


def lost(cost: Cost) -> str:
    """Return the points that a step takes, or between which they lie, where these are a point or more apart."""
    if cost.points_between is None or cost.points_between[1] - cost.points_between[0] < WIDE:
        return _points(cost.points)
    return f"{_points(max(cost.points_between[0], 0.0))} to {_points(cost.points_between[1])}"


_points = PERCENTAGE_POINTS.words


def _chain(report: WaterfallReport) -> Table:
    end, timed, priced = report.chain.end, report.gpu_hours is not None, report.gpu_hours is not None and report.price is not None
    used = _times(report.gpu_hours, end.value)
    paid = _times(used, report.price)
    spent: list[Value | Cell] = [Cell(used, GPU_HOURS.words(used)), Cell(paid, report.terms.amounts.words(paid))]
    spent = spent[: timed + priced]
    columns = [
        Column("step"),
        Column("by"),
        Column("factor", FACTOR_3),
        Column("between", FIGURES),
        Column("left", PERCENT_1),
        Column("points", change(PERCENTAGE_POINTS)),
        *[Column("GPU-hours", change(GPU_HOURS)), _money_column(report)][: timed + priced],
        Column("whose"),
    ]
    points = end.value * 100
    last: list[Value | Cell] = [f"= {report.chain.ends}", "", end.value, bounds(end), end.value, Cell(points, _points(points)), *spent, ""]
    return Table("steps", columns, [_row(cost, timed + priced) for cost in report.costs], last=[last])


def _money_column(report: WaterfallReport) -> Column:
    terms = report.terms
    return Column(terms.heading_with_price("money"), change(terms.amounts), key="money")


def _row(cost: Cost, spent: int) -> list[Value | Cell]:
    step = cost.step
    source = "merged" if len(step.names) > 1 and step.factor.source == REST else step.factor.source
    taken = [None if amount is None else -amount for amount in (cost.gpu_hours, cost.money)]
    whose = Cell(cost.whose, short="several" if len(step.names) > 2 else "")
    cells: list[Value | Cell] = [
        Cell(step.label, short=step.short),
        source,
        step.factor.value,
        bounds(step.factor),
        step.after.value,
        -cost.points,
    ]
    return [*cells, *taken[:spent], whose]


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other


def of_ceiling(report: WaterfallReport) -> float | None:
    """Return how much of the measured ceiling the headline's value is, None without one."""
    return report.headline.value / report.ceiling_share if report.ceiling_share else None


def bounds(value: Measured) -> str:
    """Return the values between which one lies, with the digits that tell them apart.

    >>> bounds(Measured(0.5, 0.45, 0.55, "")), bounds(Measured.exact(0.5, "")), bounds(Measured(0.5, None, None, ""))
    ('0.45 to 0.55', 'exact', 'not known')
    >>> bounds(Measured.exact(0.5, "given"))
    'as given'
    """
    if value.low is None or value.high is None:
        return "not known"
    if value.high - value.low < 5e-5:
        return "as given" if value.source == GIVEN else "exact"
    digits = 2 if value.high - value.low >= 0.02 else 3 if value.high - value.low >= 0.002 else 4
    return f"{value.low:.{digits}f} to {value.high:.{digits}f}"


def ceiling(report: WaterfallReport) -> str:
    """Return what the measured ceiling is of the peak, and the answer of it; "" without one."""
    if report.ceiling is None:
        return ""
    what = f"measured ceiling {report.ceiling / 1e12:,.1f} TFLOP/s ({report.ceiling_source})"
    if report.ceiling_share is None or report.peak is None:
        return f"{what}; the peak is not known: --gpu says which GPU it is"
    of_it = f"{report.chain.reaches} is {percent(of_ceiling(report), 1)} of the ceiling"
    return f"{what}: {percent(report.ceiling_share, 1)} of the peak of {report.peak / 1e12:,.1f}; {of_it}"


def closure(report: WaterfallReport) -> str:
    """Return whether the chain closes, "" where that can't be told."""
    found = report.chain.closure
    if found is None:
        return ""
    allowed = f"OFU × tile × model allow {percent(found.expected.value, 1)} ({_between(found.expected)})"
    if found.closes:
        return f"the chain closes: {allowed}, and MFU is {percent(found.mfu.value, 1)}"
    return f"the chain does not close: {allowed}, and MFU is {percent(found.mfu.value, 1)}; `ullage audit mfu` looks for the mistake"


def _between(value: Measured) -> str:
    return "error not known" if value.low is None or value.high is None else f"{percent(value.low, 1)} to {percent(value.high, 1)}"


def _disagreements(report: WaterfallReport) -> Table:
    columns = [Column("what two sources say", key="what"), Column("by", key="used source"), Column("says", FACTOR_3, "used")]
    columns += [Column("by", key="other source"), Column("says", FACTOR_3, "other"), Column("", key="verdict")]
    rows: list[list[Value | Cell]] = [
        [
            d.what, d.used.source, d.used.value, d.other.source, d.other.value,
            Cell("agree" if d.agree else "differ", look="" if d.agree else "doubt"),
        ]
        for d in report.chain.disagreements
    ]  # fmt: skip
    return Table("sources", columns, rows)


def _advice(report: WaterfallReport) -> Iterator[Part]:
    """Yield what is usually done about each step, the largest first; of merged ones what would tell their factors apart."""
    worst = sorted((cost for cost in report.costs if cost.points > 0.05 or "unexplained" in cost.step.names), key=lambda cost: -cost.points)
    for place, cost in enumerate(worst):
        merged = len(cost.step.names) > 2
        said = "what would tell its factors apart" if merged else advice(cost)
        items = [Item(how) for how in cost.apart] if merged else [Item(remedy.what, remedy.source) for remedy in cost.remedies]
        yield ItemList(items, f"{cost.step.short} ({_points(cost.points)} points), {said}", detail=place >= ADVISED)


def advice(cost: Cost) -> str:
    """Return what a step's remedies are: those that help the trace's kernels, or the usual ones."""
    return "what helps the kernels of the trace" if cost.by_kernels else "what is usually done"


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(report: WaterfallReport, made: View) -> dict[str, Form]:  # noqa: ARG001 - a question's `more_forms`
    """Return what makes the forms of files that other reports do not have: the chain as a picture."""
    from ullage.render.svg.waterfall import waterfall

    return {".svg": lambda: str(waterfall(report))}


class MeasuredDocument(Document):
    """A value, the bounds between which it surely lies, and who said so."""

    value: Ratio
    low: Ratio | None
    high: Ratio | None
    source: str


class SpentDocument(MeasuredDocument):
    """Where a chain ends, and what is used there."""

    points: float
    gpu_hours: Hours | None
    money: float | None


class CostDocument(Document):
    """A step of the chain: its factor, what is left after it, and what it takes, in points of the peak, GPU-hours and money."""

    name: Annotated[str, At("step.name")]
    label: Annotated[str, At("step.label")]
    stands_for: Annotated[list[str], At("step.names")]
    factor: Annotated[MeasuredDocument, At("step.factor")]
    after: Annotated[MeasuredDocument, At("step.after")]
    points: float
    points_between: list[float] | None
    gpu_hours: Hours | None
    money: float | None
    whose: str
    apart: list[str]
    advice: str
    remedies: list[waterfall_kernels.RemedyDocument]


class ClosureDocument(Document):
    """MFU beside what OFU, tiles and the model allow."""

    expected: MeasuredDocument
    mfu: MeasuredDocument
    closes: bool


class DisagreementDocument(Document):
    """What two sources say of one thing: the one that is used, and the other."""

    what: str
    used: MeasuredDocument
    other: MeasuredDocument
    agree: bool


class WaterfallDocument(Document):
    """The answer of `ullage waterfall`: the chain from peak to MFU."""

    answer: str
    complete: bool
    read_until: Moment | None
    reaches: Annotated[str, At("chain.reaches")]
    value: Annotated[Ratio, At("headline.value")]
    allowed: Annotated[MeasuredDocument | None, At("chain.allowed")]
    contradiction: StepContradiction | None
    ends: Annotated[str, At("chain.ends")]
    end: SpentDocument
    ofu: Annotated[MeasuredDocument | None, At("chain.ofu")]
    mfu: Annotated[MeasuredDocument | None, At("chain.mfu")]
    steps: list[CostDocument]
    missing: Annotated[list[str], At("chain.missing")]
    closure: Annotated[ClosureDocument | None, At("chain.closure")]
    disagreements: Annotated[list[DisagreementDocument], At("chain.disagreements")]
    gpus: int | None
    gpu_hours: Hours | None
    price: float | None
    currency: Annotated[str | None, Made(lambda name: name or None)]
    peak: Rate | None
    peak_source: str | None
    ceiling: Rate | None
    ceiling_source: str | None
    ceiling_share: Ratio | None
    of_ceiling: Ratio | None
    kernels: waterfall_kernels.KernelRoofsDocument | None
    rests_on: list[str]
    notes: list[str]


def record(report: WaterfallReport) -> dict[str, Any]:
    """Return a waterfall as plain data: ratios, percentage points, GPU-hours, FLOP/s; null for what is not known."""
    end = report.chain.end
    used = _times(report.gpu_hours, end.value)
    return plain_data(
        WaterfallDocument,
        report,
        answer=str(headline(report)),
        end=filled(SpentDocument, end, points=end.value * 100, gpu_hours=used, money=_times(used, report.price)),
        steps=[filled(CostDocument, cost, advice=advice(cost)) for cost in report.costs],
        ceiling_source=report.ceiling_source if report.ceiling is not None else None,
        of_ceiling=of_ceiling(report),
        kernels=None if report.kernels is None else waterfall_kernels.declared(report.kernels),
    )


_STEPS = "Walking from the peak: what each step leaves, and what it takes."
_REMEDIES = "The largest steps first, with where it is documented."
