"""Microbenchmarks of what Hopper brought (DPX, copies under way, clusters): references against slow models, and the machine code."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from ullage.benches import async_copy, cluster_histogram, dpx, shared_cluster
from ullage.benches.bench import BENCHES, Case, Target, cases_for
from ullage.benches.result import CaseRow, Stamp, Value
from ullage.benches.running.checking import wrong
from ullage.benches.running.device import POISON
from ullage.benches.running.kernel_case import size
from ullage.benches.source import whole
from ullage.gpus.chip import find
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops
from ullage.kernels.sass.work import WARP, flops, moved

PAPER = Path(__file__).parents[3] / "shared/seeds/hopper_benchmarks_paper.txt"
FAMILIES = ("dpx", "dpx-blocks", "async-copy", "cluster-latency", "cluster-ring", "cluster-histogram")
USUAL = ("sm_80", "sm_90a", "sm_120a")  # the others' machine code is read in the full run
EVERY = [one if one in USUAL else pytest.param(one, marks=pytest.mark.full) for one in ARCHITECTURES]
CLUSTERED = [one if one in USUAL else pytest.param(one, marks=pytest.mark.full) for one in shared_cluster.CLUSTERED]


def target(architecture: str = "sm_90a", sms: int = 8) -> Target:
    per_block, per_sm = (99, 100) if architecture == "sm_120a" else (227, 228)
    return Target(architecture, sms=sms, shared_per_block=per_block * 1024, shared_per_sm=per_sm * 1024)


def made(family: str, architecture: str = "sm_90a", sms: int = 8, quick: bool = False) -> list[Case]:
    found = cases_for(BENCHES[family], target(architecture, sms), quick)
    return [case for case in found if isinstance(case, Case)]


def labelled(family: str, **labels: object) -> Case:
    return next(one for one in made(family, sms=2) if {k.replace("_per_", "/"): v for k, v in labels.items()}.items() <= one.labels.items())


# --- references against models that go thread by thread ---


def half(name: str, a: int, b: int, c: int, low: int, high: int) -> tuple[int, bool]:
    """A DPX function on one number of a range, by the words of CUDA's documentation; and what a predicate says."""
    best = max if "max" in name else min
    if "add" in name:
        found = best((a + b - low) % (high - low + 1) + low, c)
    else:
        found = best(a, b, c) if "3_" in name else best(a, b)
    return max(found, 0) if name.endswith("relu") else found, a >= b if best is max else a <= b


