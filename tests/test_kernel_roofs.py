"""What kernels of a trace lose, in points of MFU, beside a reference in fractions that knows only what was planted."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest

from ullage.gpus.chip import find
from ullage.metrics.kernel_losses import STEPS
from ullage.profiles import Asked, profile
from ullage.reports.kernel_roofs import KernelRoofs, RoofSources, kernel_roofs
from ullage.reports.trace import Question, trace
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.scenario import Recorder, Scenario

H100 = find("NVIDIA H100 80GB HBM3")
PEAK, SMS, BANDWIDTH = 132 * 4096 * 1_830_000_000, 132, 3_350_000_000_000
CLOCK = Fraction(29, 32)
NVJET, AMPERE = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
# tile along the library's m and n, step of k, cluster along m and n; None: the name tells no tile
PRODUCTS = {NVJET: (128, 256, 64, 2, 1), AMPERE: (128, 128, 32, 1, 1), "gemm_of_somebody": None}
FLASH, GELU = "flash_fwd_kernel<traits>", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>()"
REDUCE, MYSTERY = "void cublasLt::splitKreduce_kernel<32, 16, int>()", "PdV_kernel(int, double*)"


@dataclass(frozen=True)
class Launch:
    """One kernel that was planted: its name, what was asked for, where and when it ran (ns)."""

    name: str
    word: str
    rank: int
    stream: int
    start: int
    end: int


@dataclass
class Answer:
    """What one kernel comes to, by the definitions: time and steps in s, points."""

    calls: int = 0
    time: Fraction = Fraction(0)
    flops: Fraction | None = Fraction(0)
    bytes: Fraction | None = Fraction(0)
    levels: dict[str, Fraction] = field(default_factory=dict)
    steps: dict[str, Fraction] = field(default_factory=dict)
    loss: Fraction | None = None


def drawn(rng: random.Random, ranks: int) -> tuple[list[Launch], int]:
    """Kernels on one to three streams of each rank, that overlap between streams, and how long the run takes."""
    found, longest = [], 0
    words = [shape(rng) for _ in range(4)]
    for rank in range(ranks):
        for stream in range(7, 7 + rng.choice([1, 1, 2, 3])):
            now = 1_000_000 + rng.randrange(1000)
            for _ in range(rng.randint(1, 12)):
                name, word, least = rng.choice(words) if rng.random() < 0.7 else shape(rng)
                length = max(1000, round(least / rng.choice([1.04, 1.0, 0.8, 0.5, 0.2])))
                found.append(Launch(name, word, rank, stream, now, now + length))
                now += length + rng.choice([0, 0, 5000])
            longest = max(longest, now)
    return found, longest + rng.randrange(10**6)


def shape(rng: random.Random) -> tuple[str, str, float]:
    """A kernel's name, what it was asked for, and the least time in ns that this takes."""
    sort = rng.randrange(8)
    if sort < 4:
        name = rng.choice(list(PRODUCTS))
        batch, m, n, k = rng.choice([1, 1, 3]), *(rng.choice([64, 100, 1000, 1024, 4096, 5000]) for _ in range(3))
        return name, f"{batch}x{m}x{n}x{k} bf16", 2e9 * batch * m * n * k / PEAK
    if sort == 4:
        length, causal = rng.choice([100, 512, 2000]), rng.choice(["", "causal "])
        return FLASH, f"attention 2x8x4x{length}x{length}x64x128 {causal}bf16", 2e9 * 2 * 8 * length * length * 192 / PEAK
    if sort == 5:
        size = 4 * rng.choice([1, 1000, 10**6, 10**7])
        return GELU, rng.choice([f"{size} B", f"{size} B", ""]), 1e9 * size / BANDWIDTH
    return (REDUCE, "1x64x64x64 bf16", 5000.0) if sort == 6 else (MYSTERY, "", 50_000.0)


def work(launch: Launch) -> tuple[int | None, Fraction | None, Fraction | None, int | None]:
    """FLOPs, FLOPs with whole tiles, how full its waves are, bytes: of one call. No FLOPs (None): nobody knows."""
    if launch.name in PRODUCTS:
        batch, m, n, k = (int(size) for size in launch.word.split()[0].split("x"))
        flops, moved = 2 * batch * m * n * k, 2 * batch * (m * k + k * n + m * n)
        if PRODUCTS[launch.name] is None:
            return flops, None, None, moved
        tile_m, tile_n, tile_k, cluster_m, cluster_n = PRODUCTS[launch.name]
        # the library counts column-major: its m is the operator's n
        tiles_m, tiles_n = ceil(ceil(n / tile_m) / cluster_m) * cluster_m, ceil(ceil(m / tile_n) / cluster_n) * cluster_n
        executed = 2 * batch * tiles_m * tile_m * tiles_n * tile_n * ceil(k / tile_k) * tile_k
        blocks, slots = batch * tiles_m * tiles_n, SMS // (cluster_m * cluster_n) * cluster_m * cluster_n
        return flops, Fraction(executed), Fraction(blocks, ceil(blocks / slots) * slots), moved
    if launch.name == FLASH:
        batch, heads, kv_heads, queries, keys, dim, values = (int(size) for size in launch.word.split()[1].split("x"))
        pairs = sum(place + 1 for place in range(queries)) if "causal" in launch.word else queries * keys
        numbers = heads * queries * dim + kv_heads * keys * dim + kv_heads * keys * values + heads * queries * values
        return 2 * batch * heads * pairs * (dim + values), None, None, 2 * batch * numbers
    if launch.name == GELU:
        return 0, None, None, int(launch.word.split()[0]) if launch.word else None
    return (0 if launch.name == REDUCE else None), None, None, None


