"""What is asked about matrix products, and the tiling that a kernel's name and what is given tell together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

from ullage.errors import UllageError, harmless
from ullage.kernels.gemms.gemm import GemmName, decode
from ullage.kernels.tiling import Pair, TiledProduct, Tiling

Whose = Literal["name", "given", "predicted"]
Heuristics = Literal["auto", "ours", "nvidia"]
Known = TypeVar("Known", int, tuple[int, int])
_WIDEST = 4096  # of a tile: far above what the registers and shared memory of an SM hold
_MOST_BLOCKS = 16  # of a cluster (CUDA C++ Programming Guide: 8, or 16 where a kernel asks for a non-portable size)
_LONGEST = 2000  # characters of a kernel's name that are kept


@dataclass(frozen=True)
class GemmRequest:
    """What is asked about products: precision, GPU, and what is known of the kernel; None is not given.

    `tile` is (m, n) or (m, n, k). `heuristics` "auto" and "ours" predict by our own model, "nvidia" by nvMatmulHeuristics where
    it is installed. `ofu` is a measured OFU, a ratio.
    """

    dtype: str | None = None
    gpu: str | None = None
    kernel: str | None = None
    tile: tuple[int, ...] | None = None
    cluster: Pair | None = None
    split_k: int | None = None
    heuristics: Heuristics = "auto"
    ofu: float | None = None

    def __post_init__(self) -> None:
        if self.heuristics not in ("auto", "ours", "nvidia"):
            raise UllageError(f"heuristics '{self.heuristics}' are not known", "say auto, ours or nvidia")
        _refuse_sizes("a tile", self.tile, (2, 3), "MxN or MxNxK: 256x128x64")
        _refuse_sizes("a cluster", self.cluster, (2,), "MxN: 2x1")
        if self.tile is not None and max(self.tile) > _WIDEST:
            words = "x".join(map(str, self.tile))
            raise UllageError(f"no thread block has a tile of {words}", f"a side has at most {_WIDEST:,} elements: 256x128x64")
        if self.ofu is not None and not 0 <= self.ofu <= 1:
            raise UllageError(f"an OFU of {self.ofu:g} can't be", "give a ratio from 0 to 1: 0.42")


def _refuse_sizes(name: str, sizes: object, lengths: tuple[int, ...], example: str) -> None:
    """Raise where sizes are not as many whole numbers as there should be."""
    if sizes is None:
        return
    if not isinstance(sizes, tuple | list) or not all(type(size) is int for size in sizes):
        raise UllageError(f"{name} of {harmless(repr(sizes), 60)} can't be", f"give whole numbers: {example}")
    if len(sizes) not in lengths:
        raise UllageError(f"{name} of {len(sizes)} size{'' if len(sizes) == 1 else 's'} can't be", f"write {example}")


@dataclass(frozen=True)
class TilingSource:
    """Where a tiling is from: read in a kernel's `name`, `given`, or `predicted`; `by` is the kernel, or who predicted."""

    whose: Whose
    by: str


def decoded(name: str | None) -> GemmName | None:
    """Return what a kernel's name says, None for no name; raises UllageError for a name of no known scheme."""
    if name is None:
        return None
    found = decode(name)
    if found is None:
        raise UllageError(
            f"'{harmless(name, 120)}' is no GEMM kernel of a known naming scheme", "give its tile: --tile 256x128x64; docs/kernel-names.md"
        )
    return found


# What is done about a part of a tiling that nobody told
TAKEN = {
    "k_tile": "the K tile is unknown: K is taken as it is, so that the overhead is a lower bound",
    "cluster": "the cluster is unknown: 1x1 is taken, so that the overhead is a lower bound",
    "split_k": "K is split into an unknown number of slices: blocks and waves are counted without; --split-k says how many",
}


def known(question: GemmRequest, kernel: GemmName | None) -> tuple[Tiling | None, TilingSource, tuple[str, ...]]:
    """Return the tiling that is known without predicting, whence, and what of it is unknown; what is given completes a name."""
    given = tuple(question.tile or ())
    m_n = kernel.tile if kernel is not None else None
    source = TilingSource("name", (question.kernel or "")[:_LONGEST]) if m_n is not None else TilingSource("given", "--tile")
    _refuse_tile(question, kernel)
    m_n = m_n or ((given[0], given[1]) if given else None)
    if m_n is None:
        return None, source, ()
    step = given[2] if len(given) == 3 else None
    cluster = None if question.cluster is None else (question.cluster[0], question.cluster[1])
    slices = question.split_k
    if kernel is not None:
        step = _agreed("--tile's step in K", step, kernel.k_tile)
        cluster = _agreed("--cluster", cluster, kernel.cluster)
        slices = _agreed("--split-k", slices, kernel.split_k)
    if cluster is not None and cluster[0] * cluster[1] > _MOST_BLOCKS:
        raise UllageError(f"a cluster of {cluster[0]}x{cluster[1]} blocks can't be", f"a cluster has at most {_MOST_BLOCKS} of them: 2x1")
    gaps = {"k_tile": step is None, "cluster": cluster is None and kernel is not None}
    gaps["split_k"] = slices is None and kernel is not None and kernel.split
    tiling = Tiling(m_n, step, cluster or (1, 1), 1 if slices is None else slices)
    return tiling, source, tuple(part for part, open_ in gaps.items() if open_)


def _agreed(option: str, given: Known | None, named: Known | None) -> Known | None:
    """Return what is known of a part of a tiling; raises where the option contradicts the name."""
    if given is not None and named is not None and given != named:
        wanted, told = ("x".join(map(str, value)) if isinstance(value, tuple) else value for value in (given, named))
        raise UllageError(f"{option} {wanted} contradicts the kernel's name, which says {told}", "leave one of them out")
    return given if named is None else named


def _refuse_tile(question: GemmRequest, kernel: GemmName | None) -> None:
    """Raise where name and options contradict each other, or leave open what the others complete."""
    told = kernel.tile if kernel is not None else None
    if told is not None and question.tile is not None and tuple(question.tile[:2]) != told:
        given = "x".join(map(str, question.tile))
        raise UllageError(f"--tile {given} contradicts the kernel's name, which says {told[0]}x{told[1]}", "leave one of them out")
    if told is not None or question.tile is not None:
        return
    if kernel is not None:
        raise UllageError(f"'{harmless(kernel.name, 120)}' does not say its tile", "give it with --tile, or leave --kernel out to predict")
    if question.cluster is not None or question.split_k is not None:
        raise UllageError("--cluster and --split-k complete a tile, and none is known", "give --tile or --kernel as well")


def refuse_slices(product: TiledProduct, tiling: Tiling, question: GemmRequest) -> None:
    """Raise where more slices of K are asked for than it has steps."""
    steps = -(-product.k // (tiling.k_tile or 1))
    if (question.split_k or 1) > steps:
        raise UllageError(
            f"K of {product.k:,} has {steps:,} step{'' if steps == 1 else 's'} and can't be cut into {question.split_k:,} slices",
            "give a smaller --split-k",
        )
