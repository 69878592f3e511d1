"""Sums by device and job over settled samples: one pass over the store gives everything that a fleet report divides.

The expressions are Ibis, so the same code runs on DuckDB over Parquet and on Spark. Sums merge over devices, jobs and
time; ratios are taken last, in `metrics`.
"""

from __future__ import annotations

from typing import Any

from ullage.metrics.ofu import sampled_ofu
from ullage.tables import Flag

# A device is idle in a sample when no engine is busier than this (DCGM rounds to 1e-6; a display costs about 0.1 %).
IDLE = 0.005
# "GPU utilization" at least this, with every activity gauge at exactly zero: the gauges are stuck, not the GPU.
WORKS = 0.5

ACTIVITY = ("gr_active", "sm_active", "tensor_active", "gpu_util")
MEANS = ("tensor_active", "sm_active", "gr_active", "gpu_util", "power")
KEYS = ("gpu", "mig", "job")


def device_sums(samples: Any, *, bucket_ms: int | None = None) -> Any:
    """Return an Ibis table with a row per (gpu, mig, job) and its sums; with `bucket_ms`, also per `bucket` of time.

    `samples` is an Ibis table of `tables.SETTLED`. Times are in milliseconds, so sums of them are exact integers:

    - `span_ms` observed time; `idle_ms` of it idle, `dark_ms` without any activity gauge, `shared_ms` held by several jobs,
      `shared_idle_ms` both
    - for each gauge in `MEANS`: `<gauge>_ms`, the time in which it was known, and `<gauge>_sum`, its integral over that time (unit x ms)
    - `ofu_ms`, `ofu_sum`: the same for tensor activity x SM clock (divide by the tensor clock for OFU); `ofu_tensor_sum` for tensor
      activity over the same samples
    - `cycles_ms`, `tensor_cycles`, `sm_cycles`: growth of the cycle counters, and over how long
    - `stuck_ms`: time in which the gauges read zero while the GPU works
    - `rows`, and `<flag>_rows` for each flag of `tables.Flag`; `start_ms`, `last_ms`, the observed window
    - `model` and `other_model`, which differ when a device went by two names
    """
    keys = list(KEYS)
    if bucket_ms is not None:
        samples = samples.mutate(bucket=bucket(samples.time, bucket_ms))
        keys.append("bucket")
    # flags and sharers have few values: grouped by first and unfolded after, they cost nothing per sample
    fine = samples.group_by([*keys, "flags", "sharers"]).aggregate(
        **_who(samples), **_seconds(samples), **_integrals(samples), **_cycles(samples)
    )
    added = [c for c in fine.columns if c not in {*keys, "flags", "sharers", *_FIRST, "model", "other_model", "start_ms", "last_ms"}]
    return fine.group_by(keys).aggregate(
        **{name: fine[name].max() for name in (*_FIRST, "model", "last_ms")},
        **{name: fine[name].min() for name in ("other_model", "start_ms")},
        **{name: fine[name].sum() for name in added},
        **_shared(fine),
        **{f"{flag.name.lower()}_rows": _when((fine.flags.cast("int32") & int(flag)) > 0, fine.rows).sum() for flag in Flag if flag.name},
    )


def time_sums(samples: Any, *, bucket_ms: int) -> Any:
    """Return an Ibis table with a row per (bucket, model) and the sums of `device_sums` that the course of OFU over time needs."""
    chosen = {name: value for name, value in _integrals(samples).items() if name.startswith(("ofu", "gpu_util"))}
    bucketed = samples.mutate(bucket=bucket(samples.time, bucket_ms))
    return bucketed.group_by(["bucket", "model"]).aggregate(span_ms=samples.span_ms.sum(), **chosen, **_cycles(samples))


def bucket(time: Any, bucket_ms: int) -> Any:
    """Return the start (ms) of the bucket in which a sample's time lies; a sample speaks for the time before it."""
    milliseconds = milliseconds_of(time) - 1
    return milliseconds - milliseconds % bucket_ms


def milliseconds_of(time: Any) -> Any:
    """Return an Ibis timestamp column as integer milliseconds since 1970, by the engine's own function."""
    import ibis

    @ibis.udf.scalar.builtin(
        name="unix_millis" if time.get_backend().name == "pyspark" else "epoch_ms",
        signature=((ibis.dtype("timestamp('UTC')"),), ibis.dtype("int64")),
    )
    def epoch_milliseconds(when):  # type: ignore[no-untyped-def]
        ...

    return epoch_milliseconds(time)


_FIRST = ("cluster", "host", "user", "namespace", "index")


def _who(samples: Any) -> dict[str, Any]:
    return {name: samples[name].arbitrary() for name in _FIRST} | {"model": samples.model.max(), "other_model": samples.model.min()}


def _when(condition: Any, value: Any) -> Any:
    # a CASE, not a FILTER: three times as fast in DuckDB
    return condition.ifelse(value, 0)


def _seconds(samples: Any) -> dict[str, Any]:
    import ibis

    span = samples.span_ms
    dark = ibis.and_(*(samples[name].isnull() for name in ACTIVITY))
    idle = ibis.and_(*(samples[name].fill_null(0) < IDLE for name in ACTIVITY)) & ~dark
    gauges = [samples[name] for name in ACTIVITY[:3]]
    zero = ibis.and_(*(gauge.fill_null(0) == 0 for gauge in gauges)) & ibis.or_(*(gauge.notnull() for gauge in gauges))
    return {
        "rows": samples.count(),
        "span_ms": span.sum(),
        "idle_ms": _when(idle, span).sum(),
        "dark_ms": _when(dark, span).sum(),
        "stuck_ms": _when(zero & (samples.gpu_util.fill_null(0) >= WORKS), span).sum(),
        "start_ms": (milliseconds_of(samples.time) - span).min(),
        "last_ms": milliseconds_of(samples.time.max()),
    }


def _shared(fine: Any) -> dict[str, Any]:
    several = fine.sharers > 1
    return {"shared_ms": _when(several, fine.span_ms).sum(), "shared_idle_ms": _when(several, fine.idle_ms).sum()}


def _integrals(samples: Any) -> dict[str, Any]:
    span = samples.span_ms
    sums = {}
    for name in MEANS:
        sums[f"{name}_ms"] = _when(samples[name].notnull(), span).sum()
        sums[f"{name}_sum"] = (span.cast("float64") * samples[name]).sum()
    # OFU is linear in 1 / tensor clock, which only `gpus` knows: here it is taken for a tensor clock of 1 Hz
    product = sampled_ofu(samples.tensor_active, samples.sm_clock, 1.0)
    sums["ofu_ms"] = _when(samples.tensor_active.notnull() & samples.sm_clock.notnull(), span).sum()
    sums["ofu_sum"] = (span.cast("float64") * product).sum()
    # tensor activity over the very samples that OFU has, so that the clock factor compares like with like
    sums["ofu_tensor_sum"] = _when(samples.sm_clock.notnull(), span.cast("float64") * samples.tensor_active).sum()
    return sums


def _cycles(samples: Any) -> dict[str, Any]:
    counted = samples.tensor_cycles_delta.notnull()
    return {
        "cycles_ms": _when(counted, samples.span_ms).sum(),
        "tensor_cycles": samples.tensor_cycles_delta.cast("float64").sum(),
        "sm_cycles": _when(counted, samples.sm_cycles_delta.cast("float64")).sum(),
    }
