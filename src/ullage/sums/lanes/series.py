"""Times of many short windows at once: a run's sums step by step, without a loop over the spans of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.sums.lanes.run import Run
from ullage.sums.lanes.spans import Spans, Times, within
from ullage.sums.lanes.states import Key, RegionOccurrences
from ullage.totals import DeviceTotals, HostTotals

MOST = 10_000  # steps that are looked at one by one
Table = npt.NDArray[np.int64]  # a row a process or device, a column a step


@dataclass(frozen=True)
class Series:
    """The steps that all processes of a run went through, in order: `names`, and each step's totals.

    `start` and `end` are the first process' (ns); `skipped` counts steps that not all processes have, `more` those beyond `MOST`.
    """

    names: tuple[str, ...]
    start: Times
    end: Times
    host: tuple[HostTotals, ...]
    device: tuple[DeviceTotals, ...]
    skipped: int
    more: int = 0


def steps(run: Run) -> Series | None:
    """Return the totals of each profiler step, None when there are none."""
    return _series(run, {p.key: p.steps for p in run.processes if p.steps is not None})


def occurrences(run: Run, region: str) -> Series | None:
    """Return the totals of each occurrence of a region, None when it never occurs (or too often to be kept)."""
    return _series(run, {p.key: p.occurrences[region] for p in run.processes if region in p.occurrences})


def _series(run: Run, found: dict[Key, RegionOccurrences]) -> Series | None:
    found = {key: step for key, step in found.items() if len(step.start)}
    if not found:
        return None
    first = next(iter(found.values()))
    places = {key: _places(first, step) for key, step in found.items()}
    shared = [n for n in range(len(first.start)) if all(n in at for at in places.values())]
    skipped, more = max(len(step.start) for step in found.values()) - len(shared), max(len(shared) - MOST, 0)
    shared = shared[:MOST]
    windows = {
        key: (step.start[[places[key][n] for n in shared]], step.end[[places[key][n] for n in shared]]) for key, step in found.items()
    }
    return Series(
        names=tuple(first.names[n] for n in shared),
        start=first.start[shared],
        end=first.end[shared],
        host=_hosts(run, windows, len(shared)),
        device=_devices(run, windows, len(shared)),
        skipped=skipped,
        more=more,
    )


def _places(first: RegionOccurrences, step: RegionOccurrences) -> dict[int, int]:
    """Return where the steps of one process are among another's: by their names where these tell them apart, else by their order."""
    if len(set(first.names)) == len(first.names) and len(set(step.names)) == len(step.names):
        there = {name: place for place, name in enumerate(step.names)}
        return {n: there[name] for n, name in enumerate(first.names) if name in there}
    return {n: n for n in range(min(len(first.start), len(step.start)))}


_Windows = dict[Key, tuple[Times, Times]]


def _hosts(run: Run, windows: _Windows, count: int) -> tuple[HostTotals, ...]:
    mine = [p for p in run.processes if p.key in windows]
    elapsed = _rows([windows[p.key][1] - windows[p.key][0] for p in mine], count)
    offload = _rows([within(p.offload, *windows[p.key]) for p in mine], count)
    talk = _rows([within(p.communication, *windows[p.key]) for p in mine], count)
    talk = talk + _rows([within(p.recorder, *windows[p.key]) for p in mine], count)  # no useful time either
    off = _rows([within(p.off, *windows[p.key]) for p in mine], count)
    longest = elapsed.max(axis=0)
    return tuple(
        HostTotals(
            processes=len(mine),
            elapsed=int(longest[n]),
            useful_time=int((elapsed - offload - talk - off)[:, n].sum()),
            off_time=int(off[:, n].sum()),
            offload_time=int(offload[:, n].sum()),
            max_busy_time=int((elapsed - talk)[:, n].max()),
        )
        for n in range(count)
    )


def _devices(run: Run, windows: _Windows, count: int) -> tuple[DeviceTotals, ...]:
    """Return each step's device totals; a device that several processes share is looked at in its first owner's steps."""
    mine = [(d, next(key for key in d.owners if key in windows)) for d in run.devices if any(key in windows for key in d.owners)]
    if not mine:
        return ()

    def ran(sets: Sequence[Spans]) -> Table:
        return _rows([within(s, *windows[key]) for s, (_, key) in zip(sets, mine, strict=True)], count)

    kernel, collective = ran([d.kernel for d, _ in mine]), ran([d.collective for d, _ in mine])
    memory = ran([d.memory for d, _ in mine])
    elapsed = _rows([end - start for start, end in windows.values()], count).max(axis=0)
    moved = None if any(d.transfer is None for d, _ in mine) else kernel + ran([d.transfer for d, _ in mine if d.transfer is not None])
    return tuple(
        DeviceTotals(
            devices=len(mine),
            elapsed=int(elapsed[n]),
            kernel_time=int(kernel[:, n].sum()),
            collective_time=int(collective[:, n].sum()),
            memory_time=int(memory[:, n].sum()),
            max_kernel_time=int(kernel[:, n].max()),
            max_kernel_collective_time=int((kernel + collective)[:, n].max()),
            max_active_time=int((kernel + collective + memory)[:, n].max()),
            max_kernel_transfer_time=None if moved is None else int(moved[:, n].max()),
        )
        for n in range(count)
    )


def _rows(rows: list[Times], count: int) -> Table:
    return np.array(rows, np.int64).reshape(len(rows), count)
