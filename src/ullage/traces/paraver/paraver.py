"""Paraver traces (`.prv`, also compressed) of Extrae and nsys2prv, with the names beside them (`.pcf`, `.row`) where these are there.

Useful time is POP's: the state Running. All else of a process' main thread from 0 to the trace's end is told as `mpi`: MPI
calls by name (events 50000001 to 50000005), and states that are neither Running nor within a call by the state's name ("Not created",
"I/O", …). What it loses to OpenMP (it forks, joins, synchronises) is told as `parallel`, and so is all else of it in a trace without
MPI. MPI_Init and MPI_Finalize are the edges of the run (`mpi_clock`); POP's tools (pypop, modelfactors) count from 0 to the
trace's end, and both as communication.
Traces without states (nsys2prv) are useful where no call is. Other threads of a process are told as `parallel` while they don't run.

A lane whose name in the `.row` begins with `CUDA-D1.S2` is stream 2 of the process' device 1: there Running is a kernel, and
`Memory transfer` a copy; without states the events of nsys2prv tell (63000006 kernels, 63000007 NCCL, 63000001 copies).
`PAPI_TOT_INS` and `PAPI_TOT_CYC` are summed over readings within Running bursts only, as IPC and frequency need: `recording.counters`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Process, Recording
from ullage.traces.paraver.header import Header, header
from ullage.traces.paraver.intervals import CYCLES, INSTRUCTIONS, UNENDED, ParaverLanes, batches, layout, mpi_calls, mpi_clock, wanted
from ullage.traces.paraver.lanes import Lanes, Numbers, lanes, useful_counts
from ullage.traces.paraver.names import ParaverNames, names
from ullage.traces.paraver.records import blocks, records
from ullage.traces.trace import File, TraceOptions, trace

START = b"#Paraver ("
UNTRACED = 14  # the state "Tracing Disabled"
_SLACK, _TIMES = 3_600 * 10**9, 10  # ns, and lengths of the trace, beyond which a record's time can't be
WHOLE = 0.99  # of the length that the header tells; a trace that ends before was cut


@trace(
    "paraver",
    recognise=lambda file: 2 if file.head.startswith(START) else 0,
    reads="Paraver (.prv of Extrae or nsys2prv, with its .pcf and .row)",
    beside=(".pcf", ".row"),
)
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield record batches of intervals; times in ns from the trace's own zero."""
    head = header(file.head.split(b"\n", 1)[0].decode("utf-8", "replace"), file.name)
    called = names(file.path, problems)
    placed = layout(head, called)
    _describe(head, called, recording, options)
    found = _loaded(file, head, placed, wanted(called), recording, options, problems)
    for process in range(len(head.threads)):
        recording.saw(process, 0, found.end)
    calls, unended = mpi_calls(found, placed)
    for process, (begin, end) in mpi_clock(calls, placed, called, found.end).items():
        recording.clocked(process, begin, end)
    _count(found, placed, recording)
    off = found.states[found.states[:, 3] == UNTRACED]
    if len(off):
        seconds = int((off[:, 2] - off[:, 1]).sum()) / 1e9
        problems.note(f"tracing was switched off for {seconds:.3g} s, summed over threads; that time counts as not useful")
    problems.repair(UNENDED, unended)
    yield from batches(found, calls, placed, called, problems)


def _loaded(
    file: File, head: Header, placed: ParaverLanes, kinds: Numbers, recording: Recording, options: TraceOptions, problems: Problems
) -> Lanes:
    """Return all states and the wanted events by lane. A damaged file gives what comes before the damage."""
    states: list[Numbers] = []
    events: list[Numbers] = []
    done, ended = 0, True
    with file.open() as stream:
        try:
            for block in blocks(stream):
                done += len(block)
                if done > options.limit:
                    raise _LimitError(f"{file.name} unpacks to more than {options.limit:,} bytes", "raise the limit if the file is yours")
                ended = block.endswith(b"\n")
                got = records(block if ended else block[: block.rfind(b"\n") + 1], kinds, problems)
                states.append(_placed(got.states, placed, head, 2, problems))
                events.append(_placed(got.events, placed, head, 1, problems))
                options.progress(f"{done / 1e6:,.0f} MB")
        except _LimitError:
            raise
        except UllageError as error:
            if options.strict:
                raise
            recording.cut = error.problem
    last = max((int(part[:, column].max()) for parts, column in ((states, 2), (events, 1)) for part in parts if len(part)), default=0)
    _check_end(file, head, last, ended, recording, options)
    return lanes(states, events, max(head.length, last) if not recording.cut else last)


class _LimitError(UllageError):
    """The file is longer than it may be: no damage, a refusal."""


def _check_end(file: File, head: Header, last: int, ended: bool, recording: Recording, options: TraceOptions) -> None:
    cut = "" if ended else "the file ends inside a line"
    if not cut and last < WHOLE * head.length:
        cut = f"its first line tells of {head.length / 1e9:.6g} s, its last record is at {last / 1e9:.6g} s"
    if cut and options.strict:
        raise UllageError(f"{file.name} is cut off: {cut}", "copy the trace again, or leave out --strict to use what is there")
    recording.cut = recording.cut or cut


def _placed(rows: Numbers, placed: ParaverLanes, head: Header, times: int, problems: Problems) -> Numbers:
    """Return rows by lane instead of application, task and thread, their times in ns; what is of no known thread or of no time
    that can be is left out."""
    moments = rows[:, 3 : 3 + times]
    fair = ((moments >= 0) & (moments <= (_SLACK + _TIMES * head.length) // head.unit)).all(axis=1)
    problems.drop("records at impossible times", int((~fair).sum()))
    rows = rows[fair]
    lane = placed.lane(rows[:, 0], rows[:, 1], rows[:, 2])
    known = lane >= 0
    problems.drop("records of threads that the first line doesn't list", int((~known).sum()))
    rest = rows[:, 3:].copy()
    rest[:, :times] *= head.unit
    return np.column_stack((lane, rest))[known]


def _describe(head: Header, called: ParaverNames, recording: Recording, options: TraceOptions) -> None:
    hosts = called.rows.get("NODE", [])
    alone = len(head.offsets) == 1
    recording.prefers, recording.ranks, recording.covers = "talp", len(head.threads), "run"
    recording.source = "Paraver"
    for process, node in enumerate(head.nodes):
        host = hosts[node - 1] if 0 < node <= len(hosts) else ""
        recording.processes[process] = Process(rank=process if alone else None, host=host, name="" if alone else f"task {process + 1}")
    if len(head.threads) == 1 and options.rank is not None:
        recording.processes[0].rank = options.rank


def _count(found: Lanes, placed: ParaverLanes, recording: Recording) -> None:
    """Fill in what was counted within useful bursts, by process."""
    for name, kind in (("instructions", INSTRUCTIONS), ("cycles", CYCLES)):
        lane, moment, value, over = useful_counts(found, kind)
        for process in np.unique(placed.process[lane]):
            begin, end = recording.mpi_clock.get(int(process), (None, None))
            mine = (placed.process[lane] == process) & (moment > (-1 if begin is None else begin))
            mine &= moment <= (found.end if end is None else end)
            sums = recording.counters.setdefault(int(process), {})
            sums[name] = int(value[mine].sum())
            sums["useful_time"] = max(sums.get("useful_time", 0), int(over[mine].sum()))
