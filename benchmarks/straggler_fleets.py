"""How well stragglers are found from telemetry alone: python benchmarks/straggler_fleets.py [seeds] [--interval 30] [--list].

The fleets are made step by step by what follows and by nothing else of this repository: ranks compute, meet in a collective, wait for
the slowest; scrapes average over what they meet. Sequences differ from step to step (for all ranks), and from rank to rank; stages of a
pipeline differ for good; pauses come and go. In some jobs a GPU or a host becomes slow: its kernels take 1.2 to 3 times as long, or its
clock falls. Every second fleet has no fault at all. Told are precision, recall and F1 by straggler, how soon they are found, and false
alarms a day of 500 GPUs. The published best of its kind: precision 0.904, F1 0.893 (Minder, NSDI'25).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from ullage.findings.fleet_evidence import SeenStraggler
from ullage.reports.stragglers.seen_stragglers import seen_stragglers
from ullage.sums.windows import settle
from ullage.tables import samples

Array = npt.NDArray[np.float64]
T0, MODEL, TENSOR_CLOCK = 1_786_320_000_000, "NVIDIA H100 80GB HBM3", 1830e6
GPUS_PER_HOST, HOURS = 8, 2.0
SCRAPES = 2  # within which nine of ten stragglers are to be found


@dataclass(frozen=True)
class PlantedStraggler:
    """What was planted: the job, the GPUs, from when to when (s), by how much longer they take, and in which way."""

    job: str
    gpus: frozenset[str]
    start: float
    end: float
    factor: float
    way: str


@dataclass
class DrawnJob:
    """A job of so many GPUs: its readings by GPU, and what was planted."""

    name: str
    columns: dict[str, list[Array]] = field(default_factory=dict)
    planted: list[PlantedStraggler] = field(default_factory=list)


def drawn_job(name: str, gpus: int, interval: float, random: np.random.Generator, *, faulty: bool) -> DrawnJob:
    """Return a job that runs for `HOURS`, step by step."""
    end = HOURS * 3600
    base, communication = float(np.exp(random.uniform(np.log(0.4), np.log(12)))), float(random.uniform(0.05, 0.4))
    tensor, sm, spin = float(random.uniform(0.3, 0.75)), float(random.uniform(0.8, 0.97)), float(random.uniform(0.02, 0.3))
    spread = float(random.choice([0.0, 0.02, 0.15, 0.3]))  # of sequences from step to step, all ranks alike
    uneven = float(random.choice([0.0, 0.01, 0.05, 0.12]))  # of sequences from rank to rank
    stages = 1 + random.choice([0.0, 0.02, 0.06]) * random.uniform(-1, 1, gpus)
    count = int(end / (0.5 * base)) + 10
    length = np.exp(spread * random.standard_normal(count) - spread**2 / 2)[:, None] * np.exp(
        uneven * random.standard_normal((count, gpus))
    )
    work = length * stages
    planted = [_fault(name, gpus, random)] if faulty else []
    noise = 1 + 0.01 * random.standard_normal((count, gpus))
    times = np.zeros(count + 1)
    compute = np.empty((count, gpus))
    rate = np.ones((count, gpus))
    at = 0.0
    for step in range(count):
        here = np.ones(gpus)
        for one in planted:
            if one.start <= at < one.end:
                chosen = [int(gpu.rsplit("-", 1)[1]) for gpu in one.gpus]
                here[chosen] = one.factor
                if one.way == "clock":
                    rate[step, chosen] = 1 / one.factor
        compute[step] = base * work[step] * here * noise[step]
        pause = float(random.exponential(30)) if random.random() < 0.002 else 0.0  # a checkpoint: everybody waits
        at += float(compute[step].max()) + communication * base + pause
        times[step + 1] = at
        if at > end:
            count = step + 1
            break
    job = DrawnJob(name, planted=planted)
    edges = np.arange(0.0, times[count], interval)
    for rank in range(gpus):
        offset = 5.0 * np.random.default_rng([gpus, rank // GPUS_PER_HOST]).random()
        for key, values in _scraped(
            times[: count + 1],
            compute[:count, rank],
            rate[:count, rank],
            work[:count, rank],
            base,
            edges + offset,
            (tensor, sm, spin),
            random,
        ).items():
            job.columns.setdefault(key, []).append(values)
    return job


def _fault(name: str, gpus: int, random: np.random.Generator) -> PlantedStraggler:
    """Return a GPU or a host that becomes slow."""
    whole_host = gpus > GPUS_PER_HOST and random.random() < 0.3
    first = int(random.integers(gpus))
    chosen = (
        range(first // GPUS_PER_HOST * GPUS_PER_HOST, min(gpus, first // GPUS_PER_HOST * GPUS_PER_HOST + GPUS_PER_HOST))
        if whole_host
        else [first]
    )
    start = float(random.uniform(0.25, 0.6)) * HOURS * 3600
    lasts = float(random.uniform(900, 3600))
    way = str(random.choice(["kernels", "clock"]))
    factor = float(np.exp(random.uniform(np.log(1.2), np.log(3.0))))
    if way == "clock":
        factor = min(factor, 2.2)
    return PlantedStraggler(name, frozenset(f"GPU-{name}-{rank}" for rank in chosen), start, start + lasts, factor, way)


def _scraped(
    times: Array,
    compute: Array,
    rate: Array,
    work: Array,
    base: float,
    edges: Array,
    kind: tuple[float, float, float],
    random: np.random.Generator,
) -> dict[str, Array]:
    """Return what scrapes of one GPU read: means of activities over what each meets, the clock at its end."""
    tensor, sm, spin = kind
    starts = times[:-1]

    def integral(begin: Array, end: Array, height: Array, at: Array) -> Array:
        """How much of a height lies before each time."""
        edges_of = np.concatenate([[0.0], np.cumsum((end - begin) * height)])
        step = np.clip(np.searchsorted(begin, at, side="right") - 1, 0, len(begin) - 1)
        inside = np.clip(at - begin[step], 0, end[step] - begin[step]) * height[step]
        found: Array = edges_of[step] + inside
        return found

    finished = starts + compute
    last = times[1:]
    fast = np.minimum(1.0, base * work / np.maximum(compute * rate, 1e-9))  # of its work, beside that of a sound GPU at its clock
    parts = {
        "sm_active": integral(starts, finished, np.full(len(starts), sm), edges)
        + integral(finished, last, np.full(len(starts), spin), edges),
        "gr_active": integral(starts, last, np.ones(len(starts)), edges),
        "tensor_active": integral(starts, finished, tensor * fast, edges),
    }
    span = np.diff(edges)
    clock = 1352e6 * np.interp(edges[1:], starts, rate) + 15e6 * random.standard_normal(len(edges) - 1)
    found = {
        name: np.clip(np.diff(values) / span * (1 + 0.005 * random.standard_normal(len(span))), 0, 1) for name, values in parts.items()
    }
    return {**found, "sm_clock": np.round(clock / 1e6) * 1e6, "time": T0 + np.round(edges[1:] * 1000)}


def fleet_table(jobs: list[DrawnJob]) -> pa.Table:
    """Return the settled samples of jobs."""
    batches = []
    for job in jobs:
        for rank, times in enumerate(job.columns["time"]):
            count = len(times)
            batches.append(
                samples(
                    {
                        "time": times.astype(np.int64),
                        "gpu": [f"GPU-{job.name}-{rank}"] * count,
                        "host": [f"{job.name}-{rank // GPUS_PER_HOST}"] * count,
                        "model": [MODEL] * count,
                        "job": [job.name] * count,
                        **{name: job.columns[name][rank] for name in ("sm_active", "gr_active", "tensor_active", "sm_clock")},
                    }
                )
            )
    return settle(pa.Table.from_batches(batches).unify_dictionaries())


@dataclass
class StragglerScore:
    """What was planted, found in time, and found where nothing was; GPU-hours looked at."""

    planted: int = 0
    found: int = 0
    false: int = 0
    alarms_clean: int = 0
    gpu_hours: float = 0.0
    waits: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The share of what was found that was planted."""
        return self.found / max(1, self.found + self.false)

    @property
    def recall(self) -> float:
        """The share of what was planted that was found."""
        return self.found / max(1, self.planted)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        return 2 * self.precision * self.recall / max(1e-9, self.precision + self.recall)


