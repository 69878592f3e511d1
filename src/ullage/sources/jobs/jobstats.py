"""Jobstats' summary of a job: `JS1:` and base64 of gzipped JSON, kept in Slurm's AdminComment. Read, and written.

Source: PrincetonUniversity/jobstats, `jobstats.py` and docs/setup/summaries.md. The JSON has `total_time` (s), `gpus` (early ones: false
for none), and for each of the `nodes` `cpus`, `total_time` (CPU seconds), `used_memory` and `total_memory` (B), and by the GPU's number
`gpu_utilization` (percent of time in which a kernel ran), `gpu_used_memory` and `gpu_total_memory` (B). `JS1:Short` and `JS1:None` stand
for jobs without one. What Ullage adds is a key `ullage` beside them, which Jobstats does not read.

A comment is foreign text: how long it is and how much it unpacks to is bounded, and every number is checked.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ullage.errors import UllageError, harmless

PREFIX = "JS1:"
WITHOUT = ("Short", "None")
MOST_TEXT = 1 << 20  # characters; a job of 1,000 hosts with 8 GPUs each takes 60,000
MOST_JSON = 1 << 24  # bytes that it may unpack to
MOST_BYTES = 1e18  # of memory; and no job has more seconds
BUSIEST = 100.5  # percent: a mean of readings may round up a little

Number = int | float


class _Node(msgspec.Struct, omit_defaults=True):
    """A node as the JSON has it."""

    cpus: Number | None = None
    total_time: Number | None = None
    used_memory: Number | None = None
    total_memory: Number | None = None
    gpu_total_memory: dict[str, Number] = {}
    gpu_used_memory: dict[str, Number] = {}
    gpu_utilization: dict[str, Number] = {}


class _Summary(msgspec.Struct, omit_defaults=True):
    """A summary as the JSON has it."""

    nodes: dict[str, _Node]
    total_time: Number
    gpus: Number | bool | None = None
    ullage: dict[str, Number | str | None] = {}


@dataclass(frozen=True)
class JobstatsGpu:
    """A GPU of a node: the share of time in which a kernel ran, and its memory (B), each None where it is not told."""

    number: str
    utilization: float | None = None
    used_memory: float | None = None
    total_memory: float | None = None


@dataclass(frozen=True)
class JobstatsNode:
    """A node of a job: CPU cores, the CPU time that they spent (s), host memory (B), its GPUs."""

    name: str
    cpus: float | None = None
    cpu_seconds: float | None = None
    used_memory: float | None = None
    total_memory: float | None = None
    gpus: tuple[JobstatsGpu, ...] = ()


@dataclass(frozen=True)
class JobstatsSummary:
    """A summary: the job's length (s), its GPUs, its nodes, and what Ullage adds, such as `ofu`."""

    seconds: float
    gpus: int | None
    nodes: tuple[JobstatsNode, ...]
    added: Mapping[str, float | str | None] = field(default_factory=dict)

    @property
    def cpu_efficiency(self) -> float | None:
        """The share of the CPU cores' time that was spent; None where a node does not tell."""
        spent = [node.cpu_seconds for node in self.nodes]
        cores = [node.cpus for node in self.nodes]
        if not spent or any(value is None for value in (*spent, *cores)):
            return None
        whole = self.seconds * sum(core or 0 for core in cores)
        return sum(value or 0 for value in spent) / whole if whole else None

    @property
    def gpu_utilization(self) -> float | None:
        """The mean over GPUs of the share of time in which a kernel ran."""
        told = [gpu.utilization for node in self.nodes for gpu in node.gpus if gpu.utilization is not None]
        return math.fsum(told) / len(told) if told else None


def is_summary(comment: str) -> bool:
    """Return whether a comment claims to be a summary, whatever it holds."""
    return comment[: len(PREFIX)].upper() == PREFIX


