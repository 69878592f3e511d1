"""Which devices a job record means: by UUID, by host and number, by whole hosts, or by an index on the only host."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ullage.errors import harmless
from ullage.problems import Problems
from ullage.sources.jobs.record import Record

_ADDRESS = re.compile(r"[\d.]+|.*:.*")  # an IP address has no domain to strip
_SLICE = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@dataclass(frozen=True)
class Device:
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

    by_gpu: dict[str, list[Device]] = field(default_factory=lambda: defaultdict(list))
    by_host: dict[str, list[Device]] = field(default_factory=lambda: defaultdict(list))
    short: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

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


def directory(devices: Iterable[Device]) -> Directory:
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
    return found


def without_domain(host: str) -> str:
    """Return a host's name up to its first dot; an address stays whole.

    >>> without_domain("node1.cluster.local"), without_domain("10.140.0.131")
    ('node1', '10.140.0.131')
    """
    return host if _ADDRESS.fullmatch(host) else host.split(".", 1)[0]


def meant(records: Sequence[Record], found: Directory, problems: Problems) -> list[tuple[Record, int]]:
    """Return the (record, device number) pairs of everything that the records name and the samples know.

    A record of a whole host means all its devices only where the job's count of GPUs says so (or says nothing);
    a job with part of a host, its GPUs not named, is left out, and a note counts such jobs.
    """
    pairs: list[tuple[Record, int]] = []
    hosts: dict[tuple[str, int | None, int | None], list[Record]] = defaultdict(list)
    homeless: set[str] = set()
    for record in records:
        if record.gpu is None and record.index is None:
            if record.host is not None:
                hosts[record.job, record.start, record.end].append(record)
        elif record.host is None and (record.gpu is None or _SLICE.fullmatch(record.gpu)) and len(found.by_host) > 1:
            homeless.add(record.job)
        else:
            pairs += [(record, device.number) for device in _named(record, found)]
    pairs += _whole(hosts, found, problems)
    _note(problems, homeless, f"name GPUs by number without a host, but the samples have {len(found.by_host):,} hosts; left out")
    return pairs


def _named(record: Record, found: Directory) -> list[Device]:
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


def _by_host_and_number(record: Record, found: Directory) -> list[Device]:
    """Return the devices of a record that names one as 'host/index', whatever cluster the samples say the host is in."""
    host, _, index = (record.gpu or "").rpartition("/")
    return [device for device in _at(replace(record, host=host), found) if str(device.index) == index]


def _at(record: Record, found: Directory) -> list[Device]:
    """Return the devices of a record's host; a host's name that two clusters have is settled by the record's cluster."""
    host = found.host(record.host or "")
    devices = found.by_host.get(host, []) if host is not None else []
    clusters = {device.cluster for device in devices}
    return devices if len(clusters) <= 1 else [device for device in devices if device.cluster == record.cluster]


def _whole(
    hosts: Mapping[tuple[str, int | None, int | None], Sequence[Record]], found: Directory, problems: Problems
) -> list[tuple[Record, int]]:
    pairs: list[tuple[Record, int]] = []
    partly: set[str] = set()
    for (job, _, _), records in hosts.items():
        places = [(record, _at(record, found)) for record in records]
        counts = [len({device.gpu or device.index for device in devices}) for _, devices in places]
        most = max(counts)  # a host without samples is taken to be as large as the job's largest
        gpus = records[0].gpus
        if gpus is not None and gpus < sum(count or most for count in counts):
            partly.add(job)
        else:
            pairs += [(record, device.number) for record, devices in places for device in devices]
    _note(problems, partly, "hold part of a host and their records do not say which GPUs; left out")
    return pairs


def _note(problems: Problems, jobs: set[str], what: str) -> None:
    if jobs:
        problems.note(f"{len(jobs):,} jobs {what} (first: {harmless(min(jobs), 60)})")
