"""The answer key: what every report over a simulated fleet must find, worked out with plain NumPy.

Two kinds of OFU stand side by side. `ofu` is the truth: cycles in which a tensor pipe was active, over the cycles of the
tensor clock. `sampled_ofu` is what the emitted readings come to, tensor activity x clock sample, each weighted by the time it
stands for; it is the same but for the noise of sampling the clock, and for readings that an exporter's fault took or froze.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ullage.simulate import faults
from ullage.simulate.schedule import Job
from ullage.simulate.specification import Specification, device, host_models, uuid
from ullage.units import HOUR_MS

if TYPE_CHECKING:
    from ullage.simulate.exporter import Emission
    from ullage.simulate.load import Array

GAP_MS = 60_000  # the longest time one sample may stand for, or twice the interval of its series
IDLE = 0.005  # a GPU is idle in a sample when no engine is busier than this
OWNERS = ("job", "shared", "held_idle", "free", "not_sliced", "unknown")
# Sums over time in ms: of everything, of readings with activity and clock, and of these x each gauge
SUMS = ("window", "true", "known", "gr", "sm", "tensor", "ofu", "util", "util_known", *OWNERS)


@dataclass(frozen=True)
class Tally:
    """Sums of one host: a row per stretch of time in which a GPU's owners do not change, and no fault of its gauges begins or ends.

    `gpu` is the number in the fleet, `first` and `second` are the jobs' (-1: nobody), `spoilt` says whether a fault shows that leaves its
    time alone out, `sums` is [rows, len(SUMS)].
    """

    gpu: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    spoilt: npt.NDArray[np.bool_]
    sums: Array


def tally(given: Emission, interval_ms: int, first_gpu: int, faulty: Mapping[int, tuple[int, int]]) -> Tally:
    """Return a host's sums; `first_gpu` is the number of its first GPU, `faulty` says from when to when gauges show a fault, by GPU.

    A reading at t speaks for the time since the one before it, at most `GAP_MS` or two intervals.
    """
    columns = np.stack(list(_columns(given, interval_ms).values()))
    change = (np.diff(given.first, axis=1) != 0) | (np.diff(given.second, axis=1) != 0)
    spoilt = np.zeros(given.first.shape, np.bool_)
    for gpu, (start, end) in faulty.items():
        if first_gpu <= gpu < first_gpu + len(spoilt):
            spoilt[gpu - first_gpu] = (given.times[1:] > start) & (given.times[1:] <= end)
    change |= np.diff(spoilt, axis=1)
    change = np.concatenate([np.ones((len(change), 1), np.bool_), change], axis=1)
    starts = np.flatnonzero(change.ravel())
    count = given.first.shape[1]
    return Tally(
        gpu=starts // count + first_gpu,
        first=given.first.ravel()[starts],
        second=given.second.ravel()[starts],
        spoilt=spoilt.ravel()[starts],
        sums=np.add.reduceat(columns.reshape(len(columns), -1), starts, axis=1).T,
    )


def _columns(given: Emission, interval_ms: int) -> dict[str, Array]:
    """Return what each sample adds to each sum, [gpus, windows], in the order of `SUMS`."""
    window = np.broadcast_to(np.diff(given.times).astype(np.float64), given.first.shape)
    span = _spans(given, interval_ms)
    gr, sm, tensor, clock, util = (_rounded(given.values[n]) for n in ("gr_active", "sm_active", "tensor_active", "sm_clock", "gpu_util"))
    known = span * ~(np.isnan(gr) | np.isnan(sm) | np.isnan(tensor) | np.isnan(clock))
    sums = {
        "window": window,
        "true": given.truth.tensor_cycles / given.device.tensor_clock * 1000,
        "known": known,
        "gr": known * np.nan_to_num(gr),
        "sm": known * np.nan_to_num(sm),
        "tensor": known * np.nan_to_num(tensor),
        "ofu": known * np.nan_to_num(tensor * (clock / given.device.tensor_clock)),
        "util": span * np.nan_to_num(util),
        "util_known": span * ~np.isnan(util),
    }
    return sums | _owners(given, span, (gr, sm, tensor, util))


def _spans(given: Emission, interval_ms: int) -> Array:
    """Return the time that each reading stands for, by the times as they were stamped; 0 for one that was not given out."""
    span = np.zeros(given.first.shape)
    limit = max(GAP_MS, 2 * interval_ms)
    regular = given.present.all(axis=1) & (given.stamps == given.times[1:]).all(axis=1)
    span[regular] = np.minimum(np.diff(given.times), limit)
    for row in np.flatnonzero(~regular):
        columns = np.flatnonzero(given.present[row])
        columns = columns[np.argsort(given.stamps[row, columns], kind="stable")]
        stamps = np.concatenate([given.times[:1], given.stamps[row, columns]])
        span[row, columns] = np.minimum(np.diff(stamps), limit)
    return span


def _rounded(column: npt.NDArray[Any]) -> Array:
    """Return a column as it is kept at rest, in 32 bits."""
    return column.astype(np.float32).astype(np.float64)


def _owners(given: Emission, span: Array, gauges: tuple[Array, ...]) -> dict[str, Array]:
    """Return each sample's time by owner; what no reading speaks for, or what runs without a job, is unknown."""
    dark = np.logical_and.reduce([np.isnan(gauge) for gauge in gauges])
    idle = ~dark & np.logical_and.reduce([np.nan_to_num(gauge) < IDLE for gauge in gauges])
    held, shared = given.first >= 0, given.second >= 0
    return {
        "job": span * (held & ~shared & ~idle),
        "shared": span * shared,
        "held_idle": span * (held & ~shared & idle),
        "free": span * (~held & idle),
        "not_sliced": np.zeros((span * held).shape),
        "unknown": span * (~held & ~idle),
    }


