"""What each kernel executed, by its counters: FLOPs, bytes, roofs; and the way from a plan to the table, with the double of CUPTI."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cupti import cupti_double
from tests.cupti.cupti_counting import KERNELS, WORK, double, real
from tests.recorder.recorder_runs import compiled, run_cuda
from ullage.cupti.counters.evaluate import Values, evaluate
from ullage.cupti.counters.recorded import counted, plan
from ullage.cupti.counters.wanted import wanted
from ullage.cupti.metric_names import dictionary
from ullage.cupti.native.build import FOLDER
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.gpus.measured import Ceilings, MeasuredCeiling
from ullage.live.counting import evaluated
from ullage.problems import Problems
from ullage.reports.counters.kernel_counters import kernel_counters

PERFWORKS = ("libnvperf_target.so", "libnvperf_host.so")
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
    sustained = {"bf16": MeasuredCeiling(6e14, "x")}  # a kernel by itself is a burst
    ceilings = Ceilings("NVIDIA H100 80GB HBM3", "", "2026-08-10", "", {"bf16": MeasuredCeiling(7e14, "x", "", "random")}, {}, sustained)
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


def run(folder, plan_bytes, *arguments, **environment):
    """Run the fake program with a plan; return how it ended, and what its recordings hold of counters. CUPTI is as in NVIDIA's wheel."""
    path = folder / "plan"
    path.write_bytes(plan_bytes)
    given = {"ULLAGE_COUNTERS": str(path), "ULLAGE_CUPTI": str(cupti_double.wheel())} | environment
    ran = run_cuda(folder, *arguments, **given)
    return ran, [found for recording in ran.recordings for found in counted(recording.path)]


def problems(ran):
    """Return what CUPTI refused, as (call, answer)."""
    return [(one["what"], one["code"]) for one in ran.only.info.get("problems", [])]


def test_a_programs_kernels_are_counted_launch_by_launch(tmp_path):
    library = double()
    ran, (one,) = run(tmp_path, plan(library, "GH100", [WORK, KERNELS], 50), "--kernels", "8")
    assert (ran.code, problems(ran)) == (0, [])
    assert one.image.ranges == ("fake_kernel_0",) * 8 and one.dropped == 0 and one.image.chip == "GH100"
    counts = evaluate(one.image, library)
    assert counts.values[:, 1].tolist() == [1.0] * 8 and (counts.values[:, 0] == 200.0).all()  # each 200 µs: as wide a grid


def test_past_the_last_launch_that_was_asked_for_the_program_runs_on_uncounted(tmp_path):
    ran, (one,) = run(tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "20")
    assert (ran.code, problems(ran)) == (0, []) and len(one.image.ranges) == 5


def test_threads_that_launch_at_once_begin_to_count_once(tmp_path):
    # the double refuses to be enabled twice, and to count where another order of calls was taken; 8 threads launch 3 kernels each
    ran, (one,) = run(tmp_path, plan(double(), "GH100", [WORK], 60), "--threads", "8", "--kernels", "3", "--microseconds", "20")
    assert (ran.code, problems(ran)) == (0, []) and one.image.ranges == ("fake_kernel_0",) * 24


def test_every_way_to_launch_is_counted(tmp_path):
    # cuLaunchCooperativeKernelMultiDevice and a graph, beside the two kernels of cuLaunchKernel
    ran, (one,) = run(tmp_path, plan(double(), "GH100", [WORK], 50), "--kernels", "2", "--cooperative", "1", "--graphs", "1")
    assert (ran.code, problems(ran)) == (0, [])
    assert one.image.ranges == ("fake_kernel_0", "fake_kernel_0", "cooperative", "(graph)")


def test_each_of_two_contexts_that_follow_one_another_is_counted(tmp_path):
    ran, found = run(tmp_path, plan(double(), "GH100", [WORK], 50), "--kernels", "4", "--again")
    assert (ran.code, problems(ran)) == (0, []) and [len(one.image.ranges) for one in found] == [4, 4]


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("privileges", ("cuptiProfilerGetCounterAvailability", 35)),  # asked before anything is begun
        ("cuptiRangeProfilerEnable=26", ("cuptiRangeProfilerEnable", 26)),
        ("cuptiRangeProfilerStart=35", ("cuptiRangeProfilerStart", 35)),
    ],
)
def test_forbidden_counters_leave_the_program_alone_and_say_which_call_was_refused_once(tmp_path, fault, refused):
    ran, found = run(tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "3", "--exit", "4", CUPTI_DOUBLE_FAULTS=fault)
    assert (ran.code, found, problems(ran)) == (4, [], [refused])


