"""How much of a matrix product is padding?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    from ullage.reports.gemms.gemm import GemmReport, GemmRequest, GemmSweep

MOST = 20_000  # products of one sweep
_NUMBER = "-?[0-9]{1,20}"


def read_tile(text: str, flag: str, now: float) -> tuple[int, ...]:  # noqa: ARG001 - a TextReader
    """Read sizes with an x between them.

    >>> read_tile("256x160x64", "--tile", 0)
    (256, 160, 64)
    """
    if not re.fullmatch(f"{_NUMBER}(x{_NUMBER})*", text.lower()):
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' is not sizes with an x between them: 256x160x64")
    return tuple(int(part) for part in text.lower().split("x"))


def read_cluster(text: str, flag: str, now: float) -> tuple[int, ...]:
    """Read the two sizes of a cluster."""
    sizes = read_tile(text, flag, now)
    if len(sizes) != 2:
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' is not two sizes, those along M and N: 2x1")
    return sizes


@dataclass(frozen=True, kw_only=True)
class GemmQuestion:
    """How much of a matrix product is padding: C (M × N) from A (M × K) and B (K × N).

    M and N are those of the library: cuBLAS counts column-major, so a product of PyTorch, whose matrices lie row by row, has
    its columns as M there and its rows as N; --row-major swaps them. A size may be a range LOW:HIGH[:STEP]; a single one stands
    for M, N and K alike.
    """

    m: str | int = asked("Rows of C, or a range LOW:HIGH[:STEP].", argument=True, required=True, signed=True, metavar="M")
    n: str | int | None = asked("Columns of C.", argument=True, metavar="[N]")
    k: str | int | None = asked("Columns of A and rows of B.", argument=True, metavar="[K]")
    dtype: str | None = asked(
        "Precision of A and B.", metavar="NAME", suggested="ullage.gpus.precision:PRECISIONS", shown="the kernel's, else bf16"
    )
    kernel: str | None = asked("Kernel, as a profiler names it: its tile and cluster are read from the name.", metavar="NAME")
    gpu: str | None = asked(
        "Which GPU.", metavar="NAME", shown="that of the kernel's name; to predict, H100 SXM", suggested="ullage.gpus.chip:all_names"
    )
    batch: int = asked("Products of that size in one call.", 1)
    tile: tuple[int, ...] | None = asked("Tile of a thread block and its step in K: 256x160x64.", metavar="MxN[xK]", read=read_tile)
    cluster: tuple[int, ...] | None = asked("Thread blocks of a cluster along M and N: 2x1.", metavar="MxN", read=read_cluster)
    split_k: int | None = asked("Slices of K.")
    row_major: bool = asked("C = A·B lies in memory row by row: M and N change places, as cuBLAS sees it.", False)
    heuristics: Literal["auto", "ours", "nvidia"] = asked(
        "Who predicts a tile: our own model (auto, ours), or nvMatmulHeuristics where it is installed.", "auto"
    )
    ofu: float | None = asked("A measured OFU, to be adjusted for the padding: 0.42.", metavar="RATIO")

    @property
    def sizes(self) -> list[str]:
        """The sizes as written: one for all, or three."""
        return [str(size) for size in (self.m, self.n, self.k) if size is not None]

    @property
    def ranged(self) -> bool:
        """Whether a size is a range, so that there are several products."""
        return any(":" in size for size in self.sizes)

    def request(self) -> GemmRequest:
        """Return what is asked about each product."""
        from ullage.reports.gemms.gemm import GemmRequest

        cluster = None if self.cluster is None else (self.cluster[0], self.cluster[1])
        return GemmRequest(self.dtype, self.gpu, self.kernel, self.tile, cluster, self.split_k, self.heuristics, self.ofu)


def answer(question: GemmQuestion, progress: Progress, command: str = "") -> GemmReport | GemmSweep:  # noqa: ARG001 - a question's `answer`
    """Return what tiles pad of a product, or of each product of a sweep.

    >>> gemm(4096, 4096, 4096, kernel="nvjet_sm90_hsh_256x160_64x4_2x1").cover.effective
    (4096, 4160, 4096)
    """
    from ullage.kernels.tiling import TiledProduct
    from ullage.reports.gemms.gemm import GemmSweep, sweep

    products = [TiledProduct(m, n, k, question.batch) for m, n, k in spread(question.sizes)]
    products = [product.swapped for product in products] if question.row_major else products
    reports = sweep(products, question.request())
    return GemmSweep(tuple(reports)) if question.ranged else reports[0]


def spread(sizes: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return M, N and K of every product that the sizes mean: numbers or ranges, one for all three or three.

    >>> spread(["1:3"])
    [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    >>> spread(["64", "128:256:128", "32"])
    [(64, 128, 32), (64, 256, 32)]
    """
    for size in sizes:
        if re.match("-[^0-9]", size):
            raise WrongQuestionError(f"No such option '{harmless(size, 60)}'.")
    if len(sizes) not in (1, 3):
        raise WrongQuestionError(f"a product has three sizes, M, N and K, or one for all; {len(sizes)} are given")
    ranges = [_range(size) for size in sizes]
    longest = max(len(values) for values in ranges)
    if any(len(values) not in (1, longest) for values in ranges):
        raise UllageError(f"the ranges {', '.join(sizes)} have different lengths", "ranges run side by side: give them equal lengths")
    columns = [list(values) * (longest if len(values) == 1 else 1) for values in ranges]
    m, n, k = columns * 3 if len(columns) == 1 else columns
    return list(zip(m, n, k, strict=True))


def _range(size: str) -> Sequence[int]:
    if not re.fullmatch(f"{_NUMBER}(:{_NUMBER})*", size):
        raise UllageError(f"'{harmless(size, 60)}' is not a size", "write a whole number, or a range LOW:HIGH:STEP: 1024:16384:128")
    low, *rest = (int(part) for part in size.split(":"))
    if not rest:
        return [low]
    high, step = rest[0], rest[1] if len(rest) > 1 else 1
    if len(rest) > 2 or step < 1 or high < low or low < 1:
        raise UllageError(f"'{size}' is not a range of sizes", "write LOW:HIGH:STEP, the low end at least 1: 1024:16384:128")
    if (high - low) // step >= MOST:
        raise UllageError(f"'{size}' has {(high - low) // step + 1:,} sizes", f"a sweep has at most {MOST:,}: give a larger step")
    return range(low, high + 1, step)


def shown_by(question: GemmQuestion) -> str:
    """Return the module that describes the answer."""
    return "ullage.render.gemm_sweep" if question.ranged else "ullage.render.gemm"


_EXAMPLES = """
  ullage gemm 4096 4096 4096 --kernel nvjet_sm90_hsh_256x160_64x4_2x1_v_bz_TNN
  ullage gemm 4096 14336 4096 --gpu 'H100 SXM'          which tile to expect, and what it pads
  ullage gemm 8192 8192 8192 --dtype fp8 --gpu B200 --heuristics nvidia
  ullage gemm 1000 3000 512 --tile 128x256x64 --cluster 2x1 --ofu 0.42
  ullage gemm 512 4096 4096 --row-major                 a row-major product, as PyTorch has it
  ullage gemm 1024:16384:128 --out overhead.svg         square products: figure 1 of the OFU paper
  ullage gemm 4096 1:512 4096 --json                    one size of three varies
"""

QUESTION: RegisteredQuestion[GemmQuestion, Any] = register(
    RegisteredQuestion(name="gemm", asked=GemmQuestion, noun="a matrix product", answer=answer, shown_by=shown_by, examples=_EXAMPLES)
)

gemm = python_function(QUESTION)
