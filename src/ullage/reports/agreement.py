"""OFU beside the MFU that jobs report of themselves: the OFU paper's table III, and the jobs that diverge most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.gpus.chip import Chip
from ullage.metrics.agreement import absolute_error, pearson, relative_error
from ullage.metrics.metric import ratio

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """One job: how many GPUs it held, the MFU it reported, the OFU measured, and (MFU − OFU) / OFU."""

    job: str
    gpus: int
    mfu: float
    ofu: float
    relative_error: float | None


@dataclass(frozen=True)
class Row:
    """The jobs of one size: mean and standard deviation of their MFU and of |MFU − OFU|."""

    gpus: int
    jobs: int
    mfu: float
    mfu_deviation: float
    error: float
    error_deviation: float


@dataclass(frozen=True)
class Agreement:
    """Table III: rows by GPU count, and over all jobs the correlation, the means and the shares within 10 and above 20 points."""

    rows: list[Row]
    jobs: list[Comparison]
    pearson: float | None
    mfu: float
    ofu: float
    error: float
    within_10: float
    above_20: float


def agreement(measured: Mapping[str, tuple[float, int]], jobs: pa.Table | None, chips: Sequence[Chip]) -> Agreement | None:
    """Return how reported MFU and OFU agree, jobs that diverge most first; None when no measured job reported anything.

    `measured` maps a job to its (OFU, number of GPUs); `jobs` is a `tables.JOBS` table. FLOP/s per GPU is divided by the
    BF16 peak of the fleet's GPU; in a mixed fleet only a reported MFU counts. Standard deviations are of the sample (n − 1).
    """
    reported = _reported(jobs, chips)
    found = [_compare(job, *measured[job], reported[job]) for job in measured if job in reported]
    if not found:
        return None
    mfu, ofu = np.array([c.mfu for c in found]), np.array([c.ofu for c in found])
    error = absolute_error(ofu, mfu)
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
    )


def _compare(job: str, ofu: float, gpus: int, mfu: float) -> Comparison:
    return Comparison(job, gpus, mfu, ofu, relative_error(mfu, ofu) if ofu else None)


def _row(gpus: int, mfu: Array, error: Array) -> Row:
    return Row(gpus, len(mfu), float(mfu.mean()), _deviation(mfu), float(error.mean()), _deviation(error))


def _deviation(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _reported(jobs: pa.Table | None, chips: Sequence[Chip]) -> dict[str, float]:
    if jobs is None:
        return {}
    peak = chips[0].peak("bf16") if len(chips) == 1 and "bf16" in chips[0].precisions else None
    reported: dict[str, float] = {}
    for row in jobs.select(["job", "mfu", "flops_per_gpu"]).to_pylist():
        mfu = row["mfu"] if row["mfu"] is not None else ratio(row["flops_per_gpu"], peak)
        if mfu is not None:
            reported.setdefault(row["job"], float(mfu))
    return reported
