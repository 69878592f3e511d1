"""What if some operations of a training job took as long as their peers' do? Durations by case, and the step times that follow.

The peers of an operation are those of its type on all ranks: within one step (`step`), or in all steps of the job (`job`, as in Lin et
al., "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025). A step that is longer for everybody, because
its sequences are, makes nobody a straggler within the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ullage.sums.pipeline import BACKWARD, COMMUNICATION, FORWARD, TYPES, Dependencies, Mask, Operations, numbered
from ullage.sums.replay import Indices, Seconds, replay

Peers = Literal["step", "job"]
AT_ONCE = 1 << 22  # numbers of one array while cases are replayed together


def ideal_durations(done: Operations, durations: Seconds, peers: Peers) -> Seconds:
    """Return each operation's duration as its peers have it: the mean of what a rank does for itself, the median of communication (whose
    mean a single retransmission spoils). `durations` has one for each operation, in any unit."""
    key = numbered(done.type, done.step) if peers == "step" else numbered(done.type)
    counts = np.bincount(key)
    means = np.bincount(key, durations) / counts
    return np.where(done.of(*COMMUNICATION), _median(durations, key)[key], means[key])


def lengths(done: Operations, durations: Seconds, peers: Peers) -> Seconds | None:
    """Return how many times as long as its peers each pass is because of its *microbatch*; 1 for all else. None with a single stage.

    A microbatch of longer sequences takes longer on every stage and in both directions; a slow rank is slow in one stage, a slow replica
    in all of its microbatches. So the length of a microbatch is the (lower) median over stages and directions of its duration, relative
    to the median of the same chunk's passes, and relative to what is usual in its replica.
    """
    passes = np.flatnonzero(done.of(FORWARD, BACKWARD))
    if len(np.unique(done.stage[passes])) < 2:
        return None
    some = done.at(passes)
    chunk = numbered(some.type, some.chunk, some.step) if peers == "step" else numbered(some.type, some.chunk)
    usual = _median(durations[passes], chunk)[chunk]
    relative = np.divide(durations[passes], usual, out=np.ones(len(passes)), where=usual > 0)
    microbatch = numbered(some.step, some.dp_rank, some.microbatch)
    own = _lower_median(relative, microbatch)[microbatch]
    replica = numbered(some.dp_rank)
    found = np.ones(len(done))
    found[passes] = own / _median(own, replica)[replica]
    return found


def evened(done: Operations, durations: Seconds, lengths: Seconds, peers: Peers) -> Seconds:
    """Return durations as they were if all microbatches (of a step; of the job) were of the mean length."""
    key = done.step if peers == "step" else np.zeros_like(done.step)
    passes = done.of(FORWARD, BACKWARD)
    group = numbered(key, passes.astype(np.int64))
    mean = np.bincount(group, lengths) / np.bincount(group)
    return np.where(passes, durations * mean[group] / lengths, durations)


def step_times(done: Operations, waits: Dependencies, cases: Sequence[Seconds]) -> Seconds:
    """Return how long each step takes in each case of durations: shape (steps, cases), steps in ascending order, the durations' unit."""
    _, first = np.unique(done.step, return_index=True)
    many = max(AT_ONCE // max(len(done), 1), 1)
    parts = [
        np.maximum.reduceat(replay(waits.graph, np.column_stack(cases[at : at + many])).end, first, axis=0)
        for at in range(0, len(cases), many)
    ]
    return np.concatenate(parts, axis=1)


def recorded_step_times(done: Operations) -> Seconds:
    """Return how long each step took as recorded, from its first operation's start to its last one's end, in ns."""
    _, first = np.unique(done.step, return_index=True)
    return (np.maximum.reduceat(done.end, first) - np.minimum.reduceat(done.start, first)).astype(np.float64)


def kept(mask: Mask, durations: Seconds, ideal: Seconds) -> Seconds:
    """Return durations that are ideal but where `mask`."""
    return np.where(mask, durations, ideal)


def _median(values: Seconds, key: Indices) -> Seconds:
    """Return the median of the values of each key."""
    order, first, counts = _ordered(values, key)
    low, high = values[order[first + (counts - 1) // 2]], values[order[first + counts // 2]]
    return np.asarray((low + high) / 2, np.float64)


def _lower_median(values: Seconds, key: Indices) -> Seconds:
    order, first, counts = _ordered(values, key)
    return np.asarray(values[order[first + (counts - 1) // 2]], np.float64)


def _ordered(values: Seconds, key: Indices) -> tuple[Indices, Indices, Indices]:
    counts = np.bincount(key)
    return np.lexsort((values, key)), np.cumsum(counts) - counts, counts


OPERATION_NAMES = {  # a send and its receive are one transfer
    **{word: word for word in TYPES},
    "forward-send": "forward transfer",
    "forward-recv": "forward transfer",
    "backward-send": "backward transfer",
    "backward-recv": "backward transfer",
}
