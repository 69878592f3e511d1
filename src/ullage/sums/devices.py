"""Sums over settled samples by what was true of a device: one pass over the store gives everything that a fleet report divides.

What changes in time (who held a device, where it was, whether it was idle, whether cycles were counted) is decided for each sample, which
speaks for a span of time; what is added up is the time in one state. Sums merge over states, devices, jobs and time; ratios are
taken last, in `metrics`. The expressions are Ibis, so the same code runs on DuckDB over Parquet and on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ullage.field import ACTIVITY, IDLE
from ullage.metrics.ofu import sampled_ofu
from ullage.sums.held import empty, full, known
from ullage.sums.ledger import owner
from ullage.tables import Flag

# "GPU utilization" at least this, with every activity gauge at exactly zero: the gauges are stuck, not the GPU.
WORKS = 0.5

MEANS = ("tensor_active", "sm_active", "gr_active", "gpu_util", "power")
KEYS = ("gpu", "mig", "job")
STATE = (*KEYS, "cluster", "host", "user", "namespace", "share", "owner", "measured")  # a row of sums is the time in one of these states
OFU = ("span_ms", "ofu_ms", "ofu_sum", "cycles_ms", "tensor_cycles", "sm_cycles")
TREE = (
    *OFU,
    "ofu_tensor_sum",
    "cycles_tensor_sum",
    *(f"{name}_{what}" for name in ("tensor_active", "sm_active", "gr_active") for what in ("ms", "sum")),
)

Sums = dict[str, Any]  # what is added up, by name: a value per sample, None where no sample has one


def device_sums(samples: Any, *, bucket_ms: int | None = None) -> Any:
    """Return an Ibis table with a row per `STATE`, in that order, and its sums; with `bucket_ms`, also per `bucket` of time.

    `samples` is an Ibis table of `tables.SETTLED`, or of that and `share` (see `sums.slices`). Times are in milliseconds, so sums of
    them are exact integers:

    - `span_ms` observed time; `idle_ms` of it idle, `dark_ms` without any activity gauge
    - for each gauge in `MEANS`: `<gauge>_ms`, the time in which it was known, and `<gauge>_sum`, its integral over that time (unit x ms)
    - `cycles_ms`, `tensor_cycles`, `sm_cycles`: growth of the cycle counters, and over how long; `cycles_tensor_sum`: the integral of the
      share of cycles in which tensor pipes worked
    - `ofu_ms`, `ofu_sum`: time in which no cycles were counted, and the integral of tensor activity x SM clock (divide by the tensor
      clock for OFU); `ofu_tensor_sum` that of tensor activity over the same samples
    - `stuck_ms`: time in which the gauges read zero while the GPU works
    - `rows`, and `<flag>_rows` for each flag of `tables.Flag`; `start_ms`, `last_ms`, the observed window
    - `model` and `other_model`, which differ when a device went by two names; `index`, one of its numbers on its host

    A sample that reaches over the edge of a bucket counts in each by the time that it has there.
    """
    import ibis

    samples = samples if "share" in samples.columns else samples.mutate(share=ibis.null("float64"))
    keys = list(STATE)
    if bucket_ms is not None:
        samples = bucketed(samples, bucket_ms)
        keys.append("bucket")
    samples = samples.mutate(owner=_owner(samples), measured=_measured(samples))
    sums = {"span_ms": samples.span_ms, **_states(samples), **_integrals(samples), **_cycles(samples)}
    # what has few values is grouped by first and unfolded after, which costs less than a sum for each of them
    fine = _added(samples, [*keys, *_FEW], sums, rows=samples.count(), **_who(samples), **_window(samples))
    found = fine.group_by(keys).aggregate(
        **{name: fine[name].max() for name in (*_FIRST, "model", "last_ms")},
        other_model=fine.model.min(),
        start_ms=fine.start_ms.min(),
        **{name: fine[name].sum() for name in (*sums, "rows")},
        **{f"{flag.name.lower()}_rows": _when((fine.flags.cast("int32") & int(flag)) > 0, fine.rows).sum() for flag in Flag if flag.name},
    )
    return found.order_by(keys)


def time_sums(samples: Any, *, bucket_ms: int) -> Any:
    """Return an Ibis table with a row per (bucket, model) and the sums of `device_sums` that the course of OFU over time needs."""
    names = (*OFU, "ofu_tensor_sum", "cycles_tensor_sum", "gpu_util_ms", "gpu_util_sum")
    return chosen_sums(bucketed(samples, bucket_ms), ("bucket", "model"), names)


def chosen_sums(samples: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
    """Return an Ibis table with a row per `keys` (columns of the samples), in their order, and only some of the sums of `device_sums`.

    Only the columns that those sums need are read: a question that asks for little is answered soon.
    """
    sums = {"span_ms": samples.span_ms, **_states(samples), **_integrals(samples), **_cycles(samples)}
    return _added(samples, keys, {name: sums[name] for name in names}).order_by(keys)


def bucketed(samples: Any, bucket_ms: int) -> Any:
    """Return the samples with the start (ms) of their `bucket`; one that reaches over its edge is a row in each, by the time it has there.

    A sample speaks for the time before it.
    """
    import ibis

    end = milliseconds_of(samples.time)
    start = end - samples.span_ms
    last, first = (end - 1) // bucket_ms * bucket_ms, start // bucket_ms * bucket_ms
    own = part(samples, ibis.greatest(start, last), end, bucket=last)
    crossing = samples.mutate(_first=first, _last=last, _start=start).filter(first < last)
    pieces = crossing.mutate(_bucket=ibis.range(crossing._first, crossing._last, bucket_ms).unnest())
    earlier = part(pieces, ibis.greatest(pieces._start, pieces._bucket), pieces._bucket + bucket_ms, bucket=pieces._bucket)
    return own.union(earlier.select(own.columns))


def within(samples: Any, since: int | None, until: int | None) -> Any:
    """Return the samples of a window (ms); one that reaches over its edge speaks only for its time inside, and its counters likewise."""
    import ibis

    if since is None and until is None:
        return samples
    end = milliseconds_of(samples.time)
    start = end - samples.span_ms
    inside = samples.time > _timestamp(since) if since is not None else ibis.literal(True)
    if since is not None:
        start = ibis.greatest(start, since)
    if until is not None:
        inside, end = inside & (start < until), ibis.least(end, until)
    clipped = part(samples, start, end, _end=end, _inside=inside)
    clipped = clipped.filter(clipped._inside)
    if until is not None:
        clipped = clipped.mutate(time=ibis.least(clipped.time, _timestamp(until)))
    return clipped.drop("_end", "_inside")


def part(samples: Any, start: Any, end: Any, **more: Any) -> Any:
    """Return samples that speak for a part of their span, from `start` to `end` (ms), and their counters' growth in that part."""
    share = (end - start).cast("float64") / samples.span_ms.cast("float64")
    grown = [name for name in samples.columns if name.endswith("_delta") and not empty(samples, name)]
    scaled = {name: samples[name].cast("float64") * share for name in grown}
    return samples.mutate(span_ms=(end - start).cast("int64"), **scaled, **more)


