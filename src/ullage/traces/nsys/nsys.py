"""Nsight Systems databases: what `nsys export --type sqlite` makes of a report, in all versions since 2020.

NVIDIA changes the schema as it likes and says so; what is read is found by name (`nsys_file`), and what is not there is not
missed. The big tables are read off the database's pages (`nsys_pages`, `nsys_records`), the small ones by SQLite.

Sources: NVIDIA Nsight Systems, "SQLite Export Schema Reference"; public exports of versions 2020 to 2026.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.traces.nsys.device import on_devices
from ullage.traces.nsys.events import events
from ullage.traces.nsys.extent import operating_system
from ullage.traces.nsys.file import MAGIC, Database, is_nsight, opened
from ullage.traces.nsys.host import calls, descheduled, overhead
from ullage.traces.nsys.mpi import MpiLives, mpi
from ullage.traces.nsys.names import NsysNames
from ullage.traces.nsys.nccl import nccl_calls
from ullage.traces.nsys.nvtx import nvtx
from ullage.traces.nsys.rows import NsysReading
from ullage.traces.nsys.times import clock
from ullage.traces.nsys.who import CaptureDevices, People
from ullage.traces.trace import File, TraceOptions, trace

NEWEST = (3, 25)  # the newest EXPORT_SCHEMA_VERSION that was tried


def recognise(file: File) -> int:
    """Return 2 for a database with tables of Nsight Systems, 1 for one of which that can't be told, 0 for anything else."""
    if not file.head.startswith(MAGIC):
        return 0
    try:
        database = opened(file.path)
    except UllageError:
        return 1  # `read` says what is wrong
    try:
        return 2 if is_nsight(database.tables) else 0
    finally:
        database.close()


@trace("nsys", recognise=recognise, reads="Nsight Systems SQLite (nsys export --type sqlite)")
def read(file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield a capture's intervals: regions and MPI first, then calls, then what ran on devices.

    Raises UllageError for a database that can't be opened or holds no event; with `options.strict` also for a damaged one.
    """
    recording.source = "Nsight Systems"
    database = opened(file.path)
    try:
        reading = _begun(file, database, recording, problems)
        for batch in _intervals(reading):
            if batch.num_rows:
                yield batch
            options.progress(f"{reading.rows:,} rows")
        _ended(reading, options)
    finally:
        database.close()


def _begun(file: File, database: Database, recording: Recording, problems: Problems) -> NsysReading:
    recording.host = next((str(v) for n, v in database.rows("TARGET_INFO_SYSTEM_ENV", "name", "value") if n == "Hostname"), recording.host)
    _version(file, database, problems)
    return NsysReading(
        database=database,
        recording=recording,
        problems=problems,
        place=file.name,
        names=NsysNames(database),
        devices=CaptureDevices(database, recording, problems),
        people=People(database, recording),
        clock=clock(database, recording),
    )


def _version(file: File, database: Database, problems: Problems) -> None:
    """Say when an export is of a version that nobody tried yet."""
    said = {str(n): str(v) for table in ("META_DATA_EXPORT", "EXPORT_META_DATA") for n, v in database.rows(table, "name", "value")}
    version = said.get("EXPORT_SCHEMA_VERSION", "")
    parts = tuple(int(p) if p.isdecimal() else 0 for p in version.split(".")[:2])
    if version and parts > NEWEST:
        problems.note(
            f"{file.name} is of export schema {harmless(version, 20)}, newer than those tried (up to {NEWEST[0]}.{NEWEST[1]}): "
            "compare its sums with nsys stats"
        )
    wal = file.path.with_name(file.path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        problems.note(f"{file.name} has a write-ahead log beside it, which is not read: close the program that writes it")


def _intervals(reading: NsysReading) -> Iterator[pa.RecordBatch]:
    lives = MpiLives()
    reading.nccl = nccl_calls(reading.database, reading.names)
    yield from nvtx(reading, lives)
    yield from mpi(reading, lives)
    yield from calls(reading)
    reading.nccl.match()
    yield from on_devices(reading)
    yield from events(reading)
    lives.tell(reading.recording, reading.clock.offset)
    operating_system(reading, lives)
    yield from overhead(reading)
    yield from descheduled(reading)


def _ended(reading: NsysReading, options: TraceOptions) -> None:
    recording, damage = reading.recording, reading.database.damage
    reading.people.finish(reading.ranks)
    if recording.rank is None:
        recording.rank = options.rank
    if reading.collectives != reading.messages:
        recording.prefers = "ai" if reading.collectives else "talp"
    if damage:
        recording.cut = "; ".join(f"table {harmless(table)}: {why}" for table, why in damage.items())
        if options.strict:
            raise UllageError(f"{reading.place} is damaged ({recording.cut})", "export the report again, or read it without --strict")
        reading.problems.note(f"{reading.place} is damaged: {recording.cut}; the rest was read")
    if not reading.rows and not recording.untimed and not recording.extent:
        why = "is too damaged to be read" if damage else "holds no event of a GPU, of MPI or of NVTX"
        raise UllageError(f"{reading.place} {why}", "record with: nsys profile --trace=cuda,nvtx,mpi,osrt")
