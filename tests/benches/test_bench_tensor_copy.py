"""The microbenchmark of tensor maps: where each element of a box lies, which box goes where, and what its kernels do on a CPU."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches.bench import BENCHES, Case, Target, TensorMap, cases_for
from ullage.benches.tensor_copy import CLUSTERS, LARGE, SMALL, MappedTile, loads, multicast

TARGET = Target("sm_90a", sms=8, l2=2**18, memory=2**30)
TILES = (*SMALL, *LARGE)
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")


def element(shape: Sequence[int], box: Sequence[int], number: int, within: int) -> int:
    """Where in the tensor an element of a box lies, by coordinates: boxes count along the innermost dimension first, as elements do."""
    place, stride = 0, 1
    for extent, side in zip(shape, box, strict=True):
        across = extent // side
        place += stride * (number % across * side + within % side)
        number, within, stride = number // across, within // side, stride * extent
    return place


def swizzled(byte: int, span: int) -> int:
    """Where a byte of a box lies (PTX ISA, swizzling modes): the lines of 128 bytes change the bits of the chunk within the span."""
    bits = {0: 0, 32: 1, 64: 2, 128: 3}[span]
    return byte ^ (byte >> 7) % 2**bits << 4


@pytest.mark.parametrize("tile", TILES, ids=str)
def test_boxes_are_cut_and_swizzled_as_their_coordinates_say(tile: MappedTile) -> None:
    shape = tile.shape(32)
    tensor = np.arange(int(np.prod(shape)), dtype=np.uint64)
    boxes = tile.boxes(tensor)
    assert boxes.shape == (32, tile.bytes // 8)
    for number in (0, 1, 5, 16, 31):
        for within in (*range(40), tile.bytes // 8 - 1):
            place = swizzled(8 * within, tile.swizzle) // 8
            assert boxes[number, place] == element(shape, tile.box, number, within), (number, within)


def test_tiles_keep_what_the_driver_asks_for() -> None:
    for tile in TILES:
        assert max(tile.box) <= 256 and tile.bytes in (2048, 8192)
        assert 8 * tile.box[0] <= (tile.swizzle or 2048) and tile.box[0] * 8 % 16 == 0
    assert max(tile.bytes for tile in TILES if len(tile.box) == 1) == 8 * 256  # the most of one dimension


@pytest.mark.parametrize("architecture", BENCHES["tensor-copy"].architectures)
def test_every_box_that_a_launch_asks_for_lies_inside_of_its_tensor(architecture: str) -> None:
    for case in cases_for(BENCHES["tensor-copy"], replace(TARGET, architecture=architecture, sms=148, l2=2**22)):
        assert isinstance(case, Case) and isinstance(case.grid, int)
        (seen,), pieces = case.maps, case.scalars[2]
        assert isinstance(seen, TensorMap)
        (values,) = case.inputs(np.random.default_rng(0), "zero")
        boxes = pieces * case.grid // case.cluster
        assert values.size == np.prod(seen.shape) == boxes * np.prod(seen.box)
        assert all(extent % side == 0 for extent, side in zip(seen.shape, seen.box, strict=True))


def test_a_case_of_several_blocks_counts_bytes_where_they_arrive() -> None:
    for cluster in CLUSTERS:
        case = multicast(LARGE[-1], cluster, TARGET)
        assert isinstance(case.grid, int) and case.grid % cluster == 0
        assert case.bytes == case.grid * case.trips * LARGE[-1].bytes
        found = case.reference(case.inputs(np.random.default_rng(1), "random"), case.check_trips)[0].reshape(case.grid, -1)
        assert (found[::cluster] == found[cluster - 1 :: cluster]).all()
        assert len({row.tobytes() for row in found}) == case.grid // cluster


@emulates
@pytest.mark.parametrize(
    ("given", "instead", "why"),
    [
        ("box % 4 * b0", "box % 8 * b0", "outside of its tensor"),
        ("piece * gridDim.x + blockIdx.x", "piece * gridDim.x", "result is wrong"),
        ("expect(arrived + 8 * now, size);", "expect(arrived + 8 * now, size / 2);", ""),
        ("        acquire(map);\n", "", "no fence has made known"),
        ("(ullage_shared(stage) + 1024 - 1) / 1024 * 1024", "ullage_shared(stage) + 64", "not aligned"),
    ],
)  # fmt: skip
def test_a_copy_that_is_asked_for_otherwise_is_found_out(given: str, instead: str, why: str, emulation_folder: Path) -> None:
    case = loads("L2 → shared", LARGE[-1], 2, 16)
    assert given in case.source
    problem = emulated(replace(case, source=case.source.replace(given, instead)), emulation_folder)
    assert problem is not None and why in problem


@emulates
def test_a_box_swizzled_otherwise_than_its_case_says_is_found_out(emulation_folder: Path) -> None:
    case = loads("L2 → shared", LARGE[-1], 2, 16)
    plain = replace(case, maps=(replace(case.maps[0], swizzle=0),))
    assert "result is wrong" in str(emulated(plain, emulation_folder))


@emulates
@pytest.mark.parametrize(
    ("given", "instead", "why"),
    [
        ("await_others(free + 8 * late, late_parity);", "", "unordered"),
        ("tell(free + 8 * now, now % size_of_cluster);", "tell(free + 8 * now, 0);", ""),
        ("if (late % size_of_cluster == rank)", "if (true)", ""),
    ],
)
def test_blocks_that_do_not_wait_for_one_another_are_found_out(given: str, instead: str, why: str, emulation_folder: Path) -> None:
    case = multicast(LARGE[-1], 2, TARGET)
    assert given in case.source
    problem = emulated(replace(case, source=case.source.replace(given, instead)), emulation_folder)
    assert problem is not None and why in problem
