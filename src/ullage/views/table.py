"""A table as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

GAP = "  "
Paint = Callable[[str, float | None], str]  # a cell and the efficiency that it shows, to the cell in colour


def plain(cell: str, level: float | None) -> str:  # noqa: ARG001 - another painter looks at it
    """Return a cell without colour."""
    return cell


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return aligned columns, the first `left` of them to the left, the others to the right.

    >>> print(table(["job", "OFU"], [["a", "0.31"], ["longer", "0.4"]]))
    job      OFU
    a       0.31
    longer   0.4
    """
    return aligned([head, *rows], [number < left for number in range(len(head))])


def aligned(
    rows: Sequence[Sequence[str]], left: Sequence[bool], levels: Sequence[Sequence[float | None]] | None = None, paint: Paint = plain
) -> str:
    """Return rows of cells as lines, each column as wide as its widest cell, aligned to the `left` or to the right.

    A cell is painted by the efficiency of its place in `levels`.

    >>> print(aligned([["job", "OFU", "why"], ["a", "0.31", "idle"]], [True, False, True]))
    job   OFU  why
    a    0.31  idle
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row, of_row in zip(rows, levels or [[None] * len(widths)] * len(rows), strict=True):
        cells = (_padded(cell, wide, to_left, level, paint) for cell, wide, to_left, level in zip(row, widths, left, of_row, strict=True))
        lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines)


def _padded(cell: str, width: int, left: bool, level: float | None = None, paint: Paint = plain) -> str:
    pad, painted = " " * (width - len(cell)), paint(cell, level) if cell else ""
    return painted + pad if left else pad + painted


def ties(depths: Sequence[int]) -> list[str]:
    """Return the lines that tie each row of a tree to its parent, from the depths of its rows, parents first.

    >>> ties([0, 1, 2, 2, 1])
    ['', '├─ ', '│  ├─ ', '│  └─ ', '└─ ']
    """
    return ["".join(_tie(depths, row, level) for level in range(1, depth + 1)) for row, depth in enumerate(depths)]


def _tie(depths: Sequence[int], row: int, level: int) -> str:
    goes_on = next((d for d in depths[row + 1 :] if d <= level), 0) == level
    own = level == depths[row]
    return ("├─ " if own else "│  ") if goes_on else "└─ " if own else "   "


@dataclass(frozen=True)
class GridColumn:
    """A column of a grid: its heading and the labels over it, its cells and the efficiencies that they show, and the characters that
    they take."""

    heading: str
    over: tuple[str, ...]
    cells: Sequence[str]
    left: bool
    levels: Sequence[float | None] = ()
    width: int = 0

    def fitted(self) -> GridColumn:
        """Return the column, as wide as its widest cell or its heading."""
        return replace(self, width=max([len(self.heading), *map(len, self.cells)]))

    def shown(self, number: int, paint: Paint) -> str:
        """Return a cell as it stands in the column."""
        return _padded(self.cells[number], self.width, self.left, self.levels[number] if self.levels else None, paint)


def grid(names: Sequence[GridColumn], columns: Sequence[GridColumn], over: Sequence[str], width: int, paint: Paint = plain) -> str:
    """Return a table whose rows have `names`, with labels that spread over its columns, a row each, called `over`.

    Columns that do not fit into `width` follow below; those that share all of their labels stay together.

    >>> names, columns = [GridColumn("", (), ("a", "b"), True)], [GridColumn(f"{n}", (f"over {n}",), ("1", "2"), False) for n in range(3)]
    >>> print(grid(names, columns, ["part"], 24))
    part:  over 0  over 1
                0       1
    a           1       1
    b           2       2
    <BLANKLINE>
    part:  over 2
                2
    a           1
    b           2
    """
    names = [column.fitted() for column in names]
    columns = [column for key, group in groupby(columns, key=_group) for column in _widened(list(group), key[0])]
    label = max((len(name) + 1 for name in over), default=0) - _wide(names)
    names = [*names[:-1], replace(names[-1], width=names[-1].width + max(label, 0))]
    blocks = (
        [*_labels(block, over, _wide(names)), *_lines([*names, *block], paint)]
        for block in _blocks(columns, width - _wide(names) - len(GAP))
    )
    return "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks)


def _group(column: GridColumn) -> tuple[tuple[str, ...], bool]:
    return column.over, column.left


def _wide(columns: Sequence[GridColumn]) -> int:
    return sum(column.width + len(GAP) for column in columns) - len(GAP)


def _widened(group: Sequence[GridColumn], over: tuple[str, ...]) -> Iterator[GridColumn]:
    """Yield columns under shared labels, together wide enough for these."""
    first, *others = [column.fitted() for column in group]
    lacking = max(map(len, over), default=0) - _wide([first, *others])
    yield replace(first, width=first.width + max(lacking, 0))
    yield from others


def _blocks(columns: Sequence[GridColumn], room: int) -> list[list[GridColumn]]:
    """Return the columns in as few blocks of about as many groups as fit."""
    groups = [list(group) for _, group in groupby(columns, key=_group)]
    for count in range(1, len(groups) + 1):
        each = -(-len(groups) // count)
        blocks = [[column for group in groups[at : at + each] for column in group] for at in range(0, len(groups), each)]
        if all(_wide(block) <= room for block in blocks):
            break
    return blocks


def _labels(block: Sequence[GridColumn], over: Sequence[str], left: int) -> Iterator[str]:
    """Yield the labels that stand over the columns of a block, each over all it holds."""
    for level, name in enumerate(over if any(column.over for column in block) else ()):
        spans = []
        for labels, group in groupby(block, key=lambda column: column.over[: level + 1]):
            here = list(group)
            label = labels[level] if labels else ""
            spans.append(label.rjust(_wide(here)) if len(here) == 1 else label.center(_wide(here)))
        yield GAP.join([f"{name}:".ljust(left), *spans])


def _lines(columns: Sequence[GridColumn], paint: Paint) -> Iterator[str]:
    """Yield the line of headings, if there are any, and a line a row."""
    if any(column.heading for column in columns):
        yield GAP.join(_padded(column.heading, column.width, column.left) for column in columns)
    yield from (GAP.join(column.shown(number, paint) for column in columns) for number in range(len(columns[0].cells)))
