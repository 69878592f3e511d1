"""Microbenchmarks of memory: what their kernels issue, counted in the machine code, and what their references say."""

from __future__ import annotations

import shutil
import tracemalloc
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from tests.benches.emulated_gpu import emulated
from ullage.benches import bulk_copy, chase, memory_bandwidth, reading
from ullage.benches.bench import BENCHES, Case, Output, Target, cases_for
from ullage.benches.source import whole
from ullage.kernels.compiling import ARCHITECTURES, compile_cubin
from ullage.kernels.sass.disassembler import disassemble
from ullage.kernels.sass.instruction import Function, Instruction, loops
from ullage.kernels.sass.work import moved

pytest.importorskip("cuda.bindings.nvrtc")

FAMILIES = ("memory-latency", "memory-curve", "memory-throughput", "memory-bandwidth", "bulk-copy")
MEMORY_SOURCES = (chase.SOURCE, reading.SOURCE, memory_bandwidth.SOURCE)


def small(architecture: str) -> Target:
    return Target(architecture, sms=2, l2=2**20, memory=2**30)


def made(architecture: str, family: str, quick: bool = False) -> list[Case]:
    return [case for case in cases_for(BENCHES[family], small(architecture), quick) if isinstance(case, Case)]


@lru_cache(maxsize=8)
def functions(architecture: str) -> dict[str, Function]:
    """All kernels of the families for an architecture, compiled as one program: that is quicker."""
    bulk = (bulk_copy.SOURCE,) if architecture in bulk_copy.ARCHITECTURES else ()
    program = compile_cubin(whole("".join((*MEMORY_SOURCES, *bulk))), architecture)
    return {function.name: function for function in disassemble(program)}


def hot_loop(function: Function) -> tuple[Instruction, ...]:
    """The largest loop between the two readings of the cycle counter."""
    begin, end = (one.address for one in function.instructions if "SR_CLOCKLO" in one.operands)
    return max((body for body in loops(function) if begin < body[0].address and body[-1].address < end), key=len)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_issues_in_a_trip_what_its_case_declares(architecture: str) -> None:
    cases = [case for family in FAMILIES for case in made(architecture, family)]
    assert {case.source for case in cases} <= {*MEMORY_SOURCES, bulk_copy.SOURCE}
    for case in cases:
        counted = Counter(one.root for one in hot_loop(functions(architecture)[case.entry]))
        assert {root: counted[root] for root in case.issues} == dict(case.issues), case.labels


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_bytes_declared_are_those_that_the_machine_code_moves(architecture: str) -> None:
    for family in ("memory-throughput", "memory-bandwidth"):
        for case in made(architecture, family):
            body = hot_loop(functions(architecture)[case.entry])
            space = "shared" if case.labels["level"] == "shared memory" else "global"
            thread = sum(moved(one).get(space, 0) for one in body)
            assert thread * int(np.prod(case.block)) * int(np.prod(case.grid)) * case.trips == case.bytes, case.labels


@pytest.mark.parametrize("architecture", bulk_copy.ARCHITECTURES)
def test_bulk_copies_move_their_size_with_each_instruction_and_call_nothing(architecture: str) -> None:
    for case in made(architecture, "bulk-copy"):
        function = functions(architecture)[case.entry]
        instructions = sum(one.root == "UBLKCP" for one in hot_loop(function))
        assert instructions * int(str(case.labels["size"])) * int(np.prod(case.grid)) * case.trips == case.bytes
        # with a destination anywhere in a cluster, the compiler for sm_120 calls a routine of the driver for every copy
        assert not any(one.root == "CALL" for one in function.instructions)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_kernel_spills_registers(architecture: str) -> None:
    # 2,048 threads an SM leave each 32 registers: a spill would add traffic that nobody declared
    for function in functions(architecture).values():
        assert not [str(one) for one in function.instructions if one.root in ("LDL", "STL")], function.name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_each_load_of_a_chase_takes_its_address_from_the_load_before(architecture: str) -> None:
    for name in ("chase_ca", "chase_cg", "chase_shared"):
        chain = [one for one in hot_loop(functions(architecture)[name]) if one.root in ("LDG", "LDS")]
        written = [one.operands.split(",")[0] for one in chain]
        for load, before in zip(chain, [written[-1], *written], strict=False):
            address = load.operands.split(",", 1)[1].rpartition("[")[2].strip("]").split(".")[0]
            assert address == before, f"{name}: {load}"


