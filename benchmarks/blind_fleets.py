"""Fleets of training jobs with planted slow GPUs, and with what only looks like one.

What is assumed of the hardware, and nothing of the detector:

- **Work.** A step gives each rank an amount of work. A rank computes for `work × (b × f0 / f + (1 - b) × m)`: the part `b` is bound by
  the SM clock `f`, the rest by memory, which a fault may make `m` times as slow. The cycles in which tensor pipes are active depend on the
  work alone, so a slow rank has *as many* tensor cycles a step as before, spread over a longer time.
- **Waiting.** Training is synchronous: a step ends when its last rank has computed and the gradients are exchanged. Who is ready early
  waits inside a collective kernel, which holds the graphics engine (1) and a sixth of the SMs (0.10 to 0.18), and no tensor pipe. So a rank
  that *computes* longer looks busier than those that wait for it; a rank that *comes late* (its host's CPU, its data, its PCIe link are
  slow) is idle meanwhile, and looks less busy than those that wait for it. In both cases the step is longer for all.
- **Clock.** Jobs at the power limit run at 70 to 95 % of the highest clock, each GPU at one of its own (1.2 % of spread), and clock higher
  while they wait. The exporter samples clock and power at an instant, 15 MHz apart; activity is the mean since the last scrape, as a ratio
  of cycles, with 0.4 % of noise (1 % where the window is a second).
- **Links.** A slow network card or NVLink slows the collective itself, for every rank alike. A damaged NVLink counts replays, which names
  its GPU; a slow network card leaves no trace in a GPU's counters: such faults are planted, but nobody is asked to find them.
- **Innocent.** Longer sequences and unequal experts are more *work* (tensor cycles grow with it), whoever waits; pipeline stages and GPU
  models differ from the start; checkpoints, evaluation, restarts, warm-up and a slow shared disk leave ranks waiting for a while.

A fault counts where the job's step became at least 8 % longer by it. `onset` is the start of the first such step, `end` that of the last.
The kinds are those that the literature names (Minder, GREYHOUND, Mycroft, Holmes): thermal and power throttling, memory retries, slow
hosts and data loaders, PCIe and NVLink that lost lanes, network cards; lasting, growing slowly, or coming and going.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.tables import samples

Array = npt.NDArray[np.float64]

# thresholds of the detector were chosen on those of development, assessment and review; fresh and unseen play no part in it, and judge it
SEEDS = {
    "development": range(1_000, 1_300),
    "assessment": range(2_000, 2_300),
    "review": range(4_000, 4_200),
    "fresh": range(3_000, 3_300),
    "unseen": range(5_000, 5_300),
}

EPOCH_MS = 1_764_115_200_000
GPUS_PER_HOST = 8
NOTICEABLE = 1.08  # the slowdown of a job's step from which a fault counts
SOFTWARE_POWER, HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80

H100 = ("NVIDIA H100 80GB HBM3", 1980e6, 700.0, 1.0)
A100 = ("NVIDIA A100-SXM4-80GB", 1410e6, 400.0, 0.45)

THROTTLING = ("thermal", "power")
LATE = ("slow host", "data loader", "PCIe link")
FAULTS = (*THROTTLING, "memory retries", *LATE, "NVLink", "network card")
LOOK_ALIKES = (
    "none", "unequal sequences", "longer sequences", "long shard", "experts", "stages", "mixed models", "serving", "unequal pair",
    "slow disk", "checkpoints", "evaluation", "evaluation on rank 0", "restart", "common clock",
)  # fmt: skip


@dataclass(frozen=True)
class PlantedFault:
    """A fault: whose, when, how much longer a step took by it, and whether any counter of the feed can name its GPU.

    `first` and `last` are when the device began to be faulty and was so for the last time; `onset` and `end` bound the steps of the job
    that it made noticeably longer.
    """

    kind: str
    course: str
    job: str
    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    first: float
    onset: float
    end: float
    last: float
    slowdown: float
    visible: bool


@dataclass(frozen=True)
class BlindFleet:
    """One fleet: its samples, the faults in it, and which look-alikes each job has."""

    seed: int
    interval: int
    samples: pa.RecordBatch
    faults: tuple[PlantedFault, ...]
    look_alikes: dict[str, tuple[str, ...]]
    gpu_seconds: float
    scrapes: dict[str, Array] = field(repr=False, default_factory=dict)


@dataclass
class _Job:
    """A job while it is drawn: where it runs, what it does, and what is wrong with it."""

    name: str
    gpus: list[str]
    hosts: list[str]
    indexes: list[int]
    start: float
    end: float
    random: np.random.Generator
    looks: tuple[str, ...]
    step: float = 1.0
    exchange: float = 0.1  # share of a step
    clock_bound: float = 0.85
    tensor: float = 0.55  # of a clock cycle while it computes
    spin: float = 0.14  # SMs that a waiting collective holds
    models: list[tuple[str, float, float, float]] = field(default_factory=list)
    clocks: Array = field(default_factory=lambda: np.empty(0))
    capped: bool = True
    fault: dict[str, Any] | None = None

    @property
    def ranks(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True)
class _Steps:
    """What each rank did in each step: seconds (step, part, rank) of idle, evaluation, compute, waiting and exchange, and the clock."""

    starts: Array
    seconds: Array
    clock: Array
    tensor_cycles: Array
    slowdown: Array


def blind_fleet(seed: int, interval: int = 30, gpus: int = 96, seconds: float = 7_200) -> BlindFleet:
    """Return the fleet of a seed: `gpus` or a few more GPUs, scraped each `interval` seconds for `seconds`."""
    random = np.random.default_rng([seed, interval])
    full_feed = random.random() < 0.7
    jobs = _drawn_jobs(random, gpus, seconds, full_feed, interval)
    scrape_times = _scrape_times(random, sorted({host for job in jobs for host in job.hosts}), interval, seconds)
    columns, faults, scrapes = [], [], {}
    for job in jobs:
        steps = _simulated_steps(job)
        columns.append(_scraped(job, steps, scrape_times, interval, full_feed))
        if job.fault is not None:
            faults.extend(_planted(job, steps))
        scrapes.update({gpu: scrape_times[host] for gpu, host in zip(job.gpus, job.hosts, strict=True)})
    batch = samples({name: _joined([part[name] for part in columns]) for name in columns[0]})
    held = sum((job.end - job.start) * job.ranks for job in jobs)
    return BlindFleet(seed, interval, batch, tuple(faults), {job.name: job.looks for job in jobs}, held, scrapes)


def _drawn_jobs(random: np.random.Generator, gpus: int, seconds: float, full_feed: bool, interval: int) -> list[_Job]:
    """Return jobs on GPUs of their own; a size of 2 or 4 shares a host with others."""
    jobs: list[_Job] = []
    place = 0
    while place < gpus:
        size = int(random.choice([2, 4, 8, 16, 32, 64], p=[0.15, 0.1, 0.3, 0.25, 0.15, 0.05]))
        if size >= GPUS_PER_HOST:
            place = -(-place // GPUS_PER_HOST) * GPUS_PER_HOST
        places = range(place, place + size)
        place += size
        early, late = random.random() < 0.6, random.random() < 0.6
        start = 0.0 if early else float(random.uniform(0, 0.3) * seconds)
        end = seconds if late else float(random.uniform(0.75, 1.0) * seconds)
        job = _Job(
            f"{seconds:.0f}{len(jobs):03d}", [f"GPU-{p:04d}" for p in places], [f"node{p // GPUS_PER_HOST:03d}" for p in places],
            [p % GPUS_PER_HOST for p in places], start, end, np.random.default_rng(random.integers(2**62)), _looks(random, size),
        )  # fmt: skip
        _draw_character(job, interval, begins_here=not early)
        if random.random() < 0.4 and "serving" not in job.looks:
            job.fault = _drawn_fault(job, full_feed)
        jobs.append(job)
    return jobs


def _looks(random: np.random.Generator, size: int) -> tuple[str, ...]:
    """Return what makes a job look unequal: up to two kinds that can go together."""
    first = str(random.choice(LOOK_ALIKES))
    second = str(random.choice(["none", "checkpoints", "evaluation", "restart", "longer sequences"]))
    if first in ("stages", "mixed models") and size < 16:
        first = "unequal sequences"
    if first == "unequal pair" and size != 2:
        first = "experts"
    return tuple(sorted({first, second if first != "serving" else "none"} - {"none"}))


def _draw_character(job: _Job, interval: int, begins_here: bool) -> None:
    random = job.random
    job.step = float(np.exp(random.uniform(np.log(1.2 if interval > 5 else 0.4), np.log(8))))
    job.exchange, job.clock_bound = float(random.uniform(0.03, 0.25)), float(random.uniform(0.6, 0.95))
    job.tensor, job.spin = float(random.uniform(0.3, 0.75)), float(random.uniform(0.10, 0.18))
    job.capped = bool(random.random() < 0.7)
    base = A100 if random.random() < 0.25 else H100
    job.models = [base] * job.ranks
    if "mixed models" in job.looks:
        hosts = sorted(set(job.hosts))
        other = set(hosts[: max(1, int(random.integers(1, len(hosts))))])
        job.models = [A100 if host in other else H100 for host in job.hosts]
    highest = np.array([model[1] for model in job.models])
    if job.capped:
        job.clocks = np.minimum(highest, highest * random.uniform(0.7, 0.95) * (1 + 0.012 * random.standard_normal(job.ranks)))
    else:
        job.clocks = highest
    if begins_here:
        job.looks = tuple(sorted({*job.looks, "warm-up"}))


def _drawn_fault(job: _Job, full_feed: bool) -> dict[str, Any]:
    """Return a fault: its kind, whom it strikes, how strong it is and its course in time."""
    random = job.random
    kinds = [kind for kind in FAULTS if full_feed or kind not in ("memory retries", "NVLink")]
    kind = str(random.choice(kinds))
    struck = np.zeros(job.ranks, bool)
    rank = int(random.integers(job.ranks))
    whole_host = kind == "slow host" or (kind in ("thermal", "power", "data loader") and random.random() < 0.2)
    several = len(set(job.hosts)) > 1
    if kind == "slow host" and not several:
        kind, whole_host = "data loader", False
    if whole_host and several:
        struck |= np.array(job.hosts) == job.hosts[rank]
    else:
        struck[rank] = True
    length = job.end - job.start
    from_start = random.random() < 0.1
    onset = job.start - 1 if from_start else job.start + float(random.uniform(0.25, 0.75)) * length
    end = job.end + 1 if random.random() < 0.7 else onset + max(240.0, float(random.uniform(0.1, 0.5)) * length)
    course = str(random.choice(["abrupt", "gradual", "intermittent"], p=[0.6, 0.2, 0.2]))
    return {
        "kind": kind, "struck": struck, "onset": onset, "end": end, "course": course,
        "strength": float(np.exp(random.uniform(np.log(1.15), np.log(2.0)))),
        "ramp": float(random.uniform(0.05, 0.2)) * length,
        "on": float(random.uniform(75, 300)), "off": float(random.uniform(60, 300)),
        "bits": int(random.choice([SOFTWARE_THERMAL, HARDWARE_THERMAL | HARDWARE]) if kind == "thermal"
                    else random.choice([SOFTWARE_POWER, POWER_BRAKE | HARDWARE]) if kind == "power" else 0),
    }  # fmt: skip


def _strength(fault: dict[str, Any], times: Array) -> Array:
    """Return how many times as long the struck ranks take at each time: 1 where the fault is away."""
    since = times - fault["onset"]
    active = (since >= 0) & (times < fault["end"])
    share = np.ones_like(times)
    if fault["course"] == "gradual":
        share = np.clip(since / fault["ramp"], 0, 1)
    elif fault["course"] == "intermittent":
        share = ((since % (fault["on"] + fault["off"])) < fault["on"]).astype(float)
    strength: Array = 1 + (fault["strength"] - 1) * np.where(active, share, 0)
    return strength


def _simulated_steps(job: _Job) -> _Steps:
    """Return what the ranks did, step by step, until the job's end.

    What changes with time depends on when steps begin, which depends on what was slow before: solved by going over it five times.
    """
    if "serving" in job.looks:
        return _served(job)
    length = job.end - job.start
    count = int(np.ceil(length / (0.9 * job.step))) + 2
    drawn = _drawn_work(job, count)
    starts = job.start + np.arange(count) * job.step
    for _ in range(5):
        steps = _timed_steps(job, starts, drawn)
        starts = job.start + np.concatenate([[0.0], np.cumsum(steps.seconds.sum(axis=1)[:, 0])[:-1]])
    steps = _timed_steps(job, starts, drawn)
    kept = int(np.searchsorted(starts, job.end))
    return _Steps(starts[:kept], steps.seconds[:kept], steps.clock[:kept], steps.tensor_cycles[:kept], steps.slowdown[:kept])


def _drawn_work(job: _Job, count: int) -> dict[str, Array]:
    """Return what is random in each step and rank and does not depend on time."""
    random, ranks = job.random, job.ranks
    work = np.exp(random.uniform(0.003, 0.02) * random.standard_normal((count, ranks)))
    if "unequal sequences" in job.looks:
        work = work * np.exp(random.uniform(0.05, 0.2) * random.standard_normal((count, ranks)))
    if "stages" in job.looks:
        stages = int(random.choice([2, 4]))
        work = work * random.uniform(0.75, 1.2, stages)[np.arange(ranks) * stages // ranks]
    if "unequal pair" in job.looks:
        work = work * np.array([1 + random.uniform(0.08, 0.25), 1.0])
    if "experts" in job.looks:
        work = work * np.exp(random.uniform(0.04, 0.15) * _wandering(random, count, ranks, random.uniform(60, 1200) / job.step))
    return {
        "work": work, "stall": random.exponential(0.01, (count, ranks)), "disk": random.exponential(0.25, (count, ranks)),
        "fault": np.exp(0.15 * random.standard_normal((count, 1))), "when": random.uniform(0.15, 0.9, 12), "size": random.random(12),
        "pause": random.exponential(1.0, (40, ranks)), "wander": _wandering(random, count, 1, 600 / job.step),
    }  # fmt: skip


def _wandering(random: np.random.Generator, count: int, ranks: int, memory: float) -> Array:
    """Return series of variance 1 that forget within `memory` steps: cubic through points drawn a memory apart, then scaled."""
    points = max(4, int(count / memory) + 3)
    knots = random.standard_normal((points, ranks))
    at = np.linspace(0, points - 1.001, count)
    low = at.astype(int)
    part = (at - low)[:, None]
    smooth: Array = knots[low] * (1 - part) + knots[low + 1] * part
    return smooth / np.sqrt((1 - part) ** 2 + part**2)


def _timed_steps(job: _Job, starts: Array, drawn: dict[str, Array]) -> _Steps:
    """Return the steps as they are when they begin at `starts`."""
    count, ranks, base = len(starts), job.ranks, job.step * (1 - job.exchange)
    work, attention = _work_at(job, starts, drawn)
    clocks = np.broadcast_to(job.clocks, (count, ranks)).copy()
    if "common clock" in job.looks:
        clocks *= np.clip(1 + 0.03 * drawn["wander"], 0.85, 1.05) * np.where(starts > _when(job, drawn, 5), 0.85, 1.0)[:, None]
    usual = clocks.copy()
    stall = (drawn["stall"] + (drawn["disk"] * _within(job, starts, drawn, 3, 180, 600)[:, None] if "slow disk" in job.looks else 0)) * base
    exchange = np.full(count, job.step * job.exchange)
    speeds = np.array([model[3] for model in job.models])
    if "mixed models" not in job.looks:
        speeds = np.ones(ranks)
    reference = np.median(job.clocks) if "mixed models" not in job.looks else job.clocks
    amount = (work + attention) * base
    needed = amount * (job.clock_bound * reference / usual + (1 - job.clock_bound)) / speeds
    compute, late, slow_exchange = needed, np.zeros((count, ranks)), exchange
    if job.fault is not None:
        clocks, compute, late, slow_exchange = _struck(job, starts, drawn, needed, clocks, exchange)
    idle, evaluation = _pauses(job, starts, drawn)
    own, healthy = stall + late + compute, stall + needed
    total = (idle + evaluation).max(axis=1) + own.max(axis=1) + slow_exchange
    without = (idle + evaluation).max(axis=1) + healthy.max(axis=1) + exchange
    busy = np.stack(
        [idle, evaluation, stall + late, compute, np.zeros_like(idle), np.broadcast_to(slow_exchange[:, None], idle.shape)], axis=1
    )
    busy[:, 4] = total[:, None] - busy.sum(axis=1)
    paused = (idle + evaluation).max(axis=1) > 0.5 * without
    tensor_cycles = job.tensor * (work + 0.75 * attention) * base * np.asarray(reference)
    return _Steps(starts, busy, clocks, tensor_cycles, np.where(paused, 1.0, total / without))


def _struck(
    job: _Job, starts: Array, drawn: dict[str, Array], needed: Array, clocks: Array, exchange: Array
) -> tuple[Array, Array, Array, Array]:
    """Return clocks, compute times, lateness and exchange with the fault in them."""
    fault = job.fault
    assert fault is not None
    strength, kind = _strength(fault, starts)[:, None], fault["kind"]
    struck = fault["struck"][None, :] & (strength > 1)
    late = np.zeros_like(needed)
    compute = needed
    if kind in THROTTLING:
        bound = job.clock_bound
        clocks = np.where(struck, clocks * bound / (strength - 1 + bound), clocks)
        compute = np.where(struck, needed * strength, needed)
    elif kind == "memory retries":
        compute = np.where(struck, needed * strength, needed)
    elif kind in LATE:
        late = np.where(struck, needed * (strength - 1) * drawn["fault"], 0)
    else:
        # links carry a tenth to a quarter of a step: a link at a fraction of its speed makes the exchange several times as long
        exchange = exchange + (strength[:, 0] - 1) * job.step
    return clocks, compute, late, exchange


def _when(job: _Job, drawn: dict[str, Array], number: int) -> float:
    return float(job.start + drawn["when"][number] * (job.end - job.start))


def _within(job: _Job, starts: Array, drawn: dict[str, Array], number: int, least: float, most: float) -> npt.NDArray[np.bool_]:
    """Return which steps lie in the spell of this number, which lasts from `least` to `most` seconds."""
    since = starts - _when(job, drawn, number)
    inside: npt.NDArray[np.bool_] = (since >= 0) & (since < least + drawn["size"][number] * (most - least))
    return inside


def _work_at(job: _Job, starts: Array, drawn: dict[str, Array]) -> tuple[Array, Array]:
    """Return the work of each step and rank, and the attention that longer sequences add to it."""
    work = drawn["work"]
    attention = np.zeros_like(work)
    if "longer sequences" in job.looks:
        longer = starts > _when(job, drawn, 1)
        attention = attention + longer[:, None] * (0.2 + 1.2 * drawn["size"][1]) * work
    if "long shard" in job.looks:
        inside = _within(job, starts, drawn, 2, 240, 1_800)
        extra = np.zeros_like(work)
        extra[:, int(drawn["size"][11] * job.ranks)] = 0.15 + 0.45 * drawn["size"][10]
        attention = attention + inside[:, None] * extra * work
    return work, attention


def _pauses(job: _Job, starts: Array, drawn: dict[str, Array]) -> tuple[Array, Array]:
    """Return the idle seconds and the evaluation before each step: checkpoints, restarts, warm-up, evaluation."""
    count, ranks = len(starts), job.ranks
    idle, evaluation = np.zeros((count, ranks)), np.zeros((count, ranks))
    length = job.end - job.start

    def at(time: float) -> int:
        return min(count - 1, int(np.searchsorted(starts, time)))

    if "warm-up" in job.looks:
        idle[0] += 30 + 120 * drawn["size"][6] + 10 * drawn["pause"][0]
        idle[1] += 3 * drawn["pause"][1]
    if "restart" in job.looks:
        idle[at(_when(job, drawn, 7))] += 90 + 240 * drawn["size"][7] + 8 * drawn["pause"][2]
    every = (0.08 + 0.2 * drawn["size"][8]) * length
    for number, time in enumerate(np.arange(job.start + every, job.end, every)[:12]):
        step, spread = at(float(time)), drawn["pause"][3 + number]
        if "checkpoints" in job.looks:
            idle[step] += 5 + 30 * drawn["size"][9] + np.where(np.arange(ranks) == 0, 15.0, 2.0) * spread
        if "evaluation" in job.looks:
            evaluation[step] += 20 + 120 * drawn["size"][9] + 0.5 * spread
        if "evaluation on rank 0" in job.looks:
            evaluation[step, 0] += 40 + 200 * drawn["size"][9]
    return idle, evaluation


def _served(job: _Job) -> _Steps:
    """Return the steps of a job whose GPUs serve requests: each as busy as its own requests make it, nobody waits for another."""
    random, ranks = job.random, job.ranks
    step = 2.0
    count = int((job.end - job.start) / step)
    starts = job.start + np.arange(count) * step
    rhythm = 1 + random.uniform(0, 0.6) * np.sin(2 * np.pi * (starts / 86_400 + random.random()))[:, None]
    own = np.exp(0.5 * _wandering(random, count, ranks, random.uniform(30, 900) / step))
    load = np.clip(random.uniform(0.15, 0.5) * rhythm * own * np.exp(0.2 * random.standard_normal((count, ranks))), 0, 0.98)
    seconds = np.zeros((count, 6, ranks))
    seconds[:, 3], seconds[:, 0] = load * step, (1 - load) * step
    clocks = np.broadcast_to(job.clocks, (count, ranks)).copy()
    return _Steps(starts, seconds, clocks, 0.3 * job.tensor * load * step * clocks, np.ones(count))


def _scrape_times(random: np.random.Generator, hosts: list[str], interval: int, seconds: float) -> dict[str, Array]:
    """Return when each host is scraped: a phase of its own, jitter, single scrapes that fail, and sometimes a gap."""
    times = {}
    for host in hosts:
        at = np.arange(random.uniform(0, interval), seconds, interval)
        at = at + np.clip(0.01 * interval * random.standard_normal(len(at)), -0.4 * interval, 0.4 * interval)
        kept = random.random(len(at)) > 0.01
        if random.random() < 0.15:
            begin, length = random.uniform(0, seconds), random.uniform(2 * interval, 10 * interval)
            kept &= ~((at > begin) & (at < begin + length))
        times[host] = np.round(at[kept], 3)
    return times


def _scraped(job: _Job, steps: _Steps, scrape_times: dict[str, Array], interval: int, full_feed: bool) -> dict[str, Any]:
    """Return the columns of a job's samples, GPU after GPU."""
    bounds, rates, at_once = _rates(job, steps)
    parts: dict[str, list[Any]] = {}
    last = bounds[-1]
    for rank, (gpu, host) in enumerate(zip(job.gpus, job.hosts, strict=True)):
        times = scrape_times[host]
        times = times[(times > job.start) & (times <= min(job.end, last[rank]))]
        if len(times) < 2:
            continue
        own = _of_rank(
            job,
            rank,
            times,
            bounds[:, rank],
            {k: v[:, rank] for k, v in rates.items()},
            {k: v[:, rank] for k, v in at_once.items()},
            interval,
        )
        if not full_feed:
            own = {name: values for name, values in own.items() if name not in ("sm_active", "throttle", "nvlink_replays")}
        words = {"cluster": "blind", "host": host, "gpu": gpu, "model": job.models[rank][0], "job": job.name, "user": "somebody"}
        own |= {name: np.full(len(times), word, object) for name, word in words.items()}
        own["index"] = np.full(len(times), job.indexes[rank])
        for name, values in own.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(values) for name, values in parts.items()}


