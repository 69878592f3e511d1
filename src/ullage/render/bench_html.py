"""Microbenchmarks as one HTML page: the roofline, then a table and a curve for each, every number with its stamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from ullage.benches.bench import Quantity
from ullage.benches.result import Stamp
from ullage.errors import harmless
from ullage.render import ceilings
from ullage.render.bench import headline, problems
from ullage.render.bench_grid import UNDER, tried
from ullage.render.bench_words import NOT_YET, Unit, conditions, made_on, measured, published, short, stamped, under, units, word
from ullage.render.svg.plot import plot
from ullage.render.svg.roofline import roofline as roofline_picture
from ullage.reports.bench import BenchReport, Cell, Line, Table
from ullage.reports.power_curve import power_notes
from ullage.reports.roofline import roofline
from ullage.views.markup import Child, Markup, element
from ullage.views.page import document, figure, section

CONTENTS = 3  # benches from which on a list of them leads the page
_HOW = (
    "Every kernel was checked against a reference before it was timed. Measured numbers stand above the paper's; the percentage beside "
    "a number is its share of what the maker states. A dash was not measured. The last column of a row, and hovering over a number, tell "
    "the SM clock and the power that it was measured under."
)
_CEILINGS = (
    "The highest of each kind on random data. A burst lasts a fraction of a second; what is sustained was measured over seconds, after the "
    "clock had settled, and is what a job of hours is held against."
)
_ROOFS = "A product below both of its roofs has something else in its way than the multipliers and the memory."


def html(report: BenchReport) -> str:
    """Return the page; it loads nothing from anywhere."""
    made = made_on(report.results)
    how = [element("p", line, class_="how") for line in (made, _HOW if report.results else "") if line]
    title = element("h1", report.gpu or "Published figures", element("small", _answer(report)))
    body: list[Child] = [element("header", element("p", "Microbenchmarks", class_="eyebrow"), title, how)]
    roofs = roofline(report.results, report.chip)
    if len(report.tables) >= CONTENTS:
        body.append(_contents(report))
    if roofs is not None and report.results:
        body.append(section("roofline", "Roofline", _ROOFS, figure(lambda w: roofline_picture(roofs, width=w, standalone=False))))
    if (found := report.ceilings) is not None:
        body.append(section("ceilings", "Ceilings", _CEILINGS, ceilings.html(found, report.chip)))
    body += [_section(table) for table in report.tables]
    beside = power_notes(report.results)  # these stand with their table
    if said := [note for note in report.notes if note not in beside]:
        notes = element("ul", [element("li", harmless(note, 2000)) for note in said], class_="notes")
        body.append(section("notes", "Notes", "", notes))
    return document(headline(report), *body)


def _answer(report: BenchReport) -> str:
    return headline(report).removeprefix(f"{harmless(report.gpu or '', 80)}: ")


def _contents(report: BenchReport) -> Markup:
    """Return a list of the benches with links to their sections, those that were not measured marked so."""
    links = []
    for table in report.tables:
        state = "" if table.measured or report.gpu is None else f" ({'no number' if table.problems else NOT_YET})"
        links.append(element("li", element("a", table.member.title, href=f"#{table.member.name}"), state))
    return element("nav", element("ul", links, class_="notes"), aria_label="Contents")


def _section(table: Table) -> Markup:
    member = table.member
    told = stamped(cell.stamp for cell in table.cells if cell.value is not None) or NOT_YET
    picture = figure(lambda w: plot(table, width=w, standalone=False) or Markup("")) if plot(table) is not None else None
    failed = [element("p", line, class_="how") for line in problems(table)]
    cost = [element("p", line, class_="how") for line in power_notes([table.result] if table.result is not None else [])]
    return section(
        member.name,
        member.title,
        f"{member.summary} Source: {member.source}.",
        element("p", f"{told[:1].upper()}{told[1:]}."),
        *failed,
        *cost,
        picture,
        _table(table) if table.places else None,
    )


def _table(table: Table) -> Markup:
    layout, scales = table.member.layout, units(table)
    names = [element("th", name, scope="col", class_="words") for name in (*layout.rows, "GPU")]
    head = UNDER if layout.conditions else "SM clock, power"
    stamp = element("th", head, scope="col") if table.measured else None
    last = element("tr", names, [element("th", scales[quantity].name, scope="col") for _, quantity in table.places], stamp)
    rows = [row for line in table.lines for row in _rows(table, line, scales)]
    body = element("table", element("thead", *_spread(table), last), element("tbody", rows))
    return element("div", body, class_="scroll", tabindex=0, role="region", aria_label=table.member.title)


def _spread(table: Table) -> Iterator[Markup]:
    """Yield the heads of the labels that spread over columns, each over all it holds."""
    layout = table.member.layout
    for level, name in enumerate(layout.across):
        spans = [
            element("th", word(key[level], name), colspan=len(list(group)), scope="colgroup")
            for key, group in groupby(table.places, key=lambda place: place[0][: level + 1])
        ]
        end = element("td", "") if table.measured else None
        yield element("tr", element("th", f"{name}:", colspan=len(layout.rows) + 1, scope="row"), spans, end)


def _rows(table: Table, line: Line, scales: Mapping[Quantity, Unit]) -> Iterator[Markup]:
    """Yield a line's rows, its labels in the first of them: what was measured, and what was published for each GPU."""
    labels = [word(label, name) for label, name in zip(line.labels, table.member.layout.rows, strict=True)]
    names = [element("th", label, scope="row") for label in labels]
    for cells in (*_measured(table, line, scales), *_published(table, line, scales)):
        yield element("tr", names, cells)
        names = [element("td", "") for _ in labels]


def _measured(table: Table, line: Line, scales: Mapping[Quantity, Unit]) -> Iterator[list[Markup]]:
    if table.result is None or not table.measured or not tried(line):
        return
    cells = [line.cells.get(place) for place in table.places]
    numbers = [_cell(cell, scales[quantity]) for cell, (_, quantity) in zip(cells, table.places, strict=True)]
    words = conditions if table.member.layout.conditions else under
    stamps = words(cell.stamp for cell in cells if cell is not None and cell.value is not None)
    yield [element("th", f"{short(table.result.gpu)}, measured", scope="row"), *numbers, element("td", stamps)]


def _published(table: Table, line: Line, scales: Mapping[Quantity, Unit]) -> Iterator[list[Markup]]:
    for gpu in table.published:
        figures = [published(line.cells.get(place), gpu, scales[place[1]]) for place in table.places]
        if any(figures):
            end = [element("td", "")] if table.measured else []
            yield [element("th", f"{short(gpu)}, paper", scope="row"), *(element("td", figure) for figure in figures), *end]


def _cell(cell: Cell | None, unit: Unit) -> Markup:
    number, share = measured(cell, unit)
    told = "" if cell is None else cell.problem or (_told(cell.stamp) if cell.value is not None else "")
    return element("td", number, element("small", f" {share}", class_="more") if share else None, title=told or None)


def _told(stamp: Stamp | None) -> str:
    return "" if stamp is None else f"{stamped([stamp])}, clock from the {stamp.clock_from}" if stamp.clock_from else stamped([stamp])
