"""Predicted tiles: our own model held against the paper's bounds, NVIDIA's library isolated in a process of its own."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.gpus.chip import CHIPS, find
from ullage.kernels import heuristics
from ullage.kernels.heuristics import GPUS, LETTERS, advise
from ullage.kernels.prediction import BITS, CLASSES, RESULT_BITS, candidates, cycles, machine, predict
from ullage.kernels.tiling import Cover, TiledProduct, Tiling

H100 = machine("9.0", 132, 4096)
H100_NAME, OTHER = "NVIDIA H100 80GB HBM3", "NVIDIA H800"
PRODUCTS = [TiledProduct(4096, 4096, 4096), TiledProduct(1000, 3000, 512), TiledProduct(16, 4096, 4096)]
installed = pytest.mark.skipif(importlib.util.find_spec(heuristics.MODULE) is None, reason="nvidia-matmul-heuristics is not installed")


def overhead(product: TiledProduct, gpu: str, dtype: str) -> float:
    chip = find(gpu)
    on = machine(chip.compute_capability, chip.sms, chip.flops_per_cycle[dtype])
    return Cover(product, predict(product, dtype, on)).overhead


@pytest.mark.parametrize(("gpu", "dtype"), [("H100 SXM", "fp16"), ("H100 SXM", "fp8"), ("B200", "fp16"), ("B200", "fp8")])
def test_aligned_squares_pad_no_more_than_the_paper_measured(gpu, dtype):
    # OFU paper, IV-A: multiples of 128, at most 9 % and 2 to 3 % on average; from which size on, our copy of its text has lost
    found = [overhead(TiledProduct(size, size, size), gpu, dtype) for size in range(2048, 16385, 128)]
    assert max(found) <= 0.10
    assert sum(found) / len(found) <= 0.03


def test_a_wave_that_fits_exactly_is_taken():
    # 33 x 4 tiles of 128 x 256 are 132: one wave without padding; every other candidate pads or needs two
    found = predict(TiledProduct(4224, 1024, 4096), "bf16", H100)
    assert sorted(found.tile) == [128, 256]
    assert Cover(TiledProduct(4224, 1024, 4096), found).waves(132) == 1


def test_a_step_of_k_is_128_bytes_where_instructions_read_shared_memory():
    # 64 elements of 16 bits, 128 of 8, 256 of 4, 32 of 32; mma kernels take 64 bytes
    for dtype, step in (("bf16", 64), ("fp8", 128), ("fp4", 256), ("tf32", 32)):
        assert {tiling.k_tile for tiling in candidates(dtype, H100)} == {step}
    assert {tiling.k_tile for tiling in candidates("fp16", machine("8.0", 108, 2048))} == {32}


@pytest.mark.parametrize(
    ("capability", "unit"), [("7.0", "mma"), ("8.9", "mma"), ("9.0", "wgmma"), ("10.3", "tcgen05"), ("12.0", "mma"), ("gfx942", "mfma")]
)
def test_the_instruction_class_follows_the_architecture(capability, unit):
    assert machine(capability, 100, 1024).unit == unit


def test_every_gpu_and_precision_has_a_prediction():
    for chip in CHIPS.values():
        for dtype in chip.precisions:
            on = machine(chip.compute_capability, chip.sms, chip.peak(dtype) / (chip.sms * chip.clock(dtype)))
            assert 0 < Cover(PRODUCTS[1], predict(PRODUCTS[1], dtype, on)).efficiency <= 1
    assert set(BITS) == set(RESULT_BITS) == set(LETTERS)


@settings(max_examples=40)
@given(st.builds(TiledProduct, st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 20_000)))
def test_the_predicted_tile_is_a_candidate_within_two_per_cent_of_the_fastest(product):
    found = predict(product, "bf16", H100)
    least = min(cycles(Cover(product, tiling), "bf16", H100) for tiling in candidates("bf16", H100))
    assert found.tile in CLASSES["wgmma"].tiles
    assert cycles(Cover(product, found), "bf16", H100) <= 1.02 * least * (1 + 1e-12)


def test_a_product_and_its_transpose_pad_alike():
    # the candidates are the same either way round
    for product in PRODUCTS:
        one, other = (Cover(p, predict(p, "bf16", H100)) for p in (product, product.swapped))
        assert one.efficiency == pytest.approx(other.efficiency)


def test_the_time_of_a_tile_worked_by_hand():
    # 128 x 128 x 64 on an SM of 4096 FLOPs a cycle: 2 x 128 x 128 x 64 / 4096 = 512 cycles a step of mathematics; fed with
    # 2 x 128 x 64 x 2 B = 32,768 B at 39.2 B a cycle: 836; 10 steps; 479 to fill; 32,768 B to write: 836. One wave.
    cover = Cover(TiledProduct(128, 128, 640), Tiling((128, 128), 64))
    assert cycles(cover, "bf16", H100) == pytest.approx(479 + 11 * 32_768 / 39.2)


@installed
def test_nvidias_library_answers_in_a_process_of_its_own():
    advice = advise(PRODUCTS, "bf16", H100_NAME)
    assert (advice.problem, heuristics.MODULE in sys.modules) == ("", False)
    assert all(tiling is not None and Cover(p, tiling).efficiency > 0 for p, tiling in zip(PRODUCTS, advice.tilings, strict=True))


@installed
def test_the_two_predictions_of_padding_agree_for_large_products():
    # both find tiles that 8192 fills exactly
    product = TiledProduct(8192, 8192, 8192)
    (theirs,) = advise([product], "bf16", H100_NAME).tilings
    assert theirs is not None
    assert Cover(product, theirs).efficiency == Cover(product, predict(product, "bf16", H100)).efficiency == 1


def test_a_gpu_that_the_library_does_not_know_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    advice = advise(PRODUCTS, "bf16", OTHER)
    assert advice.tilings == (None, None, None)
    assert advice.problem == "nvMatmulHeuristics does not know NVIDIA H800"


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    advice = advise(PRODUCTS, "bf16", H100_NAME)
    assert advice.tilings == (None, None, None)
    assert "pip install 'ullage[heuristics]'" in advice.problem


# A child that answers each product with a tile, and dies of those whose M is 13, as a native library does
DYING = """
import json, os, sys
asked = json.load(sys.stdin)
print(json.dumps({"version": "0"}), flush=True)
for m, n, k, batch in asked["products"]:
    if m == 13:
        os.abort()
    print(json.dumps([128, m, 64, 1, 1, 1]), flush=True)
