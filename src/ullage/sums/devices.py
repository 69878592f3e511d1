"""Sums over settled samples by what was true of a device: one pass over the store gives everything that a fleet report divides.

What changes in time (who held a device, where it was, whether it was idle, whether cycles were counted) is decided for each sample, which
speaks for a span of time; what is added up is the time in one state. Sums merge over states, devices, jobs and time; ratios are
taken last, in `metrics`. The expressions are Ibis, so the same code runs on DuckDB over Parquet and on Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ullage.field import ACTIVITY, CLOCK_LIMITS, IDLE, SEVERAL_SMS
from ullage.sums.exact import (
    ACTIVITY_STEP,
    CLOCK_STEP,
    CYCLE_STEP,
    POWER_SQUARE_STEP,
    POWER_STEP,
    RATE_STEP,
    WHOLE,
    Steps,
    added,
    added_up,
    from_steps,
    in_units,
    with_steps,
)
from ullage.sums.held import constant_of, empty, full, known, same_everywhere
from ullage.sums.ledger import owner
from ullage.tables import Flag

# "GPU utilization" at least this, with every activity gauge at exactly zero: the gauges are stuck, not the GPU.
WORKS = 0.5

MEANS = ("tensor_active", "sm_active", "gr_active", "gpu_util", "power")
KEYS = ("gpu", "mig", "job")
# a row of sums is the time in one of these states
STATE = (*KEYS, "cluster", "host", "user", "namespace", "share", "owner", "measured", "summed")
KIND = ("model", "mig", "share", "summed")  # what part of which GPU a row speaks for, so that it weighs so much, and how its cycles count
OFU = ("span_ms", "ofu_ms", "ofu_sum", "cycles_ms", "tensor_cycles", "sm_cycles")
TREE = (
    *OFU,
    "ofu_tensor_sum",
    "cycles_tensor_sum",
    *(f"{name}_{what}" for name in ("tensor_active", "sm_active", "gr_active") for what in ("ms", "sum")),
)
COURSE = (*OFU, "ofu_tensor_sum", "cycles_tensor_sum", "gpu_util_ms", "gpu_util_sum")

# What is told of the time under each of `CLOCK_LIMITS`: of which sums it is a part.
_LIMITED = {
    "ms": ("span_ms",),
    "tensor_sum": ("ofu_tensor_sum", "cycles_tensor_sum"),
    "ofu_sum": ("ofu_sum",),
    "cycles": ("tensor_cycles",),
}

# By which step each sum is counted, also where no sample has any: parts of which one has a gauge and another has not add up.
STEPS = {
    **dict.fromkeys((f"{name}_sum" for name in MEANS), ACTIVITY_STEP),
    **dict.fromkeys(("power_sum", "energy_sum", "sampled_sum"), POWER_STEP),
    **dict.fromkeys(("ofu_tensor_sum", "cycles_tensor_sum"), ACTIVITY_STEP),
    **dict.fromkeys(("ofu_sum", "memory_sum", "fp64_sum", "fp32_sum", "fp16_sum"), CLOCK_STEP),
    **dict.fromkeys(("nvlink_tx_sum", "nvlink_rx_sum", "pcie_tx_sum", "pcie_rx_sum"), RATE_STEP),
    **dict.fromkeys(("tensor_cycles", "sm_cycles"), CYCLE_STEP),
    "sampled_squares": POWER_SQUARE_STEP,
    **dict.fromkeys((f"{limit}_tensor_sum" for limit in CLOCK_LIMITS), ACTIVITY_STEP),
    **dict.fromkeys((f"{limit}_ofu_sum" for limit in CLOCK_LIMITS), CLOCK_STEP),
    **dict.fromkeys((f"{limit}_cycles" for limit in CLOCK_LIMITS), CYCLE_STEP),
}

# What sums are made of, and what is told of a group of samples: a question that carries less is written and compiled sooner.
PIPES, LINKS = ("fp64", "fp32", "fp16"), ("nvlink_tx", "nvlink_rx", "pcie_tx", "pcie_rx")
ROOF_FIELDS = ("dram_active", "memory_clock", *(f"{pipe}_active" for pipe in PIPES), *LINKS)
_ADDED = ("span_ms", *ACTIVITY, "sm_clock", "power", "energy_delta", "tensor_cycles_delta", "sm_cycles_delta", *ROOF_FIELDS)
_TOLD = ("gpu", "job", "cluster", "host", "user", "namespace", "index", "sharers", "flags", "throttle")

Sums = dict[str, Any]  # what is added up, by name: a whole number or `Steps` per sample, None where no sample has one


def device_sums(samples: Any, *, bucket_ms: int | None = None, only: Sequence[str] | None = None) -> Any:
    """Return an Ibis table with a row per `STATE`, in that order, and its sums; with `bucket_ms`, also per `bucket` of time.

    `only` names the sums that are wanted: the others are not asked for, nor what goes with them (`rows`, the window, `index`).

    `samples` is an Ibis table of `tables.SETTLED`, or of that and `share` (see `sums.slices`). Times are in milliseconds, so sums of
    them are exact integers:

    - `span_ms` observed time; `idle_ms` of it idle, `dark_ms` without any activity gauge
    - for each gauge in `MEANS`: `<gauge>_ms`, the time in which it was known, and `<gauge>_sum`, its integral over that time (unit x ms)
    - `cycles_ms`, `tensor_cycles`, `sm_cycles`: growth of the cycle counters, and over how long; `cycles_tensor_sum`: the integral of the
      share of cycles in which tensor pipes worked
    - `ofu_ms`, `ofu_sum`: time in which no cycles were counted, and the integral of tensor activity x SM clock (divide by the tensor
      clock for OFU); `ofu_tensor_sum` that of tensor activity over the same samples
    - `memory_ms`, `memory_sum`: the integral of memory activity x memory clock, and over how long; the same of the pipes in `PIPES` with
      the SM clock (divide by the highest clock), and of the rates of `LINKS` (bytes)
    - `energy_ms`, `energy_sum` (mJ): the growth of the energy counter, and over how long; `sampled_ms`, `sampled_sum` (mJ),
      `sampled_squares` (W^2 ms): power where it was sampled and no energy was counted
    - for each of `CLOCK_LIMITS`: `<limit>_ms`, the time under it, and the parts of tensor activity (`<limit>_tensor_sum`), of `ofu_sum`
      (`<limit>_ofu_sum`) and of `tensor_cycles` (`<limit>_cycles`) that are of that time
    - `stuck_ms`: time in which the gauges read zero while the GPU works
    - `rows`, and `<flag>_rows` for each flag of `tables.Flag`; `start_ms`, `last_ms`, the observed window
    - `model` and `other_model`, which differ when a device went by two names; `index`, one of its numbers on its host

    A sample that reaches over the edge of a bucket counts in each by the time that it has there.
    """

    samples, keys = with_states(samples, bucket_ms)
    sums, others = sums_of_states(samples, only)
    fine = grouped(samples, fine_keys(keys, only), sums, others)
    return unfolded_states(with_owners(fine), keys, sums, only)


def with_states(samples: Any, bucket_ms: int | None = None) -> tuple[Any, list[str]]:
    """Return the samples with what is known of the state of each, and the columns that tell states apart (the owner is told later)."""
    samples, keys = _with_share(samples).select("time", *KIND[:-1], *_TOLD, *_ADDED), list(STATE)
    if bucket_ms is not None:
        samples = bucketed(samples, bucket_ms)
        keys.append("bucket")
    several, quiet, measured = samples.sharers > 1, _dark_and_quiet(samples)[1], _measured(samples)
    told = {
        "_several": several,
        "_quiet": quiet,
        "measured": measured,
        "summed": counts_several_sms(samples),
        "_limit": clock_limit(samples),
    }
    return samples.mutate(**told), keys


def clock_limit(samples: Any) -> Any:
    """Return what lowered each sample's clock: 1 for the first of `CLOCK_LIMITS` and so on, 0 for none, or not known."""
    import ibis

    if empty(samples, "throttle"):
        return ibis.literal(0, "int8")
    bits = samples.throttle if full(samples, "throttle") else samples.throttle.fill_null(0)
    cases = [((bits & mask) > 0, ibis.literal(code, "int8")) for code, mask in enumerate(CLOCK_LIMITS.values(), 1)]
    return ibis.cases(*cases, else_=ibis.literal(0, "int8"))


