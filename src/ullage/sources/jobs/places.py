"""Which devices a job record means: by UUID, by host and number, by whole hosts, or by an index on the only host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.errors import harmless
from ullage.problems import Problems
from ullage.sources.jobs.part_hosts import PartHostJob
from ullage.sources.jobs.record import Record

_ADDRESS = re.compile(r"[\d.]+|.*:.*")  # an IP address has no domain to strip
_SLICE = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class JobDevice:
    """A device (or MIG instance) that samples speak of; `number` is its place in the samples' list of devices."""

    number: int
    cluster: str | None = None
    host: str | None = None
    index: int | None = None
    gpu: str | None = None
    mig: str | None = None


@dataclass
class Directory:
    """Devices by every way that a record may name them."""

    by_gpu: dict[str, list[JobDevice]] = field(default_factory=lambda: defaultdict(list))
    by_host: dict[str, list[JobDevice]] = field(default_factory=lambda: defaultdict(list))
    short: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unit: dict[int, int] = field(default_factory=dict)  # the GPU of each device, by numbers in the order of their places

    def host(self, name: str) -> str | None:
        """Return the samples' host of a name, with or without its domain, where only one host can be meant."""
        folded = name.casefold()
        if folded in self.by_host:
            return folded
        bare = without_domain(folded)
        if bare != folded:  # the record knows the domain, the samples may not
            return bare if bare in self.by_host else None
        meant = self.short.get(bare, set())
        return next(iter(meant)) if len(meant) == 1 else None


def directory(devices: Sequence[JobDevice]) -> Directory:
    """Return the devices by UUID and by host."""
    found = Directory()
    for device in devices:
        if device.gpu is not None:
            found.by_gpu[device.gpu].append(device)
        if (
            device.cluster is not None and device.gpu == f"{device.cluster}/{device.host}/{device.index}"
        ):  # a record may leave the cluster out
            found.by_gpu[f"{device.host}/{device.index}"].append(device)
        if device.host is not None:
            host = device.host.casefold()
            found.by_host[host].append(device)
            found.short[without_domain(host)].add(host)
    found.unit = _units(devices)
    return found


def _units(devices: Sequence[JobDevice]) -> dict[int, int]:
    """Return the number of the GPU that each device is, or is a slice of; GPUs are numbered in the order of their places."""

    def gpu(device: JobDevice) -> tuple[str, ...]:
        return (device.gpu,) if device.gpu is not None else (device.cluster or "", device.host or "", str(device.index))

    first: dict[tuple[str, ...], tuple[str, str, int]] = {}
    for device in devices:
        place = (device.cluster or "", device.host or "", -1 if device.index is None else device.index)
        first[gpu(device)] = max(place, first.get(gpu(device), place))
    ordered = {name: number for number, name in enumerate(sorted(first, key=lambda name: (first[name], name)))}
    return {device.number: ordered[gpu(device)] for device in devices}


def without_domain(host: str) -> str:
    """Return a host's name up to its first dot; an address stays whole.

    >>> without_domain("node1.cluster.local"), without_domain("10.140.0.131")
    ('node1', '10.140.0.131')
    """
    return host if _ADDRESS.fullmatch(host) else host.split(".", 1)[0]


@dataclass
class DeviceHolders:
    """What records say of devices: (record, device number) pairs, and jobs that hold a part of a host, which nobody says.

    `places` has, for the devices of such hosts, the numbers of the host and of the GPU; `remarks` the jobs to be remarked upon.
    """

    pairs: list[tuple[Record, int]] = field(default_factory=list)
    parts: list[PartHostJob] = field(default_factory=list)
    places: dict[int, tuple[int, int]] = field(default_factory=dict)
    remarks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def meant(records: Sequence[Record], found: Directory, problems: Problems) -> DeviceHolders:
    """Return who holds what of everything that the records name and the samples know.

    A record that names devices goes before one of the same job that does not. One of a whole host means all its devices where the job's
    count of GPUs says so (or says nothing), and else so many of them.
    """
    meant = DeviceHolders()
    hosts: dict[tuple[str, str | None, int | None, int | None], list[Record]] = defaultdict(list)
    homeless: set[str] = set()
    for record in _timed(records):
        if record.gpu is None and record.index is None:
            if record.host is not None:
                hosts[record.job, record.cluster, record.start, record.end].append(record)
        elif record.host is None and (record.gpu is None or _SLICE.fullmatch(record.gpu)) and len(found.by_host) > 1:
            homeless.add(record.job)
        else:
            meant.pairs += [(record, device.number) for device in _named(record, found)]
    _add_hosts(meant, hosts, found)
    note_jobs(problems, homeless, f"name GPUs by number without a host, but the samples have {len(found.by_host):,} hosts; left out")
    return meant


