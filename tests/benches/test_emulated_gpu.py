"""Kernels computed on a CPU by a model of PTX that was written from its documentation alone: does D equal the reference?

What a model can't tell: speed, and what the documentation leaves out. It tells fragments, descriptors, sparsity, barriers and phases, and
whether what one thread or unit does is ordered before what another does: `test_emulated_ordering.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benches.accumulated_products import accumulated, nearest, products_in_turn
from tests.benches.emulated_gpu import emulated
from ullage.benches import mma, ptx_mma, ptx_wgmma, wgmma
from ullage.benches.bench import BENCHES, Arrays, Case, Target, cases_for
from ullage.benches.operands import FP8, FP16, FP16_SUM, FP32, FP64, FP64_SUM, INT8, INT32, TF32
from ullage.benches.ptx_mma import Mma
from ullage.benches.ptx_wgmma import Wgmma

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
TARGET = Target("sm_90a", sms=8, l2=2**18, memory=2**30)  # small, so that all of it is gone through quickly
FULL = pytest.mark.full


def told(case: object) -> str:
    if isinstance(case, Mma | Wgmma):
        mode = f"-{case.mode}" if isinstance(case, Wgmma) else ""
        return f"{case.operand.name}-{case.accumulator.name}-{case.shape}-{'sparse' if case.sparse else 'dense'}{mode}".replace(" ", "")
    return ""


USUAL = (
    Mma(FP16, FP16_SUM, 8), Mma(FP16, FP32, 16, sparse=True), Mma(TF32, FP32, 8), Mma(TF32, FP32, 4, sparse=True),
    Mma(INT8, INT32, 32, sparse=True), Mma(FP8, FP32, 32), Mma(FP64, FP64_SUM, 16), Mma(FP64, FP64_SUM, 4, m=8),
    Wgmma(FP16, FP32, 64), Wgmma(FP16, FP16_SUM, 8, "RS"), Wgmma(TF32, FP32, 16, "RS", sparse=True),
    Wgmma(FP8, FP16_SUM, 16, sparse=True), Wgmma(INT8, INT32, 8, "RS", sparse=True), Wgmma(INT8, INT32, 24),
)  # fmt: skip


def every() -> Iterator[Mma | Wgmma]:
    for operand, accumulator, k in mma.PAIRS:
        yield from (Mma(operand, accumulator, k, sparse) for sparse in (False, True))
    yield from (Mma(FP64, FP64_SUM, k, m=m) for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)))
    for operand, accumulator in wgmma.PAIRS:
        yield from (Wgmma(operand, accumulator, n, mode, sparse) for n in (8, 256) for mode in ("SS", "RS") for sparse in (False, True))


INSTRUCTIONS = [*USUAL, *(pytest.param(one, marks=FULL) for one in every() if one not in USUAL)]


def case_of(instruction: Mma | Wgmma) -> Case:
    if isinstance(instruction, Mma):
        return ptx_mma.throughput(instruction, {}, replace(TARGET, sms=1))
    return ptx_wgmma.throughput(instruction, {}, replace(TARGET, sms=1), "random")


@pytest.mark.parametrize("instruction", INSTRUCTIONS, ids=told)
def test_a_product_by_the_documented_fragments_and_descriptors_equals_its_reference(
    instruction: Mma | Wgmma, emulation_folder: Path
) -> None:
    assert emulated(case_of(instruction), emulation_folder) is None


@pytest.mark.parametrize(
    ("case", "instruction", "trips", "rounds"),
    [  # 100 trips of 16 products with 4 sets of A in turn; 20 trips through 4 slices 8 times, or 2 slices 16 times
        (ptx_mma.latency(Mma(FP16, FP16_SUM, 16), {}), Mma(FP16, FP16_SUM, 16), 100, 4),
        (case_of(Wgmma(FP16, FP16_SUM, 8, "RS")), Wgmma(FP16, FP16_SUM, 8, "RS"), 20, 8),
        (case_of(Wgmma(FP16, FP16_SUM, 8, sparse=True)), Wgmma(FP16, FP16_SUM, 8, sparse=True), 20, 16),
    ],
    ids=["mma", "wgmma", "wgmma-sparse"],
)
def test_on_what_is_timed_fp16_accumulators_hold_to_the_last_bit_what_arithmetic_says(
    case: Case, instruction: Mma | Wgmma, trips: int, rounds: int, emulation_folder: Path
) -> None:
    timed = case.timed_inputs
    assert timed is not None

    def arithmetic(arrays: Arrays, trips: int) -> Arrays:
        *_, sums = accumulated(products_in_turn(instruction, arrays), nearest(FP16_SUM), trips * rounds)
        return (sums.astype(np.float32),)

    long = replace(case, inputs=lambda generator, data: timed(case.inputs(generator, data)), reference=arithmetic, tolerance=0.0)
    assert emulated(replace(long, check_trips=trips), emulation_folder) is None


@pytest.mark.parametrize(
    ("given", "instead", "why"),
    [
        ("leading << 16 | stride << 32", "stride << 16 | leading << 32", "reads shared memory that nobody wrote"),
        ("row + 8 * (i / 2 % 2)", "row + 8 * (i % 2)", "result is wrong"),
        ("word / 4 * rows * 4", "word / 4 * 16", "writes shared memory that another accessed"),
    ],
)
def test_a_product_that_is_laid_out_otherwise_is_found_out(given: str, instead: str, why: str, emulation_folder: Path) -> None:
    case = case_of(Wgmma(FP16, FP32, 64))
    assert given in case.source
    assert why in str(emulated(replace(case, source=case.source.replace(given, instead)), emulation_folder))


def kernels(*names: str) -> list[object]:
    """The first case of each kernel, and, for the full run, the others."""
    seen: set[tuple[str, str]] = set()
    found: list[object] = []
    for name in names:
        for number, case in enumerate(cases_for(BENCHES[name], TARGET)):
            assert isinstance(case, Case)
            new = (case.source, case.entry) not in seen
            seen.add((case.source, case.entry))
            found.append(pytest.param(case, id=f"{case.entry}-{number}", marks=() if new else FULL))
    return found


@pytest.mark.parametrize("case", kernels("memory-latency", "memory-throughput", "memory-bandwidth"))
def test_what_is_read_and_written_in_memory_equals_its_reference(case: Case, emulation_folder: Path) -> None:
    assert emulated(case, emulation_folder) is None


@pytest.mark.parametrize("case", kernels("bulk-copy", "tensor-copy", "async-copy"))
def test_copies_that_land_as_late_as_they_may_are_waited_for(case: Case, emulation_folder: Path) -> None:
    assert emulated(case, emulation_folder) is None


def test_a_copy_that_is_not_waited_for_is_found_out(emulation_folder: Path) -> None:
    case = cases_for(BENCHES["async-copy"], TARGET)[0]
    assert isinstance(case, Case)
    hasty = replace(case, source=case.source.replace("cp.async.wait_group 1;", "cp.async.wait_group 2;"))
    assert hasty.source != case.source
    assert "at which an asynchronous operation still is" in str(emulated(hasty, emulation_folder))


@pytest.mark.parametrize("case", kernels("cluster-latency", "cluster-ring"))
def test_blocks_of_a_cluster_read_one_another(case: Case, emulation_folder: Path) -> None:
    assert emulated(case, emulation_folder) is None


@pytest.mark.parametrize("cluster", [1, 2, pytest.param(4, marks=FULL), pytest.param(8, marks=FULL)])
def test_blocks_of_a_cluster_count_in_one_another(cluster: int, emulation_folder: Path) -> None:
    found = next(one for one in cases_for(BENCHES["cluster-histogram"], TARGET) if one.labels["cluster"] == cluster)
    assert isinstance(found, Case)
    assert emulated(replace(found, check_trips=1), emulation_folder) is None