def _rates(job: _Job, steps: _Steps) -> tuple[Array, dict[str, Array], dict[str, Array]]:
    """Return when parts of steps end (row, rank), what runs up as rates in each part, and what an instant shows there."""
    count, kinds, ranks = steps.seconds.shape
    seconds = steps.seconds.reshape(count * kinds, ranks)
    bounds = np.concatenate([np.full((1, ranks), steps.starts[0]), steps.starts[0] + np.cumsum(seconds, axis=0)])
    highest = np.array([model[1] for model in job.models])
    cap = np.array([model[2] for model in job.models])
    slowed = (
        steps.clock < 0.93 * np.median(steps.clock, axis=1, keepdims=True)
        if "mixed models" not in job.looks
        else np.zeros_like(steps.clock, bool)
    )
    waiting = np.where(slowed, steps.clock, np.minimum(highest, steps.clock * 1.08))
    clock = np.stack([waiting, steps.clock, waiting, steps.clock, waiting, steps.clock], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        tensor = np.where(steps.seconds[:, 3] > 0, steps.tensor_cycles / steps.seconds[:, 3] / steps.clock, 0)
    tensor = np.minimum(tensor, 0.98)
    zeros, ones = np.zeros((count, ranks)), np.ones((count, ranks))
    relative = steps.clock / np.maximum(np.median(steps.clock, axis=1, keepdims=True), 1)
    loaded = (1.0 if job.capped else 0.8) * (np.minimum(1, relative**2) if "mixed models" not in job.looks else ones)

    def by_part(idle: Array, evaluation: Array, late: Array, compute: Array, wait: Array, exchange: Array) -> Array:
        return np.stack([idle, evaluation, late, compute, wait, exchange], axis=1)

    spin = job.spin * ones
    per_part = {
        "gr_active": by_part(zeros, 0.97 * ones, zeros, 0.99 * ones, ones, ones),
        "sm_cycles": by_part(zeros, 0.8 * ones, zeros, 0.92 * ones, spin, 1.2 * spin) * clock,
        "tensor_cycles": by_part(zeros, 0.9 * job.tensor * ones, zeros, tensor, zeros, zeros) * clock,
        "dram_active": by_part(zeros, 0.25 * ones, zeros, 0.3 * ones, 0.01 * ones, 0.1 * ones),
        "cycles": clock,
        "power": by_part(0.18 * ones, 0.75 * loaded, 0.18 * ones, loaded, 0.42 * ones, 0.5 * ones) * cap,
        "nvlink_tx": by_part(zeros, zeros, zeros, 2e9 * ones, zeros, 80e9 * ones),
    }  # fmt: skip
    instant = {"clock": clock, "part": np.broadcast_to(np.arange(kinds)[None, :, None], (count, kinds, ranks))}
    flat = {name: values.reshape(count * kinds, ranks) for name, values in per_part.items()}
    run_up = {name: np.concatenate([np.zeros((1, ranks)), np.cumsum(values * seconds, axis=0)]) for name, values in flat.items()}
    return bounds, run_up, {name: values.reshape(count * kinds, ranks) for name, values in instant.items()}


def _of_rank(
    job: _Job, rank: int, times: Array, bounds: Array, run_up: dict[str, Array], at_once: dict[str, Array], interval: int
) -> dict[str, Any]:
    """Return the fields that one GPU's exporter shows at each scrape."""
    random, count = job.random, len(times)
    edges = np.concatenate([[max(job.start, times[0] - interval)], times])
    grown = {name: np.diff(np.interp(edges, bounds, values)) for name, values in run_up.items() if name != "power"}
    length = np.diff(edges)
    part = np.clip(np.searchsorted(bounds, times) - 1, 0, len(bounds) - 2)
    clock = at_once["clock"][part] * (1 + 0.004 * random.standard_normal(count))
    watts = np.interp(times, bounds, run_up["power"]) - np.interp(times - 1, bounds, run_up["power"])

    def noisy(values: Array) -> Array:
        return np.clip(values * (1 + (0.01 if interval < 5 else 0.004) * random.standard_normal(count)), 0, 1)

    highest, cap = job.models[rank][1], job.models[rank][2]
    power = np.maximum(watts, 0.17 * cap) * (1 + 0.01 * random.standard_normal(count)) * (1 + 0.02 * np.sin(rank * 1.7))
    temperature = 32 + 38 * power / cap + 3 * np.sin(rank * 2.3)
    kind = at_once["part"][part]
    throttle = np.where((kind == 3) & job.capped, SOFTWARE_POWER, 0) | np.where(np.isin(kind, (0, 2)), 1, 0)
    replays = np.zeros(count)
    if job.fault is not None and job.fault["struck"][rank]:
        active = _strength(job.fault, times) > 1.02
        throttle = np.where(active, throttle | job.fault["bits"], throttle)
        if job.fault["kind"] == "thermal":
            temperature = np.where(active, np.maximum(temperature, 86 + 3 * random.random()), temperature)
        if job.fault["kind"] == "NVLink":
            replays = np.cumsum(np.where(active, random.poisson(40, count), 0)).astype(float)
    return {
        "time": (EPOCH_MS + times * 1000).astype(np.int64),
        "gr_active": noisy(grown["gr_active"] / length), "sm_active": noisy(grown["sm_cycles"] / grown["cycles"]),
        "tensor_active": noisy(grown["tensor_cycles"] / grown["cycles"]), "dram_active": noisy(grown["dram_active"] / length),
        "sm_clock": np.clip(np.round(clock / 15e6) * 15e6, 210e6, highest), "power": power, "temperature": np.round(temperature),
        "nvlink_tx": grown["nvlink_tx"] / length, "throttle": throttle.astype(np.int64), "nvlink_replays": replays,
    }  # fmt: skip


def _planted(job: _Job, steps: _Steps) -> list[PlantedFault]:
    """Return the fault as it came out: from the first step that it made noticeably longer; harmless where it made none longer."""
    fault = job.fault
    assert fault is not None
    ahead = max(2, int(15 / job.step))
    run_up = np.concatenate([[0.0], np.cumsum(steps.slowdown)])
    stop = np.minimum(np.arange(len(steps.slowdown)) + ahead, len(steps.slowdown))
    mean = (run_up[stop] - run_up[:-1]) / (stop - np.arange(len(steps.slowdown)))
    noticed = np.flatnonzero((mean >= NOTICEABLE) & (steps.slowdown > 1.02))
    members = np.flatnonzero(fault["struck"])
    first, last = max(job.start, fault["onset"]), min(job.end, fault["end"])
    gpus, hosts = tuple(job.gpus[m] for m in members), tuple(sorted({job.hosts[m] for m in members}))
    if not len(noticed) or steps.starts[noticed[-1]] - steps.starts[noticed[0]] < 60:
        return [PlantedFault("harmless", fault["course"], job.name, gpus, hosts, first, first, last, last, 1.0, False)]
    onset, end = float(steps.starts[noticed[0]]), float(steps.starts[noticed[-1]] + job.step)
    slowdown, visible = float(np.mean(steps.slowdown[noticed])), fault["kind"] != "network card"
    return [PlantedFault(fault["kind"], fault["course"], job.name, gpus, hosts, first, onset, end, last, slowdown, visible)]


def _joined(parts: list[Any]) -> Any:
    values = np.concatenate(parts)
    return pa.array(values, pa.string()) if values.dtype == object else values
