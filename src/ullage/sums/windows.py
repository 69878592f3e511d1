"""What a sample stands for: raw rows in any order become one row per device and time, each with its span of time.

`settle` is `merge` (copies and partial rows of one device and time become one row) and then `derive` (span, counter
growth, what repeats: everything that a row can only know from its neighbour). The store uses the two apart.

A device is a (gpu, mig) pair. All times are whole milliseconds, so spans add up exactly. Only NumPy and Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.job_names import joined_names, separate_names
from ullage.sums.ordering import (
    Ints,
    Mask,
    Numbers,
    column_of,
    device_codes,
    empty,
    has_value,
    milliseconds,
    numbers,
    one_batch,
    pack,
    sorting,
    starts_of,
    take,
    whole,
)
from ullage.tables import COUNTERS, FIELDS, RATIOS, SAMPLES, SETTLED, Flag
from ullage.units import DAY_MS

Columns = dict[str, pa.Array]

SHORTEST_GAP_MS = 60_000  # two collections of 30 s, the longest window that DCGM averages over
ALONE_MS = 30_000  # what the only sample of a device stands for
SILENCE_MS = DAY_MS  # after a longer silence a device begins anew: no span, no difference, no gap reaches across
FROZEN_AFTER = 5  # repeated samples in a row; a scrape that is faster than the collector gives one or two
STILL = 0.01  # a gauge below 1 % may repeat where its exporter rounds to few digits
ROUNDING = 1e-6  # two copies of a float32 that went through text may differ by this much, relatively

# "GPU utilization" is left out: it is a whole percentage that repeats by nature, and it stays alive when the others freeze.
ACTIVITY = tuple(name for name in RATIOS if name != "gpu_util")
HOLDER = ("job", "user", "namespace")  # who holds a device: at one time there may be several of each
# What `derive` sets anew each time; every other flag is a fact about the sample's arrival and stays.
DERIVED = Flag.GAP | Flag.RESET | Flag.REPEATED | Flag.FROZEN | Flag.GAUGE_FROZEN


def settle(table: pa.Table, *, gap_ms: int | None = None, before: pa.Table | None = None) -> pa.Table:
    """Return a `SETTLED` table: one row per (gpu, mig, time), sorted so, with spans, counter growth and flags.

    `table` has the columns of `SAMPLES` in any order of rows, which may be partial or copies; the order of rows is
    the order of arrival. `before` holds settled rows that are at rest elsewhere (the last few of each device): they
    are neighbours to look back at and are not returned. `gap_ms` is the longest time that a sample may stand for;
    without it, 60 s or twice the device's median interval, whichever is longer.

    Samples at 30 s, 60 s and 90 s; the first has no predecessor, so it stands for the median interval:

    >>> from ullage.tables import samples
    >>> table = pa.Table.from_batches([samples({"time": [60_000, 30_000, 90_000], "gpu": ["GPU-1"] * 3})])
    >>> settle(table)["span_ms"].to_pylist()
    [30000, 30000, 30000]
    """
    return derive(merge(table), gap_ms=gap_ms, before=before)


# --- one row per device and time ---


def merge(table: pa.Table) -> pa.Table:
    """Return `SAMPLES` with one row per (gpu, mig, time), sorted so; rows of one key complete each other.

    Per field the first value in order of arrival wins. Flags: `COPIED` when a field came more than once, `CONFLICT`
    when the values differ by more than rounding, `REORDERED` when the sample arrived after a later one of its device.
    Different jobs of one key are joined by `job_names.joined_names`, and so are the users and namespaces of different jobs.
    """
    rows = table.num_rows
    columns = _columns(table)
    device = device_codes(columns["gpu"], columns["mig"])
    key = pack(device, milliseconds(columns["time"]))
    order = sorting(key)
    ordered_key = key if order is None else key[order]
    again = ordered_key[1:] == ordered_key[:-1]
    late = None if order is None else _late(order, device[order])
    if not again.any():
        merged = columns if order is None else {name: _take(column, order) for name, column in columns.items()}
        flags = merged["flags"].to_numpy()
    else:
        order = np.arange(rows) if order is None else order
        first = np.flatnonzero(np.concatenate(([True], ~again)))
        merged, flags = _merged(columns, order, first)
        late = None if late is None else late[first]
    if late is not None and late.any():
        flags = flags | np.where(late, np.uint16(Flag.REORDERED), np.uint16(0))
    merged["flags"] = pa.array(flags)
    return pa.table(merged, schema=SAMPLES)


def _columns(table: pa.Table) -> Columns:
    """Each column of `SAMPLES` as one array."""
    table = one_batch(table.select(SAMPLES.names))
    return {name: _without_nan(column_of(table, name)) for name in SAMPLES.names}


def _without_nan(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type) or empty(column):
        return column
    nan = pc.is_nan(column)
    return pc.if_else(nan, pa.scalar(None, column.type), column) if pc.any(nan).as_py() else column


def _take(column: pa.Array, index: Ints) -> pa.Array:
    return column.slice(0, len(index)) if empty(column) else take(column, index)


def _late(order: Ints, device: Ints) -> Mask:
    """Where a sorted row arrived after a row of its device with a later time. `order` holds the arrival numbers.

    From the end of each device, the smallest arrival number so far; devices never mix, since an earlier device's
    numbers are made smaller than all of a later one's.
    """
    arrival = order + device * len(order)
    earliest_of_later = np.minimum.accumulate(arrival[::-1])[::-1]
    return np.append(earliest_of_later[1:] < arrival[:-1], False)


def _merged(columns: Columns, order: Ints, first: Ints) -> tuple[Columns, Numbers]:
    """Columns with one row per key, and its flags. Key number k is the sorted rows from `first[k]` on."""
    group = np.zeros(len(order), np.int64)
    group[first[1:]] = 1
    group = np.cumsum(group)
    flags = np.bitwise_or.reduceat(columns["flags"].to_numpy()[order], first)
    merged: Columns = {}
    _, _, shared = (
        _winners(columns["job"], order, group, len(first)) if not empty(columns["job"]) else (None, None, np.zeros(len(first), np.bool_))
    )
    for name, column in columns.items():
        if empty(column):
            merged[name] = column.slice(0, len(first))
            continue
        winner, several, differ = _winners(column, order, group, len(first))
        if name in FIELDS:
            flags[several] |= np.uint16(Flag.COPIED)
        if name in FIELDS or name == "model":
            flags[differ] |= np.uint16(Flag.CONFLICT)
        merged[name] = (
            _joined(column, order, group, winner, shared) if name in HOLDER and (differ & shared).any() else _take(column, winner)
        )
    return merged, flags


def _winners(column: pa.Array, order: Ints, group: Ints, groups: int) -> tuple[Ints, Mask, Mask]:
    """For each key: the row of its first value (-1: none), whether it has several, whether they differ."""
    rows, of = order, group
    if column.null_count:
        valid = has_value(column)[order]
        rows, of = order[valid], group[valid]
    again = np.flatnonzero(of[1:] == of[:-1]) + 1  # later values of a key that has one already
    leads = np.delete(np.arange(len(of)), again)
    winner = np.full(groups, -1, np.int64)
    winner[of[leads]] = rows[leads]
    several, differ = np.zeros(groups, np.bool_), np.zeros(groups, np.bool_)
    if len(again):
        several[of[again]] = True
        values = numbers(column)
        differ[of[again[unequal(values[rows[again]], values[winner[of[again]]])]]] = True
    return winner, several, differ


def unequal(left: Numbers, right: Numbers) -> Mask:
    """Return where two arrays differ by more than rounding; whole numbers have none.

    >>> unequal(np.array([0.5, 0.5]), np.array([0.5000001, 0.51])).tolist()
    [False, True]
    """
    if left.dtype.kind != "f":
        return np.asarray(left != right)
    return np.asarray(np.abs(left - right) > ROUNDING * np.maximum(np.abs(left), np.abs(right)))


def _joined(column: pa.Array, order: Ints, group: Ints, winner: Ints, shared: Mask) -> pa.Array:
    """A column of names, where keys with several jobs (`shared`) get all of theirs."""
    codes = pc.fill_null(column.indices, -1).to_numpy()[order].astype(np.int64)
    known = (codes >= 0) & shared[group]
    width = len(column.dictionary)
    pairs = np.unique(group[known] * width + codes[known])
    of, job = pairs // width, pairs % width
    counts = np.bincount(of, minlength=len(winner))
    starts = np.cumsum(counts) - counts
    words = column.dictionary.to_pylist()
    result = _take(column.indices, winner).to_numpy(zero_copy_only=False)
    result = np.where(np.isnan(result), -1, result).astype(np.int64) if result.dtype.kind == "f" else result.astype(np.int64)
    for count in np.unique(counts[counts > 1]).tolist():
        keys = np.flatnonzero(counts == count)
        sets, which = np.unique(job[starts[keys][:, None] + np.arange(count)], axis=0, return_inverse=True)
        names = [joined_names(words[code] for code in codes_of_key) for codes_of_key in sets.tolist()]
        result[keys] = len(words) + which.reshape(-1)
        words.extend(names)
    indices = pa.array(result, mask=result < 0, type=pa.int32())
    plain = pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string())).cast(pa.string())
    return plain.dictionary_encode()


# --- what only the neighbour knows ---


@dataclass(frozen=True)
class _Sequence:
    """All rows, with the neighbours at rest among them, by device and time.

    `first` marks rows that have no predecessor within `SILENCE_MS`; `interval` is the time since the predecessor
    (0 for a first row); `limit` the longest span allowed; `outside` marks the neighbours.
    """

    order: Ints | None
    first: Mask
    interval: Ints
    median: Ints
    limit: Ints
    outside: Mask


def derive(merged: pa.Table, *, gap_ms: int | None = None, before: pa.Table | None = None) -> pa.Table:
    """Return `SETTLED` from what `merge` returned: span, sharers, counter growth, and the flags that need a neighbour.

    `before` holds settled rows of the same devices from elsewhere; they may lie anywhere in time, and no time of
    theirs is also in `merged`. Nothing is looked for across more than `SILENCE_MS` of silence.
    """
    columns = {name: whole(merged[name]) for name in SAMPLES.names}
    around = None if before is None or not before.num_rows else {name: whole(before.unify_dictionaries()[name]) for name in SETTLED.names}
    sequence = _sequence(columns, around, gap_ms)
    inside = slice(None) if around is None else ~sequence.outside
    gap = sequence.interval > sequence.limit
    span = np.where(sequence.first, np.minimum(sequence.median, sequence.limit), np.minimum(sequence.interval, sequence.limit))
    repeated, frozen = _repeats(sequence, columns, around)
    still = _still_gauge(sequence, columns, around)
    growth = {name: _growth(name, sequence, gap, columns, around) for name in COUNTERS if not empty(columns[name])}
    flags = columns["flags"].to_numpy() & ~np.uint16(DERIVED)
    marks = [(gap, Flag.GAP), (repeated, Flag.REPEATED), (frozen, Flag.FROZEN), (still, Flag.GAUGE_FROZEN)]
    marks += [(reset, Flag.RESET) for _, _, reset in growth.values()]
    for mark, flag in marks:
        flags[mark[inside]] |= np.uint16(flag)
    columns["flags"] = pa.array(flags)
    columns["span_ms"] = pa.array(span[inside].astype(np.int32))
    columns["sharers"] = _sharers(columns["job"])
    for name in COUNTERS:
        nothing = pa.nulls(merged.num_rows, pa.int64())
        columns[f"{name}_delta"] = pa.array(growth[name][0][inside], mask=~growth[name][1][inside]) if name in growth else nothing
    return pa.table(columns, schema=SETTLED)


def _sequence(columns: Columns, around: Columns | None, gap_ms: int | None) -> _Sequence:
    keys = [_both(columns[name], around and around[name]) for name in ("gpu", "mig", "time")]
    device, time = device_codes(keys[0], keys[1]), milliseconds(keys[2])
    order = None if around is None else np.argsort(pack(device, time), kind="stable")
    outside = np.arange(len(time)) >= len(columns["time"])
    if order is not None:
        device, time, outside = device[order], time[order], outside[order]
    interval = np.diff(time, prepend=time[:1])
    first = np.concatenate(([True], device[1:] != device[:-1]))[: len(time)] | (interval > SILENCE_MS)
    interval[first] = 0
    known = np.where(outside, _outside_spans(around, order, len(time)), interval)
    median = _medians(device, known)
    limit = np.full(len(time), gap_ms, np.int64) if gap_ms is not None else np.maximum(SHORTEST_GAP_MS, 2 * median)
    return _Sequence(order, first, interval, median, limit, outside)


def _outside_spans(around: Columns | None, order: Ints | None, rows: int) -> Ints:
    """What the neighbours at rest tell about a device's interval: the time each stands for."""
    if around is None or order is None:
        return np.zeros(rows, np.int64)
    spans = around["span_ms"].to_numpy().astype(np.int64)
    return np.concatenate((np.zeros(rows - len(spans), np.int64), spans))[order]


