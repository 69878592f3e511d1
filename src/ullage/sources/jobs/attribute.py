"""Who held the device: job records joined to samples, once, at intake.

A sample at time t stands for the time before it, so it belongs to a job with start < t <= end. Labels win: where a
sample already names a job, records add only the job's user. Nothing is joined as tables: each device's records
become a line of moments at which its holders change, and every sample finds its place on that line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import harmless
from ullage.field import ACTIVITY, IDLE
from ullage.job_names import escaped_name, joined_names, separate_names
from ullage.problems import Problems
from ullage.sources.jobs.line import Codes, HolderTimeline, Ints, line
from ullage.sources.jobs.part_hosts import PartHostRows, part_holders
from ullage.sources.jobs.places import DeviceHolders, JobDevice, directory, meant, note_jobs
from ullage.sources.jobs.record import Record, records

_ROWS = 1 << 22  # rows at a time: what is held beside the table stays in the low hundreds of MB
_WHO = ("cluster", "host", "index", "gpu", "mig")
Words = list[str | None]


@dataclass
class JobsSeen:
    """The jobs that samples were found for, piece after piece, and those of which there is something to say."""

    found: set[str] = field(default_factory=set)
    remarks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, found: set[str], remarks: Mapping[str, set[str]]) -> None:
        """Add what a piece has shown."""
        self.found |= found
        for what, jobs in remarks.items():
            self.remarks[what] |= jobs


def attribute(samples: pa.Table, jobs: pa.Table, problems: Problems, seen: JobsSeen | None = None) -> pa.Table:
    """Return the samples with `job` and `user` filled from the records where they have none; nothing else changes.

    `samples`: a table with the columns of `tables.SAMPLES`, rows in any order, partial rows welcome; all devices of a
    host at once, since a whole host's GPUs are counted here. `jobs`: a table of `tables.JOBS`. Several jobs at once on
    a device are joined by `job_names.joined_names`, and so are their users. Jobs that match no sample are counted in a note; a caller
    that brings the samples in pieces gives `seen`, to which what was found is added, and calls `note_seen` at the end.
    """
    if not samples.num_rows or not jobs.num_rows:
        return samples
    samples, told = _encoded(samples), records(jobs)
    devices, people = _devices(samples)
    ends = pc.min_max(samples["time"].cast(pa.int64()))
    holders = meant(told, directory(people), problems)
    held = line(holders.pairs, ends["min"].as_py(), ends["max"].as_py())
    filled, found = _filled(samples, devices, held, holders, told)
    total = JobsSeen() if seen is None else seen
    total.add(found, holders.remarks)
    if seen is None:
        note_seen(jobs, total, problems)
    return filled


def _filled(
    samples: pa.Table, devices: Sequence[Codes], held: HolderTimeline, holders: DeviceHolders, told: Sequence[Record]
) -> tuple[pa.Table, set[str]]:
    """Return the samples with their jobs and users, and the jobs that any sample has."""
    users = _vocabulary(samples["user"])
    words, job_old, job_new = _merged(_vocabulary(samples["job"]), held.holders)
    named = []
    for piece, device in zip(_pieces(samples), devices, strict=True):
        job = job_old[_codes(piece["job"])]
        named.append(np.where(job >= 0, job, job_new[held.at(device, _times(piece))]))
    shared, more = _shared(samples, devices, named, holders, words)
    job_words, job_old, job_more = _merged([*words], more)
    user_words, user_old, user_new = _merged(users, _users(job_words, told))
    count = np.zeros(len(job_words) + 1, np.int64)
    parts: tuple[list[pa.Array], list[pa.Array]] = ([], [])
    for piece, one, other in zip(_pieces(samples), named, shared, strict=True):
        job, user = np.where(one >= 0, job_old[one], job_more[other]), user_old[_codes(piece["user"])]
        user = np.where(user >= 0, user, user_new[job])
        count += np.bincount(job + 1, minlength=len(count))
        for part, codes, vocabulary in ((parts[0], job, job_words), (parts[1], user, user_words)):
            part.append(pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(vocabulary, pa.string())))
    for name, part in zip(("job", "user"), parts, strict=True):
        samples = samples.set_column(samples.schema.get_field_index(name), samples.schema.field(name), pa.chunked_array(part))
    return samples, {job for number in np.flatnonzero(count[1:]) for job in separate_names(job_words[number])}


def _shared(
    samples: pa.Table, devices: Sequence[Codes], named: Sequence[Codes], holders: DeviceHolders, words: Sequence[str]
) -> tuple[list[Codes], list[str]]:
    """Return who holds the GPUs of hosts that jobs hold a part of, for every row, a piece at a time, and the words meant.

    A host's GPUs are looked at together, wherever its rows lie.
    """
    found = [np.full(len(device), -1, np.int32) for device in devices]
    if not holders.parts:
        return found, []
    place = np.full((max((int(device.max(initial=-1)) for device in devices), default=-1) + 1, 2), -1, np.int64)
    for number, where in holders.places.items():
        place[number] = where
    chosen = [np.flatnonzero(place[device, 0] >= 0) for device in devices]
    columns = [
        (*place[device[rows]].T, _times(piece)[rows], _busy(piece, rows), name[rows].astype(np.int64))
        for piece, device, name, rows in zip(_pieces(samples), devices, named, chosen, strict=True)
    ]
    whose, told = part_holders(PartHostRows(*(np.concatenate(column) for column in zip(*columns, strict=True))), holders.parts, words)
    for part, rows, codes in zip(found, chosen, np.split(whose, np.cumsum([len(rows) for rows in chosen])[:-1]), strict=True):
        part[rows] = codes
    return found, told


def _busy(piece: pa.Table, rows: Ints) -> npt.NDArray[np.bool_]:
    """Return where any gauge of activity says that something ran, as in the ledger (`ullage.sums.devices`)."""
    busy = np.zeros(len(rows), np.bool_)
    for name in ACTIVITY:
        if piece[name].null_count < len(piece[name]):
            busy |= piece[name].to_numpy()[rows].astype(np.float64) >= IDLE  # missing is NaN, and says nothing
    return busy


def _merged(before: Words, more: Sequence[str | None]) -> tuple[list[str], Codes, Codes]:
    """Return one list of words, and the number in it of every word of `before` and of `more`; at the end, -1 for null."""
    words = list(dict.fromkeys(word for word in (*before, *more) if word is not None))
    number: dict[str | None, int] = {word: at for at, word in enumerate(words)} | {None: -1}
    old, new = (np.array([*(number[word] for word in told), -1], np.int32) for told in (before, more))
    return words, old, new


def _users(jobs: Sequence[str], told: Sequence[Record]) -> list[str | None]:
    """Return the users of every job (or of several, joined), None where no record says."""
    of_job = {record.job: record.user for record in told if record.user is not None}
    found = []
    for job in jobs:
        users = [escaped_name(of_job[part]) for part in separate_names(job) if part in of_job]
        found.append(joined_names(users) or None)
    return found


def _encoded(samples: pa.Table) -> pa.Table:
    """Return the table with one dictionary per column of words, for all chunks."""
    for name in (*_WHO, "job", "user"):
        column = samples[name]
        if name != "index" and not pa.types.is_dictionary(column.type):
            kind = pa.dictionary(pa.int32(), pa.string())
            column = column.cast(pa.string()).dictionary_encode().cast(kind)
            samples = samples.set_column(samples.schema.get_field_index(name), pa.field(name, kind), column)
    return samples.unify_dictionaries()


def _devices(samples: pa.Table) -> tuple[list[Codes], list[JobDevice]]:
    """Return a device's number for every row, a piece of the table at a time, and the devices by number."""
    words = {name: None if name == "index" else _vocabulary(samples[name]) for name in _WHO}
    numbers: dict[tuple[str | int | None, ...], int] = {}
    rows: list[Codes] = []
    for piece in _pieces(samples):
        columns = [_codes(piece[name]) for name in _WHO]
        key = np.zeros(piece.num_rows, np.int64)
        for column in columns:  # compact after each column, so that the key stays small
            key = _compact(key * (int(column.max(initial=-1)) + 2) + column + 1)
        first = np.zeros(int(key.max()) + 1, np.int64)
        first[key[::-1]] = np.arange(len(key))[::-1]
        told = [_told(words[name], column[first]) for name, column in zip(_WHO, columns, strict=True)]
        rows.append(np.array([numbers.setdefault(who, len(numbers)) for who in zip(*told, strict=True)], np.int32)[key])
    return rows, _completed([JobDevice(number, *who) for who, number in numbers.items()])  # type: ignore[arg-type]


