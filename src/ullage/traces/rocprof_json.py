"""rocprofv3's JSON (`--output-format json`): one object, for each process its agents, kernels, words, and records by sort.

Source: github.com/ROCm/rocprofiler-sdk, source/lib/output/generateJSON.cpp and tests/rocprofv3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.json_salvage import ERRORS
from ullage.traces.json_source import Source
from ullage.traces.rocprof_rows import GPU, Agent, Told, kernel, where_copied
from ullage.traces.row_batches import Row, batches
from ullage.traces.trace import File, Options, trace

_BLOCK = 16 << 20  # bytes that are read at once
_MARK = b'"rocprofiler-sdk-tool"'


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


@trace("rocprofv3", recognise=lambda file: 2 if _MARK in file.head[:4096] else 0, reads="rocprofv3 JSON (--output-format json)")
def read(file: File, recording: Recording, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield dispatches, copies, calls and ROCTx ranges; times in ns since the boot. Raises UllageError for a file that is no whole JSON."""
    told = Told(file.name, recording, problems)
    for process in _processes(file, options.limit):
        yield from batches(_rows(process, told), recording, problems)
    yield from batches(told.rest(), recording, problems)
    told.check()


def _processes(file: File, limit: int) -> list[_Process]:
    source = Source(file, limit)
    try:
        raw = b"".join(iter(lambda: source.block(_BLOCK), b""))
    finally:
        source.close()
    try:
        try:
            found = _DECODER.decode(raw)
        except UnicodeError:  # kernels' names may hold any bytes
            found = _DECODER.decode(raw.decode("utf-8", "replace"))
    except ERRORS as error:
        raise UllageError(
            f"{file.name} is no whole JSON of rocprofv3 ({harmless(str(error))})",
            "rocprofv3 writes it when the program ends: was it killed? A database (--output-format rocpd) keeps what there was",
        ) from error
    return found.processes if isinstance(found.processes, list) else [found.processes]


def _rows(process: _Process, told: Told) -> Iterator[Row]:
    agents = dict(_agents(process.agents))
    told.describe(agents.values(), process.metadata.node.hostname)
    told.process(process.metadata.pid)
    records = process.buffer_records
    yield from _calls(process, told)
    names = {s.kernel_id: s.formatted_kernel_name or s.demangled_kernel_name or s.kernel_name for s in process.kernel_symbols}
    for record in records.kernel_dispatch:
        sent = record.dispatch_info or _Dispatch()
        grid, block = ((size.x, size.y, size.z) for size in (sent.grid_size, sent.workgroup_size))
        row = _timed(record, process) | kernel(names.get(sent.kernel_id, ""), grid, block)
        row["stream"] = (record.stream_id or sent.queue_id).handle % 2**63
        if (found := told.work(row, agents.get(sent.agent_id.handle))) is not None:
            yield found
    for record in records.memory_copy:
        ends = [None if agent is None else agents.get(agent.handle) for agent in (record.src_agent_id, record.dst_agent_id)]
        row = _timed(record, process) | {"kind": "memcpy", "name": _word(process, record), "bytes": record.bytes}
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


def _calls(process: _Process, told: Told) -> Iterator[Row]:
    said = {message.key: message.value for message in process.strings.marker_api}
    records = process.buffer_records
    for category, sort in (("HIP", records.hip_api), ("HSA", records.hsa_api), ("MARKER", records.marker_api)):
        for record in sort:
            row = _timed(record, process) | {"thread": record.thread_id}
            name = said.get(record.correlation_id.internal, "") if category == "MARKER" else _word(process, record)
            if category == "MARKER" and record.end_timestamp == record.start_timestamp:
                continue  # a mark, no range
            if (found := told.called(row, category, name)) is not None:
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
