"""Precision and recall of a fleet's findings, by kind: python benchmarks/finding_faults.py [seeds [the first one]] [--near] [--list].

Each seed is two simulated fleets: one with everything planted that has a finding, where it finds a place, and a healthy one, in which every
finding is false (but for free time, of which the draw itself may leave a twentieth). With `--near` faults are planted a little beyond and a
little before the threshold of their kind instead, each in a job of its own.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from ullage.audit.trust import UNTRUSTED
from ullage.findings.fleet import held_idle, low_sm_fill, not_allocated, reported_mfu, throttled
from ullage.findings.fleet.slower_than_its_kind import MOST_OF_THE_SLOWEST
from ullage.findings.kind import FLEET_KINDS, LEAST_SHARE
from ullage.reports.fleet.fleet import FleetReport, beside, fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.roofs import NEAR as BINDS
from ullage.reports.stragglers.slow_devices import BUSIER, LASTING
from ullage.simulate.faults import LIMITED
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.load import CLOCK, COMMUNICATION, COMMUNICATION_SM, COMPUTE, DRAM, LIMITS, POWER_CAP, SM, TENSOR, expected_ofu
from ullage.simulate.schedule import ScheduledJob, slowed, straggling
from ullage.simulate.specification import SimulatedChip, device
from ullage.sums.windows import settle
from ullage.views.view import Finding

SEEDS, GPUS, HOURS, INTERVAL = 200, 96, 6.0, 30.0
FAULTS: tuple[str, ...] = (
    "straggler",
    "held_idle",
    "free",
    "regression",
    "latent_moe",
    "hybrid",
    "recomputation",
    "stuck",
    "stale",
    "zero_clock",
)
FAULTS += ("memory_bound", "failing_memory", "failing_link", "application_xid")
KIND_OF = {kind: kind for kind in ("memory_bound", "straggler", "held_idle")} | {"regression": "slower_than_its_kind"}
KIND_OF |= dict.fromkeys(("latent_moe", "hybrid", "recomputation"), "reported_mfu")
SLOWED = 1.6  # times as long takes each step of a job that is slower than it was before
EMPTY_SMS = 0.35  # SM activity of a job that is planted with empty SMs, while it computes
LONG_WAIT, SHORT_WAIT = 1.0, 0.05  # h: the mean time that jobs wait in the queue, in every second fleet, and in the others
EVERYWHERE = "the fleet"

Found = set[tuple[str, str]]  # a kind, and where


@dataclass
class FindingScore:
    """How often each kind was due, found where it was due, and found where it was not; `before` a threshold it was planted so often."""

    due: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    healthy: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    fleets: int = 0
    wrong: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, due: Found, found: Found, seed: int = 0) -> None:
        """Count the findings of one fleet with planted faults."""
        self.due.update(kind for kind, _ in due)
        self.right.update(kind for kind, _ in due & found)
        self.false.update(kind for kind, _ in found - due)
        self.wrong += [(seed, "false", f"{kind} {where}") for kind, where in found - due]
        self.wrong += [(seed, "missed", f"{kind} {where}") for kind, where in due - found]

    def add_healthy(self, due: Found, found: Found) -> None:
        """Count the findings of one healthy fleet."""
        self.fleets += 1
        self.healthy.update(kind for kind, _ in found - due)

    def recall(self, kind: str) -> float:
        """Return the share of what was due that was found; 1 where nothing was."""
        return self.right[kind] / self.due[kind] if self.due[kind] else 1.0

    def precision(self, kind: str) -> float:
        """Return the share of findings that were due; 1 where there is none."""
        every = self.right[kind] + self.false[kind]
        return self.right[kind] / every if every else 1.0


def add_fleets(score: FindingScore, seed: int) -> None:
    """Look at one simulated fleet with faults and at a healthy one, and count."""
    healthy = simulated(Specification(gpus=GPUS, hours=HOURS, interval=INTERVAL, seed=seed))
    jobs, _ = _with_waits(healthy, healthy.jobs(), SHORT_WAIT)
    score.add_healthy(_free(healthy), {_key(one) for one in report_on(healthy, jobs).findings})
    simulation = simulated(Specification(gpus=GPUS, hours=HOURS, interval=INTERVAL, seed=seed, faults=FAULTS))
    earlier, before = report_on(simulation, simulation.jobs()), [*simulation.records]
    due = set(_with_empty_sms(simulation)) | set(_with_lowered_clocks(simulation)) | set(_with_slower_work(simulation))
    jobs, failed = _with_a_failure(simulation)
    jobs, fell = _with_lost_runs(simulation, jobs)
    jobs, waited = _with_waits(simulation, jobs, LONG_WAIT if seed % 2 else SHORT_WAIT)
    report = beside(report_on(simulation, jobs), earlier, "the same fleet before it was changed")
    found = {_key(one) for one in report.findings} - _also_slower(simulation, before, due)
    score.add(due | failed | fell | waited | _planted(simulation) | _free(simulation), found, seed)


def report_on(simulation: Simulation, jobs: pa.Table) -> FleetReport:
    """Return the report on a simulated fleet."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.parquet"
        parquet.write_table(settle(pa.Table.from_batches([*simulation.batches()])), file)
        return fleet(ibis.duckdb.connect().read_parquet(file), jobs, FleetRequest())


