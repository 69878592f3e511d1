"""Sampled program counters of unmodified programs: from the recorder, on the double of CUPTI, to the report of `ullage run --stalls`."""

from __future__ import annotations

import ctypes
import json
import random
import re
import struct
from collections import Counter
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from tests.cupti import cupti_double
from tests.recorder.recorder_runs import run_cuda
from tests.recorder.run_runs import environment
from tests.recorder.run_runs import run as ullage_run
from tests.seeds import some
from ullage.cli import cli
from ullage.cupti.chunks import ChunkType, chunks, packed
from ullage.cupti.pc_sampling.buffer import Buffer
from ullage.cupti.pc_sampling.configuration import Configuration, attributes
from ullage.cupti.pc_sampling.recorded import sampled
from ullage.cupti.pc_sampling.structures import Attribute, ConfigurationParams, ContextParams, PointerParams, sized
from ullage.cupti.releases import release
from ullage.errors import UllageError
from ullage.reports.stalls.stalls import stall_report

REASONS = {3: "long_scoreboard", 17: "selected", 9: "barrier"}  # the double's, by CUPTI's index; 4 counts latency samples among those of 3
PLAN = (("fake_kernel_0", 0xABC, 0x10, 3, 5), ("fake_kernel_0", 0xABC, 0x20, 17, 2))  # 7 samples a launch
DRIVERS_OWN = ("-", 0, 0, 0, 4)


def cubin(size=640, fill=1):
    """Return bytes that the double takes for an ELF file of this size."""
    head = bytearray(b"\x7fELF" + bytes([fill]) * (size - 4))
    struct.pack_into("<QQ", head, 32, 0, size - 64)  # no program headers; section headers: one of 64 bytes, at the end
    struct.pack_into("<HHHH", head, 54, 0, 0, 64, 1)
    return bytes(head)


def crc(code):
    """Return what the double takes for a CRC."""
    value = len(code)
    for byte in code:
        value = (value * 31 + byte) & (1 << 64) - 1
    return value


def planted(folder, plan):
    """Write the double's plan; return the environment that names it and the log of its calls."""
    lines = (f"{function} {cubin:x} {pc:x} {reason} {samples}\n" for function, cubin, pc, reason, samples in plan)
    (folder / "plan").write_text("".join(lines))
    return {"CUPTI_DOUBLE_PC": str(folder / "plan"), "CUPTI_DOUBLE_PC_LOG": str(folder / "log")}


def record(folder, *words, plan=PLAN, **more):
    """Run the fake program with program counters sampled; return how it ended, the samples, and the calls as (name, context, answer)."""
    given = planted(folder, plan) | {"ULLAGE_STALLS": "0", "ULLAGE_KINDS": "", "ULLAGE_NAMES": ""} | more
    ran = run_cuda(folder, *words, **given)
    log = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    calls = [(line.split()[1], (line.split()[0], line.split()[2]), int(line.split()[3])) for line in log]
    return SimpleNamespace(ran=ran, samples=sampled(one.path for one in ran.recordings), calls=calls)


def counted(samples, *names):
    """Return how many samples there are of each value of some columns."""
    sums = Counter()
    for row in samples.table.to_pylist():
        sums[tuple(row[name] for name in names)] += row["samples"]
    return dict(sums)


def order(calls, context):
    """Return the calls for one context, readings that follow one another as one."""
    mine = [name for name, where, _ in calls if where == context]
    return [name for n, name in enumerate(mine) if n == 0 or name != "read" or mine[n - 1] != "read"]


# --- what was planted is what is told


def drawn(seed):
    """Return a plan of random samples and how the program is run, with what each launch of a function adds."""
    draw = random.Random(seed)
    names = draw.randint(1, 4)
    plan = {}
    for _ in range(draw.randint(1, 60)):
        place = (f"fake_kernel_{draw.randrange(names)}", draw.choice([0xA, 0xB, 1 << 63]), 16 * draw.randrange(40), draw.choice([3, 17, 9]))
        plan[place] = draw.choice([1, 7, 300, 40_000])
    return names, [(*place, samples) for place, samples in plan.items()], draw.randint(1, 12), draw.randint(1, 3), draw.randint(1, 3)