def add_fleet(score: StragglerScore, seed: int, interval: float) -> None:
    """Look at one fleet: with faults where the seed is even."""
    random = np.random.default_rng(seed)
    jobs = [
        drawn_job(f"{seed}x{number}", int(random.choice([8, 16, 32])), interval, random, faulty=seed % 2 == 0 and random.random() < 0.7)
        for number in range(4)
    ]
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(fleet_table(jobs), Path(folder) / "samples.parquet")
        found = seen_stragglers(ibis.duckdb.connect().read_parquet(Path(folder) / "samples.parquet"))
    score.gpu_hours += HOURS * sum(len(job.columns["time"]) for job in jobs)
    planted = [one for job in jobs for one in job.planted]
    score.planted += len(planted)
    matched = set()
    for one in planted:
        right = [
            n
            for n, seen in enumerate(found)
            if seen.job == one.job
            and _gpus(seen) <= one.gpus
            and T0 + 1000 * (one.start - interval) <= seen.found <= T0 + 1000 * (one.end + 2 * interval)
        ]
        matched |= set(right)
        score.found += bool(right)
        if right:
            score.waits.append(max(0.0, (min(found[n].found for n in right) - T0) / 1000 - one.start) / interval)
        else:
            score.wrong.append(f"missed {one.job} {one.way} × {one.factor:.2f} of {len(one.gpus)} GPUs")
    false = [seen for number, seen in enumerate(found) if number not in matched]
    score.false += len(false)
    score.alarms_clean += len(false) if not planted else 0
    score.wrong += [f"false {seen.job} {sorted(_gpus(seen))[:2]} × {seen.longer:.2f} by {seen.sign}" for seen in false]


def _gpus(seen: SeenStraggler) -> frozenset[str]:
    return frozenset(gpu for _, gpu, _ in seen.devices)


def main() -> None:
    """Run over seeds and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="?", type=int, default=40)
    parser.add_argument("--interval", type=float, default=30.0)
    parser.add_argument("--list", action="store_true")
    words = parser.parse_args()
    score = StragglerScore()
    for seed in range(words.seeds):
        add_fleet(score, seed, words.interval)
    soon = np.mean([wait <= SCRAPES for wait in score.waits]) if score.waits else 0.0
    print(
        f"{words.seeds} fleets, {score.gpu_hours:,.0f} GPU-hours, {score.planted} stragglers planted, a scrape every {words.interval:g} s"
    )
    print(f"precision {score.precision:.3f}, recall {score.recall:.3f}, F1 {score.f1:.3f}")
    within = f"found within {SCRAPES} scrapes of their start: {soon:.1%}"
    print(f"{within}; median {np.median(score.waits):.1f}, 90 %: {np.percentile(score.waits, 90):.1f} scrapes")
    print(f"false alarms a day of 500 GPUs: {score.false / score.gpu_hours * 500 * 24:.2f}")
    if words.list:
        print(*score.wrong, sep="\n")


if __name__ == "__main__":
    main()
