"""What kernels of a trace lose, in points of MFU, beside a reference in fractions that knows only what was planted."""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest

from ullage import waterfall
from ullage.gpus.chip import find
from ullage.gpus.measured import Ceilings, MeasuredCeiling, save
from ullage.metrics.evidence import Measured
from ullage.metrics.kernel_losses import STEPS
from ullage.metrics.steps import ChainStep
from ullage.profiles import ProfileRequest, profile
from ullage.render.waterfall_kernels import answer
from ullage.reports.trace.trace import TraceReport, TraceRequest, trace
from ullage.reports.waterfall.kernel_roofs import KernelRoofs, RoofSources, kernel_roofs
from ullage.reports.waterfall.remedies import LEAST_POINTS, kernel_remedies, remedies
from ullage.simulate.job import JobPlan, job
from ullage.simulate.job_files import JobFiles
from ullage.simulate.job_files import write as write_job
from ullage.simulate.traces.kineto import write
from ullage.simulate.traces.scenario import ProcessScenario, Scenario

H100 = find("NVIDIA H100 80GB HBM3")
PEAK, SMS, BANDWIDTH = 132 * 4096 * 1_830_000_000, 132, 3_350_000_000_000
CLOCK = Fraction(29, 32)
NVJET, AMPERE = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
# tile along the library's m and n, step of k, cluster along m and n; None: the name tells no tile
PRODUCTS = {NVJET: (128, 256, 64, 2, 1), AMPERE: (128, 128, 32, 1, 1), "gemm_of_somebody": None}
FLASH, GELU = "flash_fwd_kernel<traits>", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>()"
WITHIN, UPLOAD, MEMSET = "Memcpy DtoD (Device -> Device)", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)"
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
        for _ in range(rng.choice([0, 0, 1, 3])):
            begin, size = rng.randrange(10**6, longest), 1000 * rng.randint(0, 100)
            length = rng.randint(1000, 200_000)
            found.append(Launch(rng.choice([WITHIN, UPLOAD, MEMSET]), str(size), rank, 13, begin, begin + length))
            longest = max(longest, begin + length)
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


def traced_roofs(launches: list[Launch], ranks: int, end: int, folder: Path) -> tuple[TraceReport, RoofSources]:
    to = [ProcessScenario(7001 + rank, rank) for rank in range(ranks)]
    for launch in launches:
        one = to[launch.rank]
        call = one.call(launch.start - 900_000, launch.start - 899_000, "cudaLaunchKernel", "launch", one.process)
        if launch.name in (WITHIN, UPLOAD, MEMSET):
            kind = "memset" if launch.name == MEMSET else "memcpy"
            one.work(launch.start, launch.end, kind, launch.name, launch.stream, call, bytes=int(launch.word))
        else:
            one.work(launch.start, launch.end, "kernel", launch.name, launch.stream, call, product=launch.word or None)
    for one in to:
        one.host(0, end, "host", "aten::step", one.process)
    devices = {rank: (H100.name, f"GPU-{rank}") for rank in range(ranks)}
    events = tuple(event for one in to for event in one.events)
    files = write(Scenario("roofs", events, {one.process: rank for rank, one in enumerate(to)}, devices), folder)
    seen = profile([str(path) for path in files], ProfileRequest())
    return trace(seen, seen.window, TraceRequest(mode="ai")), RoofSources(H100, float(CLOCK), BANDWIDTH, "the maker")


def read(launches: list[Launch], ranks: int, end: int, folder: Path) -> KernelRoofs:
    report, sources = traced_roofs(launches, ranks, end, folder)
    found = kernel_roofs(report, sources)
    assert found is not None
    return found


def copied(found: KernelRoofs, launches: list[Launch], copies: list[Launch], ranks: int, end: int) -> None:
    """Hold copies against their definition: what no kernel hides of all copies, by each one's part of their times."""
    exposed = united([*launches, *copies]) - united(launches)
    summed = sum(Fraction(one.end - one.start, 10**9) for one in copies)
    rows = {row.kernel: row for row in found.rows if row.kind != "kernel"}
    assert rows.keys() == {one.name for one in copies} - {UPLOAD}
    for name, row in rows.items():
        own = [one for one in copies if one.name == name]
        time, size = sum(Fraction(one.end - one.start, 10**9) for one in own), sum(int(one.word) for one in own)
        each = 100 * exposed / summed * 10**9 / (ranks * end)
        assert row.calls == len(own) and row.time == pytest.approx(float(time)) and row.points == pytest.approx(float(time * each))
        needed = Fraction(size * (2 if name == WITHIN else 1), BANDWIDTH)
        assert row.work.bytes == (needed * BANDWIDTH if size else None)
        if size:
            steps = {"memory": float(min(needed, time) * each), "itself": float((time - min(needed, time)) * each)}
            assert row.steps == pytest.approx(steps, abs=1e-12)


