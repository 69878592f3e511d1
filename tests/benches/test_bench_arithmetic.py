"""The microbenchmark of arithmetic: references against slow models, the machine code, the kernels on a CPU, and the guide's figures."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches import arithmetic
from ullage.benches.arithmetic import LATENCY, OPERATIONS, THROUGHPUT, ArithmeticOperation
from ullage.benches.bench import BENCHES, Case, Target, cases_for
from ullage.benches.running.checking import wrong
from ullage.benches.source import whole
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops

FULL = pytest.mark.full
USUAL = ("sm_90a", "sm_100a")  # the others' machine code is read in the full run
EVERY = [one if one in USUAL else pytest.param(one, marks=FULL) for one in ARCHITECTURES]
each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.entry(1))
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")


def made(architecture: str, quick: bool = False) -> list[Case]:
    found = cases_for(BENCHES["arithmetic"], Target(architecture, sms=2), quick)
    return [case for case in found if isinstance(case, Case)]


# --- references against models that go thread by thread ---

SLOW: dict[str, Callable[[float], float]] = {
    "ex2": lambda x: 2.0**-x, "rcp": lambda x: -1.0 / x, "rsqrt": lambda x: x**-0.5, "sin": math.sin, "tanh": math.tanh,
}  # fmt: skip


def thread(operation: ArithmeticOperation, arrays: tuple[np.ndarray, ...], chain: int, number: int, lane: int, threads: int) -> object:
    """What a thread's lane holds in a chain after a trip, by numbers of any length that are rounded once a call."""
    start, factors, terms = (array.reshape(-1, operation.lanes)[:, lane].tolist() for array in arrays)
    x = start[chain * threads + number]
    for call in range(operation.calls):
        at = call % 8 * 32 + number % 32
        if operation.special:
            x = float(np.float32(SLOW[operation.name](x)))
        elif operation.type == "INT32":
            x = (x * factors[at] + terms[at] + 2**31) % 2**32 - 2**31
        else:
            x = float(np.dtype(operation.dtype).type(float(Fraction(x) * Fraction(factors[at]) + Fraction(terms[at]))))
    return x


@each
def test_a_kernel_leaves_what_its_calls_one_by_one_would(operation: ArithmeticOperation) -> None:
    case = arithmetic.case(operation, THROUGHPUT, 2)
    arrays = case.inputs(np.random.default_rng(1), "random")
    shaped = case.reference(arrays, 1)[0].reshape(THROUGHPUT.chains, 2, THROUGHPUT.threads, operation.lanes)
    for chain, block, number in ((0, 0, 0), (3, 1, 1023), (1, 0, 77)):
        for lane in range(operation.lanes):
            expected = np.array([thread(operation, arrays, chain, number, lane, THROUGHPUT.threads)], operation.dtype)
            assert wrong([shaped[chain, block, number, lane : lane + 1]], [expected], operation.tolerance) is None


@each
def test_one_call_less_or_one_operand_off_is_seen(operation: ArithmeticOperation) -> None:
    case = arithmetic.case(operation, LATENCY, 1)
    arrays = case.inputs(np.random.default_rng(2), "random")
    right = case.reference(arrays, 1)
    hasty = arithmetic.case(replace(operation, calls=operation.calls - 1), LATENCY, 1).reference(arrays, 1)
    assert wrong(hasty, right, case.tolerance) is not None
    for number in (0,) if operation.special else (0, 1, 2):
        other = [array.copy() for array in arrays]
        other[number] = np.roll(other[number], operation.lanes)
        assert wrong(case.reference(tuple(other), 1), right, case.tolerance) is not None


@each
def test_numbers_stay_finite_however_long_a_launch_is_and_those_of_multiply_adds_keep_changing(operation: ArithmeticOperation) -> None:
    case = arithmetic.case(operation, LATENCY, 1)
    arrays = case.inputs(np.random.default_rng(3), "random")
    assert operation.type == "INT32" or all(np.abs(case.reference(arrays, trips)[0]).max() < 1000 for trips in (10, 40))
    last = [arithmetic.case(replace(operation, calls=n), LATENCY, 1).reference(arrays, 1)[0] for n in range(200, 208)]
    apart = [float(np.mean(one != other)) for one, other in pairwise(last)]
    assert operation.special or min(apart) > 0.95


# --- the machine code ---


@lru_cache(maxsize=4)
def functions(architecture: str) -> dict[str, Function]:
    sources = dict.fromkeys(case.source for case in made(architecture))
    return {one.name: one for source in sources for one in disassemble(compile_cubin(whole(source), architecture))}


def trip(function: Function) -> tuple[Instruction, ...]:
    """The loop between the two readings of the cycle counter."""
    begin, end = (one.address for one in function.instructions if "SR_CLOCKLO" in one.operands)
    (found,) = (body for body in loops(function) if begin < body[0].address and body[-1].address < end)
    return found


