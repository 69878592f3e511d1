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
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = (
        "  ".join(cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True)))
        for row in [head, *rows]
    )
    return "\n".join(line.rstrip() for line in lines)
