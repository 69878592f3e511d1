"""Kernels by name and by family, and how much communication hides behind computing."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.kernels.family import FAMILIES, family
from ullage.recording import Device, Recording
from ullage.reports.trace.kernels import family_of, kernel_summary
from ullage.simulate.traces.scenario import EPOCH, Scenario, ScenarioEvent
from ullage.sums.lanes.gather import Capture, gather
from ullage.sums.lanes.kernels import OTHERS, Kernels, kernels, merge_kernels
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import merge
from ullage.sums.lanes.spans import Spans, spans
from ullage.tables import intervals

NAMES = [
    ("nvjet_tst_192x192_64x3_2x1_v_bz_coopB_NTN", "gemm"),
    ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(Params)", "gemm"),
    ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0", "gemm"),
    ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16>(cublasGemvParamsEx<int>)", "gemm"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "gemm"),
    ("_ZN5aiter47bf16gemm_fp32bf16_tn_48x64_splitk_cleanE", "gemm"),
    ("fused_moe_kernel", "gemm"),
    ("triton_tem_fused_mm_3", "gemm"),
    ("gemm_fusion_dot_12", "gemm"),
    ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "convolution"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc", "convolution"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x64x8", "convolution"),
    ("_ZN2ck16tensor_operation6device39kernel_grouped_conv_fwd_xdl_cshuffle_v3E", "convolution"),
    ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>(flash::Flash_fwd_params)", "attention"),
    ("void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90>>>(Params)", "attention"),
    ("_ZN7ck_tile6kentryINS_13FmhaFwdKernelE", "attention"),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(AttentionKernel::Params)", "attention"),
    ("kernel_unified_attention_2d", "attention"),
    ("void vllm::paged_attention_v2_kernel<__half, __half, 128>(float*)", "attention"),
    ("triton_tem_fused_flex_attention_0", "attention"),
    ("void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16>(void)", "copy"),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective"),
    ("void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)", "collective"),
    ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>", "copy"),
    ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)", "copy"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >", "memset"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >", "elementwise"),
    ("void vllm::act_and_mul_kernel<c10::Half, &vllm::silu_kernel<c10::Half>, true>(c10::Half*)", "elementwise"),
    ("triton_poi_fused_add_addmm_silu_22", "elementwise"),
    ("triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10", "elementwise"),
    ("loop_add_fusion", "elementwise"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>", "reduction"),
    ("input_reduce_fusion_3", "reduction"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)", "normalisation"),
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", "normalisation"),
    ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)", "normalisation"),
    ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>(c10::BFloat16*)", "softmax"),
    ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)", "optimiser"),
    ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(at::cuda::detail::TensorInfo)", "gather"),
    ("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, float, int>::Policy800>(int*)", "sort"),
    ("void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int>>(int*)", "scan"),
    ("triton__0d1d2d3d", "triton"),
    ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)", "pooling"),
]


@pytest.mark.parametrize(("name", "expected"), NAMES)
def test_a_name_tells_its_family(name: str, expected: str) -> None:
    assert family(name) == expected
    assert expected in FAMILIES


@pytest.mark.parametrize(
    "name",
    ["", "PdV_kernel(int, double*)", "heat_diffusion", "prelude_step", "compute_positions", "fused_stencil_3", "x" * 100_000, "\x1b[31m"],
)
def test_a_name_that_says_nothing_is_other(name: str) -> None:
    assert family(name) == "other"


def test_every_gemm_name_in_the_collection_is_a_gemm_unless_it_says_convolution(shared_data: Path) -> None:
    names = [line.split("\t")[0] for line in (shared_data / "gemm_kernel_names.txt").read_text().splitlines()]
    wrong = [name for name in names if family(name) != ("convolution" if re.search("scudnn|conv3d", name) else "gemm")]
    assert len(names) > 150
    assert wrong == []


def test_less_than_3_percent_of_a_real_two_gpu_training_is_other(shared_data: Path) -> None:
    path = shared_data / "nsys" / "nsysai_mfu_2gpu_before.sqlite"
    query = "SELECT s.value, SUM(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName GROUP BY 1"
    with sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True) as database:
        times = Counter[str]()
        for name, time in database.execute(query):
            times[family(name)] += time
    assert times["other"] < 0.03 * times.total()
    assert times.most_common(1)[0][0] == "attention"


def capture_of(*rows: tuple[int, int, str, str]) -> Capture:
    """A capture of one device from (start, end, kind, name)."""
    start, end, kind, name = (list(column) for column in zip(*rows, strict=True))
    recording = Recording("a.json", devices={0: Device("G", "GPU-a")})
    return gather(
        [intervals({"start": start, "end": end, "kind": kind, "name": name, "device": [0] * len(rows), "bytes": [8] * len(rows)})],
        recording,
    )


def seen(low: int, high: int) -> dict[int, Spans]:
    """When that device is looked at."""
    return {0: spans((low, high))}


def test_kernels_are_summed_by_name_and_cut_at_the_window() -> None:
    # of a: 0–10 lies outside, 15–25 half inside, 30–50 whole; the copy runs 40–70 and is cut at 60
    found = kernels(
        capture_of((0, 10, "kernel", "a"), (15, 25, "kernel", "a"), (30, 50, "kernel", "a"), (40, 70, "memcpy", "HtoD")), seen(20, 60)
    )
    assert found.rows == (("a", "kernel", 2, 25, 20, 16), ("HtoD", "memcpy", 1, 20, 20, 8))


def test_a_kernel_without_duration_is_counted() -> None:
    found = kernels(capture_of((5, 5, "kernel", "a"), (0, 10, "lost", "b")), seen(0, 10))
    assert found.rows == (("a", "kernel", 1, 0, 0, 8),)


def test_names_beyond_the_limit_are_one_row_a_kind_and_said() -> None:
    rows = [(0, n, "kernel", f"k{n}") for n in range(1, 6)] + [(0, 1, "memcpy", "c")]
    found = kernels(capture_of(*rows), seen(0, 10), most=2)
    assert found.rows[:2] == (("k5", "kernel", 1, 5, 5, 8), ("k4", "kernel", 1, 4, 4, 8))
    assert found.rows[2:] == ((OTHERS, "kernel", 3, 6, 3, 24), (OTHERS, "memcpy", 1, 1, 1, 8))
    assert found.folded == 4


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from(["kernel", "memset"]), st.sampled_from("abc")), min_size=1)
)
def test_the_sums_of_parts_are_the_sums_of_the_whole(rows: list[tuple[int, int, str, str]]) -> None:
    rows = [(min(a, b), max(a, b), kind, name) for a, b, kind, name in rows]
    parts = [kernels(capture_of(row), seen(10, 40)) for row in rows]
    merged, whole = merge_kernels(parts), kernels(capture_of(*rows), seen(10, 40))
    assert sorted(merged.rows) == sorted(whole.rows)
    assert merge_kernels(parts, most=1).rows[:1] == merged.rows[:1]
    assert sum(row[3] for row in merge_kernels(parts, most=1).rows) == sum(row[3] for row in whole.rows)


def test_merging_nothing_is_nothing() -> None:
    assert merge_kernels([]) == Kernels()


def device(start: int, end: int, kind: str, name: str, stream: int = 7) -> ScenarioEvent:
    return ScenarioEvent(start, end, kind, name, 0, device=0, stream=stream)


def test_the_summary_tells_families_and_what_computing_hid() -> None:
    events = (
        device(0, 40, "kernel", "ampere_sgemm_128x64_nn"),
        device(40, 50, "kernel", "PdV_kernel"),
        device(30, 60, "collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9),  # 30–50 is hidden, 50–60 not
        device(45, 80, "memcpy", "Memcpy HtoD", 11),  # 45–60 runs beside kernels or the collective, 60–80 alone
    )
    scenario = Scenario("s", events, {0: 0}, {0: ("G", "GPU-a")})
    summary = kernel_summary(merge([reduce(gather(scenario.batches(), scenario.recording()))]))
    assert [(f.family, f.count, f.time, f.share) for f in summary.families] == [
        ("gemm", 1, 40, 0.5),
        ("collective", 1, 30, 0.375),
        ("other", 1, 10, 0.125),
    ]
    assert [(c.family, c.time) for c in summary.copies] == [("copy", 35)]
    (overlap,) = summary.overlap
    assert (overlap.collective, overlap.collective_exposed, overlap.collective_hidden) == (30, 10, 20 / 30)
    assert (overlap.memory, overlap.memory_exposed, overlap.memory_hidden) == (35, 20, 15 / 35)
    assert summary.overlap_all.collective == 30
    # 80 ns of kernels in 60 ns of time
    assert any("summed over streams" in note for note in summary.notes)


def test_a_device_that_two_captures_share_hides_across_them() -> None:
    # the collective of one process, 0–30, is hidden from 10 on by the other's kernel; copies 20–40 of both count once
    one = Scenario("one", (device(0, 30, "collective", "nccl"), device(20, 40, "memcpy", "c")), {0: 0}, {0: ("G", "GPU-a")})
    two = Scenario("two", (device(10, 35, "kernel", "k"), device(20, 40, "memcpy", "c")), {0: 1}, {0: ("G", "GPU-a")})
    run = merge([reduce(gather(s.batches(), s.recording())) for s in (one, two)])
    (overlap,) = kernel_summary(run).overlap
    assert (overlap.collective, overlap.collective_exposed) == (30, 10)
    assert (overlap.memory, overlap.memory_exposed) == (20, 5)
    assert run.devices[0].memory.start.tolist() == [EPOCH + 35]


def test_kinds_tell_the_family_where_names_do_not() -> None:
    assert [family_of("x", kind) for kind in ("collective", "graph", "memcpy", "memset", "kernel")] == [
        "collective",
        "graph",
        "copy",
        "memset",
        "other",
    ]


def test_a_run_without_devices_has_an_empty_summary() -> None:
    scenario = Scenario("s", (ScenarioEvent(0, 10, "mpi", "MPI_Barrier", 0, thread=1),), {0: 0})
    summary = kernel_summary(merge([reduce(gather(scenario.batches(), scenario.recording()))]))
    assert (summary.families, summary.kernels, summary.kernel_time) == ((), (), 0)
    assert summary.overlap_all.collective_hidden is None


def test_twenty_thousand_names_stay_bounded() -> None:
    count = 20_000
    columns = {
        "start": np.arange(count),
        "end": np.arange(count) + 1 + np.arange(count) % 7,
        "kind": ["kernel"] * count,
        "name": [f"kernel_{n}" for n in range(count)],
        "device": np.zeros(count, np.int32),
    }
    found = kernels(gather([intervals(columns)], Recording("a.json")), seen(0, 2 * count))
    assert len(found.rows) == 4001
    assert sum(row[2] for row in found.rows) == count
    assert found.folded == count - 4000
