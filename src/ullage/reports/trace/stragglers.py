"""Which ranks, stages and operations hold a training job up, and what its step would take without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError
from ullage.metrics.stragglers import straggler_share, straggler_slowdown
from ullage.problems import Problems
from ullage.sums.pipeline import COMMUNICATION, TYPES, Dependencies, Mask, Operations, dependencies, operations, whole_steps
from ullage.sums.replay import Seconds
from ullage.sums.what_if import (
    OPERATION_NAMES,
    Peers,
    evened,
    ideal_durations,
    kept,
    lengths,
    recorded_step_times,
    step_times,
)
from ullage.views.shown import ShownByView

STRAGGLING = 1.1  # a slowdown from which on a job is said to have stragglers, and …
MOSTLY = 0.5  # … the share from which on something is its cause: both are the paper's
SLOWEST = 0.03  # of the workers, that are asked about together (the paper's eq. 5)


@dataclass(frozen=True)
class Slowdown:
    """How many times as long a step takes as without stragglers, if only these operations kept their own durations."""

    name: str
    slowdown: float


@dataclass(frozen=True)
class StragglerRank:
    """A rank with its place in the job; its slowdown is the lower one of its replica's and its stage's."""

    rank: int
    dp_rank: int
    stage: int
    slowdown: float


@dataclass(frozen=True)
class Cause:
    """What may hold the job up, of a `kind` (worker, stage, microbatches, communication, replica), and its share of the loss."""

    kind: str
    name: str
    share: float


@dataclass(frozen=True)
class StragglerStep:
    """A step's times in s: as recorded, replayed without unexplained gaps, and without stragglers; and its slowdown."""

    step: int
    recorded: float
    replayed: float
    ideal: float
    slowdown: float


