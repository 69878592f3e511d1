"""Tensor-core benches: what their kernels issue in machine code, and how their figures stand beside the paper's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from ullage.benches.bench import BENCHES, Case, Target, cases_for
from ullage.benches.mma import TABLE_7
from ullage.benches.mma_power import TABLE_11
from ullage.benches.ptx_mma import HALF
from ullage.benches.ptx_tcgen05 import SLICES, Tcgen05
from ullage.benches.source import whole
from ullage.benches.wgmma import TABLE_8
from ullage.benches.wgmma_sizes import TABLE_10
from ullage.benches.wgmma_sparse import TABLE_9
from ullage.gpus.chip import find
from ullage.kernels.compiling import compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops
from ullage.kernels.sass.work import TENSOR, flops, unit

PAPER = Path(__file__).parents[3] / "shared" / "seeds" / "hopper_benchmarks_paper.txt"
NAMES = ("mma", "mma-power", "dmma", "wgmma", "wgmma-sparse", "wgmma-sizes", "tcgen05", "tcgen05-pair", "tcgen05-scaled")
TARGETS = {name: Target(name) for name in ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")}
ARCHITECTURE = {"NVIDIA A100-PCIE-40GB": "sm_80", "NVIDIA GeForce RTX 4090": "sm_89", "NVIDIA H800 PCIe": "sm_90a"}


def cases(name: str, architecture: str, quick: bool = False) -> list[Case]:
    return [case for case in cases_for(BENCHES[name], TARGETS[architecture], quick) if isinstance(case, Case)]


def kernels(name: str, architecture: str) -> list[Case]:
    """A bench's cases, one for each source."""
    return list({case.source: case for case in cases(name, architecture)}.values())


def all_kernels() -> Iterator[tuple[str, str, Case]]:
    for name in NAMES:
        for architecture in TARGETS:
            for case in kernels(name, architecture):
                yield name, architecture, case


def some_kernels() -> list[tuple[str, str, Case]]:
    """A sample of all over types, modes and architectures; `make test-full` takes every one."""
    return list(all_kernels())[::19]


def told(given: tuple[str, str, Case]) -> str:
    name, architecture, case = given
    return "-".join([name, architecture, *(str(value).replace("/", "") for value in case.labels.values()), *case.quantities[:1]])


def compiled(architecture: str, case: Case) -> Function:
    return _compiled(architecture, case.source, case.entry)


@cache
def _compiled(architecture: str, source: str, entry: str) -> Function:
    return next(function for function in disassemble(compile_cubin(whole(source), architecture)) if function.name == entry)


def hot(function: Function) -> tuple[Instruction, ...]:
    """The loop that multiplies: the tightest that holds all its tensor instructions."""
    return min(loops(function), key=lambda body: (-sum(i.root in TENSOR for i in body), len(body)))


def issued_as_declared(architecture: str, case: Case) -> None:
    function = compiled(architecture, case)
    body = hot(function)
    tensor = Counter(i.opcode for i in body if i.root in TENSOR)
    ((prefix, count),) = case.issues.items()
    assert all(opcode.startswith(prefix) for opcode in tensor), tensor
    assert tensor.total() == count == sum(i.root in TENSOR for i in function.instructions)
    assert not [i for i in function.instructions if i.root in ("LDL", "STL")]
    assert not [i for i in body if i.opcode.startswith(("MOV", "IMAD.MOV", "LDG", "LDS"))]


def groups_of(case: Case, opcode: str) -> int:
    assert isinstance(case.block, int)
    return case.block // {"warp": 32, "warpgroup": 128, "cta": case.block}[unit(opcode)]


def works_as_declared(architecture: str, case: Case) -> None:
    # FLOPs of a launch = what the loop's instructions do × trips × who issues them in a block × blocks
    assert isinstance(case.grid, int)
    tensor = [i.opcode for i in hot(compiled(architecture, case)) if i.root in TENSOR]
    done = sum(flops(opcode) or 0 for opcode in tensor)
    assert done * case.trips * groups_of(case, tensor[0]) * case.grid == case.flops


