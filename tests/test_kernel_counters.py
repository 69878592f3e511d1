"""What each kernel executed, by its counters: FLOPs, bytes, roofs; and the way from a plan to the table, with the double of CUPTI."""

from __future__ import annotations

import os
import shutil
import subprocess

import numpy as np
import pytest

from tests import cupti_double
from tests.cupti_counting import KERNELS, WORK, double, real
from ullage.cupti import dictionary
from ullage.cupti.counters.evaluate import Values, evaluate
from ullage.cupti.counters.recorded import counted, plan
from ullage.cupti.counters.wanted import wanted
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.gpus.measured import Ceiling, Ceilings
from ullage.live.launch import Recorder, environment
from ullage.reports.kernel_counters import kernel_counters

H100 = find("H100 SXM")
TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
GROUP = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum"
LEGACY = "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"


def values(*launches):
    """Return the values of some launches, each a kernel's name and its metrics."""
    metrics = tuple(dict.fromkeys(name for _, row in launches for name in row))
    grid = [[row.get(name, np.nan) for name in metrics] for _, row in launches]
    return Values(tuple(name for name, _ in launches), metrics, np.array(grid, float))


def only(launches, chip=H100, measured=None):
    (kernel,) = kernel_counters([values(*launches)], chip, measured).kernels
    return kernel


def test_a_kernel_at_the_peak_of_its_instruction_is_at_its_roof():
    # 989.4 TFLOP/s for 1 ms and hardly any bytes
    peak = H100.peak("bf16")
    kernel = only([("gemm", {TIME: 1e6, GROUP: peak * 1e-3, LEGACY: 0, READ: 1e6, WRITTEN: 1e6})])
    assert kernel.achieved == pytest.approx(1.0) and kernel.bound == "tensor" and kernel.legacy_share == 0
    assert kernel.intensity == pytest.approx(peak * 1e-3 / 2e6)


def test_what_a_roof_rests_on_is_said():
    h20 = find("H20")
    assert kernel_counters([values(("gemm", {TIME: 1e6, GROUP: 1e9}))], h20, notes=["before"]).notes == ("before", h20.warning)
    assert kernel_counters([values(("gemm", {TIME: 1e6, GROUP: 1e9}))], H100).notes == ()


def test_legacy_instructions_have_the_lower_roof_that_the_paper_measured():
    # mma reaches 62.9 % of the peak on Hopper: a kernel at half the peak is at 0.5 / 0.629 of its roof
    kernel = only([("old", {TIME: 1e6, LEGACY: 0.5 * H100.peak("bf16") * 1e-3, GROUP: 0, READ: 0, WRITTEN: 0})])
    assert kernel.achieved == pytest.approx(0.5 / 0.629) and kernel.legacy_share == 1


def test_on_ampere_the_same_instruction_has_the_whole_peak():
    a100 = find("A100 SXM")
    kernel = only([("old", {TIME: 1e6, LEGACY: 0.5 * a100.peak("bf16") * 1e-3, READ: 0, WRITTEN: 0})], a100)
    assert kernel.achieved == pytest.approx(0.5)


def test_a_kernel_that_only_moves_bytes_has_the_memorys_roof():
    # 3.35 TB/s for 1 ms are 3.35 GB; it moves 2 of them
    kernel = only([("copy", {TIME: 1e6, GROUP: 0, LEGACY: 0, READ: 1e9, WRITTEN: 1e9})])
    assert kernel.achieved == pytest.approx(2e9 / (H100.bandwidth * 1e-3)) and kernel.bound == "memory" and kernel.legacy_share is None


def test_measured_ceilings_go_before_the_makers():
    ceilings = Ceilings("NVIDIA H100 80GB HBM3", "", "2026-08-10", "", {"bf16": Ceiling(7e14, "x", "", "random", None, None)}, {})
    kernel = only([("gemm", {TIME: 1e6, GROUP: 7e11, LEGACY: 0, READ: 0, WRITTEN: 0})], measured=ceilings)
    assert kernel.achieved == pytest.approx(1.0)


