"""Of how many SMs kernels make use: occupancy and residency against a scheduler that places every block, and against CUDA's own figures."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ullage.kernels.occupancy import LIMITS, NOT_KNOWN, KernelLaunches, active_sms, fits_beside, resident_blocks
from ullage.sums.lanes.gather import KIND, LaneRows
from ullage.sums.lanes.residency import Residency, residency, resident_rows

DATA = Path(__file__).parents[3] / "shared" / "data" / "kineto"


def launches(*rows: tuple[int, int, int, int]) -> KernelLaunches:
    """Return launches from rows of blocks, threads, registers and shared memory."""
    return KernelLaunches(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def placed(threads: int, registers: int, shared: int, warps: int, blocks: int, memory: int) -> int:
    """Return how many blocks fit on an empty SM of compute capability 8.0 or later, placed warp by warp."""
    partitions, used_memory, used_warps, count = [65536 // 4] * 4, 0, 0, 0
    need = -(-shared // 128) * 128 + 1024
    a_warp = -(-registers * 32 // 256) * 256
    while count < blocks and used_memory + need <= memory:
        for _ in range(-(-threads // 32)):
            freest = max(range(4), key=lambda p: partitions[p])
            if partitions[freest] < a_warp or used_warps == warps:
                return count
            partitions[freest] -= a_warp
            used_warps += 1
        used_memory += need
        count += 1
    return count


def test_blocks_of_an_sm_are_those_that_can_be_placed_warp_by_warp():
    random = np.random.default_rng(7)
    rows = [(1, int(random.integers(1, 1025)), int(random.integers(1, 256)), int(random.integers(0, 100 << 10))) for _ in range(2000)]
    found = resident_blocks(launches(*rows), LIMITS["9.0"])
    for (_, threads, registers, shared), count in zip(rows, found.tolist(), strict=True):
        assert max(count, 0) == placed(threads, registers, shared, 64, 32, 228 << 10), (threads, registers, shared)


def test_a_launch_of_which_anything_is_not_known_has_no_occupancy():
    rows = [(1, 128, 32, 0), (1, NOT_KNOWN, 32, 0), (1, 128, NOT_KNOWN, 0), (1, 128, 32, NOT_KNOWN)]
    assert resident_blocks(launches(*rows), LIMITS["9.0"]).tolist() == [16, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN]
    assert resident_blocks(launches(*rows), None).tolist() == [NOT_KNOWN] * 4


@pytest.mark.parametrize(
    "name", ["hta_a100_rank0of2_nccl_data", "hta_v100_rank1of2_trace_diff_test", "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat__1016005"]
)
def test_occupancy_is_what_cudas_own_calculator_says_in_real_traces(name):
    file = DATA / f"{name}.json.gz"
    if not file.exists():
        pytest.skip("needs the project's data")
    trace = json.loads(gzip.decompress(file.read_bytes()))
    device = trace["deviceProperties"][0]
    # Kineto asks cuda_occupancy.h without the opt-in for more than 48 KiB of shared memory, and prints 0 for such kernels
    events = [e["args"] for e in trace["traceEvents"] if e.get("cat") == "kernel" and e["args"]["shared memory"] < 48 << 10]
    told = [(int(np.prod(a["grid"])), int(np.prod(a["block"])), a["registers per thread"], a["shared memory"]) for a in events]
    limits = LIMITS[f"{device['computeMajor']}.{device['computeMinor']}"]
    found = launches(*told)
    resident = np.minimum(found.blocks / device["numSms"], resident_blocks(found, limits))
    occupancy = resident * found.threads / (limits.warps * 32) * 100
    assert len(events) > 1000
    assert np.abs(occupancy - [a["est. achieved occupancy %"] for a in events]).max() <= 1  # whole percents


def scheduled(blocks: int, resident: int, sms: int) -> Fraction:
    """Return the mean number of SMs with a block, placing equally long blocks one by one where fewest are."""
    left, waves = blocks, []
    while left:
        room = [resident] * sms
        while left and any(room):
            at = max(range(sms), key=lambda sm: room[sm])
            room[at] -= 1
            left -= 1
        waves.append(sum(free < resident for free in room))
    return Fraction(sum(waves), len(waves))


def test_sms_in_use_are_those_of_a_scheduler_that_places_every_block():
    random = np.random.default_rng(8)
    for _ in range(300):
        sms, resident = int(random.integers(1, 12)), int(random.integers(1, 5))
        blocks = int(random.integers(1, 90))
        assert active_sms(np.array([blocks]), np.array([resident]), sms)[0] == pytest.approx(float(scheduled(blocks, resident, sms)))


SHAPES = ((384, 168, 200 << 10), (256, 32, 0), (544, 96, 40 << 10), (128, 64, 16 << 10))  # threads, registers, shared memory


def drawn(seed: int) -> tuple[list[tuple[int, int, str, int, int]], int]:
    """Return some overlapping kernels and collectives (start, end, kind, blocks, shape; -1: not known), and the SMs there are."""
    random = np.random.default_rng(seed)
    sms = int(random.integers(2, 9))
    found = []
    for _ in range(int(random.integers(1, 12))):
        kind = str(random.choice(["kernel", "collective", "kernel", "graph"], p=[0.5, 0.3, 0.15, 0.05]))
        start = int(random.integers(0, 40))
        blocks = -1 if kind == "graph" or random.random() < 0.1 else int(random.integers(1, 30))
        shape = -1 if kind == "graph" or random.random() < 0.1 else int(random.integers(0, len(SHAPES)))
        found.append((start, start + int(random.integers(1, 20)), kind, blocks, shape))
    return found, sms


def tick_by_tick(events, sms: int) -> Residency:
    """Return the same by looking at every ns, with fractions."""

    def slots(shape: int) -> int:
        return placed(*SHAPES[shape], 64, 32, 228 << 10)

    def equal(blocks: int, shape: int) -> Fraction | None:
        if blocks < 0 or (shape < 0 and blocks > sms):
            return None
        return Fraction(blocks, sms) if blocks <= sms else scheduled(blocks, slots(shape), sms) / sms

    def least(blocks: int, shape: int) -> Fraction:
        return Fraction(1, sms) if blocks < 0 else min(Fraction(-(-blocks // (32 if shape < 0 else slots(shape))), sms), Fraction(1))

    def beside(one: int, other: int) -> bool:
        if one < 0 or other < 0:
            return True
        (a, b, c), (d, e, f) = SHAPES[one], SHAPES[other]
        warps = -(-a // 32) + -(-d // 32)
        registers = -(-a // 32) * -(-b * 32 // 256) * 256 + -(-d // 32) * -(-e * 32 // 256) * 256
        return warps <= 64 and registers <= 65536 and -(-c // 128) * 128 + -(-f // 128) * 128 + 2048 <= 228 << 10

    whole = Fraction(1)
    most = lambda blocks: whole if blocks < 0 else min(Fraction(blocks, sms), whole)  # noqa: E731
    talkers = [shape for _, _, kind, _, shape in events if kind == "collective"]
    sums = dict.fromkeys(Residency.__dataclass_fields__, Fraction(0))
    for now in range(max(end for _, end, *_ in events)):
        running = [event for event in events if event[0] <= now < event[1]]
        works = [event for event in running if event[2] != "collective"]
        talks = [event for event in running if event[2] == "collective"]
        held = min(sum((most(blocks) for *_, blocks, _ in talks), Fraction(0)), whole)
        surely = min(sum((least(*event[3:]) for event in talks), Fraction(0)), whole) / max(len(talks), 1)
        if works:
            apart = not any(beside(work[4], shape) for work in works for shape in talkers)
            room = whole - surely if apart else whole
            fills = [equal(blocks, shape) for *_, blocks, shape in works]
            sums["computing"] += 1
            sums["most_computed"] += min(sum(most(blocks) for *_, blocks, _ in works), room)
            sums["hidden"] += held
            if None not in fills:
                sums["told"] += 1
                sums["equal_computed"] += min(sum(fills), room)
            if apart:
                sums["apart"] += surely
        else:
            sums["exposed"] += held
            sums["least_exposed"] += surely
        if any(blocks < 0 for *_, blocks, _ in talks):
            sums["unsized"] += held
    return Residency(**{name: float(value) for name, value in sums.items()})


def rows_of(events) -> LaneRows:
    """Return events as rows of a capture."""
    column = lambda values, kind=np.int64: np.array(values, kind)  # noqa: E731
    shapes = [SHAPES[shape] if shape >= 0 else (-1, -1, -1) for *_, shape in events]
    return LaneRows(
        column([e[0] for e in events]),
        column([e[1] for e in events]),
        kind=column([KIND[e[2]] for e in events], np.int8),
        blocks=column([e[3] for e in events]),
        threads=column([s[0] for s in shapes]),
        registers=column([s[1] for s in shapes]),
        shared=column([s[2] for s in shapes]),
    )


LOOSE = {"apart": 1, "most_computed": -1, "equal_computed": -1}  # which side of the truth they are on, where sorts of collectives mix


def test_residency_is_what_looking_at_every_nanosecond_finds():
    for seed in range(400):
        events, sms = drawn(seed)
        found, wanted = residency(resident_rows(rows_of(events), None), sms, "9.0"), tick_by_tick(events, sms)
        for name in Residency.__dataclass_fields__:
            if len({e[4] for e in events if e[2] == "collective"}) > 1 and name in LOOSE:
                # one room for all sorts of collectives: the smallest of each of warps, registers and memory
                assert (getattr(found, name) - getattr(wanted, name)) * LOOSE[name] <= 1e-9, (seed, name)
            else:
                assert getattr(found, name) == pytest.approx(getattr(wanted, name), abs=1e-9), (seed, name)


def test_a_collective_lies_apart_from_a_kernel_that_leaves_it_no_room_and_only_from_such():
    product, pointwise, ring = SHAPES[0], SHAPES[1], SHAPES[2]
    beside = fits_beside(launches((1, *product), (1, *pointwise), (1, 1024, 64, 0)), launches((24, *ring)), LIMITS["9.0"])
    # 544 threads × 96 registers take 17 × 3,072 = 52,224 of 65,536: 13,312 are left, enough for 8 warps of 1,024, not for 32 of 2,048
    assert beside.tolist() == [False, True, False]


def test_cutting_to_a_window_keeps_what_lies_inside():
    rows = resident_rows(rows_of([(0, 10, "kernel", 4, 0), (5, 30, "collective", 2, 2)]), (8, 20))
    found = residency(rows, 8, "9.0")
    # 2 ns of a product on 4 of 8 SMs with 2 held beside it, then 10 ns of the collective alone
    assert (found.computing, found.equal_computed, found.hidden, found.apart) == (2, 1, 0.5, 0.5)
    assert (found.exposed, found.least_exposed) == (2.5, 2.5)


def test_cutting_to_a_window_leaves_the_rows_themselves_as_they_are():
    # all rows are kernels that reach into the window, so that nothing is left out of them
    rows = rows_of([(0, 10, "kernel", 4, 0), (5, 30, "kernel", 2, 2)])
    assert resident_rows(rows, (8, 20)).start.tolist() == [8, 8]
    assert (rows.start.tolist(), rows.end.tolist()) == ([0, 5], [10, 30])


def test_without_the_number_of_sms_a_collective_holds_none_to_all():
    found = residency(resident_rows(rows_of([(0, 10, "kernel", 4, 0), (5, 30, "collective", 2, 2)]), None), None, "9.0")
    assert (found.told, found.most_computed, found.hidden, found.apart, found.exposed, found.least_exposed) == (0, 10, 5, 0, 20, 0)
