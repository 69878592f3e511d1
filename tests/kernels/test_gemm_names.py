"""Names of matrix-product kernels: real ones are read as their makers document them, and convolutions are none."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from ullage.kernels.gemms.gemm import GRAMMARS, GemmName, decode

BF16 = {"a": "bf16", "b": "bf16", "accumulator": "fp32", "result": "bf16"}
FP16 = {"a": "fp16", "b": "fp16", "accumulator": "fp32", "result": "fp16"}
TF32 = {"a": "tf32", "b": "tf32", "accumulator": "fp32", "result": "fp32"}
FP32 = {"a": "fp32", "b": "fp32", "accumulator": "fp32", "result": "fp32"}
MMA = (16, 8, 16)


def told(library: str, unit: str | None, types: dict[str, str], tile: tuple[int, int] | None, k_tile: int | None, **rest: object) -> dict:
    return {"library": library, "unit": unit, "tile": tile, "k_tile": k_tile, **types, **rest}


# What a person reads in each name, by the documentation that docs/kernel-names.md names.
KNOWN = {
    # nvjet: letters of nvMatmulHeuristics (h FP16, t BF16, s FP32, q E4M3, o FP4), tile, K × stages, cluster
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNN": told("nvjet", None, FP16, (128, 256), 64, stages=4, cluster=(2, 1), layout="nnn"),
    "nvjet_hss_64x8_64x16_1x1_h_bz_splitK_NNT": told("nvjet", None, FP16 | {"result": "fp32"}, (64, 8), 64, split=True, split_k=None),
    "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NTN": told("nvjet", "wgmma", BF16, (192, 192), 64, stages=3, architecture="sm90"),
    "nvjet_sm90_qqtst_128x128_128x6_1x2_h_bz_ovscale_TNT": told(
        "nvjet", "wgmma", {"a": "e4m3", "b": "e4m3", "accumulator": "fp32", "result": "bf16"}, (128, 128), 128, stages=6, cluster=(1, 2)
    ),
    "nvjet_sm100_tst_384x32_64x4_2x1_2cta_v_bz_TNT": told("nvjet", "tcgen05", BF16, (384, 32), 64, stages=4, two_cta=True, layout="tnt"),
    "nvjet_sm100_tst_32x64_64x16_4x2_2cta_h_bz_splitK_bias_TNN": told(
        "nvjet", "tcgen05", BF16, (32, 64), 64, stages=16, cluster=(4, 2), two_cta=True, split=True, doubts=()
    ),
    "nvjet_sm100_tst_64x8_64x16_4x2_h_bz_TNT": told("nvjet", "tcgen05", BF16, (64, 8), 64, stages=16, cluster=(4, 2), doubts=()),
    "nvjet_tss_256x256_64x4_2x2_2cta_h_bz_NNT": told("nvjet", "tcgen05", BF16 | {"result": "fp32"}, (256, 256), 64, cluster=(2, 2)),
    "nvjet_sm103_tst_64x8_64x16_4x1_v_bz_splitK_TNT": told("nvjet", "tcgen05", BF16, (64, 8), 64, stages=16, cluster=(4, 1), split=True),
    "nvjet_sm100_ootst_128x128_256x7_4x1_2cta_v_bx_Avec16UE4M3_Bvec16UE4M3_TNT": told(
        "nvjet", "tcgen05", {"a": "fp4", "b": "fp4", "accumulator": "fp32", "result": "bf16"}, (128, 128), 256, stages=7, doubts=()
    ),
    "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN": told(
        "nvjet", "mma", BF16, (64, 64), 128, stages=3, warps=(2, 2, 1), cluster=None, layout="tnnn", doubts=()
    ),
    # CUTLASS 3: A, B, accumulator, C, D; tile; cluster; stages (0: the builder's choice); layout of A, B, C
    "cutlass3x_sm90_tensorop_gemm_f16_f16_f16_f16_f16_128x256x64_1x2x1_0_tnn_align8_warpspecialized_pingpong_epi_tma": told(
        "cutlass3", "wgmma", FP16 | {"accumulator": "fp16"}, (128, 256), 64, cluster=(1, 2), stages=None, layout="tnn", align=8,
        features=("warpspecialized", "pingpong", "epi", "tma"),
    ),
    "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_64x128x128_2x1x1_0_tnt_align16_warpspecialized_epi_nosmem": told(
        "cutlass3", "wgmma", {"a": "e4m3", "b": "e4m3", "accumulator": "fp32", "result": "bf16"}, (64, 128), 128, instruction=(64, 128, 32)
    ),
    "cutlass3x_sm100_tensorop_gemm_f32_f32_f32_void_f32_128x128x32_1x1x1_0_tnt_align4_1sm_stage6": told(
        "cutlass3", "tcgen05", TF32, (128, 128), 32, stages=6, cluster=(1, 1), two_cta=False
    ),
    "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_64x64x16_1x1x1_3_tnn_align1_bias_f32_relu": told(
        "cutlass3", "simt", FP32, (64, 64), 16, stages=3, align=1
    ),
    # 2sm: two blocks share an instruction of 256 rows, so each has 128; no cluster is named, C and D are FP16
    "cutlass3x_sm100_bstensorop_s256x192x64gemm_block_scaled_ue4m3xf4_ue4m3xf4_f32_f16_f16_256x192x256_0_tnn_align32_o_vs16_2sm": told(
        "cutlass3", "tcgen05", {"a": "fp4", "b": "fp4", "accumulator": "fp32", "result": "fp16"}, (128, 192), 256, two_cta=True
    ),
    "cutlass3x_sm100_tensorop_gemm_bf16_bf16_f32_void_bf16_256x256x64_0x0x1_0_tnt_align8_2sm": told(
        "cutlass3", "tcgen05", BF16, (128, 256), 64, cluster=None, two_cta=True
    ),
    # FP32 data in TF32: the type stands behind the instruction's shape; cuBLAS's form names no cluster
    "cutlass3x_sm100_tensorop_s128x64x8tf32gemm_f32_f32_f32_f32_f32_128x64x32_0_tnn_align4_2sm": told(
        "cutlass3", "tcgen05", TF32, (64, 64), 32, instruction=(128, 64, 8), cluster=None, two_cta=True, align=4, doubts=()
    ),
    "cutlass3x_sm100_tensorop_s256x256x8tf32gemm_f32_f32_f32_void_f32_256x256x32_2x1x1_0_tnt_align4_2sm_epi_tma": told(
        "cutlass3", "tcgen05", TF32, (128, 256), 32, cluster=(2, 1), two_cta=True
    ),
    "cutlass3x_sm90_tensorop_tf32gemm_f32_f32_f32_f32_f32_128x128x32_2x1x1_0_tnn_align4_warpspecialized_cooperative_epi_tma": told(
        "cutlass3", "wgmma", TF32, (128, 128), 32, cluster=(2, 1)
    ),
    "cutlass3x_sm90_tensorop_gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_0_tnn_align8_stream_k_warpspecialized_cooperative_epi_tma": told(
        "cutlass3", "wgmma", FP16, (128, 256), 64, split=True, split_k=None
    ),
    # XMMA: A and result, B and accumulator, epilogue
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize256x128x64_warpgroupsize2x1x1_execute_segment_k_off_kernel": told(
        "xmma", "wgmma", BF16, (256, 128), 64, cluster=None, stages=None, layout="tnn"
    ),
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas": told(
        "xmma", "wgmma", TF32, (128, 128), 32
    ),
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128_cgasize1x2x1_stage4_gmmastage2_warpgroupsize1x1x1_tensor64x128x32": told(
        "xmma", "wgmma", {"a": "e4m3", "b": "e4m3", "result": "bf16"}, (128, 128), 128, cluster=(1, 2), stages=4, instruction=(64, 128, 32)
    ),
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel": told(
        "xmma", "mma", FP16, (96, 128), 32, stages=4, warps=(2, 2, 1), instruction=MMA, cluster=(1, 1)
    ),
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x16_stage3_warpsize2x2x1_ff_main_v1": told("xmma", "simt", FP32, (32, 32), 16),
    "sm90_xmma_gemm_i8i32_i8i32_i32_tn_n_tilesize256x128x128_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas": told(
        "xmma", "wgmma", {"a": "int8", "b": "int8", "accumulator": "int32", "result": "int32"}, (256, 128), 128
    ),
    "sm80_xmma_gemm_i8f32_i8i32_f32_by_fusion_tactic": told("xmma", None, {"a": "int8", "result": "fp32"}, None, None, layout=None),
    # CUTLASS 2: a type that equals the accumulator's is left out; 16x8x16, 16x8x8
    "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1": told("cutlass2", "mma", BF16, (256, 128), None, stages=None, layout="tn"),
    "cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_nn_align1": told(
        "cutlass2", "wmma", BF16, (32, 32), 32, stages=1, instruction=(16, 16, 16), architecture="sm75"
    ),
    "cutlass_80_simt_sgemm_128x32_8x5_nn_align1": told("cutlass2", "simt", FP32, (128, 32), 8, stages=5, instruction=None, cluster=(1, 1)),
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_nn_align8": told(
        "cutlass2", "mma", BF16, (128, 64), 64, stages=3, instruction=MMA, align=8, features=("relu",)
    ),
    "cutlass_80_tensorop_i16832gemm_s8_128x64_128x3_tn_align16": told(
        "cutlass2", "mma", {"a": "int8", "b": "int8", "accumulator": "int32", "result": "int32"}, (128, 64), 128, instruction=(16, 8, 32)
    ),
    "cutlass_80_tensorop_s1688gemm_64x64_16x10_nt_align4": told("cutlass2", "mma", TF32, (64, 64), 16, stages=10, instruction=(16, 8, 8)),
    "cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4": told("cutlass2", "mma", TF32, (256, 128), 16, architecture=None),
    "cutlass_tensorop_d884gemm_128x64_16x3_tn_align1": told("cutlass2", "mma", {"a": "fp64", "result": "fp64"}, (128, 64), 16),
    "cutlass_tensorop_h16816gemm_256x128_32x3_nt_align8": told("cutlass2", "mma", {"a": "fp16", "accumulator": "fp16"}, (256, 128), 32),
    # cuBLAS by generation
    "ampere_bf16_s16816gemm_bf16_128x128x32_ldg8_f2f_stages_32x3_nn": told("cublas", "mma", BF16, (128, 128), 32, stages=3),
    "ampere_bf16_s16816gemm_bf16_64x64_ldg8_relu_f2f_stages_64x5_tn": told(
        "cublas", "mma", BF16, (64, 64), 64, stages=5, layout="tn", architecture="ampere", features=("ldg8", "relu", "f2f")
    ),
    "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn": told("cublas", "mma", FP16, (64, 64), 64, stages=6),
    "ampere_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nt": told("cublas", "mma", FP16, (256, 64), None, stages=None, instruction=(16, 8, 8)),
    "ampere_fp16_sgemm_fp16_32x128_tn": told("cublas", "simt", FP16, (32, 128), None, layout="tn"),
    "ampere_sgemm_128x32_sliced1x4_tn": told("cublas", "simt", FP32, (128, 32), None, features=("sliced1x4",), cluster=(1, 1)),
    "maxwell_sgemm_64x64_nt": told("cublas", "simt", FP32, (64, 64), None, architecture="maxwell"),
    "trt_ampere_h16816gemm_128x64_ldg8_nn_v1": told("cublas", "mma", {"a": "fp16", "accumulator": "fp16"}, (128, 64), None, layout="nn"),
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": told("cublas", "mma", FP16, (128, 128), None, instruction=(8, 8, 4)),
    # DeepGEMM: the parameters of its templates
    "deep_gemm::sm100_fp8_gemm_1d1d_impl": told("deepgemm", "tcgen05", {"a": "e4m3", "b": "e4m3"}, None, None, stages=None, cluster=None),
    "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 128u, 128u, 0u, 0u, 0u, 128u, 32u, 128u, "
    "1u, 128u, 128u, 64u, 11u, 128u, 128u, 2u, false, 148u, false, (deep_gemm::GemmType)0, false, cutlass::float_e4m3_t, "
    "cutlass::float_e4m3_t, cutlass::bfloat16_t, deep_gemm::epilogue::transform::EpilogueIdentity>(int*, unsigned int)": told(
        "deepgemm", "tcgen05", {"a": "e4m3", "b": "e4m3", "result": "bf16"}, (128, 32), 128, stages=11, cluster=(2, 1), two_cta=True
    ),
    "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 160u, 128u, 0u, 64u, 9u, 4u, 128u, 128u, 1u, true, (X)1>(float*)": told(
        "deepgemm", "wgmma", {"a": "e4m3"}, (128, 160), 128, stages=4, cluster=(1, 1)
    ),
    "void deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<24u, 16384u, 64u, 32u, 64u, 2u, 128u, 12u, 128u, 128u>(unsigned int, float*)": told(
        "deepgemm", "wgmma", {"a": "tf32"}, (64, 32), 64, stages=12, split_k=2, split=True
    ),
    # trtllm-gen: KernelMetaInfo.h has mTileM 128, mTileN 16, mTileK 128, mNumStages 6, mMmaM 64, mMmaN 16, mMmaK 32 for such a name
    "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_cga1x1x1_16dp256b_rM_TN_transOut_dsFp8_sm100a": told(
        "trtllm", "tcgen05", {"a": "e4m3", "b": "e4m3", "accumulator": "fp32", "result": "bf16"}, (128, 16), 128, stages=6,
        instruction=(64, 16, 32), cluster=(1, 1), layout="tn", architecture="sm100",
    ),
    "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_Ab32_Bb32_Cb32_t128x16x256u2_s6_et128x16_m256x16x32_c2x1x1_rM_TN_transOut_schedS": told(
        "trtllm", "tcgen05", {"a": "fp4", "b": "e4m3", "result": "e4m3"}, (128, 16), 256, cluster=(2, 1), two_cta=True
    ),
    "gemmGatedActKernel_Bfloat16_E2m1_Fp32_tile128x8x256_epilogueTile128x8_mma128x8x64_cluster1x1x4_splitK4_sm100a": told(
        "trtllm", "tcgen05", {"a": "fp4", "b": "fp4", "result": "bf16"}, (128, 8), 256, split_k=4, split=True, cluster=(1, 1)
    ),
    # Tensile: the first index of A and B is the contiguous one (A: i, B: l are not transposed); MT, MI, GSU, ISA
    "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0_APM1_GSU1_GSUASB_ISA942_WG64_4_1": told(
        "tensile", "mfma", BF16, (256, 128), 64, instruction=(16, 16, 16), layout="nn", split_k=1, split=False, architecture="gfx942"
    ),
    "Cijk_Alik_Bjlk_F8B8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128_MI16x16x1_SN_GSUAMB_ISA950": told(
        "tensile", "mfma", {"a": "e4m3", "b": "e5m2", "accumulator": "fp32", "result": "bf16"}, (256, 256), 128, layout="tt", split_k=None
    ),
    "Custom_Cijk_Alik_Bljk_F8BS_BH_SAB_NTD_UserArgs_shortname1_gfx950": told("tensile", None, {"a": "e4m3", "result": "bf16"}, None, None),
    "Cijk_Ailk_Bljk_SB_MT128x64x16_SE_K1_ISA906": told("tensile", None, FP32, (128, 64), 16, instruction=None),
    "Cijk_Ailk_Bljk_HBH_MT64x64x32_MI32x32x8x1_SE_ISA908": told("tensile", "mfma", FP16, (64, 64), 32, instruction=(32, 32, 8)),
    # Triton
    "triton_tem_fused_addmm_relu_2": told("triton", None, {}, None, None, a=None),
    "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1": told("triton", None, {"a": "bf16", "b": "fp4", "result": "bf16"}, (16, 128), 256),
    "_gemm_kernel_BLOCK_SIZE_M_16_BLOCK_SIZE_N_32_BLOCK_SIZE_K_128_NUM_KSPLIT_4": told("triton", None, {}, (16, 32), 128, split_k=4),
}  # fmt: skip

NO_PRODUCTS = [
    "ampere_scudnn_128x64_relu_xregs_large_nn_v1",
    "maxwell_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148m_nt_v1",
    "cutlass3x_sm100_tensorop_s32x256x16_conv3d_fprop_weight_stationary_nq_2d_tiled_bf16_bf16_f32_void_bf16_void_t3xr3xs3_32x256x64_dyn_cga_1sm",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_stage5_warpsize2x2x1_g1_tensor16x8x8_execute_kernel",
    "cutlass_tensorop_s1688wgrad_optimized_tf32_256x128_16x3_nhwc_align4",
    "igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1",
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(…)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(…)",
    "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(…)",
    "deep_gemm::sm90_fp8_mqa_logits",
    "triton_tem_fused_flex_attention_0",
    "triton_poi_fused_mm_relu_0",
    "ampere_sgemm_0x64_nn",
    "",
]


@pytest.mark.parametrize("name", KNOWN, ids=lambda name: name[:60])
def test_a_name_is_read_as_its_maker_documents_it(name: str):
    found = decode(name)
    assert found is not None
    assert {field: getattr(found, field) for field in KNOWN[name]} == KNOWN[name]


@pytest.mark.parametrize("name", NO_PRODUCTS, ids=lambda name: name[:60])
def test_what_is_no_tiled_product_is_none(name: str):
    assert decode(name) is None


def collected(shared_data: Path) -> list[str]:
    return [line.split("\t")[0] for line in (shared_data / "gemm_kernel_names.txt").read_text().splitlines()]


LIBRARIES = {
    "nvjet_": "nvjet", "cutlass3x_": "cutlass3", "cutlass_": "cutlass2", "sm90_xmma": "xmma", "sm80_xmma": "xmma", "bmm_": "trtllm",
    "deep_gemm": "deepgemm", "ampere_": "cublas", "maxwell_": "cublas", "volta_": "cublas", "turing_": "cublas", "trt_": "cublas",
}  # fmt: skip


def test_every_collected_name_is_read_and_convolutions_are_none(shared_data: Path):
    names = collected(shared_data)
    assert len(names) == 207
    for name in names:
        found = decode(name)
        if "scudnn" in name or "conv3d" in name:
            assert found is None, name
            continue
        assert found is not None, name
        assert found.library == next(library for start, library in LIBRARIES.items() if name.startswith(start)), name
        assert (found.tile is not None) == (found.library != "deepgemm"), name  # those two names come without their arguments
        assert not found.doubts, name


def test_a_name_belongs_to_one_scheme(shared_data: Path):
    for name in [*collected(shared_data), *KNOWN]:
        assert len([scheme for scheme, grammar in GRAMMARS.items() if grammar.parse(name)]) <= 1, name


def test_a_name_is_found_inside_the_text_of_a_profiler(shared_data: Path):
    for name in collected(shared_data):
        if decode(name) is None or "::" in name:
            continue
        for text in (f"void {name}(Params)", f"void cutlass::Kernel2<{name}>({name}::Params)", f"  {name}\n"):
            assert decode(text) == decode(name), text


def test_a_mangled_name_of_cutlass_is_read():
    name = "cutlass_80_tensorop_s16816gemm_f16_128x64_32x6_tn_align8"
    assert decode(f"_ZN7cutlass7Kernel2I{len(name)}{name}EEvNT_6ParamsE") == decode(name)


def test_a_mangled_name_of_deepgemm_is_read():
    mangled = (
        "_ZN9deep_gemm23sm90_fp8_gemm_1d2d_implILN4cute4UMMA5MajorE0ELj0ELj4096ELj1024ELj1ELj256ELj128ELj128ELj128ELj128ELj128ELj3ELj128E"
    )
    found = decode(mangled + "Lj256ELj2ELb1ELj132ELNS_8GemmTypeE0EEEvPfPijjj14CUtensorMap_st")
    assert found is not None
    assert (found.tile, found.k_tile, found.stages, found.cluster) == ((256, 128), 128, 3, (1, 2))


TRACES = ("tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005", "tracelens_mi300_xdit_sd35_rank0", "tracelens_mi300_vllm_decode_hipgraph")
PRODUCTS = re.compile("^Cijk_|xmma_gemm|s16816gemm|sgemm_[0-9]|^_matmul")


@pytest.mark.parametrize("trace", TRACES)
def test_the_products_of_real_traces_are_read(shared_data: Path, trace: str):
    events = json.loads(gzip.decompress((shared_data / "kineto" / f"{trace}.json.gz").read_bytes()))["traceEvents"]
    products = {event["name"] for event in events if event.get("cat") == "kernel" and PRODUCTS.search(event["name"])}
    assert products
    for name in products:
        found = decode(name)
        assert found is not None and found.tile is not None and found.a is not None, name


def test_a_scheme_says_where_its_meaning_is_told():
    assert len(GRAMMARS) >= 9
    assert all(grammar.source and grammar.parse("") is None for grammar in GRAMMARS.values())


def test_what_is_said_of_a_name_can_be_compared_and_kept():
    one, other = decode("volta_sgemm_64x64_nt"), decode("void volta_sgemm_64x64_nt(…)")
    assert isinstance(one, GemmName) and one == other and hash(one) == hash(other)
