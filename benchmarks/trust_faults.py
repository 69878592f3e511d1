"""Precision and recall of trust's verdicts, by kind of fault: python benchmarks/trust_faults.py [seeds].

Each seed is a simulated fleet with everything planted that finds a place, and beside it hosts of healthy kinds that look odd (FP64, whole
percents, a constant load, clocks that walk through the step) and of faults that lie between two devices or two scrapes. The rows are those
that a reader hands on; that readers settle units is tested where they are.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet

from ullage.audit.trust import Verdict
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.simulate import faults
from ullage.simulate.fleet import Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.load import ALTERNATES, CLOCK, LIMITS, LOAD, HostReadings, idle_load, load, readings
from ullage.simulate.specification import SimulatedChip, boundaries, device
from ullage.sums.windows import settle
from ullage.tables import samples

SEEDS, GPUS, HOURS, INTERVAL = 200, 96, 6.0, 30.0
MODELS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB")
FIELDS = ("gr_active", "sm_active", "tensor_active", "gpu_util", "sm_clock", "power", "energy")
UNSEEN = (*faults.UNSEEN, "wrong model")  # faults that no gauge shows: they must not be taken for another one either

Array = npt.NDArray[np.float64]
Columns = dict[str, Any]


@dataclass
class Score:
    """How many series of each kind there were, and which verdicts they were given; which verdict each kind is due."""

    due: dict[str, str] = field(default_factory=dict)
    given: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, kind: str, due: str, given: str) -> None:
        """Count one series."""
        self.due[kind] = due
        self.given.setdefault(kind, Counter())[given] += 1

    def recall(self, kind: str) -> float:
        """Return the share of a kind's series that were given the verdict that they are due."""
        return self.given[kind][self.due[kind]] / self.given[kind].total()

    def precision(self, verdict: str) -> float:
        """Return the share of the series with a verdict that were due it; 1 where there is none."""
        every = sum(given[verdict] for given in self.given.values())
        return sum(given[verdict] for kind, given in self.given.items() if self.due[kind] == verdict) / every if every else 1.0


def add_fleet(score: Score, seed: int) -> None:
    """Judge one simulated fleet with its odd neighbours, and count."""
    simulation = simulated(Specification(gpus=GPUS, hours=HOURS, interval=INTERVAL, seed=seed, faults=("all", *faults.UNSEEN)))
    batches, due = list(simulation.batches()), {}
    for gpu, kind, verdict, rows in neighbours(seed):
        batches.append(rows)
        due[gpu] = (kind, verdict)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.parquet"
        parquet.write_table(settle(pa.Table.from_batches(batches)), file)
        found = fleet(ibis.duckdb.connect().read_parquet(file), None, FleetRequest()).doubtful_series
    key = simulation.answers
    due |= dict.fromkeys(key["faults"], ("as drawn", "ok"))
    for planted in key["planted"]:
        for gpu in planted["gpus"]:
            if key["faults"][gpu] == "ok" or planted["verdict"] != "ok":
                partly = key["faults"][gpu] == "faulty in part"
                due[gpu] = (planted["fault"], planted["verdict"] if partly else key["faults"][gpu])
    given = {verdict.gpu: verdict for verdict in found}
    for gpu, (kind, verdict) in due.items():
        score.add(kind, verdict, _named(given[gpu], verdict) if gpu in given else "ok")


def _named(given: Verdict, due: str) -> str:
    """Return the verdict that a series was given; where only a part was left out, the fault that the part is said to have.

    How long a planted fault lasts is drawn, and so is whether it takes the whole series out or its part.
    """
    if given.verdict != "faulty in part" or due == "faulty in part" or not given.left_out:
        return given.verdict
    return given.evidence.partition(":")[0]


