"""The rows of sustained-ceilings: which instruction on which GPU, for how long, and that they become sustained ceilings."""

from __future__ import annotations

import pytest

from tests.benches.bench_results import of_bench
from tests.benches.test_benches import TARGETS
from ullage.benches.bench import BENCHES, Case, LibraryCase, cases_for
from ullage.benches.operands import BF16, FP8, FP64, INT8
from ullage.benches.sustained_ceilings import fastest_product
from ullage.reports.bench.roofline import ceilings, roofline

ROWS = {
    "sm_80": ["BF16 mma", "BF16 PyTorch", "global memory reads", "FP16 mma", "TF32 mma", "INT8 mma", "FP64 mma"],
    "sm_90a": ["BF16 wgmma", "BF16 PyTorch", "global memory reads", "FP8 wgmma", "FP8 PyTorch", "FP16 wgmma", "TF32 wgmma", "INT8 wgmma",
               "FP64 mma"],
    "sm_103a": ["BF16 tcgen05.mma", "BF16 PyTorch", "global memory reads", "FP8 tcgen05.mma", "FP8 PyTorch", "FP16 tcgen05.mma",
                "TF32 tcgen05.mma"],
    "sm_120a": ["BF16 mma", "BF16 PyTorch", "global memory reads", "FP8 mma", "FP8 PyTorch", "FP16 mma", "TF32 mma", "INT8 mma"],
}  # fmt: skip


def cases(architecture, quick=False):
    return cases_for(BENCHES["sustained-ceilings"], TARGETS[architecture], quick)


@pytest.mark.parametrize("architecture", ROWS)
def test_there_is_one_row_a_precision_by_the_instruction_that_reaches_its_peak(architecture):
    assert [" ".join(map(str, case.labels.values())) for case in cases(architecture)] == ROWS[architecture]
    assert [" ".join(map(str, case.labels.values())) for case in cases(architecture, quick=True)] == ROWS[architecture][:3]


@pytest.mark.parametrize("architecture", TARGETS)
def test_every_row_is_on_random_data_for_more_than_five_seconds_after_more_than_one(architecture):
    for case in cases(architecture):
        assert case.data == "random" and 5.0 < case.seconds < 6.0 and 1.0 < case.settle < 1.5 and "power" in case.quantities
        assert isinstance(case, Case | LibraryCase) and bool(case.flops) != bool(case.bytes), "no point of the roofline"


def test_all_sms_multiply_the_whole_time():
    (first, *_) = cases("sm_90a")
    assert first.grid == 132 and first.flops == 132 * 2 * 4 * 2 * 64 * 256 * 16 * first.trips  # two warp groups, four slices


def test_what_a_gpu_lacks_or_emulates_has_no_fastest_product():
    assert fastest_product(FP8, TARGETS["sm_80"], "random") is None
    assert fastest_product(INT8, TARGETS["sm_103a"], "random") is None
    assert fastest_product(FP64, TARGETS["sm_89"], "random") is None
    assert fastest_product(BF16, TARGETS["sm_80"], "zero").data == "zero"


def test_a_recording_of_it_makes_sustained_ceilings_and_no_bursts():
    recorded = of_bench("sustained-ceilings")
    found = ceilings([recorded])
    assert set(found.sustained_flops) == {"bf16", "fp16", "tf32", "fp8", "int8", "fp64"} and set(found.sustained_bandwidth) == {
        "global memory"
    }
    assert (found.flops, found.bandwidth) == ({}, {})
    assert {roof.kind for roof in roofline([recorded], None).roofs} == {"sustained"} and roofline([recorded], None).points == ()
