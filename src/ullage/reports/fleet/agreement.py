"""OFU beside the MFU that jobs report of themselves: the OFU paper's table III, and the jobs that diverge most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.gpus.chip import peak
from ullage.metrics.agreement import absolute_error, pearson, relative_error
from ullage.metrics.metric import ratio

Array = npt.NDArray[np.float64]
CONTRADICTS = 0.01  # MFUs of one job that are further apart are two opinions


@dataclass(frozen=True)
class Comparison:
    """One job: how many GPUs it held, the MFU it reported, the OFU measured, (MFU − OFU) / OFU, and the GPUs' name."""

    job: str
    gpus: int
    mfu: float
    ofu: float
    relative_error: float | None
    chip: str = ""


@dataclass(frozen=True)
class SizeRow:
    """The jobs of one size: mean and standard deviation of their MFU and of |MFU − OFU|; a single job deviates from nothing (None)."""

    gpus: int
    jobs: int
    mfu: float
    mfu_deviation: float | None
    error: float
    error_deviation: float | None


@dataclass(frozen=True)
class TwoReportedMfus:
    """A job that reported two MFUs: the one that counts, which was named first, and the one furthest from it."""

    job: str
    counted: float
    other: float


@dataclass(frozen=True)
class Agreement:
    """Table III: rows by GPU count, and over all jobs the correlation, the means and the shares within 10 and above 20 points."""

    rows: list[SizeRow]
    jobs: list[Comparison]
    pearson: float | None
    mfu: float
    ofu: float
    error: float
    within_10: float
    above_20: float
    contradictions: list[TwoReportedMfus]


@dataclass(frozen=True)
class MeasuredJob:
    """What telemetry says of a job: its OFU, how many GPUs it held, and of which model."""

    ofu: float
    gpus: int
    chip: str


def agreement(measured: Mapping[str, MeasuredJob], jobs: pa.Table | None, peak_tflops: str | None = None) -> Agreement | None:
    """Return how reported MFU and OFU agree, jobs that diverge most first; None when no measured job reported anything.

    `jobs` is a `tables.JOBS` table; of a job's records the first that tells an MFU counts. A job that reports FLOP/s per
    GPU is divided by the BF16 peak of its GPU, or by `peak_tflops` (see `gpus.chip.peak`). Standard deviations are of the
    sample (n − 1).
    """
    reported = _reported(measured, jobs, peak_tflops)
    found = [_compare(job, measured[job], reported[job][0]) for job in measured if job in reported]
    if not found:
        return None
    mfu: Array = np.array([c.mfu for c in found])
    ofu: Array = np.array([c.ofu for c in found])
    distance: Array = absolute_error(ofu, mfu)
    error: Array = distance.round(6)  # samples at rest have 24 bits: what lies on a limit is on it
    sizes = np.array([c.gpus for c in found])
    return Agreement(
        rows=[_row(int(size), mfu[sizes == size], error[sizes == size]) for size in np.unique(sizes)],
        jobs=sorted(found, key=lambda c: -abs(c.mfu - c.ofu)),
        pearson=pearson(ofu, mfu),
        mfu=float(mfu.mean()),
        ofu=float(ofu.mean()),
        error=float(error.mean()),
        within_10=float((error <= 0.10).mean()),
        above_20=float((error > 0.20).mean()),
        contradictions=[told for job in measured if job in reported and (told := _contradiction(job, reported[job]))],
    )


def _contradiction(job: str, reported: list[float]) -> TwoReportedMfus | None:
    counted, furthest = reported[0], max(reported, key=lambda mfu: abs(mfu - reported[0]))
    return TwoReportedMfus(job, counted, furthest) if round(abs(furthest - counted), 6) > CONTRADICTS else None


def _compare(job: str, measured: MeasuredJob, mfu: float) -> Comparison:
    ofu = measured.ofu
    return Comparison(job, measured.gpus, mfu, ofu, relative_error(mfu, ofu) if ofu else None, measured.chip)


def _row(gpus: int, mfu: Array, error: Array) -> SizeRow:
    return SizeRow(gpus, len(mfu), float(mfu.mean()), _deviation(mfu), float(error.mean()), _deviation(error))


def _deviation(values: Array) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _reported(measured: Mapping[str, MeasuredJob], jobs: pa.Table | None, peak_tflops: str | None) -> dict[str, list[float]]:
    """Return every MFU that each job's records tell, in their order."""
    reported: dict[str, list[float]] = {}
    for row in [] if jobs is None else jobs.select(["job", "mfu", "flops_per_gpu"]).to_pylist():
        mfu = row["mfu"]
        if mfu is None and row["flops_per_gpu"] is not None and row["job"] in measured:
            mfu = ratio(row["flops_per_gpu"], peak(measured[row["job"]].chip, "bf16", override=peak_tflops))
        if mfu is not None:
            reported.setdefault(row["job"], []).append(float(mfu))
    return reported
