"""A product of matrices as whoever asked for it counts: the word that an interval carries for the operator that launched it."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST = 2**40  # of a dimension; a larger one is no tensor's

# What stands in a product's place where no single one was asked for, or nobody can tell which.
GROUPED = "grouped"  # many products of different sizes in one kernel (a mixture's experts)
CONVOLUTION = "convolution"  # as an implicit product, whose sizes are the library's own
GRAPH = "graph"  # launched by a graph, which has no operators
EARLIER = "earlier"  # its launch is not in the recording


@dataclass(frozen=True)
class Product:
    """`batch` products of m × k by k × n elements, of one `precision` (a name of `ullage.gpus.precision` or "fp32", "" where not told)."""

    batch: int
    m: int
    n: int
    k: int
    precision: str = ""

    @property
    def word(self) -> str:
        """The product as one word of a table.

        >>> Product(1, 8944, 2816, 1024, "bf16").word
        '1x8944x2816x1024 bf16'
        """
        return f"{self.batch}x{self.m}x{self.n}x{self.k} {self.precision}".strip()

    @property
    def flops(self) -> int:
        """What it needs: 2 × batch × m × n × k.

        >>> Product(3, 2, 5, 7).flops
        420
        """
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def transposed(self) -> Product:
        """The same product as a column-major library counts a row-major one: m and n change places."""
        return Product(self.batch, self.n, self.m, self.k, self.precision)


def product(word: str) -> Product | None:
    """Return the product that a word says, None for any other text.

    >>> product("1x8944x2816x1024 bf16") == Product(1, 8944, 2816, 1024, "bf16"), product("0x1x1x1"), product("gemm")
    (True, None, None)
    """
    sizes, _, precision = word.partition(" ")
    try:
        batch, m, n, k = (int(size) for size in sizes.split("x"))
    except ValueError:
        return None
    return Product(batch, m, n, k, precision) if all(0 < size < LARGEST for size in (batch, m, n, k)) else None
