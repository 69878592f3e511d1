"""Sums that show whether the gauges of one device agree with each other: what no single gauge can say of itself.

One pass over settled samples gives a row per (gpu, mig, level): `level` is tensor activity in tenths, rounded down; null where unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ullage.sums.devices import (
    ROOF_FIELDS,
    STATE,
    STEPS,
    WORKS,
    Sums,
    cycles_counted,
    fine_keys,
    grouped,
    milliseconds_of,
    rounded_down,
    states_in_steps,
    sums_of_states,
    with_owners,
    with_states,
)
from ullage.sums.exact import (
    ACTIVITY_STEP,
    CLOCK_STEP,
    POWER_SQUARE_STEP,
    POWER_STEP,
    WHOLE,
    Steps,
    added,
    added_up,
    from_steps,
    in_units,
    with_steps,
)
from ullage.sums.held import empty, full, known
from ullage.tables import Flag
from ullage.units import HOUR_MS

CLOCK_FLOOR = 100e6  # Hz: no GPU of the table computes at a lower clock; kHz or GHz read as MHz, and 0, lie far below
LOW_CLOCK = 600e6  # Hz: what is looked at beside power; a GPU that computes hard does not draw half its power down here
TOLERANCE = 0.05  # whole percents differ by 0.01, and some GPUs measure their profiling fields in turn
BUSY = 0.5
AWAKE = 0.01
HARD = 0.3  # tensor activity at which no GPU is near its idle power

# What can be seen in one sample, a bit each.
STUCK, FROZEN, GAUGE_FROZEN, NO_CLOCK, DISORDER, IMPOSSIBLE = (1 << bit for bit in range(6))
KINDS = {
    "stuck": STUCK,
    "frozen": FROZEN,
    "gauge_frozen": GAUGE_FROZEN,
    "no_clock": NO_CLOCK,
    "disorder": DISORDER,
    "impossible": IMPOSSIBLE,
}

# Under which conditions sums are taken, a bit each.
_UTIL, _HARD, _ZERO, _LOW, _ENERGY, _RATED = (1 << bit for bit in range(6))
_CONDITION, _LEVEL = 1 << len(KINDS), 1 << len(KINDS) + 6

_CYCLES = ("tensor_cycles_delta", "sm_cycles_delta")
_READ = ("tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "power", "energy_delta")


def with_findings(samples: Any, others: Sequence[str] = ()) -> Any:
    """Return the columns that matter, and `others`, with `bits`: which of `KINDS` each sample shows."""
    import ibis
    import ibis.expr.datatypes as types

    null = ibis.null("float64")
    kind = {name: types.Float64(nullable=not full(samples, name)) for name in _READ}
    read = {name: null if empty(samples, name) else samples[name].cast(kind[name]) for name in _READ}
    counts = cycles_counted(samples)
    whether = {} if counts is False else {"counted": ibis.literal(value=True) if counts is True else counts}
    plain = [name for name in dict.fromkeys(("gpu", "mig", "time", "span_ms", "flags", *others)) if name in samples.columns]
    table = samples.select(*plain, **read, **whether)
    gauges = [name for name in ("gr_active", "sm_active", "tensor_active") if not empty(table, name)]
    levels = [table[name] if full(table, name) else table[name].fill_null(0) for name in gauges]
    engine = ibis.greatest(*levels) if levels else ibis.literal(0.0)
    told = _told(table)
    table = table.mutate(engine=engine)
    flags, works = table.flags.cast("int32"), _compared(table.gpu_util >= WORKS, table, "gpu_util")
    pairs = (("tensor_active", "sm_active"), ("sm_active", "gr_active"), ("tensor_active", "gr_active"))
    shown = {
        STUCK: _all(told, table.engine == 0, works),
        FROZEN: _all((flags & int(Flag.FROZEN)) > 0, _any(table.engine >= AWAKE, works)),
        GAUGE_FROZEN: (flags & int(Flag.GAUGE_FROZEN | Flag.FROZEN)) == int(Flag.GAUGE_FROZEN),
        NO_CLOCK: _all(_compared(table.sm_clock < CLOCK_FLOOR, table, "sm_clock"), table.engine >= BUSY),
        IMPOSSIBLE: (flags & int(Flag.IMPOSSIBLE)) > 0,
        DISORDER: _any(*(_compared(table[inner] > table[outer] + TOLERANCE, table, inner, outer) for inner, outer in pairs)),
    }
    return table.mutate(bits=_bits(shown))


def _told(table: Any) -> Any:
    """Return where any gauge of activity is known."""
    return _any(*(known(table, name) for name in ("gr_active", "sm_active", "tensor_active")))


def _compared(condition: Any, table: Any, *names: str) -> Any:
    """Return where a comparison of these columns holds: nowhere where one of them is not known."""
    if any(empty(table, name) for name in names):
        return False
    return condition if all(full(table, name) for name in names) else condition.fill_null(False)


def _all(*conditions: Any) -> Any:
    import ibis

    if any(condition is False for condition in conditions):
        return False
    asked = [condition for condition in conditions if condition is not True]
    return ibis.and_(*asked) if asked else True


def _any(*conditions: Any) -> Any:
    import ibis

    if any(condition is True for condition in conditions):
        return True
    asked = [condition for condition in conditions if condition is not False]
    return ibis.or_(*asked) if asked else False


def _bits(shown: Mapping[int, Any]) -> Any:
    """Return a number per sample with the bits whose conditions hold, as a float: DuckDB checks products of integers for overflow."""
    import ibis

    always = sum(bit for bit, condition in shown.items() if condition is True)
    asked = [condition.cast("float64") * float(bit) for bit, condition in shown.items() if not isinstance(condition, bool)]
    if not asked:
        return ibis.literal(float(always))
    return sum(asked[1:], asked[0]) + float(always) if always else sum(asked[1:], asked[0])


def gauge_sums(samples: Any) -> Any:
    """Return an Ibis table with a row per (gpu, mig, level) and these sums, times in ms:

    - `<kind>_ms` for each of `KINDS`
    - `util_ms`, `util_rows`, `util_gap_sum`: where engine activity and "GPU utilization" are known, and by how much the first is larger
    - `hard_ms`, `hard_power_sum`: tensor activity of `HARD` or more, and power; `zero_ms`, `zero_power_sum`: activity exactly 0, and power
    - `low_ms`, `low_clock_sum`, `low_power_sum`: a busy GPU at a clock below `LOW_CLOCK` (but one that a GPU can have), and power
    - `energy_ms`, `energy_rows`, `energy_sum` (W x ms), `energy_power_sum`, `energy_power_squares`: the energy counter beside sampled power
    - `clock_ms`, `clock_tensor_sum`, `lowest_clock`, `highest_clock`: where tensor activity and a clock that a GPU can have are known
      and no cycles were counted
    """
    table = _with_codes(with_findings(samples))
    return _unfolded(grouped(table, ["gpu", "mig", "_code"], *_sums_of_gauges(table)))


def device_and_gauge_sums(samples: Any) -> tuple[pa.Table, pa.Table]:
    """Return what `device_sums` and `gauge_sums` give, from one pass over the samples."""
    return in_units_of_devices(*device_and_gauge_steps(samples))


def device_and_gauge_steps(samples: Any) -> tuple[pa.Table, pa.Table]:
    """Return what `device_and_gauge_sums` gives in whole steps, which add up exactly over parts of the samples (see `merged_steps`)."""
    import ibis

    samples, keys = with_states(samples)
    table = _with_codes(with_findings(samples, [*keys, "_several", "_quiet", "_limit", "model", "index", *_CYCLES, *ROOF_FIELDS]))
    sums, others = sums_of_states(table)
    more, ends = _sums_of_gauges(table)
    held_sums = {name: value for name, value in sums.items() if value is not None}
    fine = with_owners(grouped(table, [*fine_keys(keys), "_code"], more | held_sums, others | ends))
    fine = fine.mutate(**{name: fine[name].cast(WHOLE) for name, value in (sums | more).items() if isinstance(value, Steps)})
    engine, held = samples.get_backend(), ibis.memtable(fine.to_pyarrow())
    gauges, steps = _gauges_in_steps(held)
    states = engine.to_pyarrow(states_in_steps(held, keys, sums))
    of_gauges = {name: value.step for name, value in steps.items()}
    return with_steps(_plain(states, _STATES_HOW, keys), STEPS), with_steps(
        _plain(engine.to_pyarrow(gauges), _GAUGES_HOW, _LEVELS), of_gauges
    )


def merged_steps(states: Sequence[pa.Table], gauges: Sequence[pa.Table]) -> tuple[pa.Table, pa.Table]:
    """Return what `device_and_gauge_steps` gives of all samples from what it gave of parts of them."""
    return added_up(pa.concat_tables(states), STATE, _STATES_HOW), added_up(pa.concat_tables(gauges), _LEVELS, _GAUGES_HOW)


def in_units_of_devices(states: pa.Table, gauges: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the sums of `device_and_gauge_steps` in their units and in the order of their keys."""
    return tuple(in_units(table).sort_by([(name, "ascending") for name in keys]) for table, keys in ((states, STATE), (gauges, _LEVELS)))


