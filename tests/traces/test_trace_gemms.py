"""The matrix products of a trace: padding, which way round a kernel counts, sums by layer, and what the command says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.trace_command import ask, refused
from ullage.gpus.chip import find
from ullage.kernels.gemms.gemm import decode
from ullage.metrics.tiles import adjusted_ofu
from ullage.product import CONVOLUTION, EARLIER, GRAPH, GROUPED, Product
from ullage.profiles import ProfileRequest, profile
from ullage.render.gemms import record, view
from ullage.reports.gemms.gemms import gemm_summary
from ullage.reports.gemms.uses import gemm_use, kernels_own
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.scenario import ProcessScenario, Scenario
from ullage.sums.lanes.products import KernelProduct
from ullage.views.text import text

SHARED = Path(__file__).parents[3] / "shared" / "data"
TALL = "volta_sgemm_128x64_nn"
HOPPER = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
H100 = find("NVIDIA H100 80GB HBM3")


def real(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path.name} is not here")
    return profile([str(path)], ProfileRequest()).run


def traced(folder, *kernels, region="forward", device="NVIDIA H100 80GB HBM3"):
    """Write a run of kernels (name, product, ns, blocks) as a PyTorch profile, one after the other, and return its path."""
    to, now = ProcessScenario(7001, 0), 1000
    for name, word, length, blocks in kernels:
        call = to.call(now - 900, now - 890, "cudaLaunchKernel", "launch", 7001)
        to.work(now, now + length, "kernel", name, 7, call, product=word, blocks=blocks, threads=128)
        now += length + 1000
    to.host(0, now, "host", "aten::step", 7001)
    to.host(0, now, "region", region, 7001)
    return write(Scenario("gemms", tuple(to.events), {7001: 0}, {0: (device, "GPU-1")}), folder)[0]


def summed(path):
    return gemm_summary(profile([str(path)], ProfileRequest()).run)


def test_what_the_gpus_figures_rest_on_is_said(tmp_path):
    b200 = find("NVIDIA B200")
    assert b200.warning in summed(traced(tmp_path / "b200", (HOPPER, "4096x4096x4096", 1000, 132), device=b200.name)).notes
    assert not any("tensor clock" in note for note in summed(traced(tmp_path / "h100", (HOPPER, "4096x4096x4096", 1000, 132))).notes)


def test_a_planted_product_recovers_its_tile_efficiency_exactly(tmp_path):
    # m and n as the library counts: 200 and 100. In tiles of 128 × 64: 256 and 128, so 256 × 128 × k executed over 200 × 100 × k
    path = traced(tmp_path, (TALL, "1x100x200x512 fp32", 400, 4), (TALL, "3x100x200x512 fp32", 800, 12))
    found = summed(path)
    assert found.theoretical_flops == 4 * 2 * 100 * 200 * 512
    assert found.executed_flops == 4 * 2 * 128 * 256 * 512
    assert found.tile_efficiency == 100 * 200 / (128 * 256)
    assert (found.time, found.covered, found.count) == (1200, 1.0, 2)
    assert found.padding == pytest.approx(1200 * (1 - 20_000 / 32_768))
    assert [(group.name, group.count, group.time) for group in found.layers] == [("forward", 2, 1200)]
    assert [group.name for group in found.products] == ["3x100x200x512 fp32", "1x100x200x512 fp32"]
    # 4 products of 2 × 100 × 200 × 512 FLOPs in 1200 ns
    assert found.rate == pytest.approx(4 * 2 * 100 * 200 * 512 / 1200e-9)


def test_clusters_and_steps_of_k_count(tmp_path):
    # library's m is 300: 3 tiles of 128; n is 300: 2 tiles of 256 make one cluster of 2; k is 100: 2 steps of 64
    found = summed(traced(tmp_path, (HOPPER, "1x300x300x100 fp16", 400, 132)))
    assert found.executed_flops == 2 * 384 * 512 * 128
    assert found.theoretical_flops == 2 * 300 * 300 * 100


def test_a_kernel_without_a_tile_counts_its_product_but_not_its_padding(tmp_path):
    path = traced(tmp_path, ("gemv2T_kernel_val", "1x1x64x64 fp32", 100, 4), (TALL, "1x64x128x8 fp32", 300, 1))
    found = summed(path)
    assert (found.shaped, found.covered_time, found.covered) == (400, 300, 0.75)
    assert found.flops == 2 * 64 * 64 + 2 * 64 * 128 * 8
    assert found.tile_efficiency == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "Cijk_SB_BiasSB_HAS_ScaleAlphaVec_PostGSU16_VW1",
        "void epilogue::impl::globalKernel<8, 32, float>",
        "void fbgemm_gpu::permute_2D_data_kernel<true, int>",
        "void at::native::vectorized_elementwise_kernel<4>",
    ],
)
def test_what_runs_beside_a_product_is_none(name):
    assert gemm_use(KernelProduct(name, "1x64x64x64 bf16", "", 1, 32, 1, 10), None) is None


@pytest.mark.parametrize(
    ("name", "word", "precision", "peak"),
    [
        (HOPPER, "1x64x64x64 bf16", "fp16", H100.peak("fp16")),  # the kernel's own name is surer than the operator
        (TALL, "1x64x64x64 fp32", "fp32", None),  # no tensor core has it
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>", "1x64x64x64 fp32", "tf32", H100.peak("tf32")),
        ("void gemm_kernel_nobody_knows(float*)", "1x64x64x64 fp8", "fp8", H100.peak("fp8")),
        ("void gemm_kernel_nobody_knows(float*)", "", None, None),
    ],
)
def test_precision_is_the_kernels_and_else_the_operators(name, word, precision, peak):
    use = gemm_use(KernelProduct(name, word, "", 1, 32, 1, 10), H100)
    assert (use.precision, use.peak) == (precision, peak)


def test_the_grid_decides_which_way_round_where_it_can():
    tall, one = decode(TALL), Product(1, 1024, 64, 512)
    # a column-major library has m = 64 and n = 1024: 1 × 16 tiles of 128 × 64. The other way round: 8 × 1
    assert (kernels_own(one, tall, 16).m, kernels_own(one, tall, -1).m) == (64, 64)
    assert kernels_own(one, tall, 8).m == 1024
    # 32 is 2 slices of 16 and 4 of 8; 11 fits neither
    assert (kernels_own(one, tall, 32).m, kernels_own(one, tall, 11).m) == (64, 64)
    # a Hopper kernel stays on the GPU: its grid is how many blocks fit, 4, or 8 whatever the tiles
    assert kernels_own(Product(1, 1024, 64, 512), decode(HOPPER), 8).m == 64


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 40), st.integers(-1, 2000))
def test_padding_never_makes_less_of_a_product(m, n, k, batch, blocks):
    use = gemm_use(KernelProduct(TALL, Product(batch, m, n, k, "fp32").word, "", blocks, 128, 3, 100), H100)
    assert use.theoretical_flops == 3 * 2 * batch * m * n * k
    assert 0 < use.tile_efficiency <= 1


TENSILE = (
    "Qwen_Qwen1.5-0.5B-Chat__1016005",
    "facebook_timesformer-base-finetuned-k400__1016002",
    "google_owlv2-large-patch14-ensemble__1016001",
)


def agreements(run):
    """Count kernels whose blocks are as many as tiles one way round, and not the other: "library" or "operator"."""
    found = Counter()
    for row in (row for capture in run.captures for row in capture.products):
        use = gemm_use(row, None)
        if use is None or use.product is None or use.decoded is None or use.decoded.tile is None or use.decoded.unit == "wgmma":
            continue
        (tall, wide), asked = use.decoded.tile, use.product
        library = asked.batch * -(-asked.n // tall) * -(-asked.m // wide)
        operator = asked.batch * -(-asked.m // tall) * -(-asked.n // wide)
        if library != operator and row.blocks in (library, operator):
            found["library" if row.blocks == library else "operator"] += row.count
    return found


def test_grids_of_real_kernels_say_that_libraries_count_column_major():
    # Tensile's blocks are its tiles. The one exception are products by a vector (n = 1), whose result lies both ways.
    found = [agreements(real(f"kineto/tracelens_mi300_{name}.json.gz")) for name in TENSILE]
    assert [dict(counts) for counts in found] == [{"library": 48}, {"library": 84}, {"library": 865, "operator": 5}]


def test_grids_of_real_kernels_of_cutlass_and_cublas_say_so_too():
    found = [agreements(real(f"kineto/{name}.json.gz")) for name in ("hta_a100_rank0of16_neg_queue", "hta_v100_rank1of2_trace_diff_test")]
    assert sum(counts["operator"] for counts in found) == 0
    assert sum(counts["library"] for counts in found) >= 24


def test_a_product_by_a_vector_is_taken_as_its_grid_says():
    uses = gemm_summary(real("kineto/tracelens_mi300_google_owlv2-large-patch14-ensemble__1016001.json.gz")).rows
    (use,) = (use for use in uses if use.product is not None and (use.product.m, use.product.n, use.decoded.tile) == (5184, 1, (64, 16)))
    # 81 tiles of 64 × 16 along 5184 × 1 execute 5184 × 16; the other way round 324 would, 64 × 5184
    assert use.executed_flops == use.count * 2 * 5184 * 16 * -(-use.product.k // use.decoded.k_tile) * use.decoded.k_tile


def test_a_real_trace_says_what_has_no_shapes_and_why():
    found = gemm_summary(real("kineto/tracelens_mi300_vllm_decode_hipgraph.json.gz"))
    assert set(found.unshaped) == {GRAPH}
    assert found.covered == pytest.approx(1 - found.unshaped[GRAPH] / found.time)
    assert any("graphs" in note for note in found.notes)
    assert set(gemm_summary(real("kineto/tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")).unshaped) == {EARLIER}
    assert set(gemm_summary(real("kineto/tracelens_mi300_xdit_sd35_rank0.json.gz")).unshaped) == {CONVOLUTION}


def test_layers_that_repeat_are_one_and_sums_agree_however_they_are_grouped():
    found = gemm_summary(real("kineto/tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"))
    layers = {group.name: group for group in found.layers}
    # 24 decoder layers: gate, up and down each; q, k, v and o each
    assert layers["Qwen2Model/Qwen2DecoderLayer/Qwen2MLP/Linear"].count == 24 * 3
    assert layers["Qwen2Model/Qwen2DecoderLayer/Qwen2Attention/Linear"].count == 24 * 4
    for groups in (found.rows, found.products, found.layers):
        assert sum(group.time for group in groups) == found.time
        assert sum(group.count for group in groups) == found.count
    for groups in (found.products, found.layers):
        assert sum(group.executed_flops for group in groups) == found.executed_flops


def test_a_device_that_events_number_otherwise_is_what_all_listed_ones_are():
    found = gemm_summary(real("kineto/tracelens_mi300_gaunernst_bert-small-uncased__1016001.json.gz"))
    assert all(use.peak == find("AMD Instinct MI300X").peak("bf16") for use in found.rows)


def test_names_of_an_nsight_capture_are_decoded_without_shapes():
    found = gemm_summary(real("nsys/nsysai_mfu_2gpu_before.sqlite"))
    assert {use.decoded.library for use in found.rows} == {"nvjet"}
    assert (found.tile_efficiency, found.shaped) == (None, 0)
    assert "only PyTorch's profiler records shapes" in found.notes[0]


def test_the_command_says_padding_by_kernel_product_and_layer(tmp_path):
    path = traced(tmp_path, (TALL, "1x100x200x512 fp32", 400, 4), (TALL, None, 100, 4))
    for by, first in (("kernel", "volta_sgemm_128x64_nn"), ("product", "100 × 200 × 512"), ("layer", "forward")):
        done = ask("gemms", str(path), "--by", by)
        assert done.code == 0, done.err
        lines = done.out.splitlines()
        assert lines[0] == "Tile efficiency 0.6104 over 80 % of 500 ns in GEMMs"
        assert lines[2].split()[0] == {"kernel": "kernel", "product": "M", "layer": "layer"}[by]
        assert lines[3].startswith(first)
        assert "note: 20 % of the GEMMs' time has no shapes: it was launched by operators that record no sizes of one product" in lines


def test_adjusted_ofu_is_ofu_times_tile_efficiency(tmp_path):
    path = traced(tmp_path, (TALL, "1x100x200x512 fp32", 400, 4))
    done = ask("gemms", str(path), "--ofu", "0.5")
    # 20,000 / 32,768 = 0.6104; half of that
    assert done.out.splitlines()[0] == "Adjusted OFU 30.5 %: OFU 50.0 % × tile efficiency 0.6104"
    found = ask("gemms", str(path), "--ofu", "0.5", "--json").json
    assert found["adjusted_ofu"] == adjusted_ofu(0.5, 20_000 / 32_768)
    assert "an OFU of 41 can't be" in refused("gemms", str(path), "--ofu", "41")


def test_adjusted_ofu_without_tiles_is_said_not_to_be_known(tmp_path):
    path = traced(tmp_path, (TALL, None, 400, 4))
    done = ask("gemms", str(path), "--ofu", "0.5")
    assert done.out.splitlines()[0] == "Adjusted OFU is not known: no tile efficiency to set against OFU 50.0 %"
    assert ask("gemms", str(path), "--ofu", "0.5", "--json").json["adjusted_ofu"] is None


def test_a_trace_without_products_is_an_error_that_says_what_to_do(tmp_path):
    path = traced(tmp_path, ("vectorized_elementwise_kernel", None, 400, 4))
    assert "no kernel of this run is a matrix product" in refused("gemms", str(path))


def test_json_holds_the_sums_as_integers_and_the_reasons(tmp_path):
    found = summed(traced(tmp_path, (TALL, "1x100x200x512 fp32", 400, 4), (TALL, GROUPED, 100, 4)))
    made = json.loads(json.dumps(record(found)))
    assert (made["theoretical_flops"], made["executed_flops"]) == (2 * 100 * 200 * 512, 2 * 128 * 256 * 512)
    assert [(row.get("m"), row["count"]) for row in made["gemms"]] == [(100, 1), (None, 1)]
    assert [row["layer"] for row in made["layers"]] == ["forward"]
    assert sum(made["unshaped_s"].values()) == pytest.approx(100e-9)
    assert "notes" in made
    assert text(view(found)).count("\n") > 4
