"""What each step of each process was fed, in tokens, and how long its kernels took: a longer sequence makes no slow worker.

Tokens are the indices looked up in an embedding table; of several tables (words, positions, types) the one looked up for the most tokens
counts. A kernel belongs to the step in which it was launched, whenever it ran; collectives are not counted, for they hold waiting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ullage.sums.lanes.gather import KIND, Capture, LaneRows
from ullage.sums.lanes.launches import launches
from ullage.sums.lanes.observed import holds
from ullage.sums.lanes.spans import NONE, Times
from ullage.sums.lanes.states import ProcessState, RegionOccurrences


@dataclass(frozen=True)
class Fed:
    """The steps of a process (one, the whole of its window, without profiler steps): `names`, the `tokens` of each, and the `time` in ns of
    its kernels, summed over streams; in a region, of what the process looked up and launched there."""

    process: int
    names: tuple[str, ...]
    tokens: Times
    time: Times


def fed(capture: Capture, processes: tuple[ProcessState, ...], region: str | None = None) -> tuple[Fed, ...]:
    """Return what each process was fed, in all or in a region; processes whose tokens are not known are left out."""
    looked = capture.host.of("lookup")
    return tuple(_fed(capture, looked, p, region) for p in processes if (looked.process == p.key[1]).any())


def _fed(capture: Capture, looked: LaneRows, process: ProcessState, region: str | None) -> Fed:
    number, steps = process.key[1], _steps(process)
    mine = looked.where(looked.process == number)
    mine = mine.where(mine.name == _most(mine))
    rows = capture.device
    rows = rows.where((rows.process == number) & (rows.kind == KIND["kernel"]))
    begun = launches(capture.calls, rows)
    launched = np.where(begun.known, begun.start, rows.start)
    tokens, time = mine.tokens, rows.end - rows.start
    if region is not None:
        inside = process.regions.get(region, NONE)
        tokens, time = np.where(holds(inside, mine.start), tokens, 0), np.where(holds(inside, launched), time, 0)
    return Fed(number, steps.names, _summed(steps, mine.start, tokens), _summed(steps, launched, time))


def _steps(process: ProcessState) -> RegionOccurrences:
    if process.steps is not None and len(process.steps.start):
        return process.steps
    first, last = process.window
    return RegionOccurrences(("",), np.array([first]), np.array([last]))


def _most(looked: LaneRows) -> int:
    tables, which = np.unique(looked.name, return_inverse=True)
    return int(tables[np.argmax(np.bincount(which, weights=looked.tokens))])


def _summed(steps: RegionOccurrences, when: Times, values: Times) -> Times:
    """Return the sum of values by the step that each is in; those in none are left out."""
    at = np.searchsorted(steps.start, when, side="right") - 1
    inside = (at >= 0) & (when < steps.end[at])
    total = np.zeros(len(steps.start), np.int64)
    np.add.at(total, at[inside], values[inside])
    return total
