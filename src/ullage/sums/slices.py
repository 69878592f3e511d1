"""GPUs in MIG mode, span by span: when a GPU was whole and when it was sliced, and the part of it that was not sliced.

While any instance of a GPU reports, the GPU is sliced: its instances stand for their shares, and what they leave is *not sliced*, time of a
GPU of which nothing was made. While none reports, the GPU is whole and its own samples stand for it. So a sample of the whole GPU
speaks only for the part of its span in which no instance reported. Only NumPy and Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.sums.held import empty
from ullage.tables import COUNTERS, SETTLED

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SHARE = "share"  # the column that the rest of a sliced GPU has, and nothing else
SLICED = pa.schema([*SETTLED, pa.field(SHARE, pa.float64(), metadata={"meaning": "of a GPU that is not sliced; null for a sample"})])
PLACE = ("cluster", "host", "gpu", "index", "model")
NOTHING = ("tensor_active", "sm_active", "gr_active", "sm_clock")  # what the rest of a sliced GPU does
ShareOf = Callable[[str, str | None], float | None]  # of a MIG instance and its GPU's model; None: not known


def sliced_gpus(samples: Any) -> list[str]:
    """Return the GPUs of which any sample is a MIG instance's, in a table of settled samples (Ibis)."""
    if empty(samples, "mig"):
        return []
    found = samples.filter(samples.mig.notnull()).select("gpu").distinct().to_pyarrow()["gpu"].to_pylist()
    return sorted(str(gpu) for gpu in found if gpu is not None)


def by_slices(table: pa.Table, share_of: ShareOf) -> tuple[pa.Table, set[tuple[str | None, str | None]]]:
    """Return the samples of sliced GPUs as what they stand for, and the instances (mig, model) whose share nobody knows.

    `table` has the columns of `SETTLED`. The result has those of `SLICED`: samples of instances, with the clock of their GPU where they
    have none of their own; samples of whole GPUs, cut to the time in which no instance reported; and a row for each span in which a part
    of a GPU was not sliced. Instances of unknown share are left out, and the rest of their GPU is then not known either.
    """
    columns = {name: _plain(table[name]) for name in table.column_names}
    gpu = pc.dictionary_encode(columns["gpu"], null_encoding="encode").indices.to_numpy(zero_copy_only=False)
    order = np.argsort(gpu, kind="stable")
    edges = np.flatnonzero(np.concatenate([[True], np.diff(gpu[order]) != 0, [True]]))
    times, spans = _times(columns["time"]), columns["span_ms"].to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = list(zip(columns["mig"].to_pylist(), columns["model"].to_pylist(), strict=True))
    shares = {pair: share_of(pair[0], pair[1]) for pair in set(pairs) if pair[0] is not None}
    share = np.array([np.nan if mig is None else (np.nan if (s := shares[mig, model]) is None else s) for mig, model in pairs])
    instance = columns["mig"].is_valid().to_numpy(zero_copy_only=False)
    clock = columns["sm_clock"].to_numpy(zero_copy_only=False).astype(np.float64)
    whole_spans, kept, cut = spans.copy(), np.ones(len(times), np.bool_), spans.copy()
    rests: list[tuple[Ints, Ints, Ints, Floats]] = []
    for first, last in pairwise(edges.tolist()):
        rows = order[first:last]
        spans[rows] = np.minimum(spans[rows], times[rows] - _scrape_before(times[rows], spans[rows]))
        own, parent = rows[instance[rows]], rows[~instance[rows]]
        known = ~np.isnan(share[own])
        kept[own[~known]] = False
        _fill_clock(clock, own, parent, times, spans)
        starts, ends = times[own] - spans[own], times[own]
        cut[own] = spans[own]
        cut[parent] = spans[parent] - _covered(times[parent] - spans[parent], times[parent], starts, ends)
        kept[parent] &= cut[parent] > 0
        if known.all():
            rests.append(_rest(own, starts, ends, share[own]))
    columns["sm_clock"] = pa.array(clock, mask=np.isnan(clock)).cast(SETTLED.field("sm_clock").type)
    columns |= _scaled(columns, cut, whole_spans)
    columns["span_ms"] = pa.array(cut.astype(np.int32))
    result = pa.table({**columns, SHARE: pa.nulls(len(times), pa.float64())}).select(SLICED.names).filter(pa.array(kept))
    unknown = {pair for pair, value in shares.items() if value is None}
    return pa.concat_tables([result.cast(_plain_schema()), _rest_table(columns, rests)]), unknown


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) and array.num_chunks else array
    if isinstance(array, pa.ChunkedArray):
        array = pa.nulls(0, column.type)
    return array.cast(pa.string()) if pa.types.is_dictionary(array.type) or pa.types.is_null(array.type) else array


def _plain_schema() -> pa.Schema:
    """SLICED with plain strings, and counters' growth that may be a part."""
    kinds = {name: pa.float64() for name in (f"{counter}_delta" for counter in COUNTERS)}
    return pa.schema(
        [pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else kinds.get(f.name, f.type), f.nullable) for f in SLICED]
    )


def _times(column: pa.Array) -> Ints:
    """Return times as whole milliseconds."""
    return np.asarray(column.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)


