"""Instructions of unmodified programs by SASS metrics: from the recorder, on the double of CUPTI, to the report of `ullage run --flops`."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.cupti import cupti_double, wheel_headers
from tests.recorder.recorder_runs import compiled, run_cuda
from tests.recorder.run_runs import environment
from tests.recorder.run_runs import run as ullage_run
from ullage.cupti.chunks import ChunkType, packed
from ullage.cupti.counters.sass_metrics import INSTRUCTIONS, METRICS, VARIABLE, executed_instructions
from ullage.errors import UllageError
from ullage.render.kernel_flops import view
from ullage.reports.counters.kernel_flops import program_flops

FFMA, FADD = (f"smsp__sass_thread_inst_executed_op_{deed}_pred_on" for deed in ("ffma", "fadd"))
GRID = 200  # of each of the fake program's kernels, which run for 200 µs
COUNTED = {INSTRUCTIONS: 3 * GRID, FFMA: 32 * GRID, FADD: 32 * GRID}  # of a launch, by the double's three instructions


def record(folder, *words, metrics=(INSTRUCTIONS, FFMA, FADD), **more):
    """Run the fake program with its instructions counted; return how it ended, and what was counted. CUPTI is as in NVIDIA's wheel."""
    given = {VARIABLE: ",".join(metrics), "ULLAGE_CUPTI": str(cupti_double.wheel())} | more
    ran = run_cuda(folder, *words, **given)
    return ran, executed_instructions(recording.path for recording in ran.recordings)


def problems(ran):
    return [(one["what"], one["code"]) for one in ran.only.info.get("problems", [])]


# --- the recorder ---


def test_each_launch_is_counted_once_and_launches_of_a_kernel_are_added_up(tmp_path):
    ran, found = record(tmp_path, "--kernels", "8")
    assert (ran.code, problems(ran), found.problems, found.dropped, found.chips) == (0, [], (), 0, ("GH100",))
    (kernel,) = found.kernels.values()
    assert list(found.kernels) == ["fake_kernel_0"] and kernel.launches == 8
    assert kernel.counts == {metric: 8 * count for metric, count in COUNTED.items()}


def test_kernels_are_told_apart(tmp_path):
    _, found = record(tmp_path, "--kernels", "6", "--names", "3")
    assert {name: kernel.launches for name, kernel in found.kernels.items()} == {f"fake_kernel_{n}": 2 for n in range(3)}
    assert all(kernel.counts[FFMA] == 2 * COUNTED[FFMA] for kernel in found.kernels.values())


def test_a_context_that_follows_another_is_counted_too(tmp_path):
    # the double refuses a device's second configuration before the first is taken back
    ran, found = record(tmp_path, "--kernels", "4", "--again")
    assert (ran.code, problems(ran)) == (0, [])
    assert found.kernels["fake_kernel_0"].launches == 8 and found.kernels["fake_kernel_0"].counts[FADD] == 8 * COUNTED[FADD]


def test_threads_that_launch_at_once_begin_to_count_once(tmp_path):
    ran, found = record(tmp_path, "--threads", "8", "--kernels", "3", "--microseconds", "200")
    assert (ran.code, problems(ran)) == (0, [])
    assert found.kernels["fake_kernel_0"].launches == 24 and found.kernels["fake_kernel_0"].counts[FFMA] == 24 * COUNTED[FFMA]


def test_metrics_that_the_chip_lacks_are_left_out_and_told_in_one_line(tmp_path):
    ran, found = record(tmp_path, "--kernels", "2", metrics=(FFMA, "no_such_metric", "nor_this"))
    assert ran.code == 0 and found.kernels["fake_kernel_0"].counts == {FFMA: 2 * COUNTED[FFMA]}
    assert (found.lacking, found.problems) == (("no_such_metric", "nor_this"), ())
    assert program_flops(found).notes == ("this chip does not count no_such_metric, nor_this",)


@pytest.mark.parametrize(
    ("fault", "refused"),
    [
        ("privileges", ("cuptiSassMetricsSetConfig", 35)),
        ("cuptiSassMetricsEnable=7", ("cuptiSassMetricsEnable", 7)),
        ("cuptiDeviceGetChipName=15", ("cuptiDeviceGetChipName", 15)),
    ],
)
def test_what_cupti_refuses_leaves_the_program_alone_and_is_said_once(tmp_path, fault, refused):
    ran, found = record(tmp_path, "--kernels", "3", "--exit", "4", CUPTI_DOUBLE_FAULTS=fault)
    assert (ran.code, problems(ran), found.kernels) == (4, [refused], {})
    with pytest.raises(UllageError, match="no kernel's instructions were counted") as caught:
        program_flops(found)
    assert "counting instructions failed" in caught.value.hint and refused[0] in caught.value.hint


def test_counts_that_cannot_be_read_are_said_and_counting_ends(tmp_path):
    ran, found = record(tmp_path, "--kernels", "3", CUPTI_DOUBLE_FAULTS="cuptiSassMetricsFlushData=999")
    assert ran.code == 0 and problems(ran) == [("cuptiSassMetricsFlushData", 999)]
    assert found.kernels["fake_kernel_0"].counts == {} and found.dropped == 3  # the double's instructions of one kernel
    report = program_flops(found)
    assert any("CUPTI dropped 3 records" in note for note in report.notes) and "counting instructions failed" in report.notes[0]
    assert report.kernels[0].instructions is None and report.flops == {}
    assert "3 launches of 1 kernel: their FLOPs are not known" in str(view(report).headline)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            ("cuptiSassMetricsFlushData", -1, "counting instructions"),
            "this CUPTI has no cuptiSassMetricsFlushData, which came with CUDA 12.5",
        ),
        (("counting instructions", 7, "more of them than can be read"), "not all instructions were counted: more of them than can be read"),
        (("counting every context", 7, "more than 16 live at once"), "not every context's instructions were counted: more than 16 live"),
    ],
)
def test_whatever_the_recorder_says_of_counting_is_told(tmp_path, problem, said):
    ran, _ = record(tmp_path, "--kernels", "1")
    listed = [dict(zip(("what", "code", "detail"), problem, strict=True))]
    with ran.only.path.open("ab") as file:
        file.write(packed(ChunkType.INFO, json.dumps({"problems": listed}).encode()))
    (told,) = executed_instructions([ran.only.path]).problems
    assert said in told


