"""The view of microbenchmarks: the roofline, the ceilings, and of each bench a curve and a table beside the papers' figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from ullage.benches.bench import BENCHES, Plain, Quantity
from ullage.benches.quantities import UNITS as SI
from ullage.benches.result import FORMAT, BenchResult, CaseRow, Stamp
from ullage.errors import UllageError, harmless
from ullage.gpus.measured import Ceilings
from ullage.render import ceilings
from ullage.render.bench_words import (
    NOT_YET,
    Unit,
    conditions,
    made_on,
    measured,
    short,
    shown,
    stamped,
    under,
    units,
    verdict,
    word,
)  # fmt: skip
from ullage.render.svg.plot import plot
from ullage.render.svg.roofline import roofline as roofline_picture
from ullage.reports.bench.bench import BenchLine, BenchList, BenchReport, BenchTable
from ullage.reports.bench.bench import BenchNumber as Measurement
from ullage.reports.bench.power_curve import power_cost, power_notes
from ullage.reports.bench.roofline import roofline
from ullage.views.csv import table_csv
from ullage.views.declared import At, Document, Ratio, Words, filled, plain, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.markup import Markup
from ullage.views.notation import Notation
from ullage.views.numbers import counted, percent
from ullage.views.view import Cell, Column, Headline, Item, ItemList, Paragraph, Part, Picture, Section, Table, Value, View

UNDER = "SM clock (lowest), temperature, held back by"
ANYTHING = Notation("", lambda value: f"{value:g}")  # a number whose unit stands beside it
CONTENTS = 3  # benches from which on a list of them leads the page
FORMS = (*VIEW_FORMS, ".svg")
SECONDS = Notation("s", lambda value: f"{value:,.0f} s")


def view(report: BenchReport) -> View:
    """Return the answer as data: how near the GPU comes to what is stated of it, its roofline, its ceilings, a section a bench."""
    found, beside = report.ceilings, power_notes(report.results)  # these stand with their table
    return View(
        kind="bench",
        subject="Microbenchmarks" if report.results else "Published figures",
        basis=[made_on(report.results)] if report.results else [],
        headline=headline(report),
        sections=[
            *_contents(report),
            *_roofline(report),
            *([ceilings.section(found, report.chip)] if found is not None else []),
            *map(section, report.tables),
        ],
        notes=[note for note in report.notes if note not in beside],
        closing=_CLOSING if report.results else "",
    )


def headline(report: BenchReport) -> Headline:
    """Return the answer in a line: how near the best product of matrices and the memory come to what the maker states."""
    if report.gpu is None:
        return Headline(NOT_YET)
    best = (("tensor peak", _best(report, "throughput")), ("memory bandwidth", _best(report, "bandwidth")))
    cases = _cases(report)
    shares = [f"{percent(share)} of the stated {name}" for name, share in best if share is not None]
    first, *others = [*shares, f"{cases.measured:,} of {cases.all:,} cases have a number"]
    strong, of, rest = first.partition(" of ")
    return Headline(strong, f"{of}{rest}", f"{harmless(report.gpu, 80)}: ", ", ".join(others))


def _cases(report: BenchReport) -> CaseCountsDocument:
    rows = [row for result in report.results for row in result.rows]
    return CaseCountsDocument(measured=sum(1 for row in rows if row.values), all=len(rows))


def _best(report: BenchReport, quantity: str) -> float | None:
    shares = [cell.share for table in report.tables for cell in table.cells if cell.quantity == quantity and cell.share is not None]
    return max(shares, default=None)


def _contents(report: BenchReport) -> Iterator[Section]:
    """Yield a list of the benches with links to their sections, those that were not measured marked so."""
    if len(report.tables) >= CONTENTS:
        states = ["" if t.measured or report.gpu is None else f" ({'no number' if t.problems else NOT_YET})" for t in report.tables]
        items = [Item(f"{t.member.title}{state}", f"#{t.member.name}") for t, state in zip(report.tables, states, strict=True)]
        yield Section("contents", "Contents", [ItemList(items)], detail=True)


def _roofline(report: BenchReport) -> Iterator[Section]:
    roofs = roofline(report.results, report.chip)
    if roofs is not None and report.results:
        yield Section("roofline", "Roofline", [Picture(lambda w: roofline_picture(roofs, width=w, standalone=False))], _ROOFS)


def section(table: BenchTable) -> Section:
    """Return one bench's section: under what it was measured, why cases have no number, its curve and its table."""
    member = table.member
    about = stamped(cell.stamp for cell in table.cells if cell.value is not None) or NOT_YET
    if not table.lines:
        about += ", no published figures"
    parts: list[Part] = [Paragraph(f"{member.name} ({member.source}): {about}")]
    parts += [Paragraph(line) for line in (*problems(table), *power_notes([table.result] if table.result is not None else []))]
    if plot(table) is not None:
        parts.append(Picture(lambda w: plot(table, width=w, standalone=False) or Markup("")))
    return Section(member.name, member.title, [*parts, *([_grid(table)] if table.places else [])], member.summary, headed=True)


