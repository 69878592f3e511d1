"""The microbenchmark of conflicts in shared memory: which banks are wanted, references, machine code, the kernels on a CPU."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches import bank_conflicts
from ullage.benches.bank_conflicts import WIDTHS, chase, loads, ways_of
from ullage.benches.bench import BENCHES, Case
from ullage.benches.running.checking import wrong
from ullage.benches.source import whole
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops

FULL = pytest.mark.full
EVERY = [one if one == "sm_90a" else pytest.param(one, marks=FULL) for one in ARCHITECTURES]
SHAPES = [(ways, width) for width in WIDTHS for ways in ways_of(width)]
USUAL = ((4, 1), (16, 2), (2, 4))
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")


def passes(ways: int, width: int) -> int:
    """How often the banks must be asked for a load of a warp, thread by thread: as many threads at once as 32 words serve."""
    found = 0
    for first in range(0, 32, 32 // width):
        wanted: dict[int, set[int]] = defaultdict(set)
        for thread in range(first, first + 32 // width):
            for word in range(width):
                address = thread * ways * width + word
                wanted[address % 32].add(address)
        found += max(len(words) for words in wanted.values())
    return found


@pytest.mark.parametrize(("ways", "width"), SHAPES)
def test_a_load_of_n_ways_takes_n_times_the_passes_of_one_without_conflicts(ways: int, width: int) -> None:
    assert (passes(1, width), passes(ways, width)) == (width, ways * width)
    labels = chase(ways, width).labels
    expected = {one.value for one in BENCHES["bank-conflicts"].figures if one.labels == labels}
    assert expected == {32 * width * 4 / passes(ways, width)}


def test_each_width_is_tried_up_to_the_32_passes_beyond_which_there_are_none() -> None:
    for width in WIDTHS:
        assert passes(ways_of(width)[-1], width) == 32
        assert passes(2 * ways_of(width)[-1], width) == 32


def thread_loads(values: list[int], ways: int, width: int, thread: int, trips: int) -> int:
    """What a thread of the throughput kernel leaves, load by load."""
    found = 0
    for _ in range(trips):
        for row in range(8):
            at = row * 1024 + thread % 32 * ways * width
            for word in values[at : at + width]:
                found ^= word
    return found


def thread_chase(values: list[int], following: list[int], ways: int, width: int, thread: int, hops: int = 30) -> int:
    """What a thread of the latency kernel leaves after a trip, hop by hop."""
    row, found = 0, 0
    for _ in range(hops):
        at = row * 1024 + thread * ways * width
        for word in values[at + 1 : at + width]:
            found ^= word
        row = following[row]
    return found ^ (row * 1024 + thread * ways * width) * 4


@pytest.mark.parametrize(("ways", "width"), SHAPES)
def test_a_kernel_leaves_what_its_loads_one_by_one_would(ways: int, width: int) -> None:
    case = loads(ways, width)
    (values,) = case.inputs(np.random.default_rng(1), "random")
    for trips in (2, 3):
        (found,) = case.reference((values,), trips)
        assert [int(found[n]) for n in (0, 31, 1000)] == [thread_loads(values.tolist(), ways, width, n, trips) for n in (0, 31, 1000)]
    case = chase(ways, width)
    values, following = case.inputs(np.random.default_rng(2), "random")
    (found,) = case.reference((values, following), 1)
    assert found.tolist() == [thread_chase(values.tolist(), following.tolist(), ways, width, n) for n in range(32)]


@pytest.mark.parametrize(("ways", "width"), SHAPES)
def test_a_chase_goes_through_all_rows_and_one_hop_less_is_seen(ways: int, width: int) -> None:
    case = chase(ways, width)
    values, following = case.inputs(np.random.default_rng(3), "random")
    seen, at = set(), 0
    for _ in range(8):
        seen.add(at)
        at = int(following[at])
    assert (seen, at) == (set(range(8)), 0)
    hasty = [thread_chase(values.tolist(), following.tolist(), ways, width, n, hops=29) for n in range(32)]
    assert wrong([np.array(hasty, np.uint32)], case.reference((values, following), 1)) is not None
    assert wrong(case.reference((values, following), 0), case.reference((values, following), 1)) is not None


# --- the machine code ---


@lru_cache(maxsize=2)
def functions(architecture: str) -> dict[str, Function]:
    return {one.name: one for one in disassemble(compile_cubin(whole(bank_conflicts.SOURCE), architecture))}


def trip(function: Function) -> tuple[Instruction, ...]:
    """The loop between the two readings of the cycle counter."""
    begin, end = (one.address for one in function.instructions if "SR_CLOCKLO" in one.operands)
    (found,) = (body for body in loops(function) if begin < body[0].address and body[-1].address < end)
    return found


def every() -> list[Case]:
    return [make(ways, width) for ways, width in SHAPES for make in (loads, chase)]


@pytest.mark.parametrize("architecture", EVERY)
def test_every_kernel_issues_the_loads_that_its_case_declares_in_their_width(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    assert set(functions(architecture)) == {case.entry for case in every()}
    for case in every():
        opcodes = Counter(
            one.opcode for one in trip(functions(architecture)[case.entry]) if one.root in ("LDS", "LDL", "STL", "LDG", "STS")
        )
        assert opcodes == case.issues, case.labels


@pytest.mark.parametrize("architecture", EVERY)
def test_each_load_of_a_chase_takes_its_address_from_the_load_before(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    for width in WIDTHS:
        chain = [one for one in trip(functions(architecture)[f"conflict_chase_{32 * width}"]) if one.root == "LDS"]
        for before, load in pairwise([*chain, chain[0]]):
            written, address = before.operands.split(",")[0], load.operands.split("[")[1].strip("]")
            assert written == address, f"{before} then {load}"


@pytest.mark.parametrize("architecture", EVERY)
def test_the_bytes_declared_are_those_that_the_machine_code_loads(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    for ways, width in SHAPES:
        case = loads(ways, width)
        count = sum(one.root == "LDS" for one in trip(functions(architecture)[case.entry]))
        assert case.bytes == count * 4 * width * 1024 * case.trips


# --- the kernels on a CPU ---


@emulates
@pytest.mark.parametrize(("ways", "width"), [one if one in USUAL else pytest.param(*one, marks=FULL) for one in SHAPES])
def test_a_kernel_on_a_cpu_equals_its_reference(ways: int, width: int, emulation_folder: Path) -> None:
    assert emulated(loads(ways, width), emulation_folder) is None
    assert emulated(chase(ways, width), emulation_folder) is None


@emulates
def test_threads_that_lie_otherwise_are_found_out(emulation_folder: Path) -> None:
    for case in (loads(4, 1), chase(4, 1)):
        assert "result is wrong" in str(emulated(replace(case, scalars=(8, *case.scalars[1:])), emulation_folder))
