"""What a product of matrices becomes when a kernel cuts it into tiles: whole tiles, whole clusters, whole steps of K; exact integers.

Sizes are elements. M and N are those of the library that wrote the kernel: cuBLAS counts column-major, so that a row-major
product C = A·B (PyTorch) has its rows as N and its columns as M there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ullage.errors import UllageError
from ullage.metrics.tiles import concurrent_blocks, effective_size, gemm_flops, tile_efficiency, tile_overhead, wave_efficiency

LARGEST = 2**31 - 1  # what a matrix library's 32-bit sizes hold; 10¹² is no dimension that any memory holds
Pair = tuple[int, int]


@dataclass(frozen=True)
class TiledProduct:
    """C of m × n from m × k by k × n, `batch` times over.

    Raises UllageError for a size below 1 or above 2³¹ − 1.

    >>> TiledProduct(2, 3, 4).flops
    48
    """

    m: int
    n: int
    k: int
    batch: int = 1

    def __post_init__(self) -> None:
        for name, size in (("M", self.m), ("N", self.n), ("K", self.k), ("batch", self.batch)):
            _refuse(name, size)

    @property
    def flops(self) -> int:
        """FLOPs that the mathematics needs: 2 M N K for each product of the batch."""
        flops: int = self.batch * gemm_flops(self.m, self.n, self.k)
        return flops

    @property
    def swapped(self) -> TiledProduct:
        """The same product in the other order of memory: Cᵀ = Bᵀ·Aᵀ, so M and N change places."""
        return TiledProduct(self.n, self.m, self.k, self.batch)


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts a product: the m × n elements of a thread block's tile, its step in K, blocks of a cluster along m and n.

    `k_tile` None: not known, K is taken as it is. `split_k` is the number of slices of K, each with blocks of its own.
    Raises UllageError for a size below 1 or above 2³¹ − 1.
    """

    tile: Pair
    k_tile: int | None = None
    cluster: Pair = (1, 1)
    split_k: int = 1

    def __post_init__(self) -> None:
        sizes = [("a tile", size) for size in self.tile] + [("a cluster", size) for size in self.cluster]
        for name, size in [*sizes, ("a K tile", self.k_tile or 1), ("split-K", self.split_k)]:
            _refuse(name, size)

    @property
    def words(self) -> str:
        """The tile as names of kernels have it.

        >>> Tiling((256, 160), 64).words, Tiling((128, 128)).words
        ('256x160x64', '128x128')
        """
        return "x".join(str(size) for size in (*self.tile, self.k_tile) if size is not None)


@dataclass(frozen=True)
class Cover:
    """A product as it is executed under a tiling."""

    product: TiledProduct
    tiling: Tiling

    @property
    def effective(self) -> tuple[int, int, int]:
        """M, N and K as they are executed (OFU paper, eq. 3; with clusters eq. 4).

        Slices of K are cut between its steps, so only the last step of K is padded, however many slices there are.

        300 × 300 in tiles of 128 takes 3 × 3 of them; a cluster of 2 along m makes that 4 × 3:

        >>> Cover(TiledProduct(300, 300, 100), Tiling((128, 128), 64, (2, 1))).effective
        (512, 384, 128)
        """
        (tile_m, tile_n), (cluster_m, cluster_n) = self.tiling.tile, self.tiling.cluster
        m = effective_size(self.product.m, tile_m, cluster_m)
        n = effective_size(self.product.n, tile_n, cluster_n)
        return m, n, effective_size(self.product.k, self.tiling.k_tile or 1, 1)

    @property
    def executed(self) -> int:
        """FLOPs that are executed, padding included."""
        flops: int = self.product.batch * gemm_flops(*self.effective)
        return flops

    @property
    def overhead(self) -> float:
        """What is executed beyond need, as a share of the need (eq. 2)."""
        overhead: float = tile_overhead(self.executed, self.product.flops)
        return overhead

    @property
    def efficiency(self) -> float:
        """What is needed, as a share of what is executed (eq. 8)."""
        efficiency: float = tile_efficiency(self.product.flops, self.executed)
        return efficiency

    @property
    def tiles(self) -> Pair:
        """Tiles along m and n, those that only fill up a cluster included."""
        m, n, _ = self.effective
        return m // self.tiling.tile[0], n // self.tiling.tile[1]

    @property
    def blocks(self) -> int:
        """Tiles of all products of the batch and all slices of K: the work items of the kernel."""
        along_m, along_n = self.tiles
        return along_m * along_n * self.tiling.split_k * self.product.batch

    def slots(self, sms: int) -> int:
        """Return how many blocks run at a time on `sms` SMs, one an SM, in whole clusters."""
        slots: int = concurrent_blocks(sms, self.tiling.cluster[0] * self.tiling.cluster[1])
        return slots

    def waves(self, sms: int) -> int:
        """Return in how many waves the blocks run. Raises UllageError for a cluster that is larger than the GPU."""
        self._refuse_cluster(sms)
        return -(-self.blocks // self.slots(sms))

    def wave_efficiency(self, sms: int) -> float:
        """Return how full these waves are. Raises UllageError for a cluster that is larger than the GPU."""
        self._refuse_cluster(sms)
        efficiency: float = wave_efficiency(self.blocks, self.slots(sms))
        return efficiency

    def _refuse_cluster(self, sms: int) -> None:
        if not self.slots(sms):
            across, down = self.tiling.cluster
            raise UllageError(f"a cluster of {across}x{down} blocks does not fit on {sms} SMs", "name another --cluster or --gpu")


def _refuse(name: str, size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int):
        raise UllageError(f"{name} of {size!r} is not a whole number", "give a whole number from 1 on")
    if not 1 <= size <= LARGEST:
        raise UllageError(f"{name} of {size:,} can't be", f"give a whole number from 1 to {LARGEST:,}")


PAIRS: tuple[Pair, ...] = ((1, 1), (2, 1), (1, 2))  # the clusters that names without one are known to run in


def executed_at_most(product: TiledProduct, tiling: Tiling) -> int:
    """Return what is executed in the cluster that pads most, for a kernel whose name tells none; FLOPs.

    >>> product, tiling = TiledProduct(300, 4096, 4096), Tiling((128, 128), 64)  # 3 tiles of 128 rows; in clusters of 2 they are 4
    >>> round(executed_at_most(product, tiling) / Cover(product, tiling).executed, 6)
    1.333333
    """
    return max(Cover(product, replace(tiling, cluster=pair)).executed for pair in PAIRS)