def _timestamp(milliseconds: int) -> Any:
    import datetime

    import ibis

    return ibis.literal(datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC), type="timestamp('UTC')")


def milliseconds_of(time: Any) -> Any:
    """Return an Ibis timestamp column as integer milliseconds since 1970."""
    return _microseconds(time) // 1000  # DuckDB's own epoch_ms takes ten times as long


def _microseconds(time: Any) -> Any:
    """The engine's own function; exact in a double, which Ibis divides in, until the year 2255."""
    import ibis
    import ibis.expr.datatypes as types

    @ibis.udf.scalar.builtin(
        name="unix_micros" if time.get_backend().name == "pyspark" else "epoch_us",
        signature=((types.Timestamp("UTC"),), types.int64),
    )
    def epoch_microseconds(when):  # type: ignore[no-untyped-def]
        ...

    return epoch_microseconds(time)


_FEW = ("flags", "model")
_FIRST = ("index",)


def _added(samples: Any, keys: Sequence[str], sums: Mapping[str, Any], **others: Any) -> Any:
    """Group samples by `keys` and add up `sums`; what no sample has is 0 (of no time), and is not asked of any."""
    import ibis

    held = [key for key in keys if not empty(samples, key)] or [keys[0]]
    some = {name: value.sum() for name, value in sums.items() if value is not None}
    table = samples.group_by(held).aggregate(**some, **{name: value for name, value in others.items() if value is not None})
    nothing = {name: ibis.literal(0, "int64") for name, value in sums.items() if value is None}
    nobody = {name: ibis.null(samples[name].type()) for name in keys if name not in held}
    return table.mutate(**nothing, **nobody, **{name: ibis.null(samples[name].type()) for name, value in others.items() if value is None})


def _who(samples: Any) -> dict[str, Any]:
    return {name: None if empty(samples, name) else samples[name].arbitrary() for name in _FIRST}


def _window(samples: Any) -> dict[str, Any]:
    return {"start_ms": (milliseconds_of(samples.time) - samples.span_ms).min(), "last_ms": milliseconds_of(samples.time.max())}