def agree(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    ranks = rng.choice([1, 1, 2])
    launches, end = drawn(rng, ranks)
    found = read(launches, ranks, end, folder)
    copies = [launch for launch in launches if launch.name in (WITHIN, UPLOAD, MEMSET)]
    launches = [launch for launch in launches if launch not in copies]
    copied(found, launches, copies, ranks, end)
    expected = answers(launches)
    kernels = [row for row in found.rows if row.kind == "kernel"]
    rows = {(row.kernel, row.asked): row for row in kernels}
    assert rows.keys() == expected.keys() and len(rows) == len(kernels)
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
        lost = sum(row.points for row in kernels if row.points is not None)
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> JobFiles:
    return write_job(job(JobPlan(ranks=1, steps=1, seed=3, shapes=True)), tmp_path_factory.mktemp("job"))


def find_planted(seed: int, folder: Path) -> None:
    simulated = job(JobPlan(ranks=1 + seed % 4, steps=1, seed=seed, shapes=True))
    one = write_job(simulated, folder)
    truth, report = simulated.truth, waterfall(one.telemetry, one.traces, one.config, one.gemms)
    kernels, chain = report.kernels, report.chain
    points = {one.step: one.points or 0.0 for one in kernels.sums}
    own = {step.name: 100 * step.lost for step in chain.steps}
    executed = math.prod(value for name, value in truth["factors"].items() if name != "model")
    # the numbers of short kernels are rounded to whole ones, and tiles below 0.92 are not planted
    assert kernels.reached == pytest.approx(100 * executed, rel=0.02)
    assert kernels.computing == pytest.approx(100 * math.prod(list(truth["factors"].values())[:3]), rel=1e-4)
    assert kernels.computing == pytest.approx(kernels.reached + sum(points.values()), rel=1e-9) and kernels.unknown == 0
    assert points["clock"] == pytest.approx(own["clock"], rel=0.1, abs=0.05)
    assert points["tile"] == pytest.approx(own["tile"], abs=0.3) or truth["factors"]["tile"] < 0.92
    assert points["wave"] <= own["sm_fill"] + 0.05
    assert not any(one.above for one in kernels.sums)
    passes = next(row for row in kernels.rows if row.family == "elementwise")
    assert 0.4 < passes.loss.memory / passes.time < 0.96


@pytest.mark.parametrize("seed", [4])
def test_the_kernels_of_a_simulated_job_come_to_its_factors(seed, tmp_path):
    find_planted(seed, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_kernels_of_many_simulated_jobs_come_to_their_factors(seed, tmp_path):
    find_planted(seed, tmp_path)


def test_the_line_of_what_kernels_are_worth_adds_up_their_steps_and_not_their_whole_losses(made):
    roofs = waterfall(made.telemetry, made.traces, made.config).kernels
    line, shown = answer(roofs), roofs.ranked[:5]
    told = {words: float(points) for points, words in re.findall(r"([\d.]+) by ([^,]+)", line)}
    own = {"itself": "the kernels themselves"}
    expected = {own.get(step, step): sum((row.steps or {}).get(step, 0.0) for row in shown) for step in STEPS}
    for words, points in expected.items():
        assert told.get(words, 0.0) == pytest.approx(points, abs=0.0501), words
    assert sum(told.values()) == pytest.approx(sum(row.points for row in shown), abs=0.3)


def test_remedies_are_those_that_help_the_kernels_of_the_trace(made):
    report = waterfall(made.telemetry, made.traces, made.config)
    issue = next(cost for cost in report.costs if "tensor_issue" in cost.step.names)
    evidence = report.kernels.evidence
    assert max(evidence, key=evidence.get) in (("itself", True), ("memory", False))
    helped = [sum(points for (step, products), points in evidence.items() if one.helps(step, products)) for one in issue.remedies]
    assert helped == sorted(helped, reverse=True) and all(points >= LEAST_POINTS for points in helped[:-1])
    assert issue.remedies[-1].binding == "" and not any(one.products and one.binding == "memory" for one in issue.remedies)


def test_a_remedy_for_less_than_a_tenth_of_a_point_is_left_out():
    usual = remedies(("tensor_issue",))
    fused = kernel_remedies("memory", False)
    for points, there in ((LEAST_POINTS, True), (LEAST_POINTS * 0.999, False)):
        chosen = remedies(("tensor_issue",), {("memory", False): points, ("itself", True): 1.0})
        assert (fused[0] in chosen) == there and set(chosen) < set(usual)
    assert remedies(("tensor_issue",), {("memory", False): LEAST_POINTS * 0.999}) == usual
    assert remedies(("load_balance",), {("memory", False): 5.0}) == remedies(("load_balance",))


@pytest.mark.parametrize("binding", STEPS)
@pytest.mark.parametrize("products", [True, False])
def test_every_binding_has_a_remedy_with_a_source(binding, products):
    found = kernel_remedies(binding, products)
    assert found and all(one.source.startswith(("https://", "docs/")) for one in found)


def roofs_of(folder: Path, *kernels: tuple[str, str, int, int, int], end: int = 10**9) -> KernelRoofs:
    """Kernels (name, word, stream, start and end in µs) on one rank."""
    return read([Launch(name, word, 0, stream, 1000 * start, 1000 * stop) for name, word, stream, start, stop in kernels], 1, end, folder)


@pytest.mark.parametrize(("length", "said"), [(500, True), (499, False)])
def test_what_may_multiply_is_said_from_a_twentieth_of_a_point(length, said, tmp_path):
    # 500 µs of a second are 0.05 points
    found = roofs_of(tmp_path, (MYSTERY, "", 7, 1000, 1000 + length))
    assert any("may multiply" in note for note in found.notes) == said


@pytest.mark.parametrize(("length", "said"), [(500, True), (499, False)])
def test_what_tells_no_bytes_is_said_from_a_twentieth_of_a_point(length, said, tmp_path):
    found = roofs_of(tmp_path, (GELU, "", 7, 1000, 1000 + length))
    assert any("tell no bytes" in note for note in found.notes) == said


@pytest.mark.parametrize(("overlap", "said"), [(1000, False), (1002, True)])
def test_kernels_side_by_side_are_said_from_a_thousandth_on(overlap, said, tmp_path):
    # one second of kernels, and beside the first of them another one
    found = roofs_of(tmp_path, (GELU, "4000 B", 7, 1000, 1_001_000), (GELU, "4000 B", 8, 1000, 1000 + overlap), end=1_100_000_000)
    assert any("side by side" in note for note in found.notes) == said


@pytest.mark.parametrize(("more", "above"), [(0.99, False), (1.01, True)])
def test_kernels_that_lose_more_than_the_waterfall_are_said_to(more, above, tmp_path):
    # elementwise kernels over all of the time: its loss is 50 points
    path = tmp_path / "one"
    launches = [Launch(GELU, "4000 B", 0, 7, 10**6, 10**6 + 5 * 10**8)]
    report, sources = traced_roofs(launches, 1, 10**9, path)
    whole, left = Measured.exact(0.5 + 0.01, "telemetry"), Measured.exact(0.01 + more / 100, "telemetry")
    steps = [ChainStep(("sm_fill", "tensor_issue"), Measured.exact(left.value / whole.value, "telemetry"), whole, left)]
    found = kernel_roofs(report, sources, steps)
    assert {one.step for one in found.sums if one.above} == ({"wave", "memory", "itself"} if above else set())
    assert any("most that it may be" in note for note in found.notes) == above


def test_a_bound_by_itself_of_a_legacy_kernel_says_so(tmp_path):
    found = roofs_of(tmp_path, (AMPERE, "1x1024x1024x1024 bf16", 7, 1000, 2000))
    assert found.rows[0].bound_by == "itself" and "mma instead of wgmma" in found.rows[0].because


def test_a_measured_bandwidth_takes_the_place_of_the_stated_one(made, tmp_path):
    stated = waterfall(trace=made.traces).kernels
    ceilings = Ceilings(
        H100.name, "", "2026-08-10T12:00:00Z", "", {}, {"global memory": MeasuredCeiling(3.3e12, "memory-bandwidth")},
        {"bf16": MeasuredCeiling(7e14, "sustained-ceilings")}, {"global memory": MeasuredCeiling(3.32e12, "sustained-ceilings")},
    )  # fmt: skip
    file = save(ceilings, tmp_path)
    found = waterfall(trace=made.traces, ceiling=str(file)).kernels
    assert stated.sources.bandwidth == H100.bandwidth and found.sources.bandwidth == 3.32e12
    assert "sustained-ceilings" in found.sources.bandwidth_source
    passes, before = (next(row for row in one.rows if row.family == "elementwise") for one in (found, stated))
    assert passes.loss.memory == pytest.approx(before.loss.memory * H100.bandwidth / 3.32e12)
