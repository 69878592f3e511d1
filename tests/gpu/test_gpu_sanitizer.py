"""The check by Compute Sanitizer: what it watches, how its logs are read, and what counts against a kernel."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from gpu.check import CHECKS, NotMeasured, find_check
from gpu.check_sanitizer import RECORDING, TOOLS, _benches, _copies_in_bulk, _target
from gpu.evidence import read_lines
from gpu.machine import Room
from gpu.sanitizer_program import THREADS, faulty, kernels, run, small

from gpu import apart
from tests.cupti.cuda_double import with_driver
from tests.gpu.gpu_double import World
from tests.gpu.gpu_sanitizer_double import FOUND
from ullage.benches.bench import BENCHES, Target, cases_for
from ullage.benches.running.device import open_device
from ullage.benches.running.kernel_case import UnmeasuredError
from ullage.benches.source import whole
from ullage.kernels.compiling import compile_cubin

find_check("sanitizer")


def of(world, folder, left=1000.0):
    machine = world.machine()
    room = Room(folder, left, lambda: 0.0, lambda line: None)
    return CHECKS["sanitizer"].function(replace(machine, room=room))


def test_every_bench_with_kernels_of_ours_is_watched_by_each_tool(tmp_path):
    world = World()
    findings = of(world, tmp_path)
    benches = [bench.name for bench in _benches("sm_90a")]
    assert {"wgmma", "mma", "bulk-copy", "cluster-ring", "memory-latency"} <= set(benches) and "best-gemm" not in benches
    assert sorted(world.watched_programs.ran) == sorted([("fault", tool) for tool in TOOLS] + [(b, t) for b in benches for t in TOOLS])
    assert findings.wrong == [] and findings.unfinished == "" and findings.answers["tools"] == "memcheck racecheck synccheck"
    assert findings.answers["kernels"] == 2 * len(benches) and findings.answers["memcheck_errors"] == 0


def test_what_a_tool_reports_refutes_the_claim_with_its_own_words(tmp_path):
    world = World()
    world.watched_programs.logs["wgmma", "memcheck"] = FOUND["memcheck"]
    world.watched_programs.logs["mma", "racecheck"] = FOUND["racecheck"]
    findings = of(world, tmp_path)
    assert findings.wrong == [
        "memcheck reports 64 errors in the kernels of wgmma: Invalid __global__ write of size 4 bytes",
        "racecheck reports 1 errors in the kernels of mma: Error: Race reported between Write access at faulty+0x50",
    ]
    assert (findings.answers["memcheck_errors"], findings.answers["racecheck_errors"]) == (64, 1)


def test_racecheck_is_not_believed_of_bulk_copies_and_the_others_are(tmp_path):
    world = World()
    assert _copies_in_bulk(BENCHES["bulk-copy"], "sm_90a") and not _copies_in_bulk(BENCHES["async-copy"], "sm_90a")
    world.watched_programs.logs["bulk-copy", "racecheck"] = FOUND["racecheck"]
    findings = of(world, tmp_path)
    assert findings.wrong == [] and findings.answers["racecheck_errors"] == 0
    assert any(note.startswith("racecheck reports 1 errors in bulk-copy: ") for note in findings.notes)
    world.watched_programs.logs["bulk-copy", "synccheck"] = FOUND["synccheck"]
    (tmp_path / RECORDING).unlink()
    assert of(world, tmp_path).wrong[0].startswith("synccheck reports 2 errors in the kernels of bulk-copy")


def test_a_tool_that_does_not_find_the_planted_fault_is_left_out(tmp_path):
    world = World()
    world.watched_programs.logs["fault", "racecheck"] = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    findings = of(world, tmp_path)
    assert findings.answers["tools"] == "memcheck synccheck" and findings.answers["racecheck_errors"] is None
    assert ("wgmma", "racecheck") not in world.watched_programs.ran and findings.notes[0].startswith("racecheck does not find the fault")


def test_a_machine_on_which_no_tool_works_is_not_measured_with_the_tools_words(tmp_path):
    world = World()
    for tool in TOOLS:
        world.watched_programs.logs["fault", tool] = "========= Error: Device not supported\n"
    with pytest.raises(NotMeasured, match="no tool finds the fault planted for it: Error: Device not supported"):
        of(world, tmp_path)


def test_a_wrong_result_while_it_is_watched_counts_and_a_hang_is_noted(tmp_path):
    world = World()
    world.watched_programs.facts["mma"] = {"wrong": 1, "problem": "the result is wrong: 3 of 8 elements differ"}
    world.watched_programs.logs["wgmma", "racecheck"] = None
    findings = of(world, tmp_path)
    assert findings.wrong[0] == "1 kernels of mma give a wrong result under memcheck: the result is wrong: 3 of 8 elements differ"
    assert findings.answers["not_whole"] == 1 and "wgmma under racecheck: the program did not end in time" in findings.notes


def test_it_goes_on_where_the_time_ended_and_repeats_nothing_at_the_same_code(tmp_path, monkeypatch):
    world, told = World(), []
    machine = world.machine()
    room = Room(tmp_path, 100.0, lambda: 10.0 * len(told), told.append)  # a line a row: the time is up after a few
    findings = CHECKS["sanitizer"].function(replace(machine, room=room))
    first = set(world.watched_programs.ran)
    assert findings.unfinished.startswith("not reached: ") and ("memory-latency", "memcheck") in first
    with (tmp_path / RECORDING).open("a") as file:
        file.write('{"driver": "595", "co')
    world.watched_programs.ran = []
    findings = of(world, tmp_path)
    assert findings.unfinished == "" and not {pair for pair in set(world.watched_programs.ran) & first if pair[0] != "fault"}
    assert len(findings.rows) == 3 * (1 + len(_benches("sm_90a")))
    world.watched_programs.ran = []
    monkeypatch.setattr("gpu.check_sanitizer.code_of", lambda name: "changed" if name == "mma" else "")
    lines = read_lines(tmp_path / RECORDING)
    (tmp_path / RECORDING).write_text("".join(json.dumps({**line, "code": ""}) + "\n" for line in lines))
    of(world, tmp_path)
    assert {name for name, _ in world.watched_programs.ran} == {"fault", "mma"}


def test_the_kernels_are_small_and_each_is_there_once():
    for bench in _benches("sm_90a"):
        chosen = list(kernels(cases_for(bench, _target("sm_90a"))))
        assert len({(case.source, case.entry, case.options, case.cluster) for case in chosen}) == len(chosen) > 0
        for case in chosen:
            size = sum(array.nbytes for array in case.inputs(np.random.default_rng(1), "random"))
            assert size < 20e6, (bench.name, size)
    assert small(Target("sm_90a", name="x")).architecture == "sm_90a"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_kernel_with_the_fault_compiles(tool):
    case = faulty(tool)
    pytest.importorskip("cuda.bindings.nvrtc", reason="no cuda-bindings")
    assert compile_cubin(whole(case.source), "sm_90a")[:4] == b"\x7fELF"


@with_driver
def test_a_kernel_is_run_once_into_poison_and_compared(gpu):
    case = faulty("racecheck")
    device = open_device(0)

    def right(launch):
        assert (launch.grid, launch.block) == ((1, 1, 1), (THREADS, 1, 1))
        launch.array(1, np.int32, THREADS)[:] = launch.integer(2)

    gpu.kernels["faulty"] = right
    run(case, device, "sm_90a")
    assert gpu.launches == 1
    gpu.kernels["faulty"] = lambda launch: None
    with pytest.raises(UnmeasuredError, match="never written"):
        run(case, device, "sm_90a")


def test_a_program_runs_under_a_command_that_gets_its_own_words(tmp_path):
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$1" > {tmp_path}/told\nshift\nexec "$@"\n')
    wrapper.chmod(0o755)
    machine = SimpleNamespace(start=[sys.executable, "-c", "print('{\"a\": 1}')"])
    program = apart.asked("no_such_program", under=(str(wrapper), "--tool=x"))
    assert apart.together(machine, [program], 20)[0].facts == {"a": 1} and (tmp_path / "told").read_text() == "--tool=x\n"
