"""`ullage gemm`: names, given tiles and predictions as reports, text, JSON and pictures, and what it refuses."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

import ullage
from ullage.cli import cli
from ullage.errors import UllageError
from ullage.kernels.heuristics import Advice
from ullage.kernels.tiling import TiledProduct
from ullage.questions.gemm import spread
from ullage.render.gemm_sweep import ROWS, thinned
from ullage.render.gemm_sweep import view as sweep_view
from ullage.render.svg.gemm import cover, curve
from ullage.reports.gemms import gemm as reports
from ullage.reports.gemms.gemm import GemmRequest, GemmSweep, gemm, squares, sweep
from ullage.views.text import text

PAPERS = "nvjet_sm90_hsh_256x160_64x4_2x1"
XMMA = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
AMPERE = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"


def run(*words: str):
    return CliRunner().invoke(cli, ["gemm", *words], standalone_mode=False)


def told(*words: str) -> dict:
    result = run(*words, "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)


def test_the_papers_kernel_as_json():
    # 4160 x 4096 x 4096 x 2 executed; 1 / 1.015625 efficient
    found = told("4096", "4096", "4096", "--kernel", PAPERS)
    assert found["theoretical_flops"] == 2 * 4096**3
    assert found["executed_flops"] == 2 * 4096 * 4160 * 4096
    assert (found["overhead"], found["tile_efficiency"]) == (0.015625, 4096 / 4160)
    assert (found["tile"], found["k_tile"], found["cluster"], found["source"]) == ([256, 160], 64, [2, 1], "name")
    assert (found["dtype"], found["gpu"], found["legacy"]) == ("fp16", "NVIDIA H100 80GB HBM3", None)
    assert found["waves"] == 4  # 16 x 26 = 416 blocks on 132 SMs
    assert found["wave_efficiency"] == 416 / 528


def test_a_row_major_product_has_its_columns_as_m():
    # 512 tokens x 4000 columns: the library's M is 4000, 16 tiles of 256 reach 4096; its N 512 takes 4 of 160, 640
    found = told("512", "4000", "64", "--kernel", PAPERS, "--row-major")
    assert (found["m"], found["n"], found["effective"]) == (4000, 512, [4096, 640, 64])


def test_what_a_name_leaves_open_is_null_and_said():
    found = told("4096", "4096", "4096", "--kernel", XMMA)
    assert found["cluster"] is None
    assert any("the cluster is unknown" in note for note in found["notes"])
    assert told("4096", "4096", "4096", "--kernel", XMMA, "--cluster", "2x1")["cluster"] == [2, 1]


def test_an_unknown_step_of_k_leaves_the_overhead_a_lower_bound():
    found = told("256", "256", "100", "--tile", "128x128")
    assert (found["k_tile"], found["effective"], found["source"]) == (None, [256, 256, 100], "given")
    assert any("lower bound" in note for note in found["notes"])
    assert found["waves"] is None  # no GPU was named, and none need be guessed


def test_unknown_slices_of_k_are_said():
    found = told("64", "64", "8192", "--kernel", "nvjet_sm90_hss_64x8_64x16_1x1_h_bz_splitK_NNT")
    assert found["split_k"] is None
    assert told("64", "64", "8192", "--kernel", "nvjet_sm90_hss_64x8_64x16_1x1_h_bz_splitK_NNT", "--split-k", "4")["blocks"] == 32


def test_an_ampere_kernel_on_hopper_is_legacy():
    found = told("4096", "4096", "4096", "--kernel", AMPERE, "--gpu", "H200")
    assert found["legacy"].startswith("mma instead of wgmma")
    assert told("4096", "4096", "4096", "--kernel", AMPERE, "--gpu", "A100")["legacy"] is None


def test_a_prediction_says_so_and_by_whom():
    found = told("4096", "4096", "4096", "--gpu", "H100 SXM")
    assert (found["source"], found["notes"]) == ("predicted", [])
    assert found["source_detail"].startswith("our own model")


def test_without_a_gpu_the_one_that_is_assumed_is_said():
    assert told("64", "64", "64")["notes"] == ["no --gpu was given: H100 SXM is assumed"]


def test_nvidias_silence_falls_back_to_our_model_and_says_why(monkeypatch):
    monkeypatch.setattr(reports, "advise", lambda products, dtype, gpu: Advice((None,) * len(products), problem="it ended with -11"))
    found = told("4096", "4096", "4096", "--heuristics", "nvidia", "--gpu", "H100")
    assert found["source_detail"].startswith("our own model")
    assert found["notes"] == ["it ended with -11; our own model is used instead"]


def test_a_measured_ofu_is_adjusted_by_the_tile_efficiency():
    # 128 of 256 columns are padding: half of the OFU is model work
    report = gemm(TiledProduct(128, 128, 64), GemmRequest(tile=(128, 256, 64), ofu=0.5))
    assert (report.cover.efficiency, report.adjusted_ofu) == (0.5, 0.25)


def test_intensity_counts_each_matrix_once_and_in_its_own_type():
    # 2 x 64^3 FLOPs over 3 matrices of 64 x 64 x 2 B; FP8 reads 1 B and writes 2: 4 bytes in all instead of 6
    assert gemm(TiledProduct(64, 64, 64), GemmRequest(tile=(64, 64), dtype="bf16")).intensity == 2 * 64**3 / (6 * 64**2)
    assert gemm(TiledProduct(64, 64, 64), GemmRequest(tile=(64, 64), dtype="fp8")).intensity == 2 * 64**3 / (4 * 64**2)


def test_a_matrix_times_a_vector_is_bound_by_memory_however_well_its_tiles_fit():
    # 1 column: one FLOP a byte, of the 295 that an H100 needs
    report = gemm(TiledProduct(4096, 1, 4096), GemmRequest(gpu="H100 SXM"))
    assert report.memory_bound
    assert report.mfu_ceiling == pytest.approx(report.intensity * 3.35e12 / 989.43e12, rel=1e-3)


@pytest.mark.parametrize(("dtype", "headroom"), [("bf16", 1980 / 1830), ("fp64", 1.0)])
def test_the_most_that_a_product_reaches_is_at_the_highest_clock(dtype, headroom):
    # H100: the peak of BF16 is stated at 1,830 MHz, that of FP64 at 1,980, and a cool GPU runs at 1,980
    report = gemm(TiledProduct(4096, 4096, 4096), GemmRequest(gpu="H100 SXM", tile=(128, 128, 64), dtype=dtype))
    assert report.wave_efficiency is not None
    assert report.mfu_ceiling == pytest.approx(report.cover.efficiency * report.wave_efficiency * headroom)
    assert ("at the GPU's highest clock" in run("4096", "--tile", "128x128x64", "--gpu", "H100 SXM", "--dtype", dtype).stdout) == (
        headroom > 1
    )


def test_python_answers_as_the_command_does():
    report = ullage.gemm(4096, 4096, 4096, kernel=PAPERS)
    assert report.json() == told("4096", "--kernel", PAPERS)
    with pytest.raises(UllageError, match="a matrix product has no 'kernle'"):
        ullage.gemm(1, 1, 1, kernle=PAPERS)


def test_text_begins_with_the_answer():
    assert run("1000", "3000", "500", "--tile", "128x256x64", "--cluster", "2x1", "--gpu", "H100 SXM", "--ofu", "0.4").stdout == (
        "tile efficiency 93.1 % of 1000 × 3000 × 500, bf16: overhead 7.37 %\n"
        "tile 128x256x64, cluster 2x1, as given\n"
        "\n"
        "        needed  executed  overhead         cut into\n"
        "M        1,000     1,024    2.40 %   8 tiles of 128\n"
        "N        3,000     3,072    2.40 %  12 tiles of 256\n"
        "K          500       512    2.40 %    8 steps of 64\n"
        "FLOPs  3.000 G   3.221 G    7.37 %\n"
        "\n"
        "96 blocks in 1 wave of 132 on NVIDIA H100 80GB HBM3 (132 SMs): wave efficiency 72.7 %\n"
        "arithmetic intensity 300 FLOP/B, above the 295 at which NVIDIA H100 80GB HBM3 reaches its peak\n"
        "MFU at most 73.3 %: what padding, the last wave and memory leave, at the GPU's highest clock\n"
        "OFU 40.0 % adjusted for the padding: 37.3 %, the MFU to expect\n"
    )


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["0", "1", "1"], "M of 0 can't be"),
        (["1", "-5", "1"], "N of -5 can't be"),
        (["1", "1", "1000000000000"], "K of 1,000,000,000,000 can't be"),
        (["64", "--batch", "0"], "batch of 0 can't be"),
        (["64.5"], "'64.5' is not a size"),
        (["8:4"], "'8:4' is not a range of sizes"),
        (["1:999999999"], "'1:999999999' has 999,999,999 sizes"),
        (["1:4", "1:3", "8"], "have different lengths"),
        (["64", "--gpu", "H1000"], "no GPU is called 'H1000'"),
        (["64", "--dtype", "fp9"], "no precision is called 'fp9'"),
        (["64", "--dtype", "fp4", "--gpu", "H100"], "has no fp4 peak"),
        (["64", "--kernel", "elementwise_kernel"], "'elementwise_kernel' is no GEMM kernel of a known naming scheme"),
        (["64", "--kernel", "deep_gemm::sm90_fp8_gemm_1d2d_impl"], "does not say its tile"),
        (["64", "--kernel", PAPERS, "--tile", "128x128"], "--tile 128x128 contradicts the kernel's name, which says 256x160"),
        (["64", "--tile", "128"], "a tile of 1 size can't be"),
        (["64", "--tile", "128x0"], "a tile of 0 can't be"),
        (["64", "--cluster", "2x1"], "none is known"),
        (["64", "--tile", "64x64", "--cluster", "16x16", "--gpu", "H100"], "a cluster of 16x16 blocks can't be"),
        (["64", "--ofu", "1.5"], "an OFU of 1.5 can't be"),
        (["64", "--out", "x.pdf"], "cannot write 'x.pdf': this report has no .pdf format"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(words, problem):
    error = run(*words).exception
    assert isinstance(error, UllageError)
    assert problem in error.problem
    assert error.hint


def test_ranges_run_side_by_side():
    assert spread(["1:3", "10:30:10", "7"]) == [(1, 10, 7), (2, 20, 7), (3, 30, 7)]


def test_a_sweep_lists_at_most_forty_products_and_its_json_all():
    found = told("128:12800:128", "--kernel", PAPERS)
    assert (found["count"], len(found["products"])) == (100, 100)
    assert found["max_overhead"] == max(row["overhead"] for row in found["products"])
    swept = sweep_view(GemmSweep(tuple(sweep([TiledProduct(s, s, s) for s in range(128, 12801, 128)], GemmRequest(kernel=PAPERS)))))
    shown = text(swept)
    assert f"{ROWS} of 100 are listed" in shown
    assert len(text(swept, whole=True).splitlines()) == len(shown.splitlines()) + 60 - 1  # all rows, and no word on more
    # the smallest is worst: 128 in clusters of 2 x 256 by 160 is 512 x 160, 5 times 128 x 128
    assert shown.startswith("overhead ") and "at most 400.0 % (128 × 128 × 128), fp16" in shown.splitlines()[0]


def test_thinning_keeps_both_ends():
    kept = thinned(199)
    assert (len(kept), kept[0], kept[-1]) == (ROWS, 0, 198) and sorted({*kept}) == kept


def test_pictures_are_well_formed_and_say_what_they_show(tmp_path):
    for product in (TiledProduct(1000, 3000, 512), TiledProduct(16, 10**6, 64), TiledProduct(10**6, 10**6, 8), TiledProduct(1, 1, 1)):
        report = gemm(product, GemmRequest(gpu="H100 SXM"))
        drawn = ElementTree.fromstring(cover(report, squares(report)))
        assert "tile efficiency" in "".join(drawn.itertext())
        assert len(str(cover(report))) < 60_000  # of many tiles not every edge is drawn
    ElementTree.fromstring(curve(sweep([TiledProduct(1, n, 64) for n in range(1, 300)], GemmRequest(tile=(128, 128)))))
    assert run("64", "--out", str(tmp_path / "a.svg")).exception is None
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert run("64:256:64", "--out", str(tmp_path / "a.json")).exception is None
    assert json.loads((tmp_path / "a.json").read_text())["count"] == 4


def test_the_padded_share_of_the_picture_is_to_scale():
    # 64 x 64 in a tile of 128 x 128: a quarter of the area is needed, so its box is half as wide and half as high as the whole
    drawn = ElementTree.fromstring(cover(gemm(TiledProduct(64, 64, 64), GemmRequest(tile=(128, 128)))))
    boxes = [
        (float(r.get("width")), float(r.get("height"))) for r in drawn.iter("{http://www.w3.org/2000/svg}rect") if r.get("fill-opacity")
    ]
    assert boxes[0] == (165, 165)  # of a side of 330
