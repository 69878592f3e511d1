"""A view as Markdown, for an issue or a pull request: the answer, the key figures, tables, notes; pictures are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ullage.errors import harmless
from ullage.views.findings import sections_of
from ullage.views.markup import address
from ullage.views.text import NOTE, table_text
from ullage.views.view import Item, ItemList, Paragraph, Section, Table, View, all_words_of, brief, draws_tree, heading_of, rows_left_out

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")
_AT = re.compile(r"(?<=^)([-+]|\d+[.)])(?=\s)|@(?=\w)")  # a list's item at the start, and what would name somebody


def markdown(view: View) -> str:
    """Return a view as GitHub's Markdown; of each table the rows that a terminal shows. Foreign text stays text: no link, no mention."""
    answer = view.headline
    parts = [
        f"**{plain(answer.before + answer.strong)}**{plain(answer.rest)}" + (f" ({plain(answer.aside)})" if answer.aside else ""),
        "\n".join(f"- {plain(line)}" for line in view.basis),
        plain(" ".join(view.lede)),
        "\n".join(f"- {plain(fact.name)}: **{plain(fact.notation.words(fact.value))}**{_note(fact.note)}" for fact in view.facts),
        *(part for section in sections_of(view) if not section.detail for part in _section(section)),
        "\n".join(f"- {plain(harmless(note, NOTE))}" for note in view.notes),
        f"`{view.command}`" if view.command and "`" not in view.command else "",
        f"Next: `{view.next_command}`" if view.next_command and "`" not in view.next_command else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _note(note: str) -> str:
    return f" ({plain(note)})" if note else ""


def _section(section: Section) -> Iterator[str]:
    parts = []
    for part in section.parts:
        if isinstance(part, Table) and (part.rows or part.last) and not part.detail:
            parts.append(_kept(table_text(part)) if draws_tree(part) else table_markdown(part))
        elif isinstance(part, Paragraph) and part.text:
            parts.append(_kept(part.words) if part.kept else plain(part.words))
        elif isinstance(part, ItemList) and part.items and not part.detail:
            parts.append("\n".join([*([f"{plain(part.title)}:", ""] if part.title else []), *map(_item, part.items)]))
    if parts:
        yield f"### {plain(section.title)}"
        yield from parts


def _item(item: Item) -> str:
    link = f" ([source]({address(item.source)}))" if address(item.source) else _note(item.source)
    return "\n".join([f"- {plain(item.words)}{link}", *(f"  - {plain(remark)}" for remark in item.remarks)])


def _kept(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def table_markdown(table: Table) -> str:
    """Return a table with the rows and columns that a terminal shows, numbers to the right."""
    short = brief(table)
    lines = [[plain(heading_of(column)) or " " for column in short.columns]]
    lines += [
        [plain(all_words_of(value, column)) for value, column in zip(row, short.columns, strict=True)] for row in (*short.rows, *short.last)
    ]
    rule = ["---:" if column.notation.numeric else "---" for column in short.columns]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in (lines[0], rule, *lines[1:]))
    title = f"**{plain(table.title)}**" if table.title else ""
    return "\n\n".join(filter(None, [title, rows, plain(rows_left_out(table, len(short.rows))), plain(table.note)]))


def plain(text: str) -> str:
    r"""Return text that Markdown shows as it stands.

    >>> plain("a|b *c* <d>"), plain("- @someone")
    ('a\\|b \\*c\\* \\<d\\>', '\\- @\u200bsomeone')
    """
    escaped = _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))
    return _AT.sub(lambda found: "@\u200b" if found[0] == "@" else f"\\{found[0]}", escaped)
