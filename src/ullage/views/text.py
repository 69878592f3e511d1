"""A view as text for a terminal: the answer first, then tables, then notes. Colour is the caller's."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import takewhile

from ullage.errors import harmless
from ullage.views.findings import sections_of
from ullage.views.names import lowered
from ullage.views.table import GAP, GridColumn, Paint, aligned, grid, plain, ties
from ullage.views.view import (
    Cell,
    Column,
    ItemList,
    Paragraph,
    Part,
    Section,
    Table,
    Value,
    View,
    brief,
    cell_of,
    heading_of,
    named_before,
    rows_left_out,
    words_of,
)  # fmt: skip

NOTE = 1000  # characters of a note
LONGEST_NAME = 48  # characters of what names a row
NARROWEST, WIDEST = 80, 140  # columns: a narrower terminal breaks lines itself
WIDTH = 110  # columns where nobody says how wide the terminal is
LEAST_ROOM = 12  # characters that are left of a word, however narrow the terminal is


def text(view: View, *, whole: bool = False, width: int | None = None, fill: bool = False, paint: Paint = plain) -> str:
    """Return a view as text, `width` characters wide where it can be; tables briefly, or `whole`; in colour by a painter.

    What is longer than the width goes on below where it shall `fill` lines; a terminal breaks it elsewhere.
    """
    width = width or min(max(shutil.get_terminal_size((WIDTH, 24)).columns, NARROWEST), WIDEST)
    parts = [
        _opening(view, width, fill),
        *(text for section in sections_of(view) if not section.detail for text in _section(section, whole, width, paint)),
        "\n".join(_line(f"note: {harmless(note, NOTE)}", width, fill, "  ") for note in view.notes),
        _line(f"next: {view.next_command}", width, fill, "  ") if view.next_command else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _line(words: str, width: int, fill: bool, indent: str = "") -> str:
    return textwrap.fill(words, width, subsequent_indent=indent) if fill else words


def _opening(view: View, width: int, fill: bool) -> str:
    """Return the headline, with the window at the end of its line where there is room, what it rests on, and the lede below."""
    answer, window = _line(harmless(str(view.headline), NOTE), width, fill), view.window
    gap = width - len(answer) - len(window)
    first = answer if not window else answer + " " * gap + window if gap >= 2 else f"{answer}\n{window}"
    basis = (_line(harmless(line, NOTE), width, fill) for line in view.basis)
    return "\n\n".join(["\n".join([first, *basis]), *([" ".join(view.lede)] if view.lede else [])])


def section_text(section: Section, *, width: int = WIDTH) -> str:
    """Return a section alone, as it stands in a text."""
    return "\n\n".join(_section(section, False, width, plain))


def _section(section: Section, whole: bool, width: int, paint: Paint) -> Iterator[str]:
    """Yield a section's parts; below a heading, what is said first stands without a space between, in lines that fit."""
    shown = [(part, words) for part in section.parts if (words := _part(part, whole, width, paint, section.headed))]
    if section.headed and shown:
        above = 1 + sum(1 for _ in takewhile(lambda one: isinstance(one[0], Paragraph), shown))
        title = textwrap.fill(harmless(section.title, NOTE), width, subsequent_indent="  ")
        yield "\n".join([title, *(words for _, words in shown[:above])])
        shown = shown[above:]
    yield from (words for _, words in shown)


def _part(part: Part, whole: bool, width: int, paint: Paint, fill: bool) -> str:
    if isinstance(part, Table):
        return "" if part.detail else table_text(part, whole=whole, width=width, paint=paint)
    if isinstance(part, Paragraph):
        return textwrap.fill(part.words, width) if fill and not part.kept else part.words
    return list_text(part) if isinstance(part, ItemList) and not part.detail else ""


def list_text(part: ItemList) -> str:
    """Return a list for a terminal, what belongs to an item below it; "" for one without items."""
    lines = [f"{part.title}:"] if part.title and part.items else []
    margin = "  " if part.title else ""
    for item in part.items:
        lines.append(f"{margin}{harmless(item.words, NOTE)}")
        lines += [f"{margin}  {harmless(line, NOTE)}" for line in (*item.remarks, item.source) if line]
    return "\n".join(lines)


