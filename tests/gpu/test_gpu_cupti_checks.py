"""The checks of CUPTI: what they make of programs on a perfect GPU and of faulty ones, and their programs on the doubles of CUPTI."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import time
from dataclasses import fields, replace
from pathlib import Path

import pytest
from gpu.check import CHECKS, NotMeasured, checks
from gpu.cupti_device import SPIN, SPIN_PTX
from gpu.cupti_load_program import Meeting, Program
from gpu.cupti_loads import LOADS, Load, Work
from gpu.cupti_recording import seen, small

from gpu import (
    apart,
    check_cupti_attach,
    cupti_counters_program,
    cupti_flops_program,
    cupti_loads,
    cupti_pc_program,
    cupti_pm_program,
    cupti_tools,
)
from tests.cupti import cupti_double
from tests.cupti.cupti_counting import CONTEXT, KERNELS, RARE, WORK, double, real
from tests.cupti.test_checkpoint import Double as CheckpointDouble
from tests.gpu.gpu_cupti_double import UUID, Programs
from tests.gpu.gpu_double import Simulated, World
from tests.recorder.recorder_runs import library as recorder
from ullage.cupti.checkpoint import Checkpoint
from ullage.cupti.chunks import ChunkType, chunks
from ullage.cupti.kinds import ActivityKind
from ullage.cupti.library import Library
from ullage.cupti.pc_sampling.configuration import Configuration
from ullage.cupti.pc_sampling.context import SampledContext
from ullage.kernels.compiling import compile_cubin

checks()
START = Path(__file__).with_name("gpu_cupti_start.py")


def found(name, **given):
    """Return what a check finds on a perfect GPU but for `change`, `codes`, `lose`."""
    world = World()
    for key, value in given.items():
        setattr(world.programs, key, value)
    return CHECKS[name].function(world.machine())


# --- on a perfect GPU, and with faults ---


def test_the_trees_of_the_use_cases_are_those_of_the_closed_form():
    findings = found("cupti_trees")
    assert findings.wrong == [] and findings.answers["worst_alone"] < 1e-9 and findings.answers["worst_shared"] < 1e-9
    rows = {row["case"]: row for row in findings.rows}
    assert list(rows) == list(LOADS)
    # use case 5: 60 ms of kernel, then 120 and 12 ms of host, three rounds: K = 180 of E = 540 ms; U = 360 + 36 of 2 E
    assert rows["5"]["parallel_efficiency"] == pytest.approx(180 / 540) and rows["5"]["kernel"] == 0.18
    assert rows["5"]["host_parallel_efficiency"] == pytest.approx((360 + 36) / 1080)
    # overlapped, the host computes all along
    assert rows["7 overlapped"]["host_parallel_efficiency"] == rows["7 overlapped"]["parallel_efficiency"] == 1


def test_a_program_whose_clock_says_otherwise_than_its_recording_fails_the_trees():
    wrong = found("cupti_trees", change={"load": {"calls": 0}}).wrong
    assert "host_parallel_efficiency of use case 7 is 0.500 off the closed form" in wrong


def test_flops_of_an_unmodified_program_are_the_closed_form_and_others_are_wrong(monkeypatch):
    findings = found("cupti_flops")
    assert findings.wrong == [] and findings.answers == {
        "fp32": 1.0, "fp64": 1.0, "launches": 50, "slowdown": 3.0, "dropped": 0, "lacking": 1,
    }  # fmt: skip
    # 50 launches of 264 × 256 threads, 1,000 rounds of four multiply-adds and an addition, and of a multiply-add
    assert [findings.rows[1][kind] for kind in ("fp32", "fp64")] == [50 * 264 * 256 * 1000 * flops for flops in (9, 2)]
    monkeypatch.setattr(cupti_flops_program, "FP64", 3)
    assert found("cupti_flops").wrong == ["6,758,400,000 FLOPs are counted in FP64, where the kernel does 10,137,600,000"]
    assert found("cupti_flops", codes={"flops": -11}).wrong[0].endswith("the program ended with signal 11 (it said so)")
    monkeypatch.setattr(sys.modules["tests.gpu.gpu_cupti_double"], "executed", lambda path: None)
    with pytest.raises(NotMeasured, match="nothing was counted"):
        found("cupti_flops")


def test_stalls_of_an_unmodified_program_are_those_of_its_recording_and_one_that_samples_nothing_is_wrong():
    findings = found("cupti_stalls")
    assert findings.wrong == [] and [row["samples"] for row in findings.rows] == [0, 90, 90]
    # 10 of 100 samples dropped; 1.25 s in place of 1
    assert findings.answers == {"samples": 90, "with_code": 1.0, "dropped": 0.1, "slowdown": 1.25, "agree": 1.0, "ended": True}
    assert found("cupti_stalls", codes={"stalls": -11}).wrong[0].endswith("the program ended with signal 11 (it said so)")


def test_nccl_must_tell_each_collective_once_and_with_one_gpu_there_is_none():
    findings = found("cupti_nccl")
    assert findings.wrong == [] and findings.answers["collectives"] == findings.answers["expected"] == 2 * 50
    alone = found("cupti_nccl", change={"nccl": {"gpus": 1}})
    assert alone.wrong == [] and (alone.answers["communicators"], alone.answers["expected"]) == (1, 0)
    wrong = found("cupti_nccl", lose=10).wrong
    # every tenth of 100 is missing, all of them of rank 0
    assert wrong == ["90 collectives were told, and 100 made", "the collectives are not numbered 0, 1, … on each rank"]
    with pytest.raises(NotMeasured, match=r"NCCL 2\.26\.2 has no version 4"):
        found("cupti_nccl", change={"nccl": {"nccl": [2, 26, 2]}})


def test_kernels_that_are_not_recorded_fail_the_trees_and_the_training():
    assert any(line.startswith("3 kernels of use case 7 were recorded, and 4 launched") for line in found("cupti_trees", lose=4).wrong)
    # of 69 + 1000 + 201 kernels every tenth is missing: 100 of the thousand, 20 of the graph's 201
    wrong = found("cupti_training", lose=10).wrong
    assert wrong[:2] == ["90.0% of the counted kernels are recorded", "90.0% of the graph's kernels are recorded"]


def test_pytorchs_profiler_that_sees_other_times_fails_the_trees():
    # 1.236e8 less the first kernel's 1e5 ns is 2.9 % more than 1.2e8
    wrong = found("cupti_trees", change={"load": {"kineto_time": 1.236e8}}).wrong
    assert any(line.endswith("off that of PyTorch's profiler") for line in wrong)


def test_a_program_that_crashes_is_told_and_one_that_hangs_ends_the_check():
    assert found("cupti_attach", codes={"attach": -11}).rows[0]["problem"] == "the program ended with signal 11 (it said so)"
    with pytest.raises(RuntimeError, match="use case 7 hangs: the program did not end in time"):
        found("cupti_trees", codes={"load": None})
    with pytest.raises(RuntimeError, match="ended with 1"):
        found("cupti_training", codes={"training": 1})
    world = World()
    world.programs.codes["overhead"] = None
    with pytest.raises(RuntimeError, match="'launch' by activity could not be measured: the program did not end in time"):
        CHECKS["cupti_overhead"].function(world.machine())
    assert len(world.programs.ran) == 1, "the next would hang, too"


@pytest.mark.parametrize(("stage", "answer"), [("graphs", "graphs"), ("graphs_made", "graphs_again"), ("graphs_paused", "graphs_again")])
@pytest.mark.parametrize("last", ["before", "recorded", "stopped", "resumed"])
def test_a_program_that_its_graphs_killed_is_told_with_when(stage, answer, last):
    parts = check_cupti_attach.GRAPH_PARTS
    answers = found("cupti_attach").answers
    assert [answers[name] for name in ("graphs", "graphs_again", "graphs_forced")] == ["after", "after", "stopped"]
    lived = {part: parts.index(part) <= parts.index(last) for part in parts}
    findings = found("cupti_attach", change={("attach", stage): lived})
    assert findings.answers[answer] == last and findings.wrong == [f"a program that replays CUDA graphs lived until '{last}'"]


def test_training_without_ranges_or_with_another_walk_fails():
    assert found("cupti_training", change={"training": {"steps": 43}}).wrong == ["50.0% of the NVTX ranges are recorded"]
    assert found("cupti_training", change={"walk": {"disagreed": 2}}).wrong == ["2 buffers are walked otherwise by NVIDIA's library"]
    assert found("cupti_training", change={"training": {"tree": {}}}).wrong == ["region.tree() saw no kernel while the program ran"]


def test_the_cost_of_recording_is_the_median_of_pairs_and_fails_when_it_is_surely_above_one_percent():
    answers = found("cupti_overhead").answers
    # 10 kernels a step of 1 ms, 0.4 % more with the recorder. Where a step takes 0.1 ms without it, it takes 0.055 % more with it stopped:
    # 55 ns, and 0.4 % of that and 455 ns in all with it
    assert answers["loss"] == pytest.approx(0.004) and answers["launches"] == pytest.approx(9955, abs=1)
    assert (answers["launch_ns"], answers["launch_ns_stopped"]) == pytest.approx((45.5, 5.5), abs=0.1)
    slow = {("overhead", "steady"): {"on": [0.00102] * 12, "off": [0.001] * 12}}
    assert found("cupti_overhead", change=slow).wrong == ["recording costs a step 2.00%, and surely more than 1%"]
    noisy = {("overhead", "steady"): {"on": [0.00102, 0.00098] * 6, "off": [0.001] * 12}}
    assert found("cupti_overhead", change=noisy).wrong == []


def test_counters_that_are_refused_are_explained_and_not_measured():
    refused = {"refused": "counting is forbidden", "hint": "run as root", "counters": "no", "findings": ["the driver keeps counters"]}
    world = World()
    world.programs.counters = lambda *words, environment: refused
    with pytest.raises(NotMeasured, match=r"counting is forbidden \(run as root\); counters: no; the driver keeps counters"):
        CHECKS["cupti_counters"].function(world.machine())


TAKEN = {
    "refused": "beginning to count failed",
    "hint": "stop the other one",
    "call": "cuptiRangeProfilerEnable",
    "code": 26,
    "taken": True,
}


def test_counters_that_another_profiler_has_are_not_measured():
    world = World()
    world.programs.counters = lambda *words, environment: TAKEN
    words = r"another profiler has the GPU's counters: cuptiRangeProfilerEnable answered 26 \(stop the other one\)$"
    with pytest.raises(NotMeasured, match=words):
        CHECKS["cupti_counters"].function(world.machine())
    findings = found("cupti_attach", change={("attach", "counters"): {"counted": None} | TAKEN})
    assert findings.wrong == [] and findings.answers["counters"] is None
    assert any("another profiler has the GPU's counters" in note for note in findings.notes)


def test_the_evidence_says_what_ran_and_what_could_not():
    own = {"load": "tensor-core kernels of ours", "missing": ["wgmma kernel: there is no NVRTC"]}
    findings = found("cupti_counters", change={"counters": own})
    assert findings.settings["load"] == own["load"] and own["missing"][0] in findings.notes
    assert found("cupti_pm_sampling", change={("pm", "product"): {"load": "a kernel of ours"}}).settings["load"] == "a kernel of ours"
    assert {row["load"] for row in found("cupti_overhead", change={"overhead": {"load": "kernels of ours"}}).rows} == {"kernels of ours"}
    by_driver = {"compiled_by": "the driver, from PTX", "without_nvrtc": "there is no NVRTC"}
    findings = found("cupti_pc_sampling", change={"pc": by_driver})
    assert findings.settings["compiled_by"] == "the driver, from PTX"
    assert "the kernel has no line numbers, as the driver compiled it: there is no NVRTC" in findings.notes


def test_these_checks_need_no_pytorch():
    assert [name for name, check in CHECKS.items() if name.startswith("cupti_") and check.loaded] == ["cupti_training"]


def test_a_load_that_is_made_without_pytorch_is_no_pytorch(monkeypatch):
    # a real machine whose load comes from elsewhere: programs that import PyTorch are not started
    monkeypatch.setattr("gpu.check_cupti_training.library", lambda machine: cupti_double.library())
    made = replace(machine(), load=lambda *arguments: None)
    assert made.load is not None and not cupti_tools.has_pytorch(made)
    with pytest.raises(NotMeasured, match="no PyTorch that sees the GPU"):
        CHECKS["cupti_training"].function(made)
    assert cupti_tools.has_pytorch(World().machine()) and not cupti_tools.has_pytorch(World().machine(loaded=False))


def test_an_overhead_that_was_refused_is_not_measured():
    refused = {"refused": "no tensor-core kernel runs here", "hint": ""}
    world = World()
    world.programs.overhead = lambda *words, environment: refused
    with pytest.raises(NotMeasured, match="'steady' by activity was refused: no tensor-core kernel runs here"):
        CHECKS["cupti_overhead"].function(world.machine())


@pytest.mark.parametrize(
    ("silent", "again", "wrong"),
    [
        ((), "yes", []),
        (("second",), "only before a new context", []),
        (("fresh",), "yes", []),
        (("second", "fresh"), "no", ["the recorder did not come in a second time"]),
    ],
)
def test_a_recorder_that_comes_back_with_a_new_context_alone_is_an_answer(silent, again, wrong):
    findings = found("cupti_attach", silent=silent)
    assert (findings.answers["again"], findings.answers["attached"], findings.wrong) == (again, 1.0, wrong)


def test_what_each_way_to_keep_samples_gives_is_told_in_words():
    assert found("cupti_pm_sampling").answers["ways"] == (
        "oldest in 8 MiB, read every 20 ms: 400 of 500 came, 100 after the end. "
        "latest in 8 MiB, read at the end: 0 of 500 came, 500 after the end; +8 MiB of the host's memory"
    )
    refused = [{"keep": "latest", "buffer": 8 << 20, "every": 0.0, "refused": "cuptiPmSamplingSetConfig answered 27"}]
    answers = found("cupti_pm_sampling", change={("pm", "product"): {"ways": refused}}).answers
    assert answers["ways"] == "latest in 8 MiB, read at the end: cuptiPmSamplingSetConfig answered 27"


def test_counters_that_contradict_themselves_fail():
    row = {"kind": "product", "precision": "bf16", "size": 8, "kernels": 1, "counted": 1100.0, "needed": 1024, "identity": -0.05}
    change = {("counters", "products"): {"rows": [row]}, ("counters", "user"): {"user_result": 9.0}}
    findings = found("cupti_counters", change=change)
    assert findings.answers["exact"] == 0 and findings.rows[0]["difference"] == 76
    assert findings.wrong == [
        "the shares of tensor cycles contradict one another by 5.0%",
        "after user replay with a checkpoint the device holds 9 in place of 1",
    ]


def test_pm_sampling_is_held_against_gpm_and_against_windows_without_it():
    locked = {"clock": 1.2e9, "burst": 0.03, "pm_tensor_active": 0.75, "pm_sm_active": 0.99, "pm_sm_clock": 1.2e9, "samples": 1500}
    findings = found("cupti_pm_sampling", change={"pm": {"pm": locked}})
    # 1.2 GHz where 1.5 was before and after; bursts of 30 ms where they took 25; 0.75 where GPM says 0.70
    assert findings.answers["clock_shift"] == pytest.approx(-0.2) and findings.answers["burst_shift"] == pytest.approx(0.2)
    assert findings.wrong[0] == "tensor activity by PM sampling is +0.050 off GPM's" and findings.answers["samples"] == 750


def test_pm_sampling_without_samples_is_not_measured():
    refused = {"pm_problem": "somebody samples already"}
    with pytest.raises(NotMeasured, match="pm: somebody samples already"):
        found("cupti_pm_sampling", change={("pm", "product"): {"pm": refused, "both": refused}})


def test_pm_sampling_beside_another_profiler_is_not_measured_and_says_so():
    refused = {"samples": None, "pm_problem": "beginning to sample failed", "taken": True}
    with pytest.raises(NotMeasured, match=r"pm: beginning to sample failed \(another profiler has the GPU's counters\)"):
        found("cupti_pm_sampling", change={("pm", "product"): {"pm": refused, "both": refused}})


EQUAL, GROWING, NEITHER = [1000, 1010, 990, 1000], [1000, 2000, 3010, 4000], [1, 90, 7, 1]


@pytest.mark.parametrize(("totals", "cumulative"), [(EQUAL, False), (GROWING, True), (NEITHER, None)])
def test_totals_of_equal_work_tell_whether_cupti_counts_on(totals, cumulative):
    ranges = [{"total": total, "dropped": 0, "other": 0, "base": 500, "latency": 100, "readings": 1} for total in totals]
    answers = found("cupti_pc_sampling", change={("pc", "calls"): {"ranges": ranges}}).answers
    assert answers["cumulative"] is cumulative and answers["subset"] == 0.2 and answers["counted"] == 2000 / sum(totals)


def test_permissions_that_say_otherwise_than_what_happens_fail():
    no = {"report": {"tracing": "yes", "counters": "no", "findings": []}}
    assert found("cupti_attach", change={("attach", "counters"): no}).wrong == ["permissions say that counting is forbidden, and it works"]
    none = {"counted": None}
    wrong = found("cupti_attach", change={("attach", "counters"): none}).wrong
    assert wrong == ["permissions say that counting is allowed, and it does not work"]


def test_without_a_driver_nothing_of_cupti_is_measured(monkeypatch):
    monkeypatch.setattr("gpu.cupti_tools.cuda_version", lambda: None)
    world = World()
    world.cupti = None
    for name in (name for name in CHECKS if name.startswith("cupti_")):
        with pytest.raises(NotMeasured, match="no NVIDIA driver answers"):
            CHECKS[name].function(world.machine())


def test_a_carried_recorder_that_this_machine_cannot_load_is_told_by_every_check_that_needs_it(tmp_path, monkeypatch):
    data = bytearray(recorder().read_bytes())
    data[18:20] = (4711).to_bytes(2, "little")
    (tmp_path / "recorder.so").write_bytes(data)
    monkeypatch.setenv("ULLAGE_RECORDER", str(tmp_path / "recorder.so"))
    words = f"ULLAGE_RECORDER names {tmp_path}/recorder.so, which is for machine 4711, and this machine is "
    with pytest.raises(NotMeasured, match=words):
        cupti_tools.needs_recorder(machine())
    monkeypatch.setattr(sys.modules["gpu.check_cupti_training"], "needs_pytorch", lambda _: None)
    for name in ("cupti_attach", "cupti_flops", "cupti_overhead", "cupti_stalls", "cupti_trees", "cupti_training"):
        monkeypatch.setattr(sys.modules[f"gpu.check_{name}"], "library", lambda _: Library(cupti_double.library()))
        with pytest.raises(NotMeasured, match=words):
            CHECKS[name].function(machine())


def test_a_carried_recorder_is_the_one_that_programs_get(tmp_path, monkeypatch):
    carried = tmp_path / "carried.so"
    carried.write_bytes(recorder().read_bytes())
    monkeypatch.setenv("ULLAGE_RECORDER", str(carried))
    cupti_tools.needs_recorder(machine())
    monkeypatch.setenv("ULLAGE_CUPTI", str(cupti_double.library()))
    assert cupti_tools.injected(machine(), tmp_path, [])["CUDA_INJECTION64_PATH"] == str(carried)
    copied = Path(check_cupti_attach._recorder(machine(), tmp_path)["ULLAGE_RECORDER"])
    assert copied.read_bytes() == carried.read_bytes() and copied.stat().st_mode & 0o555 == 0o555


# --- recordings that are kept ---


def test_a_kept_recording_is_short_and_names_neither_machine_nor_program(tmp_path):
    path = Programs().kernels(tmp_path, 3000)
    kept = gzip.decompress(small(path, UUID, most=100_000))
    assert b"node-1" not in kept and b"/usr/bin" not in kept and bytes.fromhex(UUID[4:].replace("-", "")) not in kept
    copy = tmp_path / "copy.ullage"
    copy.write_bytes(kept)
    whole, short = seen(path), seen(copy)
    # 500 events of 1000 to a buffer: 250 kernels each, and a buffer has some 90,000 bytes
    assert (
        len(whole.of(ActivityKind.CONCURRENT_KERNEL)) == 3000
        and 0 < len(short.of(ActivityKind.CONCURRENT_KERNEL)) < 3000
        and short.stopped == []
    )
    assert short.info["cupti"] == 130001 and "host" not in short.info and "pid" not in short.info and short.end is not None
    with copy.open("rb") as file:
        assert sum(len(chunk.payload) for chunk in chunks(file, "copy") if chunk.type == ChunkType.BUFFER) <= 100_000


# --- programs in processes of their own ---


def machine(**more):
    """Return a machine without PyTorch that starts real processes."""
    made = World().machine(loaded=False)
    kind = type("Starting", (Simulated,), {"programs": None, "cupti": None, **more})
    return kind(*(getattr(made, field.name) for field in fields(made)))


def python(code):
    return machine(start=[sys.executable, "-c", code])


def ran(code, limit=20.0):
    return apart.told(python(code), apart.asked("module", 1, "two"), limit)


def test_what_a_program_tells_line_by_line_is_laid_over_one_another_and_the_rest_is_said():
    told = ran("import sys; print('{\"a\": 1, \"b\": 1}'); print('{\"b\": 2}'); print('hm'); print(sys.argv[1:])")
    assert (told.facts, told.said, told.problem) == ({"a": 1, "b": 2}, "hm | ['module', '1', 'two']", "")


def test_a_program_that_fails_says_why_without_naming_folders():
    told = ran("print('{\"a\": 1}', flush=True); 1 / 0")
    assert told.code == 1 and told.facts == {"a": 1} and told.problem == "the program ended with 1 (ZeroDivisionError: division by zero)"


def test_a_program_that_is_killed_tells_its_signal():
    assert ran("import os; os.kill(os.getpid(), 9)").problem == "the program ended with signal 9"


def test_a_program_that_hangs_is_ended_with_all_that_it_started():
    code = (
        "import json, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(json.dumps({'child': child.pid}), flush=True)\n"
        "time.sleep(600)\n"
    )
    told = ran(code, limit=3.0)
    assert told.code is None and told.problem == "the program did not end in time"
    state = Path(f"/proc/{told.facts['child']}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("its child lives on")


def test_programs_run_at_the_same_time(tmp_path):
    # each waits until the other has written its file
    code = (
        "import pathlib, sys, time\n"
        "here, other = map(pathlib.Path, sys.argv[2:4])\n"
        "here.touch()\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print('{\"met\": true}')\n"
    )
    names = [str(tmp_path / name) for name in "ab"]
    both = [apart.asked("x", *names), apart.asked("x", *reversed(names))]
    assert [told.facts for told in apart.together(python(code), both, 20.0)] == [{"met": True}] * 2


def test_the_programs_start_where_there_is_neither_pytorch_nor_a_binding_of_cudas():
    names = sorted(path.stem for path in (START.parents[2] / "gpu").glob("cupti_*_program.py"))
    code = (
        "import importlib, sys\n"
        "for name in ('torch', 'cuda', 'pynvml'): sys.modules[name] = None\n"
        f"for name in {names!r}: importlib.import_module('gpu.' + name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=START.parents[2], timeout=120)
    assert len(names) == 11 and done.returncode == 0, done.stderr


# --- the program with known loads ---


class Device:
    """Takes as long as it is told, by a clock of its own."""

    def __init__(self):
        self.did = []

    def __getattr__(self, name):
        return lambda *arguments: self.did.append(name)


def test_the_program_launches_waits_computes_copies_and_meets_in_the_order_of_its_load():
    device, noted = Device(), []
    program = Program(device, Meeting("", 0, 1), lambda *times: noted.append(times))
    device.did.clear()
    told = program.run(Work(1, 1, 0), 2, overlapped=False)
    assert device.did == ["spin", "copy", "wait", "spin", "wait", "spin", "wait"]
    assert told["kernels"] == 3 and told["copies"] == 1 and told["barriers"] == 0 and noted == []
    assert told["end"] - told["begin"] >= 2_000_000, "two rounds of a host that computes for 1 ms"


def test_processes_wait_for_one_another_as_often_as_they_meet(tmp_path):
    path = tmp_path / "meeting"
    path.write_bytes(bytes(16))
    came = []

    def late():
        meeting = Meeting(str(path), 1, 2)
        for number in range(3):
            came.append(number)
            meeting.wait()

    thread = threading.Thread(target=late)
    meeting = Meeting(str(path), 0, 2)
    thread.start()
    for number in range(3):
        assert meeting.wait() > 0 and number in came
    thread.join()


def test_the_kernel_that_takes_time_compiles_both_ways():
    pytest.importorskip("cuda.bindings.nvrtc")
    assert len(compile_cubin(SPIN, "sm_90")) > 1000 and len(compile_cubin(cupti_pc_program.SOURCE, "sm_90", ("-lineinfo",))) > 1000
    assert SPIN_PTX.endswith(b"\0") and b"%globaltimer" in SPIN_PTX


# --- on the doubles of libcupti and of the driver, under the real recorder ---


@pytest.fixture
def doubles(monkeypatch):
    """Let programs find the doubles, and this process take the double of libcupti."""
    recorder()
    for name, value in cupti_double.environment().items():
        monkeypatch.setenv(name, value)
    for module in ("gpu.cupti_tools", "ullage.cupti.library"):
        monkeypatch.setattr(f"{module}.cuda_version", lambda: 13010)
    return machine(start=[sys.executable, str(START)])


def test_the_trees_of_programs_under_the_real_recorder_have_every_kernel(doubles, monkeypatch):
    loads = {"7": Load("in turn", (Work(5, 5),)), "5": Load("imbalanced", (Work(10, 20), Work(10, 2)))}
    for module in (cupti_loads, sys.modules["gpu.check_cupti_trees"]):
        monkeypatch.setattr(module, "LOADS", loads)
    findings = CHECKS["cupti_trees"].function(doubles)
    alone, both = findings.rows
    # three rounds and the kernel before them; a kernel takes just what it was told, but for what the clocks' reading adds
    assert (alone["kernels"], alone["launched"], alone["devices"]) == (4, 4, 1) and alone["kernel"] == pytest.approx(0.015, rel=1e-3)
    assert (both["kernels"], both["launched"], both["devices"]) == (8, 8, 1)
    assert findings.answers["dropped"] == 0
    assert findings.answers["worst_followed"] < 1e-9, "both ways to the trees agree"
    kept = gzip.decompress(findings.recordings["cupti_trees.ullage.gz"])
    assert kept.startswith(b"ULLAGE") and b"spin" in kept


def test_the_real_recorder_comes_and_goes_and_survives_forks(doubles):
    findings = CHECKS["cupti_attach"].function(doubles)
    rows = {row["stage"]: row for row in findings.rows}
    assert not {"profiler", "graphs"} & set(rows), "there is no PyTorch with a GPU"
    for stage in ("attach", "subscribers", "fork"):
        assert (rows[stage]["recorded"], rows[stage]["problem"]) == (rows[stage]["launched"], ""), stage
    assert (rows["attach"]["recordings"], rows["attach"]["ended"], findings.answers["again"]) == (3, 3, "yes")
    assert findings.answers["second_subscriber"] == "refused with 39" and findings.answers["children"] == 0


def test_recording_costs_are_measured_without_pytorch(doubles, monkeypatch):
    # few and short windows, of launches by the double of the driver alone
    monkeypatch.setenv("ULLAGE_TEST_PAIRS", "2")
    monkeypatch.setenv("ULLAGE_TEST_WINDOW", "0.02")
    findings = CHECKS["cupti_overhead"].function(doubles)
    assert [(row["regime"], row["mode"], row["load"]) for row in findings.rows] == [
        ("launch", "activity", "short kernels of ours"),
        ("launch", "every call", "short kernels of ours"),
        ("launch", "callbacks", "short kernels of ours"),
        ("steady", "activity", "mma.sync m16n8k16 kernels of ours"),
        ("bound", "activity", "short kernels of ours"),
    ]
    assert [note for note in findings.notes if "PyTorch" in note] == findings.notes and len(findings.notes) == 1  # no graphs without it
    assert all(row["launches"] == 200 for row in findings.rows), findings.rows


def test_a_recording_is_walked_by_the_library_itself(tmp_path):
    path = Programs(130101).kernels(tmp_path, 20)
    told = apart.told(machine(), apart.asked("cupti_walk_program", real().path, path), 60.0)
    # twenty kernels with two calls each (of the runtime and of the driver), and the device
    assert told.facts == {"buffers": 2, "records": 61, "disagreed": 0}, told.problem


def test_a_range_replayed_with_a_checkpoint_leaves_the_device_as_one_run_does(monkeypatch):
    monkeypatch.delenv("CHECKPOINT_DOUBLE_FAULTS", raising=False)
    device, library = CheckpointDouble(), double()

    def step():
        device.device += 1
        library.handle.cupti_double_count(3.0)

    saved = Checkpoint(CONTEXT, path=device.path)
    times, ranges = cupti_counters_program.replayed([WORK, RARE], step, library, saved, context=CONTEXT)
    # two groups, two passes; each begins from 0
    assert times == 2 and device.device == 1 and ranges.values().row(0) == {WORK: 3, RARE: 30}
    assert device.calls == ["save", "restore", "free"]


def test_an_image_is_written_with_the_values_that_it_gives_again(tmp_path):
    library = double()
    with cupti_counters_program.Ranges([WORK], CONTEXT, library=library) as counted:
        library.handle.cupti_double_count(7.0)
    cupti_counters_program.keep(counted, library, tmp_path / "products")
    known = json.loads((tmp_path / "products.json").read_text())
    assert known["values"] == known["again"] == [[7.0]] and known["chip"] == "GH100" and (tmp_path / "products.image").stat().st_size > 7


def test_samples_are_averaged_over_their_time_and_in_ullages_units():
    library = double()

    def during():
        for sample in ((0, 100, 50.0), (100, 400, 90.0), (500, 600, 50.0)):
            library.handle.cupti_double_sample(1000 + sample[0], 1000 + sample[1], sample[2])
        return {"during": True}

    facts = cupti_pm_program.sampled(library, {"tensor_active": WORK, "kernels": KERNELS}, during)
    # (100 × 50 + 300 × 90 + 100 × 50) / 500 = 74 percent
    assert facts["pm_tensor_active"] == pytest.approx(0.74) and facts["pm_kernels"] == 1 and facts["during"]
    assert (facts["samples"], facts["length"], facts["gap"], facts["span"]) == (3, 100.0, 100, 600)
    assert (facts["keep"], facts["buffer"]) == ("oldest", 8 << 20)


def test_what_comes_while_sampling_and_only_afterwards_is_told_for_each_way(monkeypatch):
    library = double()
    clock = iter(range(100))
    monkeypatch.setattr(cupti_pm_program.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(cupti_pm_program.time, "sleep", lambda _: library.handle.cupti_double_sample(100, 200, 1.0))

    def delivered(*way):
        facts = cupti_pm_program.delivered(library, {"tensor_active": WORK}, *way)
        return {name: value for name, value in facts.items() if name not in ("keep", "every", "seconds", "host_grew")}

    # a second a look: two looks, a sample before each; nothing is left
    assert delivered("oldest", 8 << 20, 0.02, 3) == {"buffer": 8 << 20, "during": 2, "after": 0}
    # read at the end alone
    assert delivered("oldest", 8 << 20, 0, 2) == {"buffer": 8 << 20, "during": 0, "after": 1}
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "ring")
    assert delivered("latest", 8 << 20, 0.02, 3) == {"buffer": 8 << 20, "during": 0, "after": 2}
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "overflow")
    assert delivered("oldest", 8 << 20, 0.02, 9) == {"buffer": 8 << 20, "overflow": 2, "during": 0, "after": 0}
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "no-latest")
    assert delivered("latest", 8 << 20, 0.02, 3) == {"refused": "cuptiPmSamplingSetConfig answered 27", "buffer": 8 << 20}


def test_sampling_that_is_refused_is_told_and_the_program_goes_on(monkeypatch):
    monkeypatch.setenv("CUPTI_DOUBLE_FAULTS", "privileges")
    facts = cupti_pm_program.sampled(double(), {"tensor_active": WORK}, dict)
    assert facts.keys() == {"pm_problem", "taken"} and facts["taken"] is False


def test_readings_of_program_counters_are_counted_range_by_range(monkeypatch):
    monkeypatch.setattr("ullage.cupti.library.cuda_version", lambda: 13010)
    from tests.cupti.test_pc_sampling import CONTEXT as SAMPLED
    from tests.cupti.test_pc_sampling import Double

    device = Double()
    one = SampledContext(Library(cupti_double.library()), SAMPLED, 0, Configuration(period=12))
    told = cupti_pc_program.ranges(one, lambda: device.sample(0x10, waiting=5, selected=2))
    one.close()
    device.handle.cupti_double_pc_reset()
    assert [{name: part[name] for name in ("base", "latency", "total")} for part in told] == [{"base": 7, "latency": 0, "total": 7}] * 4
