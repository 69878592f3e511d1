"""How rarely `ullage watch` alarms about jobs in which nothing changed, and how soon it tells a planted drop; beside a threshold and peers.

    python benchmarks/blind_changes.py                    # 3,000 job-hours without a change, 60 drops of each size
    python benchmarks/blind_changes.py --hours 500 --drops 10 --peers --json numbers.json

What is assumed, from how jobs and machines behave: a job of two GPUs is scraped each minute. Its step computes, exchanges and
waits for data; the share of a window in which tensor pipes work is what these leave, with noise that remembers (a few minutes to an hour),
checkpoints every half hour to two hours, evaluation now and then, and a clock sampled at an instant. Without a change are: steady jobs,
jobs of unequal steps, jobs at the power limit whose clock follows the room's daily temperature (2 %), jobs whose shared disk is slower by
day (3 to 10 %), and serving with a daily rhythm (10 to 60 %) that is another on each day. The last three run for days.

A drop lowers OFU by 10, 20 or 50 %, from one cause: steps wait longer (activity), the clock is lower, or kernels use tensor pipes less. It
is told where a change for the worse begins within the half hour around it; its delay is what one had to wait: telemetry is cut off so many
minutes after the drop, and the first cut that tells it counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import ullage
from ullage.tables import samples

Array = npt.NDArray[np.float64]

SEEDS = {"development": 10_000, "assessment": 20_000, "fresh": 200_000}
EPOCH_MS = 1_764_115_200_000
MINUTE = 60.0
GPUS = 2
LEAST = 0.5 * GPUS / 16  # GPU-hours: the two stand for a job of sixteen, at the command's own least
STEADY, LASTING = ("steady", "unequal steps", "checkpoints"), ("room temperature", "slow disk by day", "serving")
SIZES = (0.1, 0.2, 0.5)
DELAYS = (5, 10, 20, 40, 80)  # minutes after a drop at which telemetry is cut off


@dataclass(frozen=True)
class DrawnJob:
    """A job's course, minute by minute and GPU by GPU, and when its OFU was made to drop."""

    kind: str
    name: str
    fields: dict[str, Array]
    drop: float | None = None  # minutes since its start

    @property
    def hours(self) -> float:
        return len(next(iter(self.fields.values()))) / 60

    @property
    def ofu(self) -> Array:
        return np.asarray((self.fields["tensor_active"] * self.fields["sm_clock"] / 1.83e9).mean(axis=1))


def _remembering(random: np.random.Generator, count: int, columns: int, memory: float) -> Array:
    """Return noise of variance 1 whose correlation falls to 1/e within `memory` minutes."""
    keep = np.exp(-1 / memory)
    fresh = np.sqrt(1 - keep**2) * random.standard_normal((count, columns))
    values = np.empty((count, columns))
    last = random.standard_normal(columns)
    for row in range(count):
        last = keep * last + fresh[row]
        values[row] = last
    return values