def sums_of_states(samples: Any, only: Sequence[str] | None = None) -> tuple[Sums, dict[str, Any]]:
    """Return what is added up over samples, and what else is told of a group of them; `only` names the sums that are wanted."""
    if only is not None:
        return {name: value for name, value in _sums(samples).items() if name in only}, {}
    return _sums(samples), {"rows": samples.count(), **_who(samples), **_window(samples)}


def fine_keys(keys: Sequence[str], only: Sequence[str] | None = None) -> list[str]:
    """Return the columns to group samples by: what has few values is grouped by first and unfolded after.

    That costs less than a sum (or a CASE) of it for each sample.
    """
    few = ["_several", "_quiet", "model"] if only is not None else ["_several", "_quiet", "model", "flags", "_limit"]
    return [*(key for key in keys if key != "owner"), *few]


def unfolded_states(fine: Any, keys: Sequence[str], sums: Sums, only: Sequence[str] | None = None) -> Any:
    """Return the sums by state from those of samples that are alike in `fine_keys`, and perhaps in more."""
    limited = {} if only is not None else {name: Steps(None, step) for name, step in STEPS.items() if name in _LIMITED_SUMS}
    return from_steps(states_in_steps(fine, keys, sums, only), sums | limited).order_by(keys)


def states_in_steps(fine: Any, keys: Sequence[str], sums: Sums, only: Sequence[str] | None = None) -> Any:
    """Return what `unfolded_states` gives with sums of `Steps` in whole steps; what no sample has is 0, and need not be in `fine`."""
    import ibis

    more, limited = ({}, {}) if only is not None else (_unfolded(fine), _limited(fine, sums))
    found = fine.group_by(keys).aggregate(
        other_model=fine.model.min(),
        model=fine.model.max(),
        **{name: fine[name].sum() for name, value in sums.items() if value is not None},
        **{name: value.sum() for name, value in limited.items() if value is not None},
        **more,
    )
    found = found.mutate(**{name: ibis.literal(0, "int64") for name, value in (sums | limited).items() if value is None})
    return found.select(*keys, "other_model", "model", *sums, *limited, *more)


