"""A simulated training job of which every factor from peak to MFU is known: the waterfall must find them again.

The factors are drawn, and what each source would have seen follows from them: telemetry reads engine, SM and tensor activity and samples a
clock that wavers, and that in some jobs is low while the tensor pipes work; a trace holds each rank's kernels with their grids,
collectives (of which a part runs beside kernels, on SMs of its own or shared), copies and idle time, and by its kernels' names the
precisions that a mixed job multiplies in; the configuration says what a step needs; the list of matrix products says what their tiles
execute. Nothing here calls the code under test: FLOPs, tiles and SMs are counted by their own arithmetic, times are whole nanoseconds.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.simulate.job_precisions import PrecisionMixture, drawn, flops_by_precision, peak
from ullage.simulate.specification import HIGHEST_LOAD_CLOCK, LOAD_CLOCK_DEVIATION

Array = npt.NDArray[np.float64]

GPU = "NVIDIA H100 80GB HBM3"
TILE, CLUSTER, K_TILE = (128, 256), (2, 1), 64
KERNEL = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
SMS = 132
PIECES = 12  # kernels of a step; every fourth goes through values one by one
ALONE = (384, 168, 200 << 10)  # threads, registers of each and shared memory of a block that leaves no room on an SM for another
SMALL = (256, 32, 0)  # the same of one that shares an SM, with as many as 8 or with a collective's
COLLECTIVE = (544, 96, 40 << 10)  # and of a collective's
SLOWEST = 0.9  # how full the SMs are, relative to equal blocks, where the blocks of a kernel are least alike
IDLE_CLOCK = 1.98e9  # Hz; what the clock rises to at most where the tensor pipes rest
SHAPED_ISSUE = 0.8  # times the tensor issue of other jobs: three kernels of four hold all FLOPs, and no product is faster than its peak
WHOLE_GRID = 12  # blocks; what grids are a multiple of where products have sizes
COPIES = 0.005  # of the active time
SAMPLES, INTERVAL = 120, 30  # readings of each GPU, seconds apart


@dataclass(frozen=True)
class JobPlan:
    """What is asked of a simulated job: `ranks` GPUs, `steps` of them traced, and a seed from which all else is drawn.

    With `shapes` its traces have short kernels in place of long ones, and say what operators asked of them. With `mixed` it multiplies
    partly in BF16 and partly in FP8 or TF32.
    """

    ranks: int = 4
    steps: int = 3
    seed: int = 0
    shapes: bool = False
    mixed: bool = False

    def __post_init__(self) -> None:
        """Refuse a job without ranks or steps, and one whose traces nobody wants to write."""
        if self.shapes and self.mixed:
            raise UllageError("can't simulate a job of several precisions with short kernels", "leave out --shapes or --mixed")
        for name, value, most in (("ranks", self.ranks, 64), ("steps", self.steps, 100)):
            if not 1 <= value <= most:
                raise UllageError(f"can't simulate a job with {name} = {value}", f"{name} lies between 1 and {most}")

    @property
    def sized(self) -> bool:
        """Whether its traces say the sizes of products."""
        return self.shapes or self.mixed


@dataclass(frozen=True)
class JobModel:
    """A decoder and its step: sizes of its layers, samples of a step over all ranks, and whether layers are computed twice."""

    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    batch: int
    seq: int
    recomputed: bool

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """Width in and out of a layer's linears; the last of them recomputation stops before."""
        head = self.width // self.heads
        keys = self.kv_heads * head
        attention = ((self.width, self.width), (self.width, keys), (self.width, keys), (self.width, self.width))
        return (*attention, (self.width, self.inner), (self.width, self.inner), (self.inner, self.width))

    @property
    def flops(self) -> tuple[int, int]:
        """Model FLOPs and executed FLOPs of a step, by hand: 2 for each weight and token, attention over s (s + 1) / 2 pairs."""
        tokens = self.batch * self.seq
        linear = [2 * tokens * a * b * self.layers for a, b in self.linears]
        model = 3 * (sum(linear) + self._scores + 2 * tokens * self.width * self.vocabulary)
        return model, model + (sum(linear[:-1]) + self._scores if self.recomputed else 0)

    @property
    def attention(self) -> int:
        """Executed FLOPs of scores and values of a step: forward, twice as much backward, and again where layers are computed twice."""
        return self._scores * (4 if self.recomputed else 3)

    @property
    def _scores(self) -> int:
        return 2 * 2 * (self.seq * (self.seq + 1) // 2) * self.width * self.batch * self.layers

    def gemms(self, ranks: int) -> list[dict[str, Any]]:
        """Return the matrix products of one rank's step: forward, both gradients, and what is computed again."""
        tokens, rows = self.batch // ranks * self.seq, []
        sizes = [(pair, self.layers, place < len(self.linears) - 1) for place, pair in enumerate(self.linears)]
        for (a, b), times, again in [*sizes, ((self.width, self.vocabulary), 1, False)]:
            forward = times * (2 if self.recomputed and again else 1)
            for m, n, k, count in ((tokens, b, a, forward), (tokens, a, b, times), (a, b, tokens, times)):
                rows.append({"kernel": KERNEL, "m": m, "n": n, "k": k, "tile": TILE, "cluster": CLUSTER, "k_tile": K_TILE, "count": count})
        return rows


@dataclass(frozen=True)
class Grids:
    """How kernels lie on the SMs: `blocks` of each of a step's kernels and `channels` (blocks) of its collectives.

    A collective runs beside kernels for `overlap` of the time in which the rank that computes least does; `shared` of its SMs are those of
    a small kernel too. `evenness` is how full the SMs are, relative to blocks that take equally long.
    """

    blocks: tuple[int, ...]
    channels: int
    overlap: float
    shared: float
    evenness: float

    def alone(self, piece: int) -> bool:
        """Return whether a kernel's blocks leave no room on their SM."""
        return piece % 4 != 3

    def fill(self, piece: int, beside: bool) -> float:
        """Return the share of SMs that a kernel is on; `beside` a collective, that holds its own where there is room for one only."""
        full, left = divmod(self.blocks[piece], SMS * (1 if self.alone(piece) else 8))
        even = (full + min(left, SMS) / SMS) / (full + (left > 0)) * self.evenness
        return min(even, 1 - self.held) if beside and self.alone(piece) else even

    @property
    def held(self) -> float:
        """The share of SMs that a collective holds."""
        return self.channels / SMS

    def active(self, piece: int, beside: bool) -> float:
        """Return the share of SMs with a block of anybody."""
        own = self.fill(piece, beside)
        if not beside:
            return own
        return own + self.held if self.alone(piece) else max(own, min(own + self.held * (1 - self.shared), 1.0))

    def over(self, kernel: int, hidden: int) -> tuple[float, float]:
        """Return the mean share of SMs that kernels are on, and that anybody is on, over `kernel` ns of which the first `hidden` ns have
        a collective beside them."""
        edges, sums = [kernel * n // PIECES for n in range(PIECES + 1)], [0.0, 0.0]
        for piece, (start, end) in enumerate(itertools.pairwise(edges)):
            beside = max(min(end, hidden) - start, 0)
            for n, share in enumerate((self.fill, self.active)):
                sums[n] += beside * share(piece, True) + (end - start - beside) * share(piece, False)
        return sums[0] / kernel, sums[1] / kernel


@dataclass(frozen=True)
class SimulatedJob:
    """A simulated job. Times of one step in ns: `elapsed`, `active` and each rank's `kernel`; `copies` is the same for all.

    `grids` and `tensor_issue` hold while a rank computes; `clocks` is the SM clock in Hz at each sample while the tensor pipes work,
    `resting` how much higher it is where nothing runs, `wobble` how activity wavers about its mean (mean 1 for each GPU). `mixture` says
    what does not run in BF16. `tile` and `model_efficiency` follow from the model.
    """

    plan: JobPlan
    model: JobModel
    elapsed: int
    active: int
    copies: int
    kernel: tuple[int, ...]
    grids: Grids
    tensor_issue: float
    clocks: Array
    resting: float
    wobble: Array
    mixture: PrecisionMixture | None = None

    @property
    def collective(self) -> tuple[int, ...]:
        """How long each rank is in a collective that nothing hides: who computes less waits longer; one rank alone has none."""
        return tuple(self.active - self.copies - kernel for kernel in self.kernel)

    @property
    def hidden(self) -> int:
        """How long a collective runs beside kernels, on each rank from its first kernel on."""
        return round(self.grids.overlap * min(self.kernel)) if self.plan.ranks > 1 else 0

    @property
    def fills(self) -> tuple[float, ...]:
        """The share of SMs that each rank's kernels are on while it computes."""
        return tuple(self.grids.over(kernel, self.hidden)[0] for kernel in self.kernel)

    @property
    def truth(self) -> dict[str, Any]:
        """Every factor, OFU, MFU, and the peak that they are shares of, in FLOP/s: what a report must find."""
        factors = _time_factors(self.kernel, self.active, self.elapsed)
        factors |= {"sm_fill": _mean_fill(self.kernel, self.fills), "tensor_issue": self.tensor_issue}
        work = tuple(kernel * fill for kernel, fill in zip(self.kernel, self.fills, strict=True))
        factors |= {"clock": _clock(self.clocks, self.wobble, work), "tile": _tile(self.model, self.plan.ranks)}
        needed, executed = self.model.flops
        factors["model"] = needed / executed
        ofu = math.prod(value for name, value in factors.items() if name not in ("tile", "model"))
        return {
            "factors": factors,
            "ofu": ofu,
            "mfu": ofu * factors["tile"] * factors["model"],
            "peak": peak(self.model, self.mixture, GPU),
            "flops_by_precision": flops_by_precision(self.model, self.mixture),
            "gpus": self.plan.ranks,
            "gpu_hours": self.plan.ranks * SAMPLES * INTERVAL / 3600,
            "step_time": self.elapsed / 1e9,
        }


def job(plan: JobPlan | None = None) -> SimulatedJob:
    """Return the job of a plan, the same for the same plan.

    >>> found = job(JobPlan(seed=1))
    >>> round(found.truth["mfu"], 6) == round(found.model.flops[0] / (found.elapsed / 1e9 * 4 * find(GPU).peak("bf16")), 6)
    True
    """
    plan = plan or JobPlan()
    random = np.random.Generator(np.random.PCG64(plan.seed))
    model = _model(random, plan)
    busy, computing = random.uniform(0.85, 0.99), random.uniform(0.75, 0.96)
    if plan.ranks == 1:  # there is nobody to talk to
        computing = 1 - COPIES
    slower = np.append(0.0, random.uniform(0.0, 0.15, plan.ranks - 1))
    shares = tuple(float(s) for s in busy * computing * (1 - random.permutation(slower)))
    fill, issue = random.uniform(0.8, 0.97), random.uniform(0.5, 0.85) * (SHAPED_ISSUE if plan.sized else 1.0)
    clocks, wobble = _clocks(random), _wobble(random, plan.ranks)
    grids, resting = _grids(plan, fill), _resting(plan, clocks)
    fine = tuple(round(share * 1e12) for share in shares)  # in what times turn out to be; their ratios are what counts
    hidden = round(grids.overlap * min(fine)) if plan.ranks > 1 else 0
    fills = tuple(grids.over(kernel, hidden)[0] for kernel in fine)
    work = tuple(share * own for share, own in zip(shares, fills, strict=True))
    factors = [sum(work) / plan.ranks, issue, _clock(clocks, wobble, work), _tile(model, plan.ranks)]
    needed, executed = model.flops
    mixture = drawn(plan.seed) if plan.mixed else None
    rate = math.prod(factors) * needed / executed * plan.ranks * peak(model, mixture, GPU)
    elapsed = round(needed / rate * 1e9)
    active = round(busy * elapsed)
    copies = round(COPIES * active)
    kernel = tuple(min(round(share * elapsed), active - copies) for share in shares) if plan.ranks > 1 else (active - copies,)
    return SimulatedJob(plan, model, elapsed, active, copies, kernel, grids, issue, clocks, resting, wobble, mixture)


def _grids(plan: JobPlan, fill: float) -> Grids:
    """Return grids whose last waves leave about so much of the SMs in use, and collectives that nothing, some or most of hides."""
    random = np.random.Generator(np.random.PCG64([plan.seed, 2]))
    blocks = []
    for piece in range(PIECES):
        full = int(random.integers(0, 4)) if piece % 4 != 3 else 1
        wanted = min(max(fill + random.uniform(-0.03, 0.03), full / (full + 1) + 0.02), 1.0)
        blocks.append(full * SMS + max(1, round((wanted * (full + 1) - full) * SMS)) if piece % 4 != 3 else 2 * SMS)
    if plan.sized:
        blocks = [max(round(size / WHOLE_GRID), 1) * WHOLE_GRID for size in blocks]
    return Grids(
        blocks=tuple(blocks),
        channels=int(random.choice([8, 16, 24, 32])),
        overlap=float(random.choice([0.0, random.uniform(0.0, 0.4), random.uniform(0.4, 0.95)])),
        shared=float(random.uniform(0.0, 1.0)),
        evenness=float(random.choice([1.0, random.uniform(SLOWEST, 1.0)])),
    )


def _resting(plan: JobPlan, clocks: Array) -> float:
    """Return how much higher the clock is where nothing runs: in two jobs of three not at all."""
    random = np.random.Generator(np.random.PCG64([plan.seed, 3]))
    follows = random.random() < 1 / 3
    return float(random.uniform(1.0, max(IDLE_CLOCK / clocks.max(), 1.0))) if follows else 1.0


def _model(random: np.random.Generator, plan: JobPlan) -> JobModel:
    heads = int(random.choice([8, 12, 16]))
    return JobModel(
        width=heads * 128,
        layers=int(random.integers(8, 25)),
        heads=heads,
        kv_heads=int(random.choice([2, 4])),
        inner=int(random.integers(20, 80)) * 64,
        vocabulary=int(random.choice([32003, 50257, 65536])),
        batch=plan.ranks * int(random.integers(2, 9)),
        seq=int(random.choice([1000, 1536, 2047, 4096])),
        recomputed=bool(random.integers(2)),
    )


def _clocks(random: np.random.Generator) -> Array:
    """Return the mean SM clock of each interval: it drifts slowly about a mean that may lie above the tensor clock."""
    mean = random.uniform(0.8 * HIGHEST_LOAD_CLOCK, 1.23 * HIGHEST_LOAD_CLOCK)
    drift: Array = mean * (1 + 0.01 * np.sin(np.linspace(0, 2 * np.pi, SAMPLES, endpoint=False) + random.uniform(0, 6)))
    return drift


def sampled(job: SimulatedJob) -> Array:
    """Return what sampling the clock reads on each GPU [ranks, samples]: an instant's value, off the interval's mean by noise.

    Where the clock follows the work, an instant in which a rank does not compute reads the higher one.
    """
    random = np.random.Generator(np.random.PCG64([job.plan.seed, 1]))
    readings: Array = job.clocks + random.normal(0, LOAD_CLOCK_DEVIATION, (job.plan.ranks, SAMPLES))
    rests = random.random((job.plan.ranks, SAMPLES)) >= np.array(job.kernel)[:, None] / job.elapsed
    return np.where(rests, readings * job.resting, readings)


def _wobble(random: np.random.Generator, ranks: int) -> Array:
    raw = 1 + 0.01 * random.standard_normal((ranks, SAMPLES))
    result: Array = raw / raw.mean(axis=1, keepdims=True)
    return result


def _clock(clocks: Array, wobble: Array, weights: tuple[float, ...] | tuple[int, ...]) -> float:
    """Return the clock over the tensor clock, weighted by tensor activity: of GPU and time alike."""
    activity = np.array(weights, float)[:, None] * wobble
    return float((activity * clocks).sum() / activity.sum() / find(GPU).tensor_clock)


def _time_factors(kernel: tuple[int, ...], active: int, elapsed: int) -> dict[str, float]:
    longest = max(kernel)
    return {
        "load_balance": sum(kernel) / len(kernel) / longest,
        "communication": longest / active,
        "orchestration": active / elapsed,
    }


def _mean_fill(kernel: tuple[int, ...], fills: tuple[float, ...]) -> float:
    return sum(time * fill for time, fill in zip(kernel, fills, strict=True)) / sum(kernel)


def _tile(model: JobModel, ranks: int) -> float:
    """Return needed over executed FLOPs of the matrix products, tile by tile."""
    needed = executed = 0
    for gemm in model.gemms(ranks):
        across, down = (_tiles(gemm[size], tile, cluster) for size, tile, cluster in zip("mn", TILE, CLUSTER, strict=True))
        deep = _tiles(gemm["k"], K_TILE, 1)
        needed += gemm["count"] * gemm["m"] * gemm["n"] * gemm["k"]
        executed += gemm["count"] * across * down * deep * TILE[0] * TILE[1] * K_TILE
    return needed / executed


def _tiles(size: int, tile: int, cluster: int) -> int:
    count = 0
    while count * tile < size:
        count += cluster
    return count
