"""Tile quantization: what a matrix product executes beyond what it needs, because tiles and clusters are whole (OFU paper, IV-A).

Sizes are elements, FLOPs exact integers: the equations hold for Python's integers of any size and for NumPy arrays alike.
"""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="FLOP", source="OFU paper, section IV-A: 2 M N K")
def gemm_flops(m: Value, n: Value, k: Value) -> Value:
    """How many FLOPs a product of M × K by K × N needs: a multiply and an add for each of M N K terms.

    >>> gemm_flops(m=2, n=3, k=4)
    48
    """
    return 2 * m * n * k


@metric(unit="elements", source="OFU paper, eq. 3 and eq. 4")
def effective_size(size: Value, tile: Value, cluster: Value) -> Value:
    """How far a dimension really reaches when it is covered by whole tiles, and those by whole clusters (1: none).

    300 needs 3 tiles of 128; clusters of 2 make that 4, so 512.

    >>> effective_size(size=300, tile=128, cluster=1), effective_size(size=300, tile=128, cluster=2)
    (384, 512)
    """
    return ((size + tile - 1) // tile + cluster - 1) // cluster * cluster * tile


@metric(unit="1", source="OFU paper, eq. 2")
def tile_overhead(executed_flops: Value, theoretical_flops: Value) -> Value:
    """How much more is executed than needed: 0 when every tile is full, 1 when half of the work is padding.

    >>> tile_overhead(executed_flops=120, theoretical_flops=100)
    0.2
    """
    return ratio(executed_flops - theoretical_flops, theoretical_flops)


@metric(unit="1", source="OFU paper, eq. 8: 1 / (1 + overhead)")
def tile_efficiency(theoretical_flops: Value, executed_flops: Value) -> Value:
    """How much of the executed work fills real elements rather than padding. The work of the shapes.

    >>> tile_efficiency(theoretical_flops=100, executed_flops=125)
    0.8
    """
    return ratio(theoretical_flops, executed_flops)


@metric(unit="1", source="OFU paper, eq. 8")
def adjusted_ofu(ofu: Value, tile_efficiency: Value) -> Value:
    """OFU without the padding of tiles: what to hold an application's MFU (or HFU) against.

    >>> adjusted_ofu(ofu=0.5, tile_efficiency=0.8)
    0.4
    """
    return ofu * tile_efficiency


@metric(
    unit="1", source="OFU paper, section IV-A: thread blocks run in clusters; NVIDIA, CUDA C++ Programming Guide, thread block clusters"
)
def concurrent_blocks(sms: Value, cluster_blocks: Value) -> Value:
    """How many thread blocks run at a time, one an SM, when clusters of `cluster_blocks` start together or not at all.

    The most there can be: a cluster also has to lie within one GPC, and NVIDIA documents no GPU's SMs by GPC. Kernels with small tiles
    may hold more than one block an SM.

    On 132 SMs 33 clusters of 4 fill all of them, 16 clusters of 8 leave 4 SMs idle:

    >>> concurrent_blocks(sms=132, cluster_blocks=4), concurrent_blocks(sms=132, cluster_blocks=8)
    (132, 128)
    """
    return sms // cluster_blocks * cluster_blocks


@metric(unit="1", source="NVIDIA, Matrix Multiplication Background User's Guide, section 4.2 (wave quantization)")
def wave_efficiency(blocks: Value, slots: Value) -> Value:
    """How full the waves are in which a kernel's blocks run, when all take equally long: the last wave is seldom full.

    `slots` is how many blocks run at a time (SMs × blocks an SM holds; with clusters, what whole clusters leave). Low where the
    count of tiles just exceeds a multiple of it. It is no part of tile efficiency: idle SMs execute nothing.

    198 blocks on 132 SMs take two waves, of 264 places:

    >>> wave_efficiency(blocks=198, slots=132)
    0.75
    """
    return ratio(blocks, -(-blocks // slots) * slots)


@metric(unit="1", source="OFU paper, eq. 9")
def mean_absolute_error(absolute_errors: Value, count: Value) -> Value:
    """How far estimates of MFU are from the application's own on average: their summed absolute differences over their number.

    >>> mean_absolute_error(absolute_errors=0.06, count=3)
    0.02
    """
    return ratio(absolute_errors, count)