def _timed(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records; those that name devices now, and not since when or until when, have it from others of their job."""
    runs: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.start is not None and not _names_device(record):
            runs[record.job].append(record)
    for record in records:
        if not _names_device(record) or (record.start is not None and record.end is not None):
            yield record
            continue
        same = [run for run in runs.get(record.job, ()) if _one_cluster(run, record) and record.start in (None, run.start)]
        run = max(same, key=lambda run: (run.start or 0, run.end is not None), default=None)
        yield record if run is None else replace(record, start=run.start, end=run.end if record.end is None else record.end)


def _names_device(record: Record) -> bool:
    return record.gpu is not None or record.index is not None


def _one_cluster(one: Record, other: Record) -> bool:
    return one.cluster is None or other.cluster is None or one.cluster == other.cluster


def _at_one_time(one: Record, other: Record) -> bool:
    """Return whether two records hold at any moment both; times hold after their start, up to their end."""
    starts, ends = [r.start for r in (one, other) if r.start is not None], [r.end for r in (one, other) if r.end is not None]
    return not starts or not ends or max(starts) < min(ends)


def _named(record: Record, found: Directory) -> list[JobDevice]:
    """Return the devices of a record that names one, by UUID or by its number on a host."""
    slice_ = _SLICE.fullmatch(record.gpu or "")
    if record.gpu is not None and slice_ is None:
        return found.by_gpu.get(record.gpu) or _by_host_and_number(record, found)
    index, instance = (int(slice_[1]), slice_[2]) if slice_ else (record.index, None)
    if record.host is None:  # one host, or none at all: then every device
        here = [device for devices in (found.by_host or found.by_gpu).values() for device in devices]
    else:
        here = _at(record, found)
    there = [device for device in here if device.index == index]
    return [device for device in there if instance is None or (device.mig or "").rpartition("/")[2] == instance]


def _by_host_and_number(record: Record, found: Directory) -> list[JobDevice]:
    """Return the devices of a record that names one as 'host/index', whatever cluster the samples say the host is in."""
    host, _, index = (record.gpu or "").rpartition("/")
    return [device for device in _at(replace(record, host=host), found) if str(device.index) == index]


def _at(record: Record, found: Directory) -> list[JobDevice]:
    """Return the devices of a record's host; a host's name that two clusters have is settled by the record's cluster."""
    host = found.host(record.host or "")
    devices = found.by_host.get(host, []) if host is not None else []
    clusters = {device.cluster for device in devices}
    return devices if len(clusters) <= 1 else [device for device in devices if device.cluster == record.cluster]


def _add_hosts(
    meant: DeviceHolders, hosts: Mapping[tuple[str, str | None, int | None, int | None], Sequence[Record]], found: Directory
) -> None:
    """Add what records of whole hosts mean: all devices, or, where the job holds fewer, so many."""
    named: dict[str, list[tuple[Record, int]]] = defaultdict(list)
    for record, number in meant.pairs:
        named[record.job].append((record, number))
    numbers: dict[tuple[str | None, str], int] = {}
    for records in hosts.values():
        job, gpus = records[0].job, records[0].gpus
        devices = {n for other, n in named.get(job, ()) if _one_cluster(other, records[0]) and _at_one_time(other, records[0])}
        places = [(record, _at(record, found)) for record in records]
        places = [(record, there) for record, there in places if not any(device.number in devices for device in there)]
        if not places:
            continue
        counts = [len(_gpus(there)) for _, there in places]
        most = max(counts)  # a host without samples is taken to be as large as the job's largest
        left = None if gpus is None else gpus - len({found.unit[number] for number in devices})
        if left is None or left >= sum(count or most for count in counts):
            meant.pairs += [(record, device.number) for record, there in places for device in there]
            continue
        shares = [(record, there, share) for (record, there), share in zip(places, _even(left, len(places)), strict=True) if there]
        if any(device.mig is not None for _, there, _ in shares for device in there):
            meant.remarks[SLICED].add(job)
            continue
        for record, there, share in shares:
            host = numbers.setdefault((there[0].cluster, there[0].host or ""), len(numbers))
            meant.places |= {device.number: (host, found.unit[device.number]) for device in there}
            meant.parts.append(PartHostJob(job, host, min(share, len(_gpus(there))), record.start, record.end))
            meant.remarks[SHARED].add(job)


SLICED = "hold part of a host with MIG instances and their records do not say which; left out"
SHARED = (
    "hold part of a host and their records do not say which GPUs: as many GPUs as they hold are theirs, together where several "
    "share a host, those that do something first; whose the work was can't be told"
)


def _gpus(devices: Iterable[JobDevice]) -> set[str | int | None]:
    return {device.gpu or device.index for device in devices}


def _even(gpus: int, hosts: int) -> list[int]:
    """Return how many GPUs a job holds on each of its hosts, as evenly as whole GPUs allow.

    >>> _even(5, 2), _even(-1, 2)
    ([3, 2], [0, 0])
    """
    each, more = divmod(max(gpus, 0), hosts)
    return [each + (place < more) for place in range(hosts)]


def note_jobs(problems: Problems, jobs: set[str], what: str) -> None:
    """Note how many jobs there are of which something is to be said."""
    if jobs:
        problems.note(f"{len(jobs):,} jobs {what} (first: {harmless(min(jobs), 60)})")
