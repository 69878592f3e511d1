"""A microbenchmark's table as aligned text: heads that stand over several columns, numbers with a share beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ullage.benches.bench import Quantity
from ullage.benches.result import Stamp
from ullage.render.bench_words import Unit, conditions, measured, published, short, units, word
from ullage.reports.bench import Line, Place, Table

_GAP = 2
UNDER = "SM clock (lowest), temperature, held back by"


@dataclass(frozen=True)
class _Row:
    """A line of text: what it is about, a number with its share for each place, and under what they were measured where that is shown."""

    names: tuple[str, ...]
    cells: tuple[tuple[str, str], ...]
    under: str = ""


@dataclass(frozen=True)
class _Column:
    """A place with its head and the widths of its numbers and shares."""

    place: Place
    head: str
    number: int
    share: int

    @property
    def width(self) -> int:
        return self.number + (self.share + 1 if self.share else 0)


def grid(table: Table, width: int) -> list[str]:
    """Return the lines of a table's text; where it is wider than `width`, its columns follow in further blocks below.

    Measured numbers come first, below them those published for the nearest GPU (or for all), each line with whose it is. Where the layout
    asks for it, a line ends with what its numbers were measured under, or, where that is too wide, these stand below.
    """
    if not table.places:
        return []
    scales = units(table)
    rows = [row for line in table.lines for row in _rows(table, line, scales)]
    names = [*table.member.layout.rows, "GPU"] if any(row.names[-1] for row in rows) else [*table.member.layout.rows]
    lefts = [max(len(name), *(len(row.names[n]) for row in rows)) for n, name in enumerate(names)]
    columns = list(_columns(table, rows, scales))
    room = width - sum(lefts) - _GAP * len(lefts)
    blocks = list(_blocks(columns, room))
    if any(row.under for row in rows):
        blocks = _with_conditions(blocks, room - max(len(UNDER), *(len(row.under) for row in rows)))
    lines: list[str] = []
    for block in blocks:
        lines += [] if not lines else [""]
        lines += _heads(table, block, names, lefts)
        lines += [_line(row.names[: len(lefts)], lefts, _cells(row, block, columns)) for row in rows]
    return [line.rstrip() for line in lines]


def _cells(row: _Row, block: _Block, columns: Sequence[_Column]) -> list[str]:
    numbers = [_number(row.cells[n], columns[n]) for n in block.places]
    return [*numbers, row.under] if block.conditions else numbers


def _rows(table: Table, line: Line, scales: Mapping[Quantity, Unit]) -> Iterator[_Row]:
    """Yield what was measured and what was published; where nothing is published, nobody need be told whose the numbers are."""
    names = tuple(word(label, name) for label, name in zip(line.labels, table.member.layout.rows, strict=True))
    gpus = [table.nearest] if table.nearest else list(table.published)
    if table.result is not None and table.measured and tried(line):
        gpu = f"{short(table.result.gpu)}, measured" if table.published else ""
        shown = tuple(measured(line.cells.get(p), scales[p[1]]) for p in table.places)
        yield _Row((*names, gpu), shown, conditions(stamps(line)) if table.member.layout.conditions else "")
        names = tuple("" for _ in names)
    for gpu in gpus:
        cells = tuple((published(line.cells.get(p), gpu, scales[p[1]]), "") for p in table.places)
        if any(number for number, _ in cells):
            yield _Row((*names, f"{short(gpu)}, paper" if table.measured else short(gpu)), cells)
            names = tuple("" for _ in names)


def stamps(line: Line) -> list[Stamp | None]:
    """Return the stamps of a line's numbers."""
    return [cell.stamp for cell in line.cells.values() if cell.value is not None]


def tried(line: Line) -> bool:
    """Whether any number of a line was measured, or at least tried."""
    return any(cell.value is not None or cell.problem for cell in line.cells.values())


def _columns(table: Table, rows: Sequence[_Row], scales: Mapping[Quantity, Unit]) -> Iterator[_Column]:
    """Yield the columns, wide enough for their numbers, their units, and the labels that stand over them."""
    names = table.member.layout.across
    for column, group in groupby(enumerate(table.places), key=lambda found: found[1][0]):
        here = [_column(place, n, rows, scales) for n, place in group]
        label = max((len(word(value, name)) for value, name in zip(column, names, strict=True)), default=0)
        lacking = label - sum(one.width + _GAP for one in here) + _GAP
        yield replace(here[0], number=here[0].number + max(lacking, 0))
        yield from here[1:]


def _column(place: Place, at: int, rows: Sequence[_Row], scales: Mapping[Quantity, Unit]) -> _Column:
    head = scales[place[1]].name
    share = max(len(row.cells[at][1]) for row in rows)
    number = max(len(row.cells[at][0]) for row in rows)
    return _Column(place, head, max(number, len(head) - (share + 1 if share else 0)), share)


def _number(cell: tuple[str, str], column: _Column) -> str:
    return cell[0].rjust(column.number) + (f" {cell[1].rjust(column.share)}" if column.share else "")


@dataclass(frozen=True)
class _Block:
    """Some columns that fit beside the names: which of all they are, and they; `conditions`: then what the numbers were measured under."""

    places: range
    columns: tuple[_Column, ...]
    conditions: bool = False


def _blocks(columns: Sequence[_Column], room: int) -> Iterator[_Block]:
    """Yield the columns in as few blocks of about as many columns as fit; what belongs to one label stays together."""
    groups = [list(group) for _, group in groupby(range(len(columns)), key=lambda n: columns[n].place[0])]
    for count in range(1, len(groups) + 1):
        each = -(-len(groups) // count)
        blocks = [[n for group in groups[at : at + each] for n in group] for at in range(0, len(groups), each)]
        if all(sum(columns[n].width + _GAP for n in block) <= room + _GAP for block in blocks):
            break
    yield from (_Block(range(block[0], block[-1] + 1), tuple(columns[n] for n in block)) for block in blocks)


def _with_conditions(blocks: Sequence[_Block], room: int) -> list[_Block]:
    """Return the blocks with the conditions in the last, where it has that much room left, else in one of their own."""
    *others, last = blocks
    if sum(column.width + _GAP for column in last.columns) <= room:
        return [*others, replace(last, conditions=True)]
    return [*blocks, _Block(range(0), (), conditions=True)]


def _heads(table: Table, block: _Block, names: Sequence[str], lefts: Sequence[int]) -> Iterator[str]:
    """Yield the labels that spread over columns, each over all it holds, and then the units."""
    layout = table.member.layout
    left = sum(lefts) + _GAP * (len(lefts) - 1)
    for level, name in enumerate(layout.across if block.columns else ()):
        spans = []
        for _, group in groupby(block.columns, key=lambda column: column.place[0][: level + 1]):
            here = list(group)
            label, wide = word(here[0].place[0][level], name), sum(column.width + _GAP for column in here) - _GAP
            spans.append(label.rjust(wide) if len(here) == 1 else label.center(wide))
        yield (" " * _GAP).join([f"{name}:".ljust(left), *spans])
    heads = [column.head.rjust(column.width) for column in block.columns]
    yield _line(names, lefts, [*heads, UNDER] if block.conditions else heads)


def _line(names: Sequence[str], lefts: Sequence[int], cells: Sequence[str]) -> str:
    return (" " * _GAP).join([*(name.ljust(wide) for name, wide in zip(names, lefts, strict=True)), *cells])