def _scrape_before(times: Ints, spans: Ints) -> Ints:
    """Return, for each row of a GPU, when the GPU was read before: what it was then, whole or sliced, this row does not speak for.

    Rows that are closer together than half of what they stand for are of one reading.
    """
    moments = np.unique(times)
    apart = np.diff(moments) > int(np.median(spans)) // 2
    heads = np.concatenate([[True], apart])
    reading = np.cumsum(heads) - 1
    lasts = moments[np.concatenate([np.flatnonzero(heads)[1:] - 1, [len(moments) - 1]])]
    mine = reading[np.searchsorted(moments, times)]
    return np.where(mine > 0, lasts[np.maximum(mine - 1, 0)], np.iinfo(np.int64).min // 4)


def _fill_clock(clock: Floats, own: Ints, parent: Ints, times: Ints, spans: Ints) -> None:
    """Give instances without a clock that of their GPU: NVIDIA's exporter tells the clock of the whole GPU alone."""
    lacking = own[np.isnan(clock[own])]
    told = parent[~np.isnan(clock[parent])]
    if not len(lacking) or not len(told):
        return
    told = told[np.argsort(times[told], kind="stable")]
    place = np.minimum(np.searchsorted(times[told], times[lacking]), len(told) - 1)
    at = told[place]
    covers = (times[at] >= times[lacking]) & (times[at] - spans[at] < times[lacking])
    clock[lacking[covers]] = clock[at[covers]]


def _covered(first: Ints, last: Ints, starts: Ints, ends: Ints) -> Ints:
    """Return how much of each span from `first` to `last` lies in the union of others."""
    order = np.argsort(starts, kind="stable")
    begin, end = starts[order], np.maximum.accumulate(ends[order]) if len(ends) else ends
    if not len(begin):
        return np.zeros(len(first), np.int64)
    heads = np.concatenate([[True], begin[1:] > end[:-1]])
    begins = begin[heads]
    finishes = end[np.concatenate([np.flatnonzero(heads)[1:] - 1, [len(end) - 1]])]
    before = np.concatenate([[0], np.cumsum(finishes - begins)])

    def until(time: Ints) -> Ints:
        place = np.searchsorted(begins, time, side="right") - 1
        inside = np.where(place >= 0, np.minimum(time, finishes[place]) - begins[place], 0)
        return np.where(place >= 0, before[np.maximum(place, 0)] + np.maximum(inside, 0), 0)

    return until(last) - until(first)


def _rest(own: Ints, starts: Ints, ends: Ints, share: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    """Return the spans in which a part of the GPU is not sliced: a row that tells where it was then, start, end, that part."""
    moments = np.unique(np.concatenate([starts, ends]))
    # shares are sevenths or quarters: counted in 28ths they add up exactly
    parts = np.rint(share * 28).astype(np.int64)
    change = np.zeros(len(moments), np.int64)
    there = np.zeros(len(moments), np.int64)
    np.add.at(change, np.searchsorted(moments, starts), parts)
    np.add.at(change, np.searchsorted(moments, ends), -parts)
    np.add.at(there, np.searchsorted(moments, starts), 1)
    np.add.at(there, np.searchsorted(moments, ends), -1)
    left, some = 28 - np.cumsum(change)[:-1], np.cumsum(there)[:-1] > 0
    rest = np.flatnonzero(some & (left > 0))
    by_end = np.argsort(ends, kind="stable")
    witness = own[by_end[np.minimum(np.searchsorted(ends[by_end], moments[rest + 1]), len(own) - 1)]]
    return witness, moments[rest], moments[rest + 1], left[rest] / 28


def _scaled(columns: dict[str, pa.Array], cut: Ints, spans: Ints) -> dict[str, pa.Array]:
    """Return the counters' growth in what is left of each span."""
    part = cut / np.maximum(spans, 1)
    found = {}
    for name in (f"{counter}_delta" for counter in COUNTERS):
        values = columns[name].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) * part
        found[name] = pa.array(values, mask=np.isnan(values))
    return found


def _rest_table(columns: dict[str, pa.Array], rests: list[tuple[Ints, Ints, Ints, Floats]]) -> pa.Table:
    """Return the rows of what was not sliced: it belongs to nobody and does nothing, where its GPU is."""
    schema = _plain_schema()
    witness = np.concatenate([rest[0] for rest in rests]) if rests else np.zeros(0, np.int64)
    start, end = (np.concatenate([rest[n] for rest in rests]) if rests else np.zeros(0, np.int64) for n in (1, 2))
    share = np.concatenate([rest[3] for rest in rests]) if rests else np.zeros(0)
    rows = len(witness)
    found: dict[str, pa.Array] = {name: pa.nulls(rows, schema.field(name).type) for name in schema.names}
    found |= {name: columns[name].take(pa.array(witness)) for name in PLACE}
    found |= {name: pa.array(np.zeros(rows)).cast(schema.field(name).type) for name in NOTHING}
    found["time"] = pa.array(end).cast(pa.timestamp("ms", "UTC"))
    found["span_ms"] = pa.array((end - start).astype(np.int32))
    found["flags"], found["sharers"] = pa.array(np.zeros(rows, np.uint16)), pa.array(np.zeros(rows, np.int8))
    found[SHARE] = pa.array(share)
    return pa.table(found, schema=schema)