def test_a_chase_asks_the_l1_with_ca_and_only_the_l2_with_cg() -> None:
    # .ca is coherent in the SM, so the L1 may answer; .cg in the GPU, so only the L2 may
    found = functions("sm_90a")
    for name, words in (("chase_ca", "LDG.E.64.STRONG.SM"), ("chase_cg", "LDG.E.64.STRONG.GPU")):
        assert {one.opcode for one in hot_loop(found[name]) if one.root == "LDG"} == {words}


def keys(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, chase.KEYS, np.uint32)


def curve(l2: int) -> list[Case]:
    return [case for case in cases_for(BENCHES["memory-curve"], Target("sm_90a", sms=2, l2=l2, memory=2**40)) if isinstance(case, Case)]


SMALL_CURVE = curve(l2=2**20)  # to 8 MiB: 65,536 lines
by_footprint = pytest.mark.parametrize("case", SMALL_CURVE, ids=lambda case: str(case.labels["footprint"]))


def test_the_small_curve_has_the_shapes_of_a_large_one() -> None:
    # 8 KiB × 2^(n/2): every other number of lines is no power of two
    assert [case.scalars[0] for case in SMALL_CURVE][:5] == [64, 91, 128, 181, 256]
    assert SMALL_CURVE[-1].scalars[0] == 65_536
    assert [case.labels for case in SMALL_CURVE] == [case.labels for case in curve(l2=60 * 2**20)][: len(SMALL_CURVE)]


@by_footprint
@pytest.mark.parametrize("seed", [1, 2])
def test_the_ring_of_each_footprint_is_one_cycle_over_all_its_lines(case: Case, seed: int) -> None:
    entries, span = case.scalars[:2]
    lines = chase.ring_lines(np.arange(entries), keys(seed), span)
    following = np.full(entries, -1, np.int64)
    following[lines] = np.roll(lines, -1)  # the word of each line leads to that of the next step, as in the kernel
    seen, at = np.zeros(entries, bool), 0
    for _ in range(entries):
        assert not seen[at], "it came home before it had been everywhere"
        seen[at] = True
        at = following[at]
    assert at == 0
    assert seen.all()


def has_pattern(lines: np.ndarray) -> bool:
    """Whether an order has what a prefetcher could follow: a distance, or two in a row, again and again, or lines beside one another.

    Of n steps in random order each distance occurs once on average, and that one of n occurs more than 12 times has a probability of
    about n / 12!, 1 in 7,000 for the most lines. Two distances in a row occur together n times in n² pairs. Two lines to either side
    are 4 on average.
    """
    lines = lines.astype(np.int64)
    distances = (np.roll(lines, -1) - lines) % lines.size
    _, pairs = np.unique(distances * lines.size + np.roll(distances, -1), return_counts=True)
    neighbours = np.minimum(distances, lines.size - distances) <= 2
    return bool(np.bincount(distances).max() > 12 or pairs.max() > 3 or neighbours.sum() > 16)


@by_footprint
def test_the_order_of_each_footprint_has_no_more_pattern_than_a_random_one(case: Case) -> None:
    entries, span = case.scalars[:2]
    assert not any(has_pattern(chase.ring_lines(np.arange(entries), keys(seed), span)) for seed in range(5))