def _key(finding: Finding) -> tuple[str, str]:
    where = finding.where
    if finding.kind == "sick_gpu":
        return finding.kind, str(where.gpu)
    if finding.kind == "straggler":
        return finding.kind, f"{where.job} {where.gpu}"
    if finding.kind == "queue_wait":
        return finding.kind, EVERYWHERE
    if finding.kind == "goodput_fell":
        return finding.kind, str(where.job_name)
    return finding.kind, str(where.job or where.host if finding.kind != "not_allocated" else where.cluster)


def _planted(simulation: Simulation) -> Found:
    """Return the findings that planted faults are due."""
    key, found = simulation.answers, set()
    for planted in key["planted"]:
        kind = KIND_OF.get(planted["fault"])
        if planted["fault"] in ("failing_memory", "failing_link"):  # an application's Xid is no fault of the GPU
            found.add(("sick_gpu", planted["gpus"][0]))
        if kind == "straggler":
            found.add((kind, f"{planted['job']} {planted['gpus'][0]}"))
        elif kind:
            found.add((kind, planted["job"]))
        for gpu, host in zip(planted["gpus"], planted["hosts"], strict=False):
            if key["faults"][gpu] in UNTRUSTED:
                found.add(("faulty_series", host))
    return found


def _free(simulation: Simulation) -> Found:
    ledger = simulation.answers["ledger"]
    return {("not_allocated", "simulated")} if ledger["free"] >= not_allocated.LEAST_SHARE * ledger["total"] else set()


def _untouched(simulation: Simulation) -> list[int]:
    """Return the jobs on which nothing is planted and that run for an hour of the window or more, by number."""
    start, end = simulation.specification.window
    marked = {gpu for planted in simulation.plan.planted for gpu in planted.gpus}
    names = {planted.job for planted in simulation.plan.planted}
    return [
        number
        for number, job in enumerate(simulation.records)
        if min(end, job.end) - max(start, job.start) >= 3_600_000
        and job.name not in names
        and not job.rider
        and not marked & set(map(int, job.gpus))
    ]