def test_launches_of_one_name_are_one_kernel_weighted_by_time():
    # 1 µs at 10 % and 3 µs at 50 % tensor activity: (1 × 10 + 3 × 50) / 4 = 40 %
    launches = [("k", {TIME: 1e3, TENSOR: 10.0}), ("k", {TIME: 3e3, TENSOR: 50.0})]
    kernel = only(launches)
    assert kernel.launches == 2 and kernel.time == pytest.approx(4e-6) and kernel.tensor_active == pytest.approx(0.4)


@pytest.mark.parametrize("gone", [READ, TIME])
def test_what_was_not_counted_is_not_known_rather_than_zero(gone):
    row = {TIME: 1e6, GROUP: 1e9, LEGACY: 0, READ: 1e6, WRITTEN: 1e6}
    kernel = only([("k", {name: value for name, value in row.items() if name != gone})])
    assert kernel.achieved is None


def test_without_a_known_gpu_there_is_no_roof():
    assert only([("k", {TIME: 1e6, GROUP: 1e9, READ: 1, WRITTEN: 1})], None).roof_time is None


def test_nothing_counted_is_an_error():
    with pytest.raises(UllageError, match="no kernel was counted"):
        kernel_counters([], H100)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("no C compiler on this machine")
    from ullage.cupti.native.build import recorder

    return recorder()


def run(recorder, tmp_path, plan_bytes, *arguments, **faults):
    """Run the fake program with a plan; return its exit code and what its recordings hold of counters."""
    path = tmp_path / "plan"
    path.write_bytes(plan_bytes)
    (tmp_path / "out").mkdir()
    given = Recorder(recorder, tmp_path / "out", cupti_double.library(), (10,), "", extra={"ULLAGE_COUNTERS": str(path)})
    env = environment(given, {**os.environ, **cupti_double.environment(**faults)}, python=False)
    done = subprocess.run([str(cupti_double.program()), *arguments], env=env, capture_output=True, text=True)
    return done.returncode, [found for file in sorted((tmp_path / "out").glob("*.ullage")) for found in counted(file)]


def test_a_programs_kernels_are_counted_launch_by_launch(recorder, tmp_path):
    library = double()
    code, found = run(recorder, tmp_path, plan(library, "GH100", [WORK, KERNELS], 50), "--kernels", "8")
    assert code == 0 and len(found) == 1
    (one,) = found
    assert one.image.ranges == ("fake_kernel_0",) * 8 and one.dropped == 0 and one.image.chip == "GH100"
    counts = evaluate(one.image, library)
    assert counts.values[:, 1].tolist() == [1.0] * 8 and (counts.values[:, 0] == 200.0).all()  # each 200 µs: as wide a grid


def test_past_the_last_launch_that_was_asked_for_the_program_runs_on_uncounted(recorder, tmp_path):
    code, (one,) = run(recorder, tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "20")
    assert code == 0 and len(one.image.ranges) == 5


def test_forbidden_counters_leave_the_program_alone_and_say_why(recorder, tmp_path):
    code, found = run(
        recorder, tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "3", "--exit", "4", CUPTI_DOUBLE_FAULTS="privileges"
    )
    assert code == 4 and found == []


@pytest.mark.parametrize("plan_bytes", [b"", b"ULLAGE PLAN 1\n", b"ULLAGE PLAN 1\nranges 5\nconfig 999\nmetric x\n\n", b"\xff" * 100])
def test_what_is_no_plan_leaves_the_program_alone(recorder, tmp_path, plan_bytes):
    code, found = run(recorder, tmp_path, plan_bytes, "--kernels", "3")
    assert code == 0 and found == []


def test_metrics_that_a_chip_cannot_count_are_left_out_of_the_plan():
    made = plan(double(), "GH100", [WORK, "no__such_metric.sum", KERNELS], 5)
    assert made.count(b"metric ") == 2 and b"no__such" not in made


def test_the_real_planner_makes_a_plan_of_the_kernel_set():
    library = real()
    known = [metric.name for metric in dictionary.metrics("GH100")]
    made = plan(library, "GH100", list(wanted("kernel", known).values()), 100)
    head, _, config = made.partition(b"\n\n")
    assert f"config {len(config)}".encode() in head.split(b"\n") and head.count(b"metric sm__ops_path_tensor") > 10