def table_text(table: Table, *, whole: bool = False, width: int = WIDTH, paint: Paint = plain) -> str:
    """Return a table for a terminal: briefly, or `whole`; "" for one without rows."""
    short = brief(table, whole=whole)
    rows = [*short.rows, *short.last]
    if not rows:
        return ""
    cells = [*zip(*(_cells(short, row, before) for row, before in zip(rows, [None, *rows], strict=False)), strict=True)]
    values = [[cell_of(value) for value in column] for column in zip(*rows, strict=True)]
    drawn = _grid(short, cells, values, width, paint) if table.grid else _aligned(short, cells, values, width, paint)
    return "\n".join(filter(None, [drawn, rows_left_out(table, len(short.rows)), table.note]))


def _cells(table: Table, row: Sequence[Value | Cell], before: Sequence[Value | Cell] | None) -> list[str]:
    """Return what a row says in each column, in a terminal's words."""
    again = table.grid if named_before(table, row, before) else 0
    shown = zip(row[again:], table.columns[again:], strict=True)
    return [*[""] * again, *(cell_of(value).short or words_of(value, column) for value, column in shown)]


def _drawn(column: Column, words: Sequence[str], cells: Sequence[Cell], room: int) -> list[str]:
    """Return the cells of a column: words cut to a room, nodes of a tree tied, what stands beside them aligned, too."""
    cut = words if column.notation.numeric or not room else [column.notation.cut(word, room) for word in words]
    tied = [tie + word for tie, word in zip(ties([cell.depth for cell in cells]), cut, strict=True)]
    wide, aside = max(map(len, tied)), max(len(cell.aside) for cell in cells)
    return [f"{word.rjust(wide)} {cell.aside.rjust(aside)}" for word, cell in zip(tied, cells, strict=True)] if aside else tied


def _aligned(table: Table, words: Sequence[Sequence[str]], cells: Sequence[Sequence[Cell]], width: int, paint: Paint) -> str:
    """Return the lines of a table; words are cut while it is wider than the terminal."""
    heads = [heading_of(column) for column in table.columns]
    if table.title and _left(table.columns[0]):
        heads[0] = lowered(table.title)
    rooms = [column.room or (0 if number else LONGEST_NAME) for number, column in enumerate(table.columns)]

    def column(number: int) -> list[str]:
        return [heads[number], *_drawn(table.columns[number], words[number], cells[number], rooms[number])]

    columns = [column(number) for number in range(len(heads))]
    widths = [max(map(len, cells)) for cells in columns]
    least = {number: max(LEAST_ROOM, len(heads[number])) for number, one in enumerate(table.columns) if one.room and _left(one)}
    while (excess := sum(widths) + len(GAP) * (len(widths) - 1) - width) > 0:
        longest = sorted((widths[number], number) for number in least if widths[number] > least[number])
        if not longest:
            break
        wide, number = longest[-1]
        next_longest = longest[-2][0] if len(longest) > 1 else 0
        rooms[number] = max(least[number], wide - excess, min(next_longest, wide - 1))
        columns[number], widths[number] = column(number), rooms[number]
    shown: Lines = [[*line] for line in zip(*columns, strict=True)]
    levels: Levels = [[None] * len(heads), *([cell.level for cell in row] for row in zip(*cells, strict=True))]
    if table.columns[-1].wraps:
        shown, levels = _wrapped(shown, levels, max(LEAST_ROOM, width - sum(widths[:-1]) - len(GAP) * (len(widths) - 1)))
    lines = aligned(shown, [_left(column) for column in table.columns], levels, paint)
    return lines if any(heads) else lines.partition("\n")[2]


Lines = list[list[str]]
Levels = list[list[float | None]]


def _wrapped(lines: Lines, levels: Levels, room: int) -> tuple[Lines, Levels]:
    """Return the lines of a table whose last cells go on below where they are longer than their room."""
    cut: Lines = []
    of_lines: Levels = []
    for (*before, last), level in zip(lines, levels, strict=True):
        first, *others = textwrap.wrap(last, room, break_long_words=False, break_on_hyphens=False) or [""]
        cut += [[*before, first], *([*[""] * len(before), other] for other in others)]
        of_lines.append(level)
        of_lines += [[None for _ in level] for _ in others]
    return cut, of_lines


def _grid(table: Table, words: Sequence[Sequence[str]], cells: Sequence[Sequence[Cell]], width: int, paint: Paint) -> str:
    columns = [
        GridColumn(
            column.heading, tuple(column.over), _drawn(column, said, here, column.room), _left(column), [cell.level for cell in here]
        )
        for column, said, here in zip(table.columns, words, cells, strict=True)
    ]
    names = next((number for number, column in enumerate(columns) if not column.left), len(columns))
    return grid(columns[:names], columns[names:], table.over, width, paint)


def _left(column: Column) -> bool:
    return not column.notation.numeric