def neighbours(seed: int) -> Iterator[tuple[str, str, str, pa.RecordBatch]]:
    """Yield (gpu, kind, due verdict, rows) of hosts with one GPU each: the healthy that look odd, and faults between devices or scrapes."""
    for number, (kind, (verdict, course, disturbed)) in enumerate(_KINDS.items()):
        rng = np.random.default_rng((seed, number))
        model = MODELS[int(rng.integers(len(MODELS)))]
        specification = Specification(gpus=1, hours=HOURS, interval=INTERVAL, seed=seed + 1000 * number)
        times = boundaries(specification, 0, specification.interval_ms)
        read = _readings(course(rng, len(times) - 1), times, device(model), rng)
        name = f"GPU-{kind}"
        columns: Columns = {"time": times[1:], "model": [model] * (len(times) - 1)} | {f: read.values[f][0] for f in FIELDS}
        columns = disturbed(columns, rng)
        count = len(columns["time"])
        who = {"gpu": [name] * count, "host": [f"odd-{number}"] * count, "index": [0] * count, "job": [f"job-{kind}"] * count}
        yield name, kind, verdict, samples(columns | who)


def _readings(course: Array, times: npt.NDArray[np.int64], chip: SimulatedChip, rng: np.random.Generator) -> HostReadings:
    return readings(course[None], times, int(times[0]), chip, rng.standard_normal((1, 4, len(times))), INTERVAL, FIELDS)


def _constant(**more: Any) -> Callable[[np.random.Generator, int], Array]:
    """Return a course of one load; a callable value is drawn for each seed."""

    def course(rng: np.random.Generator, windows: int) -> Array:
        drawn = {name: value(rng) if callable(value) else value for name, value in more.items()}
        return np.repeat(load(**drawn)[:, None], windows, axis=1)

    return course


def _train(rng: np.random.Generator, windows: int) -> Array:
    course = _constant(step=rng.uniform(0.5, 20), compute=rng.uniform(0.5, 0.8), communication=0.15, tensor=rng.uniform(0.3, 0.8))
    return course(rng, windows)