def key(specification: Specification, jobs: list[Job], plan: faults.Plan, tallies: list[Tally]) -> dict[str, Any]:
    """Return the answer key, ready for JSON.

    Ratios are in [0, 1], times in ms since 1970; `ledger` is in GPU-milliseconds and adds up to GPUs x window; `faults` has the
    verdict of each GPU; `jobs` leaves out time in which a GPU is shared, which stands under `shared`.
    """
    gpu, first, second = (np.concatenate([getattr(t, name) for t in tallies]) for name in ("gpu", "first", "second"))
    sums = np.concatenate([t.sums for t in tallies])
    spoilt = np.concatenate([t.spoilt for t in tallies])
    words = _verdicts(specification, plan, gpu, sums, spoilt)
    trusted = np.array([is_trusted(word) for word in words])[gpu] & ~spoilt
    start, end = specification.window
    total = specification.gpus * (end - start)
    alone = second < 0
    return {
        "window": {"start": start, "end": end},
        "gpus": specification.gpus,
        "gpu_hours": total / HOUR_MS,
        "seed": specification.seed,
        "fleet": _group(gpu, sums, trusted) | {"trusted_chain": chain(gpu[trusted], np.stack([first, second])[:, trusted], sums[trusted])},
        "jobs": _jobs(specification, jobs, (gpu, first, sums, trusted), alone),
        "shared": _shared(jobs, gpu, first, second, sums, trusted),
        "ledger": _ledger(sums, total),
        "faults": {uuid(specification, g): word for g, word in enumerate(words)},
        "planted": faults.describe(plan),
        "not_planted": plan.skipped,
        "reported": {
            job.name: {"mfu": job.mfu, "mistake": job.mistake, "factor": job.factor, "tile_efficiency": job.tile_efficiency}
            for job in jobs
            if job.mfu is not None
        },
    }


def _verdicts(
    specification: Specification, plan: faults.Plan, gpu: npt.NDArray[np.int64], sums: Array, spoilt: npt.NDArray[np.bool_]
) -> list[str]:
    """Return the verdict of each GPU: a fault whose time is known takes out no more than that time, up to half of the readings."""
    time = sums[:, -len(OWNERS) :].sum(axis=1)
    whole, lost = (np.bincount(gpu, weights, specification.gpus) for weights in (time, time * spoilt))
    return [
        "faulty in part" if 0 < lost[number] <= whole[number] / 2 and not is_trusted(word) else word
        for number, word in enumerate(faults.verdicts(plan))
    ]


def is_trusted(verdict: str) -> bool:
    """Return whether a series of this verdict counts in the totals."""
    return verdict not in ("impossible", "contradictory", "stuck at zero", "stale", "locked", "sentinel")


def _ledger(sums: Array, total: int) -> dict[str, int]:
    """Return GPU-milliseconds by owner; time that no sample speaks for is unknown."""
    parts = {owner: round(float(sums[:, SUMS.index(owner)].sum())) for owner in OWNERS}
    parts["unknown"] += total - sum(parts.values())
    return parts | {"total": total}


