"""A table as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


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
    lines = ("  ".join(cell.ljust(w) if at else cell.rjust(w) for cell, (w, at) in zip(row, places, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