def read_summary(comment: str) -> JobstatsSummary | None:
    """Return the summary in a comment; None for a job that has none, since it was short or nobody saw it.

    Raises UllageError for what is no summary, or a damaged one.

    >>> read_summary("JS1:Short")
    >>> read_summary(write_summary(JobstatsSummary(60, 1, (JobstatsNode("n1", gpus=(JobstatsGpu("0", 0.986),)),)))).gpu_utilization
    0.986
    """
    text = comment.strip()
    if not text.startswith(PREFIX):
        if is_summary(text):
            raise _unreadable("its letters were made lower case", "sacctmgr of Slurm 22.05 does that: keep summaries elsewhere there")
        raise _unreadable(f"it does not begin with {PREFIX}")
    text = text[len(PREFIX) :]
    if text in WITHOUT:
        return None
    try:
        told = msgspec.json.decode(_unpacked(text), type=_Summary)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(f"its JSON is none of a summary: {harmless(str(error), 120)}") from error
    nodes = tuple(_node(name, node) for name, node in told.nodes.items())
    gpus = None if told.gpus is None else int(_checked(told.gpus, "gpus", 1e7))
    return JobstatsSummary(_checked(told.total_time, "total_time", MOST_BYTES), gpus, nodes, told.ullage)


def write_summary(summary: JobstatsSummary | None) -> str:
    """Return a summary as Jobstats writes it; the same one gives the same text. None is that of a job of which nothing is known."""
    if summary is None:
        return f"{PREFIX}None"
    nodes = {node.name: _as_json(node) for node in summary.nodes}
    told = _Summary(nodes, _short(summary.seconds), summary.gpus, dict(summary.added))
    packed = gzip.compress(msgspec.json.encode(told), mtime=0)
    return PREFIX + base64.b64encode(packed).decode("ascii")


def _unpacked(text: str) -> bytes:
    if len(text) > MOST_TEXT:
        raise _unreadable(f"it has more than {MOST_TEXT:,} characters")
    try:
        packed = base64.b64decode(text, validate=True)
        unpack = zlib.decompressobj(wbits=31)
        data = unpack.decompress(packed, MOST_JSON + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise _unreadable(f"it is not base64 of gzipped JSON: {error}") from error
    if len(data) > MOST_JSON:
        raise _unreadable(f"it unpacks to more than {MOST_JSON >> 20} MB")
    if not unpack.eof:
        raise _unreadable("it is cut off", "a column of the accounting may be too short for it")
    return data


def _node(name: str, node: _Node) -> JobstatsNode:
    numbers = {*node.gpu_utilization, *node.gpu_used_memory, *node.gpu_total_memory}

    def bound(values: Mapping[str, Number], number: str, what: str, most: float, scale: float = 1.0) -> float | None:
        return None if number not in values else _checked(values[number], f"{what} of GPU {number}", most) / scale

    return JobstatsNode(
        name=name,
        cpus=_optional(node.cpus, "cpus"),
        cpu_seconds=_optional(node.total_time, "total_time"),
        used_memory=_optional(node.used_memory, "used_memory"),
        total_memory=_optional(node.total_memory, "total_memory"),
        gpus=tuple(
            JobstatsGpu(
                number=number,
                utilization=bound(node.gpu_utilization, number, "gpu_utilization", BUSIEST, 100.0),
                used_memory=bound(node.gpu_used_memory, number, "gpu_used_memory", MOST_BYTES),
                total_memory=bound(node.gpu_total_memory, number, "gpu_total_memory", MOST_BYTES),
            )
            for number in sorted(numbers, key=lambda number: (len(number), number))
        ),
    )


def _as_json(node: JobstatsNode) -> _Node:
    def of_gpus(name: str, scale: float = 1.0, digits: int = 0) -> dict[str, Number]:
        told = {gpu.number: getattr(gpu, name) for gpu in node.gpus}
        return {number: _short(round(value * scale, digits)) for number, value in told.items() if value is not None}

    return _Node(
        cpus=_short(node.cpus),
        total_time=_short(node.cpu_seconds),
        used_memory=_short(node.used_memory),
        total_memory=_short(node.total_memory),
        gpu_total_memory=of_gpus("total_memory"),
        gpu_used_memory=of_gpus("used_memory"),
        gpu_utilization=of_gpus("utilization", 100.0, 1),
    )


def _short(value: Any) -> Any:
    """Return a number as a whole one where it is one: the fewer digits, the shorter the comment."""
    return int(value) if value is not None and float(value).is_integer() else value


def _optional(value: Number | None, what: str) -> float | None:
    return None if value is None else _checked(value, what, MOST_BYTES)


def _checked(value: Number, what: str, most: float) -> float:
    if not 0 <= value <= most:
        raise _unreadable(f"{harmless(what, 60)} is {value:g}")
    return value


def _unreadable(why: str, hint: str = "") -> UllageError:
    return UllageError(f"the Jobstats summary can't be read: {why}", hint)