def _states(samples: Any) -> Sums:
    import ibis

    told, level = _levels(samples)
    gauges = [name for name in told if name != "gpu_util"]
    dark, quiet = _dark_and_quiet(samples)
    zero = ibis.and_(*(level[name] == 0 for name in gauges)) & ibis.or_(*(samples[name].notnull() for name in gauges))
    return {
        "idle_ms": _when(quiet, samples.span_ms),
        "dark_ms": _when(dark, samples.span_ms),
        "stuck_ms": _when(zero & (level["gpu_util"] >= WORKS) if "gpu_util" in told else False, samples.span_ms),
    }


def _levels(samples: Any) -> tuple[list[str], dict[str, Any]]:
    """Return the gauges of activity that any sample has, and each with 0 where it is not known."""
    told = [name for name in ACTIVITY if not empty(samples, name)]
    return told, {name: samples[name] if full(samples, name) else samples[name].fill_null(0) for name in told}


def _dark_and_quiet(samples: Any) -> tuple[Any, Any]:
    """Return where no gauge of activity is known, and where those that are say that nothing ran."""
    import ibis

    told, level = _levels(samples)
    dark = False if any(full(samples, name) for name in told) else ibis.and_(*(samples[name].isnull() for name in told))
    quiet = ibis.and_(*(value < IDLE for value in level.values()))
    return dark, quiet if dark is False else quiet & ~dark


def _owner(samples: Any) -> Any:
    """Return the code of each sample's owner in the ledger."""
    import ibis

    held = False if empty(samples, "job") else samples.job.notnull()
    _, idle = _dark_and_quiet(samples)
    found = owner(held, samples.sharers > 1, idle, False if empty(samples, "share") else samples.share.notnull())
    return ibis.literal(found, "int8") if isinstance(found, int) else found


def _measured(samples: Any) -> Any:
    """Return what is known of each sample: 1 for OFU, 2 for SM activity and 4 for engine activity, added up.

    The steps of the chain compare means with each other, which has a meaning only over the same time.
    """
    import ibis

    sampled, counted = known(samples, "tensor_active", "sm_clock"), _counted(samples)
    if isinstance(sampled, bool):
        ofu = True if sampled else counted
    else:
        ofu = sampled if counted is False else True if counted is True else sampled | counted
    parts = ((ofu, 1), (known(samples, "sm_active"), 2), (known(samples, "gr_active"), 4))
    always = ibis.literal(sum(code for where, code in parts if where is True), "int8")
    return sum(
        (where.ifelse(ibis.literal(code, "int8"), ibis.literal(0, "int8")) for where, code in parts if not isinstance(where, bool)), always
    )


def _integrals(samples: Any) -> Sums:
    span = samples.span_ms.cast("float64")
    sums: Sums = {}
    for name in MEANS:
        sums[f"{name}_ms"] = _when(known(samples, name), samples.span_ms)
        sums[f"{name}_sum"] = None if empty(samples, name) else span * samples[name]
    sampled, counted = known(samples, "tensor_active", "sm_clock"), _counted(samples)
    if sampled is not False and counted is not False:
        sampled = ~counted if sampled is True else sampled & ~counted
    sums["ofu_ms"] = _when(sampled, samples.span_ms)
    if sampled is False:
        return {**sums, "ofu_sum": None, "ofu_tensor_sum": None}
    # OFU is linear in 1 / tensor clock, which only `gpus` knows: here it is taken for a tensor clock of 1 Hz
    activity, clock = (samples[name].cast("float64") for name in ("tensor_active", "sm_clock"))
    # tensor activity over the very samples that OFU has, so that the clock factor compares like with like
    return {**sums, "ofu_sum": _when(sampled, span * sampled_ofu(activity, clock, 1.0)), "ofu_tensor_sum": _when(sampled, span * activity)}


def _counted(samples: Any) -> Any:
    """Return where cycles were counted."""
    return known(samples, "tensor_cycles_delta", "sm_cycles_delta")


def _cycles(samples: Any) -> Sums:
    counted = _counted(samples)
    if counted is False:
        return dict.fromkeys(("cycles_ms", "tensor_cycles", "sm_cycles", "cycles_tensor_sum"))
    tensor, elapsed = (samples[name].cast("float64") for name in ("tensor_cycles_delta", "sm_cycles_delta"))
    runs = elapsed > 0  # the counters of an idle GPU may stand still
    return {
        "cycles_ms": _when(counted, samples.span_ms),
        "tensor_cycles": _when(counted, tensor),
        "sm_cycles": _when(counted, elapsed),
        "cycles_tensor_sum": _when(runs if counted is True else counted & runs, samples.span_ms.cast("float64") * tensor / elapsed),
    }


def _when(condition: Any, value: Any) -> Any:
    """The value where a condition holds and 0 elsewhere, None where it never does."""
    if isinstance(condition, bool):
        return value if condition else None
    return condition.ifelse(value, 0)  # a CASE, not a FILTER: three times as fast in DuckDB
