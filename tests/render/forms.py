"""Whether the forms of one report agree: every number that a text shows is the rounding of a number of its data."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import numpy as np

from ullage.views.csv import head
from ullage.views.view import Cell, Table, cell_of, words_of

# A number, and the sign or unit that says by what it was scaled.
_NUMBER = re.compile(
    r"(?<![\w.#/:@-])(?P<sign>[−+-]?)(?P<digits>\d[\d,]*(?:\.\d+)?)(?:e(?P<power>[+-]?\d+))?"
    r"(?P<unit>\s?(?:%|points|(?:ns|µs|ms|s|h)\b|[kMGTPE](?:FLOP|B)))?(?![\w.]*\w)"
)
_TIMES = {"ns": 1.0, "µs": 1e3, "ms": 1e6, "s": 1e9, "h": 3.6e12}  # ns of one
_PREFIXES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


@dataclass(frozen=True)
class Shown:
    """A number as a form shows it: its text, its value, by what half a unit of its last digit it may be off, and its unit."""

    text: str
    value: float
    half: float
    unit: str


def shown(text: str) -> Iterator[Shown]:
    """Yield the numbers of a text. Of bounds, "2.5–7 %", the lower has the unit of the upper."""
    text = re.sub(r"(\d)–(\d[\d.]*)(\s?%)", r"\1\3 \2\3", text)
    for found in _NUMBER.finditer(text):
        digits, power = found["digits"].rstrip(","), int(found["power"] or 0)
        value = float(digits.replace(",", "")) * 10.0**power
        decimals = len(digits.partition(".")[2])
        negative = found["sign"] in ("−", "-")
        yield Shown(
            found[0].strip().rstrip(","), -value if negative else value, 0.5 * 10.0 ** (power - decimals), (found["unit"] or "").strip()
        )


def plain(page: str) -> str:
    """Return what a page says to a reader: no markup, no styles, and pictures' titles but not what they draw."""
    page = re.sub(r"(?s)<(style|script)\b.*?</\1>|<svg\b.*?</svg>", " ", page)
    cells = re.sub(r"(?s)<[^>]*>", "\n", page)
    return html.unescape(cells)


def told(data: Any) -> tuple[np.ndarray, str]:
    """Return all numbers of some data, and all of its words one after another."""
    numbers: list[float] = []
    words: list[str] = []

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            for key, value in item.items():
                words.append(str(key))
                walk(value)
        elif isinstance(item, list | tuple):
            numbers.append(float(len(item)))
            for value in item:
                walk(value)
        elif isinstance(item, bool) or item is None:
            return
        elif isinstance(item, int | float):
            numbers.append(float(item))
        else:
            words.append(str(item))

    walk(data)
    return np.unique(np.array([n for n in numbers if math.isfinite(n)])), "\n".join(words)


def untold(text: str, data: Any, known: Iterable[str] = (), scales: Sequence[float] = ()) -> list[str]:
    """Return the numbers of a text that are no rounding of a number of the data, nor part of its words, nor `known` otherwise.

    `scales` are those of columns whose head alone has the unit: 100 for percentage points, 1e-12 for TFLOP/s.
    """
    values, words = told(data)
    spoken = {one.text for one in shown(words)} | set(known)
    return [one.text for one in shown(text) if one.text not in spoken and not _is_one_of(one, values, scales)]


def _is_one_of(one: Shown, values: np.ndarray, more: Sequence[float]) -> bool:
    scales = [1.0, *more]
    if one.unit in ("%", "points"):
        scales = [100.0] if one.unit == "%" else [1.0, 100.0]
    elif one.unit in _TIMES:
        scales = [1 / _TIMES[one.unit], 1e9 / _TIMES[one.unit]]
    elif one.unit:
        scales = [1 / _PREFIXES[one.unit[0]], 1.0 if one.unit.startswith("TFLOP") else 0.0]
    slack = one.half * (1 + 1e-9) + abs(one.value) * 1e-12
    return any(
        (np.abs(values * scale - one.value) <= slack).any() or (np.abs(-values * scale - one.value) <= slack).any() for scale in scales
    )


@dataclass
class PageCell:
    """A cell of a table on a page: the number by which it is sorted (None: it has none), and what it says."""

    number: float | None
    words: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.words).strip()


class PageTable(HTMLParser):
    """The rows of a page's table of that name, without its heads and totals."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.rows = name, list[list[PageCell]]()
        self.within, self.body, self.cell = False, False, False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        self.within |= tag == "table" and said.get("aria-label") == self.name
        self.body |= self.within and tag == "tbody"
        if self.body and tag == "tr":
            self.rows.append([])
        if self.body and tag in ("td", "th"):
            value = said.get("data-v")
            self.rows[-1].append(PageCell(None if value is None else float(value)))
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        self.within &= tag != "table"
        self.body &= tag != "tbody"
        self.cell &= tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][-1].words.append(data)


def unlike_csv(page: str, text: str, table: Table) -> list[str]:
    """Return where a table says another value on a page than in CSV, to the six digits that a page sorts by; a grid is not compared."""
    if table.grid:
        return []
    read = PageTable(table.name)
    read.feed(page)
    rows = [*csv.reader(io.StringIO(text))][1:]
    named = [number for number, column in enumerate(table.columns) if head(column)]
    found = [] if len(read.rows) == min(len(rows), table.page) else [f"{len(read.rows)} rows of {len(rows)}"]
    for place, (shown_row, plain_row) in enumerate(zip(read.rows, rows, strict=False)):
        for number, value in zip(named, plain_row, strict=True):
            if not _alike(shown_row[number], value, cell_of(table.rows[place][number]), table, number):
                found.append(f"row {place}, {head(table.columns[number])}: {shown_row[number]} is not {value!r}")
    return found


def _alike(shown_cell: PageCell, value: str, cell: Cell, table: Table, number: int) -> bool:
    column = table.columns[number]
    if isinstance(cell.value, str):
        word = value[1:] if value[:1] == "'" and value[1:2] in ("=", "+", "-", "@", "\t", "\r") else value
        cut = bool(cell.words or column.room)  # a page may say it in other words, or less of it
        return cut or words_of(Cell(word), column).strip() in shown_cell.text
    if value == "" or not column.notation.numeric:
        return shown_cell.number is None
    return shown_cell.number is not None and math.isclose(float(value), shown_cell.number, rel_tol=6e-6)
