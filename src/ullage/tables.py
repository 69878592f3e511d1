"""The waist: the columnar tables that everything passes through, declared once.

`SAMPLES` is wide: a row says what one device reported at one time. Readers yield record batches of it with whatever
columns they know; `samples()` fills the rest with nulls. A null is "not known", never zero.

Conventions:

- `time` is UTC in whole milliseconds. A sample speaks for the time *before* it, `(time - span_ms, time]`, because
  DCGM and GPM report averages over the window that ends at the reading.
- fields are in SI units without prefixes (Hz, W, J, B); ratios are in [0, 1]; counters are cumulative.
- `span_ms` and the `*_delta` columns are derived when samples are settled (`ullage.sums.windows`), never by a reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ullage.arrays import nulls, numbers
from ullage.field import COUNTERS, FIELDS, RATIOS, Field, Flag

__all__ = [
    "CALLS", "COUNTERS", "FIELDS", "IDENTITY", "INTERVALS", "JOBS", "KINDS", "OPERATIONS", "RATIOS", "RECORDER", "SAMPLES", "SETTLED",
    "Field", "Flag", "intervals", "samples",
]  # fmt: skip


def _at_rest(field: Field) -> pa.DataType:
    """Return a field's Arrow type: what is no whole number needs no more than 24 bits."""
    return pa.int64() if field.whole else pa.float32()


_word = pa.dictionary(pa.int32(), pa.string())

# Who reported, and to whom it belonged.
IDENTITY = pa.schema(
    [
        pa.field("cluster", _word),
        pa.field("host", _word),
        pa.field("gpu", _word, metadata={"meaning": "the device's UUID; cluster/host/index where the source knows no UUID"}),
        pa.field("index", pa.int16(), metadata={"meaning": "the device's number on its host, as DCGM counts"}),
        pa.field("mig", _word, metadata={"meaning": "MIG instance as 'profile/instance id', e.g. '1g.10gb/7'; null for a whole GPU"}),
        pa.field("model", _word, metadata={"meaning": "the device's name as the source wrote it"}),
        pa.field("job", _word, metadata={"meaning": "job id; several that share the device stand in one word, see `ullage.job_names`"}),
        pa.field("user", _word),
        pa.field("namespace", _word),
        pa.field("pod", _word),
        pa.field("container", _word),
    ]
)

SAMPLES = pa.schema(
    [
        pa.field("time", pa.timestamp("ms", "UTC"), nullable=False),
        *IDENTITY,
        *(pa.field(f.name, _at_rest(f), metadata={"unit": f.unit, "meaning": f.meaning}) for f in FIELDS.values()),
        pa.field("flags", pa.uint16(), nullable=False),
    ]
)

# Samples at rest: sorted by (gpu, mig, time), one row each, with what can only be known from the neighbour.
SETTLED = pa.schema(
    [
        *SAMPLES,
        pa.field("span_ms", pa.int32(), nullable=False, metadata={"meaning": "the time this sample stands for"}),
        pa.field("sharers", pa.int8(), nullable=False, metadata={"meaning": "how many jobs held the device"}),
        *(pa.field(f"{name}_delta", pa.int64(), metadata={"unit": FIELDS[name].unit}) for name in COUNTERS),
    ]
)

