"""Blocks of a table (of a CSV, a Parquet file) to record batches of samples, in any of the forms of `columns.Layout`.

Everything is vectorised over the rows of a block. Labels are read once per different combination, times once per
different word. A device that is known from one block is known in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError
from ullage.job_names import escaped_name
from ullage.problems import Problems
from ullage.sources import clock
from ullage.sources.naming.columns import ColumnLayout, listed, meaning, nearest
from ullage.sources.naming.fields import Alias, Floats, clean
from ullage.sources.naming.labels import device_name, identity
from ullage.sources.rows.pivot import FieldReadings, Identities, Wide, batch, pivot
from ullage.sources.source import InOrder, Options

Block = Mapping[int, pa.Array]  # column position -> values
Codes = npt.NDArray[np.int64]
ROWS = 1 << 17  # a batch's rows: 26 fields of 4 to 8 bytes and 11 words of 4 make about 25 MB
_MOST_COMBINATIONS = 1_000_000
_MOST_METRICS = 1000  # names remembered for the error when none is known
_OURS = ("gpu", "mig", "job", "user", "namespace", "pod", "container")
_NUMBER = r"^\s*(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[iI]nf|[nN]a[nN])\s*(?:%|[A-Za-z]{1,4})?\s*$"


@dataclass
class TableReading:
    """What is known of the file so far: its name, the line reached, devices and metrics that came by.

    `unique` is the name of the device where no column says which it is.
    """

    where: str
    unique: str
    options: Options
    problems: Problems
    line: int = 0  # the line (or row) before the block's first row
    skipped: list[int] = field(default_factory=list)  # lines with a wrong number of columns, which are in no block
    devices: Identities = field(default_factory=Identities)
    combinations: dict[tuple[str | None, ...], int] = field(default_factory=dict)
    metrics: dict[str, bool] = field(default_factory=dict)
    order: InOrder = field(default_factory=InOrder)

    def drop(self, dropped: clock.Mask, what: str) -> None:
        """Count the rows of the current block that are left out, with the line of the first."""
        count = int(np.count_nonzero(dropped))
        if not count:
            return
        line = self.line + 1 + int(np.argmax(dropped))
        for skipped in sorted(self.skipped):
            line += skipped <= line
        self.problems.drop(what, count, f"{self.where} line {line:,}")


def batches(block: Block, layout: ColumnLayout, reading: TableReading) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `tables.SAMPLES` for one block of raw columns (a position -> an Arrow array, one length)."""
    times, valid = clock.milliseconds(block[layout.time], reading.problems, reading.where)
    reading.drop(~valid, "rows whose time can't be read")
    reading.order.add(times[valid])
    keep = valid & within(times, reading.options)
    if not keep.any():
        return
    if layout.metric is not None:
        yield from _long(block, layout, reading, times, keep)
    elif layout.series:
        aliases = [alias for alias, _ in layout.series.values()]
        who = [reading.devices.code(_identity(labels, reading)) for _, labels in layout.series.values()]
        values = [numbers(block[at], reading) for at in layout.series]
        yield from matrix(times, keep, aliases, who, values, reading)
    else:
        yield from _wide(block, layout, reading, times, keep)


def within(times: clock.Milliseconds, options: Options) -> clock.Mask:
    """Return which times lie in what the user asked for, `since` and `until` included."""
    keep = np.ones(len(times), np.bool_)
    if options.since is not None:
        keep &= times >= options.since
    if options.until is not None:
        keep &= times <= options.until
    return keep


def _wide(
    block: Block, layout: ColumnLayout, reading: TableReading, times: clock.Milliseconds, keep: clock.Mask
) -> Iterator[pa.RecordBatch]:
    devices = _devices(block, layout, reading)
    fields: dict[str, Floats] = {}
    flags = np.zeros(len(times), np.uint16)
    for at, alias in layout.fields.items():
        values, marks = clean(alias, numbers(block[at], reading), reading.problems, reading.where)
        before = fields.get(alias.field)  # where two columns mean one field, the first that knows a value has it
        fields[alias.field] = values if before is None else np.where(np.isnan(before), values, before)
        flags |= marks
    keep = keep & ((flags != 0) | np.logical_or.reduce([~np.isnan(values) for values in fields.values()]))
    for start in range(0, len(times), ROWS):
        rows = np.flatnonzero(keep[start : start + ROWS]) + start
        if len(rows):
            wide = Wide(devices[rows], times[rows], {name: values[rows] for name, values in fields.items()}, flags[rows])
            yield batch(wide, reading.devices, reading.problems, reading.where)


def _long(
    block: Block, layout: ColumnLayout, reading: TableReading, times: clock.Milliseconds, keep: clock.Mask
) -> Iterator[pa.RecordBatch]:
    """Bring the rows of one device and time together, as far as they stand in one block."""
    if layout.metric is None or layout.value is None:
        return
    metric, names = words(block[layout.metric])
    aliases = [meaning(name) for name in names]
    for name, alias in zip(names, aliases, strict=True):
        if len(reading.metrics) < _MOST_METRICS or alias is not None:
            reading.metrics[name] = alias is not None
    wanted = np.array([*(alias is not None for alias in aliases), False], np.bool_)[metric]
    reading.drop(keep & ~wanted, "rows of metrics that Ullage does not keep")
    rows = np.flatnonzero(keep & wanted)
    devices, values = _devices(block, layout, reading), numbers(block[layout.value], reading)
    columns = []
    for code in np.unique(metric[rows]).tolist():
        alias, mine = aliases[code], rows[metric[rows] == code]
        if alias is not None:
            told, flags = clean(alias, values[mine], reading.problems, reading.where)
            columns.append(FieldReadings(alias.field, devices[mine], times[mine], told, flags))
    yield batch(pivot(columns), reading.devices, reading.problems, reading.where)


