"""Rules of kernel names: what cannot be is doubted, no text is too strange, and a kernel that is behind its GPU is called so."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ullage.errors import UllageError
from ullage.kernels.gemms.gemm import GemmName, decode
from ullage.kernels.gemms.legacy import legacy_on
from ullage.kernels.gemms.number_types import BITS, LETTERS

SEEDS = [
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",
    "nvjet_sm120_hss_mma_128x176x64_2_32x88x64_tmaAB_alignCD4_bz_NNNN",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_void_f32_128x128x64_2x1x1_0_ttn_align8_warpspecialized_cooperative_epi_tma",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_nn_align8>(Params)",
    "sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize96x64x32_stage3_warpsize2x2x1_tensor16x8x16_kernel",
    "ampere_bf16_s16816gemm_bf16_64x64_ldg8_relu_f2f_stages_64x5_tn",
    "deep_gemm::sm90_fp8_gemm_1d2d_impl<(Major)0, 0u, 4096u, 1024u, 1u, 256u, 128u, 128u, 128u, 128u, 128u, 3u, 128u, 256u, 2u, true>",
    "bmm_E4m3_E4m3E4m3_Fp32_t128x64x256_s5_et128x64_m256x64x32_c2x1x1_rM_TN_transOut_sm100f",
    "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_GSU1_ISA942_WG64_4_1",
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(SEEDS))
    start, end = sorted(draw(st.tuples(st.integers(0, len(name)), st.integers(0, len(name)))))
    return name[:start] + draw(st.text(st.characters() | st.sampled_from("0123456789x_<>,(: NTu"), max_size=8)) + name[end:]


@given(st.text() | damaged())
@example("nvjet_tst_" + "9" * 3000)
@example("deep_gemm::sm90_bf16_gemm_impl<" + "1u, " * 500)
@example("deep_gemm::sm90_bf16_gemm_impl<true>()")
@example("nvjet_tst_٣٣x٣٣_٣٣x٣_١x١_v_bz_NNN")
@example("_" * 2000)
def test_no_text_is_too_strange_to_be_read(text: str):
    found = decode(text)
    if found is None:
        return
    sizes = [*(found.tile or ()), *(found.cluster or ()), *(found.warps or ()), *(found.instruction or ())]
    sizes += [size for size in (found.k_tile, found.stages, found.split_k, found.align) if size is not None]
    assert all(size > 0 for size in sizes)


LETTER = {kind: letter for letter, kind in LETTERS.items()}


@st.composite
def nvjets(draw: st.DrawFn) -> str:
    """Draw a name that keeps every rule of nvjet."""
    a = draw(st.sampled_from(["fp16", "bf16", "e4m3", "fp4"]))
    types = LETTER[a] + "s" + LETTER[a] if a in ("fp16", "bf16") else LETTER[a] * 2 + "tst"
    tile_m, tile_n = draw(st.sampled_from([64, 128, 192, 256])), draw(st.sampled_from([8, 16, 64, 128, 256]))
    pair = draw(st.booleans())
    k_tile = 128 * 8 // BITS[a]
    most = 227 * 1024 // (128 * (tile_m + tile_n // (2 if pair else 1)))
    stages = draw(st.integers(1, min(most, 16)))
    cluster_m, cluster_n = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (4, 1), (2, 4)]))
    either = cluster_m == cluster_n or min(cluster_m, cluster_n) > 1
    order = draw(st.sampled_from("hv")) if either else "v" if cluster_m > cluster_n else "h"
    words = ["2cta"] * pair + [order, "bz"] + draw(st.sampled_from([[], ["coopA"], ["bias"], ["coopB", "splitK"]]))
    architecture = draw(st.sampled_from(["", "sm100_"] if pair else ["", "sm90_", "sm100_"]))
    layout = draw(st.text("NT", min_size=3, max_size=3))
    return f"nvjet_{architecture}{types}_{tile_m}x{tile_n}_{k_tile}x{stages}_{cluster_m}x{cluster_n}_{'_'.join(words)}_{layout}"


def written(found: GemmName) -> str:
    """Return the name of nvjet that says what `found` says."""
    assert found.tile and found.cluster and found.layout and found.a and found.b and found.result
    letters = "".join(LETTER[kind] for kind in (found.a, found.b, found.result) if kind)
    types = letters[0] + "s" + letters[2] if found.a in ("fp16", "bf16") else letters[:2] + letters[2] + "s" + letters[2]
    words = ["2cta"] * found.two_cta + [*found.features] + ["splitK"] * found.split + [found.layout.upper()]
    sizes = "_".join(f"{one}x{other}" for one, other in (found.tile, (found.k_tile, found.stages), found.cluster))
    return "_".join(["nvjet", *([found.architecture] if found.architecture else []), types, sizes, *words])


@given(nvjets())
def test_a_name_of_nvjet_can_be_written_again_from_what_was_read(name: str):
    found = decode(name)
    assert found is not None and found.doubts == ()
    assert written(found) == name


def test_a_step_in_k_that_is_no_row_of_128_bytes_is_doubted():
    # 32 × 2 bytes of BF16 are 64
    found = decode("nvjet_tst_128x128_32x4_1x1_v_bz_NNN")
    assert found is not None and found.tile == (128, 128) and found.k_tile == 32
    assert found.doubts == ("a step of 32 in K is 64 bytes of bf16; such kernels take 128",)


def test_a_pipeline_larger_than_shared_memory_is_doubted():
    # (256 + 256) × 64 × 2 bytes × 4 stages = 256 KiB; as a pair each block holds half of B: 192 KiB
    alone, pair = decode("nvjet_tst_256x256_64x4_1x1_v_bz_NNN"), decode("nvjet_tst_256x256_64x4_1x1_2cta_v_bz_NNN")
    assert alone is not None and alone.doubts == ("4 stages hold 256 KiB; a block has 227",) and alone.stages == 4
    assert pair is not None and pair.doubts == ()


def test_an_order_of_tiles_across_the_cluster_is_doubted():
    found = decode("nvjet_tst_128x128_64x4_2x1_h_bz_NNN")
    assert found is not None and found.cluster == (2, 1)
    assert found.doubts == ("tiles in order h with a cluster of 2 × 1; such kernels go in order v",)


def test_an_unknown_letter_is_doubted_and_no_type_is_guessed():
    found = decode("nvjet_sm90_xsx_128x128_64x4_2x1_v_bz_NNN")
    assert found is not None and (found.a, found.result, found.unit, found.tile) == (None, None, None, (128, 128))
    assert len(found.doubts) == 1


def test_a_pipeline_larger_than_the_shared_memory_of_geforce_is_doubted():
    # (128 + 128) × 64 × 2 bytes × 4 stages = 128 KiB, of 99
    found = decode("nvjet_sm120_tst_mma_128x128x64_4_64x64x64_tmaAB_alignCD4_bz_TNNN")
    assert found is not None and found.doubts == ("4 stages hold 128 KiB; a block has 99",)


def test_a_tile_that_two_blocks_may_share_is_doubted():
    found = decode("cutlass3x_sm100_tensorop_gemm_f16_f16_f32_void_f16_256x128x64_2x1x1_0_tnt_align8")
    assert found is not None and found.tile == (256, 128) and found.doubts
    hopper = decode("cutlass3x_sm90_tensorop_gemm_f16_f16_f32_void_f16_256x128x64_2x1x1_0_tnt_align8")
    assert hopper is not None and hopper.doubts == ()


OLD = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x64x32_stage4_warpsize2x2x1_tensor16x8x16_kernel"
LEGACY = [
    (OLD, "sm_80", ""), (OLD, "8.9", ""), (OLD, "sm_90", "wgmma"), (OLD, "sm_90a", "wgmma"), (OLD, "9.0", "wgmma"),
    (OLD, "10.0", "tcgen05"), (OLD, "sm_103a", "tcgen05"), (OLD, "sm_120", ""), (OLD, "12.1", ""), (OLD, "gfx942", ""),
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "sm_90", ""),
    ("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "sm_100", ""),  # its unit is not told
    ("cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8", "sm_90", "wgmma"),
    ("cutlass_tensorop_d884gemm_128x64_16x3_tn_align1", "sm_90", ""),  # wgmma has no FP64: mma is all there is
    ("cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align16", "sm_100", "tcgen05"),
    ("cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align16", "sm_103", ""),  # tcgen05's kind i8 is not on 10.3
    ("ampere_fp16_sgemm_fp16_32x128_tn", "sm_80", "tensor cores of this GPU multiply fp16"),
    ("ampere_fp16_sgemm_fp16_32x128_tn", "6.1", ""),
    ("ampere_sgemm_128x64_nn", "sm_90", ""),  # no tensor core takes FP32
    ("volta_dgemm_64x64_nt", "sm_80", "multiply fp64"), ("volta_dgemm_64x64_nt", "sm_89", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "architecture", "reason"), LEGACY)
def test_a_kernel_is_legacy_where_the_gpu_has_better_instructions(name: str, architecture: str, reason: str):
    found = decode(name)
    assert found is not None
    said = legacy_on(found, architecture)
    assert reason in said if reason and said else said is None and not reason


@pytest.mark.parametrize("text", ["Hopper", "", "sm_", "9", "sm_90; rm"])
def test_an_architecture_that_is_none_is_refused_with_what_to_say(text: str):
    found = decode(OLD)
    assert found is not None
    with pytest.raises(UllageError, match="no architecture") as refused:
        legacy_on(found, text)
    assert "9.0" in refused.value.hint


def template(policy: str, tile: str, a: str, b: str, atom: str, scheduler: str = "void", c: str = "cute::C<{}>") -> str:
    """A kernel of CUTLASS 3 as a profiler prints it, its parameters in the order of include/cutlass/gemm/collective."""

    def shape(sizes: str) -> str:
        words = (c.format(size) if size != "?" else "int" for size in sizes.split("x"))
        return f"cute::tuple<{', '.join(words)} >"

    name, stages, cluster = policy.split("|")
    loop = f"cutlass::gemm::{name}<{stages}, {shape(cluster)}, cutlass::gemm::KernelTmaWarpSpecializedCooperative>"
    stride = f"cute::tuple<long, {c.format(1)}, long>"
    collective = f"cutlass::gemm::collective::CollectiveMma<{loop}, {shape(tile)}, {a}, {stride}, {b}, {stride}, cute::TiledMMA<{atom}> >"
    first = "cute::tuple<int, int, int, int>"
    epilogue = "cutlass::epilogue::collective::CollectiveEpilogue<void>"
    universal = f"cutlass::gemm::kernel::GemmUniversal<{first}, {collective}, {epilogue}, {scheduler}, void>"
    return f"void cutlass::device_kernel<{universal}>({universal}::Params)"


HOPPER, BLACKWELL = "MainloopSm90TmaGmmaWarpSpecialized", "MainloopSm100TmaUmmaWarpSpecialized"
E4M3, HALF = "cutlass::float_e4m3_t", "cutlass::half_t"
GMMA = "cute::MMA_Atom<cute::SM90::GMMA::MMA_{}_SS<(cute::GMMA::Major)0, (cute::GMMA::Major)0> >"
TEMPLATES = [
    (
        template(f"{HOPPER}FP8|6|1x2x1", "64x128x128", E4M3, E4M3, GMMA.format("64x128x32_F32E4M3E4M3")),
        {"tile": (64, 128), "k_tile": 128, "stages": 6, "cluster": (1, 2), "a": "e4m3", "accumulator": "fp32", "unit": "wgmma"},
    ),
    (
        template(f"{HOPPER}|(int)4|2x1x1", "128x256x64", HALF, HALF, GMMA.format("64x256x16_F16F16F16"), c="cute::C<(int){}>"),
        {"tile": (128, 256), "cluster": (2, 1), "a": "fp16", "accumulator": "fp16", "instruction": (64, 256, 16), "split": False},
    ),
    (
        template(f"{HOPPER}|3|1x1x1", "128x128x32", "float", "float", GMMA.format("64x128x8_F32TF32TF32"), c="cute::constant<int, {}>"),
        {"tile": (128, 128), "a": "tf32", "b": "tf32", "cluster": (1, 1)},
    ),
    (
        template(f"{HOPPER}|3|1x1x1", "128x64x64", HALF, HALF, GMMA.format("64x64x16_F32F16F16"), "cutlass::gemm::StreamKScheduler"),
        {"tile": (128, 64), "split": True, "split_k": None},
    ),
    (  # two blocks share the 256 rows; the launch decides the cluster
        template(
            f"{BLACKWELL}|5, 2, 2|?x?x1", "256x128x64", HALF, HALF, "cute::MMA_Atom<cute::SM100_MMA_F16BF16_2x1SM_SS<float, 256, 128> >"
        ),
        {"tile": (128, 128), "stages": 5, "cluster": None, "two_cta": True, "unit": "tcgen05", "doubts": ()},
    ),
    (
        template(f"{BLACKWELL}|5, 2, 2|1x1x1", "128x128x64", HALF, HALF, "cute::MMA_Atom<cute::SM100_MMA_F16BF16_SS<float, 128, 128> >"),
        {"tile": (128, 128), "cluster": (1, 1), "two_cta": False},
    ),
    (
        template("MainloopSm120TmaWarpSpecialized|3, 2|1x1x1", "128x128x128", E4M3, E4M3, "cute::MMA_Atom<cute::SM120_16x8x32_TN<> >"),
        {"tile": (128, 128), "unit": "mma", "architecture": "sm120", "a": "e4m3"},
    ),
]


@pytest.mark.parametrize(("name", "expected"), TEMPLATES)
def test_a_template_of_cutlass_is_read_by_its_parameters(name, expected):
    found = decode(name)
    assert found is not None and found.library == "cutlass3"
    assert {key: getattr(found, key) for key in expected} == expected


@pytest.mark.parametrize(("name", "expected"), TEMPLATES)
def test_a_template_that_is_cut_off_says_less_and_never_something_else(name, expected):
    whole = decode(name)
    for length in range(0, len(name), 7):
        found = decode(name[:length])
        if found is None:
            continue
        assert found.tile in (None, whole.tile) or (found.doubts and found.tile == (2 * whole.tile[0], whole.tile[1]))
        assert found.cluster in (None, whole.cluster) and found.stages == whole.stages


def test_a_convolution_of_cutlass_is_no_product():
    name = TEMPLATES[0][0].replace("gemm::kernel::GemmUniversal", "conv::kernel::ConvUniversal")
    assert decode(name) is None
    assert decode(name.replace("ConvUniversal", "GemmUniversal")) is None
