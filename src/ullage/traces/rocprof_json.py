"""rocprofv3's JSON (`--output-format json`): one object, for each process its agents, kernels, words, and records by sort.

Source: github.com/ROCm/rocprofiler-sdk, source/lib/output/generateJSON.cpp and tests/rocprofv3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.json.salvage import ERRORS
from ullage.traces.json.source import JsonSource
from ullage.traces.rocprof_members import Members, header
from ullage.traces.rocprof_rows import GPU, Agent, RocprofFacts, kernel, where_copied
from ullage.traces.row_batches import Row, batches
from ullage.traces.trace import File, TraceOptions, trace

_BLOCK = 16 << 20  # bytes that are read at once
_MARK = b'"rocprofiler-sdk-tool"'
_NEEDED = ("metadata", "agents", "strings", "kernel_symbols")  # what records name by number


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Correlation(msgspec.Struct, gc=False):
    internal: int = 0


class _Size(msgspec.Struct, gc=False):
    x: int = 1
    y: int = 1
    z: int = 1


class _Dispatch(msgspec.Struct, gc=False):
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    kernel_id: int = 0
    grid_size: _Size = msgspec.field(default_factory=_Size)
    workgroup_size: _Size = msgspec.field(default_factory=_Size)


class _Record(msgspec.Struct, gc=False):
    """A record of any sort; each has some of these."""

    kind: int | str = 0
    operation: int | str = 0
    thread_id: int = 0
    start_timestamp: int = 0
    end_timestamp: int = 0
    correlation_id: _Correlation = msgspec.field(default_factory=_Correlation)
    dispatch_info: _Dispatch | None = None
    stream_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    bytes: int | None = None


class _Records(msgspec.Struct):
    kernel_dispatch: list[_Record] = []
    memory_copy: list[_Record] = []
    hip_api: list[_Record] = []
    hsa_api: list[_Record] = []
    marker_api: list[_Record] = []


class _Agent(msgspec.Struct):
    id: _Handle = msgspec.field(default_factory=_Handle)
    type: int = 0
    logical_node_type_id: int | None = None
    name: str = ""
    product_name: str = ""
    uuid: Any = None


class _Symbol(msgspec.Struct):
    kernel_id: int = 0
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""


class _Kind(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class _Said(msgspec.Struct):
    key: int = 0
    value: str = ""


class _Words(msgspec.Struct):
    buffer_records: list[_Kind] = []
    marker_api: list[_Said] = []


class _Node(msgspec.Struct):
    hostname: str = ""


class _Metadata(msgspec.Struct):
    pid: int = 0
    node: _Node = msgspec.field(default_factory=_Node)
    command: Any = None


class _Process(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    kernel_symbols: list[_Symbol] = []
    strings: _Words = msgspec.field(default_factory=_Words)
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _Whole(msgspec.Struct):
    processes: list[_Process] | _Process = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


_DECODER = msgspec.json.Decoder(_Whole, strict=False)
_RECORDS = msgspec.json.Decoder(list[_Record], strict=False)
_OTHERS = msgspec.json.Decoder(list[msgspec.Raw])


@trace("rocprofv3", recognise=lambda file: 2 if _MARK in file.head[:4096] else 0, reads="rocprofv3 JSON (--output-format json)")
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield dispatches, copies, calls and ROCTx ranges; times in ns since the boot. Raises UllageError for a file that is no whole JSON."""
    told = RocprofFacts(file.name, recording, problems)
    beneath: list[pa.RecordBatch] = []
    for named, sort, records in _parts(file, options):
        if not sort:
            told.describe(named.agents.values(), named.process.metadata.node.hostname)
            told.process(named.process.metadata.pid)
            continue
        yield from batches(_MADE[sort](named, records, told), recording, problems)
        beneath = [] if told.hip else [*beneath, *batches(told.rest(), recording, problems)]
        told.beneath.clear()
    yield from beneath
    told.check()


@dataclass(frozen=True)
class _NamedRecords:
    """A process and what its records name by number."""

    process: _Process
    agents: dict[int, Agent]
    kernels: dict[int, str]
    messages: dict[int, str]


def _named(process: _Process) -> _NamedRecords:
    kernels = {s.kernel_id: s.formatted_kernel_name or s.demangled_kernel_name or s.kernel_name for s in process.kernel_symbols}
    messages = {message.key: message.value for message in process.strings.marker_api}
    return _NamedRecords(process, dict(_agents(process.agents)), kernels, messages)


def _parts(file: File, options: TraceOptions) -> Iterator[tuple[_NamedRecords, str, list[_Record]]]:
    """Yield each process ("" for the sort), then its records by sort, some at once.

    What names them stands before them; a file in which it doesn't is held in memory as a whole.
    """
    source = JsonSource(file, options.limit)
    try:
        found = header(source, _NEEDED)
        if found is None:
            source.close()
            source = JsonSource(file, options.limit)
            yield from _whole(_decoded(file, _all_of(source)))
            return
        before, text, is_list = found
        process = _decoded(file, before)[0]
        named = _named(process)
        yield named, "", []
        records = Members(source, text, lambda sort, array: _records(array) if sort in _MADE else _others(array))
        for sort, some in records:
            if sort in _MADE:
                yield named, sort, some
            options.progress(f"{source.taken / 1e6:,.0f} MB")
        if records.damage:
            raise _not_whole(file, records.damage)
        opened = b'{"rocprofiler-sdk-tool":[{"":{"":null' if is_list else b'{"rocprofiler-sdk-tool":{"":{"":null'
        yield from _whole(_decoded(file, opened + records.after + _all_of(source))[1:])  # it closes the process; others may follow
    finally:
        source.close()