def test_where_a_callback_is_refused_nothing_is_counted_and_the_refusal_is_told(tmp_path):
    ran, found = record(tmp_path, "--kernels", "2", CUPTI_DOUBLE_FAULTS="cuptiEnableCallback=7")
    assert (
        ran.code == 0
        and found.kernels == {}
        and found.problems == ("not all instructions were counted: CUPTI refused to say when kernels are launched",)
    )


# --- structures, by NVIDIA's header ---

SIZES = r"""
#include <stdbool.h>
#include <stdio.h>
#include <cupti_sass_metrics.h>
int main(void) {
    printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu\n", (size_t)CUpti_SassMetrics_GetProperties_Params_STRUCT_SIZE,
           (size_t)CUpti_SassMetricsSetConfig_Params_STRUCT_SIZE, (size_t)CUpti_SassMetricsUnsetConfig_Params_STRUCT_SIZE,
           (size_t)CUpti_SassMetricsEnable_Params_STRUCT_SIZE, (size_t)CUpti_SassMetricsDisable_Params_STRUCT_SIZE,
           (size_t)CUpti_SassMetricsGetDataProperties_Params_STRUCT_SIZE, (size_t)CUpti_SassMetricsFlushData_Params_STRUCT_SIZE,
           sizeof(CUpti_SassMetrics_Data), sizeof(CUpti_SassMetrics_Config));
}
"""


def test_sizes_are_those_of_every_header_that_is_here():
    found = 0
    for folders, number in wheel_headers.headers():
        if not (folders[0] / "cupti_sass_metrics.h").exists():
            continue
        program = compiled(SIZES, f"sizes-{number}", tuple(f"-I{folder}" for folder in folders))
        told = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
        assert told.split() == ["56", "36", "20", "25", "32", "40", "40", "48", "16"], number
        found += 1
    assert found


# --- from recordings to the report ---


def test_flops_are_two_for_a_fused_multiply_add_and_one_for_an_addition(tmp_path):
    _, found = record(tmp_path, "--kernels", "5")
    report = program_flops(found)
    assert report.flops == {"fp32": 5 * 3 * 32 * GRID}
    assert [(one.name, one.launches, one.instructions) for one in report.kernels] == [("fake_kernel_0", 5, 5 * 3 * GRID)]


@pytest.mark.parametrize(
    "told",
    [
        b"no JSON", b"{}", b'{"chip": "GH100", "dropped": 0, "metrics": ["a"], "lacking": [], "kernels": [[1, 1]]}',
        b'{"chip": "GH100", "dropped": 0, "metrics": [], "lacking": [], "kernels": [[1, -1]]}',
        b'{"chip": "GH100", "dropped": "x", "metrics": [], "lacking": [], "kernels": []}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_count_is_left_out_and_noted(tmp_path, told):
    ran, found = record(tmp_path, "--kernels", "2")
    with ran.only.path.open("ab") as file:
        file.write(packed(ChunkType.SASS, told))
    again = executed_instructions([ran.only.path])
    assert again.kernels == found.kernels and again.problems == ("some counts are damaged, and were left out",)


def test_the_metrics_that_are_asked_for_are_of_sass_and_of_every_vector_type():
    assert len(METRICS) == len(set(METRICS)) == 13
    assert all(name.startswith("smsp__sass_") and not name.endswith(".sum") for name in METRICS)


def test_the_report_is_printed_and_its_data_written(tmp_path):
    json_out = tmp_path / "flops.json"
    ran = ullage_run(
        tmp_path, "--flops", "--json", json_out,
        command=[cupti_double.program(), "--kernels", "4"], given=environment(tmp_path, ULLAGE_CUPTI=str(cupti_double.wheel())),
    )  # fmt: skip
    assert ran.code == 0 and "4 launches of 1 kernel: 76.8 k FLOP in FP32" in ran.said
    told = json.loads(json_out.read_text())
    assert told["flops"] == {"fp32": 4 * 3 * 32 * GRID} and told["exit"] == 0 and told["kernels"][0]["launches"] == 4


@pytest.mark.parametrize("other", [("--stalls",), ("--kernels", "5"), ("--by", "rank"), ("--out", "x.html"), ("--talp", "x.json")])
def test_what_takes_the_place_of_a_trace_is_asked_for_alone(tmp_path, other):
    ran = ullage_run(tmp_path, "--flops", *other)
    assert ran.code == 2 and other[0] in ran.said


def test_where_nothing_was_counted_the_reason_is_said_and_no_file_written(tmp_path):
    given = environment(tmp_path, ULLAGE_CUPTI=str(cupti_double.wheel()), CUPTI_DOUBLE_FAULTS="privileges")
    ran = ullage_run(tmp_path, "--flops", "--json", tmp_path / "x.json", given=given)
    assert ran.code == 0 and "no kernel's instructions were counted: counting instructions failed" in ran.said
    assert "x.json is not written: nothing was counted" in ran.said and not (tmp_path / "x.json").exists()