def expected(names, plan, kernels, times):
    """Return the samples of each (function, cubin, pc, reason index): launch n is of the function n modulo the number of names."""
    launches = [len(range(name, kernels, names)) for name in range(names)]
    sums = Counter()
    for function, cubin, pc, reason, samples in plan:
        if count := launches[int(function.rpartition("_")[2])]:
            sums[function, cubin, pc, reason] += samples * count * times
    return dict(sums)


@pytest.mark.parametrize("seed", some(range(60), 1))
def test_samples_that_were_planted_are_those_of_the_report(seed, tmp_path):
    names, plan, kernels, devices, keep = drawn(seed)
    more = {
        "CUDA_DOUBLE_DEVICES": str(devices),
        "CUPTI_DOUBLE_FAULTS": f"keep={keep}",
        "CUPTI_DOUBLE_VERSION": "130101" if seed % 2 else "21",  # 21: a record is 8 bytes shorter
    }
    words = ("--kernels", kernels, "--names", names, "--devices", devices, "--microseconds", "20")
    found = record(tmp_path, *map(str, words), plan=plan, **more)
    reference = expected(names, plan, kernels, devices)
    assert found.ran.code == 0 and found.samples.facts.problems == ()
    assert counted(found.samples, "function", "cubin", "pc", "reason_index") == reference
    assert found.samples.facts.total == sum(reference.values())
    by_reason = Counter()
    for (function, _, _, reason), samples in reference.items():
        by_reason[function, REASONS[reason]] += samples
    kernels = stall_report(found.samples).kernels if reference else ()
    told = Counter()
    for one in kernels:  # a function of several cubins is several kernels
        told.update({(one.name, share.reason.name): share.samples for share in one.shares})
    assert told == by_reason


def test_a_context_is_enabled_configured_read_and_disabled_in_this_order_and_nothing_is_refused(tmp_path):
    found = record(tmp_path, "--kernels", "3", "--devices", "2", "--again", CUDA_DOUBLE_DEVICES="2")
    # on each of two devices a context; the last one is destroyed, and another pair begun: of the first device's that is a second one
    contexts = list(dict.fromkeys(where for _, where, _ in found.calls))
    assert len(contexts) == 2 and all(answer == 0 for _, _, answer in found.calls)
    once = ["enable", "configure", "read", "disable"]
    assert [order(found.calls, one) for one in contexts] == [once, once * 2]
    assert found.samples.facts.problems == ("not every context was sampled: one context of a GPU is sampled at a time",)


def test_samples_know_their_context_and_how_they_were_taken(tmp_path):
    found = record(tmp_path, "--kernels", "4", "--devices", "2", CUDA_DOUBLE_DEVICES="2", ULLAGE_STALLS="10")
    assert counted(found.samples, "context") == {(0,): 28, (1,): 28}
    facts = found.samples.facts
    assert (facts.cycles, facts.mode, facts.release) == (1024, "continuous", "13.1")


def test_what_the_hardware_drops_and_what_is_the_drivers_own_is_counted_apart(tmp_path):
    # room for one program counter: of the two that every launch samples one is dropped until somebody reads, which only the end does
    more = {"CUPTI_DOUBLE_FAULTS": "hardware-room=1", "ULLAGE_FLUSH": "60000"}
    facts = (found := record(tmp_path, "--kernels", "6", plan=(*PLAN, DRIVERS_OWN), **more)).samples.facts
    assert counted(found.samples, "pc") == {(0x10,): 6 * 5}
    assert (facts.total, facts.dropped, facts.other) == (6 * (5 + 2 + 4), 6 * 2, 6 * 4)


def test_an_overflow_of_the_hardwares_buffer_is_told_and_reading_goes_on(tmp_path):
    found = record(tmp_path, "--kernels", "3", "--again", CUPTI_DOUBLE_FAULTS="hardware-full=1", ULLAGE_FLUSH="60000")
    # the first reading, at the end of the first context, brings nothing; what it left comes out of the buffer that Disable fills
    assert found.samples.facts.full == 1 and found.samples.facts.dropped == 100
    assert counted(found.samples, "pc") == {(0x10,): 6 * 5, (0x20,): 6 * 2}
    assert "the hardware's buffer overflowed 1 times" in " ".join(stall_report(found.samples).notes)


def test_more_program_counters_than_a_reading_has_room_for_are_read_in_several(tmp_path):
    # 4,096 are read at once: keep=3 makes it three
    plan = [("fake_kernel_0", 1, 16 * n, 9, n + 1) for n in range(50)]
    found = record(tmp_path, "--kernels", "2", plan=plan, CUPTI_DOUBLE_FAULTS="keep=3", ULLAGE_FLUSH="60000")
    assert counted(found.samples, "pc") == {(16 * n,): 2 * (n + 1) for n in range(50)}
    assert [name for name, _, _ in found.calls].count("read") == 17  # 16 of three, then two


