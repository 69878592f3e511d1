"""How much faster a run were without late ranks, without communication, with its launches in graphs; and its critical path."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ullage.sums.lanes.collectives.matched import Matched
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.common import clock_lines
from ullage.sums.lanes.replaying.cases import ChangedTime, changed_times, comparable, unexplained
from ullage.sums.lanes.replaying.critical_path import CriticalPath, critical_path
from ullage.sums.lanes.replaying.run_work import RunWork, apart, run_work
from ullage.sums.lanes.replaying.waits import RunWaits, run_waits
from ullage.sums.lanes.run import Run


@dataclass(frozen=True)
class WhatIfSpeedup:
    """How many times as fast a run were with one thing changed: `factor` (None: it cannot be told), no less than `low` and no more than
    `high` (None: without bound); and the `time` that it would take, ns."""

    change: str
    factor: float | None
    low: float
    high: float | None
    time: ChangedTime


@dataclass(frozen=True)
class WhatIf:
    """What a replay of a run's `elapsed` ns says: the answers, the critical path, and how much to believe of them.

    `off` is by which share of the elapsed time the replay is shorter without the delays that no wait explains. `operations`, `calls` and
    `collectives` are how many it consists of, `recorded` how many waits for events are in the trace, `inferred` how many more are inferred,
    `alone` how many collectives were not found on other ranks.
    """

    elapsed: int
    off: float
    operations: int
    calls: int
    collectives: int
    recorded: int
    inferred: int
    alone: int
    speedups: tuple[WhatIfSpeedup, ...]
    path: CriticalPath
    notes: tuple[str, ...]


def what_if(run: Run, matched: Matched) -> WhatIf | None:
    """Return the answers for a run whose captures kept their work; None without any operation of a device, or collective of hosts."""
    works = [c.work for c in run.captures if c.work is not None]
    if len(works) < len(run.captures):
        return None
    of_hosts = match([replace(c, collectives=w.hosted) for c, w in zip(run.captures, works, strict=True)])
    work = run_work(run, (matched, of_hosts), works, clock_lines(run, matched.clocks))
    if work is None:
        return None
    waits, contradictions = _without_circles(work)
    work = waits.work
    return WhatIf(
        elapsed=work.elapsed,
        off=unexplained(waits),
        operations=len(work.operations),
        calls=int((work.calls.end > work.calls.start).sum()),
        collectives=int(work.group.max(initial=-1)) + 1,
        recorded=waits.recorded,
        inferred=waits.inferred,
        alone=work.alone,
        speedups=tuple(_speedup(work.elapsed, time) for time in changed_times(waits)),
        path=critical_path(waits),
        notes=(*_notes(work, waits), *contradictions),
    )


def _without_circles(work: RunWork) -> tuple[RunWaits, list[str]]:
    """Return the graph of a run, and what had to be left out so that nothing in it waits for itself."""
    try:
        return run_waits(work), []
    except ValueError:
        alone = apart(work)
    try:
        return run_waits(alone), ["ranks' collectives wait for one another in a circle: each rank's are replayed as its own"]
    except ValueError:
        return run_waits(alone, forward=True), ["calls and operations contradict one another: waits for what came later are left out"]


def _speedup(elapsed: int, time: ChangedTime) -> WhatIfSpeedup:
    def over(ns: int | None) -> float | None:
        return elapsed / ns if ns else None

    return WhatIfSpeedup(time.change, over(time.likely), over(time.most) or 1.0, over(time.least), time)


def _notes(work: RunWork, waits: RunWaits) -> list[str]:
    found = []
    if not work.comparable:
        found.append("the captures' clocks can't be compared: each is replayed on its own, from its first moment")
    elif work.alone and not comparable(waits):
        found.append("collectives of one rank alone: how much of their time is waiting for others is not known, so it all counts as theirs")
    elif len(np.unique(work.operations.process)) > 1 and not comparable(waits):
        found.append("no collective was found on several ranks: who comes late is not known")
    return found
