"""What code a run's time belongs to: idle time, kernels, calls, queues, copies."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.reports.trace.code import CodeReport
from ullage.reports.trace.trace import TraceReport
from ullage.sums.lanes.code.calls import MPI
from ullage.sums.lanes.idle import Gap
from ullage.views.names import innermost
from ullage.views.notation import BYTE_RATE, BYTES, COUNT, PATH, PERCENT_1, THREE_DIGITS, TIME
from ullage.views.numbers import percent
from ullage.views.view import Cell, Column, Table, Value

LEVELS = {"function": "Python function", "operator": "operator", "annotation": "range or module"}
_CALLED = {"operator": "an operator", "annotation": "a range or module", "function": "a Python function"}
PAGE = 30  # rows on a page


def code_tables(report: TraceReport, top: int) -> list[Table]:
    """Return the tables, of which a terminal shows `top` rows each; none where they are of more than the region."""
    code = report.code
    if code is None or (report.region is not None and report.tables_of):
        return []
    numbers = {device.key: number for number, device in enumerate(report.run.devices)} if report.run is not None else {}
    return [
        *(_idle(code, level, top) for level in LEVELS if level in code.idle and code.idle_time and code.idle[level].rows),
        _calls(report, code, top),
        *(_kernels(code, level, top) for level in ("operator", "annotation") if level in code.device.levels and code.device.all),
        _queues(code, numbers, top),
        _copies(code, top),
    ]


def _table(
    title: str, columns: Sequence[Column], rows: Sequence[Sequence[Value | Cell]], top: int, last: Sequence[Sequence[Value | Cell]] = ()
) -> Table:
    return Table(title[:1].lower() + title[1:], columns, rows, title, brief=top, page=PAGE, elsewhere="--top shows them", last=last)


def _idle(code: CodeReport, level: str, top: int) -> Table:
    times, whole = code.idle[level], code.idle_time
    columns = [Column(LEVELS[level], PATH, room=60), Column("share", PERCENT_1), Column("device time", TIME)]
    rows: list[list[Value | Cell]] = [[row.name, row.time / whole, row.time, row.count, row.longest] for row in times.rows]
    rest = (
        (f"(not in {_CALLED[level]})", times.outside),
        ("(launched, waiting in the queue)", code.launched),
        ("(not known)", code.unknown),
    )
    last: list[list[Value | Cell]] = [[label, time / whole, time, *_EMPTY] for label, time in rest if time]
    return _table(f"Idle time by {LEVELS[level]} of the host", [*columns, Column("gaps", COUNT), Column("longest", TIME)], rows, top, last)


_EMPTY = (Cell(None, " "), Cell(None, " "))


def _kernels(code: CodeReport, level: str, top: int) -> Table:
    times, whole = code.device.levels[level], code.device.all
    backward = any(row.backward for row in times.rows)
    columns = [Column(LEVELS[level], PATH, room=60), Column("kernels", COUNT), Column("time", TIME), Column("share", PERCENT_1)]
    columns += [Column("longest", TIME), *([Column("backward", TIME)] if backward else [])]
    rows: list[list[Value | Cell]] = [
        [row.name, row.count, row.time, row.time / whole, row.longest, *([row.backward] if backward else [])] for row in times.rows
    ]
    rest = ((f"(not in {_CALLED[level]})", times.outside), ("(launch not recorded)", code.device.unlaunched))
    last: list[list[Value | Cell]] = [[label, _EMPTY[0], time, time / whole, *_EMPTY[: 1 + backward]] for label, time in rest if time]
    return _table(f"Kernel time by {LEVELS[level]} that launched", columns, rows, top, last if rows else ())


def _calls(report: TraceReport, code: CodeReport, top: int) -> Table:
    devices = bool(report.whole.device_parts)
    columns = [Column("call", room=60), Column("count", COUNT), Column("time", TIME), Column("median", TIME), Column("longest", TIME)]
    rows: list[list[Value | Cell]] = [
        [row.name or "(unnamed)", row.count, row.time, row.median, row.longest, *([row.waited] if devices else [])] for row in code.calls
    ]
    waited = [Column("devices waited", TIME)] if devices else []
    return _table(f"Calls {_sorts(code, mpi=report.whole.factors.mpi)}", [*columns, *waited], rows, top)


def _sorts(code: CodeReport, *, mpi: bool) -> str:
    """Return what the calls are of: the GPU's interface, MPI, or another library that communicates, such as gloo."""
    communicate = any(row.sort == MPI for row in code.calls)
    if all(row.sort == MPI for row in code.calls):
        return "of MPI" if mpi else "that communicate"
    return f"of the GPU's interface{' and MPI' if mpi else ' and those that communicate' if communicate else ''}"


def _queues(code: CodeReport, numbers: dict[str, int], top: int) -> Table:
    columns = [Column("stream"), Column("launches", COUNT), Column("to start, median", TIME), Column("95th percentile", TIME)]
    columns += [Column("queued, mean", THREE_DIGITS), Column("most", COUNT)]
    queues = [(key, queue) for key, found in code.queues.items() for queue in found]
    rows: list[list[Value | Cell]] = [
        [
            f"GPU {numbers.get(key, '?')} stream {queue.stream if queue.stream >= 0 else '?'}",
            *(queue.launches, queue.delay, queue.delay_95, queue.mean, queue.longest),
        ]
        for key, queue in sorted(queues, key=lambda found: -found[1].launches)
    ]
    return _table("From launch to start", columns, rows, top)


def _copies(code: CodeReport, top: int) -> Table:
    columns = [
        Column("direction", room=60),
        Column("count", COUNT),
        Column("bytes", BYTES),
        Column("time", TIME),
        Column("bandwidth", BYTE_RATE),
    ]
    rows = [[row.direction, row.count, row.bytes or None, row.time, row.bandwidth] for row in code.copies]
    return _table("Copies", columns, rows, top)


def host_code(gap: Gap) -> str:
    """Return in what code a gap's host was: the function that lasts through it, and what was innermost for most of it; "" for none."""
    inner = next((gap.code[level] for level in LEVELS if level in gap.code), None)
    if inner is None:
        return ""
    around = gap.code.get("around")
    within = f"{innermost(inner.name, 100)} {percent(inner.time / (gap.end - gap.start))}"
    return within if around is None or around.name == inner.name else f"{innermost(around.name, 100)}: {within}"
