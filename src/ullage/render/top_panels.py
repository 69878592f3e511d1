"""The lists behind the keys of `ullage top`: processes, links and errors, the last minutes of a GPU, factors, keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from ullage.errors import harmless
from ullage.live.sampling.course import Course
from ullage.live.sampling.gpu_processes import GpuProcess
from ullage.live.sampling.watched_device import HISTORIES, Watched
from ullage.render import devices
from ullage.render.top_screen import KEYS
from ullage.views.notation import FACTOR, FIGURES, PERCENT, UNCUT, WORDS
from ullage.views.numbers import UNKNOWN
from ullage.views.view import Cell, Column, Table, Value

BLOCKS = "▁▂▃▄▅▆▇█"
_GB, _MB = 1e9, 1e6
_ROOT = 0  # no process has this number
_HISTORY_NAMES = {
    "tensor_active": ("tensor", 1.0, 0.01), "sm_active": ("SM", 1.0, 0.01), "gpu_util": ("util", 1.0, 0.01),
    "power": ("power, W", None, 1.0), "sm_clock": ("clock, MHz", None, 1e6),
    "memory_used": ("memory, GB", None, 1e9), "temperature": ("°C", 100.0, 1.0),
}  # fmt: skip


def process_rows(processes: Iterable[GpuProcess], course: Course, sort: str, reverse: bool, tree: bool) -> list[list[Value | Cell]]:
    """Return a row a process and device; in a `tree` below the processes that started it, each of which is there once."""
    named = {(device.gpu, device.mig): (place, devices.named(device, course)) for place, device in enumerate(course)}
    listed = sorted(processes, key=lambda one: _process_key(one, sort, named), reverse=reverse)
    return [*_process_tree(listed, named)] if tree else [_process_row(one, named) for one in listed]


def _process_key(one: GpuProcess, sort: str, named: dict[Any, tuple[int, str]]) -> tuple[Any, ...]:
    place = (named.get(one.device, (10**9, ""))[0], one.pid)
    keys: dict[str, Callable[[], Any]] = {
        "user": lambda: one.user or "~", "pid": lambda: one.pid, "memory": lambda: -(one.gpu_memory or 0.0),
        "sm": lambda: -(one.sm_share or 0.0), "cpu": lambda: -(one.cpu or 0.0), "time": lambda: -(one.running or 0.0),
    }  # fmt: skip
    return (keys[sort]() if sort in keys else 0, *place)


def _process_row(one: GpuProcess, named: dict[Any, tuple[int, str]], depth: int = 0) -> list[Value | Cell]:
    command = "of another container or gone" if one.command is None else one.command
    return [
        named.get(one.device, (0, one.device[0]))[1],
        str(one.pid),
        one.user or UNKNOWN,
        one.job or "",
        one.kind,
        Cell(one.sm_share),
        Cell(_scaled(one.gpu_memory, _GB, 1)),
        Cell(None if one.cpu is None else f"{100 * one.cpu:,.0f}"),
        Cell(_scaled(one.host_memory, _GB, 1)),
        _span(one.running),
        "  " * depth + harmless(command, 300),
    ]


def _process_tree(listed: Sequence[GpuProcess], named: dict[Any, tuple[int, str]]) -> Iterator[list[Value | Cell]]:
    """Yield processes depth first, in the order in which the list names them or what they started."""
    commands, own = dict[int, str](), dict[int, list[GpuProcess]]()
    started, placed = dict[int, list[int]](), set[int]()
    for one in listed:
        own.setdefault(one.pid, []).append(one)
        commands |= dict(one.parents)
        chain = [pid for pid, _ in reversed(one.parents)]
        for parent, pid in pairwise([_ROOT, *chain, one.pid]):
            if pid not in placed:  # each once, whatever became of its parents between two looks
                placed.add(pid)
                started.setdefault(parent, []).append(pid)

    def below(parent: int, depth: int) -> Iterator[list[Value | Cell]]:
        for pid in started.get(parent, ()):
            if pid in own:
                yield from (_process_row(one, named, depth) for one in own[pid])
            else:
                yield ["", str(pid), "", "", "", None, None, None, None, "", "  " * depth + harmless(commands[pid], 300)]
            yield from below(pid, depth + 1)

    return below(_ROOT, 0)


PROCESS_COLUMNS = (
    Column("GPU"), Column("PID", FIGURES), Column("user", room=12), Column("job", room=16), Column("", key="kind"), Column("SM", PERCENT),
    Column("GPU GB", FIGURES), Column("CPU %", FIGURES), Column("host GB", FIGURES), Column("time", FIGURES), Column("command", UNCUT),
)  # fmt: skip
NARROW_PROCESSES = (0, 1, 2, 6, 10)  # the columns for which a narrow terminal has room
LINK_COLUMNS = (
    Column("GPU"), Column("NVLink out, GB/s", FIGURES), Column("in", FIGURES, "nvlink_rx"), Column("PCIe out, GB/s", FIGURES),
    Column("in", FIGURES, "pcie_rx"), Column("ECC", FIGURES), Column("rows remapped", FIGURES), Column("replays", FIGURES),
    Column("recoveries", FIGURES), Column("Xid", FIGURES),
)  # fmt: skip
NARROW_LINKS = (0, 1, 3, 5, 9)


def link_row(device: Watched, name: str) -> list[Value | Cell]:
    """Return what a device's links carry and which errors it has told; `–` is not told."""
    row = device.row
    rates = [Cell(_scaled(row.get(field), _GB, 2)) for field in ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")]
    counts = [
        Cell(_scaled(row.get(field), 1.0, 0)) for field in ("ecc_uncorrected", "remapped_rows", "nvlink_replays", "nvlink_recoveries")
    ]
    xid = row.get("xid")
    return [name, *rates, *counts, Cell(None if xid is None else "none" if not xid else f"{xid:.0f}")]


def history_table(device: Watched, cells: int) -> Table:
    """Return a curve for each thing that is remembered of a device, from its least to its most, with what it is now."""
    columns = [
        Column("", key="what"),
        Column("now", FIGURES),
        Column("least", FIGURES),
        Column("most", FIGURES),
        Column("the last readings"),
    ]
    rows = [_history_row("OFU", [ofu for _, _, ofu in device.course], 1.0, 0.01, cells)]
    for place, name in enumerate(HISTORIES):
        heading, full, unit = _HISTORY_NAMES[name]
        full = {"power": device.limits.power, "sm_clock": device.limits.sm_clock, "memory_used": device.limits.memory}.get(name, full)
        rows.append(_history_row(heading, [values[place] for values in device.history or ()], full, unit, cells))
    return Table("history", columns, rows, brief=len(rows))


def _history_row(heading: str, values: Sequence[float | None], full: float | None, unit: float, cells: int) -> list[Value | Cell]:
    known = [value for value in values if value is not None]
    if not known:
        return [heading, None, None, None, ""]
    sign = " %" if unit == 0.01 else ""
    words = [f"{value / unit:,.0f}{sign}" for value in (known[-1], min(known), max(known))]
    most = full or max(known) or 1.0
    drawn = (" " if value is None else BLOCKS[max(0, min(7, int(value / most * 8 + 1e-6)))] for value in values[-cells:])
    return [heading, *words, "".join(drawn)]


def factor_table(course: Course) -> Table:
    """Return OFU since the start and the factors whose product it is."""
    found = course.tree()
    rows: list[list[Value | Cell]] = [["OFU", found.ofu]]
    rows += [[factor.label, factor.value] for factor in found.factors]
    return Table("factors", [Column("factor"), Column("value", FACTOR)], rows, brief=len(rows))


def key_table() -> Table:
    """Return which key does what."""
    return Table("keys", [Column("key"), Column("does", WORDS)], [[*one] for one in KEYS], brief=len(KEYS))


def _scaled(value: float | None, unit: float, digits: int) -> str | None:
    return None if value is None else f"{value / unit:,.{digits}f}"


def _span(seconds: float | None) -> str:
    """Return how long something runs.

    >>> _span(75), _span(3 * 3600 + 120), _span(3 * 86400), _span(None)
    ('1:15', '3:02:00', '3 d', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    whole = max(0, round(seconds))
    if whole >= 2 * 86_400:
        return f"{whole // 86_400} d"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
