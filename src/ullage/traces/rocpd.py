"""rocprofv3's database (rocpd, SQLite, its default since ROCm 7): in both of its layouts, times in the rows or in a table of their own.

Tables end in the writer's own number (`rocpd_kernel_dispatch_0000…`); a file may hold those of several processes. Nothing but tables is
looked at: views could run anything.

Source: github.com/ROCm/rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql (schema version 3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ullage.command_lines import public_command
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.nsys.file import MAGIC, Database, opened
from ullage.traces.rocprof_rows import Agent, RocprofFacts, kernel, where_copied
from ullage.traces.row_batches import Row, batches, whole
from ullage.traces.trace import File, TraceOptions, trace

_TABLE = re.compile(r"^rocpd_([a-z_]+?)(_[0-9a-f]{4,}[0-9a-f_]*)?$")
_PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")


def _recognise(file: File) -> int:
    if not file.head.startswith(MAGIC):
        return 0
    try:
        database = opened(file.path)
    except UllageError:
        return 0
    try:
        return 2 if any(_named(name, "kernel_dispatch") or _named(name, "region") for name in database.tables) else 0
    finally:
        database.close()


def _named(table: str, base: str) -> str | None:
    """Return the ending of a table that is called `base`, None for another one."""
    found = _TABLE.match(table)
    return (found[2] or "") if found is not None and found[1] == base else None


@trace("rocpd", recognise=_recognise, reads="rocprofv3 databases (rocpd, SQLite)")
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield dispatches, copies, calls and ROCTx ranges; times in ns since the boot."""
    database = opened(file.path)
    try:
        told = RocprofFacts(file.name, recording, problems)
        parts = [_Part(database, ending, told) for ending in _endings(database)]
        for part in parts:
            yield from batches(part.rows(), recording, problems)
        yield from batches(told.rest(), recording, problems)
        told.check()
        _damage(file, database, recording, options)
    finally:
        database.close()


def _endings(database: Database) -> list[str]:
    bases = ("kernel_dispatch", "region", "memory_copy")
    return sorted({ending for table in database.tables for base in bases if (ending := _named(table, base)) is not None})


def _damage(file: File, database: Database, recording: Recording, options: TraceOptions) -> None:
    if database.damage:
        table, why = next(iter(database.damage.items()))
        recording.cut = f"{file.name} is damaged in {table} ({why})"
        if options.strict:
            raise UllageError(recording.cut, "without --strict the rest of it is read")