def _with_empty_sms(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Give one job small kernels, that fill a third of the SMs, and yield the finding that it is due."""
    for number in _untouched(simulation)[:1]:
        job = simulation.records[number]
        loads = job.loads.copy()
        loads[:, SM], loads[:, TENSOR] = EMPTY_SMS, np.minimum(loads[:, TENSOR], 0.6 * EMPTY_SMS)
        loads[:, COMMUNICATION_SM] = np.minimum(loads[:, COMMUNICATION_SM], EMPTY_SMS)
        simulation.records[number] = replace(job, loads=loads, mfu=None)
        yield "low_sm_fill", job.name


def _alone_of_its_kind(simulation: Simulation) -> list[int]:
    """Return one job of which no other fault is planted and that has no like: what it was before is all that it can be compared with."""
    kinds = Counter((job.user, job.family, len(job.gpus)) for job in simulation.records)
    alone = [n for n in _untouched(simulation)[2:] if kinds[(job := simulation.records[n]).user, job.family, len(job.gpus)] == 1]
    return alone[-1:]


def _with_slower_work(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Make the host of one job keep its GPUs waiting, and yield the finding that it is due beside the fleet as it was before."""
    for number in _alone_of_its_kind(simulation):
        job = simulation.records[number]
        simulation.records[number] = replace(job, loads=slowed(job.loads, SLOWED), mfu=None)
        yield "slower_than_before", job.name


def _also_slower(simulation: Simulation, before: list[ScheduledJob], due: Found) -> Found:
    """Return the findings that are not due as such, and yet true: of jobs that another change made slower than before."""
    found = set()
    for old, new in zip(before, simulation.records, strict=True):
        chip = device(simulation.models[int(new.gpus[0]) // simulation.specification.gpus_per_host])
        if expected_ofu(new.loads, chip).mean() <= MOST_OF_THE_SLOWEST * 1.02 * expected_ofu(old.loads, chip).mean():
            found.add(("slower_than_before", new.name))
    return found - due


def _with_lowered_clocks(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Lower the clocks of a job for each cause (a power cap: of half of its GPUs), and yield the findings that it is due.

    Jobs that would lose less than a finding is worth are left alone.
    """
    chosen = iter([number for number in _untouched(simulation)[2:] if number not in _alone_of_its_kind(simulation)])
    for cause, (factor, reasons) in LIMITED.items():
        for number in chosen:
            job = simulation.records[number]
            some = len(job.gpus) // 2 if cause == "power_capped" else len(job.gpus)
            if (1 - factor) * _ofu_hours(simulation, number) * some / len(job.gpus) >= 1.2 * LEAST_SHARE * GPUS * HOURS:
                loads = job.loads.copy()
                loads[:some, CLOCK] *= factor
                loads[:some, LIMITS] = reasons
                simulation.records[number] = replace(job, loads=loads, mfu=None)
                yield "throttled", job.name
                break
    yield from _with_a_low_cap(simulation, chosen)


def _with_a_low_cap(simulation: Simulation, chosen: Iterator[int]) -> Iterator[tuple[str, str]]:
    """Cap all GPUs of a job, so that none of them has another to differ from, and yield the finding that it is due.

    What a simulated GPU draws follows its work: a job that works so hard that it draws nine tenths of its limit all the same is left alone.
    """
    factor, reasons = LIMITED["power_capped"]
    for number in chosen:
        job = simulation.records[number]
        if (1 - factor) * _ofu_hours(simulation, number) >= 1.2 * LEAST_SHARE * GPUS * HOURS:
            loads = job.loads.copy()
            loads[:, CLOCK] *= factor
            loads[:, LIMITS] = reasons
            simulation.records[number] = replace(job, loads=loads, mfu=None)
            yield "power_capped", job.name
            break


def _ofu_hours(simulation: Simulation, number: int) -> float:
    """Return the OFU-hours that a job comes to within the window."""
    job, (start, end) = simulation.records[number], simulation.specification.window
    chip = device(simulation.models[int(job.gpus[0]) // simulation.specification.gpus_per_host])
    hours = (min(end, job.end) - max(start, job.start + job.startup)) / 3_600_000
    return hours * float(expected_ofu(job.loads, chip).sum())


def _with_a_failure(simulation: Simulation) -> tuple[pa.Table, Found]:
    """Return the job records, in which one job failed, and the finding that it is due."""
    jobs, chosen = simulation.jobs(), _untouched(simulation)[1:2]
    names = [simulation.records[number].name for number in chosen]
    states = ["FAILED" if name in names else "COMPLETED" for name in jobs["job"].to_pylist()]
    place = jobs.schema.get_field_index("state")
    return jobs.set_column(place, jobs.schema.field("state"), pa.array(states)), {("lost_hours", name) for name in names}


def _with_lost_runs(simulation: Simulation, jobs: pa.Table) -> tuple[pa.Table, Found]:
    """Return the job records with a kind of job whose runs completed before the window and mostly fail in it, and the finding that is due.

    Its GPUs tell nothing: records alone say how runs end. So has a kind beside it that fails as often as it did, of which nothing is due.
    """
    start, hour = simulation.specification.window[0], 3_600_000
    states = {  # before the window, the last first, and in it, an hour each
        "falls": (["COMPLETED"] * 12, ["FAILED", "NODE_FAIL", "COMPLETED", "FAILED", "FAILED"]),
        "fails as ever": (["COMPLETED", "FAILED"] * 6, ["FAILED", "COMPLETED"] * 2),
    }
    ended = [
        (name, state, start + sign * number * hour)
        for name, sides in states.items()
        for sign, those in zip((-1, 1), sides, strict=True)
        for number, state in enumerate(those, 1)
    ]
    rows = [
        {"job": f"{name} {at}", "name": name, "user": "emmy", "gpus": 8, "start": end - hour, "end": end, "state": state}
        for at, (name, state, end) in enumerate(ended)
    ]
    return pa.concat_tables([jobs, pa.Table.from_pylist(rows, jobs.schema)]), {("goodput_fell", "falls")}


def _with_waits(simulation: Simulation, jobs: pa.Table, mean: float) -> tuple[pa.Table, Found]:
    """Return the job records, in which every job waited for a time of this mean (h) before it ran, and the finding that is then due."""
    draw = np.random.default_rng(simulation.specification.seed)
    waits = {name: round(draw.exponential(mean) * 3_600_000) for name in sorted(set(jobs["job"].to_pylist()))}
    starts = jobs["start"].cast(pa.int64()).to_pylist()
    queued = [start - waits[name] for start, name in zip(starts, jobs["job"].to_pylist(), strict=True)]
    field = jobs.schema.field("queue_start")
    jobs = jobs.set_column(jobs.schema.get_field_index("queue_start"), field, pa.array(queued, pa.int64()).cast(field.type))
    return jobs, {("queue_wait", EVERYWHERE)} if mean == LONG_WAIT else set()


# --- near the thresholds ---

BESIDE = 0.06  # how far on either side of its threshold something is planted, relatively
# what is planted costs of a job's OFU-hours, at least: half of its GPUs run slower, or a fifth is reported too much or too little
OF_OFU_HOURS = {"throttled": (1 - throttled.CAPPED) / 2, "reported_mfu": 1 - reported_mfu.LEAST_RATIO}
NEAR_HOURS, SEVERAL_GPUS = 1.5, 4  # of a job, at least: what is found must be worth a line, and half of its GPUs are capped


@dataclass(frozen=True)
class NearThreshold:
    """What is planted near a threshold: `found` a little beyond it, `not_found` a little before it."""

    kind: str
    found: Callable[[ScheduledJob, SimulatedChip], ScheduledJob]
    not_found: Callable[[ScheduledJob, SimulatedChip], ScheduledJob]


def _on_both_sides(
    kind: str, at: float, change: Callable[[ScheduledJob, SimulatedChip, float], ScheduledJob], *, below: bool
) -> NearThreshold:
    """Return what is planted at a threshold, which is passed `below` it or above it."""
    less, more = (lambda job, chip, level=at * factor: change(job, chip, level) for factor in (1 - BESIDE, 1 + BESIDE))
    return NearThreshold(kind, less, more) if below else NearThreshold(kind, more, less)


def _with(job: ScheduledJob, columns: Mapping[int, float], some: slice = slice(None)) -> ScheduledJob:
    loads = job.loads.copy()
    for column, value in columns.items():
        loads[some, column] = value
    return replace(job, loads=loads, mfu=None)


def _sm_fill(job: ScheduledJob, _: SimulatedChip, fill: float) -> ScheduledJob:
    tensor = min(0.6 * fill, float(job.loads[0, TENSOR]))
    return _with(job, {SM: fill, COMMUNICATION_SM: fill, TENSOR: tensor})


def _idle_share(job: ScheduledJob, _: SimulatedChip, share: float) -> ScheduledJob:
    return replace(job, startup=round(share * (job.end - job.start)), mfu=None)


def _memory(job: ScheduledJob, _: SimulatedChip, height: float) -> ScheduledJob:
    # memory is read while the job computes: its share of the time × its level is the height under the memory's roof
    return _with(job, {COMPUTE: 0.9, COMMUNICATION: 0.02, DRAM: height / 0.9, TENSOR: 0.1, SM: 0.8})


def _reported(job: ScheduledJob, chip: SimulatedChip, factor: float) -> ScheduledJob:
    running = 1 - job.startup / max(1, job.end - job.start)
    return replace(job, mfu=float(expected_ofu(job.loads, chip).mean()) * running * factor)


def _slower(job: ScheduledJob, _: SimulatedChip, left: float) -> ScheduledJob:
    return replace(job, loads=slowed(job.loads, 1 / left), mfu=None)


def _capped(job: ScheduledJob, _: SimulatedChip, clock: float) -> ScheduledJob:
    some = slice(0, len(job.gpus) // 2)
    loads = job.loads.copy()
    loads[:, CLOCK], loads[:, LIMITS] = loads[-1, CLOCK], POWER_CAP
    loads[some, CLOCK] *= clock
    return replace(job, loads=loads, mfu=None)


def _straggling(job: ScheduledJob, _: SimulatedChip, busier: float) -> ScheduledJob:
    loads = job.loads.copy()
    loads[:, COMPUTE], loads[:, SM], loads[:, COMMUNICATION] = loads[:, COMPUTE].mean(), loads[:, SM].mean(), 0.0
    return replace(job, loads=straggling(loads, 0, busier), mfu=None)


NEAR = (
    _on_both_sides("low_sm_fill", low_sm_fill.MOST_FILL, _sm_fill, below=True),
    _on_both_sides("held_idle", held_idle.LEAST_SHARE, _idle_share, below=False),
    _on_both_sides("memory_bound", BINDS, _memory, below=False),
    _on_both_sides("reported_mfu", reported_mfu.MOST_RATIO, _reported, below=False),
    _on_both_sides("reported_mfu", reported_mfu.LEAST_RATIO, _reported, below=True),
    _on_both_sides("slower_than_before", MOST_OF_THE_SLOWEST, _slower, below=True),
    _on_both_sides("throttled", throttled.CAPPED, _capped, below=True),
    _on_both_sides("straggler", math.exp(LASTING * BUSIER), _straggling, below=False),
)


def _has_room(kind: str, number: int, simulation: Simulation) -> bool:
    """Return whether a job is so long and large that what is planted there is worth a line; a start-up must lie in the window."""
    job, (start, end) = simulation.records[number], simulation.specification.window
    hours = (min(end, job.end) - max(start, job.start)) / 3_600_000
    if kind == "held_idle":
        return job.start >= start and hours * held_idle.LEAST_SHARE > 1.1 * held_idle.LEAST_HOURS
    worth = _ofu_hours(simulation, number) * OF_OFU_HOURS.get(kind, 1.0)
    return hours >= NEAR_HOURS and len(job.gpus) >= SEVERAL_GPUS and worth >= 1.2 * LEAST_SHARE * GPUS * HOURS


def add_near_fleet(score: FindingScore, seed: int) -> None:
    """Plant each kind a little beyond and a little before its threshold, each in a job of its own, and count."""
    simulation = simulated(Specification(gpus=GPUS, hours=HOURS, interval=INTERVAL, seed=seed))
    earlier, end = report_on(simulation, simulation.jobs()), simulation.specification.window[1]
    sides = [(near, beyond) for near in NEAR for beyond in (True, False)]
    waiting = [sides[n] for n in np.random.default_rng(seed).permutation(len(sides))]
    due, watched = set(), set()
    for number in _untouched(simulation):
        job = replace(simulation.records[number], end=min(simulation.records[number].end, end))
        near, beyond = next(((near, beyond) for near, beyond in waiting if _has_room(near.kind, number, simulation)), (None, False))
        if near is None:
            continue
        waiting.remove((near, beyond))
        chip = device(simulation.models[int(job.gpus[0]) // simulation.specification.gpus_per_host])
        simulation.records[number] = (near.found if beyond else near.not_found)(job, chip)
        watched.add((near.kind, job.name))
        if beyond:
            due.add((near.kind, job.name))
    report = beside(report_on(simulation, simulation.jobs()), earlier, "the same fleet before it was changed")
    found = {(one.kind, str(one.where.job)) for one in report.findings}
    score.before.update(kind for kind, _ in watched - due)
    score.add(due, found & watched, seed)


def main() -> None:
    """Print precision and recall by kind, and how many findings healthy fleets have."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    seeds, begun, score = int(words[0]) if words else SEEDS, time.perf_counter(), FindingScore()
    first = int(words[1]) if len(words) > 1 else 0
    if "--near" in sys.argv:
        for seed in range(first, first + seeds):
            add_near_fleet(score, seed)
        print(f"{seeds} seeds, planted {BESIDE:.0%} beyond and before each threshold, {time.perf_counter() - begun:.0f} s\n")
        print(f"{'kind':22} {'beyond':>7} {'found':>6} {'before':>7} {'found':>6}")
        for kind in sorted({near.kind for near in NEAR}):
            print(f"{kind:22} {score.due[kind]:7} {score.right[kind]:6} {score.before[kind]:7} {score.false[kind]:6}")
        if "--list" in sys.argv:
            print("\n".join(f"seed {seed}: {what} {where}" for seed, what, where in score.wrong))
        return
    for seed in range(first, first + seeds):
        add_fleets(score, seed)
    print(f"{seeds} seeds, {2 * seeds} fleets of {GPUS} GPUs and {HOURS:g} hours, {time.perf_counter() - begun:.0f} s\n")
    print(f"{'kind':22} {'due':>5} {'found':>6} {'recall':>7} {'false':>6} {'precision':>10} {'in healthy fleets':>18}")
    for kind in FLEET_KINDS:
        print(
            f"{kind:22} {score.due[kind]:5} {score.right[kind]:6} {score.recall(kind):7.1%} {score.false[kind]:6} "
            f"{score.precision(kind):10.1%} {score.healthy[kind]:18}"
        )
    if "--list" in sys.argv:
        print("\n".join(f"seed {seed}: {what} {where}" for seed, what, where in score.wrong))


if __name__ == "__main__":
    main()