_LIMITED_SUMS = tuple(f"{limit}_{what}" for limit in CLOCK_LIMITS for what in _LIMITED)


def _limited(fine: Any, sums: Sums) -> Sums:
    """Return the parts of sums that are of the time under each limit of the clock; None where no sample has any."""
    found: Sums = dict.fromkeys(_LIMITED_SUMS)
    if same_everywhere(fine, "_limit"):
        return found
    for code, limit in enumerate(CLOCK_LIMITS, 1):
        for what, names in _LIMITED.items():
            parts = [fine[name] for name in names if sums[name] is not None]
            if parts:
                found[f"{limit}_{what}"] = (fine._limit == code).ifelse(sum(parts[1:], parts[0]), 0)
    return found


def _with_share(samples: Any) -> Any:
    import ibis

    return samples if "share" in samples.columns else samples.mutate(share=ibis.null("float64"))


def _unfolded(fine: Any) -> dict[str, Any]:
    """Return what is known once rows of the finer grouping are put together."""
    marked = {flag.name.lower(): (fine.flags.cast("int32") & int(flag)) > 0 for flag in Flag if flag.name}
    return {
        **{name: fine[name].max() for name in _FIRST},
        "last_ms": milliseconds_of(fine.last.max()),
        "start_ms": (fine.start_us.min() // 1000).cast("int64"),
        "idle_ms": _when(fine._quiet, fine.span_ms).sum(),
        "rows": fine.rows.sum(),
        **{f"{name}_rows": _when(mark, fine.rows).sum() for name, mark in marked.items()},
    }


def time_sums(samples: Any, *, bucket_ms: int) -> pa.Table:
    """Return the sums of `device_sums` that the course of OFU over time needs, by bucket and `KIND`.

    A sample that reaches over the edge of a bucket counts in each by the time that it has there.
    """
    return from_course_steps(time_steps(samples, bucket_ms=bucket_ms))


def time_steps(samples: Any, *, bucket_ms: int) -> pa.Table:
    """Return what `time_sums` gives in whole steps, which stand in the metadata of their columns.

    Nearly all samples lie in one bucket or in two, whose first has all of the sample less what the second has: one pass over the samples
    gives both. The few in more are asked for again.
    """
    import ibis

    samples = _with_share(samples).select("time", *KIND[:-1], *_ADDED)
    samples = samples.mutate(summed=counts_several_sms(samples))
    columns = samples.columns
    # whole numbers in doubles, which cost an engine a fraction of whole numbers that are checked for overflow
    end = rounded_down(_microseconds(samples.time) / 1000)
    samples = samples.mutate(_end=end, _bucket=rounded_down((end - 1) / bucket_ms) * bucket_ms)
    samples = samples.mutate(_inside=samples._end - samples._bucket, _span=samples.span_ms.cast("float64"))
    edges = [samples._span > samples._inside, samples._span > samples._inside + bucket_ms]
    samples = samples.mutate(_edges=edges[0].cast("float64") + edges[1].cast("float64"))
    samples = samples.mutate(_when=samples._bucket + samples._edges)  # one column to group by
    inside = {name: value for name, value in _sums(samples, ibis.least(samples._span, samples._inside)).items() if name in COURSE}
    crossing = samples._edges == 1
    whole = {f"{name}_whole": _where(crossing, value) for name, value in _sums(samples).items() if name in COURSE}
    found = grouped(samples, ("_when", *KIND), inside | whole, {})
    found = found.mutate(_when=found._when.cast("int64"))
    found = found.mutate(_edges=found._when % bucket_ms, bucket=found._when // bucket_ms * bucket_ms)
    own = found.select("bucket", *KIND, "_edges", **{name: found[name].cast(WHOLE) for name in inside})
    both = found.filter(found._edges == 1)
    before = both.select(
        *KIND,
        "_edges",
        bucket=both.bucket - bucket_ms,
        **{name: (both[f"{name}_whole"] - both[name]).cast(WHOLE) for name in inside},
    )
    table = own.union(before.select(own.columns)).to_pyarrow()
    long = pc.equal(table["_edges"], 2)
    plain = table.filter(pc.invert(long)).drop_columns("_edges")
    if pc.any(long).as_py():
        longer = bucketed(samples.filter(samples._edges == 2).select(columns), bucket_ms)
        rest = grouped(longer, ("bucket", *KIND), {name: value for name, value in _sums(longer).items() if name in COURSE}, {})
        rest = rest.mutate(**{name: rest[name].cast(WHOLE) for name in inside})
        plain = pa.concat_tables([plain, rest.to_pyarrow().select(plain.column_names)], promote_options="permissive")
    return with_steps(added_up(plain, ("bucket", *KIND)), STEPS)


def from_course_steps(table: pa.Table, bucket_ms: int | None = None) -> pa.Table:
    """Return sums of `time_steps` in their units, in buckets of `bucket_ms`, of which those that they are in are parts."""
    if bucket_ms is not None:
        wide = pa.array(table["bucket"].to_numpy() // bucket_ms * bucket_ms)
        table = added_up(table.set_column(table.column_names.index("bucket"), table.schema.field("bucket"), wide), ("bucket", *KIND))
    return in_units(table).sort_by([("bucket", "ascending"), *((name, "ascending") for name in KIND)])


def chosen_sums(samples: Any, keys: Sequence[str], names: Sequence[str], **others: Any) -> Any:
    """Return an Ibis table with a row per `keys` (columns of the samples), in their order, and only some of the sums of `device_sums`.

    `others` is what else to tell of each row, an aggregate of the samples by name. Only the columns that those sums need are read: a
    question that asks for little is answered soon.
    """
    sums = {name: value for name, value in _sums(samples).items() if name in names}
    return from_steps(grouped(samples, keys, sums, others), sums).order_by(keys)


def _sums(samples: Any, span: Any = None) -> Sums:
    """Return what is added up; with `span` (ms) each sample speaks only for so much of its time."""
    whole = samples.span_ms
    grown = 1.0 if span is None else span.cast("float64") / whole.cast("float64").nullif(0)
    span = whole if span is None else span
    sums = {"span_ms": span, **_states(samples, span), **_integrals(samples, span), **_cycles(samples, span, grown)}
    return {**sums, **_roofs(samples, span), **_energy(samples, span, grown)}


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
    share = (end - start).cast("float64") / samples.span_ms.cast("float64").nullif(0)
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
    return _epoch_microseconds("unix_micros" if time.get_backend().name == "pyspark" else "epoch_us")(time)


@cache
def _epoch_microseconds(name: str) -> Any:
    import ibis
    import ibis.expr.datatypes as types

    @ibis.udf.scalar.builtin(name=name, signature=((types.Timestamp("UTC"),), types.int64))
    def epoch_microseconds(when):  # type: ignore[no-untyped-def]
        ...

    return epoch_microseconds


def rounded_down(value: Any) -> Any:
    """The engine's own function: Ibis would make a whole number of it."""
    return _floor()(value)


@cache
def _floor() -> Any:  # a class of Ibis's own for each declaration: the same question would have another expression each time
    import ibis

    @ibis.udf.scalar.builtin(name="floor", signature=(("float64",), "float64"))
    def floor(value):  # type: ignore[no-untyped-def]
        ...

    return floor


_FIRST = ("index",)


def grouped(samples: Any, keys: Sequence[str], sums: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """Group samples by `keys` and add up `sums`; what no sample has is 0 (of no time), and is not asked of any."""
    import ibis

    held = [key for key in keys if not same_everywhere(samples, key)] or [keys[0]]
    engine = samples.get_backend().name  # found in the whole expression: once, not for each sum
    some = {name: added(value, engine) for name, value in sums.items() if value is not None}
    table = samples.group_by(held).aggregate(**some, **{name: value for name, value in others.items() if value is not None})
    nothing = {name: ibis.literal(0, "int64") for name, value in sums.items() if value is None}
    constant = {name: ibis.literal(constant_of(samples, name), samples[name].type()) for name in keys if name not in held}
    nobody = {name: ibis.null(samples[name].type()) for name, value in others.items() if value is None}
    return table.mutate(**nothing, **constant, **nobody)


def _who(samples: Any) -> dict[str, Any]:
    return {name: None if empty(samples, name) else samples[name].max() for name in _FIRST}


def _window(samples: Any) -> dict[str, Any]:
    # in microseconds, as they are stored: a division for each group, not for each sample
    return {"start_us": (_microseconds(samples.time) - samples.span_ms.cast("int64") * 1000).min(), "last": samples.time.max()}


def _states(samples: Any, span: Any) -> Sums:
    import ibis

    told, level = _levels(samples)
    gauges = [name for name in told if name != "gpu_util"]
    dark, _ = _dark_and_quiet(samples)
    zero = ibis.and_(*(level[name] == 0 for name in gauges)) & ibis.or_(*(samples[name].notnull() for name in gauges))
    return {
        "dark_ms": _when(dark, span),
        "stuck_ms": _when(zero & (level["gpu_util"] >= WORKS) if "gpu_util" in told else False, span),
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


def with_owners(fine: Any) -> Any:
    """Return sums by `fine_keys` with the code of the owner in the ledger: the same for all samples of a row."""
    import ibis

    held = False if empty(fine, "job") else fine.job.notnull()
    found = owner(held, fine._several, fine._quiet, False if empty(fine, "share") else fine.share.notnull())
    return fine.mutate(owner=ibis.literal(found, "int8") if isinstance(found, int) else found)


def _measured(samples: Any) -> Any:
    """Return what is known of each sample: 1 for OFU, 2 for SM activity and 4 for engine activity, added up.

    The steps of the chain compare means with each other, which has a meaning only over the same time.
    """
    import ibis

    sampled, counted = known(samples, "tensor_active", "sm_clock"), cycles_counted(samples)
    if isinstance(sampled, bool):
        ofu = True if sampled else counted
    else:
        ofu = sampled if counted is False else True if counted is True else sampled | counted
    parts = ((ofu, 1), (known(samples, "sm_active"), 2), (known(samples, "gr_active"), 4))
    always = ibis.literal(sum(code for where, code in parts if where is True), "int8")
    return sum(
        (where.ifelse(ibis.literal(code, "int8"), ibis.literal(0, "int8")) for where, code in parts if not isinstance(where, bool)), always
    )


def _integrals(samples: Any, span: Any) -> Sums:
    time = span.cast("float64")
    sums: Sums = {}
    for name in MEANS:
        sums[f"{name}_ms"] = _when(known(samples, name), span)
        step = POWER_STEP if name == "power" else ACTIVITY_STEP
        sums[f"{name}_sum"] = None if empty(samples, name) else Steps(time * samples[name].cast("float64"), step)
    sampled, counted = known(samples, "tensor_active", "sm_clock"), cycles_counted(samples)
    if sampled is not False and counted is not False:
        sampled = False if counted is True else ~counted if sampled is True else sampled & ~counted
    sums["ofu_ms"] = _when(sampled, span)
    if sampled is False:
        return {**sums, "ofu_sum": None, "ofu_tensor_sum": None}
    # OFU is linear in 1 / tensor clock, which only `gpus` knows: here it is taken for a tensor clock of 1 Hz, without a division by 1
    tensor = time * samples.tensor_active.cast("float64")
    # tensor activity over the very samples that OFU has, so that the clock factor compares like with like
    return {
        **sums,
        "ofu_sum": Steps(_when(sampled, tensor * samples.sm_clock.cast("float64")), CLOCK_STEP),
        "ofu_tensor_sum": Steps(_when(sampled, tensor), ACTIVITY_STEP),
    }


def cycles_counted(samples: Any) -> Any:
    """Return where cycles were counted."""
    return known(samples, "tensor_cycles_delta", "sm_cycles_delta")


def counts_several_sms(samples: Any) -> Any:
    """Return whether each sample's cycles are those of several SMs, added up, by how fast they pass: an exporter may change it."""
    import ibis

    if cycles_counted(samples) is False:
        return ibis.literal(value=False)
    return (samples.sm_cycles_delta.cast("float64") > samples.span_ms.cast("float64") * (SEVERAL_SMS / 1000)).fill_null(False)


def _cycles(samples: Any, span: Any, grown: Any) -> Sums:
    """Return the sums over cycle counters, of whose growth the part `grown` counts."""
    counted = cycles_counted(samples)
    if counted is False:
        return dict.fromkeys(("cycles_ms", "tensor_cycles", "sm_cycles", "cycles_tensor_sum"))
    tensor, elapsed = (samples[name].cast("float64") for name in ("tensor_cycles_delta", "sm_cycles_delta"))
    runs = elapsed > 0  # the counters of an idle GPU may stand still
    share = span.cast("float64") * tensor / elapsed
    return {
        "cycles_ms": _when(counted, span),
        "tensor_cycles": Steps(_when(counted, tensor * grown), CYCLE_STEP),
        "sm_cycles": Steps(_when(counted, elapsed * grown), CYCLE_STEP),
        "cycles_tensor_sum": Steps(_when(runs if counted is True else counted & runs, share), ACTIVITY_STEP),
    }


def _roofs(samples: Any, span: Any) -> Sums:
    """Return the sums over what else than tensor pipes may be full."""
    time = span.cast("float64")
    gauges = {"memory": ("dram_active", "memory_clock", CLOCK_STEP)}
    gauges |= {name: (f"{name}_active", "sm_clock", CLOCK_STEP) for name in PIPES} | {name: (name, "", RATE_STEP) for name in LINKS}
    sums: Sums = {}
    for name, (level, clock, step) in gauges.items():
        fields = (level, clock) if clock else (level,)
        read = known(samples, *fields)
        sums[f"{name}_ms"] = _when(read, span)
        value = None if read is False else time * samples[level].cast("float64")
        sums[f"{name}_sum"] = None if value is None else Steps(value * samples[clock].cast("float64") if clock else value, step)
    return sums


def _energy(samples: Any, span: Any, grown: Any) -> Sums:
    """Return the sums over energy: by its counter, and where that told nothing by samples of power."""
    counted, sampled = known(samples, "energy_delta"), known(samples, "power")
    grew = None if counted is False else Steps(_when(counted, samples.energy_delta.cast("float64") * 1000 * grown), POWER_STEP)
    if counted is True or sampled is False:
        sampled = False
    elif counted is not False:
        sampled = ~counted if sampled is True else sampled & ~counted
    sums: Sums = {"energy_ms": _when(counted, span), "energy_sum": grew, "sampled_ms": _when(sampled, span)}
    if sampled is False:
        return {**sums, "sampled_sum": None, "sampled_squares": None}
    power = samples.power.cast("float64")
    drawn = span.cast("float64") * power
    return {
        **sums,
        "sampled_sum": Steps(_when(sampled, drawn), POWER_STEP),
        "sampled_squares": Steps(_when(sampled, drawn * power), POWER_SQUARE_STEP),
    }


def _where(condition: Any, value: Any) -> Any:
    """What is added up, but only where a condition holds."""
    if value is None:
        return None
    return Steps(_when(condition, value.value), value.step) if isinstance(value, Steps) else _when(condition, value)


def _when(condition: Any, value: Any) -> Any:
    """The value where a condition holds and 0 elsewhere, None where it never does."""
    if isinstance(condition, bool):
        return value if condition else None
    return condition.ifelse(value, 0)  # a CASE, not a FILTER: three times as fast in DuckDB
