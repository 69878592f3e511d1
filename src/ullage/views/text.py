"""A view as text for a terminal: the answer first, then tables, then notes. Colour is the caller's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from ullage.errors import harmless
from ullage.views.table import GridColumn, aligned, grid
from ullage.views.view import (
    Cell,
    Column,
    ItemList,
    Paragraph,
    Picture,
    Section,
    Table,
    Value,
    View,
    brief_rows,
    cell_of,
    heading_of,
    named_before,
    words_of,
)  # fmt: skip

NOTE = 1000  # characters of a note
LONGEST_NAME = 48  # characters of what names a row
NARROWEST, WIDEST = 80, 140  # columns: a narrower terminal breaks lines itself
WIDTH = 110  # columns where nobody says how wide the terminal is


def text(view: View, *, whole: bool = False, width: int | None = None) -> str:
    """Return a view as plain text, `width` characters wide where it can be; tables briefly, or `whole`."""
    width = width or min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)
    parts = [
        _opening(view, width),
        *(text for section in view.sections if not section.detail for text in _section(section, whole, width)),
        "\n".join(f"note: {harmless(note, NOTE)}" for note in view.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(view: View, width: int) -> str:
    """Return the headline, with the window at the end of its line where there is room, what it rests on, and the lede below."""
    answer, window = str(view.headline), view.window
    gap = width - len(answer) - len(window)
    first = answer if not window else answer + " " * gap + window if gap >= 2 else f"{answer}\n{window}"
    return "\n\n".join(["\n".join([first, *view.basis]), *([" ".join(view.lede)] if view.lede else [])])


def _section(section: Section, whole: bool, width: int) -> Iterator[str]:
    """Yield a section's parts, below its heading where a terminal shows that."""
    first, *others = [part for part in _parts(section, whole, width) if part] or [""]
    yield f"{harmless(section.title, NOTE)}\n{first}" if section.headed and first else first
    yield from others


def _parts(section: Section, whole: bool, width: int) -> Iterator[str]:
    for part in section.parts:
        if isinstance(part, Table):
            yield table_text(part, whole=whole, width=width)
        elif isinstance(part, Paragraph):
            yield part.text
        elif isinstance(part, ItemList):
            yield "" if part.detail else list_text(part)
        else:
            assert isinstance(part, Picture)


def list_text(part: ItemList) -> str:
    """Return a list for a terminal, what belongs to an item below it; "" for one without items."""
    lines = [f"{part.title}:"] if part.title and part.items else []
    for item in part.items:
        lines.append(f"  {item.text}")
        lines += [f"    {line}" for line in (*item.remarks, item.source) if line]
    return "\n".join(lines)


def table_text(table: Table, *, whole: bool = False, width: int = WIDTH) -> str:
    """Return a table for a terminal: briefly, or `whole`; "" for one without rows."""
    if not table.rows:
        return ""
    shown = [table.rows[number] for number in brief_rows(table, whole=whole)]
    cells = [*zip(*(_cells(table, row, before) for row, before in zip(shown, [None, *shown], strict=False)), strict=True)]
    lines = [_grid(table, cells, width) if table.grid else _aligned(table, cells)]
    if (more := len(table.rows) - len(shown)) > 0:
        lines.append(f"… {more:,} more{f'; {table.elsewhere}' if table.elsewhere else ''}")
    return "\n".join([*lines, *([table.note] if table.note else [])])


def _cells(table: Table, row: Sequence[Value | Cell], before: Sequence[Value | Cell] | None) -> list[tuple[str, str]]:
    """Return what a row says in each column, with what stands beside it."""
    again = table.grid if named_before(table, row, before) else 0
    shown = []
    for number, (value, column) in enumerate(zip(row, table.columns, strict=True)):
        words, room = "" if number < again else words_of(value, column), column.room or (0 if number else LONGEST_NAME)
        shown.append((harmless(words, room) if room else words, cell_of(value).aside))
    return shown


def _beside(cells: Sequence[tuple[str, str]]) -> list[str]:
    """Return the cells of a column, what stands beside them aligned, too."""
    words, aside = (max(len(cell[part]) for cell in cells) for part in (0, 1))
    return [f"{cell.rjust(words)} {beside.rjust(aside)}" if aside else cell for cell, beside in cells]


def _aligned(table: Table, cells: Sequence[Sequence[tuple[str, str]]]) -> str:
    columns = [[heading_of(column), *_beside(here)] for column, here in zip(table.columns, cells, strict=True)]
    return aligned([*zip(*columns, strict=True)], [_left(column) for column in table.columns])


def _grid(table: Table, cells: Sequence[Sequence[tuple[str, str]]], width: int) -> str:
    columns = [
        GridColumn(column.heading, tuple(column.over), _beside(here), _left(column))
        for column, here in zip(table.columns, cells, strict=True)
    ]
    names = next((number for number, column in enumerate(columns) if not column.left), len(columns))
    return grid(columns[:names], columns[names:], table.over, width)


def _left(column: Column) -> bool:
    return not column.notation.numeric
