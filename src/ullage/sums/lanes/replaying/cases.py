"""How long a run would have taken: without late ranks, without communication, with its launches in graphs.

Each question is answered three times, of the same graph with other spans (`ullage.sums.lanes.replaying.waits`):

- *least*: only waits that are certain or inferred, and nothing of what they do not explain (delays of operations that began later than
  anything told, threads' gaps in which another may have handed over): no job with the same work can have taken less;
- *likely*: the same with likely handovers between threads, and unexplained delays as they were;
- *most*: all waits that are possible, and launches that something else hid as slow as the 95th percentile of the others.

As the durations of all three are alike and waits are only added from one to the next, the true time lies between the first and the last,
as far as what was not recorded (another process, the operating system) would not have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ullage.sums.lanes.gather import CALL, KIND
from ullage.sums.lanes.replaying.spans_of_work import ZERO
from ullage.sums.lanes.replaying.waits import RunWaits
from ullage.sums.lanes.spans import Times
from ullage.sums.replay import Seconds
from ullage.sums.wait_graph import NEVER, Numbers, moments

Bound = Literal["least", "likely", "most"]
Change = Literal["no_late_ranks", "no_communication", "launches_in_graphs"]
CHANGES: tuple[Change, ...] = ("no_late_ranks", "no_communication", "launches_in_graphs")
WITHIN_A_GRAPH = 1_000_000  # ns; the host's time between two launches that is longer is taken for work that a graph would not save
LONGEST_LATENCY = 100_000  # ns beyond the smallest; what began later than that after its launch waited for something else
_LAUNCHING = [CALL[word] for word in ("launch", "graph", "copy")]


@dataclass(frozen=True)
class ChangedTime:
    """How long a run would take with one thing changed, in ns: `least` (0: not known), `likely` (None: it cannot be told) and `most`."""

    change: Change
    least: int
    likely: int | None
    most: int


def changed_times(waits: RunWaits) -> tuple[ChangedTime, ...]:
    """Return the answers to all questions."""
    return tuple(_changed(waits, change) for change in CHANGES)


def _changed(waits: RunWaits, change: Change) -> ChangedTime:
    elapsed = waits.work.elapsed
    communicates = (waits.work.operations.kind == KIND["collective"]).any() or waits.work.calls.talked.any()
    if change == "launches_in_graphs" and not np.isin(waits.work.calls.sort, _LAUNCHING).any():
        return ChangedTime(change, elapsed, elapsed, elapsed)
    if change != "launches_in_graphs" and not communicates:
        several = len(np.unique(waits.work.operations.process)) > 1  # they wait for one another in a way that was not recorded
        least, likely = (0 if several else elapsed, None) if change == "no_late_ranks" else (elapsed, elapsed)
        return ChangedTime(change, least, likely, elapsed)
    if change == "no_late_ranks" and not comparable(waits):
        return ChangedTime(change, min(total(waits, spans(waits, "least", "no_communication")), elapsed), None, elapsed)
    least, likely, most = (total(waits, spans(waits, bound, change)) for bound in ("least", "likely", "most"))
    return ChangedTime(change, min(least, likely), likely, max(likely, most))


def comparable(waits: RunWaits) -> bool:
    """Return whether ranks can be compared: collectives of several were found."""
    return len(np.unique(waits.work.operations.process)) > 1 and bool((waits.work.group >= 0).any())


def total(waits: RunWaits, ns: Numbers) -> int:
    """Return when the last call or operation ends, ns after the origin."""
    return int(_ends(waits, ns, moments(waits.graph, ns)).max(initial=0))


def _ends(waits: RunWaits, ns: Numbers, came: Numbers) -> Numbers:
    return np.asarray(came[waits.graph.place[waits.leaves]] + ns[waits.lasts])


def unexplained(waits: RunWaits) -> float:
    """Return by which share of the elapsed time the run, replayed without its unexplained delays, is shorter (or longer) than recorded."""
    ns = spans(waits, "likely", None, delay=np.minimum(waits.spans.values["delay"], 0))
    return (waits.work.elapsed - total(waits, ns)) / waits.work.elapsed if waits.work.elapsed else 0.0


def spans(waits: RunWaits, bound: Bound, change: Change | None = None, **more: Times) -> Numbers:
    """Return the ns of all spans for one bound of the answer to a question (None: as recorded); `more` changes some sorts further."""
    recorded = waits.spans.values
    doubtful = {"least": waits.ambiguous, "likely": waits.handed, "most": np.zeros_like(waits.handed)}[bound]
    changed: dict[str, Times | int] = {
        "gap": np.where(doubtful, waits.common, recorded["gap"]),
        "talk": np.where(doubtful, 0, recorded["talk"]),
        "possible": ZERO if bound == "most" else NEVER,
        "likely": NEVER if bound == "least" else ZERO,
        "slack": waits.slack if bound == "most" else ZERO,
    }
    if bound == "least":
        changed |= {"delay": np.minimum(recorded["delay"], 0), "release": ZERO}
    if change is not None:
        now = {sort: np.broadcast_to(np.asarray(values, np.int64), recorded[sort].shape) for sort, values in (recorded | changed).items()}
        changed |= {"no_late_ranks": _evened, "no_communication": _silent, "launches_in_graphs": _graphed}[change](waits, bound, now)
    return waits.spans.joined(**(changed | more))


def _silent(waits: RunWaits, bound: Bound, now: dict[str, Times]) -> dict[str, Times]:  # noqa: ARG001 - others look at it
    """Collectives take no time of their own: ranks still wait for the last one to come. Communication of the host takes none at all."""
    return {
        "operation": np.where(waits.work.operations.kind == KIND["collective"], 0, now["operation"]),
        "talk": np.zeros_like(now["talk"]),
    }


def _graphed(waits: RunWaits, bound: Bound, now: dict[str, Times]) -> dict[str, Times]:
    """Launching costs the host nothing, and operations begin as soon as what they wait for on the device has ended.

    What the host does besides remains (most); vanishes, calls and all, but for waiting (least); vanishes between two launches that are no
    further apart than `WITHIN_A_GRAPH` (likely).
    """
    calls = waits.work.calls
    launches = np.isin(calls.sort, _LAUNCHING) & ~waits.waits
    free = launches | ~waits.waits if bound == "least" else launches
    gap = now["gap"]
    talk = np.zeros_like(gap) if bound == "least" else now["talk"]
    if bound == "least":
        gap = np.zeros_like(gap)
    elif bound == "likely":
        after = np.zeros(len(calls), bool)
        after[1:] = launches[:-1] & (calls.thread[1:] == calls.thread[:-1])
        gap = np.where(launches & after & (gap <= WITHIN_A_GRAPH), 0, gap)
    delay = np.where(waits.launch_bound & (now["delay"] <= LONGEST_LATENCY), np.minimum(now["delay"], 0), now["delay"])
    call = np.where(free, 0, now["call"])
    return {
        "call": call,
        "gap": gap,
        "talk": talk,
        "latency": np.minimum(now["latency"], 0),
        "slack": np.zeros_like(now["delay"]),
        "delay": delay,
    }


def _evened(waits: RunWaits, bound: Bound, now: dict[str, Times]) -> dict[str, Times]:  # noqa: ARG001 - others look at it
    """Between two collectives of all ranks, every rank computes as long as the mean of them does, on its device and on its host."""
    work, calls, ops = waits.work, waits.work.calls, waits.work.operations
    submitted = np.where(ops.call >= 0, calls.start[ops.call] if len(calls) else 0, ops.start)
    joint = (work.group >= 0) & np.append(work.everybodys, False)[work.group]
    stretch_of_op, stretch_of_call = np.zeros(len(ops), np.int64), np.zeros(len(calls), np.int64)
    for process in np.unique(ops.process).tolist():
        marks = np.sort(submitted[joint & (ops.process == process)])
        for stretch, who, when in ((stretch_of_op, ops.process, submitted), (stretch_of_call, calls.process, calls.start)):
            mine = who == process
            stretch[mine] = np.searchsorted(marks, when[mine])
    computes, hosted = ops.kind != KIND["collective"], ~waits.waits
    by_op = _to_mean(ops.process, stretch_of_op, np.where(computes, now["operation"], 0), ops.process)
    by_call = _to_mean(calls.process, stretch_of_call, now["gap"] + np.where(hosted, now["call"], 0), ops.process)
    return {
        "operation": np.where(computes, np.rint(now["operation"] * by_op), now["operation"]).astype(np.int64),
        "call": np.where(hosted, np.rint(now["call"] * by_call), now["call"]).astype(np.int64),
        "gap": np.rint(now["gap"] * by_call).astype(np.int64),
    }


def _to_mean(process: Times, stretch: Times, time: Times, all_of_them: Times) -> Seconds:
    """Return for each row by which factor its process' time in its stretch becomes the mean of all processes' in it."""
    users = np.unique(all_of_them)
    many, wide = int(max(users.max(initial=0), process.max(initial=0))) + 1, int(stretch.max(initial=0)) + 1
    times = np.bincount(process * wide + stretch, time, many * wide).reshape(many, wide)
    mean = times[users].mean(axis=0)
    factor = np.divide(mean, times, out=np.ones_like(times), where=times > 0)
    return np.asarray(factor[process, stretch])