def test_a_pattern_is_told_from_a_random_order() -> None:
    entries = 4096
    strided = np.arange(entries) * 1025 % entries
    congruential = np.zeros(entries, np.int64)  # whose lowest bits take turns
    for step in range(1, entries):
        congruential[step] = (congruential[step - 1] * 1029 + 12_345) % entries
    paired = np.random.default_rng(0).permutation(entries // 2)[:, None] * 2 + np.arange(2)  # both lines of 256 bytes, one after the other
    for order in (strided, congruential, paired.ravel()):
        assert sorted(order) == list(range(entries))
        assert has_pattern(order)
    assert not has_pattern(np.random.default_rng(0).permutation(entries))


def test_other_keys_make_another_order() -> None:
    first, second = (chase.ring_lines(np.arange(1000), keys(seed), 1000) for seed in (1, 2))
    assert (first == second).mean() < 0.02


def test_a_ring_by_pages_ends_one_before_it_begins_the_next() -> None:
    lines = chase.ring_lines(np.arange(4 * 91), keys(3), span=91)
    pages = lines.reshape(4, 91)
    assert (pages // 91 == np.arange(4)[:, None]).all()
    assert all(sorted(page % 91) == list(range(91)) for page in pages)
    assert not any((pages[0] == page - page.min() + pages[0].min()).all() for page in pages[1:]), "each page has an order of its own"


def test_a_chase_of_several_blocks_is_followed_from_each_block_s_own_start() -> None:
    case = chase.chase({}, "cg", 64 * 128, blocks=4)
    given = case.inputs(np.random.default_rng(3), "random")
    (found,) = case.reference(given, 1)
    lines = chase.ring_lines(np.arange(64), given[0], 64)
    # blocks begin 16 steps apart, and a trip is 32
    assert found.tolist() == [int(lines[(16 * block + 32) % 64]) * 128 for block in range(4)]


LINES = """
extern "C" __global__ void lines(u64 *clocks, const u32 *keys, u32 *found, int trips, int entries, int span, int bits) {
    ULLAGE_BEGIN
    for (int step = threadIdx.x; step < entries; step += blockDim.x) found[step] = ring_line(step, keys, span, bits);
    ULLAGE_END
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
@by_footprint
def test_the_kernel_and_the_host_have_one_order_at_every_step_and_arrive_together(case: Case, emulation_folder: Path) -> None:
    entries, span, bits, _ = case.scalars
    every = replace(
        case, source=case.source + LINES, entry="lines", block=64, scalars=(entries, span, bits), outputs=(Output((entries,), "uint32"),),
        inputs=lambda generator, data: (keys(int(generator.integers(100))),),
        reference=lambda arrays, trips: (chase.ring_lines(np.arange(entries), arrays[0], span),),
    )  # fmt: skip
    assert emulated(every, emulation_folder) is None
    assert emulated(replace(case, block=64), emulation_folder) is None  # as many threads as the model runs quickly


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which builds the model")
def test_a_kernel_that_goes_another_way_is_found_out(emulation_folder: Path) -> None:
    case = SMALL_CURVE[3]
    for given, instead in (("step + 1 < entries ? step + 1 : 0", "step + 2 < entries ? step + 2 : 0"), ("keys[round + 1]", "keys[round]")):
        assert given in case.source
        assert "result is wrong" in str(emulated(replace(case, source=case.source.replace(given, instead), block=64), emulation_folder))


def test_a_point_of_the_curve_costs_the_host_next_to_no_memory() -> None:
    # an H200 tells 60 MiB of L2: the last footprint is 480 MiB
    largest = curve(l2=60 * 2**20)[-1]
    assert largest.labels["footprint"] > 350 * 2**20
    tracemalloc.start()
    given = largest.inputs(np.random.default_rng(0), "random")
    largest.reference(given, largest.check_trips)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
    assert sum(array.nbytes for array in given) >= largest.labels["footprint"], "the ring itself lies on the device"


@pytest.mark.parametrize("width", reading.WIDTHS)
def test_what_a_thread_reads_is_folded_as_the_kernel_does(width: str) -> None:
    case = reading.reading({}, "L2 cache", width, 2, 8, ("bandwidth",))
    (values,) = case.inputs(np.random.default_rng(4), "random")
    (found,) = case.reference((values,), 3)
    how = reading.WIDTHS[width]
    piece, row = 1024 * how.words, 1024 * how.lanes
    for block, thread in ((0, 0), (0, 1023), (1, 5)):
        # as in the kernel: the block's piece, then a row for each load, in it the thread's neighbouring elements
        mine = [
            values[block * piece + load * row + thread * how.lanes + lane]
            for load in range(how.words // how.lanes)
            for lane in range(how.lanes)
        ]
        expected = 0
        for _ in range(3):
            for one in mine:
                expected = expected ^ int(one) if how.fold == "^" else expected + int(one)
        assert found[block * 1024 + thread] == expected


def test_three_trips_are_checked_so_that_exclusive_or_does_not_cancel() -> None:
    case = reading.reading({}, "L1 cache", "64 bits", 1, 8, ("bytes_per_cycle_sm",))
    (values,) = case.inputs(np.random.default_rng(5), "random")
    assert case.reference((values,), case.check_trips)[0].any()


@pytest.mark.parametrize("name", memory_bandwidth.MIXES)
def test_a_stream_leaves_what_its_kernel_would(name: str) -> None:
    target = Target("sm_90a", sms=1, l2=2**18, memory=2**30)
    case = memory_bandwidth.stream(target, name)
    mix, (pieces,) = memory_bandwidth.MIXES[name], case.scalars
    arrays = case.inputs(np.random.default_rng(6), "random")
    (found,) = case.reference(arrays, case.check_trips)
    assert found.shape == case.outputs[0].shape
    assert pieces > 1  # else nothing tells whether the reference has pieces in the kernel's order
    expected = np.full((found.size // 4, 4), np.nan, np.float32)
    values = arrays[0].reshape(-1, 4) if arrays else np.zeros((0, 4), np.float32)
    for block, thread in ((0, 0), (1, 1023), (0, 77)):
        total = np.zeros(4, np.float32)
        for piece in range(pieces):
            at = piece * 2 + block
            mine = [values[(at * mix.reads + i) * 1024 + thread] for i in range(mix.reads)]
            total = total + sum(mine) if name == "read" else sum(mine)
            for i in range(mix.writes):
                place = (block * 4 + i) * 1024 + thread
                left = {"write": [place, piece, place, piece], "copy": mine[i] if name == "copy" else None}.get(name, total)
                expected[(at * mix.writes + i) * 1024 + thread] = left
        if name == "read":
            expected[block * 1024 + thread] = total
    told = ~np.isnan(expected[:, 0])
    assert told.any()
    assert (found.reshape(-1, 4)[told] == expected[told]).all()


def test_a_stream_goes_over_eight_times_the_l2_eight_times() -> None:
    # 1 SM, 2 blocks, 4 loads of 16 KiB a block: 128 KiB a trip; 8 × 256 KiB are 16 trips, done 8 times: 16 MiB
    case = memory_bandwidth.stream(Target("sm_90a", sms=1, l2=2**18, memory=2**30), "read")
    assert (case.scalars, case.trips, case.bytes) == ((16,), 128, 16 * 2**20)


@pytest.mark.parametrize(("sms", "l2"), [(132, 60), (170, 96), (34, 96)])
def test_a_stream_reads_numbers_of_many_bits_whose_sums_fp32_holds_exactly(sms: int, l2: int) -> None:
    # few SMs over a large L2 add the most values: 8 × 96 MiB by 34 SMs of 128 KiB a trip are 176 pieces of 4 loads
    case = memory_bandwidth.stream(Target("sm_90a", sms=sms, l2=l2 * 2**20, memory=2**40), "read")
    terms = case.scalars[0] * 4

    class Highest:
        """A generator of the largest numbers that may come."""

        def integers(self, low: int, high: int, size: int, dtype: type) -> np.ndarray:
            self.high = high
            return np.full(8, high - 1, dtype)

    drawn = Highest()
    (values,) = case.inputs(drawn, "random")  # type: ignore[arg-type]
    assert drawn.high >= 2**13
    assert float(values.max()) * terms <= 2**24


def test_little_memory_makes_a_stream_shorter_instead_of_failing() -> None:
    case = memory_bandwidth.stream(Target("sm_90a", sms=1, l2=50 * 2**20, memory=4 * 2**20), "copy")
    assert sum(array.nbytes for array in case.inputs(np.random.default_rng(0), "zero")) <= 2**20


@pytest.mark.parametrize(("size", "alone"), [(32768, False), (16384, False), (128, True)])
def test_the_stages_of_bulk_loads_hold_the_last_pieces_that_came(size: int, alone: bool) -> None:
    case = bulk_copy.loads("L2 → shared", size, 2, 3, alone)
    (values,) = case.inputs(np.random.default_rng(7), "random")
    stages = case.scalars[1]
    memory = np.zeros((2, stages, size), np.uint8)
    for trip in range(case.check_trips):  # as the kernel asks: one piece after the other, stage after stage
        for block in range(2):
            begin = (trip % 3 * 2 + block) * size
            memory[block, trip % stages] = values[begin : begin + size]
    (found,) = case.reference((values,), case.check_trips)
    assert (found == memory.ravel()).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_fits_a_gpu_s_memory_and_shared_memory(family: str) -> None:
    target = Target("sm_120a", sms=170, l1=128 * 1024, l2=96 * 2**20, memory=8 * 2**30, shared_per_block=99 * 1024)
    for case in cases_for(BENCHES[family], target):
        assert isinstance(case, Case)
        assert case.shared <= target.shared_per_block
        written = sum(int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize for one in case.outputs)
        assert written <= target.memory // 4


@pytest.mark.parametrize("family", FAMILIES)
def test_quick_cases_are_some_of_all_and_all_are_named_apart(family: str) -> None:
    names = [tuple(case.labels.items()) for case in cases_for(BENCHES[family], small("sm_90a"))]
    quick = [tuple(case.labels.items()) for case in cases_for(BENCHES[family], small("sm_90a"), quick=True)]
    assert quick
    assert set(quick) <= set(names)
    assert len(set(names)) == len(names)
