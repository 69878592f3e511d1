"""What a job reported of itself, from its trainer's log: beside its samples by time, and as a job record for a fleet report."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.job_names import escaped_name
from ullage.problems import Problems
from ullage.tables import JOBS
from ullage.trainlogs.log import read_log
from ullage.written_values import expanded_path

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

REPORTED = {"mfu": "reported_mfu", "flops_per_gpu": "reported_flops_per_gpu"}
_PAUSE = 10  # an interval this many times the median is a pause, not a step
_SLURM = re.compile(r"slurm-(\d+)(?:[_.].*)?")


def read_reported(text: str, problems: Problems, *, since: int | None = None, until: int | None = None) -> pa.Table:
    """Return the `JOBS` record of `LOG=JOB`: what the job reported on the average of its steps in a window (ms since 1970).

    Without `=JOB` the job is named by the file: `slurm-4711.out` is 4711, `train.log` is train. Of a place with several runs
    the one that is called as the job is read.
    """
    name, job = named_log(text)
    return record(read_log(name, problems, run=job), job, problems, since=since, until=until)


def record(series: pa.Table, job: str, problems: Problems, *, since: int | None = None, until: int | None = None) -> pa.Table:
    """Return a `JOBS` table with one record: the means of MFU and FLOP/s per GPU, each step weighed by its time.

    A step counts where its line's time lies in the window; lines without times count all. The record names no device and no
    time: whom the job held, other records or labels say.
    """
    weights = periods(series)
    inside = np.ones(len(series), np.bool_)
    time, timed = _times(series)
    if timed.any():
        inside &= timed & (time > (since if since is not None else time.min() - 1)) & (time <= (until if until is not None else time.max()))
    elif since is not None or until is not None:
        problems.note(f"the log of job {harmless(job, 60)} has no times: all of it counts, also what is outside the window")
    means = {name: _mean(_floats(series, name)[inside], weights[inside]) for name in REPORTED}
    if not any(mean is not None for mean in means.values()):
        what = "no MFU and no FLOP/s" if inside.any() else "nothing in the window"
        problems.note(f"the log of job {harmless(job, 60)} reports {what}; it can't be set beside OFU")
    row = dict.fromkeys(JOBS.names) | {"job": escaped_name(job)} | means
    return pa.Table.from_pylist([row], schema=JOBS)


@dataclass(frozen=True)
class LoggedMeans:
    """What the `lines` of a log say on the mean, each weighed by the time that it stands for; None for what none says."""

    lines: int
    mfu: float | None
    flops_per_gpu: float | None
    step_time: float | None


def means_of(series: pa.Table) -> LoggedMeans:
    """Return what a job reported over all of its steps. `step_time` is of one step: of all their time, the mean."""
    weights, taken = periods(series), _floats(series, "step_time")
    known = ~np.isnan(taken)
    # a line stands for weight / step time steps
    step_time = float(weights[known].sum() / (weights[known] / taken[known]).sum()) if known.any() else None
    return LoggedMeans(len(series), _mean(_floats(series, "mfu"), weights), _mean(_floats(series, "flops_per_gpu"), weights), step_time)


def beside(samples: pa.Table, series: pa.Table, job: str) -> pa.Table:
    """Return settled samples with what `job` reported at their time: `reported_mfu` and `reported_flops_per_gpu`, null elsewhere.

    Of the steps that ended at or before a sample the last one counts, where it ended no longer before than it stands for.
    A job that shares its device reports of its own work only, and is not set beside samples of several.
    """
    steps = series.filter(pc.is_valid(series["time"])).sort_by("time")
    ended, _ = _times(steps)
    stands = np.ceil(periods(steps) * 1000)
    at, _ = _times(samples)
    row = np.searchsorted(ended, at, side="right") - 1
    found = row >= 0
    if len(ended):
        found &= (at - ended[row]) <= stands[row]
    found &= np.array([name == escaped_name(job) for name in samples["job"].cast(pa.string()).to_pylist()], np.bool_)
    for name, column in REPORTED.items():
        values = np.full(samples.num_rows, np.nan)
        values[found] = _floats(steps, name)[row[found]]
        samples = samples.append_column(column, pa.array(values, from_pandas=True))
    return samples


def periods(series: pa.Table) -> Floats:
    """Return the seconds that each row of a series stands for: its step time, times the steps since the row before.

    Where the step time is not reported it is the interval between the lines; a pause and the first line count as the
    median interval.
    """
    rows = len(series)
    counts = _since_before(_floats(series, "step"), ahead=True)
    times, timed = _times(series)
    intervals = _since_before(np.where(timed, times / 1000.0, np.nan), ahead=False)
    known = _floats(series, "step_time") * counts
    found = np.where(np.isnan(known), intervals, known)
    usual = float(np.nanmedian(found)) if rows and not np.isnan(found).all() else 1.0
    return np.where(np.isnan(found), usual, found)


def _since_before(values: Floats, *, ahead: bool) -> Floats:
    """Return the growth since the row before; the median where it is none, or many times the median.

    `ahead`: a row is at least one ahead of the one before, as steps are.
    """
    growth = np.diff(values, prepend=np.nan)
    with np.errstate(invalid="ignore"):
        growth[growth <= 0] = np.nan
        usual = float(np.nanmedian(growth)) if not np.isnan(growth).all() else np.nan
        growth[growth > _PAUSE * usual] = np.nan
    if np.isnan(usual) and ahead:
        usual = 1.0
    return np.where(np.isnan(growth), usual, growth)


def _mean(values: Floats, weights: Floats) -> float | None:
    known = ~np.isnan(values)
    return float(np.average(values[known], weights=weights[known])) if known.any() else None


def _floats(table: pa.Table, name: str) -> Floats:
    values: Floats = table[name].cast(pa.float64()).to_numpy().astype(np.float64)
    return values


def _times(table: pa.Table) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Return the times in ms (0 where there is none), and where there is one."""
    column = table["time"].cast(pa.int64())
    return column.fill_null(0).to_numpy(), column.is_valid().to_numpy()


def named_log(text: str) -> tuple[str, str]:
    """Return the log and the job of `LOG=JOB` or `LOG`."""
    name, equals, job = text.rpartition("=")
    if not equals or expanded_path(text).exists():
        name, job = text, ""
    if not name or (equals and not job and not expanded_path(text).exists()):
        raise UllageError(
            f"--reported '{harmless(text)}' names {'no job after' if name else 'no log before'} '='",
            "write --reported train.log=4711: the trainer's log, '=', the job as the samples or records call it",
        )
    slurm = _SLURM.fullmatch(Path(name).name)
    return name, job or (slurm[1] if slurm else Path(name).stem)
