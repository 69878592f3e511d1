"""When processes and devices were observed, and what that comes to: worked out tick by tick, with none of Ullage's sums.

Written from the equations of the TALP paper (1, 3 to 12) and these rules alone:

- A process lives from its first to its last event: calls, communication, operators, what it put on devices.
- Device work of a process that isn't known is that of the one process that is known to use the device. If several are, it may be any of
  theirs, else that of any process of the file. If it lies outside all their lives, these lives reach as far as it does.
- MPI's clock comes before all this: from when MPI_Init returned to when MPI_Finalize was called.
- What a process did is known while it lives, if it had a profiler of its own (`process`); from its file's first moment to the last,
  if one profiler watched all of the file's processes (`session`); always, if it was recorded from its start to its end (`run`).
- Ranks are compared while all of them are known; if that is no time at all, each on its own.
- The bounds hold what comes out over all the time in which any is known, whatever was done where it isn't known.

Times are small whole numbers: a set of time is a Python set of ticks, tick t being the time from t to t + 1.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

Ticks = set[int]
Key = tuple[int, int]  # of a process: its file's place, its number


@dataclass(frozen=True)
class Row:
    """One event: `sort` is api, mpi, operator, or what ran on a device (kernel, collective, memcpy)."""

    sort: str
    start: int
    end: int
    process: int | None
    device: int | None = None


@dataclass
class File:
    """What one profiler wrote: rows, how it watched, by process when MPI_Init returned and MPI_Finalize was called, and the regions that
    processes were in, `sort` being their names."""

    rows: list[Row]
    covers: str = "process"
    mpi: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)
    regions: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Sums:
    """Of a run: E; of each process U, W and the rest, by file and process; of each device K, C, M, by file and device; how long any
    process is known, and the bounds of the two parallel efficiencies."""

    elapsed: int
    hosts: dict[tuple[int, int], tuple[int, int, int]]
    devices: dict[tuple[int, int], tuple[int, int, int]]
    recorded: int
    host_parallel: tuple[float, float]
    device_parallel: tuple[float, float] | None


def hull(ticks: Ticks) -> Ticks:
    return set(range(min(ticks), max(ticks) + 1)) if ticks else set()


def covered(rows: list[Row]) -> Ticks:
    return {tick for row in rows for tick in range(row.start, row.end)}


def on_device(row: Row) -> bool:
    return row.device is not None


def lives(file: File) -> dict[int, Ticks]:
    """When each process that calls the GPU or MPI lives."""
    hosts, file = callers(file), owned(file)
    found = {p: hull(covered([r for r in file.rows if r.process == p])) for p in hosts}
    reaches: dict[int, Ticks] = {p: set() for p in hosts}
    for row in file.rows:
        if on_device(row) and row.process not in hosts:
            users = {r.process for r in file.rows if on_device(r) and r.device == row.device} & set(hosts)
            who = sorted(users) or hosts
            together = hull(set().union(*(found[p] for p in who)))
            for p in who:
                reaches[p] |= covered([row]) - together
    found = {p: hull(found[p] | reaches[p]) for p in hosts}
    for p, (begin, end) in file.mpi.items():
        if p in found:
            first = min(found[p]) if begin is None else begin
            last = max(found[p]) + 1 if end is None else end
            found[p] = set(range(first, last)) or found[p]
    return {p: ticks for p, ticks in found.items() if ticks}


def callers(file: File) -> list[int]:
    """Who calls the GPU or MPI."""
    return sorted({r.process for r in file.rows if r.sort in ("api", "mpi") and r.process is not None})


def owned(file: File) -> File:
    """The file with nobody's work given to the one process that calls, or to who alone is known to use the device."""
    hosts = callers(file)
    if len(hosts) > 1:
        return given(file)
    return File([replace(r, process=r.process or hosts[0]) for r in file.rows], file.covers, file.mpi, file.regions)


def given(file: File) -> File:
    """The file with nobody's work on a device that one process alone is known to use given to that process."""
    rows = []
    for row in file.rows:
        users = {r.process for r in file.rows if on_device(r) and r.device == row.device and r.process is not None}
        rows.append(replace(row, process=users.pop()) if on_device(row) and row.process is None and len(users) == 1 else row)
    return File(rows, file.covers, file.mpi, file.regions)


def known(file: File, alive: dict[int, Ticks]) -> dict[int, Ticks | None]:
    """When what each process did is known; None: always."""
    session = hull(set().union(*alive.values()))
    return {p: {"process": alive[p], "session": session, "run": None}[file.covers] for p in alive}


