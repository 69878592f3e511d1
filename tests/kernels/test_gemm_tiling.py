"""What a product of matrices becomes under tiles and clusters: worked by hand, and invariants for any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.kernels.tiling import LARGEST, Cover, TiledProduct, Tiling
from ullage.metrics.tiles import effective_size

SIZES = st.integers(1, LARGEST)
TILES = st.integers(1, 512)
CLUSTERS = st.integers(1, 8)


def test_the_papers_own_kernel_pads_4096_to_4160():
    # nvjet 256x160_64x4_2x1: 16 tiles of 256 make 8 clusters of 2; 4096 / 160 = 25.6, so 26 tiles: 4160; 64 steps of 64
    cover = Cover(TiledProduct(4096, 4096, 4096), Tiling((256, 160), 64, (2, 1)))
    assert cover.effective == (4096, 4160, 4096)
    assert cover.executed == 2 * 4096 * 4160 * 4096
    assert cover.overhead == 0.015625  # 4160 / 4096 - 1 = 64 / 4096
    assert cover.tiles == (16, 26)


def test_an_exact_number_of_tiles_is_padded_to_whole_clusters():
    # 384 is 3 tiles of 128; a cluster of 2 makes 4 of them: 512 rows, a third more
    assert Cover(TiledProduct(384, 128, 64), Tiling((128, 128), 64, (2, 1))).overhead == pytest.approx(1 / 3)


def test_k_is_padded_to_whole_steps_and_not_to_clusters():
    # 100 takes 2 steps of 64
    assert Cover(TiledProduct(128, 128, 100), Tiling((128, 128), 64, (2, 2))).effective[2] == 128


def test_an_unknown_k_tile_leaves_k_as_it_is():
    assert Cover(TiledProduct(128, 128, 100), Tiling((128, 128))).effective == (128, 128, 100)


def test_a_batch_multiplies_need_and_execution_alike():
    one, many = (Cover(TiledProduct(100, 100, 100, batch), Tiling((128, 128), 64)) for batch in (1, 7))
    assert (many.product.flops, many.executed, many.blocks) == (7 * one.product.flops, 7 * one.executed, 7 * one.blocks)
    assert many.efficiency == one.efficiency


def test_the_largest_product_is_counted_exactly():
    # (2^31 - 1)^3 x 2 has 94 bits: a float would lose the last 41 of them. Tiles of 2 make 2^31 of each odd size
    cover = Cover(TiledProduct(LARGEST, LARGEST, LARGEST), Tiling((2, 2), 2))
    assert cover.product.flops == 2 * LARGEST**3
    assert cover.executed == 2**94


def test_split_k_adds_blocks_and_no_flops():
    # 4 tiles; in 8 slices of K 32 blocks, which fill a quarter of 132 SMs better than 4 do
    whole, split = (Cover(TiledProduct(256, 256, 8192), Tiling((128, 128), 64, split_k=slices)) for slices in (1, 8))
    assert (whole.blocks, split.blocks) == (4, 32)
    assert whole.executed == split.executed
    assert (whole.wave_efficiency(132), split.wave_efficiency(132)) == (4 / 132, 32 / 132)


def test_one_tile_more_than_a_wave_takes_a_second_wave():
    # 133 tiles on 132 SMs: two waves of 132 places
    cover = Cover(TiledProduct(133 * 128, 128, 64), Tiling((128, 128), 64))
    assert (cover.waves(132), cover.wave_efficiency(132)) == (2, 133 / 264)


def test_clusters_leave_sms_idle_that_hold_no_whole_one():
    # 16 clusters of 8 on 132 SMs: 128 blocks at a time
    assert Cover(TiledProduct(4096, 4096, 64), Tiling((128, 128), 64, (4, 2))).slots(132) == 128


def test_a_cluster_larger_than_the_gpu_is_refused():
    with pytest.raises(UllageError, match="a cluster of 4x4 blocks does not fit on 8 SMs"):
        Cover(TiledProduct(4096, 4096, 64), Tiling((128, 128), 64, (4, 4))).waves(8)


@pytest.mark.parametrize("size", [0, -1, 10**12, LARGEST + 1, True, 2.0])
def test_sizes_that_no_memory_holds_are_refused(size):
    for make in (
        lambda: TiledProduct(size, 8, 8),
        lambda: TiledProduct(8, 8, 8, size),
        lambda: Tiling((8, size)),
        lambda: Tiling((8, 8), split_k=size),
    ):
        with pytest.raises(UllageError):
            make()


@given(SIZES, TILES, CLUSTERS)
def test_a_dimension_reaches_its_size_and_less_than_a_cluster_of_tiles_beyond(size, tile, cluster):
    reached = effective_size(size, tile, cluster)
    assert size <= reached < size + tile * cluster
    assert reached % (tile * cluster) == 0


@given(st.builds(TiledProduct, SIZES, SIZES, SIZES), st.builds(Tiling, st.tuples(TILES, TILES), TILES, st.tuples(CLUSTERS, CLUSTERS)))
def test_efficiency_lies_in_one_and_is_the_inverse_of_the_overhead(product, tiling):
    cover = Cover(product, tiling)
    assert 0 < cover.efficiency <= 1
    assert cover.efficiency * (1 + cover.overhead) == pytest.approx(1)
    assert (cover.efficiency == 1) == (cover.effective == (product.m, product.n, product.k)) or cover.overhead < 1e-15
    assert cover.executed >= product.flops


@given(
    st.builds(TiledProduct, st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6)), CLUSTERS, CLUSTERS, st.integers(64, 304)
)
def test_waves_hold_all_blocks_and_the_last_is_not_empty(product, across, down, sms):
    cover = Cover(product, Tiling((128, 128), 64, (across, down)))
    slots, waves = cover.slots(sms), cover.waves(sms)
    assert (waves - 1) * slots < cover.blocks <= waves * slots
    assert 0 < cover.wave_efficiency(sms) <= 1


def test_the_equation_is_the_same_for_arrays():
    sizes = np.array([1, 300, 384])
    assert effective_size(sizes, 128, 2).tolist() == [256, 512, 512]


def test_swapping_the_order_of_memory_swaps_m_and_n_alone():
    assert TiledProduct(1, 2, 3, 4).swapped == TiledProduct(2, 1, 3, 4)
