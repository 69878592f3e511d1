"""What a PyTorch profile says of itself beside its events: base time, rank, devices, host, process groups."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ullage.recording import Device, Recording
from ullage.traces.json.salvage import ERRORS, valid_letters, whole_surrogates

_WANTED = ("baseTimeNanoseconds", "distributedInfo", "deviceProperties", "host_name", "boot_id")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RANK = re.compile(r"(?i)(?:^|[^a-z])rank[-_ =]?(\d+)|[._-]r(\d+)(?=[._-]|$)")
_HOST_BACKENDS = ("gloo", "mpi")
_LATEST = 2**62  # ns since 1970: in the year 2116; a base beyond it is none
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')


@dataclass
class Metadata:
    """The metadata that is used; `whole` is False when some of it could not be read."""

    values: dict[str, Any] = field(default_factory=dict)
    whole: bool = True

    def read(self, text: bytes) -> None:
        """Take in an object's text; later values win."""
        found = _object(text)
        if found is None:
            self.whole = False
            base = _BASE.search(text)
            found = {"baseTimeNanoseconds": msgspec.Raw(base[1])} if base else {}
        for key in _WANTED:
            if key in found:
                try:
                    self.values[key] = msgspec.json.decode(found[key])
                except ERRORS:
                    self.whole = False

    @property
    def base(self) -> int | None:
        """The moment in ns since 1970 from which the file's times count."""
        base = _whole(self.values.get("baseTimeNanoseconds"))
        return base if base is not None and base < _LATEST else None

    @property
    def _run(self) -> dict[str, Any]:
        found = self.values.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    def describe(self, recording: Recording, file_name: str, asked: int | None) -> None:
        """Fill in the rank (the file's own, else the one asked for, else that in the file's name), ranks, host and devices."""
        own = _whole(self._run.get("rank"))
        recording.rank = own if own is not None else asked if asked is not None else rank_in(file_name)
        recording.ranks = _whole(self._run.get("world_size"))
        host, boot = self.values.get("host_name"), self.values.get("boot_id")
        recording.host = host if isinstance(host, str) else ""
        recording.boot = boot if isinstance(boot, str) else ""
        listed = self.values.get("deviceProperties")
        for place, found in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(found, dict) and (number := _whole(found.get("id", place))) is not None:
                name, key = (word if isinstance(word := found.get(part), str) else "" for part in ("name", "uuid"))
                recording.devices[number] = Device(name, key, _whole(found.get("numSms")), _capability(found, name))

    @property
    def may_be_on_host(self) -> bool:
        """Whether any process group has a backend that runs on the host."""
        listed = self._run.get("pg_config")
        backends = [
            self._run.get("backend"),
            *(g.get("backend_config") for g in (listed if isinstance(listed, list) else ()) if isinstance(g, dict)),
        ]
        return any(word in found for found in backends if isinstance(found, str) for word in _HOST_BACKENDS)

    def on_host(self, group: str | None) -> bool:
        """Return whether a process group's collectives run on the host."""
        listed = self._run.get("pg_config")
        for found in listed if isinstance(listed, list) else ():
            if isinstance(found, dict) and found.get("pg_name") == group and isinstance(found.get("backend_config"), str):
                return _all_on_host(found["backend_config"])
        backend = self._run.get("backend")
        return isinstance(backend, str) and _all_on_host(backend)


def _all_on_host(backends: str) -> bool:
    """Return whether all of a group's backends ("cpu:gloo,cuda:gloo") run on the host.

    >>> _all_on_host("gloo"), _all_on_host("cpu:gloo,cuda:nccl")
    (True, False)
    """
    return all(part.rpartition(":")[2].strip() in _HOST_BACKENDS for part in backends.split(","))


def _capability(found: dict[str, Any], name: str) -> str:
    """Return CUDA's capability of a device; ROCm writes numbers of its own in the same place, and no limits of registers of an SM."""
    major, minor = _whole(found.get("computeMajor")), _whole(found.get("computeMinor"))
    nvidia = "AMD" not in name and "regsPerMultiprocessor" in found
    return f"{major}.{minor}" if nvidia and major is not None and minor is not None else ""


def rank_in(file_name: str) -> int | None:
    """Return the rank that a file's name tells.

    >>> rank_in("trace_8_rank_1.json.gz"), rank_in("rank0of16.json"), rank_in("step_r5.json"), rank_in("trace.json")
    (1, 0, 5, None)
    """
    found = _RANK.findall(file_name)
    return _whole("".join(found[-1])) if found else None


def _object(text: bytes) -> dict[str, msgspec.Raw] | None:
    for repair in (None, lambda t: re.sub(rb"[\x00-\x1f]", b" ", t), valid_letters, whole_surrogates):
        try:
            return _OBJECT.decode(repair(text) if repair else text)
        except ERRORS:
            continue
    return None


def _whole(value: object) -> int | None:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**63 else None