def _jobs(specification: Specification, jobs: list[Job], table: tuple[Any, ...], alone: npt.NDArray[np.bool_]) -> dict[str, Any]:
    gpu, first, sums, trusted = table
    models = host_models(specification)
    order = np.argsort(first, kind="stable")
    order = order[alone[order] & (first[order] >= 0)]
    cuts = np.searchsorted(first[order], np.arange(len(jobs) + 1))
    found = {}
    for number, job in enumerate(jobs):
        rows = order[cuts[number] : cuts[number + 1]]
        if not len(rows):
            continue
        found[job.name] = _group(gpu[rows], sums[rows], trusted[rows]) | {
            "user": job.user,
            "name": job.family,
            "gpus": len(job.gpus),
            "model": device(models[int(job.gpus[0]) // specification.gpus_per_host]).model,
        }
    return found


def _shared(jobs: list[Job], gpu: Any, first: Any, second: Any, sums: Array, trusted: Any) -> list[dict[str, Any]]:
    pairs = sorted({(int(a), int(b)) for a, b in zip(first[second >= 0], second[second >= 0], strict=True)})
    found = []
    for one, other in pairs:
        rows = (first == one) & (second == other)
        found.append({"jobs": [jobs[one].name, jobs[other].name]} | _group(gpu[rows], sums[rows], trusted[rows]))
    return found


def _group(gpu: npt.NDArray[np.int64], sums: Array, trusted: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return the figures of a set of rows: OFU in three ways, GPU-hours, and the tree over all and over trusted readings."""
    whole = dict(zip(SUMS, sums.sum(axis=0), strict=True))
    return {
        "ofu": _over(whole["true"], whole["window"]),
        "sampled_ofu": _over(whole["ofu"], whole["known"]),
        "trusted_ofu": _over(float(sums[trusted, SUMS.index("ofu")].sum()), float(sums[trusted, SUMS.index("known")].sum())),
        "gpu_hours": float(sum(whole[owner] for owner in OWNERS)) / HOUR_MS,
        "trusted_gpu_hours": float(sums[trusted][:, -len(OWNERS) :].sum()) / HOUR_MS,
        "gpu_util": _over(whole["util"], whole["util_known"]),
        "tree": tree(gpu, sums),
        "trusted_tree": tree(gpu[trusted], sums[trusted]),
    }


def tree(gpu: npt.NDArray[np.int64], sums: Array) -> dict[str, float | None]:
    """Return the factors of the telemetry tree (bars weigh GPUs by their time; the maximum is over the GPUs' own means).

    OFU = load balance x activity x SM fill x tensor issue x clock.
    """
    known, gr, sm, tensor, ofu = (sums[:, SUMS.index(name)] for name in ("known", "gr", "sm", "tensor", "ofu"))
    if not known.sum() > 0:
        return dict.fromkeys(("load_balance", "activity", "sm_fill", "tensor_issue", "clock"))
    number = np.unique(gpu, return_inverse=True)[1]
    own_time, own = np.bincount(number, known), np.bincount(number, gr)
    most = float((own[own_time > 0] / own_time[own_time > 0]).max())
    return {
        "load_balance": _over(gr.sum() / known.sum(), most),
        "activity": most,
        "sm_fill": _over(sm.sum(), gr.sum()),
        "tensor_issue": _over(tensor.sum(), sm.sum()),
        "clock": _over(ofu.sum(), tensor.sum()),
    }


def chain(gpu: npt.NDArray[np.int64], jobs: npt.NDArray[np.int64], sums: Array) -> dict[str, float]:
    """Return what is left after each step of a fleet's chain over what was before it: losses are computed inside each job and added.

    What nobody held is lost at the first step, what was held and idle at the second; of the rest each GPU of a job lacks what the job's
    busiest has, and each GPU that no job is known for is compared with itself. `jobs` is [2, rows]: who holds a GPU, -1 for nobody; what
    two jobs share is the work of the two together, beside what each does alone.
    """
    known, gr, sm, tensor, ofu, free, idle = (sums[:, SUMS.index(n)] for n in ("known", "gr", "sm", "tensor", "ofu", "free", "held_idle"))
    work = np.maximum(known - free - idle, 0.0)
    group = np.unique(np.stack([*jobs, np.where(jobs[0] < 0, gpu, -1)]), axis=1, return_inverse=True)[1].reshape(-1)
    device = np.unique(np.stack([group, gpu]), axis=1, return_inverse=True)[1].reshape(-1)
    time, busy = np.bincount(device, work), np.bincount(device, gr)
    most = np.zeros(int(group.max(initial=-1)) + 1)
    np.maximum.at(most, group, np.where(work > 0, (busy / np.maximum(time, 1e-9))[device], 0.0))
    even = np.where(most[group] > 0, gr / np.maximum(most[group], 1e-9), work)
    left = [known.sum(), (known - free).sum(), work.sum(), even.sum(), gr.sum(), sm.sum(), tensor.sum(), ofu.sum()]
    names = ("not_allocated", "held_idle", "load_balance", "activity", "sm_fill", "tensor_issue", "clock")
    return {name: float(after / before) if before > 0 else 1.0 for name, before, after in zip(names, left, left[1:], strict=False)}


def _over(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
