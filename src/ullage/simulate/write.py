"""A simulated fleet into files: samples in one of several formats, jobs.csv, the jobs' models and answers.json.

What is written is what goes over the wire, faults and all; the formats are those that Ullage reads. Hosts are written one
after the other, so memory stays bounded. A host whose units are wrong gets files of its own, as it would have a collector of its own.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from ullage.checked_parquet import writer
from ullage.errors import UllageError
from ullage.output_folder import output_folder
from ullage.simulate import configs
from ullage.simulate.exposition import HostPages, pages
from ullage.simulate.fleet import Simulation, wire_schema
from ullage.simulate.outcomes import outcomes
from ullage.simulate.schedule import ScheduledJob
from ullage.simulate.specification import Specification, host_name
from ullage.sources.naming.dcgm_names import OLD

MOST_CELLS = 100_000_000  # of a table that has a column per GPU and must be in memory
UNCHANGING = {"dmon", "acme"}  # tables whose columns or lines are a fixed set of whole GPUs of one host
NANOSECONDS = 1_000_000  # in a millisecond


@dataclass(frozen=True)
class Task:
    """What is to be written, where, and how: `new_names` are those of DCGM 4.6, `compress` gzips text."""

    simulation: Simulation
    folder: Path
    new_names: bool = False
    compress: bool = False
    progress: Callable[[str], None] = lambda _: None

    @property
    def specification(self) -> Specification:
        """The fleet's specification."""
        return self.simulation.specification

    def pages(self) -> Iterator[tuple[str, HostPages]]:
        """Yield each host's name and what it gives out."""
        jobs, places = [job.name for job in self.simulation.records], self.simulation.plan.names_of_places
        for host in range(self.specification.hosts):
            yield host_name(host), pages(self.specification, self.simulation.host(host), jobs, new_names=self.new_names, places=places)
            self.progress(f"{host + 1:,} of {self.specification.hosts:,} hosts")


NAMES = ("samples", "jobs.csv", "answers.json", "configs")


@dataclass(frozen=True)
class WrittenFleet:
    """What `write` made: the folder of samples, the jobs, the answers, the folder of the jobs' models."""

    samples: Path
    jobs: Path
    answers: Path
    configs: Path

    @classmethod
    def within(cls, folder: Path) -> Self:
        """Return where in a folder these are."""
        return cls(*(folder / name for name in NAMES))