"""


@pytest.fixture
def present(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)


def test_after_a_crash_the_products_behind_it_are_still_answered(present):
    advice = advise([TiledProduct(m, 1, 1) for m in (1, 13, 3)], "bf16", H100_NAME, child=(sys.executable, "-c", DYING))
    assert [None if tiling is None else tiling.tile[1] for tiling in advice.tilings] == [1, None, 3]
    assert advice.problem.startswith("nvMatmulHeuristics failed at product 2: it ended with")


def test_a_child_that_dies_of_everything_is_not_started_forever(present):
    advice = advise([TiledProduct(13, 1, 1)] * 50, "bf16", H100_NAME, child=(sys.executable, "-c", DYING))
    assert advice.tilings == (None,) * 50


def test_a_child_that_never_answers_is_given_up(present):
    advice = advise([TiledProduct(1, 1, 1)], "bf16", H100_NAME, timeout=0.2, child=(sys.executable, "-c", "import time; time.sleep(60)"))
    assert (advice.tilings, advice.problem) == ((None,), "nvMatmulHeuristics failed at product 1: it gave no answer within 0.2 s")


@pytest.mark.parametrize("said", ["", "nonsense", "{}", '{"version": 3}', "[1, 2]", "[0, 0, 0, 0, 0, 0]", "null"])
def test_what_a_child_should_not_say_is_no_answer(present, said):
    child = (sys.executable, "-c", f"print({said!r})")
    advice = advise([TiledProduct(1, 1, 1)], "bf16", H100_NAME, child=child)
    assert advice.tilings == (None,)
    assert advice.problem.startswith("nvMatmulHeuristics")


def test_a_child_that_cannot_be_started_is_said(present):
    assert "could not be started" in advise([TiledProduct(1, 1, 1)], "bf16", H100_NAME, child=("/no/such/program",)).problem


@installed
def test_the_library_knows_every_gpu_that_we_send_it():
    import subprocess

    code = "import nvMatmulHeuristics as n; print(' '.join(n.NvMatmulHeuristicsNvidiaGpu.__members__))"
    known = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(GPUS.values()) <= set(known)
    assert all(find(name).name == name for name in GPUS)
