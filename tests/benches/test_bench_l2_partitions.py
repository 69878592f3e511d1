"""The microbenchmark of near and far lines of the L2: which lines are kept, references, machine code, the kernels on a CPU."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches import l2_partitions
from ullage.benches.bench import BENCHES, Case, Target, cases_for
from ullage.benches.l2_partitions import chase, distances, reading
from ullage.benches.result import CaseRow, Value
from ullage.benches.running.checking import wrong
from ullage.benches.source import whole
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops

EVERY = [one if one == "sm_90a" else pytest.param(one, marks=pytest.mark.full) for one in ARCHITECTURES]
TARGET = Target("sm_90a", sms=2)
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")


def test_quick_cases_are_the_loads_of_both_parts_and_all_cases_have_atomics_and_bandwidth_too() -> None:
    member = BENCHES["l2-partitions"]
    quick = [(case.labels["part"], case.labels["access"]) for case in cases_for(member, TARGET, quick=True)]
    assert quick == [("near", "load"), ("far", "load")]
    every = Counter((case.labels["access"], *case.quantities) for case in cases_for(member, TARGET))
    assert every == {("load", "latency"): 2, ("atomic", "latency"): 2, ("load", "bytes_per_cycle_sm"): 2}


def test_a_reader_leaves_the_sum_that_its_loads_one_by_one_would() -> None:
    case = reading("near", TARGET)
    lines, values = case.inputs(np.random.default_rng(1), "random")
    (found,) = case.reference((lines, values), 3)
    for thread in (0, 7, 8, 511, 1000):
        total = 0
        for _ in range(3):
            for load in range(4):
                line = (thread // 8 + 32 * load) % 128
                total += sum(int(one) for one in values[32 * line + thread % 8 * 4 :][:4])
        assert int(found[thread]) == int(found[1024 + thread]) == total % 2**32


def test_readers_of_an_sm_read_every_line_that_is_kept_equally_often() -> None:
    read = Counter((thread // 8 + 32 * load) % 128 for thread in range(1024) for load in range(4))
    assert read == dict.fromkeys(range(128), 32)


def test_a_chase_that_leaves_out_a_hop_is_seen() -> None:
    case = chase("far", "load", TARGET)
    arrays = case.inputs(np.random.default_rng(1), "random")
    right = case.reference(arrays, 5)
    assert right[0].tolist() == [5 * 30 % 128] * 2
    assert wrong([one - 1 for one in right], right) is not None
    assert wrong(case.reference(arrays, 0), right) is not None


# --- what is said of the rows ---


def rows(near: float, far: float, access: str = "load") -> list[CaseRow]:
    labels = [{"part": "near", "access": access}, {"part": "far", "access": access}]
    return [
        CaseRow(one, {"latency": Value(cycles, cycles, cycles, 5, "cycles")}, None, "")
        for one, cycles in zip(labels, (near, far), strict=True)
    ]


def test_near_and_far_are_told_apart_above_5_percent() -> None:
    assert distances(rows(200, 210)) == ("the L2 by loads: all lines are about as near, 200 cycles",)
    (told,) = distances(rows(200, 212, "atomic"))
    assert told == "the L2 by atomics: the farthest quarter of the lines takes 212 cycles, 1.06 times the 200 of the nearest"


def test_nothing_is_said_where_a_part_was_not_measured() -> None:
    near, _ = rows(200, 300)
    assert distances([near]) == distances([]) == ()


# --- the machine code ---


def functions(architecture: str) -> dict[str, Function]:
    pytest.importorskip("cuda.bindings.nvrtc")
    return {one.name: one for one in disassemble(compile_cubin(whole(l2_partitions.SOURCE), architecture))}


def accesses(body: tuple[Instruction, ...]) -> list[Instruction]:
    return [one for one in body if one.root in ("LDG", "ATOMG")]


def address(one: Instruction) -> str:
    return one.operands.split("[")[-1].split("]")[0].split(".")[0]


@pytest.mark.parametrize("architecture", EVERY)
def test_each_access_of_a_chase_and_of_a_probe_takes_its_address_from_the_one_before(architecture: str) -> None:
    found = functions(architecture)
    for access, root in (("load", "LDG"), ("atomic", "ATOMG")):
        chains = {len(accesses(body)): accesses(body) for body in loops(found[f"l2_chase_{access}"])}
        assert {9, 30} <= set(chains), "8 timed accesses of a probe behind the first, 30 of a trip"
        for count in (9, 30):
            assert {one.root for one in chains[count]} == {root}
            for before, after in pairwise(chains[count]):
                written = [operand.strip() for operand in before.operands.split(",")][0 if root == "LDG" else 1]
                assert written == address(after), f"{before} then {after}"


@pytest.mark.parametrize("architecture", EVERY)
def test_the_clock_is_read_around_the_accesses_of_a_probe(architecture: str) -> None:
    (probe,) = (body for body in loops(functions(architecture)["l2_chase_load"]) if len(accesses(body)) == 9)
    order = "".join("c" if "SR_CLOCKLO" in one.operands else "a" if one.root == "LDG" else "" for one in probe)
    assert order == "ac" + "a" * 8 + "c"


@pytest.mark.parametrize("architecture", EVERY)
def test_the_bytes_of_a_reader_are_those_that_its_machine_code_loads(architecture: str) -> None:
    case = reading("near", TARGET)
    bodies = [accesses(body) for body in loops(functions(architecture)["l2_read"])]
    (read,) = (body for body in bodies if len(body) == 4)
    assert all(".128" in one.opcode for one in read)
    assert case.bytes == len(read) * 16 * 1024 * 2 * case.trips


# --- the kernels on a CPU ---


@emulates
@pytest.mark.parametrize("part", ["near", "far"])
def test_a_kernel_on_a_cpu_equals_its_reference(part: str, emulation_folder: Path) -> None:
    for case in (chase(part, "load", TARGET), chase(part, "atomic", TARGET), reading(part, TARGET)):
        assert emulated(case, emulation_folder) is None, case.entry


def with_times(case: Case, times: str) -> Case:
    """A case whose lines take the times that are given, and which leaves the line that it arrives at."""
    source = case.source.replace("cycles[line] = ullage_cycles() - begin;", f"cycles[line] = {times};")
    told = source.replace("((u64 *)at)[1]", "(at - (u64)own) / 128")
    assert case.source != source != told
    return replace(case, source=told)


@emulates
@pytest.mark.parametrize(("part", "first"), [("near", 0), ("far", 384)])
@pytest.mark.parametrize("times", ["line * 37 % 512", "line % 3", "7"])
def test_the_lines_that_are_kept_are_those_of_the_least_or_the_greatest_times(
    part: str, first: int, times: str, emulation_folder: Path
) -> None:
    cycles = [eval(times, {"line": line}) for line in range(512)]
    ranked = sorted(range(512), key=lambda line: (cycles[line], line))[first : first + 128]
    case = with_times(chase(part, "load", TARGET), times)
    for trips in (1, 2, 5):
        expected = (np.full(2, ranked[trips * 30 % 128], np.uint64),)
        assert emulated(replace(case, check_trips=trips, reference=lambda arrays, n, e=expected: e), emulation_folder) is None  # type: ignore[misc]


@emulates
def test_a_ring_that_leaves_a_line_out_is_found_out(emulation_folder: Path) -> None:
    case = chase("near", "load", TARGET)
    broken = case.source.replace("(place + 1) %", "(place + 2) %")
    assert broken != case.source
    assert "result is wrong" in str(emulated(replace(case, source=broken), emulation_folder))