def windows(files: list[File]) -> tuple[dict[Key, Ticks], Callable[[Ticks | None], int], int]:
    """When each process is looked at; how long what is known at some ticks is not known, and of how long a time."""
    alive = {(n, p): ticks for n, file in enumerate(files) for p, ticks in lives(file).items()}
    seen = [ticks for ticks in all_known(files).values() if ticks is not None]
    together = [set[int]().union(*(alive[key] for key in keys)) for d, keys in all_users(files).items() if len(known_users(files, *d)) != 1]
    longest = max(len(ticks) for ticks in [*alive.values(), *seen, *together])
    if not seen:
        return alive, lambda _: 0, longest
    common = set.intersection(*seen)
    if all(ticks & common for ticks in alive.values()):
        whole = hull(set().union(*seen))
        return {key: t & common for key, t in alive.items()}, lambda t: 0 if t is None else len(whole - t), len(whole)
    return alive, lambda t: 0 if t is None else longest - len(t), longest


def all_known(files: list[File]) -> dict[Key, Ticks | None]:
    return {(n, p): ticks for n, file in enumerate(files) for p, ticks in known(file, lives(file)).items()}


def sums(files: list[File]) -> Sums:
    """What a run comes to."""
    looked, dark, recorded = windows(files)
    alive = {(n, p): ticks for n, file in enumerate(files) for p, ticks in lives(file).items()}
    seen = all_known(files)
    hosts = {key: host(files[key[0]], key[1], ticks) for key, ticks in looked.items()}
    owners = all_users(files)
    watched = {d: set[int]().union(*(looked[key] for key in keys)) for d, keys in owners.items()}
    devices = {d: device(files[d[0]], d[1], ticks) for d, ticks in watched.items()}
    shared = [len(watched[d]) for d in devices if len(known_users(files, *d)) != 1]
    elapsed = max([len(ticks) for ticks in looked.values()] + shared)
    useful = [host(files[n], p, ticks)[0] for (n, p), ticks in alive.items()]
    if not any(map(dark, seen.values())):
        recorded = elapsed
    value = sum(u for u, _, _ in hosts.values()) / (len(hosts) * elapsed)
    host_parallel = _between(value, sum(useful), sum(map(dark, seen.values())), len(hosts) * recorded)
    if not devices:
        return Sums(elapsed, hosts, devices, recorded, host_parallel, None)
    ran, unseen = 0, 0
    for d, keys in owners.items():
        ran += device(files[d[0]], d[1], set[int]().union(*(alive[key] for key in keys)))[0]
        lights = [ticks for key in keys if (ticks := seen[key]) is not None]
        unseen += dark(set[int]().union(*lights)) if lights else 0
    value = sum(k for k, _, _ in devices.values()) / (len(devices) * elapsed)
    return Sums(elapsed, hosts, devices, recorded, host_parallel, _between(value, ran, unseen, len(devices) * recorded))


def tables(files: list[File]) -> tuple[dict[str, tuple[int, int]], int]:
    """What tables of what devices did come to: how often each sort ran and how long, streams added up; and how long devices idled while
    any of their users is looked at."""
    looked, _, _ = windows(files)
    ran: dict[str, tuple[int, int]] = {}
    idle = 0
    for (n, d), users in all_users(files).items():
        watched = set[int]().union(*(looked[key] for key in users))
        rows = [row for row in files[n].rows if row.device == d]
        for row in rows:
            count, time = ran.get(row.sort, (0, 0))
            inside = len(covered([row]) & watched)
            ran[row.sort] = (count + (inside > 0), time + inside)
        idle += len(watched - covered(rows))
    return {sort: sums for sort, sums in ran.items() if sums[0]}, idle


@dataclass(frozen=True)
class RegionTables:
    """What tables come to in a region: by sort how often something ran on devices and how long, streams added up; how long devices idled,
    added up over files; by process how many calls there are, and how long; what each device and each process is looked at."""

    ran: dict[str, tuple[int, int]]
    idle: int
    calls: dict[Key, tuple[int, int]]
    devices: dict[tuple[int, int], Ticks]
    processes: dict[Key, Ticks]


def region_tables(files: list[File], name: str, shared: frozenset[int] = frozenset(), *, common: bool = True) -> RegionTables:
    """Return what tables come to while processes are in a region, and devices while one of their users is. `shared` are the numbers of
    devices that are the same in all files; `common` says whether ranks are looked at while all were recorded."""
    all_owned = [owned(file) for file in files]
    looked = windows(files)[0] if common else {(n, p): ticks for n, file in enumerate(files) for p, ticks in lives(file).items()}
    inside = {
        (n, p): ticks & covered([r for r in files[n].regions if r.sort == name and r.process == p]) for (n, p), ticks in looked.items()
    }
    there = {key: ticks for key, ticks in inside.items() if ticks}
    ran: dict[str, tuple[int, int]] = {}
    idle, watched = 0, dict[tuple[int, int], Ticks]()
    for n, d in all_users(files):
        same = [m for m, e in all_users(files) if e == d] if d in shared else [n]
        users = [(m, p) for m in same for p in known_users(all_owned, m, d)]
        users = users or [key for key in there if key[0] == same[0]] or list(there)
        watched[n, d] = set[int]().union(*(there.get(key, set()) for key in users))
        rows = [row for row in files[n].rows if row.device == d]
        for row in rows:
            count, time = ran.get(row.sort, (0, 0))
            among = len(covered([row]) & watched[n, d])
            ran[row.sort] = (count + (among > 0), time + among)
        idle += len(watched[n, d] - covered(rows))
    calls = {}
    for (n, p), ticks in there.items():
        times = [len(covered([r]) & ticks) for r in files[n].rows if r.process == p and r.sort in ("api", "mpi")]
        calls[n, p] = (sum(time > 0 for time in times), sum(times))
    return RegionTables({sort: sums for sort, sums in ran.items() if sums[0]}, idle, calls, watched, inside)