def drawn_job(seed: int, kind: str, size: float | None = None) -> DrawnJob:
    """Return the job of a seed: without a change, or with a drop of this size somewhere in its middle."""
    random = np.random.default_rng([seed, len(kind)])
    hours = float(random.uniform(6, 24)) if kind in STEADY else float(random.uniform(60, 120))
    count = int(hours * 60)
    clock_of_day = 2 * np.pi * (np.arange(count) / 1_440 + random.random())
    tensor, computing = random.uniform(0.35, 0.75), random.uniform(0.6, 0.92)
    together = 0.01 * _remembering(random, count, 1, random.uniform(3, 60)) + 0.006 * random.standard_normal((count, GPUS))
    clock = random.uniform(0.75, 0.95) * 1.98e9 * (1 + 0.01 * random.standard_normal(GPUS)) * np.ones((count, 1))
    share = computing * np.exp(together)
    if kind == "unequal steps":
        share = share * np.exp(random.uniform(0.02, 0.06) * random.standard_normal((count, 1)))
    elif kind == "room temperature":
        clock = clock * (1 + 0.02 * np.sin(clock_of_day))[:, None]
    elif kind == "slow disk by day":
        share = share / (1 + random.uniform(0.03, 0.10) * np.clip(np.sin(clock_of_day), 0, None))[:, None]
    elif kind == "serving":
        share = 0.6 * share * _rhythm(random, clock_of_day)[:, None] * np.exp(0.05 * random.standard_normal((count, GPUS)))
    drop = None if size is None else float(random.uniform(0.4, 0.75) * count)
    issue = np.full((count, 1), tensor)
    if drop is not None:
        after, cause = (np.arange(count) >= drop)[:, None], int(random.integers(3))
        kept = np.where(after, 1 - (size or 0), 1.0)
        share, clock, issue = (value * kept if n == cause else value for n, value in enumerate((share, clock, issue)))
    share = np.clip(share, 0, 1) * _without_pauses(random, count, often=kind == "checkpoints")
    idle = (1 - share) * (0.7 if kind == "serving" else 0.25)
    instant = np.where(random.random((count, GPUS)) < share, 1.0, 1.06)
    noise = [1 + 0.004 * random.standard_normal((count, GPUS)) for _ in range(4)]
    fields = {
        "tensor_active": share * issue * noise[0], "sm_active": (0.92 * share + 0.14 * (1 - share - idle)) * noise[1],
        "gr_active": np.clip((1 - idle) * noise[2], 0, 1), "dram_active": 0.3 * share * noise[3],
        "sm_clock": np.minimum(np.round(clock * instant / 15e6) * 15e6, 1.98e9), "power": 150 + 520 * share,
    }  # fmt: skip
    return DrawnJob(kind, f"{kind.replace(' ', '-')}-{seed}", fields, drop)


def _rhythm(random: np.random.Generator, clock_of_day: Array) -> Array:
    """Return a daily rhythm of 10 to 60 % with a second harmonic; each day is a little stronger or weaker than the one before."""
    swing = random.uniform(0.1, 0.6)
    shape = np.sin(clock_of_day) + 0.3 * np.sin(2 * clock_of_day + random.uniform(0, 6))
    days = 1 + 0.03 * random.standard_normal(int(len(clock_of_day) / 1_440) + 2)
    at = np.arange(len(clock_of_day)) / 1_440
    return np.asarray((1 + swing * shape) * np.interp(at, np.arange(len(days)), days) / (1 + 1.3 * swing))


def _without_pauses(random: np.random.Generator, count: int, *, often: bool) -> Array:
    """Return the share of each minute that checkpoints and evaluation leave to training."""
    left = np.ones((count, 1))
    every, length = random.uniform(30, 120), random.uniform(0.2, 1.5)
    if often or random.random() < 0.3:
        for begin in np.arange(every, count - 3, every):
            first, part = int(begin), begin % 1
            left[first] -= min(length, 1 - part)
            left[first + 1] -= max(0.0, length - (1 - part)) if length > 1 - part else 0
    return np.clip(left, 0.02, 1)


def table_of(jobs: Sequence[DrawnJob]) -> pa.Table:
    """Return the samples of jobs, each on GPUs and in a part of time of its own."""
    columns: dict[str, list[Any]] = {}
    for number, job in enumerate(jobs):
        count = len(job.fields["power"])
        for gpu in range(GPUS):
            own: dict[str, Any] = {name: values[:, gpu] for name, values in job.fields.items()}
            own["time"] = (EPOCH_MS + (np.arange(count) + 1) * 60_000).astype(np.int64)
            for name, word in (("gpu", f"GPU-{number:03d}-{gpu}"), ("host", f"node{number:03d}"), ("job", job.name), ("user", job.name)):
                own[name] = np.full(count, word, object)
            own["model"] = np.full(count, "NVIDIA H100 80GB HBM3", object)
            for name, values in own.items():
                columns.setdefault(name, []).append(values)
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    return pa.Table.from_batches([samples({name: pa.array(v, pa.string()) if v.dtype == object else v for name, v in joined.items()})])


