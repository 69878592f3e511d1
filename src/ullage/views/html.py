"""A view as one HTML file: the answer first, then pictures and tables. It loads nothing from anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ullage.errors import harmless
from ullage.views.findings import page_order
from ullage.views.markup import Child, Markup, address, element, join, known
from ullage.views.notation import LONGEST_WORDS
from ullage.views.page import PageFrame, document, figure
from ullage.views.view import (
    Cell,
    Column,
    Fact,
    Item,
    ItemList,
    Paragraph,
    Part,
    Picture,
    Section,
    Table,
    Value,
    View,
    cell_of,
    draws_tree,
    named_before,
    rows_left_out,
    words_of,
)  # fmt: skip

NAME = 100  # characters of a name in a table
INDENT = "&emsp;"  # of a node under its parent
_PERCENT = re.compile(r"((?:OFU )?\(?[\d.,]*\d %\)?)")  # a percentage, as words of a line
_SECTION = re.compile(r"#[a-z0-9-]+")  # a section of the same page


IN_JSON = "the JSON form has them all"  # a reader of a page types no options
LONG_HEADING = 12  # characters; on a phone a column has room for two words of a longer one
WHOLE = 24  # characters of a headline's strong part that no line breaks


def html(view: View, frame: PageFrame | None = None) -> str:
    """Return a view as one self-contained HTML document, light or dark as the reader's screen asks.

    Every word is escaped. A security policy allows only our own style sheet and script, by their hashes, and no
    connection at all; without the script tables just don't sort. The same view gives the same bytes. On a site of pages a
    `frame` stands around it, and names lead where it says.
    """
    title = f"{view.headline.before}{view.headline.strong}{view.headline.rest}"
    return document(title, *_body(view, frame.address_of if frame else _nowhere), frame=frame)


Address = Callable[[str, str], str | None]


def _nowhere(*_: str) -> None:
    return None


def _body(view: View, address_of: Address) -> list[Child]:
    first, others = page_order(view)
    return [
        _opening(view, brief=bool(first)),
        [_section(section, parts, "first") for section in first if (parts := _parts(section, address_of))],
        *_facts(view),
        [_section(section, parts) for section in others if (parts := _parts(section, address_of))],
        _section(Section("notes", "Notes", ()), [_listed(view.notes)]) if view.notes else None,
        element("footer", view.closing) if view.closing else None,
    ]


def _parts(section: Section, address_of: Address) -> list[Markup]:
    return [made for part in section.parts if (made := part_html(part, address_of=address_of)) is not None]


def _opening(view: View, *, brief: bool) -> Markup:
    answer = view.headline
    return element(
        "header",
        element("p", ", ".join(filter(None, (view.subject, view.window))), class_="eyebrow"),
        element(
            "h1",
            _unbroken(answer.before),
            element("strong", _unbroken(answer.strong), class_="long") if len(answer.strong) > WHOLE else element("strong", answer.strong),
            _unbroken(answer.rest),
            element("small", _unbroken(f" ({answer.aside})")) if answer.aside else None,
        ),
        element("p", "; ".join(view.basis), class_="how") if view.basis else None,
        element("p", _unbroken(" ".join(view.lede)), class_="lede") if view.lede else None,
        class_="brief" if brief else None,
    )


def _facts(view: View) -> list[Child]:
    """Return the key figures, and the commands that ask again and ask further."""
    return [
        element("dl", [_fact(fact) for fact in view.facts], class_="key") if view.facts else None,
        element("p", "The same report: ", element("code", view.command), class_="command") if view.command else None,
        element("p", "Next: ", element("code", view.next_command), class_="command next") if view.next_command else None,
    ]


def _unbroken(text: str) -> list[Child]:
    """Return words of which no line begins with a % whose number ended the line before."""
    return [element("span", word, class_="whole") if number % 2 else word for number, word in enumerate(_PERCENT.split(text)) if word]


def _fact(fact: Fact) -> Markup:
    value = element("dd", fact.notation.words(fact.value), element("small", fact.note) if fact.note else None)
    return element("div", element("dt", fact.name), value)


def _section(section: Section, parts: Sequence[Child], look: str | None = None) -> Markup:
    """Return a section under its heading; on the first screen how to read it stands below what is read."""
    heading = element("h2", section.title, id=section.name)
    how = element("p", section.how, class_="how") if section.how else None
    body = [parts, how] if look else [how, parts]
    return element("section", heading, body, aria_labelledby=section.name, class_=look)


def part_html(part: Part, heading: str = "h3", address_of: Address = _nowhere) -> Markup | None:
    """Return a part of a section as a page has it, its title as a `heading`; None for one that says nothing there."""
    if isinstance(part, Picture):
        linked = part.linked
        return figure(part.draw if linked is None else lambda width: linked(width, address_of))
    if isinstance(part, ItemList):
        return _list(part, heading, address_of) if part.items else None
    if part.drawn:
        return None
    if isinstance(part, Paragraph):
        text = f"{part.text}; {IN_JSON}" if part.elsewhere else part.text
        return element("pre" if part.kept else "p", text) if text else None
    return _table(part, heading, address_of) if part.rows or part.last else None


def _table(table: Table, heading: str, address_of: Address) -> Markup:
    """Return a table in a container of its own that scrolls; beside each number stands its plain value, to sort by."""
    shown = table.rows[: table.page]
    rows = [_row(table, row, before, address_of) for row, before in zip(shown, [None, *shown], strict=False)]
    named = any(column.heading for column in table.columns)  # a list of facts has no heads
    head = element("thead", *_labels(table), element("tr", _heads(table))) if named else None
    feet = element("tfoot", [_row(table, row, None, _nowhere) for row in table.last]) if table.last else None
    sorts = "sorts" if named and not table.grid and not table.heat and not draws_tree(table) else None
    whole = element("table", head, element("tbody", rows), feet, class_=sorts, aria_label=table.name)
    left_out = rows_left_out(replace(table, elsewhere=IN_JSON), len(shown))
    scrolled = element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"Table: {table.name}")
    return join(
        [
            element(heading, table.title) if table.title else None,
            _heat_map(table, scrolled) if table.heat else scrolled,
            element("p", left_out, class_="more") if left_out else None,
            element("p", table.note, class_="more") if table.note else None,
        ]
    )


def _heat_map(table: Table, scrolled: Markup) -> Markup:
    """Return the table in a fold; the script of a page draws a map of it, and leaves the fold to who wants to read it."""
    return element("div", element("details", element("summary", "The same as a table"), scrolled), class_="heat", data_name=table.name)


def _heads(table: Table) -> Iterator[Markup]:
    for number, column in enumerate(table.columns):
        look = ("words" if _names(table, number) else None) if table.grid else _look(column)
        long = "long" if len(column.heading) > LONG_HEADING else None
        yield element("th", column.heading, scope="col", class_=" ".join(filter(None, (look, long))) or None)


def _labels(table: Table) -> Iterator[Markup]:
    """Yield the labels that spread over the columns of a grid, a row each, every one over all it holds."""
    names = next((number for number, column in enumerate(table.columns) if column.over), 0)
    for level, name in enumerate(table.over):
        spans = [
            element("th" if labels else "td", labels[level] if labels else "", colspan=len([*group]), scope="colgroup" if labels else None)
            for labels, group in groupby(table.columns[names:], key=lambda column: tuple(column.over)[: level + 1])
        ]
        yield element("tr", element("th", f"{name}:", colspan=names, scope="row"), spans)


def _names(table: Table, number: int) -> bool:
    """Return whether a column of a grid names its rows: all before the first of numbers do."""
    return all(not column.notation.numeric for column in table.columns[: number + 1])


def _row(table: Table, row: Sequence[Value | Cell], before: Sequence[Value | Cell] | None, address_of: Address) -> Markup:
    again = table.grid if named_before(table, row, before) else 0
    cells = [
        element("td", "") if number < again else _cell(table, number, cell_of(value), column, address_of)
        for number, (value, column) in enumerate(zip(row, table.columns, strict=True))
    ]
    return element("tr", cells)


def _cell(table: Table, number: int, cell: Cell, column: Column, address_of: Address) -> Markup:
    value = known(cell.value) if column.notation.numeric and isinstance(cell.value, int | float) and not table.grid else None
    classes = " ".join(filter(None, (None if table.grid else _look(column), cell.look))) or None
    name, scope = ("th", "row") if (_names(table, number) if table.grid else number == 0) else ("td", None)
    aside = element("small", f" {cell.aside}", class_="more") if cell.aside else None
    shown = None if value is None else f"{value:.6g}"
    words, tip = _words(cell, column)
    link = address_of(column.names_of, cell.value) if column.names_of and isinstance(cell.value, str) else None
    said = words if link is None else element("a", words, href=link)
    return element(name, Markup(INDENT * cell.depth), said, aside, scope=scope, data_v=shown, class_=classes, title=tip or None)


def _words(cell: Cell, column: Column) -> tuple[str, str]:
    """Return what a cell says, a long name cut, and what it says when it is pointed at."""
    words = words_of(cell, column)
    if not column.room or cell.words or not isinstance(cell.value, str):
        return words, cell.tip
    cut, whole = column.notation.cut(words, NAME), harmless(cell.value, LONGEST_WORDS)
    return cut, cell.tip or (whole if cut != whole else "")


def _look(column: Column) -> str | None:
    return None if column.notation.numeric else "words"


def _list(part: ItemList, heading: str, address_of: Address) -> Markup:
    title = element(heading, part.title) if part.title else None
    items = [element("li", _item(item, address_of, part.folded)) for item in part.items]
    return join([title, element("ol" if part.ranked else "ul", items, class_="notes")])


def _item(item: Item, address_of: Address, folded: bool) -> list[Child]:
    if _SECTION.fullmatch(item.source):
        return [element("a", item.text, href=item.source)]
    link = address(item.source)
    source = element("a", item.source, href=link) if link else item.source
    remarks = element("ul", [element("li", remark) for remark in item.remarks]) if item.remarks else None
    lead = [element("strong", f"{item.lead}:"), " "] if item.lead else []
    leads = address_of(*item.leads_to) if item.leads_to else None
    text = item.text if leads is None else element("a", item.text, href=leads)
    said = [*lead, text, *([": ", source] if item.source else [])]
    return [element("details", element("summary", said), remarks)] if folded and remarks else [*said, remarks]


def _listed(notes: Sequence[str]) -> Markup:
    return element("ul", [element("li", harmless(note, 2000)) for note in notes], class_="notes")
