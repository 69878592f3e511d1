"""The tables of what code a run's time belongs to, once for text and page: idle time, kernels, calls, queues, copies."""

from __future__ import annotations

from typing import NamedTuple

from ullage.errors import harmless
from ullage.reports.code import CodeReport
from ullage.reports.trace import TraceReport
from ullage.sums.lanes.code.times import CodeTimes
from ullage.sums.lanes.idle import Gap
from ullage.views.numbers import UNKNOWN, flops, percent
from ullage.views.table import table
from ullage.views.times import seconds

LEVELS = {"function": "Python function", "operator": "operator", "annotation": "range or module"}
_CALLED = {"operator": "an operator", "annotation": "a range or module", "function": "a Python function"}
_WIDE = 60  # characters of a name in a terminal


class Table(NamedTuple):
    """A table: rows of cells, each as a person reads it and the number to sort by; the first `words` columns are words."""

    title: str
    head: tuple[str, ...]
    rows: list[list[tuple[str, float | None]]]
    words: int = 1


def text(report: TraceReport, *, top: int) -> str:
    """Return the tables as text, so many names each."""
    found = [
        table([part.title, *part.head[1:]], [[shown for shown, _ in row] for row in part.rows], left=part.words)
        for part in tables(report, top=top, wide=_WIDE)
    ]
    return "\n\n".join(found)


def tables(report: TraceReport, *, top: int, wide: int) -> list[Table]:
    """Return the tables that have rows: `top` names each, names cut to `wide` characters; none where they are of more than the region."""
    code = report.code
    if code is None or (report.region is not None and report.tables_of):
        return []
    numbers = {device.key: n for n, device in enumerate(report.run.devices)} if report.run is not None else {}
    found = [
        *(_idle(code, level, top, wide) for level in LEVELS if level in code.idle),
        _calls(code, top, wide, "calls of the GPU's interface and MPI" if report.whole.factors.mpi else "calls of the GPU's interface"),
        *(_device(code, level, top, wide) for level in ("operator", "annotation") if level in code.device.levels),
        _queues(code, numbers, top),
        _copies(code, top, wide),
    ]
    return [part for part in found if part.rows]


def _idle(code: CodeReport, level: str, top: int, wide: int) -> Table:
    times, whole = code.idle[level], code.idle_time
    if not whole or not times.rows:
        return Table("", (), [])
    rows = [
        [(name(row.name, wide), None), _share(row.time, whole), _time(row.time), _count(row.count), _time(row.longest)]
        for row in times.rows[:top]
    ]
    rest = [(_more(times, top), sum(row.time for row in times.rows[top:])), (f"(not in {_CALLED[level]})", times.outside)]
    rest += [("(launched, waiting in the queue)", code.launched), ("(not known)", code.unknown)]
    rows += [[(label, None), _share(time, whole), _time(time), _NONE, _NONE] for label, time in rest if time]
    return Table(f"idle time by {LEVELS[level]} of the host", (LEVELS[level], "share", "device time", "gaps", "longest"), rows)


def _device(code: CodeReport, level: str, top: int, wide: int) -> Table:
    times, whole = code.device.levels[level], code.device.all
    if not whole or not times.rows:
        return Table("", (), [])
    rows = [
        [(name(row.name, wide), None), _count(row.count), _time(row.time), _share(row.time, whole), _time(row.longest), _time(row.backward)]
        for row in times.rows[:top]
    ]
    rest = [(_more(times, top), sum(row.time for row in times.rows[top:])), (f"(not in {_CALLED[level]})", times.outside)]
    rest += [("(launch not recorded)", code.device.unlaunched)]
    rows += [[(label, None), _NONE, _time(time), _share(time, whole), _NONE, _NONE] for label, time in rest if time]
    head = (LEVELS[level], "kernels", "time", "share", "longest", "backward")
    seen = len(head) if any(row.backward for row in times.rows) else -1
    return Table(f"kernel time by {LEVELS[level]} that launched", head[:seen], [row[:seen] for row in rows])


def _calls(code: CodeReport, top: int, wide: int, title: str) -> Table:
    rows = [
        [
            (name(row.name, wide) or "(unnamed)", None),
            _count(row.count),
            *(_time(t) for t in (row.time, row.median, row.longest, row.waited)),
        ]
        for row in code.calls[:top]
    ]
    return Table(title, ("call", "count", "time", "median", "longest", "devices waited"), rows)


def _queues(code: CodeReport, numbers: dict[str, int], top: int) -> Table:
    rows = [
        [
            (f"GPU {numbers.get(key, '?')} stream {queue.stream if queue.stream >= 0 else '?'}", None),
            _count(queue.launches),
            _time(queue.delay),
            _time(queue.delay_95),
            (UNKNOWN if queue.mean is None else f"{queue.mean:,.3g}", queue.mean),
            _count(queue.longest),
        ]
        for key, queues in code.queues.items()
        for queue in queues
    ]
    head = ("stream", "launches", "to begin, median", "95th percentile", "queued, mean", "most")
    return Table("from launch to begin", head, sorted(rows, key=lambda row: -(row[1][1] or 0))[:top])


def _copies(code: CodeReport, top: int, wide: int) -> Table:
    rows = [
        [
            (name(row.direction, wide), None),
            _count(row.count),
            (flops(row.bytes, "B") if row.bytes else UNKNOWN, row.bytes),
            _time(row.time),
            (UNKNOWN if row.bandwidth is None else flops(round(row.bandwidth), "B/s"), row.bandwidth),
        ]
        for row in code.copies[:top]
    ]
    return Table("copies", ("direction", "count", "bytes", "time", "bandwidth"), rows)


_NONE: tuple[str, float | None] = ("", None)


def _share(time: int, whole: int) -> tuple[str, float | None]:
    return percent(time / whole, 1), time / whole


def _time(time: int | None) -> tuple[str, float | None]:
    return seconds(time), time


def _count(count: int) -> tuple[str, float | None]:
    return f"{count:,}", count


def _more(times: CodeTimes, top: int) -> str:
    return f"({max(len(times.rows) - top, 0):,} more)"


def name(text: str, wide: int) -> str:
    """Return a name cut to a width: of a path the end, for that is the innermost; of other names the begin.

    >>> name("transformers/image_transforms.py(390): normalize", 30), name("Model/Layer/Linear", 16)
    ('…transforms.py(390): normalize', '…el/Layer/Linear')
    """
    plain = harmless(text, 1000)
    if len(plain) <= wide:
        return plain
    return "…" + plain[1 - wide :] if "/" in plain else plain[: wide - 1].rstrip() + "…"


def where(gap: Gap, wide: int) -> str:
    """Return in what code a gap's host was: the function that lasts through it, and what was innermost for most of it."""
    inner = next((gap.code[level] for level in LEVELS if level in gap.code), None)
    if inner is None:
        return ""
    around = gap.code.get("around")
    share = percent(inner.time / (gap.end - gap.start))
    if around is None or around.name == inner.name:
        return f"{name(inner.name, wide)} {share}"
    return f"{name(around.name, wide)}: {name(inner.name, wide)} {share}"