# A row per job and device (or whole host when `index` and `gpu` are null), and what the application reported of itself.
JOBS = pa.schema(
    [
        pa.field("job", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("user", pa.string()),
        pa.field("cluster", pa.string()),
        pa.field("host", pa.string()),
        pa.field("index", pa.int16()),
        pa.field("gpu", pa.string()),
        pa.field(
            "queue_start",
            pa.timestamp("ms", "UTC"),
            metadata={"meaning": "when it began to wait in the queue: when it could run, or else when it was submitted"},
        ),
        pa.field("start", pa.timestamp("ms", "UTC")),
        pa.field("end", pa.timestamp("ms", "UTC"), metadata={"meaning": "null while the job runs"}),
        pa.field(
            "state", pa.string(), metadata={"meaning": "how the job ended or stands, in the scheduler's word: COMPLETED, FAILED, TIMEOUT"}
        ),
        pa.field("gpus", pa.int32(), metadata={"meaning": "how many devices the whole job holds"}),
        pa.field("mfu", pa.float64(), metadata={"unit": "1", "meaning": "model FLOP utilization as the application reported it"}),
        pa.field(
            "flops_per_gpu", pa.float64(), metadata={"unit": "FLOP/s", "meaning": "model FLOP/s per GPU as the application reported it"}
        ),
    ]
)


def samples(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a `SAMPLES` record batch from whatever columns are known; the rest is null (flags: 0).

    Each column is an Arrow array, a NumPy array or a list, all of one length; `time` is required (integer ms since
    1970, datetime64, or an Arrow timestamp). NaN in a NumPy field column means missing. Identity columns are strings
    or already dictionary-encoded. Raises KeyError for a column that is not in the schema.

    >>> batch = samples({"time": [1_700_000_000_000], "gpu": ["GPU-1"], "tensor_active": np.array([0.5])})
    >>> batch.num_columns == len(SAMPLES), batch["sm_clock"][0].as_py()
    (True, None)
    """
    unknown = set(columns) - set(SAMPLES.names)
    if unknown:
        raise KeyError(f"not columns of the samples table: {sorted(unknown)}")
    length = len(columns["time"])
    arrays = []
    for field in SAMPLES:
        if field.name in columns:
            arrays.append(_column(columns[field.name], field.type))
        elif field.name == "flags":
            arrays.append(pa.array(np.zeros(length, np.uint16)))
        else:
            arrays.append(pa.nulls(length, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SAMPLES)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        missing = np.isnan(values)
        if pa.types.is_integer(kind):
            whole = np.where(missing, 0, np.clip(values, -(2.0**63), 2.0**63 - 1024)).astype(np.int64)
            return pa.array(whole, mask=missing).cast(kind)
        return (
            pa.array(values, type=kind, from_pandas=True)
            if values.dtype == np.float32
            else pa.array(values.astype(np.float32), mask=missing)
        )
    if isinstance(values, np.ndarray) and values.dtype.kind in "iub":
        values = numbers(values)
    elif not isinstance(values, pa.Array):
        values = pa.array(values) if not (isinstance(values, list) and all(v is None for v in values)) else pa.nulls(len(values), kind)
    if values.type == kind:
        return values
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(values.type):
        return values.cast(pa.string()).dictionary_encode()
    if pa.types.is_timestamp(kind) and pa.types.is_integer(values.type):
        return values.cast(pa.int64()).cast(pa.timestamp("ms")).cast(kind)
    return values.cast(kind)


# What an interval can be. On a device: kernel, collective (a kernel that only communicates), memcpy, memset, graph (a
# graph's execution of which no kernel was recorded one by one), lost (a device event whose time is not known: a point).
# On a host thread: api (a call of the GPU runtime or driver), mpi (MPI, or a collective that the host itself runs), region (named by
# the user), step (a profiler's step), parallel (an OpenMP-like thread waits for others; thread 0 is the main one), off (the thread was
# on no processor: it slept, waited for a disk or a lock, or had to leave it to others), computing (told only where it hides a
# collective that the host runs beside it), helper (a thread that communicates for its process, which goes on meanwhile), operator (of
# the framework), function (of Python), module (a module of PyTorch was called), backward (gradients were computed of what the row
# `forward` of the same `sequence` did). Of the profiler: overhead. event (of a stream, or of a host thread where `stream` is null: from the
# call of this `correlation` on it waits for what `awaited_stream` was given before the call of the correlation `awaited` was made; where
# that is null, before this call).
KINDS = (
    "kernel", "collective", "memcpy", "memset", "graph", "lost", "api", "mpi", "region", "step", "parallel", "off", "overhead", "computing",
    "helper", "operator", "function", "module", "lookup", "forward", "backward", "event",
)  # fmt: skip

RECORDER = "Ullage's recorder"  # the name of `overhead` that is no part of the program, nor of its libraries

# What a call of the GPU runtime does.
CALLS = ("launch", "graph", "copy", "sync", "other")

INTERVALS = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False, metadata={"unit": "ns"}),
        pa.field("end", pa.int64(), nullable=False, metadata={"unit": "ns"}),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string()), nullable=False, metadata={"meaning": "one of KINDS"}),
        pa.field("name", _word),
        pa.field("process", pa.int64(), metadata={"meaning": "the process' number in its capture"}),
        pa.field("thread", pa.int64(), metadata={"meaning": "the host thread that did it"}),
        pa.field("device", pa.int32(), metadata={"meaning": "the device's number in its capture"}),
        pa.field("stream", pa.int64()),
        pa.field("correlation", pa.int64(), metadata={"meaning": "the same number on an API call and on what it put on the device"}),
        pa.field("call", pa.dictionary(pa.int8(), pa.string()), metadata={"meaning": "what an api interval does; one of CALLS"}),
        pa.field("bytes", pa.int64(), metadata={"unit": "B"}),
        pa.field("operation", _word, metadata={"meaning": "a collective's operation, as 'allreduce'"}),
        pa.field("group", _word, metadata={"meaning": "a collective's process group"}),
        pa.field("sequence", pa.int64(), metadata={"meaning": "a collective's number within its group"}),
        pa.field("members", pa.int32(), metadata={"meaning": "how many ranks take part in a collective"}),
        pa.field(
            "product",
            _word,
            metadata={"meaning": "what the launching operator asked for, of products, attention or bytes: a word of ullage.product"},
        ),
        pa.field("blocks", pa.int64(), metadata={"meaning": "thread blocks of a kernel's grid"}),
        pa.field("threads", pa.int32(), metadata={"meaning": "threads of a kernel's block"}),
        pa.field("registers", pa.int32(), metadata={"meaning": "registers of each of a kernel's threads"}),
        pa.field("tokens", pa.int64(), metadata={"meaning": "how many tokens were looked up in an embedding table"}),
        pa.field("shared", pa.int32(), metadata={"unit": "B", "meaning": "shared memory of a kernel's block, static and dynamic"}),
        pa.field("awaited_stream", pa.int64(), metadata={"meaning": "the stream that an event wait is for"}),
        pa.field("awaited", pa.int64(), metadata={"meaning": "the correlation of the call that recorded the event that is waited for"}),
        pa.field(
            "off", pa.int64(), metadata={"unit": "ns", "meaning": "for how long of an interval of kind off it was so; null: all of it"}
        ),
    ]
)


def intervals(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return an `INTERVALS` record batch from whatever columns are known; the rest is null.

    Each column is an Arrow array, a NumPy array or a list, all of one length; `start`, `end` (integer ns) and `kind` are
    required. Words are strings or already dictionary-encoded. Raises KeyError for a column that is not in the schema.

    >>> batch = intervals({"start": [0], "end": [10], "kind": ["kernel"], "name": ["gemm"], "device": [0]})
    >>> batch["end"][0].as_py(), batch["bytes"][0].as_py()
    (10, None)
    """
    unknown = set(columns) - set(INTERVALS.names)
    if unknown:
        raise KeyError(f"not columns of the intervals table: {sorted(unknown)}")
    length = len(columns["start"])
    arrays = [_column(columns[f.name], f.type) if f.name in columns else nulls(length, f.type) for f in INTERVALS]
    return pa.RecordBatch.from_arrays(arrays, schema=INTERVALS)


# What the ranks of a training job did in each step, an operation a row, as stragglers are told from.
OPERATIONS = pa.schema(
    [
        pa.field("step", pa.int64(), nullable=False),
        pa.field("rank", pa.int64(), nullable=False),
        pa.field("dp_rank", pa.int64(), nullable=False, metadata={"meaning": "the data-parallel rank: which replica of the model"}),
        pa.field("stage", pa.int64(), nullable=False, metadata={"meaning": "the pipeline stage, from 0"}),
        pa.field("type", _word, nullable=False, metadata={"meaning": "one of `ullage.sums.pipeline.TYPES`"}),
        pa.field("sequence", pa.int64(), nullable=False, metadata={"meaning": "its number among those of its type, step and rank"}),
        pa.field("chunk", pa.int64(), metadata={"meaning": "which chunk of the whole model's layers, in the order of the forward pass"}),
        pa.field("microbatch", pa.int64()),
        pa.field("start", pa.int64(), nullable=False, metadata={"unit": "ns"}),
        pa.field("end", pa.int64(), nullable=False, metadata={"unit": "ns"}),
    ]
)
