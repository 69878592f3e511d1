"""The answer key: what every report over a simulated fleet must find, worked out with plain NumPy.

Two kinds of OFU stand side by side. `ofu` is the truth: cycles in which a tensor pipe was active, over the cycles of the
tensor clock. `sampled_ofu` is what the emitted readings come to, tensor activity x clock sample, each weighted by the time it
stands for; it is the same but for the noise of sampling the clock, and for readings that an exporter's fault took or froze.
Where devices change in time there is a third, `measured_ofu`: by cycle counters where they were read, and sampled elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ullage.simulate import changes, faults
from ullage.simulate.schedule import ScheduledJob
from ullage.simulate.specification import CYCLES, NOT_READ, Specification, device, host_models, uuid
from ullage.units import HOUR_MS

if TYPE_CHECKING:
    from ullage.simulate.exporter import Emission
    from ullage.simulate.load import Array

INSTANCES = 16  # more than a GPU can be cut into
GAP_MS = 60_000  # the longest time one sample may stand for, or twice the interval of its series
IDLE = 0.005  # a GPU is idle in a sample when no engine is busier than this
OWNERS = ("job", "shared", "held_idle", "free", "not_sliced", "unknown")
# Sums over time in ms: of everything, of readings with activity and clock, and of these x each gauge
SUMS = ("window", "true", "known", "gr", "sm", "tensor", "ofu", "util", "util_known", *OWNERS)
OWNED = slice(SUMS.index(OWNERS[0]), len(SUMS))
# and, where devices change in time: the time of which cycles tell, that of which they or gauges tell, and the same gauges over it
MEASURED = ("exact", "measured_known", "measured_gr", "measured_sm", "measured_tensor", "measured_ofu")
CHAIN = ("known", "gr", "sm", "tensor", "ofu")
MEASURED_CHAIN = MEASURED[1:]


@dataclass(frozen=True)
class HostTally:
    """Sums of one host: a row per stretch of time in which nothing about a device changes: its owners, its place, whether it is cut,
    whether its gauges show a fault.

    `gpu` is the number in the fleet, `device` tells a GPU and its instances apart, `place` is where it is (a number of the plan's), `first`
    and `second` are the jobs' (-1: nobody), `spoilt` says whether a fault shows that leaves its time alone out, `sums` is
    [rows, len(SUMS)], and `MEASURED` after these where devices change in time.
    """

    gpu: npt.NDArray[np.int64]
    device: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    spoilt: npt.NDArray[np.bool_]
    sums: Array


def tally(given: Emission, interval_ms: int, units: Array, faulty: Mapping[int, tuple[int, int]]) -> HostTally:
    """Return a host's sums; its cycle counters are summed over `units` SMs ([rows, 1]). `faulty` says when gauges
    show a fault, by GPU.

    A reading at t speaks for the time since the one before it, at most `GAP_MS` or two intervals.
    """
    columns = np.stack(list(_columns(given, interval_ms, units).values()))
    change = (np.diff(given.first, axis=1) != 0) | (np.diff(given.second, axis=1) != 0)
    if given.place is not None and given.weight is not None:
        change |= (np.diff(given.place) != 0) | (np.diff(given.weight, axis=1) != 0)
    spoilt = np.zeros(given.first.shape, np.bool_)
    for number, row in enumerate(given.rows):
        if row.gpu in faulty:
            start, end = faulty[row.gpu]
            spoilt[number] = (given.times[1:] > start) & (given.times[1:] <= end)
    change |= np.diff(spoilt, axis=1)
    change = np.concatenate([np.ones((len(change), 1), np.bool_), change], axis=1)
    starts = np.flatnonzero(change.ravel())
    count = given.first.shape[1]
    gpu, instance = (np.array([getattr(row, name) for row in given.rows])[starts // count] for name in ("gpu", "instance"))
    return HostTally(
        gpu=gpu,
        device=gpu * INSTANCES + instance,
        place=np.full(len(starts), given.host) if given.place is None else given.place[starts % count],
        first=given.first.ravel()[starts],
        second=given.second.ravel()[starts],
        spoilt=spoilt.ravel()[starts],
        sums=np.add.reduceat(columns.reshape(len(columns), -1), starts, axis=1).T,
    )


def _columns(given: Emission, interval_ms: int, units: Array) -> dict[str, Array]:
    """Return what each sample adds to each sum, [rows, windows], in the order of `SUMS` and `MEASURED`."""
    window = np.broadcast_to(np.diff(given.times).astype(np.float64), given.first.shape)
    span = _spans(given, interval_ms)
    gr, sm, tensor, clock, util = (_rounded(given.values[n]) for n in ("gr_active", "sm_active", "tensor_active", "sm_clock", "gpu_util"))
    true = given.truth.tensor_cycles / given.device.tensor_clock * 1000
    if given.weight is not None and given.unsliced is not None:
        clock = _clock_of_gpu(given, clock)
        gr, sm, tensor, clock, true = (np.where(given.unsliced, 0.0, column) for column in (gr, sm, tensor, clock, true))
        window, span, true = window * given.weight, span * given.weight, true * given.weight
    known = span * ~(np.isnan(gr) | np.isnan(sm) | np.isnan(tensor) | np.isnan(clock))
    sums = {
        "window": window,
        "true": true,
        "known": known,
        "gr": known * np.nan_to_num(gr),
        "sm": known * np.nan_to_num(sm),
        "tensor": known * np.nan_to_num(tensor),
        "ofu": known * np.nan_to_num(tensor * (clock / given.device.tensor_clock)),
        "util": span * np.nan_to_num(util),
        "util_known": span * ~np.isnan(util),
    }
    sums |= _owners(given, span, (gr, sm, tensor, util))
    return sums if given.weight is None else sums | _measured(given, interval_ms, units, span, (gr, sm, tensor, clock))


def _clock_of_gpu(given: Emission, clock: Array) -> Array:
    """Return each row's clock; an instance has that of its GPU."""
    first = given.rows[0].gpu
    parent: Array = clock[[row.gpu - first for row in given.rows]]
    return parent


def _measured(given: Emission, interval_ms: int, units: Array, span: Array, gauges: tuple[Array, ...]) -> dict[str, Array]:
    """Return the sums of `MEASURED`."""
    gr, sm, tensor, clock = gauges
    counted, worked, elapsed = _growth(given, interval_ms)
    sampled = ~np.isnan(tensor) & ~np.isnan(clock)
    seconds = np.diff(given.times) / 1000
    by_cycles = worked / (given.device.tensor_clock * units * seconds)
    time = span * (counted | sampled)
    return {
        "exact": span * counted,
        "measured_known": time,
        "measured_gr": time * np.nan_to_num(gr),
        "measured_sm": time * np.nan_to_num(sm),
        "measured_tensor": time * np.where(counted, worked / np.maximum(elapsed, 1), np.nan_to_num(tensor)),
        "measured_ofu": time * np.where(counted, by_cycles, np.nan_to_num(tensor * (clock / given.device.tensor_clock))),
    }


def _growth(given: Emission, interval_ms: int) -> tuple[npt.NDArray[np.bool_], Array, Array]:
    """Return where cycles were counted from one reading of a device to the next, and how many the tensor pipes worked, and passed.

    A counter that falls was reset, and over a silence nothing is counted.
    """
    shape = given.first.shape
    counted, worked, elapsed = np.zeros(shape, np.bool_), np.zeros(shape), np.zeros(shape)
    if not set(CYCLES) <= set(given.values):
        return counted, worked, elapsed
    tensor, passed = given.values["tensor_cycles"], given.values["sm_cycles"]
    for row in range(shape[0]):
        columns = np.flatnonzero(given.present[row])
        columns = columns[np.argsort(given.stamps[row, columns], kind="stable")]
        before, now = columns[:-1], columns[1:]
        good = np.diff(given.stamps[row, columns]) <= max(GAP_MS, 2 * interval_ms)
        for column in (tensor[row], passed[row]):
            good &= (column[before] != NOT_READ) & (column[now] >= column[before])
        before, now = before[good], now[good]
        counted[row, now] = True
        worked[row, now], elapsed[row, now] = tensor[row, now] - tensor[row, before], passed[row, now] - passed[row, before]
    return counted, worked, elapsed


def _spans(given: Emission, interval_ms: int) -> Array:
    """Return the time that each reading stands for, by the times as they were stamped; 0 for one that was not given out."""
    span = np.zeros(given.first.shape)
    limit = max(GAP_MS, 2 * interval_ms)
    regular = given.present.all(axis=1) & (given.stamps == given.times[1:]).all(axis=1)
    span[regular] = np.minimum(np.diff(given.times), limit)
    # a device that is there for a part of the window: its first reading speaks for one interval, not for the time since the start
    passing = np.zeros(len(span), np.bool_) if given.weight is None else (given.weight == 0).any(axis=1) & ~regular
    span[passing] = np.minimum(np.diff(given.times), limit) * given.present[passing]
    for row in np.flatnonzero(~regular & ~passing):
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
    unsliced = np.zeros(span.shape, np.bool_) if given.unsliced is None else given.unsliced
    return {
        "job": span * (held & ~shared & ~idle & ~unsliced),
        "shared": span * shared,
        "held_idle": span * (held & ~shared & idle & ~unsliced),
        "free": span * (~held & idle & ~unsliced),
        "not_sliced": span * unsliced,
        "unknown": span * (~held & ~idle & ~unsliced),
    }


def key(specification: Specification, jobs: list[ScheduledJob], plan: faults.FaultPlan, tallies: list[HostTally]) -> dict[str, Any]:
    """Return the answer key, ready for JSON.

    Ratios are in [0, 1], times in ms since 1970; `ledger` is in GPU-milliseconds and adds up to GPUs x window; `faults` has the
    verdict of each GPU; `jobs` leaves out time in which a GPU is shared, which stands under `shared`. Where devices change in time,
    a GPU's time is that from its first to its last sight, there are `hosts` and `clusters` like `jobs`, and a name that stands in several
    clusters has the cluster before it.
    """
    gpu, device, place, first, second = (
        np.concatenate([getattr(t, name) for t in tallies]) for name in ("gpu", "device", "place", "first", "second")
    )
    sums = np.concatenate([t.sums for t in tallies])
    spoilt = np.concatenate([t.spoilt for t in tallies])
    words = _verdicts(specification, plan, gpu, sums, spoilt)
    trusted = np.array([is_trusted(word) for word in words])[gpu] & ~spoilt
    start, end = specification.window
    total = specification.gpus * (end - start) if not specification.changes else round(float(sums[:, SUMS.index("window")].sum()))
    alone = second < 0
    clusters = np.unique(plan.clusters, return_inverse=True)[1][place]
    holders = np.stack([first, second, clusters])[:, trusted]
    figures = _group(device, sums, trusted) | {"trusted_chain": chain(device[trusted], holders, sums[trusted])}
    found: dict[str, Any] = {
        "window": {"start": start, "end": end},
        "gpus": specification.gpus,
        "gpu_hours": total / HOUR_MS,
        "seed": specification.seed,
        "fleet": figures,
        "jobs": _jobs(specification, jobs, (device, first, sums, trusted), alone, plan.clusters[place]),
        "shared": _shared(jobs, device, first, second, sums, trusted),
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
    if specification.changes:
        measured_chain = chain(device[trusted], holders, sums[trusted], MEASURED_CHAIN)
        found["fleet"] = figures | {"measured_chain": measured_chain}
        found |= {"changed": changes.describe(plan), **_by_place(plan.names_of_places, place, (device, sums, trusted))}
    return found


def _by_place(names: list[tuple[str, str]], place: npt.NDArray[np.int64], table: tuple[Any, ...]) -> dict[str, Any]:
    """Return the figures of each host and each cluster."""
    seen = {names[number] for number in np.unique(place).tolist()}
    several = {host for host in {host for _, host in seen} if len({cluster for cluster, other in seen if other == host}) > 1}
    hosts = np.array([f"{cluster}/{host}" if host in several else host for cluster, host in names])[place]
    clusters = np.array([cluster for cluster, _ in names])[place]
    return {
        key: {str(name): _group(*(column[words == name] for column in table)) for name in np.unique(words)}
        for key, words in (("hosts", hosts), ("clusters", clusters))
    }


def _verdicts(
    specification: Specification, plan: faults.FaultPlan, gpu: npt.NDArray[np.int64], sums: Array, spoilt: npt.NDArray[np.bool_]
) -> list[str]:
    """Return the verdict of each GPU: a fault whose time is known takes out no more than that time, up to half of the readings."""
    time = sums[:, OWNED].sum(axis=1)
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


def _jobs(
    specification: Specification,
    jobs: list[ScheduledJob],
    table: tuple[Any, ...],
    alone: npt.NDArray[np.bool_],
    clusters: npt.NDArray[np.str_],
) -> dict[str, Any]:
    gpu, first, sums, trusted = table
    models = host_models(specification)
    order = np.argsort(first, kind="stable")
    order = order[alone[order] & (first[order] >= 0)]
    cuts = np.searchsorted(first[order], np.arange(len(jobs) + 1))
    found = {}
    for number, job in enumerate(jobs):
        rows = order[cuts[number] : cuts[number + 1]]
        rows = rows[sums[rows, SUMS.index("window")] > 0]  # a job may hold what is not there any more
        if not len(rows):
            continue
        where = np.unique(clusters[rows]).tolist()
        for cluster in where:
            own = rows[clusters[rows] == cluster]
            found[job.name if len(where) == 1 else f"{cluster}/{job.name}"] = _group(gpu[own], sums[own], trusted[own]) | {
                "user": job.user,
                "name": job.family,
                "gpus": len(job.gpus),
                "model": device(models[int(job.gpus[0]) // specification.gpus_per_host]).model,
            }
    return found


def _shared(jobs: list[ScheduledJob], gpu: Any, first: Any, second: Any, sums: Array, trusted: Any) -> list[dict[str, Any]]:
    pairs = sorted({(int(a), int(b)) for a, b in zip(first[second >= 0], second[second >= 0], strict=True)})
    found = []
    for one, other in pairs:
        rows = (first == one) & (second == other)
        found.append({"jobs": [jobs[one].name, jobs[other].name]} | _group(gpu[rows], sums[rows], trusted[rows]))
    return found


def _group(gpu: npt.NDArray[np.int64], sums: Array, trusted: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Return the figures of a set of rows: OFU in three ways, GPU-hours, and the tree over all and over trusted readings."""
    whole = dict(zip((*SUMS, *MEASURED), sums.sum(axis=0), strict=False))
    measured = {}
    if "exact" in whole:
        measured = {
            "measured_ofu": _over(whole["measured_ofu"], whole["measured_known"]),
            "exact_share": _over(whole["exact"], whole["measured_known"]),
        }
    return measured | {
        "ofu": _over(whole["true"], whole["window"]),
        "sampled_ofu": _over(whole["ofu"], whole["known"]),
        "trusted_ofu": _over(float(sums[trusted, SUMS.index("ofu")].sum()), float(sums[trusted, SUMS.index("known")].sum())),
        "gpu_hours": float(sum(whole[owner] for owner in OWNERS)) / HOUR_MS,
        "trusted_gpu_hours": float(sums[trusted][:, OWNED].sum()) / HOUR_MS,
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


def chain(gpu: npt.NDArray[np.int64], jobs: npt.NDArray[np.int64], sums: Array, names_of_sums: tuple[str, ...] = CHAIN) -> dict[str, float]:
    """Return what is left after each step of a fleet's chain over what was before it: losses are computed inside each job and added.

    What nobody held is lost at the first step, what was held and idle at the second; of the rest each GPU of a job lacks what the job's
    busiest has, and each GPU that no job is known for is compared with itself. `jobs` is [3, rows]: who holds a GPU, -1 for nobody, and its
    cluster; what two jobs share is the work of the two together, beside what each does alone.
    """
    column = dict(zip((*SUMS, *MEASURED), sums.T, strict=False))
    known, gr, sm, tensor, ofu = (column[name] for name in names_of_sums)
    free, idle = column["free"] + column["not_sliced"], column["held_idle"]
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