def _inference(rng: np.random.Generator, windows: int) -> Array:
    """Requests come and go: bursts of some minutes."""
    busy = np.repeat(rng.random(windows // 4 + 1) < 0.6, 4)[:windows]
    work = load(step=0.05, compute=rng.uniform(0.2, 0.6), communication=0.0, tensor=rng.uniform(0.05, 0.3), sm=0.5)
    return np.where(busy, work[:, None], idle_load(memory=0.5)[:, None])


def _evaluation(rng: np.random.Generator, windows: int) -> Array:
    """Half an hour or so of training at a low clock, then some minutes of light work at boost."""
    every = int(rng.integers(30, 90))
    evaluates = np.arange(windows) % every < int(rng.integers(4, 12))
    light = load(step=1.0, compute=0.3, communication=0.0, tensor=0.1, sm=0.3, clock=1.3)
    return np.where(evaluates, light[:, None], _train(rng, windows))


def _capped(rng: np.random.Generator, windows: int) -> Array:
    course = _train(rng, windows)
    course[CLOCK], course[LIMITS] = rng.uniform(0.25, 0.6), 0x80
    return course


def _idle(_: np.random.Generator, windows: int) -> Array:
    return np.repeat(idle_load()[:, None], windows, axis=1)


def _as_read(columns: Columns, _: np.random.Generator) -> Columns:
    return columns


def _rounded(step: float) -> Callable[[Columns, np.random.Generator], Columns]:
    def rounded(columns: Columns, _: np.random.Generator) -> Columns:
        return columns | {name: np.round(columns[name] / step) * step for name in ("gr_active", "sm_active", "tensor_active")}

    return rounded


def _resting_clock(columns: Columns, _: np.random.Generator) -> Columns:
    return columns | {"sm_clock": np.zeros(len(columns["time"]))}  # as some AMD GPUs read when they sleep


def _again(columns: Columns, times: int, delay: int) -> Columns:
    """Return every row `times` times, each `delay` ms after the one before."""
    shifts = np.arange(times) * delay
    return {
        name: (np.repeat(column, times) + np.tile(shifts, len(column)) if name == "time" else np.repeat(column, times))
        for name, column in columns.items()
    }


def _twice(columns: Columns, _: np.random.Generator) -> Columns:
    return _again(columns, 2, 15_000)


def _four_times(columns: Columns, _: np.random.Generator) -> Columns:
    return _again(columns, 4, 7_500)


def _two_under_one_name(columns: Columns, rng: np.random.Generator) -> Columns:
    both = _again(columns, 2, 0)
    other = np.tile([False, True], len(columns["time"])) & (rng.random(2 * len(columns["time"])) < 0.2)
    return both | {"tensor_active": np.where(other, both["tensor_active"] * 0.5, both["tensor_active"])}


def _two_models(columns: Columns, _: np.random.Generator) -> Columns:
    count = len(columns["time"])
    return columns | {"model": [MODELS[0]] * (count // 2) + [MODELS[1]] * (count - count // 2)}


def _memory_clock(columns: Columns, _: np.random.Generator) -> Columns:
    return columns | {"sm_clock": np.full(len(columns["time"]), 2619e6)}


def _other_model(columns: Columns, _: np.random.Generator) -> Columns:
    return columns | {"model": ["NVIDIA H200"] * len(columns["time"])}


_WALKS = {"communication": 0.08, "compute": 0.42, "tensor": 0.6, "alternates": True}
_KINDS: dict[str, tuple[str, Callable[[np.random.Generator, int], Array], Callable[[Columns, np.random.Generator], Columns]]] = {
    "training": ("ok", _train, _as_read),
    "inference": ("ok", _inference, _as_read),
    "idle": ("ok", _idle, _as_read),
    "idle, clock 0": ("ok", _idle, _resting_clock),
    "FP64": ("ok", _constant(step=2.0, compute=0.9, communication=0.05, tensor=0.0), _as_read),
    "whole percents": ("ok", _train, _rounded(0.01)),
    "four digits": ("ok", _train, _rounded(0.0001)),
    "steady load": ("ok", _constant(step=0.05, compute=0.9, communication=0.0, tensor=0.6), _as_read),
    "100 % busy": ("ok", _constant(step=1.0, compute=1.0, communication=0.0, tensor=0.5, sm=1.0), _rounded(0.01)),
    "periodic evaluation": ("ok", _evaluation, _as_read),
    "power brake": ("ok", _capped, _as_read),
    **{
        f"walking beat, {step} s": ("ok", _constant(step=step, phase=lambda rng: rng.random(), **_WALKS), _as_read)
        for step in (31.8, 30.3, 7.31, 1.03)
    },
    "scraped twice": ("duplicated", _train, _twice),
    "scraped four times": ("duplicated", _train, _four_times),
    "two devices, one name": ("impossible", _train, _two_under_one_name),
    "two models, one name": ("impossible", _train, _two_models),
    "memory clock": ("impossible", _train, _memory_clock),
    "wrong model": ("ok", _train, _other_model),
}
HEALTHY = ("as drawn", "beating", *(kind for kind, (due, *_) in _KINDS.items() if due == "ok" and kind not in UNSEEN))

assert LOAD[ALTERNATES] == "alternates"


def main() -> None:
    """Print recall by kind, precision by verdict, and who was accused without reason."""
    seeds, begun, score = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, time.perf_counter(), Score()
    for seed in range(seeds):
        add_fleet(score, seed)
    print(f"{seeds} seeds, {sum(given.total() for given in score.given.values()):,} series, {time.perf_counter() - begun:.0f} s\n")
    print(f"{'planted':24} {'due':16} {'series':>6} {'right':>6} {'recall':>7}  other verdicts")
    for kind in (k for k, due in score.due.items() if due != "ok"):
        given, due = score.given[kind], score.due[kind]
        others = ", ".join(f"{word} {count}" for word, count in given.items() if word != due)
        print(f"{kind:24} {due:16} {given.total():6} {given[due]:6} {score.recall(kind):7.1%}  {others}")
    print(f"\n{'verdict':24} precision")
    for verdict in dict.fromkeys(due for due in score.due.values() if due != "ok"):
        print(f"{verdict:24} {score.precision(verdict):8.1%}")
    print(f"\n{'not at fault':24} {'series':>6} {'accused':>7}")
    for kind in (k for k, due in score.due.items() if due == "ok"):
        given = score.given[kind]
        mark = "  (a fault that gauges don't show)" if kind in UNSEEN else ""
        print(f"{kind:24} {given.total():6} {given.total() - given['ok']:7}  {', '.join(w for w in given if w != 'ok')}{mark}")


if __name__ == "__main__":
    main()
