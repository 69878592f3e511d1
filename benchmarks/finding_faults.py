"""Precision and recall of a fleet's findings, by kind: python benchmarks/finding_faults.py [seeds].

Each seed is two simulated fleets: one with everything planted that has a finding, where it finds a place, and a healthy one, in which every
finding is false (but for free time, of which the draw itself may leave a twentieth).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from ullage.audit.trust import UNTRUSTED
from ullage.findings.fleet import not_allocated
from ullage.findings.fleet.slower_than_its_kind import MOST_OF_THE_SLOWEST
from ullage.findings.kind import FLEET_KINDS, LEAST_SHARE
from ullage.reports.fleet.fleet import FleetReport, beside, fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.simulate.faults import LIMITED
from ullage.simulate.fleet import Simulation, Specification
from ullage.simulate.fleet import fleet as simulated
from ullage.simulate.load import CLOCK, COMMUNICATION_SM, LIMITS, SM, TENSOR, expected_ofu
from ullage.simulate.schedule import ScheduledJob, slowed
from ullage.simulate.specification import device
from ullage.sums.windows import settle
from ullage.views.view import Finding

SEEDS, GPUS, HOURS, INTERVAL = 200, 96, 6.0, 30.0
FAULTS = ("straggler", "held_idle", "free", "regression", "latent_moe", "hybrid", "recomputation", "stuck", "stale", "zero_clock")
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
    """How often each kind was due, found where it was due, and found where it was not."""

    due: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    healthy: Counter[str] = field(default_factory=Counter)
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
    jobs, waited = _with_waits(simulation, jobs, LONG_WAIT if seed % 2 else SHORT_WAIT)
    report = beside(report_on(simulation, jobs), earlier, "the same fleet before it was changed")
    found = {_key(one) for one in report.findings} - _also_slower(simulation, before, due)
    score.add(due | failed | waited | _planted(simulation) | _free(simulation), found, seed)


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


def _with_slower_work(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Make the host of one job keep its GPUs waiting, and yield the finding that it is due beside the fleet as it was before."""
    for number in _untouched(simulation)[-1:]:
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
    chosen = iter(_untouched(simulation)[2:-1])
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


def _with_waits(simulation: Simulation, jobs: pa.Table, mean: float) -> tuple[pa.Table, Found]:
    """Return the job records, in which every job waited for a time of this mean (h) before it ran, and the finding that is then due."""
    draw = np.random.default_rng(simulation.specification.seed)
    waits = {name: round(draw.exponential(mean) * 3_600_000) for name in sorted(set(jobs["job"].to_pylist()))}
    starts = jobs["start"].cast(pa.int64()).to_pylist()
    queued = [start - waits[name] for start, name in zip(starts, jobs["job"].to_pylist(), strict=True)]
    field = jobs.schema.field("queue_start")
    jobs = jobs.set_column(jobs.schema.get_field_index("queue_start"), field, pa.array(queued, pa.int64()).cast(field.type))
    return jobs, {("queue_wait", EVERYWHERE)} if mean == LONG_WAIT else set()


def main() -> None:
    """Print precision and recall by kind, and how many findings healthy fleets have."""
    words = [word for word in sys.argv[1:] if word != "--list"]
    seeds, begun, score = int(words[0]) if words else SEEDS, time.perf_counter(), FindingScore()
    for seed in range(seeds):
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
