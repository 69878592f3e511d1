"""Sums that show whether the gauges of one device agree with each other: what no single gauge can say of itself.

One pass over settled samples gives a row per (gpu, mig, level): `level` is tensor activity in tenths, rounded down; null where unknown.
"""

from __future__ import annotations

from typing import Any

from ullage.sums.devices import WORKS
from ullage.sums.held import empty
from ullage.tables import Flag

CLOCK_FLOOR = 100e6  # Hz: no GPU of the table computes at a lower clock; kHz or GHz read as MHz, and 0, lie far below
LOW_CLOCK = 600e6  # Hz: what is looked at beside power; a GPU that computes hard does not draw half its power down here
TOLERANCE = 0.05  # whole percents differ by 0.01, and some GPUs measure their profiling fields in turn
BUSY = 0.5
AWAKE = 0.01
HARD = 0.3  # tensor activity at which no GPU is near its idle power

# What can be seen in one sample, a bit each.
STUCK, FROZEN, GAUGE_FROZEN, NO_CLOCK, DISORDER = (1 << bit for bit in range(5))
KINDS = {"stuck": STUCK, "frozen": FROZEN, "gauge_frozen": GAUGE_FROZEN, "no_clock": NO_CLOCK, "disorder": DISORDER}

_READ = ("tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "power", "energy_delta")


def with_findings(samples: Any) -> Any:
    """Return the columns that matter, and `bits`: which of `KINDS` each sample shows."""
    import ibis

    null = ibis.null("float64")
    read = {name: null if empty(samples, name) else samples[name].cast("float64") for name in _READ}
    table = samples.select("gpu", "mig", "time", "span_ms", "flags", **read)
    tensor, sm, gr, util = (table[name] for name in _READ[:4])
    engine = ibis.greatest(*(gauge.fill_null(0) for gauge in (gr, sm, tensor)))
    told = ibis.coalesce(gr, sm, tensor).notnull()
    flags = table.flags.cast("int32")
    disorder = [lower > upper + TOLERANCE for lower, upper in ((tensor, sm), (sm, gr), (tensor, gr))]
    shown = {
        STUCK: told & (engine == 0) & (util >= WORKS),
        FROZEN: ((flags & int(Flag.FROZEN)) > 0) & ((engine >= AWAKE) | (util >= WORKS)),
        GAUGE_FROZEN: ((flags & int(Flag.GAUGE_FROZEN)) > 0) & ((flags & int(Flag.FROZEN)) == 0),
        NO_CLOCK: (table.sm_clock < CLOCK_FLOOR) & (engine >= BUSY),
        DISORDER: ibis.or_(*(condition.fill_null(False) for condition in disorder)),
    }
    bits = [condition.fill_null(False).ifelse(bit, 0) for bit, condition in shown.items()]
    total = bits[0]
    for bit in bits[1:]:
        total = total + bit
    return table.mutate(bits=total.cast("int32"), engine=engine, told=told)


def gauge_sums(samples: Any) -> Any:
    """Return an Ibis table with a row per (gpu, mig, level) and these sums, times in ms:

    - `<kind>_ms` for each of `KINDS`
    - `util_ms`, `util_rows`, `util_gap_sum`: where engine activity and "GPU utilization" are known, and by how much the first is larger
    - `hard_ms`, `hard_power_sum`: tensor activity of `HARD` or more, and power; `zero_ms`, `zero_power_sum`: activity exactly 0, and power
    - `low_ms`, `low_clock_sum`, `low_power_sum`: a busy GPU at a clock below `LOW_CLOCK` (but one that a GPU can have), and power
    - `energy_ms`, `energy_rows`, `energy_sum` (W x ms), `energy_power_sum`, `energy_power_squares`: the energy counter beside sampled power
    - `clock_ms`, `clock_tensor_sum`, `lowest_clock`, `highest_clock`: where tensor activity and a clock that a GPU can have are known
    """
    table = with_findings(samples)
    span, power, clock = table.span_ms.cast("float64"), table.power, table.sm_clock
    util = table.told & table.gpu_util.notnull()
    hard = (table.tensor_active >= HARD) & power.notnull()
    zero = table.told & (table.engine == 0) & power.notnull()
    low = (clock >= CLOCK_FLOOR) & (clock < LOW_CLOCK) & (table.engine >= BUSY) & power.notnull()
    energy = table.energy_delta.notnull() & power.notnull() & (table.span_ms > 0)
    rated = table.tensor_active.notnull() & (clock >= CLOCK_FLOOR)

    def over(condition: Any, value: Any) -> Any:
        return condition.fill_null(False).ifelse(value, 0).sum()

    grouped = table.group_by("gpu", "mig", level=(table.tensor_active * 10).floor().cast("int32"))
    return grouped.aggregate(
        **{f"{name}_ms": over((table.bits & bit) > 0, table.span_ms) for name, bit in KINDS.items()},
        util_ms=over(util, table.span_ms),
        util_rows=over(util, 1),
        util_gap_sum=over(util, span * (table.engine - table.gpu_util)),
        hard_ms=over(hard, table.span_ms),
        hard_power_sum=over(hard, span * power),
        zero_ms=over(zero, table.span_ms),
        zero_power_sum=over(zero, span * power),
        low_ms=over(low, table.span_ms),
        low_clock_sum=over(low, span * clock),
        low_power_sum=over(low, span * power),
        energy_ms=over(energy, table.span_ms),
        energy_rows=over(energy, 1),
        energy_sum=over(energy, 1000 * table.energy_delta),
        energy_power_sum=over(energy, span * power),
        energy_power_squares=over(energy, span * power * power),
        clock_ms=over(rated, table.span_ms),
        clock_tensor_sum=over(rated, span * table.tensor_active),
        lowest_clock=rated.fill_null(False).ifelse(clock, None).min(),
        highest_clock=rated.fill_null(False).ifelse(clock, None).max(),
    )
