"""What the lanes of a Paraver trace did, as record batches of intervals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage import arrays
from ullage.problems import Problems
from ullage.tables import CALLS, KINDS, intervals
from ullage.traces.calls import call, is_collective
from ullage.traces.mpi_clock import edge
from ullage.traces.paraver.header import Header
from ullage.traces.paraver.lanes import RUNNING, Lanes, Numbers, Stretches, after_calls, stretches, unstated, values_at
from ullage.traces.paraver.names import MPI_TYPES, ParaverNames

INSTRUCTIONS, CYCLES = 42000050, 42000059  # PAPI_TOT_INS, PAPI_TOT_CYC
MPI = list(MPI_TYPES)
OPENMP = 60000001  # in a parallel region
API = [63000000, 63000001]  # calls of the GPU's interface: nsys2prv's, Extrae's
KERNELS, NCCL, COPIES, SIZES, CORRELATION = 63000006, 63000007, 63000001, 63000002, 9200  # nsys2prv, on lanes of devices
_EXTRAE: dict[tuple[int, int], str] = {(50000003, 31): "init", (50000003, 32): "finalize"}  # where no .pcf names them
UNENDED = "calls without an end, taken to last to the end of the trace"
TRANSFER = 17  # the state "Memory transfer"
MOST_ROWS = 1 << 20  # of one batch


@dataclass(frozen=True)
class ParaverLanes:
    """Of each lane: its `process` and `thread` (from 0), and its `device` and `stream`, -1 for a thread of a host."""

    head: Header
    first: Numbers
    process: Numbers
    thread: Numbers
    device: Numbers
    stream: Numbers

    def lane(self, application: Numbers, task: Numbers, thread: Numbers) -> Numbers:
        """Return the lanes of threads by the trace's own numbers (from 1); -1 for threads that it doesn't list."""
        offsets, threads = np.array([*self.head.offsets, len(self.head.threads)]), np.array(self.head.threads)
        known = (application >= 1) & (application <= len(self.head.offsets)) & (task >= 1) & (thread >= 1)
        which = np.where(known, application, 1)
        process = offsets[which - 1] + np.where(known, task, 1) - 1
        known &= process < offsets[which]
        process = np.where(known, process, 0)
        known &= thread <= threads[process]
        return np.where(known, self.first[process] + thread - 1, -1)


def layout(head: Header, called: ParaverNames) -> ParaverLanes:
    """Return what each lane is, from the first line and the lanes' names; a process' devices are its own."""
    threads = np.array(head.threads)
    first = np.cumsum(threads) - threads
    process = np.repeat(np.arange(len(threads)), threads)
    labels = called.rows.get("THREAD", [])
    named = [device_lane(label) for label in labels] if len(labels) == len(process) else [None] * len(process)
    numbers: dict[tuple[int, int], int] = {}
    device = [-1 if on is None else numbers.setdefault((int(p), on[0]), len(numbers)) for p, on in zip(process, named, strict=True)]
    stream = [-1 if on is None else on[1] for on in named]
    return ParaverLanes(head, first, process, np.arange(len(process)) - first[process], np.array(device), np.array(stream))


def within_openmp(state: str) -> bool:
    """Return whether a state of a thread, by its name, is of OpenMP's.

    >>> [within_openmp(name) for name in ("Scheduling and Fork/Join", "Synchronization", "I/O", "Group Communication")]
    [True, True, False, False]
    """
    return re.search(r"(?i)sched|fork|join|synchroni[sz]", state) is not None


def device_lane(label: str) -> tuple[int, int] | None:
    """Return the device and stream (from 1) of a lane by its name, None for a thread of a host.

    >>> device_lane("CUDA-D1.S2-node7"), device_lane("THREAD 1.1.1")
    ((1, 2), None)
    """
    found = re.match(r"(?:CUDA|HIP|ROCM|GPU)-D(\d{1,6})\.S(\d{1,9})", label)
    return (int(found[1]), int(found[2])) if found else None


def wanted(called: ParaverNames) -> Numbers:
    """Return the types of events that matter."""
    return np.array([*MPI, *API, KERNELS, NCCL, SIZES, CORRELATION, INSTRUCTIONS, CYCLES, *_kernel_names(called), *_sizes(called)])


def _kernel_names(called: ParaverNames) -> list[int]:
    return [
        kind
        for kind in called.about(r"(?i)\b(cuda|hip|nccl|opencl)\b.*kernel")
        if not re.search(r"(?i)memcpy|line|size", called.types[kind])
    ]


def _sizes(called: ParaverNames) -> list[int]:
    return called.about(r"(?i)memory size|memcopy size|transfer size")


def mpi_calls(found: Lanes, placed: ParaverLanes) -> tuple[Stretches, int]:
    """Return the calls of MPI on hosts, and how many never ended."""
    return stretches(found.events[placed.device[found.events[:, 0]] < 0], MPI, found.end)


def mpi_clock(mpi: Stretches, placed: ParaverLanes, called: ParaverNames, end: int) -> dict[int, tuple[int | None, int | None]]:
    """Return when MPI_Init returned and MPI_Finalize was called, by process; one that never returned lasts to the trace's `end`."""
    edges = {
        pair: edge(called.value(*pair)) or _EXTRAE.get(pair, "") for pair in set(zip(mpi.kind.tolist(), mpi.value.tolist(), strict=True))
    }
    found: dict[int, tuple[int | None, int | None]] = {}
    for (kind, value), which in edges.items():
        for row in np.flatnonzero((mpi.kind == kind) & (mpi.value == value)) if which else ():
            process = int(placed.process[mpi.lane[row]])
            begin, over = found.get(process, (None, None))
            if which == "init" and mpi.end[row] < end:
                begin = max(begin or 0, int(mpi.end[row]))
            elif which == "finalize":
                over = min(end if over is None else over, int(mpi.start[row]))
            found[process] = begin, over
    return found


