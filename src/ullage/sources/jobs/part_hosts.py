"""Who holds which GPU of a host where records say how many GPUs a job holds there, and not which.

At each reading of a host the GPUs that no label and no record gives to anybody are ranked: those that do something come first, then those
that did so most often while the same jobs ran, then the lower number. As many of them as the jobs hold between them belong to all of these
jobs together, the rest to nobody. So GPU-hours of jobs add up to what their records say, and those of a host's GPUs to the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

from ullage.job_names import joined_names, separate_names
from ullage.sources.jobs.line import MARGIN, HolderTimeline, Ints

Mask = npt.NDArray[np.bool_]
Share = tuple[tuple[str, int], ...]  # jobs, and how many GPUs of a host each holds
APART = 0.8  # of the usual time between two readings of a GPU: rows of a host that are closer together are one reading of it
ALONE_MS = 30_000  # that time for GPUs that were read once
SILENCE_MS = 60_000  # after a longer silence, and more than two of those times, a sample does not speak for all of it


@dataclass(frozen=True)
class PartHostJob:
    """A job that holds so many GPUs of a host (a number), from start to end (ms); None: from ever, for ever."""

    job: str
    host: int
    gpus: int
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class PartHostRows:
    """What is known of the GPUs of some hosts at some times: rows of samples, or whole readings of a GPU.

    `host` and `gpu` are numbers, the latter of all GPUs, a host's own in the order of their places; `time` is in ms; `busy` says whether
    the GPU did anything, and `name` which word names its holder, -1: none does.
    """

    host: Ints
    gpu: Ints
    time: Ints
    busy: Mask
    name: Ints


@dataclass
class _Words:
    """Words by number, each once."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, word: str) -> int:
        return self.numbers.setdefault(word, len(self.numbers))


def part_holders(rows: PartHostRows, parts: Sequence[PartHostJob], names: Sequence[str]) -> tuple[Ints, list[str]]:
    """Return who holds the GPU of each row by such records, as a number of the words beside; -1 is nobody.

    `names` are the words that name holders in the rows.
    """
    if not parts or not len(rows.time):
        return np.full(len(rows.time), -1, np.int64), []
    line, shares = _line(parts, int(rows.time.min()), int(rows.time.max()))
    readings, reading_of_row = _readings(rows)
    turn, since, usual = _turns(readings)
    absent, missed = _missed(readings, turn, since, usual)
    whose, turn = np.concatenate([np.arange(len(turn)), absent]), np.concatenate([turn, missed])
    share = line.at(readings.host[whose], np.concatenate([readings.time, since[missed]])).astype(np.int64)
    read = np.arange(len(whose)) < len(readings.time)
    held = share >= 0
    whose, turn, read, share = whose[held], turn[held], read[held], share[held]
    busy, gpu, name = readings.busy[whose], readings.gpu[whose], readings.name[whose]
    _, group = np.unique(turn * max(len(shares), 1) + share, return_inverse=True)
    words = _Words()
    room, word = _room(group, share, name, shares, names, words)
    order = np.lexsort((gpu, -_work(share, gpu, busy & read), ~busy, name >= 0, group))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    held = read & (name < 0) & (rank < room[group])
    found = np.full(len(readings.time), -1, np.int64)
    found[whose[held]] = word[group[held]]
    return found[reading_of_row], list(words.numbers)


def _line(parts: Sequence[PartHostJob], earliest: int, latest: int) -> tuple[HolderTimeline, list[Share]]:
    """Return which jobs hold how many GPUs of each host, as a line whose codes are numbers of the shares beside."""
    moments = [moment for part in parts for moment in (part.start, part.end) if moment is not None]
    if moments:  # as in `ullage.sources.jobs.line`: a stray time must not make the span huge
        earliest, latest = (min(max(end, min(moments)), max(moments) + 1) for end in (earliest, latest))
    first, span = earliest - 1, latest - earliest + MARGIN
    events = []
    for part in parts:
        start = first if part.start is None else max(part.start, first)
        end = latest if part.end is None else min(part.end, latest)
        if start < end:
            key = part.host * span + 1 - first
            events += [(part.host, start + key, part.job, part.gpus, 1), (part.host, end + key, part.job, part.gpus, -1)]
    events.sort()
    numbers: dict[Share, int] = {}
    keys, codes = [], []
    for _, of_host in groupby(events, key=lambda event: event[0]):
        active: Counter[tuple[str, int]] = Counter()
        for key, at_once in groupby(of_host, key=lambda event: event[1]):
            for _, _, job, gpus, change in at_once:
                active[job, gpus] += change
            active = +active
            most = dict(sorted(active))  # two records of one job tell of the same GPUs: the larger counts
            keys.append(key)
            codes.append(numbers.setdefault(tuple(most.items()), len(numbers)) if most else -1)
    return HolderTimeline(np.array(keys, np.int64), np.array(codes, np.int32), [], earliest, latest), list(numbers)


