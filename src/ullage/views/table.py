"""A table as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

GAP = "  "


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return aligned columns, the first `left` of them to the left, the others to the right.

    >>> print(table(["job", "OFU"], [["a", "0.31"], ["longer", "0.4"]]))
    job      OFU
    a       0.31
    longer   0.4
    """
    return aligned([head, *rows], [number < left for number in range(len(head))])


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Return rows of cells as lines, each column as wide as its widest cell, aligned to the `left` or to the right.

    >>> print(aligned([["job", "OFU", "why"], ["a", "0.31", "idle"]], [True, False, True]))
    job   OFU  why
    a    0.31  idle
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    places = list(zip(widths, left, strict=True))
    lines = (GAP.join(cell.ljust(w) if at else cell.rjust(w) for cell, (w, at) in zip(row, places, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True)
class GridColumn:
    """A column of a grid: its heading and the labels over it, its cells, and the characters that they take."""

    heading: str
    over: tuple[str, ...]
    cells: Sequence[str]
    left: bool
    width: int = 0

    def fitted(self) -> GridColumn:
        """Return the column, as wide as its widest cell or its heading."""
        return replace(self, width=max([len(self.heading), *map(len, self.cells)]))

    def shown(self, text: str) -> str:
        """Return a text as it stands in the column."""
        return text.ljust(self.width) if self.left else text.rjust(self.width)


def grid(names: Sequence[GridColumn], columns: Sequence[GridColumn], over: Sequence[str], width: int) -> str:
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
        [*_labels(block, over, _wide(names)), *_lines([*names, *block])] for block in _blocks(columns, width - _wide(names) - len(GAP))
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


def _lines(columns: Sequence[GridColumn]) -> Iterator[str]:
    yield GAP.join(column.shown(column.heading) for column in columns)
    yield from (
        GAP.join(column.shown(cell) for column, cell in zip(columns, row, strict=True))
        for row in zip(*(c.cells for c in columns), strict=True)
    )
