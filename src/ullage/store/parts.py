"""Parts: Parquet files of settled samples of one day, and beside each the last rows of its devices.

Encodings are chosen for telemetry: words by dictionary, times and counters as differences, gauges split by byte so
that zstd finds the slow bytes. The file with the tails answers "what came before?" and "do these rows overlap?"
without a look at the samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.checked_parquet import opened, write_table
from ullage.errors import harmless
from ullage.store.durable import checksum_of
from ullage.store.manifest import TAILS as FOLDER_OF_TAILS
from ullage.store.manifest import StoreFolder, StorePart, lost
from ullage.sums.ordering import Nulls, chosen, column_of, empty, keys, milliseconds, one_batch, starts_of
from ullage.tables import SETTLED
from ullage.units import DAY_MS

ROW_GROUP = 250_000
TAIL_ROWS = 5  # as many as it takes to see that a reading is frozen, and what a device's interval is
# A device's whole range in the part (ms) and its rows, beside each of its last rows.
TAILS = pa.schema([*SETTLED, pa.field("first", pa.int64()), pa.field("last", pa.int64()), pa.field("rows", pa.int64())])

# Few distinct values each: clocks move in steps of 15 MHz, utilization in whole percent. Written as words are.
_FEW = frozenset({"flags", "sharers", "index", "span_ms", "throttle", "sm_clock", "memory_clock", "gpu_util", "temperature"})


def write_days(folder: StoreFolder, settled: pa.Table) -> tuple[StorePart, ...]:
    """Write settled, sorted rows as one part a day; return the parts. They are invisible until a manifest lists them."""
    settled = one_batch(settled)
    days = milliseconds(column_of(settled, "time")) // DAY_MS
    numbers = np.unique(days)
    if len(numbers) == 1:
        return (_write(folder, settled, int(numbers[0])),)
    return tuple(_write(folder, chosen(settled, days == number), int(number)) for number in numbers)


def _write(folder: StoreFolder, rows: pa.Table, number: int) -> StorePart:
    day = datetime.fromtimestamp(number * DAY_MS / 1000, UTC).strftime("%Y-%m-%d")
    path, digest = folder.write_whole(f"samples/day={day}/part-{{hash}}.parquet", _parquet(rows), "part")
    _, tail = folder.write_whole(f"{FOLDER_OF_TAILS}/{path.name}", _parquet(tails(rows)), "tails")
    time = milliseconds(column_of(rows, "time"))
    first, last = int(time.min()), int(time.max())
    return StorePart(
        f"samples/day={day}/{path.name}", day, rows.num_rows, path.stat().st_size, first, last, digest, tail, checksum_of(path)
    )


def tails(rows: pa.Table) -> pa.Table:
    """Return, for sorted settled rows in one batch, each device's last rows with its first and last time (`TAILS`)."""
    device, _ = keys(rows)
    starts = starts_of(device)
    counts = np.diff(np.append(starts, len(device)))
    number = np.repeat(np.arange(len(starts)), counts)
    kept = np.flatnonzero(np.arange(len(device)) >= (starts + counts - TAIL_ROWS)[number])
    time = milliseconds(column_of(rows, "time"))
    facts = {"first": time[starts], "last": time[starts + counts - 1], "rows": counts}
    table = chosen(rows, kept)
    return pa.table([*table.columns, *(pa.array(values[number[kept]]) for values in facts.values())], schema=TAILS)


def _parquet(table: pa.Table) -> Callable[[IO[bytes]], object]:
    """Write the columns that hold anything: most of the schema is empty in any one fleet, and what is not there is null."""
    table = table.select([name for name in table.column_names if name in ("gpu", "mig") or not empty(table[name])])

    def write(file: IO[bytes]) -> None:
        write_table(
            table,
            file,
            row_group_size=ROW_GROUP,
            compression="zstd",
            use_dictionary=[f.name for f in table.schema if pa.types.is_dictionary(f.type) or f.name in _FEW],
            column_encoding={f.name: encoding for f in table.schema if (encoding := _encoding(f))},
            store_schema=True,
        )

    return write


def _encoding(field: pa.Field) -> str | None:
    if field.name in _FEW or pa.types.is_dictionary(field.type):
        return None
    # the growth of a counter is itself a difference: noise in its low bytes, zeros in the high ones
    split = pa.types.is_floating(field.type) or field.name.endswith("_delta")
    return "BYTE_STREAM_SPLIT" if split else "DELTA_BINARY_PACKED"


