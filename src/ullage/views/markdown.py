"""A view as Markdown, for an issue or a pull request: the answer, the key figures, tables, notes; pictures are left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ullage.errors import harmless
from ullage.views.markup import address
from ullage.views.text import NOTE
from ullage.views.view import Item, ItemList, Paragraph, Section, Table, View, all_words_of, brief_rows, heading_of

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
        *(part for section in view.sections if not section.detail for part in _section(section)),
        "\n".join(f"- {plain(harmless(note, NOTE))}" for note in view.notes),
        f"`{view.command}`" if view.command and "`" not in view.command else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _note(note: str) -> str:
    return f" ({plain(note)})" if note else ""


def _section(section: Section) -> Iterator[str]:
    parts = []
    for part in section.parts:
        if isinstance(part, Table) and part.rows:
            parts.append(table_markdown(part))
        elif isinstance(part, Paragraph) and part.text:
            parts.append("\n".join(f"    {line}" for line in part.text.split("\n")) if part.kept else plain(part.text))
        elif isinstance(part, ItemList) and part.items and not part.detail:
            parts.append("\n".join([*([f"{plain(part.title)}:", ""] if part.title else []), *map(_item, part.items)]))
    if parts:
        yield f"### {plain(section.title)}"
        yield from parts


def _item(item: Item) -> str:
    link = f" ([source]({address(item.source)}))" if address(item.source) else _note(item.source)
    return "\n".join([f"- {plain(item.text)}{link}", *(f"  - {plain(remark)}" for remark in item.remarks)])


def table_markdown(table: Table) -> str:
    """Return a table with the rows that a terminal shows, numbers to the right."""
    chosen = brief_rows(table)
    lines = [[plain(heading_of(column)) or " " for column in table.columns]]
    lines += [[plain(all_words_of(value, column)) for value, column in zip(table.rows[n], table.columns, strict=True)] for n in chosen]
    rule = ["---:" if column.notation.numeric else "---" for column in table.columns]
    rows = "\n".join(f"| {' | '.join(row)} |" for row in (lines[0], rule, *lines[1:]))
    more = len(table.rows) - len(chosen)
    return rows + (f"\n\n… {more:,} more" if more > 0 else "") + (f"\n\n{plain(table.note)}" if table.note else "")


def plain(text: str) -> str:
    r"""Return text that Markdown shows as it stands.

    >>> plain("a|b *c* <d>"), plain("- @someone")
    ('a\\|b \\*c\\* \\<d\\>', '\\- @\u200bsomeone')
    """
    escaped = _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))
    return _AT.sub(lambda found: "@\u200b" if found[0] == "@" else f"\\{found[0]}", escaped)