def problems(table: BenchTable) -> Iterator[str]:
    """Yield why cases have no number, a line a reason."""
    for problem, count in table.problems.items():
        yield f"{verdict(problem)}: {counted(count, 'case')}: {harmless(problem, 300)}"


def _grid(table: BenchTable) -> Table:
    """Return a bench's table: measured numbers first, below them those published, each line with whose it is.

    A terminal shows what was published for the nearest GPU, or for all where there is none nearest.
    """
    layout, scales = table.member.layout, units(table)
    rows = [row for line in table.lines for row in _rows(table, line, scales)]
    chosen = [number for number, (gpu, _) in enumerate(rows) if gpu in ("", table.nearest) or not table.nearest]
    columns = [*map(Column, layout.rows), *([Column("GPU")] if table.published else [])]
    columns += [
        Column(scales[quantity].name, _notation(quantity, scales[quantity]), over=[*map(word, column, layout.across)],
               key=" ".join([*map(word, column, layout.across), quantity]))
        for column, quantity in table.places
    ]  # fmt: skip
    columns += [Column(UNDER) if layout.conditions else Column("SM clock, power", detail=True)] if table.measured else []
    return Table(
        table.member.name, columns, [row for _, row in rows], chosen=chosen, page=len(rows), grid=len(layout.rows), over=layout.across,
        elsewhere="--out FILE.html has those of other GPUs",
    )  # fmt: skip


def _notation(quantity: Quantity, unit: Unit) -> Notation:
    return Notation(SI[quantity], lambda value: shown(value, unit))


Row = list[Value | Cell]


def _rows(table: BenchTable, line: BenchLine, scales: Mapping[Quantity, Unit]) -> Iterator[tuple[str, Row]]:
    """Yield a line's rows with whose they are ("" for what was measured), those of the nearest GPU before others."""
    names: Row = [word(label, name) for label, name in zip(line.labels, table.member.layout.rows, strict=True)]
    cells = [line.cells.get(place) for place in table.places]
    if table.result is not None and table.measured and _tried(line):
        numbers = [_measured(cell, scales[quantity]) for cell, (_, quantity) in zip(cells, table.places, strict=True)]
        words = conditions if table.member.layout.conditions else under
        stamps = words(cell.stamp for cell in cells if cell is not None and cell.value is not None)
        yield "", [*names, *([f"{short(table.result.gpu)}, measured"] if table.published else []), *numbers, stamps]
    for gpu in sorted(table.published, key=lambda one: one != table.nearest):
        figures = [None if cell is None else cell.published.get(gpu) for cell in cells]
        if any(figure is not None for figure in figures):
            blank = [Cell(None, " ") if figure is None else figure for figure in figures]
            last = [""] if table.measured else []
            yield gpu, [*names, f"{short(gpu)}, paper" if table.measured else short(gpu), *blank, *last]


def _tried(line: BenchLine) -> bool:
    """Whether any number of a line was measured, or at least tried."""
    return any(cell.value is not None or cell.problem for cell in line.cells.values())


def _measured(cell: Measurement | None, unit: Unit) -> Cell:
    words, share = measured(cell, unit)
    tip = "" if cell is None else cell.problem or (_stamp(cell.stamp) if cell.value is not None else "")
    return Cell(None if cell is None or cell.value is None else cell.value.value, words, aside=share, tip=tip)


def _stamp(stamp: Stamp | None) -> str:
    return "" if stamp is None else f"{stamped([stamp])}, clock from the {stamp.clock_from}" if stamp.clock_from else stamped([stamp])


def more_forms(report: BenchReport, view: View) -> dict[str, Form]:  # noqa: ARG001 - a describer's `more_forms`
    """Return the forms of its own: SVG is the roofline, CSV has a row a number."""
    return {".svg": lambda: _picture(report), ".csv": lambda: numbers_csv(report)}


def _picture(report: BenchReport) -> str:
    roofs = roofline(report.results, report.chip)
    if roofs is None:
        raise UllageError("a roofline needs a product and a bandwidth, measured or stated", "run `ullage bench wgmma memory-bandwidth`")
    return str(roofline_picture(roofs))


def numbers_csv(report: BenchReport) -> str:
    """Return every number of every bench as CSV, a row each: measured ones first, then those published."""
    names = ("bench", "case", "quantity", "unit", "GPU")
    columns = [*(Column(name) for name in names), Column("value", ANYTHING), Column("stated peak", ANYTHING), Column("measured under")]
    rows = [row for table in report.tables for line in table.lines for place in line.cells for row in _numbers_of(table, line, place)]
    return table_csv(Table("numbers", columns, rows))


def _numbers_of(table: BenchTable, line: BenchLine, place: Any) -> Iterator[Row]:
    (across, quantity), cell = place, line.cells[place]
    case = " ".join(filter(None, map(word, (*line.labels, *across), (*table.member.layout.rows, *table.member.layout.across))))
    about: Row = [table.member.name, case, quantity, SI[quantity]]
    if cell.value is not None and table.result is not None:
        yield [*about, table.result.gpu, cell.value.value, cell.peak, stamped([cell.stamp])]
    for gpu, figure in cell.published.items():
        yield [*about, f"{gpu}, published", figure, None, ""]