_LEVELS = ("gpu", "mig", "level")
# what of a table of steps is no sum
_STATES_HOW = {"other_model": "min", "model": "max", "index": "max", "start_ms": "min", "last_ms": "max"}
_GAUGES_HOW = {"lowest_clock": "min", "highest_clock": "max"}


_KINDS = {
    "share": pa.float64(),
    "owner": pa.int8(),
    "measured": pa.int8(),
    "summed": pa.bool_(),
    "index": pa.int32(),
    "start_ms": pa.int64(),
    "last_ms": pa.int64(),
    "level": pa.int32(),
    "lowest_clock": pa.float64(),
    "highest_clock": pa.float64(),
}


def _plain(table: pa.Table, how: Mapping[str, str], keys: Sequence[str]) -> pa.Table:
    """Return a table of steps in the types that all tables of steps have: sums wide enough for any, names as strings."""
    told = {name: _KINDS.get(name, pa.string()) for name in (*how, *keys)}
    return table.cast(pa.schema([pa.field(name, told.get(name, pa.decimal128(38, 0))) for name in table.column_names]))


def _unfolded(fine: Any) -> Any:
    """Return the sums of `gauge_sums` from those of samples that are alike in their code, and perhaps in more."""
    found, steps = _gauges_in_steps(fine)
    return from_steps(found, steps).order_by(*_LEVELS)


