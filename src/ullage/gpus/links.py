"""What a GPU is connected by: links to other GPUs and to a CPU, and PCI Express. All rates in B/s.

Makers add both directions of a link: `bandwidth` is that sum, as they print it, and `per_direction` half of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20  # caches are counted in these

# Bytes per second of one lane in one direction, by generation: transfers per second × line code / 8 bits. Generations 3 to 5 code
# 128 bits as 130; 6 carries 242 of every 256 bytes of a FLIT (the rest is error correction). PCI Express Base Specifications.
_LANE: Final = {3: 8e9 * 128 / 130 / 8, 4: 16e9 * 128 / 130 / 8, 5: 32e9 * 128 / 130 / 8, 6: 64e9 * 242 / 256 / 8}


@dataclass(frozen=True)
class Link:
    """A link by its maker's name and rate: `bandwidth` of one GPU, all its lanes, both directions together."""

    name: str
    bandwidth: float

    @property
    def per_direction(self) -> float:
        """The rate in one direction.

        >>> Link("NVLink 4", 900e9).per_direction
        450000000000.0
        """
        return self.bandwidth / 2


@dataclass(frozen=True)
class Pcie:
    """A PCI Express connection; raises ValueError for a generation that no GPU here has."""

    generation: int
    lanes: int

    def __post_init__(self) -> None:
        if self.generation not in _LANE or self.lanes not in (4, 8, 16):
            raise ValueError(f"PCIe {self.generation} x{self.lanes} is not a connection of a GPU")

    @property
    def bandwidth(self) -> float:
        """The rate of both directions together, less the line code; packet headers take a few percent more."""
        return 2 * self.per_direction

    @property
    def per_direction(self) -> float:
        """The rate in one direction, less the line code.

        >>> round(Pcie(5, 16).per_direction / 1e9, 1)
        63.0
        """
        return _LANE[self.generation] * self.lanes