def batches(found: Lanes, mpi: Stretches, placed: ParaverLanes, called: ParaverNames, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield all intervals: calls (`mpi` are those of MPI), what else hosts did instead of computing, and what ran on devices."""
    host = placed.device[found.events[:, 0]] < 0
    on_host, on_device = found.events[host], found.events[~host]
    api, open_api = stretches(on_host, API, found.end)
    problems.repair(UNENDED, open_api)
    words = _Words(called)
    yield from _batches(_mpi(mpi, placed, words))
    yield from _batches(_api(api, on_host, placed, words))
    states = found.states[placed.device[found.states[:, 0]] < 0]
    states = np.concatenate((states[states[:, 3] != RUNNING], unstated(states, found.end)))
    for calls in (mpi, api):
        states = after_calls(states, calls)
    waits = _states_of_openmp(states, placed, called, bool(len(mpi.lane)))
    yield from _batches(_waiting(states, waits, placed, words))
    yield from _batches(_device(found, on_device, placed, called, words, problems))


class _Words:
    """Names of states and event values by code."""

    def __init__(self, called: ParaverNames) -> None:
        self._called = called

    def values(self, kind: Numbers, value: Numbers) -> pa.DictionaryArray:
        """Return the names of events' values."""
        pairs, codes = np.unique(np.stack((kind, value), axis=1), axis=0, return_inverse=True)
        return _dictionary(codes.reshape(-1), [self._called.value(int(k), int(v)) for k, v in pairs])

    def states(self, state: Numbers) -> pa.DictionaryArray:
        """Return the names of states."""
        found, codes = np.unique(state, return_inverse=True)
        return _dictionary(codes.reshape(-1), [self._called.states.get(int(s), f"state {s}") for s in found])


def _dictionary(codes: npt.NDArray[np.intp], words: list[str]) -> pa.DictionaryArray:
    return arrays.coded(codes.astype(np.int32), words)


def _kinds(kind: npt.NDArray[np.int8], words: tuple[str, ...] = KINDS) -> pa.DictionaryArray:
    return arrays.coded(kind.astype(np.int8), words)


def _batches(columns: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(columns["start"]), MOST_ROWS):
        yield intervals({name: values[first : first + MOST_ROWS] for name, values in columns.items()})


def _on_host(lane: Numbers, placed: ParaverLanes) -> dict[str, Any]:
    return {"process": placed.process[lane], "thread": placed.thread[lane]}


def _communication(waits: npt.NDArray[np.bool_]) -> pa.DictionaryArray:
    """Return the kind of what keeps a thread from computing: one that `waits` for other threads is OpenMP-like, else it communicates."""
    return _kinds(np.where(waits, KINDS.index("parallel"), KINDS.index("mpi")).astype(np.int8))


def _states_of_openmp(states: Numbers, placed: ParaverLanes, called: ParaverNames, mpi: bool) -> npt.NDArray[np.bool_]:
    """Return which states of hosts are time that threads lose to one another: those of workers, and of a main thread outside MPI.

    A program of threads without MPI communicates with nobody. With both, a main thread is within OpenMP when it forks, joins or
    synchronises.
    """
    threads = OPENMP in called.types or bool((placed.thread[placed.device < 0] > 0).any())
    named = [state for state, name in called.states.items() if within_openmp(name)] if threads else []
    return np.full(len(states), threads and not mpi) | (placed.thread[states[:, 0]] > 0) | np.isin(states[:, 3], named)


def _mpi(mpi: Stretches, placed: ParaverLanes, words: _Words) -> dict[str, Any]:
    name, kind = words.values(mpi.kind, mpi.value), _communication(placed.thread[mpi.lane] > 0)
    return {"start": mpi.start, "end": mpi.end, "kind": kind, "name": name, **_on_host(mpi.lane, placed)}


def _waiting(states: Numbers, waits: npt.NDArray[np.bool_], placed: ParaverLanes, words: _Words) -> dict[str, Any]:
    kind, name = _communication(waits), words.states(states[:, 3])
    return {"start": states[:, 1], "end": states[:, 2], "kind": kind, "name": name, **_on_host(states[:, 0], placed)}


def _api(api: Stretches, events: Numbers, placed: ParaverLanes, words: _Words) -> dict[str, Any]:
    name = words.values(api.kind, api.value)
    does = np.array([CALLS.index(call(word)) for word in name.dictionary.to_pylist()], np.int8)
    _, correlation = values_at(events, [CORRELATION], api.lane, api.start)
    return {
        "start": api.start,
        "end": api.end,
        "kind": _kinds(np.full(len(api.start), KINDS.index("api"), np.int8)),
        "name": name,
        "call": _kinds(does[arrays.plain(name.indices, 0)] if len(api.start) else np.zeros(0, np.int8), CALLS),
        "correlation": _known(correlation),
        **_on_host(api.lane, placed),
    }


def _known(values: Numbers) -> pa.Array:
    return arrays.numbers(values, values < 0)


def _device(found: Lanes, events: Numbers, placed: ParaverLanes, called: ParaverNames, words: _Words, problems: Problems) -> dict[str, Any]:
    """Return what ran on devices: from their lanes' states, or from events where a lane has none."""
    states = found.states[(placed.device[found.states[:, 0]] >= 0) & np.isin(found.states[:, 3], [RUNNING, TRANSFER])]
    silent = ~np.isin(events[:, 0], states[:, 0])
    ran, unended = stretches(events[silent], [KERNELS, NCCL, COPIES], found.end)
    problems.repair("device operations without an end, taken to last to the end of the trace", unended)
    kind, value = values_at(events, [*_kernel_names(called), COPIES], states[:, 0], states[:, 1])
    moves = np.concatenate((states[:, 3] == TRANSFER, ran.kind == COPIES))
    name = words.values(np.concatenate((kind, ran.kind)), np.concatenate((value, ran.value)))
    lane, start = np.concatenate((states[:, 0], ran.lane)), np.concatenate((states[:, 1], ran.start))
    nccl = np.concatenate((kind == NCCL, ran.kind == NCCL))
    _, size = values_at(events, [SIZES, *_sizes(called)], lane, start)
    _, correlation = values_at(events, [CORRELATION], lane, start)
    return {
        "start": start,
        "end": np.concatenate((states[:, 2], ran.end)),
        "kind": _device_kinds(moves, nccl, name),
        "name": name,
        "process": placed.process[lane],
        "device": placed.device[lane].astype(np.int32),
        "stream": placed.stream[lane],
        "bytes": _known(size),
        "correlation": _known(correlation),
    }


def _device_kinds(moves: npt.NDArray[np.bool_], nccl: npt.NDArray[np.bool_], name: pa.DictionaryArray) -> pa.DictionaryArray:
    words = name.dictionary.to_pylist()
    codes = arrays.plain(name.indices, 0)
    talks = np.array([is_collective(word) for word in words], bool)
    clears = np.array(["memset" in word.lower() for word in words], bool)
    kernel = np.where(nccl | talks[codes], KINDS.index("collective"), KINDS.index("kernel"))
    memory = np.where(clears[codes], KINDS.index("memset"), KINDS.index("memcpy"))
    return _kinds(np.where(moves, memory, kernel).astype(np.int8))
