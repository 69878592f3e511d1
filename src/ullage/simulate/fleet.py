"""A simulated fleet with known answers. Begin here.

    simulation = fleet(Specification(gpus=64, hours=24, faults=("stale", "shared")))
    for batch in simulation.batches(): ...       # tables.SAMPLES, as a perfect reader gives them
    simulation.jobs()                            # tables.JOBS
    simulation.answers                           # what every report must find

Hosts are generated one by one, each from its own random streams: memory stays bounded, and no reading depends on how many
hosts are generated together or in which order. `write` puts a fleet into files, `serve` behind HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.simulate import answers, changes, faults
from ullage.simulate.changes import Script, SimulatedDevice
from ullage.simulate.exporter import Codes, Emission, counted_sms, emission, scale
from ullage.simulate.load import (
    ALTERNATES,
    CLOCK,
    LIMITS,
    Array,
    HostReadings,
    expected_ofu,
    idle_load,
    readings,
)
from ullage.simulate.outcomes import goodput_key, outcomes
from ullage.simulate.schedule import FAMILIES, Draft, ScheduledJob, draw_jobs
from ullage.simulate.specification import CYCLES, NEEDED, NOT_READ, Specification, boundaries, device, host_models, host_name, stream, uuid
from ullage.tables import JOBS, SAMPLES, samples

ROWS = 1 << 18  # rows of a batch, at least, where there are so many

Hold = tuple[int, int]  # a job's number, and which of its GPUs this is


@dataclass(eq=False)
class Simulation:
    """A fleet that was drawn: its jobs and what is planted; readings are generated when asked for, the same every time."""

    specification: Specification
    models: list[str]
    records: list[ScheduledJob]
    plan: faults.FaultPlan
    holds: list[list[Hold]] = field(repr=False)
    _tallies: dict[int, answers.HostTally] = field(default_factory=dict, repr=False)

    @property
    def skipped(self) -> list[str]:
        """The faults and changes that found no place in so small or so idle a fleet."""
        return self.plan.skipped

    @property
    def answers(self) -> dict[str, Any]:
        """The answer key (see `answers.key`), ready for JSON. It needs every host to have been generated once."""
        for host in range(self.specification.hosts):
            if host not in self._tallies:
                self.host(host)
        key = answers.key(self.specification, self.records, self.plan, [self._tallies[h] for h in range(self.specification.hosts)])
        if not self.specification.outcomes:
            return key
        ended = outcomes(self.specification, self.records)
        return key | {"goodput": goodput_key(key, ended, self.records, self.specification.start)}

    def interval_ms(self, host: int) -> int:
        """Return the scrape interval of a host."""
        slow = any(self.specification.gpus_of(host).start in planted.gpus for planted in self.plan.of("slow"))
        return self.specification.interval_ms * (2 if slow else 1)

    def host(self, host: int) -> Emission:
        """Return everything that one host gives out in the whole window."""
        specification, chip = self.specification, device(self.models[host])
        times = boundaries(specification, host, self.interval_ms(host))
        rows = self.rows(host)
        course, owners = self._course(host, rows, times)
        draws, bases = _draws(specification, rows, len(times))
        wanted = set(NEEDED) | set(specification.fields)
        truth = readings(course, times, specification.start, chip, draws, self.interval_ms(host) / 1000, wanted)
        given = emission(self.plan, host, chip, times, rows, owners, truth, bases)
        if host not in self._tallies:
            units = counted_sms(specification, chip, rows)
            self._tallies[host] = answers.tally(given, self.interval_ms(host), units, faults.dated(self.plan))
        return given

    def rows(self, host: int) -> list[SimulatedDevice]:
        """Return the devices of a host: its GPUs, then the instances that some of them are cut into for a while."""
        gpus = [SimulatedDevice(gpu) for gpu in self.specification.gpus_of(host)]
        return gpus + self.plan.scripts.get(host, Script(host)).slices

    def batches(
        self, *, wire: bool = False, hosts: Iterable[int] | None = None, progress: Callable[[str], None] = lambda _: None
    ) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `tables.SAMPLES`, host by host, each GPU's rows together, sorted by time unless reordered.

        They are what a perfect reader of the exporters gives: missing is null, units are settled, flags say why. With
        `wire` they are what the exporters wrote, in a schema of `wire_schema`: sentinels, impossible numbers, wrong units, no flags.
        """
        waiting: list[dict[str, Any]] = []
        rows = 0
        chosen = range(self.specification.hosts) if hosts is None else list(hosts)
        for number, host in enumerate(chosen, 1):
            waiting.append(_rows(self, self.host(host), wire))
            rows += len(waiting[-1]["time"])
            if rows >= ROWS or number == len(chosen):
                yield _batch(self, waiting, wire)
                waiting, rows = [], 0
            progress(f"{number:,} of {len(chosen):,} hosts")

    def jobs(self) -> pa.Table:
        """Return the job records (`tables.JOBS`), a row per job and device; a job that runs past the window has no end.

        No scheduler's record names an instance: who holds one is known by label alone.
        """
        finish = self.specification.window[1]
        jobs = [(job, int(gpu)) for job in self.records if job.instance is None for gpu in job.gpus]
        per_host = self.specification.gpus_per_host
        ended = outcomes(self.specification, self.records) if self.specification.outcomes else {}
        columns = {
            "job": [job.name for job, _ in jobs],
            "name": [job.family for job, _ in jobs],
            "user": [job.user for job, _ in jobs],
            "cluster": [self.specification.cluster] * len(jobs),
            "host": [host_name(gpu // per_host) for _, gpu in jobs],
            "index": [gpu % per_host for _, gpu in jobs],
            "gpu": [uuid(self.specification, gpu) for _, gpu in jobs],
            "queue_start": [ended[job.name].queue_start if ended else None for job, _ in jobs],
            "start": [job.start for job, _ in jobs],
            "end": [None if job.end > finish else job.end for job, _ in jobs],
            "state": [ended[job.name].state if ended else None for job, _ in jobs],
            "gpus": [len(job.gpus) for job, _ in jobs],
            "mfu": [job.mfu for job, _ in jobs],
            "flops_per_gpu": [None] * len(jobs),
        }
        return pa.table(
            {f.name: pa.array(columns[f.name], pa.int64() if pa.types.is_timestamp(f.type) else f.type).cast(f.type) for f in JOBS},
            schema=JOBS,
        )

    def _course(self, host: int, rows: list[SimulatedDevice], times: npt.NDArray[np.int64]) -> tuple[Array, tuple[Codes, Codes]]:
        """Return the course of loads of a host's devices, and the numbers of the jobs that hold them (second: a rider)."""
        course = np.repeat(np.tile(idle_load(), (len(rows), 1))[:, :, None], len(times) - 1, axis=2)
        first = np.full((len(rows), len(times) - 1), -1, np.int64)
        second = first.copy()
        follows = self.plan.scripts.get(host, Script(host)).follows
        for row, device_row in enumerate(rows):
            gpu = device_row.gpu
            for number, which in self.holds[gpu]:
                job = self.records[number]
                if (job.instance or 0) != device_row.instance:
                    continue
                begin, end = np.searchsorted(times[1:], (job.start, job.end), side="right")
                (second if job.rider else first)[row, begin:end] = number
                if job.rider:
                    continue
                course[row, :, begin:end] = idle_load(memory=0.1)[:, None]
                begin = int(np.searchsorted(times[:-1], job.start + job.startup))
                course[row, :, begin:end] = job.loads[which][:, None]
            if gpu in follows:
                course[row, ALTERNATES, np.searchsorted(times[1:], follows[gpu], side="right") :] = 1
            self._throttle(gpu, course[row], times)
        return course, (first, second)

    def _throttle(self, gpu: int, course: Array, times: npt.NDArray[np.int64]) -> None:
        for planted in self.plan.of(*faults.LIMITED):
            if gpu in planted.gpus:
                begin, end = np.searchsorted(times, (planted.start, planted.end))
                course[CLOCK, begin : end - 1] *= faults.LIMITED[planted.fault][0]
                course[LIMITS, begin : end - 1] = faults.LIMITED[planted.fault][1]


def fleet(specification: Specification) -> Simulation:
    """Return a fleet drawn from a specification: who held which GPU when, what is planted, and readings on demand.

    Raises UllageError for a model that is not known or a fault that can't be planted.

    >>> simulation = fleet(Specification(gpus=8, hours=1, sizes=((8, 1.0),)))
    >>> batch = next(simulation.batches())
    >>> batch.num_rows, simulation.answers["ledger"]["total"] == 8 * 3_600_000
    (960, True)
    """
    wanted, changing = faults.resolve(specification.faults), changes.resolve(specification.changes)
    models = host_models(specification)
    draft = Draft(specification, models, [], set())
    plan = faults.FaultPlan(draft, [], [])
    faults.before(plan, wanted)
    if changing:
        changes.plant(plan, changing)
    draw_jobs(draft)
    faults.after(plan, wanted)
    draft.jobs[:] = _reporting(plan)
    holds: list[list[Hold]] = [[] for _ in range(specification.gpus)]
    for number, job in enumerate(draft.jobs):
        for which, gpu in enumerate(job.gpus):
            holds[int(gpu)].append((number, which))
    return Simulation(specification, models, draft.jobs, plan, holds)


def _reporting(plan: faults.FaultPlan) -> list[ScheduledJob]:
    """Return the jobs with the MFU that some of them report: what they do x the tile efficiency x their mistake."""
    draft, specification = plan.draft, plan.draft.specification
    draw = stream(specification, 6).random(len(draft.jobs))
    jobs = []
    for job, chance in zip(draft.jobs, draw, strict=True):
        chip = device(draft.models[int(job.gpus[0]) // specification.gpus_per_host])
        running = 1 - job.startup / max(1, job.end - job.start)
        honest = float(expected_ofu(job.loads, chip).mean()) * running * _unthrottled(plan, job) * job.tile_efficiency
        trains = not job.rider and job.instance is None and job.family in FAMILIES  # who serves reports no MFU
        reports = trains and honest > 0 and (job.mistake is not None or chance < specification.reporting)
        jobs.append(replace(job, mfu=round(honest * job.factor, 4)) if reports else job)
    return jobs


def _unthrottled(plan: faults.FaultPlan, job: ScheduledJob) -> float:
    """Return how much of its work a job does in the window beside GPUs of lower clock; the others do not wait, as their readings show."""
    window = plan.draft.specification.window
    start, end = max(job.start, window[0]), min(job.end, window[1])
    lost = 0.0
    for planted in plan.of(*faults.LIMITED):
        both = min(end, planted.end) - max(start, planted.start)
        count = len(set(planted.gpus) & set(map(int, job.gpus)))
        lost += (1 - faults.LIMITED[planted.fault][0]) * max(0, both) * count
    return 1 - lost / (max(1, end - start) * len(job.gpus))


def _draws(specification: Specification, rows: list[SimulatedDevice], count: int) -> tuple[Array, Codes]:
    """Return each device's normal numbers [rows, 4, count] and what its three cycle counters read at first, from its own stream."""
    draws, bases = np.empty((len(rows), 4, count)), np.empty((len(rows), 3), np.int64)
    for row, device_row in enumerate(rows):
        own = (
            stream(specification, 8, device_row.gpu, device_row.instance)
            if device_row.instance
            else stream(specification, 1, device_row.gpu)
        )
        bases[row] = own.integers(10**13, 10**14, 3)
        own.standard_normal(out=draws[row])
    return draws, bases


def wire_schema(specification: Specification) -> pa.Schema:
    """Return the columns of a table as an exporter's dump has them; 64 bits where a sentinel would not fit into 32."""
    wide = "sentinel" in faults.resolve(specification.faults)
    names = ("time", "cluster", "host", "gpu", "index", *(["mig"] if specification.changes_any("mig") else []), "model", "job", "user")
    identity = [f for f in SAMPLES if f.name in names]
    fields = [SAMPLES.field(name) for name in specification.exported]
    return pa.schema([*identity, *(f.with_type(pa.float64()) if wide and pa.types.is_floating(f.type) else f for f in fields)])


def _rows(simulation: Simulation, given: Emission, wire: bool) -> dict[str, Any]:
    """Return the columns of one host's rows: identities as numbers, fields as arrays."""
    count = given.present.shape[1]
    times_given = np.where(given.second >= 0, 2, given.copies[:, None]) * given.present
    cell = np.repeat(np.arange(given.present.size), times_given.ravel())
    copy = np.arange(len(cell)) - np.searchsorted(cell, cell)
    if given.reordered:  # within every six rows of a GPU the last comes first
        order = np.lexsort((-cell, cell // count * count + (cell % count) // 6))
        cell, copy = cell[order], copy[order]
    columns: dict[str, Any] = {
        "time": given.stamps.ravel()[cell],
        "host": np.full(len(cell), given.host),
        "gpu": np.array([row.gpu for row in given.rows])[cell // count],
        "job": np.where((copy > 0) & (given.second.ravel()[cell] >= 0), given.second.ravel()[cell], given.first.ravel()[cell]),
        "flags": given.flags.ravel()[cell],
    }
    for name in simulation.specification.exported:
        column = (given.wire if wire else given.values)[name].ravel()[cell]
        factor = scale(given, name, 1) if wire else 1
        columns[name] = column if factor == 1 else np.round(column * factor, 6)
    if given.place is not None:
        columns["place"] = given.place[cell % count]
        columns["mig"] = np.array([row.mig for row in given.rows], dtype=object)[cell // count]
    return columns


def _batch(simulation: Simulation, parts: list[dict[str, Any]], wire: bool) -> pa.RecordBatch:
    specification = simulation.specification
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    gpu, host, job = joined.pop("gpu"), joined.pop("host"), joined.pop("job")
    names = list(dict.fromkeys(simulation.models))
    columns: dict[str, Any] = {
        **joined,
        "cluster": _words(np.zeros(len(gpu), np.int64), [specification.cluster]),
        "host": _words(host, [host_name(h) for h in range(host.min(), host.max() + 1)], int(host.min())),
        "gpu": _words(gpu, [uuid(specification, g) for g in range(gpu.min(), gpu.max() + 1)], int(gpu.min())),
        "index": (gpu % specification.gpus_per_host).astype(np.int16),
        "model": _words(np.array([names.index(model) for model in simulation.models])[host], names),
        "job": _words(job, [record.name for record in simulation.records]),
        "user": _words(job, [record.user for record in simulation.records]),
    }
    if specification.changes:
        columns |= _places(simulation, columns.pop("place"), columns["mig"])
        columns |= {name: pa.array(columns[name], mask=columns[name] == NOT_READ) for name in CYCLES if name in columns}
    if not wire:
        return samples(columns)
    schema = wire_schema(specification)
    return pa.RecordBatch.from_arrays([_cast(columns[f.name], f.type) for f in schema], schema=schema)


def _places(simulation: Simulation, place: Codes, mig: Any) -> dict[str, pa.Array]:
    """Return where each row was and which instance it is of, where these change in time."""
    clusters, hosts = zip(*simulation.plan.names_of_places, strict=True)
    return {
        "cluster": _words(place, list(clusters)),
        "host": _words(place, list(hosts)),
        "mig": pa.array(mig, pa.string()).dictionary_encode(),
    }


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    array = column if isinstance(column, pa.Array) else pa.array(column, from_pandas=True)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ms"))
    return array.cast(kind, safe=False)


def _words(codes: Codes, words: list[str], first: int = 0) -> pa.DictionaryArray:
    """Return numbers as words; -1 is nobody."""
    encoded = pa.array((codes - first).astype(np.int32), mask=codes < 0)
    distinct = list(dict.fromkeys(words))
    if len(distinct) < len(words):
        place = {word: number for number, word in enumerate(distinct)}
        table = np.array([place[word] for word in words], np.int32)
        encoded = pa.array(table[np.maximum(codes - first, 0)], mask=codes < 0)
    return pa.DictionaryArray.from_arrays(encoded, pa.array(distinct, pa.string()))


__all__ = ["Emission", "HostReadings", "ScheduledJob", "Simulation", "Specification", "fleet", "wire_schema"]
