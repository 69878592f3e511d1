"""Which products the harness runs: random ones for the table, squares for the two pictures over size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ullage.benches.products import MULTIPLE
from ullage.errors import UllageError

# Of the OFU paper: "random" is sustained, for table II and figure 4; "square" is sustained, for figure 3; of "size" the kernel's
# name alone is asked, for figure 1.
Kind = Literal["random", "square", "size"]
PRECISIONS = ("fp16", "bf16", "tf32", "fp8", "fp4")
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
SIZES = tuple(range(128, 8192 + 1, 128))
STEP = 16  # elements: every dimension is a multiple of it
LARGEST = 8192


@dataclass(frozen=True)
class PlannedGemm:
    """One product to run: row-major C of m × n from m × k by k × n."""

    kind: Kind
    precision: str
    m: int
    n: int
    k: int

    @property
    def flops(self) -> int:
        """2 m n k."""
        return 2 * self.m * self.n * self.k

    @property
    def words(self) -> str:
        """The product in words, for progress and problems."""
        return f"{self.precision} {self.m} × {self.n} × {self.k}"


def random_shapes(count: int, seed: int, largest: int = LARGEST) -> list[tuple[int, int, int]]:
    """Return `count` shapes whose dimensions are random multiples of 16 up to `largest`.

    The same seed gives the same shapes, and more of them begin with the fewer. Raises UllageError for sizes that can't be.

    >>> random_shapes(2, seed=0) == random_shapes(3, seed=0)[:2]
    True
    """
    if count < 0 or largest < STEP:
        raise UllageError(f"{count:,} products up to {largest:,} can't be", f"ask for 0 or more, of dimensions from {STEP} up")
    drawn = np.random.default_rng(seed).integers(1, largest // STEP + 1, (count, 3)) * STEP
    return [(int(m), int(n), int(k)) for m, n, k in drawn]


def planned(precisions: Sequence[str], count: int, seed: int, largest: int = LARGEST) -> list[PlannedGemm]:
    """Return all products in the order in which they run: each shape in every precision before the next shape.

    Squares first (they are few), then the random ones, then the squares of which only the kernel's name is asked. FP4's
    dimensions are rounded up to multiples of 128, as the paper's are.

    >>> [gemm.words for gemm in planned(["fp16", "fp4"], count=1, seed=0)[12:14]]
    ['fp16 6976 × 5232 × 4192', 'fp4 7040 × 5248 × 4224']
    """
    shapes: list[tuple[Kind, tuple[int, int, int]]] = [("square", (n, n, n)) for n in SQUARES]
    shapes += [("random", shape) for shape in random_shapes(count, seed, largest)]
    shapes += [("size", (n, n, n)) for n in SIZES]
    return [PlannedGemm(kind, precision, *_rounded(shape, precision)) for kind, shape in shapes for precision in precisions]


def _rounded(shape: tuple[int, int, int], precision: str) -> tuple[int, int, int]:
    step = MULTIPLE.get(precision, STEP)
    m, n, k = (-(-size // step) * step for size in shape)
    return m, n, k