# --- how programs end


def test_what_was_read_before_a_program_was_killed_is_there(tmp_path):
    found = record(tmp_path, "--seconds", "0.6", "--microseconds", "500", "--kill", ULLAGE_FLUSH="50")
    (told,) = cupti_double.told(found.ran.output)
    assert found.ran.code == -9 and not any(name == "disable" for name, _, _ in found.calls)
    sums = counted(found.samples, "pc")
    assert 0 < sums[0x10,] <= 5 * told.launches and sums[0x10,] * 2 == sums[0x20,] * 5


@pytest.mark.parametrize("words", [("--abort",), ("--exit", "7"), ("--worker",)])
def test_the_end_of_a_program_is_its_own(words, tmp_path):
    found = record(tmp_path, "--kernels", "3", *words, ULLAGE_FLUSH="60000")
    code, read = {"--abort": (-6, False), "--exit": (7, True), "--worker": (0, True)}[words[0]]
    assert found.ran.code == code and (counted(found.samples, "pc") == {(0x10,): 15, (0x20,): 6}) == read


def test_a_fork_and_its_parent_are_sampled_each_by_itself(tmp_path):
    found = record(tmp_path, "--kernels", "3", "--fork")
    assert found.ran.code == 0 and len({process for _, (process, _), _ in found.calls}) == 2
    assert counted(found.samples, "context", "pc") == {(n, pc): count for n in (0, 1) for pc, count in ((0x10, 15), (0x20, 6))}


@pytest.mark.full
def test_a_program_that_becomes_another_one_is_sampled_before_and_after(tmp_path):
    found = record(tmp_path, "--kernels", "3", "--seconds", "0.3", "--exec", ULLAGE_FLUSH="20")
    assert found.ran.code == 0 and len(found.ran.recordings) == 2
    assert set(counted(found.samples, "context")) == {(0,), (1,)}


REFUSED = ("Enable=35", "Enable=43", "SetConfigurationAttribute=7", "Enable=27", "Enable=33", "GetNumStallReasons=999", "GetStallReasons=1")


@pytest.mark.parametrize("call", some(REFUSED, 3))
def test_what_cupti_refuses_is_said_once_and_the_program_goes_on_unharmed(call, tmp_path):
    found = record(tmp_path, "--kernels", "3", "--exit", "5", "--devices", "2", CUDA_DOUBLE_DEVICES="2",
                   CUPTI_DOUBLE_FAULTS=f"cuptiPCSampling{call}")  # fmt: skip
    assert found.ran.code == 5 and found.samples.table.num_rows == 0
    (said,) = found.samples.facts.problems
    assert said.startswith("sampling program counters failed: ") and f"cuptiPCSampling{call.partition('=')[0]}: CUPTI_ERROR" in said
    enabled = sum(name == "enable" and not answer for name, _, answer in found.calls)
    assert enabled == sum(name == "disable" and not answer for name, _, answer in found.calls)


def test_a_reading_that_fails_is_said_and_the_end_still_brings_what_there_is(tmp_path):
    found = record(tmp_path, "--kernels", "3", CUPTI_DOUBLE_FAULTS="cuptiPCSamplingGetData=999")
    assert counted(found.samples, "pc") == {(0x10,): 15, (0x20,): 6} and len(found.samples.facts.problems) == 1


@pytest.mark.full
def test_a_context_does_not_wait_for_a_reading_that_takes_too_long(tmp_path):
    # a reading takes 2.5 s: the context that ends meanwhile waits one, and isn't touched again
    found = record(tmp_path, "--kernels", "3", "--seconds", "0.5", "--again", ULLAGE_FLUSH="100", CUPTI_DOUBLE_FAULTS="slow-read=2500")
    assert found.ran.code == 0
    assert not any(answer for name, _, answer in found.calls if name != "left-on")