def changes_told(jobs: Sequence[DrawnJob], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return by job what `ullage watch` tells of it; what it tells of the whole fleet stands under ''."""
    path = folder / "jobs.parquet"
    pq.write_table(table_of(jobs), path)
    told: dict[str, list[dict[str, Any]]] = {}
    for change in ullage.watch(str(path), least=LEAST).json()["changes"]:
        for name in change["jobs"] or [""]:
            told.setdefault(name, []).append(change)
    return told


def minutes(word: str) -> float:
    """Return minutes since the start of a time in a report."""
    return float(np.datetime64(word.removesuffix("Z").replace("+00:00", ""), "ms").astype(np.int64) - EPOCH_MS) / 60_000


def _cut(job: DrawnJob, until: float) -> DrawnJob:
    return DrawnJob(job.kind, job.name, {name: values[: int(until)] for name, values in job.fields.items()}, job.drop)


def _buckets(job: DrawnJob, width: int = 5) -> Array:
    """Return the job's OFU by five minutes, for the peers."""
    ofu = job.ofu
    return np.asarray(ofu[: len(ofu) // width * width].reshape(-1, width).mean(axis=1))


def falls_by_threshold(series: Array) -> list[int]:
    """Return where ten minutes are 10 % below the mean of the first hour, each spell once."""
    low = (series[1:] + series[:-1]) / 2 < 0.9 * series[:12].mean()
    return [int(at) + 1 for at in np.flatnonzero(np.diff(np.concatenate([[False], low]).astype(int)) == 1)]


def falls_by_ruptures(series: Array) -> list[int]:
    """Return the falls that PELT of ruptures finds (least squares, penalty by the Bayesian criterion)."""
    import ruptures

    noise = np.median(np.abs(np.diff(series))) / 0.954
    ends = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(series).predict(pen=3 * np.log(len(series)) * noise**2)
    return _falls(series, [0, *ends])


def falls_by_otava(series: Array) -> list[int]:
    """Return the falls that Apache Otava finds, at its own defaults."""
    from otava.analysis import compute_change_points

    found = compute_change_points(list(series), window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    points = found[0] if isinstance(found, tuple) else found
    return _falls(series, [0, *sorted(point.index for point in points), len(series)])


def _falls(series: Array, bounds: Sequence[int]) -> list[int]:
    means = [series[a:b].mean() for a, b in itertools.pairwise(bounds)]
    return [bounds[n + 1] for n in range(len(means) - 1) if means[n + 1] < means[n]]


PEERS: dict[str, Callable[[Array], list[int]]] = {
    "threshold of 10 %": falls_by_threshold,
    "ruptures, PELT": falls_by_ruptures,
    "Apache Otava": falls_by_otava,
}


def clean_alarms(first_seed: int, hours: float, peers: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return how many changes were told of jobs without one, by kind, in so many job-hours or a few more."""
    kinds = (*STEADY, *LASTING)
    figures: dict[str, Any] = {
        "job_hours": 0.0,
        "jobs": 0,
        "by_kind": {kind: [0, 0.0, 0, 0] for kind in kinds},
        "peers": dict.fromkeys(peers, 0),
    }
    seed = first_seed
    while figures["job_hours"] < hours:
        # a lasting job beside three short ones, so that whatever is told of a whole fleet is seen as well
        jobs = [drawn_job(seed + n, kind) for n, kind in enumerate((*STEADY, LASTING[seed // 20 % 3]))]
        seed += 20
        told = changes_told(jobs, folder)
        figures["whole_fleet"] = figures.get("whole_fleet", 0) + len(told.get("", []))
        for job in jobs:
            row = figures["by_kind"][job.kind]
            own = told.get(job.name, [])
            row[0], row[1] = row[0] + 1, row[1] + job.hours
            row[2], row[3] = row[2] + sum(one["worse"] for one in own), row[3] + sum(not one["worse"] for one in own)
            figures["job_hours"], figures["jobs"] = figures["job_hours"] + job.hours, figures["jobs"] + 1
            for peer in peers:
                figures["peers"][peer] += len(PEERS[peer](_buckets(job)))
    figures["worse"] = sum(row[2] for row in figures["by_kind"].values())
    figures["better"] = sum(row[3] for row in figures["by_kind"].values())
    return figures


def planted_drops(first_seed: int, size: float, count: int, peers: Sequence[str], folder: Path) -> dict[str, Any]:
    """Return how many drops of a size were told, and within how many minutes."""
    kinds = (*STEADY, "serving", *STEADY, "slow disk by day")
    jobs = [drawn_job(first_seed + int(1_000 * size) * 100 + n, kinds[n % len(kinds)], size) for n in range(count)]
    figures: dict[str, Any] = {"planted": count, "peers": dict.fromkeys(peers, 0), "by_delay": {}}
    whole = _told_drops(jobs, folder)
    figures["found"] = len(whole)
    for delay in DELAYS:
        cut = [_cut(job, job.drop + delay + 1) for job in jobs if job.drop is not None]
        figures["by_delay"][delay] = len(_told_drops(cut, folder))
    for job in jobs:
        for peer in peers:
            figures["peers"][peer] += any(abs(at * 5 - (job.drop or 0)) <= 30 for at in PEERS[peer](_buckets(job)))
    return figures


def _told_drops(jobs: Sequence[DrawnJob], folder: Path) -> set[str]:
    told = changes_told(jobs, folder)
    return {
        job.name
        for job in jobs
        if any(one["worse"] and abs(minutes(one["start"]) - (job.drop or 0)) <= 30 for one in told.get(job.name, []))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", choices=sorted(SEEDS), default="assessment")
    parser.add_argument("--hours", type=float, default=3_000)
    parser.add_argument("--drops", type=int, default=60)
    parser.add_argument("--peers", action="store_true", help="also ruptures and, where it is installed, Apache Otava")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = _installed_peers() if options.peers else ["threshold of 10 %"]
    first, began = SEEDS[options.seeds], time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        clean = clean_alarms(first, options.hours, peers, Path(folder))
        print_clean(clean)
        drops = {size: planted_drops(first + 50_000, size, options.drops, peers, Path(folder)) for size in SIZES}
    print_drops(drops)
    print(f"{time.process_time() - began:.0f} s of CPU")
    if options.json:
        options.json.write_text(json.dumps({"clean": clean, "drops": drops}, indent=1))


def _installed_peers() -> list[str]:
    installed = []
    for peer, falls in PEERS.items():
        try:
            falls(np.random.default_rng(0).normal(1, 0.01, 60))
        except ImportError:
            print(f"{peer} is not installed")
        else:
            installed.append(peer)
    return installed


def print_clean(figures: dict[str, Any]) -> None:
    """Print the alarms about jobs without a change."""
    hours, worse = figures["job_hours"], figures["worse"]
    print(f"no change in {figures['jobs']} jobs, {hours:,.0f} job-hours: {worse} told for the worse, {figures['better']} for the better")
    print(f"  {1_000 * worse / hours:.2f} per 1,000 job-hours, goal < 1; of the whole fleet: {figures.get('whole_fleet', 0)}")
    for kind, (jobs, spent, bad, good) in figures["by_kind"].items():
        print(f"  {kind:<18} {jobs:>4} jobs {spent:>8,.0f} h   worse {bad}, better {good}")
    for peer, count in figures["peers"].items():
        print(f"  {peer:<18} {count} falls, {1_000 * count / hours:.1f} per 1,000 job-hours")


def print_drops(drops: dict[float, dict[str, Any]]) -> None:
    """Print how many drops were told, and how soon."""
    for size, figures in drops.items():
        delays = ", ".join(f"{count} after {delay} min" for delay, count in figures["by_delay"].items())
        peers = ", ".join(f"{peer} {count}" for peer, count in figures["peers"].items())
        print(f"drop of {size:.0%}: {figures['found']} of {figures['planted']} told; {delays}; {peers}")


if __name__ == "__main__":
    main()
