"""Parquet: Ullage's own samples as they are, and any wide or long table by the names of its columns.

Only the columns that mean something are read, a batch at a time; row groups outside the time that was asked for are
passed over where the file says what times they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.checked_parquet import opened
from ullage.errors import UllageError, UnreadableError, harmless
from ullage.problems import Problems
from ullage.sources.clock import milliseconds
from ullage.sources.naming.columns import ColumnLayout, layout
from ullage.sources.rows.tabular import ROWS, TableReading, batches, nothing_known, within
from ullage.sources.source import Options, Place, source
from ullage.tables import IDENTITY, SAMPLES


def recognise(place: Place) -> int:
    """Return 2 for the first bytes of a Parquet file."""
    return 2 if place.path is not None and place.head.startswith(b"PAR1") else 0


@source("parquet", recognise=recognise, reads="Parquet (Ullage's own, wide, or long)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield record batches of samples. Raises UllageError when the file is damaged or holds nothing that Ullage knows."""
    yield from read_parquet(cast(Path, place.path), cast(Path, place.path).name, options, problems, place.unique)


def read_parquet(source: Path | IO[bytes], where: str, options: Options, problems: Problems, unique: str = "") -> Iterator[pa.RecordBatch]:
    """Yield record batches of samples from a file, or from what was read of one; `where` is what messages call it."""
    reading = TableReading(where, unique, options, problems)
    file = _opened(source, where)
    schema = file.schema_arrow
    try:
        if _ours(schema):
            yield from _own(file, schema, reading)
        else:
            yield from _foreign(file, layout(schema.names, where), schema, reading)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(where, error, reading.order.read_until) from error


def _opened(source: Path | IO[bytes], where: str) -> Any:
    """Return the open file, words still encoded as the file holds them."""
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(source).names
        words = [name for name in names if name in IDENTITY.names and name != "index"]
        return opened(source, read_dictionary=words)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise _damaged(where, error) from error


def _damaged(where: str, error: Exception, read_until: int | None = None) -> UnreadableError:
    return UnreadableError(
        f"{where} is a damaged Parquet file: {harmless(str(error))}",
        "copy or write it again; a Parquet file is unreadable until it is closed",
        read_until,
    )


def _ours(schema: pa.Schema) -> bool:
    """Return whether the file was written from `tables.SAMPLES` or `SETTLED`: its units are settled and need no cleaning."""
    if "flags" not in schema.names or not pa.types.is_uint16(schema.field("flags").type):
        return False
    shared = [schema.field(name) for name in SAMPLES.names if name in schema.names]
    return all(_alike(field.type, SAMPLES.field(field.name).type) for field in shared) and "time" in schema.names


def _alike(kind: pa.DataType, ours: pa.DataType) -> bool:
    if pa.types.is_dictionary(ours):
        return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
    if pa.types.is_timestamp(ours):
        return bool(pa.types.is_timestamp(kind) and kind.tz is not None)
    return bool(kind == ours)


def _own(file: Any, schema: pa.Schema, reading: TableReading) -> Iterator[pa.RecordBatch]:
    names = [name for name in SAMPLES.names if name in schema.names]
    groups = _groups(file, "time", reading.options)
    for batch in file.iter_batches(batch_size=8 * ROWS, columns=names, row_groups=groups):
        batch = _limited(batch, reading)
        if batch.num_rows:
            yield _completed(batch, reading.options.cluster)


def _limited(batch: pa.RecordBatch, reading: TableReading) -> pa.RecordBatch:
    times, options = pc.cast(batch["time"], pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()), reading.options
    reading.order.add(times.drop_null().to_numpy())
    if options.since is None and options.until is None:
        return batch
    return batch.filter(pa.array(within(times.to_numpy(zero_copy_only=False), options)))


def _completed(batch: pa.RecordBatch, cluster: str | None) -> pa.RecordBatch:
    """Return the batch with every column of `SAMPLES`, in its type: what is there as it is, the rest null."""
    columns = []
    for field in SAMPLES:
        column = batch[field.name] if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        if column.type != field.type:
            column = _words(column) if pa.types.is_dictionary(field.type) else pc.cast(column, field.type, safe=False)
        if field.name == "cluster" and cluster is not None and column.null_count:
            column = _words(column.cast(pa.string()).fill_null(cluster))
        columns.append(column)
    completed = pa.RecordBatch.from_arrays(columns, schema=SAMPLES)
    return completed if cluster is None else _named(completed)


def _named(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with devices that were called 'host/index', before their cluster was known, called by their cluster too."""
    cluster, host, gpu = (batch[name].cast(pa.string()) for name in ("cluster", "host", "gpu"))
    before = pc.binary_join_element_wise(host, batch["index"].cast(pa.string()), "/")
    after = pc.binary_join_element_wise(cluster, before, "/")
    unnamed = pc.fill_null(pc.equal(gpu, before), False)
    return batch.set_column(batch.schema.get_field_index("gpu"), SAMPLES.field("gpu"), _words(pc.if_else(unnamed, after, gpu)))


def _words(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.cast(pa.dictionary(pa.int32(), pa.string()))
    return column.cast(pa.string()).dictionary_encode()


def _foreign(file: Any, meaning: ColumnLayout, schema: pa.Schema, reading: TableReading) -> Iterator[pa.RecordBatch]:
    names = [schema.names[at] for at in meaning.needed]
    if len(set(schema.names)) != len(schema.names):
        raise UllageError(f"{reading.where} has two columns of one name", "write it again with different names")
    for batch in file.iter_batches(batch_size=ROWS, columns=names, row_groups=_groups(file, schema.names[meaning.time], reading.options)):
        yield from batches({at: batch[name] for at, name in zip(meaning.needed, names, strict=True)}, meaning, reading)
        reading.line += batch.num_rows
        reading.options.progress(f"{reading.where}: {reading.line:,} rows")
    if meaning.metric is not None and reading.metrics and not any(reading.metrics.values()):
        raise nothing_known(reading)


def _groups(file: Any, time: str, options: Options) -> list[int]:
    """Return the row groups that may hold times in what was asked for, by the statistics of the column of times."""
    every = range(file.metadata.num_row_groups)
    at = next((i for i in range(file.metadata.num_columns) if file.metadata.schema.column(i).path == time), None)
    if at is None or (options.since is None and options.until is None):
        return list(every)
    return [group for group in every if _overlaps(file.metadata.row_group(group).column(at).statistics, options)]


def _overlaps(statistics: Any, options: Options) -> bool:
    if statistics is None or not statistics.has_min_max or isinstance(statistics.min, str | bytes):
        return True
    ends, valid = milliseconds(pa.array([statistics.min, statistics.max]), Problems())
    if not valid.all():
        return True
    first, last = int(np.min(ends)), int(np.max(ends))
    return (options.until is None or first <= options.until) and (options.since is None or last >= options.since)