@dataclass(frozen=True)
class StragglerReport(ShownByView, view="ullage.render.stragglers"):
    """What stragglers cost a job. Times are means over steps in s; shares are of `replayed` - `ideal`.

    `gaps` is how many times as long a step took as its replay: what no dependency explains. `cause` is the narrowest of `causes` that has
    half of the loss or more, None where there is none, or where the slowdown is below 1.1. Rows are sorted, the slowest first; steps and
    stages by number. A share is left out where nothing is lost.
    """

    peers: Peers
    slowdown: float
    recorded: float
    replayed: float
    ideal: float
    gaps: float
    replicas: tuple[Slowdown, ...]
    stages: tuple[Slowdown, ...]
    operations: tuple[Slowdown, ...]
    workers: tuple[StragglerRank, ...]
    causes: tuple[Cause, ...]
    cause: Cause | None
    steps: tuple[StragglerStep, ...]
    partial: bool
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether all operations could be used."""
        return not self.partial


def straggler_report(table: pa.Table, *, peers: Peers = "step", problems: Problems | None = None) -> StragglerReport:
    """Return what stragglers cost a job, from a table of `tables.OPERATIONS`.

    Raises UllageError where no step is whole, and for operations that can't have happened in the order recorded.
    """
    problems = problems or Problems()
    done = _whole(operations(table), problems)
    try:
        waits = dependencies(done)
    except ValueError as error:
        raise UllageError(f"the operations can't have run as recorded: {error}", "are the clocks of its ranks aligned?") from error
    return _Question(done, waits, peers).answer(problems)


def _whole(done: Operations, problems: Problems) -> Operations:
    whole = whole_steps(done)
    if not whole.any():
        raise UllageError(
            "no step is whole: each rank must have its passes, and a send or receive for each that needs one",
            "record all ranks of one tensor-parallel group; interleaved schedules need the model chunk of each pass",
        )
    problems.drop("steps of which something is missing", len(np.unique(done.step[~whole])))
    return done.at(whole)


class _Question:
    """One job's durations, recorded and ideal, and the mean step time of any mixture of them."""

    def __init__(self, done: Operations, waits: Dependencies, peers: Peers) -> None:
        self.done, self.waits, self.peers = done, waits, peers
        self.own = waits.durations
        self.ideal = ideal_durations(done, self.own, peers)
        self.times = self._times([self.own, self.ideal])
        self.replayed, self.least = (float(time) for time in self.times.mean(axis=0))

    def _times(self, cases: Sequence[Seconds]) -> Seconds:
        return step_times(self.done, self.waits, cases) / 1e9

    def slowdowns(self, masks: dict[str, Mask]) -> tuple[Slowdown, ...]:
        """Return what each of some sets of operations costs alone."""
        means = self._times([kept(mask, self.own, self.ideal) for mask in masks.values()]).mean(axis=0)
        return tuple(Slowdown(name, float(straggler_slowdown(mean, self.least))) for name, mean in zip(masks, means, strict=True))

    def answer(self, problems: Problems) -> StragglerReport:
        done = self.done
        replicas = self.slowdowns({str(k): done.dp_rank == k for k in np.unique(done.dp_rank)})
        stages = self.slowdowns({str(k): done.stage == k for k in np.unique(done.stage)})
        kinds = _by_operation(done)
        kind_rows = self.slowdowns(kinds)
        workers = _workers(done, replicas, stages)
        causes = tuple(self.causes(replicas, stages, kind_rows, kinds, workers))
        slowdown = float(straggler_slowdown(self.replayed, self.least))
        recorded = recorded_step_times(done) / 1e9
        return StragglerReport(
            self.peers,
            slowdown,
            float(recorded.mean()),
            self.replayed,
            self.least,
            float(straggler_slowdown(recorded.mean(), self.replayed)),
            _slowest(replicas),
            stages,
            _slowest(kind_rows),
            workers,
            causes,
            next((c for c in causes if c.share >= MOSTLY), None) if slowdown >= STRAGGLING else None,
            tuple(self.steps(recorded)),
            bool(problems.dropped),
            (*problems.lines(), *_notes(done, self.peers)),
        )

    def steps(self, recorded: Seconds) -> Iterator[StragglerStep]:
        for step, took, (replayed, ideal) in zip(np.unique(self.done.step), recorded, self.times, strict=True):
            yield StragglerStep(int(step), float(took), float(replayed), float(ideal), float(straggler_slowdown(replayed, ideal)))

    def causes(
        self,
        replicas: Sequence[Slowdown],
        stages: Sequence[Slowdown],
        kinds: Sequence[Slowdown],
        masks: dict[str, Mask],
        workers: Sequence[StragglerRank],
    ) -> Iterator[Cause]:
        """Yield what may be the cause, the narrowest first, with its share; nothing where nothing is lost."""
        done = self.done
        asked: list[tuple[str, str, Seconds]] = []
        if len(replicas) > 1:
            slow = workers[: -(-len(workers) * round(100 * SLOWEST) // 100)]
            ranks = np.isin(done.rank, [w.rank for w in slow])
            asked.append(("worker", ", ".join(str(w.rank) for w in slow), kept(~ranks, self.own, self.ideal)))
        if len(stages) > 1:
            for name in dict.fromkeys((_slowest(stages)[0].name, stages[-1].name)):
                asked.append(("stage", name, kept(done.stage != int(name), self.own, self.ideal)))
        long = lengths(done, self.own, self.peers)
        if long is not None:
            asked.append(("microbatches", "", evened(done, self.own, long, self.peers)))
        words = {OPERATION_NAMES[word] for word in COMMUNICATION}
        worst = next((row.name for row in _slowest(kinds) if row.name in words), None)
        if worst is not None:
            asked.append(("communication", worst, kept(~masks[worst], self.own, self.ideal)))
        if len(replicas) > 1 and len(stages) > 1:
            name = _slowest(replicas)[0].name
            asked.append(("replica", name, kept(done.dp_rank != int(name), self.own, self.ideal)))
        times = self._times([case for _, _, case in asked]).mean(axis=0) if asked else []
        for (kind, name, _), time in zip(asked, times, strict=True):
            share = straggler_share(self.replayed, float(time), self.least)
            if share is not None:
                yield Cause(kind, name, share)


def _by_operation(done: Operations) -> dict[str, Mask]:
    names: dict[str, list[str]] = {}
    for word in TYPES:
        names.setdefault(OPERATION_NAMES[word], []).append(word)
    masks = {name: done.of(*words) for name, words in names.items()}
    return {name: mask for name, mask in masks.items() if mask.any()}


def _workers(done: Operations, replicas: Sequence[Slowdown], stages: Sequence[Slowdown]) -> tuple[StragglerRank, ...]:
    """Return all ranks, the slowest first."""
    by_replica, by_stage = ({int(row.name): row.slowdown for row in rows} for rows in (replicas, stages))
    places = np.unique(np.column_stack((done.rank, done.dp_rank, done.stage)), axis=0).tolist()
    found = [StragglerRank(rank, replica, stage, min(by_replica[replica], by_stage[stage])) for rank, replica, stage in places]
    return tuple(sorted(found, key=lambda worker: (-worker.slowdown, worker.rank)))


def _slowest(rows: Sequence[Slowdown]) -> tuple[Slowdown, ...]:
    return tuple(sorted(rows, key=lambda row: -row.slowdown))


def _notes(done: Operations, peers: Peers) -> Iterator[str]:
    replicas, stages = len(np.unique(done.dp_rank)), len(np.unique(done.stage))
    if replicas == 1 and stages == 1:
        yield "there is one rank: it has no peers in its step"
    elif replicas == 1:
        yield "there is one replica: a slow rank can't be told from a stage with more work"
    elif stages == 1:
        yield "there is one stage: a rank with longer sequences can't be told from a slow one"
    if peers == "step":
        yield "an operation's peers are those of its type on all ranks in the same step; with --peers job in all steps"
    else:
        yield "an operation's peers are those of its type in all steps: a step with longer sequences counts as slow (--peers step: within)"
    yield "shares need not add up to 100 %: they overlap, and a rank that is faster than the average has a negative one"