def _whole(processes: list[_Process]) -> Iterator[tuple[_NamedRecords, str, list[_Record]]]:
    for process in processes:
        named = _named(process)
        yield named, "", []
        for sort in _MADE:
            yield named, sort, getattr(process.buffer_records, sort)


def _all_of(source: JsonSource) -> bytes:
    return b"".join(iter(lambda: source.block(_BLOCK), b""))


def _decoded(file: File, raw: bytes) -> list[_Process]:
    try:
        found: _Whole = _valid(_DECODER, raw)
    except ERRORS as error:
        raise _not_whole(file, str(error)) from error
    return found.processes if isinstance(found.processes, list) else [found.processes]


def _not_whole(file: File, why: str) -> UllageError:
    return UllageError(
        f"{file.name} is no whole JSON of rocprofv3 ({harmless(why)})",
        "rocprofv3 writes it when the program ends: was it killed? A database (--output-format rocpd) keeps what there was",
    )


def _records(text: bytes | memoryview) -> list[_Record]:
    found: list[_Record] = _valid(_RECORDS, text)
    return found


def _others(text: bytes | memoryview) -> list[_Record]:
    """Return nothing of records that are not looked at, if they are whole."""
    _valid(_OTHERS, text)
    return []


def _valid(decoder: msgspec.json.Decoder[Any], text: bytes | memoryview) -> Any:
    try:
        return decoder.decode(text)
    except UnicodeError:  # kernels' names may hold any bytes
        return decoder.decode(bytes(text).decode("utf-8", "replace"))


def _dispatched(named: _NamedRecords, records: list[_Record], told: RocprofFacts) -> Iterator[Row]:
    for record in records:
        sent = record.dispatch_info or _Dispatch()
        grid, block = ((size.x, size.y, size.z) for size in (sent.grid_size, sent.workgroup_size))
        row = _timed(record, named.process) | kernel(named.kernels.get(sent.kernel_id, ""), grid, block)
        row["stream"] = (record.stream_id or sent.queue_id).handle % 2**63
        if (found := told.work(row, named.agents.get(sent.agent_id.handle))) is not None:
            yield found


def _copied(named: _NamedRecords, records: list[_Record], told: RocprofFacts) -> Iterator[Row]:
    for record in records:
        ends = [None if agent is None else named.agents.get(agent.handle) for agent in (record.src_agent_id, record.dst_agent_id)]
        row = _timed(record, named.process) | {"kind": "memcpy", "name": _word(named.process, record), "bytes": record.bytes}
        row["stream"] = None if record.stream_id is None else record.stream_id.handle % 2**63
        if (found := told.work(row, where_copied(*ends))) is not None:
            yield found


def _agents(listed: list[_Agent]) -> Iterator[tuple[int, Agent]]:
    """Yield agents by their handles; GPUs are numbered as the file says, else one after another."""
    count = 0
    for one in listed:
        gpu = one.type == GPU
        number = count if one.logical_node_type_id is None else one.logical_node_type_id
        count += gpu
        uuid = one.uuid if isinstance(one.uuid, str | int) else None
        yield one.id.handle, Agent(gpu, number, one.product_name or one.name, uuid)


def _called(category: str, named: _NamedRecords, records: list[_Record], told: RocprofFacts) -> Iterator[Row]:
    for record in records:
        row = _timed(record, named.process) | {"thread": record.thread_id}
        if (found := told.called(row, category, _word(named.process, record))) is not None:
            yield found


def _marked(named: _NamedRecords, records: list[_Record], told: RocprofFacts) -> Iterator[Row]:
    for record in records:
        row = _timed(record, named.process) | {"thread": record.thread_id}
        name = named.messages.get(record.correlation_id.internal, "")
        if record.end_timestamp != record.start_timestamp and (found := told.called(row, "MARKER", name)) is not None:  # else a mark
            yield found


def _timed(record: _Record, process: _Process) -> Row:
    correlation = record.correlation_id.internal
    times: Row = {"start": record.start_timestamp, "end": record.end_timestamp, "process": process.metadata.pid}
    return times | ({"correlation": correlation} if 0 < correlation < 2**63 else {})


def _word(process: _Process, record: _Record) -> str:
    """Return what an operation is called: the file says it by number, or itself."""
    kinds = process.strings.buffer_records
    if isinstance(record.operation, str):
        return record.operation
    if not isinstance(record.kind, int) or not 0 <= record.kind < len(kinds):
        return ""
    words = kinds[record.kind].operations
    return words[record.operation] if 0 <= record.operation < len(words) else ""


_MADE: dict[str, Callable[[_NamedRecords, list[_Record], RocprofFacts], Iterator[Row]]] = {
    "hip_api": partial(_called, "HIP"),
    "hsa_api": partial(_called, "HSA"),
    "marker_api": _marked,
    "kernel_dispatch": _dispatched,
    "memory_copy": _copied,
}