@dataclass
class _Part:
    """The tables of one writer, which end alike."""

    database: Database
    ending: str
    told: RocprofFacts

    def rows(self) -> Iterator[Row]:
        """Yield all rows of the tables."""
        hosts = [name for (name,) in self._select("info_node", "hostname")]
        agents = {i: _agent(*rest) for i, *rest in self._select("info_agent", "id", "type", "type_index", "product_name", "name", "uuid")}
        self.told.describe(agents.values(), str(hosts[0] or "") if hosts else "")
        self.threads = dict(self._select("info_thread", "id", "tid"))
        self.processes = dict(self._processes())
        self.words = dict(self._select("string", "id", "string"))
        self.events = {i: (self.words.get(c, ""), s, x) for i, c, s, x in self._select("event", "id", "category_id", "stack_id", "extdata")}
        yield from self._calls()
        yield from self._kernels(agents)
        yield from self._copies(agents)

    def _processes(self) -> Iterator[tuple[Any, int]]:
        for number, pid, command in self._select("info_process", "id", "pid", "command"):
            self.told.process(pid, public_command([str(command or "")]))
            yield number, pid

    def _table(self, base: str) -> str | None:
        name = f"rocpd_{base}{self.ending}"
        return name if name in self.database.tables else None

    def _select(self, base: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield columns of a table, NULL for those it doesn't have; nothing where there is no such table."""
        if self._table(base) is not None:
            yield from self.database.rows(f"rocpd_{base}{self.ending}", *columns)

    def _timed(self, base: str, *columns: str) -> Iterator[tuple[Row, tuple[Any, ...], dict[str, Any]]]:
        """Yield the times, the columns and the place (by the names in `_PLACE`) of a table's rows, from whichever table they stand in."""
        name = self._table(base)
        if name is None:
            return
        table = self.database.tables[name]
        own = [f't."{c}"' if c in table else "NULL" for c in columns]
        joins, times = "", ['t."start"', 't."end"']
        if "start" not in table:
            times = ["b.value", "e.value"]
            stamps = f'"rocpd_timestamp{self.ending}"'
            joins += f" LEFT JOIN {stamps} b ON b.id = t.start_id LEFT JOIN {stamps} e ON e.id = t.end_id"
        tracked = "track_id" in table
        place = [("k" if tracked and c not in table else "t") + f'."{c}"' if tracked or c in table else "NULL" for c in _PLACE]
        if tracked:
            joins += f' LEFT JOIN "rocpd_track{self.ending}" k ON k.id = t.track_id'
        sql = f'SELECT {", ".join((*times, *place, *own))} FROM "{name}" t{joins}'  # noqa: S608 - names are the file's own tables', without quotation marks
        for start, end, *rest in self.database.query(name, sql):
            if whole(start) is None or whole(end) is None:
                self.told.problems.drop("events without a time", 1, self.told.place)
                self.told.recording.untimed += base != "region"
                continue
            where = dict(zip(_PLACE, rest[: len(_PLACE)], strict=True))
            process = self.processes.get(where["pid"], where["pid"])
            yield {"start": int(start), "end": int(end), "process": process}, tuple(rest[len(_PLACE) :]), where

    def _calls(self) -> Iterator[Row]:
        for row, (name, event), where in self._timed("region", "name_id", "event_id"):
            category, stack, extra = self.events.get(event, ("", None, None))
            row |= {"thread": self.threads.get(where["tid"], where["tid"]), "correlation": stack}
            said = _message(extra) if category.startswith("MARKER") else None
            if (found := self.told.called(row, category, said or str(self.words.get(name, "")))) is not None:
                yield found

    def _kernels(self, agents: dict[Any, Agent]) -> Iterator[Row]:
        names = {i: display or plain for i, display, plain in self._select("info_kernel_symbol", "id", "display_name", "kernel_name")}
        sizes = [f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"]
        for row, (symbol, event, *shape), where in self._timed("kernel_dispatch", "kernel_id", "event_id", *sizes):
            x, y, z, bx, by, bz = (whole(size) or 1 for size in shape)
            row |= kernel(str(names.get(symbol) or ""), (x, y, z), (bx, by, bz)) | self._queued(where, event)
            if (found := self.told.work(row, agents.get(where["agent_id"]))) is not None:
                yield found

    def _copies(self, agents: dict[Any, Agent]) -> Iterator[Row]:
        for row, (name, target, source, size, event), where in self._timed(
            "memory_copy", "name_id", "dst_agent_id", "src_agent_id", "size", "event_id"
        ):
            row |= {"kind": "memcpy", "name": str(self.words.get(name, "")), "bytes": whole(size)} | self._queued(where, event)
            if (found := self.told.work(row, where_copied(agents.get(source), agents.get(target)))) is not None:
                yield found

    def _queued(self, where: dict[str, Any], event: Any) -> Row:
        stream = where["queue_id"] if where["stream_id"] is None else where["stream_id"]
        return {"stream": whole(stream), "correlation": self.events.get(event, ("", None, None))[1]}


def _agent(kind: Any, index: Any, product: Any, name: Any, uuid: Any) -> Agent:
    return Agent(kind == "GPU", whole(index) or 0, str(product or name or ""), uuid)


def _message(extra: Any) -> str | None:
    """Return what a ROCTx range says, which stands in the event's further data."""
    try:
        found = json.loads(extra or "{}")
    except (ValueError, TypeError, RecursionError):
        return None
    said = found.get("message") if isinstance(found, dict) else None
    return said if isinstance(said, str) and said else None
