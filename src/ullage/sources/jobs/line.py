"""A line of moments per device at which its holders change, and finding a sample's place on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from ullage.job_names import joined_names
from ullage.sources.jobs.record import Record

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
MARGIN = 3  # ms: one before the earliest time, one after the latest, and one between two devices


@dataclass(frozen=True)
class HolderTimeline:
    """Sorted keys (device × span + time) and, from each on, who holds the device: a number of `holders`.

    `holders` are job ids, several at once in one word (`job_names`); -1 is nobody. `earliest` and `latest` bound the times (ms).
    """

    keys: Ints
    codes: Codes
    holders: list[str]
    earliest: int
    latest: int

    def at(self, devices: npt.NDArray[np.integer], times: Ints) -> Codes:
        """Return who holds each device (by number) at each time (ms), as a number of `holders`; -1 is nobody."""
        if not len(self.keys):
            return np.full(len(times), -1, np.int32)
        span = self.latest - self.earliest + MARGIN
        since = np.clip(times, self.earliest, self.latest) - (self.earliest - 1)
        place = np.searchsorted(self.keys, devices.astype(np.int64) * span + since, side="right")
        return np.append(np.int32(-1), self.codes)[place]


def line(pairs: Sequence[tuple[Record, int]], earliest: int, latest: int) -> HolderTimeline:
    """Return the line of (record, device number) pairs for samples from `earliest` to `latest` (ms).

    A record holds its device for the times start < t <= end; without a start from ever, without an end for ever.

    >>> made = line([(Record("a", start=10, end=30), 0), (Record("b", start=20, end=40), 0)], earliest=0, latest=50)
    >>> [made.holders[code] if code >= 0 else None for code in made.at(np.zeros(6, int), np.array([10, 11, 20, 21, 31, 41]))]
    [None, 'a', 'a', 'a,b', 'b', None]
    """
    moments = [moment for record, _ in pairs for moment in (record.start, record.end) if moment is not None]
    if moments:  # nothing changes before the first and after the last: a stray time must not make the span huge
        earliest, latest = (min(max(end, min(moments)), max(moments) + 1) for end in (earliest, latest))
    first, span = earliest - 1, latest - earliest + MARGIN
    jobs = {job: number for number, job in enumerate(dict.fromkeys(record.job for record, _ in pairs))}
    rows = np.array(
        [(number, _after(record.start, first), _until(record.end, latest), jobs[record.job]) for record, number in pairs], np.int64
    )
    device, start, end, job = rows.reshape(-1, 4).T
    real = start < end  # also leaves out what lies before or after all samples
    order = np.lexsort((start[real], device[real]))
    device, start, end, job = (column[real][order] for column in (device, start, end, job))
    crowded = np.unique(device[1:][(device[1:] == device[:-1]) & (start[1:] < end[:-1])])
    shared = np.isin(device, crowded)
    begin, stop = device * span + (start - first) + 1, device * span + (end - first) + 1
    names = list(jobs)
    keys, codes = _alone(begin[~shared], stop[~shared], job[~shared])
    more, sets = _shared(begin[shared], stop[shared], job[shared], device[shared], names)
    keys, codes = np.concatenate([keys, more]), np.concatenate([codes, sets])
    order = np.argsort(keys, kind="stable")
    return HolderTimeline(keys[order], codes[order].astype(np.int32), names, earliest, latest)


def _after(start: int | None, first: int) -> int:
    return first if start is None else max(start, first)


def _until(end: int | None, latest: int) -> int:
    return latest if end is None else min(end, latest)


def _alone(begin: Ints, stop: Ints, job: Ints) -> tuple[Ints, Ints]:
    """Return the changes where never two records overlap: each begins and ends, and a beginning outdoes an end there."""
    keys = np.concatenate([begin, stop])
    order = np.lexsort((np.repeat([1, 0], len(begin)), keys))
    return keys[order], np.concatenate([job, np.full(len(job), -1)])[order]


def _shared(begin: Ints, stop: Ints, job: Ints, device: Ints, names: list[str]) -> tuple[Ints, Ints]:
    """Return the changes of devices that several records hold at once. Sets of jobs are added to `names`."""
    numbers = {name: number for number, name in enumerate(names)}
    ends = ((begin, 1), (stop, -1))
    events = sorted(
        event for key, change in ends for event in zip(device.tolist(), key.tolist(), job.tolist(), [change] * len(job), strict=True)
    )
    keys, codes = [], []
    for _, of_device in groupby(events, key=lambda event: event[0]):
        active: Counter[int] = Counter()  # one job may have two records that overlap
        for key, at_once in groupby(of_device, key=lambda event: event[1]):
            for _, _, number, change in at_once:
                active[number] += change
            holders = joined_names(names[number] for number, count in active.items() if count > 0)
            active = +active
            keys.append(key)
            codes.append(_number(holders, numbers, names))
    return np.array(keys, np.int64), np.array(codes, np.int64)


def _number(holders: str, numbers: dict[str, int], names: list[str]) -> int:
    """Return the number of a set of jobs, a new one when it is seen for the first time; nobody is -1."""
    if holders and holders not in numbers:
        numbers[holders] = len(names)
        names.append(holders)
    return numbers[holders] if holders else -1