@pytest.mark.parametrize("plan_bytes", [b"", b"ULLAGE PLAN 2\n", b"ULLAGE PLAN 2\nranges 5\nconfig 999\nmetric x\n\n", b"\xff" * 100])
def test_what_is_no_plan_leaves_the_program_alone(tmp_path, plan_bytes):
    ran, found = run(tmp_path, plan_bytes, "--kernels", "3")
    assert ran.code == 0 and found == []


# -- the libraries that libcupti counts with --------------------------------------------------------------------------


def test_the_libraries_beside_libcupti_are_loaded_and_told(tmp_path):
    ran, (one,) = run(tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "3")
    folder = cupti_double.wheel().parent
    assert ran.only.info["perfworks"] == {name: str(folder / name) for name in PERFWORKS} and one.foreign == ""


def test_where_none_lie_beside_libcupti_those_that_the_linker_finds_are_loaded_and_told(tmp_path):
    alone = tmp_path / "libcupti.so.13"
    alone.write_bytes(cupti_double.library().read_bytes())
    elsewhere = cupti_double.wheel().parent
    path = f"{cupti_double.driver().parent}:{elsewhere}"
    ran, found = run(tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "3", ULLAGE_CUPTI=str(alone), LD_LIBRARY_PATH=path)
    assert ran.only.info["perfworks"] == {name: str(elsewhere / name) for name in PERFWORKS}
    assert [one.foreign for one in found] == [str(elsewhere / "libnvperf_host.so")]
    problems = Problems()
    list(evaluated([ran.only.path], double(), problems))
    words = f"libcupti counted with {elsewhere}/libnvperf_host.so, which is not the library beside it: is it of its release?"
    assert problems.lines() == [words]


def test_a_library_that_the_program_has_loaded_is_the_one_that_cupti_takes_and_is_told(tmp_path):
    other = tmp_path / "libnvperf_host.so"
    other.write_bytes((cupti_double.wheel().parent / other.name).read_bytes())
    ran, _ = run(tmp_path, plan(double(), "GH100", [WORK], 5), "--kernels", "3", LD_PRELOAD=str(other))
    assert ran.only.info["perfworks"][other.name] == str(other)


ASK_NVIDIAS = r"""
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include "recorder.h"
void problem(const char *what, int code, const char *detail) { printf("%s: %d %s\n", what, code, detail); }
int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    struct { size_t size; void *none; int use; const char *chip; void *available, *host; } initialize = {48, NULL, 0, "GH100", NULL, NULL};
    int (*ask)(void *) = library ? (int (*)(void *))dlsym(library, "cuptiProfilerHostInitialize") : NULL;
    if (count > 2) perfworks_load((const void *)ask);
    printf("%d\n", ask ? ask(&initialize) : -1);
}
"""


def test_nvidias_own_library_counts_once_perfworks_is_loaded_where_the_linker_knows_none():
    # the linker's cache is left out, in which a toolkit may stand; without libnvperf the library answers 15, NOT_INITIALIZED
    linker = next(iter(sorted(Path("/").glob("lib*/ld-linux-*.so.*"))), None) or pytest.skip("no dynamic linker of GNU's")
    native = [str(FOLDER / name) for name in ("perfworks.c", "text.c")]
    program = compiled(ASK_NVIDIAS, "ask", (f"-I{FOLDER}", *native))
    command = [str(linker), "--inhibit-cache", str(program), str(real().path)]
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    told = [subprocess.run([*command, *more], env=environment, capture_output=True, text=True).stdout for more in ([], ["load"])]
    assert told == ["15\n", "0\n"]


def test_metrics_that_a_chip_cannot_count_are_left_out_of_the_plan():
    made = plan(double(), "GH100", [WORK, "no__such_metric.sum", KERNELS], 5)
    assert made.count(b"metric ") == 2 and b"no__such" not in made


def test_the_real_planner_makes_a_plan_of_the_kernel_set():
    library = real()
    known = [metric.name for metric in dictionary.metrics("GH100")]
    made = plan(library, "GH100", list(wanted("kernel", known).values()), 100)
    head, _, config = made.partition(b"\n\n")
    assert f"config {len(config)}".encode() in head.split(b"\n") and head.count(b"metric sm__ops_path_tensor") > 10
