"""What a fleet did, tick by tick: short, slow, and meant to be checked by reading.

`walk` cuts the fleet into parts: one device (a GPU, a slice, or what is not sliced) in one tick. No sample,
no start or end of a job and no hour falls inside a tick, so nothing changes in it. Every answer is a sum over
parts; ratios come last.

Source: equations.md, sections 1, 2 and 6. Where they leave a choice open, it is a field of `Choices`, or the
place says "Choice:". Times are whole seconds, clocks Hz, activities in [0, 1].
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Any, NamedTuple, NotRequired, TypedDict

Row = dict[str, Any]
Where = tuple[int, str, str, str]  # hour, cluster, host, model
Gauge = Any  # a float, or None: nobody measured it
TENSOR_CLOCK = {"H100 SXM": 1.830e9, "A100 SXM 80GB": 1.410e9}  # Hz; eq. 6, and the A100 datasheet
OWNERS = ("job", "shared", "held idle", "free", "not sliced", "unknown")
WORK = ("job", "shared", "unknown")  # the owners whose time goes through the five steps of a job, where it is known
STEPS = ("not allocated", "held idle", "load balance", "activity", "SM fill", "tensor issue", "clock")
ACTIVITY = ("engine_active", "sm_active", "tensor_active", "busy")  # gauges that say whether anything ran
COUNTERS = ("tensor_cycles", "sm_cycles")
KEYS = ("job", "user", "host", "cluster", "namespace", "model", "hour")


class Fleet(TypedDict):
    """The input. Both sides of the comparison read it; the generator writes it."""

    window: tuple[int, int]  # start, end
    tick: int  # seconds; every time below, the window, the hours and the gap limit are multiples of it
    scrape: int  # seconds between two samples of a device
    gap: int  # the longest time that a sample stands for
    samples: list[Row]  # one per (time, reading source[, job label])
    jobs: list[Row]  # job, user, gpus [(cluster, host, index or None for the whole host)], start, end
    inventory: NotRequired[list[Row]]  # cluster, host, index, uuid, model, start, end


@dataclass(frozen=True)
class Choices:
    """What equations.md leaves open. The report lists the alternatives."""

    idle_below: float = 0.005  # a device is idle while every gauge of activity that anybody read is below this
    slices_per_gpu: int = 7  # an instance "2g" weighs 2/7 of its GPU
    last_stands: int | None = None  # how long a GPU's last sample stands; None: one scrape interval
    labels_first: bool = True  # job records count only where no label names a job; False: both count
    unsliced_is_exact: bool = False  # what is not sliced does no tensor work; True: that zero is exact
    merge_missing: bool = True  # a missing gauge merges two steps; False: such time leaves the chain


class Part(NamedTuple):
    """One device in one tick: where it was, whose, and what it did."""

    hour: int
    cluster: str
    host: str
    model: str
    device: tuple[Any, ...]  # GPU and instance
    seconds: float  # GPU-seconds: the tick times the part's share of the GPU
    owner: str
    job: str | None = None
    user: str | None = None
    namespace: str | None = None
    activity: Gauge = None
    sm: Gauge = None
    tensor: Gauge = None
    ofu: Gauge = None
    exact: bool = False


def gpu_identity(row: Row) -> Any:
    """The UUID, or else the place: cluster, host, index."""
    return row["uuid"] or (row["cluster"], row["host"], row["index"])


def same_slice(one: Row, other: Row) -> bool:
    """An instance that comes back with another profile is another instance."""
    return (one["mig_instance"], one["mig_profile"]) == (other["mig_instance"], other["mig_profile"])


def joined(names: set[Any]) -> str | None:
    """Choice: time that two jobs (users, namespaces) share belongs to the group "a+b" and is not split."""
    return "+".join(sorted(names - {None})) or None


def holders(rows: list[Row], jobs: list[Row], time: int, choices: Choices) -> set[tuple[str, str | None]]:
    """Who holds a device in a tick: (job, user). Choice: labels first, records where no label names a job."""
    users = {record["job"]: record["user"] for record in jobs}
    places = {(rows[0]["cluster"], rows[0]["host"], index) for index in (rows[0]["index"], None)}
    labels = {(row["job"], row["user"] or users.get(row["job"])) for row in rows if row["job"]}
    records = {
        (record["job"], record["user"])
        for record in jobs
        if record["start"] <= time < record["end"] and places & {tuple(gpu) for gpu in record["gpus"]}
    }
    return labels if labels and choices.labels_first else labels | records


def owner_kind(now: Row, jobs: set[str], choices: Choices) -> str:
    """Choice: idle is decided tick by tick, and where any gauge says that something ran, something ran."""
    read = [now[gauge] for gauge in ACTIVITY if now[gauge] is not None]
    idle = bool(read) and max(read) < choices.idle_below
    if not jobs:
        return "free" if idle else "unknown"  # something runs, and nobody knows whose it is
    return "shared" if len(jobs) > 1 else "held idle" if idle else "job"


def increase(now: Row, later: Row | None, field: str) -> Gauge:
    """How far a counter rose. None unless it was read at both ends and did not fall (a reset)."""
    ends: tuple[Gauge, Gauge] = (now[field], later[field]) if later else (None, None)
    return None if None in ends or ends[1] < ends[0] else ends[1] - ends[0]


def measured(now: Row, later: Row | None, clock: Gauge, seconds: int, choices: Choices) -> tuple[Gauge, Gauge, Gauge, Gauge, bool]:
    """Activity, SM activity, tensor activity, OFU, is it exact. Cycles where counted, gauges elsewhere.

    Choice: where a gauge is missing, two steps of the chain merge; the earlier one carries the loss of both.
    """
    peak, work, cycles = TENSOR_CLOCK[now["model"]], *(increase(now, later, key) for key in COUNTERS)
    exact = work is not None and bool(cycles)
    tensor = work / cycles if exact else now["tensor_active"]
    sampled = None if tensor is None or clock is None else tensor * clock / peak
    sm = tensor if now["sm_active"] is None and choices.merge_missing else now["sm_active"]
    activity = sm if now["engine_active"] is None and choices.merge_missing else now["engine_active"]
    return activity, sm, tensor, work / (peak * seconds) if exact else sampled, exact


def parts_of_gpu(
    where: Where, rows: list[Row], later: list[Row], seconds: int, time: int, fleet: Fleet, choices: Choices
) -> Iterator[Part]:
    """One GPU in one tick: `rows` is its last scrape, `later` its next one, `seconds` the time between."""
    parent_clock = next((row["sm_clock"] for row in rows if row["mig_instance"] is None), None)
    slice_seconds, rest = fleet["tick"] / choices.slices_per_gpu, choices.slices_per_gpu
    for instance in {row["mig_instance"] for row in rows} - {None} or {None}:  # a sliced GPU is its slices
        own = [row for row in rows if row["mig_instance"] == instance]
        now, after = own[0], next((row for row in later if same_slice(row, own[0])), None)
        slices = choices.slices_per_gpu if instance is None else int(now["mig_profile"].split("g.")[0])
        rest -= slices
        held = holders(own, fleet["jobs"], time, choices)
        jobs, users = {job for job, _ in held}, {user for _, user in held}
        clock = parent_clock if now["sm_clock"] is None else now["sm_clock"]
        yield Part(
            *where,
            (gpu_identity(now), instance, now["mig_profile"]),
            slices * slice_seconds,
            owner_kind(now, jobs, choices),
            joined(jobs),
            joined(users),
            joined({row["namespace"] for row in own}),
            *measured(now, after, clock, seconds, choices),
        )
    if rest > 0:
        yield Part(*where, ("rest",), rest * slice_seconds, "not sliced", ofu=0.0, exact=choices.unsliced_is_exact)


def walk(fleet: Fleet, choices: Choices = Choices()) -> Iterator[Part]:
    """All parts of a fleet. Choice: a GPU exists from first to last sight, or as an inventory says."""
    (start, end), gap, inventory = fleet["window"], fleet["gap"], fleet.get("inventory", [])
    stands = fleet["scrape"] if choices.last_stands is None else choices.last_stands
    scrapes: dict[Any, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in fleet["samples"]:
        scrapes[gpu_identity(row)][row["time"]].append(row)
    for gpu in scrapes.keys() | {gpu_identity(entry) for entry in inventory}:
        times, listed = sorted(scrapes[gpu]), [entry for entry in inventory if gpu_identity(entry) == gpu]
        lives = [(entry["start"], entry["end"]) for entry in listed] + [(t, t + stands) for t in times]
        for time in range(max(start, min(lives)[0]), min(end, max(last for _, last in lives)), fleet["tick"]):
            seen = bisect_right(times, time) - 1  # the last scrape at or before this tick; -1: none yet
            rows = scrapes[gpu][times[seen]] if seen >= 0 else listed
            where = (time // 3600, rows[0]["cluster"], rows[0]["host"], rows[0]["model"])
            until = (times[seen + 1 :] or [times[-1] + stands])[0] if seen >= 0 else None
            if until is None or time >= min(until, times[seen] + gap):
                yield Part(*where, (gpu,), fleet["tick"], "unknown")  # Choice: whatever a job record says
            else:  # Choice: cycles counted over a silence are not used
                later = scrapes[gpu].get(until, []) if until <= times[seen] + gap else []
                yield from parts_of_gpu(where, rows, later, until - times[seen], time, fleet, choices)


def ratio(numerator: float, denominator: float) -> float | None:
    """Missing is not zero: no denominator, no value."""
    return numerator / denominator if denominator else None


def in_chain(part: Part) -> bool:
    """Choice: the chain is over the time whose OFU is known, as the headline is, so that it ends there."""
    return part.ofu is not None and (part.owner not in WORK or None not in (part.activity, part.sm))


def team(part: Part) -> Any:
    """What works on one thing: a job of one cluster; where no job is known, each device for itself."""
    return (part.cluster, part.job) if part.job else part.device


def busiest(parts: list[Part]) -> dict[Any, float]:
    """max_g G of each job. Choice: g is a GPU or a slice; its mean is over its own time in the job."""
    work: dict[tuple[Any, Any], list[Part]] = defaultdict(list)
    for part in parts:
        if part.owner in WORK and in_chain(part):
            work[team(part), part.device].append(part)
    means = {who: fsum(part.seconds * part.activity for part in own) / fsum(part.seconds for part in own) for who, own in work.items()}
    return {job: max(mean for (other, _), mean in means.items() if other == job) for job, _ in means}


def losses(part: Part, top: dict[Any, float]) -> dict[str, float]:
    """GPU-seconds that each step costs in one part. Over a job they sum to section 6's loss_i(job)."""
    if part.owner not in WORK:
        return {"held idle" if part.owner == "held idle" else "not allocated": part.seconds * (1 - part.ofu)}
    balance = part.activity / top[team(part)] if top[team(part)] else 1.0  # Choice: equal zeros balance
    left = (1.0, balance, part.activity, part.sm, part.tensor, part.ofu)  # before the first step, after each
    return {step: part.seconds * (left[i] - left[i + 1]) for i, step in enumerate(STEPS[2:])}