def list_view(report: BenchList) -> View:  # noqa: ARG001 - a describer's `view`
    """Return what microbenchmarks there are, and how long they take."""
    members = sorted(BENCHES.values(), key=lambda member: member.name)
    rows: list[Row] = [[one.name, "PyTorch" if one.needs == "torch" else "CUDA", one.seconds, one.title] for one in members]
    columns = [Column("name"), Column("needs"), Column("takes", SECONDS), Column("what", room=84)]
    about = f", about {sum(one.seconds for one in members) / 60:,.0f} minutes in all"
    table = Table("benches", columns, rows, brief=len(rows))
    answer = Headline(counted(len(rows), "microbenchmark"), about)
    return View("benches", "Microbenchmarks", answer, sections=[Section("benches", "Microbenchmarks", [table])])


class BenchDocument(Document):
    """A microbenchmark: what it needs, how long it takes, what it measures."""

    name: str
    title: str
    source: str
    needs: str
    seconds: float
    architectures: list[str]
    drift: bool
    what: Annotated[str, At("summary")]


class BenchesDocument(Document):
    """The answer of `ullage bench --list`."""

    benches: list[BenchDocument]


class PowerCostDocument(Document):
    """What the power limit costs."""

    load: str
    limit: float | None
    sms: int
    throughput: float
    clock: float | None
    power: float | None
    reasons: list[str] | None
    free: float
    free_clock: float | None
    free_data: str
    free_sms: int
    certain: bool
    lost: float
    share: Ratio
    held_back: bool


class BenchNumberDocument(Document):
    """A number beside what was published and what is stated; SI units."""

    labels: dict[str, Plain]
    quantity: str
    unit: str
    value: Annotated[float | None, At("value.value")]
    published: dict[str, float]
    stated_peak: Annotated[float | None, At("peak")]
    share_of_peak: Annotated[Ratio | None, At("share")]
    stamp: Stamp | None
    problem: Words


class BenchTableDocument(Document):
    """The numbers of a microbenchmark."""

    bench: Annotated[str, At("member.name")]
    title: Annotated[str, At("member.title")]
    summary: Annotated[str, At("member.summary")]
    source: Annotated[str, At("member.source")]
    nearest: str
    rows: list[BenchNumberDocument]


class CaseCountsDocument(Document):
    """How many cases have a number, of how many."""

    measured: int
    all: int


class BenchResultDocument(Document):
    """A microbenchmark's rows on one device, as `ullage bench --from` reads them; `extra` is what the bench alone tells."""

    format: int
    bench: str
    date: str
    machine: dict[str, Plain]
    quick: bool
    rows: list[CaseRow]
    notes: list[str]
    seconds: float
    extra: dict[str, Any]


class BenchReportDocument(Document):
    """The answer of `ullage bench`: `results` as they can be read back, `ceilings` as `--save` keeps them, what the power limit costs, and
    `tables` beside published figures and stated peaks."""

    gpu: str | None
    cases: CaseCountsDocument
    results: list[BenchResultDocument]
    ceilings: Ceilings | None
    power_cost: PowerCostDocument | None
    tables: list[BenchTableDocument]
    notes: list[str]


def list_record(report: BenchList) -> dict[str, Any]:  # noqa: ARG001 - a describer's `record`
    """Return what microbenchmarks there are for JSON."""
    members = sorted(BENCHES.values(), key=lambda member: member.name)
    return plain(BenchesDocument(benches=[filled(BenchDocument, one) for one in members]))


def record(report: BenchReport) -> dict[str, Any]:
    """Return the report for JSON."""
    cost = power_cost(report.results)
    return plain_data(
        BenchReportDocument,
        report,
        cases=_cases(report),
        results=[declared_result(result) for result in report.results],
        power_cost=None if cost is None else filled(PowerCostDocument, cost),
        tables=[filled(BenchTableDocument, table, rows=_numbers(table)) for table in report.tables],
    )


def declared_result(result: BenchResult) -> BenchResultDocument:
    """Return a result as a document."""
    return filled(BenchResultDocument, result, format=FORMAT)


def _numbers(table: BenchTable) -> list[BenchNumberDocument]:
    names = (*table.member.layout.rows, *table.member.layout.across)
    return [
        filled(BenchNumberDocument, cell, labels=dict(zip(names, (*line.labels, *column), strict=True)), unit=SI[cell.quantity])
        for line in table.lines
        for (column, _), cell in line.cells.items()
    ]


class BenchResultsDocument(Document):
    """What `ullage bench --out results.json` keeps while it goes on, and `ullage bench drift --out`: results that `--from` reads."""

    results: list[BenchResultDocument]


_CLOSING = (
    "Every kernel was checked against a reference before it was timed. Measured numbers stand above the paper's; the percentage beside "
    "a number is its share of what the maker states. A dash was not measured. The last column of a row, and hovering over a number, tell "
    "the SM clock and the power that it was measured under."
)
_ROOFS = "A product below both of its roofs has something else in its way than the multipliers and the memory."