def _medians(device: Ints, interval: Ints) -> Ints:
    """The median of each device's positive intervals, per row; `ALONE_MS` for a device that has none."""
    starts = starts_of(device)
    number = np.zeros(len(device), np.int64)
    number[starts[1:]] = 1
    number = np.cumsum(number)
    known = interval > 0
    counts = np.bincount(number[known], minlength=len(starts))
    width = int(interval.max(initial=0)).bit_length()
    ordered = np.sort((number[known] << width) | interval[known]) & ((1 << width) - 1)
    before = np.cumsum(counts) - counts
    has = counts > 0
    medians = np.full(len(starts), ALONE_MS, np.int64)
    low, high = (before + (counts - 1) // 2)[has], (before + counts // 2)[has]
    medians[has] = (ordered[low] + ordered[high]) // 2
    return medians[number]


def _both(inner: pa.Array, outer: pa.Array | None) -> pa.Array:
    """The neighbours' column after ours, as one array."""
    return inner if outer is None else whole(pa.chunked_array([inner, outer]).unify_dictionaries())


def _in_order(name: str, sequence: _Sequence, columns: Columns, around: Columns | None) -> tuple[Numbers, Mask]:
    """A column along the sequence: its numbers (0 where null), and where it has any."""
    column = _both(columns[name], around and around[name])
    values, valid = numbers(column), has_value(column)
    return (values, valid) if sequence.order is None else (values[sequence.order], valid[sequence.order])


def _growth(name: str, sequence: _Sequence, gap: Mask, columns: Columns, around: Columns | None) -> tuple[Ints, Mask, Mask]:
    """A counter's growth since the row before, where it is known, and where the counter went backwards."""
    values, valid = _in_order(name, sequence, columns, around)
    growth = np.diff(values, prepend=values[:1])
    known = valid & np.concatenate(([False], valid[:-1]))[: len(valid)] & ~sequence.first & ~gap
    return growth, known & (growth >= 0), known & (growth < 0)


def _fine(values: Numbers) -> Mask:
    """Where a ratio is no whole percentage: nvidia-smi writes whole percent, which repeats (and is 0) by nature."""
    percent = values * 100
    return np.asarray(np.abs(percent - np.rint(percent)) > 1e-3, np.bool_)


def _repeats(sequence: _Sequence, columns: Columns, around: Columns | None) -> tuple[Mask, Mask]:
    """Where the activity of a row reads exactly as in the row before, to the last digit, and from the fifth in a row on."""
    rows = len(sequence.first)
    same, busy = ~sequence.first, np.zeros(rows, np.bool_)
    for name in ACTIVITY:
        if empty(columns[name]) and (around is None or empty(around[name])):
            continue
        values, valid = _in_order(name, sequence, columns, around)
        same[1:] &= (values[1:] == values[:-1]) & (valid[1:] == valid[:-1])
        busy |= _fine(values)
    repeated = same & busy
    where = np.arange(rows)
    start = np.where(repeated, -1, where)
    if around is not None:
        flags, _ = _in_order("flags", sequence, columns, around)
        kept = sequence.outside
        repeated = np.where(kept, (flags & Flag.REPEATED) > 0, repeated)
        start = np.where(repeated, np.where(sequence.first, where - 1, -1), where)
        start = np.where(kept & ((flags & Flag.FROZEN) > 0), where - FROZEN_AFTER, start)
    run = where - np.maximum.accumulate(start) if rows else where
    return repeated, repeated & (run >= FROZEN_AFTER)


def _still_gauge(sequence: _Sequence, columns: Columns, around: Columns | None) -> Mask:
    """Where one gauge of activity reads the same to the last digit for the fifth time in a row or later, whatever the others do."""
    rows = len(sequence.first)
    found, where = np.zeros(rows, np.bool_), np.arange(rows)
    for name in ("tensor_active", "sm_active", "gr_active"):
        if empty(columns[name]) or not rows:
            continue
        values, valid = _in_order(name, sequence, columns, around)
        same = np.concatenate(([False], (values[1:] == values[:-1]) & valid[1:] & valid[:-1])) & ~sequence.first
        same &= _fine(values) & (values >= STILL)
        found |= same & (where - np.maximum.accumulate(np.where(same, -1, where)) >= FROZEN_AFTER)
    return found


def _sharers(job: pa.Array) -> pa.Array:
    """How many jobs a row's `job` names."""
    if empty(job):
        return pa.array(np.zeros(len(job), np.int8))
    words = job.dictionary.to_pylist()
    counts = np.array([0 if word is None else min(max(len(separate_names(word)), 1), 127) for word in words] + [0], np.int8)
    return pa.array(counts[pc.fill_null(job.indices, len(job.dictionary)).to_numpy()])