def totals(parts: list[Part], top: dict[Any, float]) -> Row:
    """The sums of any set of parts, and their ratios."""
    known = [part for part in parts if part.ofu is not None]
    chain = [part for part in parts if in_chain(part)]
    known_seconds, lost = fsum(part.seconds for part in known), [losses(part, top) for part in chain]
    return {
        "gpu_seconds": fsum(part.seconds for part in parts),
        "owners": {kind: fsum(part.seconds for part in parts if part.owner == kind) for kind in OWNERS},
        "known_seconds": known_seconds,
        "ofu": ratio(fsum(part.seconds * part.ofu for part in known), known_seconds),
        "exact_share": ratio(fsum(part.seconds for part in known if part.exact), known_seconds),
        "chain_seconds": fsum(part.seconds for part in chain),
        "losses": {step: fsum(each.get(step, 0.0) for each in lost) for step in STEPS},
    }


def parts_of(fleet: Fleet, choices: Choices = Choices()) -> list[Part]:
    """What `walk` finds; parts that agree in everything but their seconds are one, since every answer is a sum over seconds."""
    seconds: dict[Part, list[float]] = defaultdict(list)
    for part in walk(fleet, choices):
        seconds[part._replace(seconds=0.0)].append(part.seconds)
    return [part._replace(seconds=fsum(times)) for part, times in seconds.items()]


def reference(fleet: Fleet, choices: Choices = Choices()) -> Row:
    """The answers: {"fleet": totals, "job": {job: totals, None: no job}, "user": {...}, …}: all of KEYS."""
    parts = parts_of(fleet, choices)
    top = busiest(parts)
    by_key = {
        key: {name: totals([part for part in parts if getattr(part, key) == name], top) for name in {getattr(part, key) for part in parts}}
        for key in KEYS
    }
    return {"fleet": totals(parts, top)} | by_key