@pytest.mark.parametrize("given", some_kernels(), ids=told)
def test_the_hot_loop_issues_the_declared_instructions_and_nothing_that_moves_data(given):
    issued_as_declared(*given[1:])
    if not given[0].startswith("tcgen05"):
        works_as_declared(*given[1:])


@pytest.mark.full
@pytest.mark.parametrize("given", list(all_kernels()), ids=told)
def test_every_hot_loop_issues_the_declared_instructions_and_nothing_that_moves_data(given):
    issued_as_declared(*given[1:])
    if not given[0].startswith("tcgen05"):
        works_as_declared(*given[1:])


@pytest.mark.parametrize("number", [1, 30])
def test_wgmma_waits_once_a_trip_for_the_group_before_and_is_not_serialized(number):
    # a serialized loop would wait behind each instruction and copy its accumulators
    case = kernels("wgmma", "sm_90a")[number]
    body = hot(compiled("sm_90a", case))
    counts = Counter(i.opcode for i in body)
    assert counts["WARPGROUP.ARRIVE"] == counts["WARPGROUP.DEPBAR.LE"] == 1
    assert [i.operands.replace(" ", "") for i in body if i.root == "WARPGROUP" and "DEPBAR" in i.opcode] == ["gsb0,0x1"]
    sums = {re.findall(r"\bR\d+", i.operands)[0] for i in body if "GMMA" in i.root}
    assert len(sums) == 1  # one accumulator, in place
    assert "R2UR" not in counts  # descriptors stay in uniform registers


def test_tcgen05_is_told_the_shape_that_it_declares():
    # the instruction descriptor is a constant in the code: n in eights from bit 17, m in sixteens from bit 24
    case = next(case for case in cases("tcgen05", "sm_100a") if case.labels["instruction"] == "m128n64k16")
    function = compiled("sm_100a", case)
    constants = {int(word, 16) for i in function.instructions if i.root == "UMOV" for word in re.findall(r"0x[0-9a-f]+$", i.operands)}
    assert any((word >> 17 & 63) * 8 == 64 and (word >> 24 & 31) * 16 == 128 for word in constants)
    assert case.flops == 2 * 128 * 64 * 16 * SLICES * 4 * case.trips  # a chain on one SM: grid 1


def test_a_descriptor_of_bfloat16_has_the_bits_of_the_document():
    # D is F32 (1 at bit 4), A and B BF16 (1 at bits 7 and 10), n / 8 = 32 at bit 17, m / 16 = 8 at bit 24
    from ullage.benches.operands import BF16, FP32

    assert Tcgen05(BF16, FP32).descriptor == (1 << 4) + (1 << 7) + (1 << 10) + (32 << 17) + (8 << 24)


@pytest.mark.parametrize("name", NAMES)
def test_a_throughput_lasts_long_enough_to_be_timed_on_a_full_gpu(name):
    # at the stated peak of an H200 (or B200) still 4 ms, and n below 32 can't reach it: an instruction's pace is 16 cycles at best
    for architecture, chip in (("sm_90a", find("H200")), ("sm_100a", find("B200"))):
        for case in cases(name, architecture):
            if "throughput" in case.quantities:
                narrow = min(int(str(case.labels.get("N", 32))), 32) / 32
                peak = chip.peak(case.precision or "") * (2 if case.sparse else 1) * narrow
                assert case.flops / peak > 0.004 * 132 / chip.sms, case.labels


@pytest.mark.parametrize("name", NAMES)
def test_no_random_products_are_added_up_for_a_whole_launch(name):
    for architecture in TARGETS:
        assert all(case.data == "zero" or case.timed_inputs is not None for case in cases(name, architecture))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_needs_no_more_shared_memory_than_every_block_may_have(name):
    for architecture in TARGETS:
        assert all(case.shared <= 48 * 1024 for case in cases(name, architecture))


@pytest.mark.parametrize("name", NAMES)
def test_quick_cases_are_few_and_are_among_all(name):
    for architecture in TARGETS:
        every = [(case.labels, case.quantities) for case in cases(name, architecture)]
        quick = [(case.labels, case.quantities) for case in cases(name, architecture, quick=True)]
        assert all(one in every for one in quick)
        assert bool(quick) == bool(every)
        assert len(quick) <= 20


