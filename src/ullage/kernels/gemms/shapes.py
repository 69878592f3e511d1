"""How shapes stand in kernel names: sizes with an x between them, or an instruction's sizes run together."""

from __future__ import annotations

from typing import Final

SIZE: Final = "[1-9][0-9]{0,4}"  # a size in a pattern: never 0, and no longer than anything that fits on a GPU

# The shapes of mma and wmma instructions (PTX ISA, matrix shapes), as names write them: m, n and k without anything between.
_INSTRUCTIONS: Final = {
    f"{m}{n}{k}": (m, n, k)
    for m, n, k in (
        (8, 8, 4), (16, 8, 4), (8, 8, 16), (16, 8, 8), (16, 8, 16), (8, 8, 32), (16, 8, 32), (16, 8, 64), (8, 8, 128),
        (16, 8, 128), (16, 8, 256), (16, 16, 4), (16, 16, 8), (16, 16, 16), (32, 8, 16), (8, 32, 16),
    )
}  # fmt: skip


def instruction(digits: str | None) -> tuple[int, int, int] | None:
    """Return the instruction's m, n and k for the digits of a name, None for what is no shape of an instruction.

    >>> instruction("16816"), instruction("1688"), instruction("99999")
    ((16, 8, 16), (16, 8, 8), None)
    """
    return _INSTRUCTIONS.get(digits or "")


def triple(text: str | None) -> tuple[int, int, int] | None:
    """Return three sizes with an x between them.

    >>> triple("128x64x32"), triple("128x64")
    ((128, 64, 32), None)
    """
    parts = (text or "").split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def grid(text: str | None) -> tuple[int, int] | None:
    """Return how many blocks a cluster has along m and n; None where the launch decides (0) or the name is silent.

    >>> grid("2x1x1"), grid("0x0x1"), grid(None)
    ((2, 1), None, None)
    """
    sizes = triple(text)
    return None if sizes is None or 0 in sizes else sizes[:2]


def number(text: str | None) -> int | None:
    """Return the number that a part of a name holds; None where it is absent.

    >>> number("128"), number(None)
    (128, None)
    """
    return int(text) if text else None