def _told(words: Words | None, codes: Ints) -> list[str | int | None]:
    """Return what codes mean: words of a vocabulary, or for a column of numbers the numbers themselves."""
    if words is None:
        return [code if code >= 0 else None for code in codes.tolist()]
    return [words[code] if code >= 0 else None for code in codes.tolist()]


def _completed(devices: list[JobDevice]) -> list[JobDevice]:
    """Return the devices with what other series of the same UUID know: a partial row may name no host."""
    known = {(device.gpu, device.cluster): device for device in devices if device.gpu is not None and device.host is not None}
    found = []
    for device in devices:
        twin = known.get((device.gpu, device.cluster)) if device.host is None and device.gpu is not None else None
        found.append(JobDevice(device.number, twin.cluster, twin.host, twin.index, device.gpu, device.mig) if twin else device)
    return found


def _compact(key: Ints) -> Ints:
    codes: Ints = pa.array(key).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _vocabulary(column: pa.ChunkedArray) -> Words:
    words: Words = column.chunk(0).dictionary.to_pylist()
    return words


def _codes(column: pa.ChunkedArray) -> Ints:
    """Return the codes of a column of words, or the numbers of a column of numbers; null is -1."""
    parts = [chunk.indices if pa.types.is_dictionary(chunk.type) else chunk for chunk in column.chunks]
    return np.concatenate([part.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) for part in parts])


def _times(piece: pa.Table) -> Ints:
    times: npt.NDArray[np.int64] = piece["time"].cast(pa.int64()).to_numpy()
    return times


def _pieces(samples: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, samples.num_rows, _ROWS):
        yield samples.slice(start, _ROWS)


def note_seen(jobs: pa.Table, seen: JobsSeen, problems: Problems) -> None:
    """Note what is to be said of jobs, and how many of the records (`tables.JOBS`) no sample was found for."""
    for what, those in seen.remarks.items():
        note_jobs(problems, those, what)
    told = dict.fromkeys(record.job for record in records(jobs))
    unmatched = [job for job in told if job not in seen.found]
    if unmatched:
        problems.note(f"{len(unmatched):,} of {len(told):,} jobs in the records match no sample (first: {harmless(unmatched[0], 60)})")