def write(
    simulation: Simulation,
    folder: Path,
    form: str,
    *,
    force: bool = False,
    new_names: bool = False,
    compress: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenFleet:
    """Write a fleet into `folder` and return what was written.

    Raises UllageError when the folder holds something already (unless `force`, which replaces what an earlier run wrote, as long as
    nobody changed it since, and nothing else), when it can't be written, and for an unknown format.
    """
    if form not in FORMATS:
        raise UllageError(f"the simulator writes no '{form}'", f"it writes {', '.join(FORMATS)}")
    if form in UNCHANGING and simulation.specification.changes:
        raise UllageError(
            f"'{form}' can't say what changes in time", f"write {', '.join(sorted(FORMATS.keys() - UNCHANGING))}, or change nothing"
        )
    if not force and folder.is_dir() and any(folder.iterdir()):
        hint = "name another with --out, or replace what an earlier run wrote there with --force"
        raise UllageError(f"the folder '{folder}' is not empty", hint)
    try:
        with output_folder(folder, "ullage simulate", NAMES) as stage:
            made = WrittenFleet.within(stage)
            made.samples.mkdir()
            FORMATS[form](Task(simulation, made.samples, new_names, compress, progress))
            made.jobs.write_text(jobs_csv(simulation), encoding="utf-8")
            made.answers.write_text(json.dumps(simulation.answers, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            configs.write(made.configs)
    except OSError as error:
        raise UllageError(f"{error.filename or folder} can't be written: {error.strerror or error}") from error
    return WrittenFleet.within(folder)


def jobs_csv(simulation: Simulation) -> str:
    """Return the job records as CSV: job, name, user, gpus ("node0001:0-7;node0002:0-3"), start, end (empty while it runs), mfu.

    With `outcomes` they also have the state, and when each was submitted.
    """
    import io

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    ended = outcomes(simulation.specification, simulation.records) if simulation.specification.outcomes else {}
    rows.writerow(["job", "name", "user", "gpus", "start", "end", "mfu", *(["state", "submit"] if ended else [])])
    finish = simulation.specification.window[1]
    for job in simulation.records:
        if job.instance is not None:
            continue  # no scheduler's record names an instance
        end = "" if job.end > finish else _iso(job.end)
        rows.writerow(
            [
                job.name,
                job.family,
                job.user,
                _places(job, simulation.specification),
                _iso(job.start),
                end,
                "" if job.mfu is None else job.mfu,
                *([ended[job.name].state, _iso(ended[job.name].queue_start)] if ended else []),
            ]
        )
    return text.getvalue()


def _iso(time: int) -> str:
    return datetime.datetime.fromtimestamp(time / 1000, datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _places(job: ScheduledJob, specification: Specification) -> str:
    hosts: dict[int, list[int]] = {}
    for gpu in map(int, job.gpus):
        hosts.setdefault(gpu // specification.gpus_per_host, []).append(gpu % specification.gpus_per_host)
    return ";".join(f"{host_name(host)}:{_ranges(sorted(indexes))}" for host, indexes in hosts.items())


def _ranges(numbers: list[int]) -> str:
    """Return numbers as ranges.

    >>> _ranges([0, 1, 2, 5])
    '0-2,5'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _collectors(simulation: Simulation) -> Iterator[tuple[str, list[int]]]:
    """Yield a name and the hosts of it: all hosts that are alike, and each host with wrong units by itself."""
    wrong = {gpu // simulation.specification.gpus_per_host for planted in simulation.plan.of("percent", "hertz") for gpu in planted.gpus}
    wrong |= {script.host for script in simulation.plan.scripts.values() if script.percent is not None}
    yield "fleet", [host for host in range(simulation.specification.hosts) if host not in wrong]
    for host in sorted(wrong):
        yield host_name(host), [host]


def _parquet(task: Task) -> None:
    schema = wire_schema(task.specification)
    for name, hosts in _collectors(task.simulation):
        with writer(task.folder / f"{name}.parquet", schema, compression="zstd") as file:
            for batch in task.simulation.batches(wire=True, hosts=hosts, progress=task.progress):
                file.write_batch(batch)


def _csv(task: Task) -> None:
    import pyarrow.csv

    schema = wire_schema(task.specification)
    plain = pa.schema([f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in schema])
    options = pyarrow.csv.WriteOptions(quoting_style="needed")
    for name, hosts in _collectors(task.simulation):
        path = task.folder / f"{name}.csv{'.gz' if task.compress else ''}"
        with _opened(path) as file, pyarrow.csv.CSVWriter(file, plain, write_options=options) as rows:
            for batch in task.simulation.batches(wire=True, hosts=hosts, progress=task.progress):
                rows.write_batch(
                    pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(batch.columns, plain, strict=True)], schema=plain)
                )


def _opened(path: Path) -> Any:
    """Return a file to write bytes to; gzip without a time in it, so that the same seed gives the same bytes."""
    return gzip.GzipFile(path, "wb", mtime=0) if path.suffix == ".gz" else path.open("wb")


def _exposition(task: Task) -> None:
    for name, host in task.pages():
        folder = task.folder / name
        folder.mkdir()
        for window, moment in enumerate(host.given.times[1:].tolist()):
            stamp = _iso(moment).replace(":", "-")
            with _opened(folder / f"{stamp}.prom{'.gz' if task.compress else ''}") as file:
                file.write(host.page(window).encode())


def _prometheus(task: Task) -> None:
    """Write one answer of /api/v1/query_range per metric; a job has a series of its own, as its label says."""
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        begun: set[str] = set()  # metrics that have a series
        for name, host in task.pages():
            holders = _holders(host)
            seconds = [f"{moment / 1000:.3f}" for moment in host.given.times[1:].tolist()]
            for field, metric in host.names.items():
                if metric.name not in files:
                    path = task.folder / f"{metric.name}.json{'.gz' if task.compress else ''}"
                    files[metric.name] = stack.enter_context(_opened(path))
                    files[metric.name].write(b'{"status":"success","data":{"resultType":"matrix","result":[')
                series = list(_series(host, name, field, holders, seconds))
                if series:  # a host may give no reading of a metric
                    files[metric.name].write((("," if metric.name in begun else "") + ",\n".join(series)).encode())
                    begun.add(metric.name)
        for file in files.values():
            file.write(b"]}}\n")


def _holders(host: HostPages) -> list[tuple[int, str, list[int]]]:
    """Return the series of a host: a GPU's row, its labels as members of a JSON object, and the windows they hold for."""
    found = []
    for row in range(len(host.labels)):
        windows: dict[str, list[int]] = {}
        for window in range(host.count):
            for labels in host.holders(row, window):
                windows.setdefault(labels, []).append(window)
        found += [(row, _as_json(labels), chosen) for labels, chosen in windows.items()]
    return found


def _series(host: HostPages, name: str, field: str, holders: list[tuple[int, str, list[int]]], seconds: list[str]) -> Iterator[str]:
    texts = [host.texts(field, np.s_[row]) for row in range(len(host.labels))]
    fixed = f'"__name__":"{host.names[field].name}","instance":"{name}:9400","job":"dcgm-exporter"'
    for row, labels, chosen in holders:
        values = ",".join([f'[{seconds[window]},"{texts[row][window]}"]' for window in chosen if texts[row][window]])
        if not values:
            continue
        yield f'{{"metric":{{{fixed},{labels}}},"values":[{values}]}}'


def _as_json(labels: str) -> str:
    """Return labels of the text form as members of a JSON object; our own labels hold no '='."""
    return ",".join(f'"{name}":{value}' for name, value in (part.split("=", 1) for part in labels.split(",")))


_DMON = (("pwr", "W", "power", 1.0), ("gtemp", "C", "temperature", 1.0), ("sm", "%", "gpu_util", 100.0), ("pclk", "MHz", "sm_clock", 1e-6))
_GPM = (("gract", "GPM:%", "gr_active", 100.0), ("smutil", "GPM:%", "sm_active", 100.0), ("mmaact", "GPM:%", "tensor_active", 100.0))
SCREENFUL = 40  # lines after which nvidia-smi repeats its header, about


def _dmon(task: Task) -> None:
    """Write a log per host, as `nvidia-smi dmon -s pu --gpm-metrics 1,2,5 -o DT` prints it: whole seconds, whole percent."""
    for name, host in task.pages():
        columns = [column for column in (*_DMON, *_GPM) if column[2] in host.given.wire]
        head = "#Date       Time        gpu " + "".join(f"{c[0]:>7}" for c in columns) + "\n"
        head += "#YYYYMMDD   HH:MM:SS    Idx " + "".join(f"{c[1]:>7}" for c in columns) + "\n"
        with _opened(task.folder / f"{name}.dmon{'.gz' if task.compress else ''}") as file:
            lines = SCREENFUL
            for window in range(host.count):
                if lines >= SCREENFUL:
                    file.write(head.encode())
                    lines = 0
                rows = _dmon_rows(host, window, columns)
                lines += len(rows)
                file.write("".join(rows).encode())


def _dmon_rows(host: HostPages, window: int, columns: list[tuple[str, str, str, float]]) -> list[str]:
    given = host.given
    cells = [[_whole(number * scale) for number in given.wire[field][:, window].tolist()] for _, _, field, scale in columns]
    rows = []
    for row in np.flatnonzero(given.present[:, window]).tolist():
        when = datetime.datetime.fromtimestamp(int(given.stamps[row, window]) // 1000, datetime.UTC)
        rows.append(f" {when:%Y%m%d}   {when:%H:%M:%S} {row:>6} " + "".join(f"{column[row]:>7}" for column in cells) + "\n")
    return rows


def _whole(number: float) -> str:
    return f"{number:.0f}" if number < 1e6 else "-"  # nvidia-smi knows its own "no value" numbers


def _acme(task: Task) -> None:
    """Write one CSV a metric with a column per GPU, on the nominal times, as AcmeTrace publishes it.

    Activity is in percent, and what was no number is a gap.
    """
    import pyarrow.csv

    specification = task.specification
    fields = [field for field in specification.exported if field in OLD]
    if specification.gpus * specification.samples * len(fields) > MOST_CELLS:
        raise UllageError(
            "a table with a column per GPU must fit into memory, and this one is too large", "write parquet, or fewer GPUs or hours"
        )
    start, length = specification.start, specification.samples
    times = [_iso(start + (window + 1) * specification.interval_ms).replace("T", " ").replace("Z", "+00:00") for window in range(length)]
    tables: dict[str, dict[str, Any]] = {field: {"Time": pa.array(times)} for field in fields}
    for name, host in task.pages():
        every = task.simulation.interval_ms(host.given.host) // specification.interval_ms
        for field in fields:
            scale = 100.0 if field.endswith("_active") else OLD[field].factor
            column = np.where(host.given.present, host.given.values[field] * scale, np.nan)
            for row in range(len(column)):
                spread = np.full(length, np.nan)
                spread[every - 1 :: every][: column.shape[1]] = np.round(column[row], 3)
                tables[field][f"{name}-{row}"] = pa.array(spread, from_pandas=True)
    for field, columns in tables.items():
        stem = OLD[field].name.removeprefix("DCGM_FI_DEV_").removeprefix("DCGM_FI_PROF_")
        pyarrow.csv.write_csv(pa.table(columns), task.folder / f"{stem}.csv", pyarrow.csv.WriteOptions(quoting_style="needed"))


FORMATS: dict[str, Callable[[Task], None]] = {
    "parquet": _parquet,
    "exposition": _exposition,
    "csv": _csv,
    "dmon": _dmon,
    "prometheus": _prometheus,
    "acme": _acme,
}
