"""What needs the samples themselves, not their sums: beats in the clock, and the noise of sampling it. A few devices a job."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.metrics.clocks import Beat, SamplingNoise, beat, sampling_noise
from ullage.metrics.ofu import sampled_ofu
from ullage.reports.rated import Rated

PER_JOB = 2  # the step time is the job's: two of its devices tell
MOST = 400  # devices looked at in all
FINE = 5.5  # s: series at least this fine show table I's intervals


def beats(samples: Any, sums: pa.Table) -> dict[str, Beat]:
    """Return, for each GPU of a job whose clock shows one, the strongest line in the spectrum of its clock samples."""
    witnesses = _witnesses(sums)
    lines: dict[str | None, Beat] = {}
    theirs = samples.filter(samples.job.isin(sorted(set(witnesses.values())))) if witnesses else samples
    for (gpu, job), (_, values) in _series(theirs, list(witnesses), ["sm_clock"]).items():
        found = beat(values["sm_clock"]) if witnesses.get(gpu) == job else None
        if found and (job not in lines or found.share < lines[job].share):
            lines[job] = found  # the weaker of two witnesses: both must show it
    return {gpu: lines[job] for gpu, job in zip(sums["gpu"].to_pylist(), sums["job"].to_pylist(), strict=True) if job in lines}


def _witnesses(sums: pa.Table) -> dict[str, str]:
    taken: dict[str, int] = {}
    chosen: dict[str, str] = {}
    for gpu, job, rows in zip(sums["gpu"].to_pylist(), sums["job"].to_pylist(), sums["rows"].to_pylist(), strict=True):
        if job is not None and rows >= 64 and taken.get(job, 0) < PER_JOB and gpu not in chosen and len(chosen) < MOST:
            taken[job] = taken.get(job, 0) + 1
            chosen[gpu] = job
    return chosen


def noise(samples: Any, sums: pa.Table, rated: Rated, *, wanted: bool) -> list[SamplingNoise]:
    """Return table I of the OFU paper for this fleet: what coarser sampling would have cost, as a mean over a few devices.

    Of series as fine as 5 s it is always told, at 5, 10, 20 and 30 s; of coarser ones when `wanted`, at 2, 4 and 8 times
    their own interval.
    """
    rows = np.array(sums["rows"].to_pylist(), dtype=float)
    interval = float(np.median(np.array(sums["span_ms"].to_pylist(), dtype=float) / rows)) / 1000
    if not wanted and interval > FINE:
        return []
    factors = [round(s / interval) for s in (5, 10, 20, 30) if s >= 2 * interval] if interval <= FINE else [2, 4, 8]
    clocks = {gpu: rated.chips[code].tensor_clock for gpu, code in zip(rated.words("gpu"), rated.chip, strict=True) if code >= 0}
    chosen = [gpu for _, gpu in sorted(zip(-rows, sums["gpu"].to_pylist(), strict=True)) if gpu in clocks][:8]
    found: dict[int, list[SamplingNoise]] = {}
    for (gpu, _), (_, values) in _series(samples, chosen, ["tensor_active", "sm_clock"]).items():
        ofu = sampled_ofu(values["tensor_active"], values["sm_clock"], clocks[gpu])
        for every in (f for f in factors if f >= 2 and len(ofu) >= 4 * f and not np.isnan(ofu).all()):
            found.setdefault(every, []).append(sampling_noise(ofu, interval, every))
    return [
        SamplingNoise(
            several[0].interval,
            several[0].phases,
            float(np.mean([n.mean_deviation for n in several])),
            float(np.max([n.bound for n in several])),
        )
        for _, several in sorted(found.items())
    ]


Series = dict[tuple[str, str | None], tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.float64]]]]


def _series(samples: Any, gpus: list[str], fields: list[str]) -> Series:
    if not gpus:
        return {}
    table = samples.filter(samples.gpu.isin(gpus)).select("gpu", "job", "time", *fields).order_by(["gpu", "job", "time"]).to_pyarrow()
    if not len(table):
        return {}
    gpu, job = (pc.dictionary_encode(table[name].combine_chunks(), null_encoding="encode") for name in ("gpu", "job"))
    whose = gpu.indices.to_numpy().astype(np.int64) * len(job.dictionary) + job.indices.to_numpy()
    edges = np.flatnonzero(np.concatenate([[True], whose[1:] != whose[:-1], [True]]))
    times = table["time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    columns = {name: np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=float) for name in fields}
    return {
        (gpu[int(a)].as_py(), job[int(a)].as_py()): (times[a:b], {name: values[a:b] for name, values in columns.items()})
        for a, b in itertools.pairwise(edges)
    }