@pytest.mark.parametrize("name", NAMES)
def test_labels_and_quantity_name_one_case(name):
    for architecture in TARGETS:
        named = [(tuple(case.labels.items()), quantity) for case in cases(name, architecture) for quantity in case.quantities]
        assert len(named) == len(set(named))
        layout = BENCHES[name].layout
        assert all({*layout.rows, *layout.across} == set(case.labels) for case in cases(name, architecture))


@pytest.mark.parametrize("name", ["mma", "mma-power", "wgmma", "wgmma-sparse", "wgmma-sizes"])
def test_every_published_figure_has_its_case(name):
    for figure in BENCHES[name].figures:
        of_its_gpu = cases(name, ARCHITECTURE[figure.gpu])
        matching = [case for case in of_its_gpu if dict(case.labels) == dict(figure.labels) and figure.quantity in case.quantities]
        assert len(matching) == 1, figure


def test_the_tables_hold_as_many_figures_as_the_paper():
    # VII: 8 rows × 3 GPUs × dense and sparse × latency and throughput; VIII, IX: 6 rows × (2 modes × 2 + 2); X: 6 n × 12; XI: 4 × 2 × 3 × 2
    counts = {name: len(BENCHES[name].figures) for name in NAMES}
    assert counts == {
        "mma": 96,
        "mma-power": 48,
        "dmma": 0,
        "wgmma": 36,
        "wgmma-sparse": 36,
        "wgmma-sizes": 72,
        "tcgen05": 0,
        "tcgen05-pair": 0,
        "tcgen05-scaled": 0,
    }


def test_figures_are_in_si_units():
    fastest = max(figure.value for name in NAMES for figure in BENCHES[name].figures if figure.quantity == "throughput")
    most = max(figure.value for name in NAMES for figure in BENCHES[name].figures if figure.quantity == "efficiency")
    assert (fastest, most) == pytest.approx((2945.0e12, 8.79e12))  # FP8 sparse wgmma; INT8 sparse mma on the H800


def seed(begin: str, end: str) -> list[float]:
    """The decimal numbers that stand between two lines of the paper's text, in order."""
    if not PAPER.exists():
        pytest.skip("the paper's text is not here")
    text = PAPER.read_text()
    part = text[text.index(begin) :]
    body = part[part.index("\n") : part.index(end)]
    return [float(number) for number in re.findall(r"\d+\.\d+|(?<=/)\d+", body)]


def flat(value: object) -> Iterator[float]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from flat(one)
    else:
        assert isinstance(value, float | int)
        yield float(value)


def test_table_7_is_the_papers():
    assert seed("TABLE VII:", "wgmma results.") == list(flat([list(row.values()) for row in TABLE_7.values()]))


def test_table_8_is_the_papers():
    assert seed("TABLE VIII:", "TABLE IX:") == list(flat(list(TABLE_8.values())))


def test_table_9_is_the_papers():
    assert seed("TABLE IX:", "wgmma results with different") == list(flat(list(TABLE_9.values())))


def test_table_10_is_the_papers():
    assert seed("TABLE X:", "Energy efficiency.") == list(flat(list(TABLE_10.values())))


def test_table_11_is_the_papers():
    assert seed("TABLE XI:", "IV-D Transformer") == list(flat([list(row.values()) for row in TABLE_11.values()]))


@pytest.mark.parametrize("n", [256, 128, 64, 32, 16, 8])
def test_the_papers_latencies_with_a_in_shared_memory_follow_from_bytes_and_products(n):
    # n / 2 cycles of the tensor cores, or 2 KiB of A and 32 (sparse: 64) bytes a column of B at 128 B a cycle, whichever is longer
    dense, sparse = TABLE_10[n]
    assert dense[0][0] == max(n / 2, (2048 + 32 * n) / 128)
    assert sparse[0][0] == max(n / 2, (2048 + 64 * n) / 128)


def test_only_packed_sums_are_unpacked():
    for _, _, case in all_kernels():
        assert (HALF in case.source) == (case.labels.get("C/D") == "FP16")
