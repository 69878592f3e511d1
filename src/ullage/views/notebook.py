"""A view as a notebook shows it: the answer, key figures, pictures, tables as short as a terminal's, notes; it styles nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.errors import harmless
from ullage.views.draw import WIDE
from ullage.views.findings import sections_of
from ullage.views.html import IN_JSON, part_html
from ullage.views.markup import Child, Markup, element
from ullage.views.palette import PALETTE, picture_rules
from ullage.views.text import NOTE
from ullage.views.view import ItemList, Part, Picture, Section, Table, View, brief, rows_left_out

# notebooks have colours of their own, and light or dark is not the screen's choice there: pictures bring their paper
_STYLE = (
    f".ullage .picture{{box-sizing:border-box;width:100%;max-width:{WIDE}px;height:auto;padding:12px;background:{PALETTE['paper'][0]}}}"
    ".ullage th,.ullage td{padding:.2em .6em;text-align:right}.ullage .words{text-align:left}"
)


def notebook(view: View) -> str:
    """Return a view as a piece of HTML that a notebook shows in its own style. Every word is escaped, and nothing is loaded or run."""
    answer = view.headline
    aside = f" ({answer.aside})" if answer.aside else None
    return element(
        "div",
        element("style", Markup(_STYLE + picture_rules(lambda name: PALETTE[name][0]))),
        element("p", answer.before or None, element("b", answer.strong), answer.rest or None, aside),
        element("p", "; ".join(view.basis)) if view.basis else None,
        element("p", " ".join(view.lede)) if view.lede else None,
        [element("p", part) for part in _facts(view)],
        [part for section in sections_of(view) if not section.detail for part in _section(section)],
        element("ul", [element("li", harmless(note, NOTE)) for note in view.notes]) if view.notes else None,
        class_="ullage",
    )


def notebook_table(table: Table) -> str:
    """Return a table alone as a piece of HTML for a notebook, as short as a terminal's."""
    return element("div", element("style", Markup(_STYLE)), _brief_table(table), class_="ullage")


def _facts(view: View) -> Iterator[Child]:
    if view.facts:
        yield "; ".join(f"{fact.name} {fact.notation.words(fact.value)}" for fact in view.facts)


def _section(section: Section) -> Iterator[Child]:
    made = [part for part in map(_part, section.parts) if part is not None]
    if made:
        yield element("h3", section.title)
        yield from made


def _part(part: Part) -> Markup | None:
    if isinstance(part, Picture):
        return part.draw(WIDE)
    if isinstance(part, ItemList | Table) and part.detail:
        return None
    if isinstance(part, Table):
        return _brief_table(part)
    return part_html(part, "h4")


def _brief_table(table: Table) -> Markup | None:
    short = brief(table)
    more = rows_left_out(replace(table, elsewhere=IN_JSON), len(short.rows))
    return part_html(replace(short, note="; ".join(filter(None, (table.note, more)))), "h4")