def _between(value: float, ran: int, unseen: int, of: int) -> tuple[float, float]:
    """The bounds: of a value, and of what it is over all that was recorded, whatever was done unseen; the value's own if nothing was."""
    return min(ran / of, value), max((ran + unseen) / of, value)


def known_users(files: list[File], n: int, number: int) -> list[int]:
    """Who is known to use a device."""
    alive = lives(files[n])
    return sorted({r.process for r in files[n].rows if r.device == number and r.process in alive and r.process is not None})


def all_users(files: list[File]) -> dict[tuple[int, int], list[Key]]:
    """Who may use each device: those known to, else all of its file."""
    devices = {(n, r.device) for n, file in enumerate(files) for r in file.rows if r.device is not None}
    return {(n, d): [(n, p) for p in known_users(files, n, d) or sorted(lives(files[n]))] for n, d in sorted(devices)}


def host(file: File, process: int, looked: Ticks) -> tuple[int, int, int]:
    """U, W and the rest of a process, ticks."""
    mine = [r for r in file.rows if r.process == process]
    talks = covered([r for r in mine if r.sort == "mpi"]) - covered([r for r in mine if r.sort == "computing"])
    calls = covered([r for r in mine if r.sort == "api"]) - talks
    return len(looked - talks - calls), len(looked & calls), len(looked & talks)


def device(file: File, number: int | None, looked: Ticks) -> tuple[int, int, int]:
    """K, C and M of a device, ticks."""
    ran = {sort: covered([r for r in file.rows if r.device == number and r.sort == sort]) for sort in ("kernel", "collective", "memcpy")}
    kernel, collective = ran["kernel"], ran["collective"] - ran["kernel"]
    return len(kernel & looked), len(collective & looked), len((ran["memcpy"] - kernel - collective) & looked)


def drawn(seed: int) -> list[File]:
    """Files of one run: ranks recorded for unequal times, several processes in one file, work of nobody, MPI that begins late."""
    chance = random.Random(seed)
    covers = chance.choice(("process", "process", "session", "run"))
    number = itertools.count(1)
    return [_file(chance, [next(number) for _ in range(chance.choice((1, 1, 2, 3)))], covers) for _ in range(chance.choice((1, 1, 2, 3)))]


def drawn_with_regions(seed: int) -> tuple[list[File], frozenset[int]]:
    """Files of one run whose processes are in regions now and then, and the devices that are the same in all of them."""
    chance = random.Random(seed)
    files = drawn(seed)
    for file in files:
        processes = sorted({r.process for r in file.rows if r.process is not None})
        for _ in range(chance.randrange(8)):
            start = chance.randrange(60)
            file.regions.append(Row(chance.choice("aab"), start, start + chance.choice((1, 3, 8, 20)), chance.choice(processes)))
    return files, frozenset(chance.choice(((), (), (0,))))


def _file(chance: random.Random, processes: list[int], covers: str) -> File:
    rows: list[Row] = []
    file = File(rows, covers)
    for place, process in enumerate(processes):
        begin = chance.randrange(20)
        end = begin + chance.randrange(10, 40)
        rows.append(Row("api", begin, min(begin + chance.randrange(1, 5), end), process))
        for _ in range(chance.randrange(8)):
            start = chance.randrange(begin, end)
            until = min(start + chance.randrange(1, 9), end)
            sort = chance.choice(("api", "api", "mpi", "computing", "kernel", "kernel", "collective", "memcpy"))
            on = chance.choice((place, place, place, 0)) if sort in ("kernel", "collective", "memcpy") else None
            rows.append(Row(sort, start, until, process, on))
        if chance.random() < 0.3:
            init = chance.randrange(begin, begin + 5)
            file.mpi[process] = (chance.choice((init, None)), chance.choice((chance.randrange(init + 2, end + 4), None)))
    for _ in range(chance.choice((0, 0, 1, 3))):  # nobody's work, at times before or after all
        start = chance.randrange(70)
        rows.append(Row("kernel", start, start + chance.randrange(1, 12), chance.choice((None, None, 99)), chance.randrange(4)))
    return file