def matrix(
    times: clock.Milliseconds,
    keep: clock.Mask,
    aliases: Sequence[Alias],
    who: Sequence[int],
    values: Sequence[Floats],
    reading: TableReading,
) -> Iterator[pa.RecordBatch]:
    """Yield partial samples of a block with a column per series: column i is field `aliases[i]` of device number `who[i]`.

    Columns of one name go together, as many as fit a batch. Empty cells make no row.
    """
    step = max(1, ROWS // max(len(times), 1))
    for alias in dict.fromkeys(aliases):
        columns = [i for i, other in enumerate(aliases) if other == alias]
        for start in range(0, len(columns), step):
            group = columns[start : start + step]
            devices = np.repeat(np.array([who[i] for i in group], np.int64), len(times))
            told, flags = clean(alias, np.concatenate([values[i] for i in group]), reading.problems, reading.where)
            known = np.tile(keep, len(group)) & (~np.isnan(told) | (flags != 0))
            wide = Wide(devices[known], np.tile(times, len(group))[known], {alias.field: told[known]}, flags[known])
            if known.any():
                yield batch(wide, reading.devices, reading.problems, reading.where)


def numbers(column: pa.Array, reading: TableReading) -> Floats:
    """Return a column as numbers, missing as NaN. Words that are no numbers are counted and missing; "58 %" is 58."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return numbers(column.cast(kind.value_type), reading)
    if _is_text(kind):
        return _numbers_of_words(column, reading)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)):
        raise UllageError(f"a column of {reading.where} that should hold numbers holds {kind}", "store it as numbers")
    column = column.cast(pa.uint8()) if pa.types.is_boolean(kind) else column
    return _floats(pc.cast(column, pa.float64(), safe=False))


def _numbers_of_words(column: pa.Array, reading: TableReading) -> Floats:
    try:
        return _floats(column.cast(pa.string()).cast(pa.float64()))
    except pa.ArrowInvalid:  # bytes that are not UTF-8, or words among the numbers
        column = pa.array([None if word is None else clock.as_text(word) for word in column.to_pylist()], pa.string())
    column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), pa.scalar(None, pa.string()), column)
    found = pc.struct_field(pc.extract_regex(column, _NUMBER), "number")
    reading.drop(pc.and_(column.is_valid(), found.is_null()).to_numpy(zero_copy_only=False), "values that are not numbers")
    return _floats(found.cast(pa.float64()))


def _floats(column: pa.Array) -> Floats:
    return np.array(column.to_numpy(zero_copy_only=False), np.float64)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def words(column: pa.Array) -> tuple[Codes, list[str]]:
    """Return a column of words as codes and the different words; null has the code -1. Whole numbers become words."""
    if not pa.types.is_dictionary(column.type):
        if pa.types.is_floating(column.type):  # a device's number that a writer with missing values made 3.0
            column = pc.cast(column, pa.int64(), safe=False)
        column = (column if _is_text(column.type) else column.cast(pa.string())).dictionary_encode()
    values = [clock.as_text(word).strip() for word in column.dictionary.cast(_plain(column.dictionary.type)).to_pylist()]
    return column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), values


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind if _is_text(kind) else pa.string()


def _devices(block: Block, layout: ColumnLayout, reading: TableReading) -> Codes:
    """Return the number of each row's device in `reading.devices`."""
    rows = len(block[layout.time])
    if not layout.labels:
        reading.problems.note(f"{reading.where} does not say which GPU it is about; taken as one GPU")
        return np.full(
            rows, reading.devices.code(_identity({"UUID": device_name(reading.options.cluster, reading.unique)}, reading)), np.int64
        )
    told = [words(block[at]) for at in layout.labels]
    key = np.zeros(rows, np.int64)
    for codes, values in told:  # compact after each column, so that the key stays small
        key = _compact(key * (len(values) + 1) + codes + 1)
    first = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    first[key[::-1]] = np.arange(rows)[::-1]
    numbers_ = [_number(tuple(values[codes[row]] if codes[row] >= 0 else None for codes, values in told), layout, reading) for row in first]
    return np.array(numbers_, np.int64)[key] if numbers_ else key


def _compact(key: Codes) -> Codes:
    codes: Codes = pa.array(key).dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def _number(combination: tuple[str | None, ...], layout: ColumnLayout, reading: TableReading) -> int:
    """Return the number of the device that a combination of labels means: read by `labels.identity`, our own names first."""
    number = reading.combinations.get(combination)
    if number is not None:
        return number
    told = {name: value for name, value in zip(layout.labels.values(), combination, strict=True) if value}
    who = _identity(told, reading)
    named = device_name(who["host"], who["index"])
    for name in _OURS:
        # a number is the device's index on its host, and 'host/index' is the name of a device without a UUID and a cluster
        if name in told and not (name == "gpu" and (told[name].isdigit() or told[name] == named)):
            who[name] = escaped_name(told[name]) if name in ("job", "user") else told[name]
    if len(reading.combinations) >= _MOST_COMBINATIONS:
        reading.combinations.clear()
    return reading.combinations.setdefault(combination, reading.devices.code(who))


def _identity(labels: Mapping[str, str], reading: TableReading) -> dict[str, str | int | None]:
    return identity(labels, reading.problems, reading.options.cluster)


def nothing_known(reading: TableReading) -> UllageError:
    """Return the error for a long table in which no metric was known."""
    names = [name for name, known in reading.metrics.items() if not known]
    return UllageError(f"{reading.where} has no metric that Ullage knows; it has {listed(names)}", nearest(names))
