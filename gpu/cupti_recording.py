"""What recordings say: their records by kind, the trees of some processes together, and a small nameless copy for tests."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.chunks import HOST, MAGIC, ChunkType, EarlyEnd, chunks, packed
from ullage.cupti.decoding import decode
from ullage.cupti.kinds import ActivityKind, call_name
from ullage.cupti.layouts import layouts
from ullage.cupti.releases import release
from ullage.gpus.names import pseudonym
from ullage.live.following import Following
from ullage.live.trees import ProcessTree
from ullage.metrics.host import HOST as HOST_TREE
from ullage.metrics.tree import DEVICE_TALP, evaluate
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.sums.lanes.gather import gather
from ullage.sums.lanes.reduce import Reduced, reduce
from ullage.sums.lanes.run import device_parts, device_totals, host_parts, host_totals, merge
from ullage.totals import DeviceTotals, HostTotals
from ullage.traces.recorded.recorded import read
from ullage.traces.trace import File, TraceOptions

Records = npt.NDArray[np.void]
SMALL = 1 << 18  # bytes of activity buffers in a recording that is kept for tests
_SAID = ("cupti", "driver", "kinds", "injected")  # of INFO, what names neither machine nor user
_WHERE = 16  # bytes before a buffer's records


@dataclass
class Seen:
    """A recording as its chunks tell it: the objects of INFO, END (None: the program ended without a word), activity records by kind,
    texts by address, records of the host and their names, how many records CUPTI dropped, what could not be decoded."""

    info: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    records: dict[int, Records] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    host: Records = field(default_factory=lambda: np.zeros(0, HOST))
    host_names: dict[int, str] = field(default_factory=dict)
    dropped: int = 0
    unknown: Counter[int] = field(default_factory=Counter)
    stopped: list[str] = field(default_factory=list)
    size: int = 0  # bytes of activity buffers

    def of(self, kind: int) -> Records:
        """Return the records of a kind."""
        return self.records.get(int(kind), np.zeros(0, [("correlationId", "u4"), ("start", "u8"), ("end", "u8")]))

    @property
    def operations(self) -> int:
        """How many activity records there are."""
        return sum(len(records) for records in self.records.values())

    def launches(self) -> set[int]:
        """Return the correlation numbers of the calls that launched something on a device."""
        found: set[int] = set()
        for kind in (ActivityKind.RUNTIME, ActivityKind.DRIVER):
            calls = self.of(kind)
            if "cbid" not in (calls.dtype.names or ()):
                continue
            names = {number: call_name(kind == ActivityKind.DRIVER, number) for number in np.unique(calls["cbid"]).tolist()}
            starts = [number for number, name in names.items() if "Launch" in name and "HostFunc" not in name]
            found |= set(calls["correlationId"][np.isin(calls["cbid"], starts)].tolist())
        return found

    def regions(self) -> list[tuple[str, int, int, int]]:
        """Return name, depth, start and end (ns) of each region that ended, as the recorder wrote them."""
        told = self.host[self.host["kind"] == 2]
        return [(self.host_names.get(int(r["name"]), "?"), int(r["depth"]), int(r["start"]), int(r["end"])) for r in told]


def seen(path: Path) -> Seen:
    """Return what a recording says, as far as it goes. Raises UllageError for a file that is none."""
    found, parts, host = Seen(), dict[int, list[Records]](), []
    buffers: list[bytes] = []
    with path.open("rb") as file:
        try:
            for chunk in chunks(file, path.name):
                if chunk.type == ChunkType.INFO:
                    found.info |= chunk.json()
                elif chunk.type == ChunkType.END:
                    found.end = chunk.json()
                elif chunk.type == ChunkType.NAMES:
                    (found.host_names if chunk.flags else found.texts).update(chunk.names())
                elif chunk.type == ChunkType.HOST:
                    host.append(chunk.host())
                elif chunk.type == ChunkType.DROPPED:
                    found.dropped += int.from_bytes(chunk.payload[:8], "little")
                elif chunk.type == ChunkType.BUFFER:
                    buffers.append(chunk.payload[_WHERE:])
        except EarlyEnd as cut:
            found.stopped.append(cut.problem)
    if buffers:
        known = layouts(release(int(found.info["cupti"])))
        for buffer in buffers:
            decoded = decode(buffer, known)
            found.size += len(buffer)
            found.unknown += decoded.unknown
            found.stopped += [decoded.stopped] if decoded.stopped else []
            for kind, records in decoded.records.items():
                parts.setdefault(kind, []).append(records)
    found.records = {kind: np.concatenate(records) for kind, records in parts.items()}
    found.host = np.concatenate(host) if host else found.host
    return found


def followed(path: Path, region: str | None = None) -> ProcessTree:
    """Return a recording's trees as a running program gets them."""
    following = Following(path)
    following.advance()
    return following.tree(region)