# --- reading ---


def read_part(folder: StoreFolder, part: StorePart, columns: Sequence[str] = SETTLED.names, gpus: pa.Array | None = None) -> pa.Table:
    """Return rows of a part, `columns` in the types of `SETTLED`, of the devices `gpus` only where they are given."""
    folder.verify([part])
    return _read(folder.place(part.file), folder.at(part.file), pa.schema([SETTLED.field(name) for name in columns]), gpus)


def read_tails(folder: StoreFolder, part: StorePart, columns: Sequence[str] = TAILS.names) -> pa.Table:
    """Return the last rows of a part's devices (`TAILS`)."""
    path = folder.place(part.tail)
    try:
        content = folder.at(part.tail).read_bytes()  # the last rows of each device: a small file
    except FileNotFoundError:
        raise lost(path, "is missing") from None
    except OSError as error:
        raise lost(path, f"can't be read ({error.strerror or error})") from error
    if part.tail_sha256 and hashlib.sha256(content).hexdigest() != part.tail_sha256:
        raise lost(path, "is not as it was written")
    return _read(path, pa.BufferReader(content), pa.schema([TAILS.field(name) for name in columns]), None)


def read_ranges(folder: StoreFolder, part: StorePart) -> pa.Table:
    """Return a row per device of a part: gpu, mig, first and last time (ms), rows."""
    table = read_tails(folder, part, ("gpu", "mig", "time", "first", "last", "rows"))
    last = milliseconds(column_of(table, "time")) == table["last"].to_numpy()
    return chosen(table.drop_columns(["time"]), last)


def _read(path: str, source: Path | pa.NativeFile, schema: pa.Schema, gpus: pa.Array | None) -> pa.Table:
    try:
        with opened(source) as file:
            groups = _groups(file.metadata, gpus)
            held = _held(file.metadata, set(schema.names) | ({"gpu"} if gpus is not None else set()))
            table = one_batch(file.read_row_groups(groups, columns=held))
    except FileNotFoundError:
        raise lost(path, "is missing") from None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise lost(path, f"is damaged ({harmless(str(error))})") from error
    if gpus is not None:
        table = chosen(table, among(column_of(table, "gpu"), gpus))
    return filled(table, schema)


def filled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with exactly the columns of `schema`; what it lacks is null."""
    nulls = Nulls(table.num_rows)
    held = set(table.column_names)
    return pa.table([table[f.name].cast(f.type) if f.name in held else nulls.of(f.type) for f in schema], schema=schema)


def _held(metadata: Any, names: set[str]) -> list[str]:
    """The columns that hold any value. Most of the schema is empty in any one fleet, and need not be read."""
    held = []
    for position, name in enumerate(metadata.schema.names):
        statistics = [metadata.row_group(g).column(position).statistics for g in range(metadata.num_row_groups)]
        empty = all(s is not None and s.has_null_count and s.null_count == metadata.row_group(g).num_rows for g, s in enumerate(statistics))
        if name in names and not empty:
            held.append(name)
    return held or ["time"]  # a table without columns would have no rows


def _groups(metadata: Any, gpus: pa.Array | None) -> list[int]:
    """The row groups that may hold one of the devices, by the statistics of the file."""
    groups = list(range(metadata.num_row_groups))
    named = None if gpus is None else gpus.drop_null()
    if named is None or gpus is None or len(named) < len(gpus) or not len(named):
        return groups
    extremes = pc.min_max(named).as_py()
    position = metadata.schema.names.index("gpu")
    chosen = []
    for group in groups:
        statistics = metadata.row_group(group).column(position).statistics
        if statistics is None or not statistics.has_min_max or (statistics.min <= extremes["max"] and statistics.max >= extremes["min"]):
            chosen.append(group)
    return chosen


def among(words: pa.Array, chosen: pa.Array) -> Any:
    """Return where a word of a dictionary column (null too) is among the chosen."""
    within = pc.is_in(words.dictionary, value_set=chosen.drop_null()).to_numpy(zero_copy_only=False)
    return np.append(within, chosen.null_count > 0)[pc.fill_null(words.indices, len(within)).to_numpy()]
