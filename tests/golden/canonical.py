"""Answers as lines that can be compared: JSON as paths and values, a page as its words and tables, text as it stands."""

from __future__ import annotations

import difflib
import json
import math
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

TOLERANCE = 1e-12  # relative, of numbers of JSON
_FIRST, _LAST = 2, 1  # of a long list these are kept, and the sums of all
_ROWS = 12  # of a longer table the first rows are kept, and a checksum of the others


# --- JSON: long lists folded ---


def folded(value: Any) -> Any:
    """Return a value in which a long list is its length, its first and last items, and the sum of each number of its items."""
    if isinstance(value, dict):
        return {key: folded(item) for key, item in value.items()}
    if not isinstance(value, list) or len(value) <= _FIRST + _LAST + 1:
        return [folded(item) for item in value] if isinstance(value, list) else value
    kept = {"length": len(value), "first": folded(value[:_FIRST]), "last": folded(value[-_LAST:])}
    return kept | {"sums": sums_of_numbers(value)}


def sums_of_numbers(items: list[Any]) -> dict[str, float]:
    """Return the sum of each number of some records by its path: the items of a list within count together."""
    parts: dict[str, list[float]] = {}

    def walk(item: Any, path: str) -> None:
        if isinstance(item, dict):
            for key, value in item.items():
                walk(value, f"{path}.{key}" if path else key)
        elif isinstance(item, list):
            for value in item:
                walk(value, f"{path}[]")
        elif isinstance(item, int | float) and not isinstance(item, bool):
            parts.setdefault(path, []).append(float(item))

    for item in items:
        walk(item, "")
    return {path: math.fsum(values) for path, values in sorted(parts.items())}


def lines_of_json(value: Any) -> list[str]:
    """Return the lines under which a value is kept: folded, a line a member, lists of plain values in one."""
    text = json.dumps(folded(value), indent=1, ensure_ascii=False)
    plain = re.sub(r"\[\s*([^\[\]{}]*?)\s*\]", lambda found: "[" + re.sub(r",\s*\n\s*", ", ", found[1]) + "]", text)
    return plain.split("\n")


def differences_of_json(before: list[str], after: list[str]) -> list[str]:
    """Return what differs between two kept values, numbers by more than `TOLERANCE`."""
    known, now = [dict(_values(json.loads("\n".join(lines) or "null"), "")) for lines in (before, after)]
    gone = [f"- {path} = {value!r}" for path, value in known.items() if path not in now]
    new = [f"+ {path} = {value!r}" for path, value in now.items() if path not in known]
    both = [path for path in known if path in now and not _same(known[path], now[path])]
    return gone + new + [f"! {path}: {known[path]!r} -> {now[path]!r}" for path in both]


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, item in inner:
        yield from _values(item, f"{path}.{key}" if path else str(key))
    if not inner:
        yield path, value


def _same(before: Any, after: Any) -> bool:
    numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (before, after)]
    if all(numbers):
        return math.isclose(before, after, rel_tol=TOLERANCE, abs_tol=0.0)
    return type(before) is type(after) and bool(before == after)


# --- a page: what it says ---

_BLOCKS = frozenset(
    "p div section article header footer main nav h1 h2 h3 h4 li dt dd tr table figure figcaption summary details".split()  # noqa: SIM905
)
_SKIPPED = frozenset(("style", "script"))


class _Words(HTMLParser):
    """Collects the words of a page: a line for each block, a row's cells between bars, a picture's words in one line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []
        self._skipped = self._picture = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipped += 1
        elif tag == "svg":
            self._end_line()
            self._picture += 1
            self._open.append("picture:")
        elif tag in ("td", "th"):
            self._open.append(" | ")
        elif tag in _BLOCKS and not self._picture:
            self._end_line()
        elif tag in ("text", "title", "tspan"):
            self._open.append(" · ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skipped -= 1
        elif tag == "svg":
            self._picture -= 1
            self._end_line()
        elif tag in _BLOCKS and not self._picture:
            self._end_line()

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._open.append(data)

    def _end_line(self) -> None:
        line = " ".join("".join(self._open).split())
        if line:
            self.lines.append(line)
        self._open = []

    def close(self) -> None:
        super().close()
        self._end_line()


def lines_of_page(page: str) -> list[str]:
    """Return the words of an HTML page or SVG picture, tables as rows of cells; what is drawn counts only by its words."""
    words = _Words()
    words.feed(page)
    words.close()
    return [line for table, lines in groupby(words.lines, key=_is_row) for line in (_folded(list(lines)) if table else lines)]


def _is_row(line: str) -> bool:
    return line.startswith("| ")


def _folded(rows: list[str]) -> list[str]:
    """Return the first rows of a long table, and of the others how many there are and a checksum."""
    if len(rows) <= _ROWS + 1:
        return rows
    others = "\n".join(rows[_ROWS:])
    return [*rows[:_ROWS], f"| … {len(rows) - _ROWS} more rows, checksum {zlib.crc32(others.encode()):08x}"]


# --- text ---


def lines_of_text(text: str) -> list[str]:
    """Return the lines of a text without trailing space, runs of spaces as they stand."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def differences_of_words(before: list[str], after: list[str]) -> list[str]:
    """Return which lines are gone and which are new, in order; how wide columns are does not count."""
    same = [[" ".join(line.split()) for line in lines] for lines in (before, after)]
    changed = difflib.unified_diff(*same, n=0, lineterm="")
    return [line for line in changed if line[:1] in "+-" and line[:3] not in ("+++", "---")]