def _gauges_in_steps(fine: Any) -> tuple[Any, dict[str, Steps]]:
    code = fine._code.cast("int64")
    fine = fine.mutate(
        level=((code // _LEVEL).cast("int32") - 1).nullif(-1), conditions=code % _LEVEL // _CONDITION, bits=code % _CONDITION
    )
    powered = {name: _where(fine, bit, "power_sum") for name, bit in (("hard", _HARD), ("zero", _ZERO), ("low", _LOW), ("energy", _ENERGY))}
    steps = {
        "util_gap_sum": Steps(_where(fine, _UTIL, "gap_sum"), ACTIVITY_STEP),
        **{f"{name}_power_sum": Steps(value, POWER_STEP) for name, value in powered.items()},
        "low_clock_sum": Steps(_where(fine, _LOW, "clock_sum"), CLOCK_STEP),
        "energy_sum": Steps(_where(fine, _ENERGY, "energy_sum"), POWER_STEP),
        "energy_power_squares": Steps(_where(fine, _ENERGY, "squares"), POWER_SQUARE_STEP),
        "clock_tensor_sum": Steps(_where(fine, _RATED, "tensor_sum"), ACTIVITY_STEP),
    }
    classes = (("util", _UTIL), ("hard", _HARD), ("zero", _ZERO), ("low", _LOW), ("energy", _ENERGY), ("clock", _RATED))
    rated = (fine.conditions & _RATED) > 0
    found = fine.group_by("gpu", "mig", "level").aggregate(
        **{f"{name}_ms": ((fine.bits & bit) > 0).ifelse(fine.span_ms, 0).sum() for name, bit in KINDS.items()},
        **{f"{name}_ms": _where(fine, bit, "span_ms").sum() for name, bit in classes},
        **{f"{name}_rows": _where(fine, bit, "rows").sum() for name, bit in (("util", _UTIL), ("energy", _ENERGY))},
        **{name: value.value.sum() for name, value in steps.items()},
        lowest_clock=rated.ifelse(fine.lowest, None).min(),
        highest_clock=rated.ifelse(fine.highest, None).max(),
    )
    return found, steps


def util_sums(samples: Any) -> Any:
    """Return an Ibis table with a row per (gpu, mig, hour) and the sums `util_ms`, `util_rows` and `util_gap_sum` of `gauge_sums`."""
    table = with_findings(samples)
    told = _all(_told(table), known(table, "gpu_util"))
    table = table if told is True else table.filter(told)
    gap = Steps(table.span_ms.cast("float64") * (table.engine - table.gpu_util), ACTIVITY_STEP)
    found = table.group_by("gpu", "mig", hour=(milliseconds_of(table.time) - 1) // HOUR_MS).aggregate(
        util_ms=table.span_ms.sum(), util_rows=table.count(), util_gap_sum=added(gap, samples.get_backend().name)
    )
    return from_steps(found, {"util_gap_sum": gap}).order_by("gpu", "mig", "hour")


def _where(fine: Any, bit: int, name: str) -> Any:
    return ((fine.conditions & bit) > 0).ifelse(fine[name], 0)


def _with_codes(table: Any) -> Any:
    """Return samples with one number to group by: the level (0: unknown), under which conditions sums are taken, the findings."""
    import ibis

    told, powered = _told(table), known(table, "power")
    possible = _compared(table.sm_clock >= CLOCK_FLOOR, table, "sm_clock")
    conditions = {
        _UTIL: _all(told, known(table, "gpu_util")),
        _HARD: _all(_compared(table.tensor_active >= HARD, table, "tensor_active"), powered),
        _ZERO: _all(told, table.engine == 0, powered),
        _LOW: _all(possible, _compared(table.sm_clock < LOW_CLOCK, table, "sm_clock"), table.engine >= BUSY, powered),
        _ENERGY: _all(known(table, "energy_delta"), powered, table.span_ms > 0),
        _RATED: _all(known(table, "tensor_active"), possible, ~table.counted if "counted" in table.columns else True),
    }
    level = ibis.literal(0.0) if empty(table, "tensor_active") else rounded_down(table.tensor_active * 10).fill_null(-1) + 1
    return table.mutate(_code=level * float(_LEVEL) + _bits(conditions) * float(_CONDITION) + table.bits)


def _sums_of_gauges(table: Any) -> tuple[Sums, dict[str, Any]]:
    """Return what is added up over samples that are alike in their code, and what else is told of them."""
    span, power = table.span_ms.cast("float64"), table.power
    sums = {
        "power_sum": (Steps(span * power, POWER_STEP), ("power",)),
        "squares": (Steps(span * power * power, POWER_SQUARE_STEP), ("power", "energy_delta")),
        "energy_sum": (Steps(1000 * table.energy_delta, POWER_STEP), ("energy_delta",)),
        "clock_sum": (Steps(span * table.sm_clock, CLOCK_STEP), ("sm_clock",)),
        "tensor_sum": (Steps(span * table.tensor_active, ACTIVITY_STEP), ("tensor_active",)),
        "gap_sum": (Steps(span * (table.engine - table.gpu_util), ACTIVITY_STEP), ("gpu_util",)),
    }
    held = {name: None if any(empty(table, field) for field in needed) else value for name, (value, needed) in sums.items()}
    others = {"rows": table.count(), "lowest": table.sm_clock.min(), "highest": table.sm_clock.max()}
    return {"span_ms": table.span_ms, **held}, others