@pytest.mark.parametrize("architecture", EVERY)
def test_every_kernel_issues_what_its_case_declares_and_little_else(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    found = functions(architecture)
    assert set(found) == {case.entry for case in made(architecture)}
    for case in made(architecture):
        body = trip(found[case.entry])
        roots = Counter(one.root for one in body)
        ((opcode, count),) = case.issues.items()
        assert roots[opcode] == count, case.labels
        beside = count if case.labels["operation"] == "sin" else 0  # sin is a multiplication by 1/2π before MUFU.SIN
        assert (roots["FMUL"], len(body) - count - beside <= 4) == (beside, True), (case.labels, roots)
        assert not [str(one) for one in found[case.entry].instructions if one.root in ("LDL", "STL")]


def waits(calls: list[Instruction]) -> list[int]:
    """For each call but the first, how many calls before it stands the one whose result it needs."""
    written: dict[str, int] = {}
    found = []
    for number, one in enumerate(calls):
        result, *operands = re.findall(r"\bR(\d+)", one.operands)
        needed = [written[operand] for operand in operands if operand in written]
        found += [number - at for at in needed]
        written[result] = number
    return found


@pytest.mark.parametrize("architecture", EVERY)
def test_one_chain_needs_every_result_at_once_and_four_chains_need_none_at_once(architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    for case in made(architecture):
        (opcode,) = case.issues
        calls = [one for one in trip(functions(architecture)[case.entry]) if one.root == opcode or one.root == "FMUL"]
        alone, count = "latency" in case.quantities, case.steps * (2 if case.labels["operation"] == "sin" else 1)
        assert waits(calls) == [1] * (count - 1) if alone else min(waits(calls)) >= 2, case.labels


# --- the kernels on a CPU ---


@emulates
@each
def test_a_chain_of_an_instruction_gives_what_ptx_says(operation: ArithmeticOperation, emulation_folder: Path) -> None:
    assert emulated(arithmetic.case(operation, LATENCY, 1), emulation_folder) is None


@emulates
@pytest.mark.parametrize(
    "operation", [one if one.name == "rcp" else pytest.param(one, marks=FULL) for one in OPERATIONS], ids=lambda one: one.entry(4)
)
def test_four_chains_of_1024_threads_give_what_ptx_says(operation: ArithmeticOperation, emulation_folder: Path) -> None:
    assert emulated(arithmetic.case(operation, THROUGHPUT, 2), emulation_folder) is None


@emulates
def test_a_kernel_with_one_call_less_is_found_out(emulation_folder: Path) -> None:
    source = OPERATIONS[0].kernel(LATENCY)
    assert "call < 64" in source
    hasty = replace(arithmetic.case(OPERATIONS[0], LATENCY, 1), source=source.replace("call < 64", "call < 63"))
    assert "result is wrong" in str(emulated(hasty, emulation_folder))


# --- what the guide says ---


@pytest.mark.parametrize(
    ("gpu", "sms", "clock", "type", "teraflops"),
    [  # of the data sheets: SMs, boost clock in GHz, TFLOP/s outside the tensor cores
        ("NVIDIA A100-PCIE-40GB", 108, 1.41, "FP32", 19.5),
        ("NVIDIA A100-PCIE-40GB", 108, 1.41, "FP64", 9.7),
        ("NVIDIA A100-PCIE-40GB", 108, 1.41, "FP16 ×2", 78),
        ("NVIDIA GeForce RTX 4090", 128, 2.52, "FP32", 82.6),
        ("NVIDIA GeForce RTX 4090", 128, 2.52, "FP16 ×2", 82.6),
        ("NVIDIA GeForce RTX 4090", 128, 2.52, "FP64", 1.29),
        ("NVIDIA H200", 132, 1.98, "FP32", 67),
        ("NVIDIA H200", 132, 1.98, "FP64", 34),
        ("NVIDIA H200", 132, 1.98, "FP16 ×2", 134),
    ],
)
def test_the_guide_s_rates_come_to_the_flops_of_the_data_sheets(gpu: str, sms: int, clock: float, type: str, teraflops: float) -> None:
    (figure,) = [
        one
        for one in BENCHES["arithmetic"].figures
        if (one.gpu, one.labels["type"], one.labels["operation"]) == (gpu, type, "multiply-add")
    ]
    assert 2 * figure.value * sms * clock / 1000 == pytest.approx(teraflops, rel=0.02)


def test_flops_and_results_are_counted_by_threads_and_lanes() -> None:
    single, double = (
        next(case for case in made("sm_100a") if case.labels["type"] == name and "throughput" in case.quantities)
        for name in ("FP32", "FP32 ×2")
    )
    assert single.items == single.trips * 64 * 4 * 2 * 1024  # calls, chains, blocks, threads
    assert (single.flops, double.items, double.flops) == (2 * single.items, 2 * single.items, 4 * single.items)
    special = next(case for case in made("sm_100a") if case.labels["operation"] == "tanh" and "throughput" in case.quantities)
    assert special.flops == special.items == special.trips * 8 * 4 * 2 * 1024