def answers(launches: list[Launch]) -> dict[tuple[str, str], Answer]:
    """Sum up the calls of each kernel, condition by condition, and take the steps between them."""
    found: dict[tuple[str, str], Answer] = defaultdict(Answer)
    told: dict[tuple[str, str], tuple] = {}
    for launch in launches:
        flops, executed, waves, moved = told_of = work(launch)
        known = flops or moved is not None
        key = (launch.name, launch.word if known else "")
        one, told[key] = found[key], told_of
        one.calls += 1
        one.time += Fraction(launch.end - launch.start, 10**9)
        if flops is None:
            one.flops = None
            continue
        one.flops += flops
        one.bytes = None if moved is None else one.bytes + moved
        level = Fraction(flops, PEAK)
        add(one, "needed", level)
        for name, value in (
            ("tile", None if executed is None else executed / PEAK),
            ("clock", (executed or flops) / CLOCK / PEAK if flops else None),
            ("wave", None if waves is None else (executed or flops) / CLOCK / PEAK / waves),
        ):
            if value is not None:
                level = value
                add(one, name, value)
        if moved is not None:
            add(one, "memory", max(level, Fraction(moved, BANDWIDTH)))
    for one in found.values():
        if one.flops is not None:
            steps(one)
    return found


def add(one: Answer, name: str, value: Fraction) -> None:
    one.levels[name] = one.levels.get(name, Fraction(0)) + value


def steps(one: Answer) -> None:
    needed = one.levels["needed"]
    limit, level = max(one.time, needed), needed
    for name in STEPS[:-1]:
        if name in one.levels:
            reached = min(one.levels[name], limit)
            one.steps[name], level = reached - level, reached
    if one.steps:
        one.steps["itself"] = one.time - level
    one.loss = one.time - needed


def united(launches: list[Launch]) -> Fraction:
    """Time in s in which any kernel of a rank runs, summed over ranks."""
    total = 0
    for rank in {launch.rank for launch in launches}:
        end = 0
        for launch in sorted((one for one in launches if one.rank == rank), key=lambda one: one.start):
            total += max(launch.end - max(launch.start, end), 0)
            end = max(end, launch.end)
    return Fraction(total, 10**9)


def read(launches: list[Launch], ranks: int, end: int, folder: Path) -> KernelRoofs:
    to = [Recorder(7001 + rank, rank) for rank in range(ranks)]
    for launch in launches:
        one = to[launch.rank]
        call = one.call(launch.start - 900_000, launch.start - 899_000, "cudaLaunchKernel", "launch", one.process)
        one.work(launch.start, launch.end, "kernel", launch.name, launch.stream, call, product=launch.word or None)
    for one in to:
        one.host(0, end, "host", "aten::step", one.process)
    devices = {rank: (H100.name, f"GPU-{rank}") for rank in range(ranks)}
    events = tuple(event for one in to for event in one.events)
    files = write(Scenario("roofs", events, {one.process: rank for rank, one in enumerate(to)}, devices), folder)
    seen = profile([str(path) for path in files], Asked())
    report = trace(seen, seen.window, Question(mode="ai"))
    found = kernel_roofs(report, RoofSources(H100, float(CLOCK), BANDWIDTH, "the maker"))
    assert found is not None
    return found


def agree(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    ranks = rng.choice([1, 1, 2])
    launches, end = drawn(rng, ranks)
    for rank in range(ranks):  # a rank without kernels has no device
        if not any(launch.rank == rank for launch in launches):
            return
    found, expected = read(launches, ranks, end, folder), answers(launches)
    rows = {(row.kernel, row.asked): row for row in found.rows}
    assert rows.keys() == expected.keys() and len(rows) == len(found.rows)
    # one second of all devices' time, in points, and how much of it a second of loss is where kernels ran side by side
    second = Fraction(100 * 10**9, ranks * end)
    at_once, summed = united(launches), sum(one.time for one in expected.values())
    needed = sum((one.levels["needed"] for one in expected.values() if one.flops is not None), Fraction(0))
    each = second * (max((at_once - needed) / (summed - needed), Fraction(0)) if summed != needed else 1)
    close = lambda value: pytest.approx(float(value), rel=1e-9, abs=1e-9)  # noqa: E731
    for key, one in expected.items():
        row = rows[key]
        assert (row.calls, row.time) == (one.calls, close(one.time)), key
        if one.flops is None:
            assert row.work is None and row.points is None
            continue
        assert row.work.flops == one.flops and row.work.bytes == one.bytes
        assert row.points == close(one.loss * each)
        assert {name: close(value * each) for name, value in one.steps.items()} == row.steps
    silent = sum((one.time for one in expected.values() if one.flops is None), Fraction(0))
    assert found.computing == close(second * at_once)
    assert found.reached == close(second * needed) and found.unknown == close(each * silent)
    for one in found.sums:
        parts = [answer.steps[one.step] for answer in expected.values() if one.step in answer.steps]
        assert (one.points is None) == (not parts) and (not parts or one.points == close(sum(parts) * each))
    if at_once >= needed:
        lost = sum(row.points for row in found.rows if row.points is not None)
        assert found.computing == close(found.reached + lost + found.unknown)
    points = [row.points or 0.0 for row in found.rows]
    assert points == sorted(points, reverse=True)


@pytest.mark.parametrize("seed", range(20))
def test_kernels_lose_what_the_reference_says(seed, tmp_path):
    agree(seed, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20, 420))
def test_kernels_lose_what_the_reference_says_over_many_seeds(seed, tmp_path):
    agree(seed, tmp_path)
