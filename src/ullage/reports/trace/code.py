"""Which code a run's idle time and its kernels belong to, its calls of the GPU's interface, its queues and its copies."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ullage.metrics.metric import ratio
from ullage.reports.trace.idleness import idleness
from ullage.sums.lanes.code.account import merge_code
from ullage.sums.lanes.code.calls import CallRow
from ullage.sums.lanes.code.device import DeviceCode
from ullage.sums.lanes.code.times import CodeTimes
from ullage.sums.lanes.kernels import merge_kernels
from ullage.sums.lanes.queues import StreamQueue
from ullage.sums.lanes.run import Run, Windows

MOST = 200  # names of a level that a report lists
WITHIN_DEVICE = "device to device"
_DIRECTIONS = {
    "HtoD": "host to device",
    "DtoH": "device to host",
    "DtoD": WITHIN_DEVICE,
    "PtoP": "peer to peer",
    "HtoH": "host to host",
}
_DIRECTION = re.compile(rf"\b({'|'.join(_DIRECTIONS)})\b")


@dataclass(frozen=True)
class CopyRow:
    """Copies in one direction, or memsets: `bytes` and `time` in ns are sums, `bandwidth` in B/s while they ran (None: no size
    is known)."""

    direction: str
    count: int
    bytes: int
    time: int
    bandwidth: float | None


@dataclass(frozen=True)
class CodeReport:
    """Times in ns, summed over devices. At each level of `idle`, `rows + outside + launched + unknown` is all `idle_time`.

    `launched` is idle time for which the work had been handed over already, `unknown` that for which no host thread answers. `queues`
    are of each device's streams by the device's key.
    """

    idle_time: int
    launched: int
    unknown: int
    idle: dict[str, CodeTimes]
    device: DeviceCode
    calls: tuple[CallRow, ...]
    queues: dict[str, tuple[StreamQueue, ...]]
    copies: tuple[CopyRow, ...]


def code_report(run: Run, windows: Windows | None = None) -> CodeReport | None:
    """Return what code a run's time belongs to, None for a run without devices and calls; `windows` as in `idleness`."""
    code = merge_code([capture.code for capture in run.captures], MOST)
    idles = [(key, idle) for capture in run.captures for key, idle in capture.idle.items()]
    if not idles and not code.calls:
        return None
    found = idleness(run, windows)
    whole = 0 if found is None else found.total
    launched = sum(idle.causes["launched"] for _, idle in idles)
    return CodeReport(
        idle_time=whole,
        launched=launched,
        unknown=whole - launched - code.charged,
        idle=code.idle,
        device=code.device,
        calls=code.calls,
        queues={key: idle.rhythm.streams for key, idle in idles if idle.rhythm.streams},
        copies=_copies(run),
    )


def _copies(run: Run) -> tuple[CopyRow, ...]:
    sums: dict[str, list[int]] = {}
    for name, kind, count, time, _, size in merge_kernels([capture.kernels for capture in run.captures]).rows:
        if kind in ("memcpy", "memset"):
            known = sums.setdefault(direction(name) if kind == "memcpy" else "memset", [0, 0, 0])
            for place, value in enumerate((count, size, time)):
                known[place] += value
    rows = [CopyRow(name, n, size, time, ratio(size, time / 1e9) if size and time else None) for name, (n, size, time) in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row.time, row.direction)))


def direction(name: str) -> str:
    """Return where a copy goes, told by its name, with the kinds of memory where the profiler says them.

    >>> direction("Memcpy HtoD (Pageable -> Device)"), direction("Memcpy DtoD"), direction("CopyEngine")
    ('host to device (Pageable -> Device)', 'device to device', 'copy')
    """
    found = _DIRECTION.search(name)
    if found is None:
        return "copy"
    kinds = name[found.end() :].strip()
    return _DIRECTIONS[found[1]] + (f" {kinds}" if kinds.startswith("(") else "")