def _readings(rows: PartHostRows) -> tuple[PartHostRows, Ints]:
    """Return one row per GPU and time, by host and time, and which of them each row is of: rows complete each other."""
    order = np.lexsort((rows.gpu, rows.time, rows.host))
    host, time, gpu = rows.host[order], rows.time[order], rows.gpu[order]
    first = np.concatenate([[True], (host[1:] != host[:-1]) | (time[1:] != time[:-1]) | (gpu[1:] != gpu[:-1])])
    starts = np.flatnonzero(first)
    of_row = np.empty(len(order), np.int64)
    of_row[order] = np.cumsum(first) - 1
    busy, name = np.logical_or.reduceat(rows.busy[order], starts), np.maximum.reduceat(rows.name[order], starts)
    return PartHostRows(host[starts], gpu[starts], time[starts], busy, name), of_row


def _turns(readings: PartHostRows) -> tuple[Ints, Ints, Ints]:
    """Return the turn in which each reading was made, when each turn began, and the usual time between two.

    Turns are of one host, and their numbers rise with host and time. A turn is over when a GPU is read again, or when most of the usual
    time between two readings of a GPU has passed.
    """
    turn, usual = np.empty(len(readings.time), np.int64), np.empty(len(readings.time), np.int64)
    since: list[int] = []
    for start, end in pairwise(np.append(np.flatnonzero(np.diff(readings.host, prepend=-1)), len(turn)).tolist()):
        time, gpu = readings.time[start:end], readings.gpu[start:end]
        by_gpu = np.lexsort((time, gpu))
        steps = np.diff(time[by_gpu])[np.diff(gpu[by_gpu]) == 0]
        every = int(np.median(steps)) if len(steps) else ALONE_MS
        usual[start:end] = every
        begun = _begun(time, gpu, APART * every)
        turn[start:end] = len(since) + np.cumsum(begun) - 1
        since += time[begun].tolist()
    return turn, np.array(since, np.int64), usual


def _begun(time: Ints, gpu: Ints, apart: float) -> Mask:
    """Return where a turn of one host begins."""
    later = np.concatenate([[True], np.diff(time) > 0])
    if (np.diff(time[later]) >= apart).all():  # all GPUs are read at once
        return later
    begun = np.zeros(len(time), np.bool_)
    seen, first = set[int](), float("-inf")
    for row, (moment, whose) in enumerate(zip(time.tolist(), gpu.tolist(), strict=True)):
        if moment - first >= apart or whose in seen:
            begun[row], first = True, moment
            seen.clear()
        seen.add(whose)
    return begun


def _missed(readings: PartHostRows, turn: Ints, since: Ints, usual: Ints) -> tuple[Ints, Ints]:
    """Return the readings that speak for turns in which their GPU was not read, and these turns."""
    order = np.lexsort((readings.time, readings.gpu))
    skipped = np.where(np.diff(readings.gpu[order], prepend=-1) == 0, np.diff(turn[order], prepend=0) - 1, 0)
    absent = np.repeat(order, np.maximum(skipped, 0))
    back = np.arange(len(absent)) - np.repeat(np.cumsum(np.maximum(skipped, 0)) - np.maximum(skipped, 0), np.maximum(skipped, 0))
    missed = turn[absent] - 1 - back
    spoken = since[missed] > readings.time[absent] - np.maximum(SILENCE_MS, 2 * usual[absent])
    return absent[spoken], missed[spoken]


def _work(share: Ints, gpu: Ints, busy: Mask) -> Ints:
    """Return how often the GPU of each row did something while the same jobs held as much of its host."""
    _, place = np.unique(share * (int(gpu.max(initial=0)) + 1) + gpu, return_inverse=True)
    often: Ints = np.bincount(place, busy, int(place.max(initial=-1)) + 1).astype(np.int64)
    return often[place]


def _room(group: Ints, share: Ints, name: Ints, shares: Sequence[Share], names: Sequence[str], words: _Words) -> tuple[Ints, Ints]:
    """Return how many GPUs that nobody is named for each group of rows has for its jobs, and the number of their word.

    What names already give to one of these jobs it holds.
    """
    count = int(group.max(initial=-1)) + 1
    of_group = np.zeros(count, np.int64)
    of_group[group] = share
    totals = np.array([sum(gpus for _, gpus in jobs) for jobs in shares], np.int64)
    joined = np.array([words.number(joined_names(job for job, _ in jobs)) for jobs in shares], np.int64)
    room, word = totals[of_group], joined[of_group]
    for one, named in _named(group, share, name, shares, names):
        left = [(job, gpus - named[job]) for job, gpus in shares[of_group[one]] if gpus > named[job]]
        room[one], word[one] = sum(gpus for _, gpus in left), words.number(joined_names(job for job, _ in left))
    return room, word


def _named(group: Ints, share: Ints, name: Ints, shares: Sequence[Share], names: Sequence[str]) -> Iterator[tuple[int, Counter[str]]]:
    """Yield the groups in which a job of theirs is named for GPUs, and for how many each is."""
    rows = np.flatnonzero(name >= 0)
    both = {
        (code, word): {job for job, _ in shares[code]} & set(separate_names(names[word]))
        for code, word in set(zip(share[rows].tolist(), name[rows].tolist(), strict=True))
    }
    told = sorted((int(group[row]), word) for row in rows.tolist() if (word := both[int(share[row]), int(name[row])]))
    for one, jobs in groupby(told, key=lambda pair: pair[0]):
        yield one, Counter(job for _, several in jobs for job in several)
