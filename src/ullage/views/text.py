"""A view as text for a terminal: the answer first, then tables, then notes. Colour is the caller's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from ullage.errors import harmless
from ullage.views.table import aligned
from ullage.views.view import Paragraph, Picture, Section, Table, View, brief_rows, words_of

NOTE = 1000  # characters of a note
LONGEST_NAME = 48  # characters of what names a row


def text(view: View, *, whole: bool = False, width: int | None = None) -> str:
    """Return a view as plain text, `width` characters wide where it can be; tables briefly, or `whole`."""
    parts = [
        _opening(view, width or min(shutil.get_terminal_size((110, 24)).columns, 140)),
        *(text for section in view.sections if not section.detail for text in _parts(section, whole)),
        "\n".join(f"note: {harmless(note, NOTE)}" for note in view.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(view: View, width: int) -> str:
    """Return the headline, with the window at the end of its line where there is room, and the lede below."""
    answer, window = str(view.headline), view.window
    gap = width - len(answer) - len(window)
    first = answer if not window else answer + " " * gap + window if gap >= 2 else f"{answer}\n{window}"
    return "\n\n".join([first, *([" ".join(view.lede)] if view.lede else [])])


def _parts(section: Section, whole: bool) -> Iterator[str]:
    for part in section.parts:
        if isinstance(part, Table):
            yield table_text(part, whole=whole)
        elif isinstance(part, Paragraph) and part.text:
            yield part.text
        else:
            assert isinstance(part, Picture | Paragraph)


def table_text(table: Table, *, whole: bool = False) -> str:
    """Return a table for a terminal: briefly, or `whole`; "" for one without rows."""
    if not table.rows:
        return ""
    shown = [*(table.rows[number] for number in brief_rows(table, whole=whole))]
    cells = [[words_of(value, column) for value, column in zip(row, table.columns, strict=True)] for row in shown]
    cells = [[harmless(name, LONGEST_NAME), *others] for name, *others in cells]
    left = [not column.notation.numeric for column in table.columns]
    lines = [aligned([[column.heading for column in table.columns], *cells], left)]
    if (more := len(table.rows) - len(shown)) > 0:
        lines.append(f"… {more:,} more{f'; {table.elsewhere}' if table.elsewhere else ''}")
    return "\n".join([*lines, *([table.note] if table.note else [])])