def totals(paths: Sequence[Path], region: str) -> tuple[HostTotals | None, DeviceTotals | None]:
    """Return the sums of a region over some processes, by the reader and the sums that `ullage trace` uses."""
    run = merge([_reduced(path) for path in paths])
    windows = run.region(region)
    elapsed = run.elapsed(windows)
    return host_totals(host_parts(run, windows), elapsed), device_totals(device_parts(run, windows), elapsed)


def _reduced(path: Path) -> Reduced:
    recording, problems = Recording(path.name), Problems()
    return reduce(gather(list(read(File(path), recording, TraceOptions(), problems)), recording))


def efficiencies(host: HostTotals | None, device: DeviceTotals | None) -> dict[str, float]:
    """Return the efficiencies of both trees by name, collectives counted as work; those that are not known are left out.

    >>> efficiencies(None, DeviceTotals(1, 100, 50, 0, 0, 50, 50, 50))["device_parallel_efficiency"]
    0.5
    """
    trees = [] if host is None else [evaluate(HOST_TREE, host.sums())]
    trees += [] if device is None else [evaluate(DEVICE_TALP, device.counting_collectives().sums())]
    return {node.metric: float(node.value) for tree in trees for _, node in tree.walk() if node.value is not None}


def small(path: Path, uuid: str, most: int = SMALL) -> bytes:
    """Return a recording's beginning, gzipped, with as many whole activity buffers as fit, and without what names machine or user."""
    named, plain = _digits(uuid), _digits(pseudonym(uuid))
    kept, size, full = [MAGIC], 0, False
    with path.open("rb") as file:
        try:
            for chunk in chunks(file, path.name):
                if chunk.type == ChunkType.BUFFER:
                    full = full or size + len(chunk.payload) > most
                    size += 0 if full else len(chunk.payload)
                if chunk.type == ChunkType.INFO:
                    kept += [packed(ChunkType.INFO, json.dumps(said).encode())] if (said := _nameless(chunk.json())) else []
                elif chunk.type in (ChunkType.CLOCKS, ChunkType.END, ChunkType.HOST, ChunkType.DROPPED) or (
                    chunk.type == ChunkType.NAMES and chunk.flags
                ):
                    kept.append(packed(ChunkType(chunk.type), chunk.payload, chunk.flags))
                elif chunk.type in (ChunkType.BUFFER, ChunkType.NAMES) and not full:
                    payload = chunk.payload.replace(named, plain) if named else chunk.payload
                    kept.append(packed(ChunkType(chunk.type), payload, chunk.flags))
        except EarlyEnd:
            pass
    return gzip.compress(b"".join(kept), mtime=0)


def _nameless(said: dict[str, Any]) -> dict[str, Any]:
    problems = [{key: one.get(key) for key in ("what", "code")} for one in said.get("problems", []) if isinstance(one, dict)]
    return {key: said[key] for key in _SAID if key in said} | ({"problems": problems} if problems else {})


def _digits(uuid: str) -> bytes:
    """Return the 16 bytes of a UUID as records have it; a pseudonym's digits are written twice.

    >>> len(_digits("GPU-12345678-1234-1234-1234-123456789012")), len(_digits(pseudonym("GPU-1"))), _digits("GPU-secret")
    (16, 16, b'')
    """
    try:
        digits = bytes.fromhex(uuid.removeprefix("GPU-").replace("-", ""))
    except ValueError:
        return b""
    return (digits * 2)[:16]