@pytest.mark.full
def test_a_context_that_comes_while_another_one_is_being_read_is_sampled_all_the_same(tmp_path):
    # readings of 1.3 s, one after the other: longer than a module or a context that goes would wait
    more = {"CUDA_DOUBLE_DEVICES": "2", "ULLAGE_FLUSH": "20", "CUPTI_DOUBLE_FAULTS": "slow-read=1300"}
    found = record(tmp_path, "--kernels", "3", "--seconds", "0.1", "--devices", "2", **more)
    assert found.samples.facts.problems == () and set(counted(found.samples, "context")) == {(0,), (1,)}


# --- machine code


def loaded(folder, code, **more):
    (folder / "code").write_bytes(code)
    return record(folder, "--kernels", "2", "--module", str(folder / "code"), **more)


def test_machine_code_that_is_loaded_is_kept_once_by_its_crc(tmp_path):
    code = cubin()
    found = loaded(tmp_path, code, plan=[("fake_kernel_0", crc(code), 0x10, 3, 1)])
    assert found.samples.cubins == {crc(code): code}
    with found.ran.only.path.open("rb") as file:
        assert [chunk.type for chunk in chunks(file, "x")].count(ChunkType.CUBIN) == 1  # it was loaded twice


def test_machine_code_beyond_what_is_kept_is_left_out_and_said(tmp_path):
    found = loaded(tmp_path, cubin(), ULLAGE_CUBINS="600")
    assert found.samples.cubins == {} and "not all machine code was kept: it is more than is kept" in found.samples.facts.problems[0]
    assert counted(found.samples, "pc") == {(0x10,): 10, (0x20,): 4}


def test_what_a_module_left_unread_when_it_went_is_taken_when_the_next_one_comes(tmp_path):
    # readings fail: CUPTI puts what the module leaves into the buffer of the end, from where the next module's coming takes it
    found = loaded(tmp_path, cubin(), CUPTI_DOUBLE_FAULTS="cuptiPCSamplingGetData=999")
    assert counted(found.samples, "pc") == {(0x10,): 10, (0x20,): 4}


# --- what the double refuses, as the library's documentation has it


@pytest.fixture
def double(monkeypatch):
    monkeypatch.delenv("CUPTI_DOUBLE_FAULTS", raising=False)
    handle = cupti_double.loaded()
    handle.cupti_double_pc_reset()
    yield handle
    handle.cupti_double_pc_reset()


CONTEXT, SECOND = 0x100, 0x200


def ask(double, name, kind, **values):
    return getattr(double, f"cuptiPCSampling{name}")(ctypes.byref(sized(kind, context=CONTEXT) if not values else sized(kind, **values)))


def test_the_double_wants_the_calls_in_their_order(double):
    buffer = Buffer(release(130101), 8, 4)
    reading = {"context": CONTEXT, "pointer": buffer.address}
    assert ask(double, "GetData", PointerParams, **reading) == 7  # INVALID_OPERATION: without enabling (cupti_pcsampling.h)
    assert ask(double, "Disable", ContextParams) == 1
    assert ask(double, "Enable", ContextParams) == 0 and ask(double, "Enable", ContextParams) == 1
    assert ask(double, "Start", ContextParams) == 7  # without start/stop control
    listed = attributes(Configuration(), None, buffer.address)
    array = (Attribute * len(listed))(*listed)
    configured = {"context": CONTEXT, "count": len(listed), "attributes": array}
    assert ask(double, "SetConfigurationAttribute", ConfigurationParams, **configured) == 0
    assert ask(double, "Start", ContextParams) == 0
    assert ask(double, "SetConfigurationAttribute", ConfigurationParams, **configured) == 7
    bare = Buffer(release(130101), 8, 4)
    bare._records["reason"] = 0  # no room for counts
    assert ask(double, "GetData", PointerParams, context=CONTEXT, pointer=bare.address) == 1
    wrong = ContextParams(size=16, context=CONTEXT)
    assert double.cuptiPCSamplingDisable(ctypes.byref(wrong)) == 1
    assert ask(double, "Disable", ContextParams) == 0


def test_the_double_refuses_sampling_beside_tracing_for_two_contexts_of_a_gpu_and_of_one_that_is_gone(double):
    double.cupti_double_context_on.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    for context in (CONTEXT, SECOND):
        double.cupti_double_context_on(context, 0)
    double.cuptiActivityEnable(10)
    assert ask(double, "Enable", ContextParams) == 7
    double.cuptiActivityDisable(10)
    assert ask(double, "Enable", ContextParams) == 0
    assert ask(double, "Enable", ContextParams, context=SECOND) == 7
    double.cupti_double_resource(2, CONTEXT, None)
    assert ask(double, "Disable", ContextParams) == 3  # INVALID_CONTEXT
    double.cupti_double_resource(1, CONTEXT, None)