def whole_word(name: str, a: int, b: int, c: int) -> tuple[int, int]:
    """A DPX function on words of 32 bits; the predicates as the kernel counts them: the high half's 1, the low one's 2."""
    bits = 16 if "x2" in name else 32
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if "_s" in name else (0, 2**bits - 1)
    word, said = 0, 0
    for part in range(32 // bits):
        numbers = [((x >> part * bits) - low) % 2**bits + low for x in (a, b, c)]
        found, taken = half(name, *numbers, low, high)
        word |= found % 2**bits << part * bits
        said += taken * (2 if bits == 16 and part == 0 else 1)
    return word, said


def opposite(name: str) -> str:
    """The function that takes turns with `__vimax_…_relu`."""
    return name.replace("max", "min") if "max" in name else name.replace("min", "max")


def thread(name: str, inputs: list[list[int]], chains: int, threads: int, number: int, calls: int) -> list[int]:
    """What one thread of the DPX kernel leaves for each chain, call by call."""
    a, b, c = inputs
    x, held = [a[chain * threads + number] % 2**32 for chain in range(chains)], 0
    turns = re.fullmatch(r"__vi(max|min)_\w+", name) is not None
    for call in range(calls):
        at = call % 8 * 32 + number % 32
        called = opposite(name) if turns and call % 2 else name
        for chain in range(chains):
            x[chain], said = whole_word(called, x[chain], b[at], c[at])
            held += said if "vib" in name else 0
    return [((one ^ held) + 2**31) % 2**32 - 2**31 for one in x]


EXTREMES = [-(2**31), 2**31 - 1, -1, 0, 1, -0x8000, 0x7FFF, 0x7FFF7FFF, -0x7FFF8000, 0x00018000]


def test_the_model_of_a_dpx_function_gives_what_can_be_worked_out_by_hand() -> None:
    # 2³¹ − 1 + 1 wraps to the least; halves do not carry into one another: 0xFFFF + 1 = 0 in the low half alone
    assert whole_word("__viaddmax_s32", 2**31 - 1, 1, -5 % 2**32)[0] == -5 % 2**32
    assert whole_word("__viaddmin_u16x2", 0x0002FFFF, 0x00030001, 0x00090009)[0] == 0x00050000
    assert whole_word("__vimin3_s16x2_relu", 0xFFFF0007, 0x00050006, 0x00040008)[0] == 0x00000006
    # high: 2 ≥ 1 (counts 1); low: 3 ≥ 4 is false
    assert whole_word("__vibmax_u16x2", 0x00020003, 0x00010004, 0) == (0x00020004, 1)


@pytest.mark.parametrize("function", list(dpx.functions()), ids=lambda one: one.name)
@pytest.mark.parametrize("measure", ["latency", "throughput"])
def test_a_dpx_kernel_leaves_what_its_calls_one_by_one_would(function: dpx.DpxFunction, measure: str) -> None:
    case = labelled("dpx", function=function.name, measure=measure)
    way, blocks = (dpx.LATENCY, 1) if measure == "latency" else (dpx.THROUGHPUT, 2)
    inputs = case.inputs(np.random.default_rng(1), "random")
    for array in inputs:  # every lane meets an extreme, at steps of its own
        array[:: len(EXTREMES) + 1] = np.resize(EXTREMES, len(array[:: len(EXTREMES) + 1]))
    (found,) = case.reference(inputs, 2)
    shaped = found.reshape(way.chains, blocks, way.threads)
    numbers = [array.tolist() for array in inputs]
    for number in (0, 11, way.threads - 1):
        expected = thread(function.name, numbers, way.chains, way.threads, number, 2 * way.calls)
        assert all(shaped[:, block, number].tolist() == expected for block in range(blocks)), function.name


def test_dpx_has_all_36_functions_of_cuda_each_once() -> None:
    # each of max and min: s32 and s16x2 have 3, 3_relu, _relu, add, add_relu, b (6); u32 and u16x2 3, add, b (3): 2 × (12 + 6)
    names = [one.name for one in dpx.functions()]
    assert len(names) == len(set(names)) == 36
    assert {"__vimax_s16x2_relu", "__vibmin_u32", "__viaddmin_u16x2", "__vimin3_s32_relu"} <= set(names)
    assert not {"__vimax_s32", "__vimax3_u32_relu", "__vibmax_s32_relu"} & set(names)


def test_a_product_s_first_tiles_are_what_its_threads_would_sum() -> None:
    case = labelled("async-copy", block="8x8", way="SyncShare", blocks_per_SM=1)
    a, b = case.inputs(np.random.default_rng(2), "random")
    (found,) = case.reference((a, b), 3)
    assert found.shape == (8, 16)
    for row, column in ((0, 0), (7, 15), (3, 9)):
        assert found[row, column] == sum(int(a[row, k]) * int(b[k, column]) for k in range(3 * 8))


def test_a_product_of_the_whole_depth_stays_exact_in_single_precision() -> None:
    # elements up to 4: no partial sum of 2,048 products of at most 16 passes 2²⁴, up to which all whole numbers are exact
    for case in made("async-copy", sms=1, quick=True)[:2]:
        assert max(float(np.abs(array).max()) for array in case.inputs(np.random.default_rng(3), "random")) == 4
        assert case.trips * int(case.block[0]) * 4 * 4 < 2**24  # type: ignore[index]


def test_both_blocks_of_a_chase_go_the_same_chain_link_by_link() -> None:
    (case,) = made("cluster-latency")
    (following,) = case.inputs(np.random.default_rng(4), "random")
    at, seen = 0, []
    for _ in range(256):
        seen.append(at)
        at = int(following[at])
    assert sorted(seen) == list(range(256))  # one cycle through all links: none is met twice
    assert at == 0
    assert case.reference((following,), 2)[0].tolist() == [(seen + seen)[2 * 16]] * 2


def test_a_ring_adds_the_next_block_s_pages_by_turns() -> None:
    case = labelled("cluster-ring", cluster=2, block=128, loads=2)
    blocks = int(str(case.labels["blocks"]))
    (values,) = case.inputs(np.random.default_rng(5), "random")
    (found,) = case.reference((values,), 3)
    for load, block, number in ((0, 0, 0), (1, 1, 127), (1, 0, 5)):
        other = block ^ 1  # the next of a cluster of two
        shared = [int(values[(row * blocks + other) * 128 + number]) for row in range(4)]
        expected = shared[load] + shared[2 + load] + shared[load]  # pages 0, 1 and 0
        assert found[(load * blocks + block) * 128 + number] == (expected + 2**31) % 2**32 - 2**31


def test_the_last_block_of_a_cluster_reads_the_first_of_its_own() -> None:
    case = next(one for one in made("cluster-ring", sms=16) if one.labels["cluster"] == 4 and one.labels["block"] == 128)
    blocks = int(str(case.labels["blocks"]))
    assert blocks == 12  # 7/8 of 16 are 14, and three clusters of 4 fit
    values = np.repeat(np.arange(2 * blocks, dtype=np.int32), 128)  # block n holds n on page 0, and 12 + n on page 1
    (found,) = case.reference((values,), 1)
    assert found.reshape(blocks, 128)[:, 0].tolist() == [1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8]


@pytest.mark.parametrize(("threads", "cluster"), [(128, 1), (128, 8), (512, 4)])
def test_a_histogram_counts_every_element_that_its_blocks_read(threads: int, cluster: int) -> None:
    case = next(one for one in made("cluster-histogram", sms=1) if one.labels == {"block": threads, "cluster": cluster, "bins": 256})
    (values,) = case.inputs(np.random.default_rng(6), "random")
    bins, pieces = case.scalars
    read = []
    for block in range(int(str(case.grid))):  # as the kernel does: load t of thread x is the 8 elements at this place
        for t in range(2):
            begin = ((block % pieces) * 2 + t) * threads * 8
            read.append(values[begin : begin + threads * 8])
    counted = np.bincount(np.concatenate(read), minlength=bins)
    assert counted.sum() == int(str(case.grid)) * 2 * threads * 8
    # the kernel adds to what the poison left: −1
    (found,) = case.reference((values,), 2)
    left = np.full(4 * bins, POISON, np.uint8).view(np.uint32)
    assert (found == left + counted.astype(np.uint32)).all()
    assert wrong([left + counted.astype(np.uint32)], [found]) is None


def test_a_histogram_s_pieces_fill_what_is_stored_and_blocks_fill_whole_clusters() -> None:
    for case in made("cluster-histogram", sms=3):
        (values,) = case.inputs(np.random.default_rng(0), "zero")
        assert case.scalars[1] * case.trips * int(str(case.block)) * 8 == values.size
        assert case.items == int(str(case.grid)) * int(str(case.block)) * case.trips * 8
        assert int(str(case.grid)) % case.cluster == 0


def test_shared_memory_begins_to_limit_the_blocks_between_1024_and_2048_bins_without_a_cluster() -> None:
    # 4 histograms of 4 B a bin: 16 and 32 KiB, each with 1 KiB of the system's, of 228 KiB: 13 and 6 blocks, where 2,048 / 128 = 16 fit
    per = {case.labels["bins"]: case.shared for case in made("cluster-histogram") if case.labels["block"] == 128 and case.cluster == 1}
    assert [228 * 1024 // (per[bins] + 1024) for bins in (512, 1024, 2048)] == [25, 13, 6]


# --- what cases ask of a GPU ---


@pytest.mark.parametrize("architecture", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("family", FAMILIES[3:])
def test_clusters_are_whole_and_their_shared_memory_fits(architecture: str, family: str) -> None:
    for case in made(family, architecture, sms=170):
        chip = target(architecture)
        assert int(str(case.grid)) % case.cluster == 0
        assert case.cluster <= 8  # more needs leave
        assert case.shared <= chip.shared_per_block
        if family != "cluster-histogram":
            assert 2 * (case.shared + 1024) > chip.shared_per_sm  # two blocks never share an SM


def test_the_pages_of_a_ring_lie_within_its_shared_memory() -> None:
    for case in made("cluster-ring", "sm_120a", sms=170):
        last = (2 * int(str(case.labels["loads"])) - 1) * shared_cluster.ROW + int(str(case.block))
        assert 4 * last <= case.shared


def test_a_gpu_too_small_for_a_cluster_has_no_case_for_it() -> None:
    # 2 SMs: 7/8 of them is one, and no cluster of 4 or 8
    assert {case.cluster for case in made("cluster-ring", sms=2)} == {2}


def test_the_sawtooth_has_each_tooth_s_tip_and_fall() -> None:
    for sms in (1, 132):
        blocks = [case.grid for case in made("dpx-blocks", sms=sms)]
        assert {sms, sms + 1, 2 * sms, 2 * sms + 1, 3 * sms, 3 * sms + 1} <= set(blocks)
        assert 0 not in blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_quick_cases_are_some_of_all_and_all_are_named_apart(family: str) -> None:
    names = [tuple(case.labels.items()) for case in made(family)]
    quick = [tuple(case.labels.items()) for case in made(family, quick=True)]
    assert quick
    assert set(quick) <= set(names)
    assert len(set(names)) == len(names)
    shown = {*BENCHES[family].layout.rows, *BENCHES[family].layout.across}
    assert len({tuple(dict(one)[label] for label in shown) for one in names}) == len(names)  # no two share a cell of the table


@pytest.mark.parametrize("family", FAMILIES)
def test_references_have_the_shape_and_the_type_of_the_outputs_and_differ_with_the_inputs(family: str) -> None:
    for case in made(family, sms=2, quick=True):
        found, other = (case.reference(case.inputs(np.random.default_rng(seed), "random"), 1)[0] for seed in (7, 8))
        assert (found.shape, found.dtype) == (case.outputs[0].shape, np.dtype(case.outputs[0].dtype))
        assert size(*vars(case.outputs[0]).values()) == found.nbytes
        assert (found != other).any()


# --- the papers' figures ---


@pytest.mark.parametrize("family", ["async-copy", "cluster-latency", "cluster-ring"])
def test_every_published_figure_stands_beside_a_case(family: str) -> None:
    cases = made(family, sms=114)
    for figure in BENCHES[family].figures:
        assert any(figure.labels.items() <= case.labels.items() and figure.quantity in case.quantities for case in cases), figure
        assert find(figure.gpu).name == figure.gpu


def test_the_figures_of_copies_and_clusters_are_the_paper_s() -> None:
    if not PAPER.exists():
        pytest.skip("the paper's text is not here")
    text = PAPER.read_text()
    for table, gpu in (("XIII", "NVIDIA H800 PCIe"), ("XIV", "NVIDIA A100-PCIE-40GB")):
        part = text[text.index(f"TABLE {table}:") :]
        rows = re.findall(r"^(AsyncPipe|SyncShare) ([\d. ]+)", part, re.MULTILINE)[:6]
        for (way, numbers), side in zip(rows, (8, 8, 16, 16, 32, 32), strict=True):
            assert tuple(float(number) for number in numbers.split()[:6]) == async_copy.PAPER[gpu, side, way]
    assert "SM-to-SM network latency is 180 cycles" in text
    assert "nearly 3.27 TB/s is observed with a cluster size of 2, reducing to 2.65 TB/s with a cluster size of 4" in text
    assert [one.value for name in ("cluster-latency", "cluster-ring") for one in BENCHES[name].figures] == [180, 3.27e12, 2.65e12]


def ring_row(cluster: int, blocks: int, busy: float, clock: float | None = 1.7e9) -> CaseRow:
    each, stamp = 16.0, Stamp(clock, "kernel", None, None, None, "random")
    rates = {"bandwidth": each * busy * 1.7e9, "bytes_per_cycle_sm": each}
    labels = {"cluster": cluster, "block": 1024, "loads": 4, "blocks": blocks}
    return CaseRow(labels, {name: Value(rate, rate, rate, 5, "") for name, rate in rates.items()}, stamp)


def test_clusters_that_ran_one_after_the_other_are_named() -> None:
    # 112 blocks as if on 56 SMs: in two rounds; 110 of 112: all at once, less what a launch costs
    found = shared_cluster.crowded([ring_row(8, 112, 56), ring_row(4, 112, 110), ring_row(8, 112, 56)])
    assert found == ("clusters of 8 did not all run at once: B/s is too low, B/cycle/SM is right",)
    assert shared_cluster.crowded([ring_row(8, 112, 56, clock=None), CaseRow({"cluster": 2}, {}, None, "too late")]) == ()


# --- the machine code ---


@lru_cache(maxsize=32)
def compiled(source: str, architecture: str) -> dict[str, Function]:
    return {function.name: function for function in disassemble(compile_cubin(whole(source), architecture))}


def function(case: Case, architecture: str) -> Function:
    return compiled(case.source, architecture)[case.entry]


def trip(function: Function) -> tuple[Instruction, ...]:
    """The loop between the two readings of the cycle counter."""
    begin, end = (one.address for one in function.instructions if "SR_CLOCKLO" in one.operands)
    (found,) = (body for body in loops(function) if begin < body[0].address and body[-1].address < end)
    return found


def registers(function: Function) -> int:
    return 1 + max(int(number) for one in function.instructions for number in re.findall(r"\bR(\d+)\b", one.operands))


def threads_of(case: Case) -> int:
    return int(np.prod(case.block))


def checked(case: Case, architecture: str) -> None:
    """What a case declares is issued in a trip; nothing spills; all its threads have registers."""
    found = function(case, architecture)
    body = trip(found)
    for opcode, count in case.issues.items():
        assert sum(one.opcode.startswith(opcode) for one in body) == count, (dict(case.labels), opcode)
    assert not [str(one) for one in found.instructions if one.root in ("LDL", "STL")]
    assert registers(found) * threads_of(case) <= 65_536


@pytest.fixture(autouse=True, scope="module")
def _nvrtc() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")


@pytest.mark.parametrize("architecture", EVERY)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_issues_in_a_trip_what_its_case_declares(family: str, architecture: str) -> None:
    for case in made(family, architecture, quick=family.startswith("dpx")):
        checked(case, architecture)


@pytest.mark.full
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_dpx_function_issues_what_it_declares_on_every_architecture(architecture: str) -> None:
    for case in made("dpx", architecture):
        checked(case, architecture)


# instructions of a call, the loop's own (3 or 4 in 64 calls) rounded away
CALLS = {
    "sm_80": {"__viaddmax_s32": 2, "__viaddmax_s16x2_relu": 13, "__vimax3_s32_relu": 3},
    "sm_89": {"__viaddmax_s32": 2, "__viaddmax_s16x2_relu": 13, "__vimax3_s32_relu": 3},
    "sm_90a": {"__viaddmax_s32": 1, "__viaddmax_s16x2_relu": 1, "__vimax3_s32_relu": 1},
    "sm_120a": {"__viaddmax_s32": 2, "__viaddmax_s16x2_relu": 2, "__vimax3_s32_relu": 2},
}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_120a", pytest.param("sm_89", marks=pytest.mark.full)])
def test_a_dpx_call_is_one_instruction_on_hopper_and_up_to_13_before_it(architecture: str) -> None:
    cases = [case for case in made("dpx", architecture, quick=True) if case.labels["measure"] == "latency"]
    found = {case.labels["function"]: round(len(trip(function(case, architecture))) / case.steps) for case in cases}
    assert found == CALLS[architecture]


@pytest.mark.parametrize("architecture", USUAL)
def test_two_blocks_of_1024_threads_of_the_throughput_kernel_fit_an_sm(architecture: str) -> None:
    # 65,536 registers for 2,048 threads
    for case in made("dpx", architecture, quick=True):
        assert registers(function(case, architecture)) <= 32


@pytest.mark.parametrize("architecture", EVERY)
def test_the_flops_declared_of_a_product_are_those_that_its_warps_issue(architecture: str) -> None:
    for case in made("async-copy", architecture):
        of_a_warp = sum(flops(one.opcode) or 0 for one in trip(function(case, architecture)))
        assert of_a_warp * threads_of(case) // WARP * int(np.prod(case.grid)) * case.trips == case.flops, case.labels


@pytest.mark.parametrize("architecture", USUAL)
def test_only_the_waiting_product_brings_its_tiles_through_registers(architecture: str) -> None:
    for case in made("async-copy", architecture, quick=True):
        roots = {one.root for one in trip(function(case, architecture))}
        waits = case.labels["way"] == "SyncShare"
        assert ({"LDG", "STS"} <= roots, "LDGSTS" in roots) == (waits, not waits)
        assert waits or not {"LDG", "STS"} & roots


@pytest.mark.parametrize("architecture", CLUSTERED)
def test_between_two_hops_of_a_chase_to_another_sm_stands_nothing(architecture: str) -> None:
    (case,) = made("cluster-latency", architecture)
    body = trip(function(case, architecture))
    chain = [one for one in body if one.root == "LD"]
    written = [one.operands.split(",")[0] for one in chain]
    read = [re.search(r"\[(R\d+)", one.operands)[1] for one in chain]  # type: ignore[index]
    assert read == [written[-1], *written[:-1]]  # each takes its address from the one before, the first from the trip before
    assert len(body) - len(chain) == 3  # the trip's count, a comparison and a branch
    assert moved(chain[0]) == {"generic": 8}


@pytest.mark.parametrize("architecture", CLUSTERED)
def test_the_bytes_declared_of_a_ring_are_those_that_its_loads_bring(architecture: str) -> None:
    # loads that always find the same were once taken out of the loop
    for case in made("cluster-ring", architecture):
        of_a_thread = sum(moved(one).get("generic", 0) for one in trip(function(case, architecture)))
        assert of_a_thread * threads_of(case) * int(str(case.grid)) * case.trips == case.bytes, case.labels


@pytest.mark.parametrize("architecture", CLUSTERED)
def test_all_blocks_of_a_cluster_meet_before_the_first_and_after_the_last_remote_access(architecture: str) -> None:
    for family in FAMILIES[3:]:
        for case in made(family, architecture, quick=True):
            code = function(case, architecture).instructions
            body = trip(function(case, architecture))
            met = [one.address for one in code if one.root == "UCGABAR_WAIT"]
            assert len(met) == 2
            assert met[0] < body[0].address < body[-1].address < met[1]
            remote = [one.address for one in code if one.root in ("LD", "ST", "ATOM")]
            assert all(met[0] < address < met[1] for address in remote)


def test_a_histogram_without_a_cluster_counts_in_its_own_shared_memory() -> None:
    for case in made("cluster-histogram", quick=True):
        roots = {one.root for one in trip(function(case, "sm_90a"))}
        assert ("ATOMS" in roots, "ATOM" in roots) == (case.cluster == 1, case.cluster > 1)


def test_programs_hold_a_kernel_for_every_case_and_no_other() -> None:
    for family, source in (("async-copy", async_copy.SOURCE), ("cluster-histogram", cluster_histogram.SOURCE)):
        assert {case.entry for case in made(family)} == set(compiled(source, "sm_90a"))
    entries = {case.entry for family in ("cluster-latency", "cluster-ring") for case in made(family)}
    assert entries == set(compiled(shared_cluster.SOURCE, "sm_90a"))