# --- the recording


def test_damaged_samples_are_left_out_and_said(tmp_path):
    found = record(tmp_path, "--kernels", "3")
    path = found.ran.only.path
    for bad in (b"", b"\xff\xff\xff\xff{}", struct.pack("<I", 2) + b"[]", struct.pack("<I", 14) + b'{"context": -}'):
        path.write_bytes(path.read_bytes() + packed(ChunkType.SAMPLES, bad))
    again = sampled([path])
    assert counted(again, "pc") == {(0x10,): 15, (0x20,): 6}
    assert again.facts.problems == ("some samples are damaged, and were left out",)


@pytest.mark.full
def test_a_recording_without_samples_has_none(tmp_path):
    assert sampled([run_cuda(tmp_path, "--kernels", "1").only.path]).table.num_rows == 0


# --- the command


def run(folder, *options, words=("--kernels", "7"), **more):
    given = environment(folder, **planted(folder, (*PLAN, DRIVERS_OWN)), **more)
    return ullage_run(folder, "--stalls", *options, given=given, command=[cupti_double.program(), *words])


def test_the_report_is_that_of_ullage_cupti_stalls_for_the_same_recording(tmp_path):
    ran = run(tmp_path, "--period", "11", "--json", tmp_path / "run.json", "--out", tmp_path / "run.folded", "--keep", tmp_path / "kept")
    assert ran.code == 0
    # 7 launches of 5 samples that wait and 2 that issue
    assert ran.said.lstrip().startswith("71 % of 49 samples of 1 kernel waited for global, local or texture memory (long_scoreboard)\n")
    assert "\none sample every 2,048 cycles, continuous, CUPTI 13.1\n" in ran.said
    done = CliRunner().invoke(cli, ["cupti", "stalls", str(tmp_path / "kept"), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads((tmp_path / "run.json").read_text())
    assert said.pop("exit") == 0 and said == json.loads(done.stdout)
    assert {one["reason"]: one["samples"] for one in said["kernels"][0]["reasons"]} == {"long_scoreboard": 35, "selected": 14}
    assert "long_scoreboard 35\n" in (tmp_path / "run.folded").read_text()
    assert ran.left == []


def test_without_permission_one_message_says_why_and_the_exit_code_is_the_programs(tmp_path):
    ran = run(tmp_path, "--json", tmp_path / "run.json", words=("--exit", "3"), CUPTI_DOUBLE_FAULTS="privileges")
    assert ran.code == 3 and not (tmp_path / "run.json").exists()
    said = [line for line in ran.said.splitlines() if line]
    assert said[0].startswith("ullage: no stalls: sampling program counters failed: the driver lets only the administrator")
    assert said[1:] == [f"ullage: {tmp_path / 'run.json'} is not written: nothing was sampled"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--stalls", "--kernels", "3"], "--stalls and --kernels both take the place of a trace"),
        (["--stalls", "--talp", "x.json"], "there is nothing for --talp"),
        (["--stalls", "--region", "x"], "there is nothing for --region"),
        (["--period", "12"], "--period is how often --stalls samples"),
        (["--stalls", "--period", "4"], "4 is not in the range 5<=x<=31"),
    ],
)
def test_what_does_not_go_with_stalls_is_refused_before_the_program_runs(words, problem):
    done = CliRunner().invoke(cli, ["run", *words, "--", "false"])
    assert done.exit_code == 2 and problem in re.sub(r"\s+", " ", done.output)


@pytest.mark.full
def test_samples_point_into_the_lines_of_the_program_that_loaded_its_code(tmp_path):
    pytest.importorskip("cuda.bindings")
    from tests.cupti.test_stalls import _SOURCE
    from ullage.kernels.compiling import compile_cubin
    from ullage.kernels.sass.disassembler import nvdisasm

    try:
        nvdisasm()
        code = compile_cubin(_SOURCE, "sm_90a", ("-lineinfo",))
    except UllageError as error:
        pytest.skip(error.problem)
    found = loaded(tmp_path, code, plan=[("total", crc(code), 0, 3, 2)], PROGRAM_KERNEL="total")
    (kernel,) = stall_report(found.samples).kernels
    assert kernel.matched == "crc" and kernel.samples == 4 and kernel.spots[0].place is not None
