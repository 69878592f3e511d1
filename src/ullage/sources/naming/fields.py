"""What exporters call things: every known name of a field, and the cleaning of its values.

The unit is settled by the name, and each number for itself: a reading that fits its name's unit is never converted. One
that does not is converted by magnitude where only one other unit is possible: a "MHz" of 1.98e9 is Hz, 1.98 is GHz. What
magnitude settled is flagged, and trust says so. Of a "ratio" no single number can say whether it is percent: it passes as
it is, flagged, and is settled by exporter when samples are stored (`ullage.sums.ratio_units`).
The names themselves are in `ullage.sources.naming.names`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.field import FIELDS, Flag
from ullage.problems import Problems
from ullage.sources.naming.names import Alias, known, known_with_label, possible
from ullage.units import TO_SI

__all__ = ["Alias", "clean", "is_sentinel", "known", "known_with_label", "possible", "settled"]

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Flags = npt.NDArray[np.uint16]

# What OFU and the tree rest on: only these fields decide whether a series can be trusted. A memory size that nobody
# supports is counted as dropped, and says nothing about the activity gauges.
JUDGED = frozenset({"tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "tensor_cycles", "sm_cycles"})


def clean(alias: Alias, values: Floats, problems: Problems, where: str = "") -> tuple[Floats, Flags]:
    """Return values in the field's SI unit with missing as NaN, and a flag per value (see `tables.Flag`).

    Sentinels in any of their forms, NaN and infinities become missing; a unit that the magnitude contradicts is settled
    by magnitude; what then lies outside the field's range is impossible and becomes missing. Each is counted; only the
    fields in `JUDGED` are flagged. What has the name of a ratio passes up to 110, under `Flag.NAMED_RATIO` (or
    `UTILIZATION_NAMED_RATIO`), until its exporter's unit is known.
    `values` is one column of one source, any length; it is not changed. `where` names the place for the count.
    """
    field, place = FIELDS[alias.field], f"{where} {alias.name}".strip()
    sentinel = is_sentinel(values, alias)
    values = np.where(sentinel, np.nan, values)
    unreal = np.isinf(values)
    if unreal.any():
        values[unreal] = np.nan
        problems.drop("infinite readings", int(np.count_nonzero(unreal)), place)
    values, guessed = settled(alias, values)
    named_ratio = alias.unit == "1" and field.kind == "ratio"
    impossible = (values < field.lowest) | (values > field.highest * (100 if named_ratio else 1))
    flags = np.zeros(len(values), np.uint16)
    if named_ratio:
        flags[~np.isnan(values) & ~impossible] = np.uint16(Flag.UTILIZATION_NAMED_RATIO if alias.field == "gpu_util" else Flag.NAMED_RATIO)
    for mask, flag in ((sentinel, Flag.SENTINEL), (guessed, Flag.UNIT_GUESSED), (impossible, Flag.IMPOSSIBLE)):
        if alias.field in JUDGED and mask.any():
            flags[mask] |= np.uint16(flag)
    if impossible.any():
        values[impossible] = np.nan
    problems.drop("'no value' numbers of the exporter (sentinels)", int(np.count_nonzero(sentinel)), place)
    problems.repair(
        f"values of {alias.name} are not in {alias.unit} as the name says; unit settled by magnitude", int(np.count_nonzero(guessed)), where
    )
    problems.drop(f"impossible values of {alias.field}", int(np.count_nonzero(impossible)), place)
    return values, flags


# dcgm_structs.h: blank, not found, not supported, no permission. The int64 forms all become 2^63 once text is read as
# float64. A blank double already scaled to percent was seen in guilbaults/slurm-job-exporter PR 53, the 32-bit -1 in
# NVIDIA/DCGM issue 199; AMD's tools write an all-ones number of the reading's own width.
_WIDE = np.array([2.0**63, 2.0**64, *(2.0**47 + i for i in range(4))])
_SCALED = np.array([100 * (2.0**47 + i) for i in range(4)])
_INT32 = (2147483632.0, 2147483635.0)
_ONES = {16: 65535.0, 32: 4294967295.0}
# Counters and byte counts come from 64-bit fields and pass through the narrow numbers in earnest.
_WIDE_UNITS = frozenset({"B", "B/s", "KiB", "J", "mJ", "uJ", "cycles"})


def is_sentinel(values: Floats, alias: Alias | None = None) -> Masks:
    """Return where a number means "no value" in any of DCGM's forms that the alias's kind of number can take.

    >>> is_sentinel(np.array([0.5, 9223372036854775794, 140737488355328, 2147483632])).tolist()
    [False, True, True, True]
    >>> is_sentinel(np.array([2147483632, 9223372036854775794.0]), known("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")).tolist()
    [False, True]
    """
    unit = alias.unit if alias else ""
    highest = float(np.fmax.reduce(values, initial=0.0))
    found = np.zeros(len(values), np.bool_)
    if unit not in _WIDE_UNITS and highest >= _ONES[16]:
        found |= (values >= _INT32[0]) & (values <= _INT32[1])
        found |= values == _ONES[32]
        if unit != "MiB":  # 65,535 MiB in use is possible
            found |= values == _ONES[16]
    if highest >= _WIDE.min():
        large = np.flatnonzero(values >= _WIDE.min())
        found[large] |= np.isin(values[large], _WIDE)
        if unit not in _WIDE_UNITS:
            found[large] |= np.isin(values[large], _SCALED)
    return found


def settled(alias: Alias, values: Floats) -> tuple[Floats, Masks]:
    """Return values in the field's SI unit, and where magnitude had to overrule the unit that the name promises.

    >>> values, guessed = settled(Alias("x", "sm_clock", "MHz"), np.array([1.352e9, 1352]))
    >>> values.tolist(), guessed.tolist()
    ([1352000000.0, 1352000000.0], [True, False])
    """
    promised = TO_SI[alias.unit]
    with np.errstate(over="ignore"):  # what is too large for a number is too large for the field
        named = values if promised == 1.0 else values * promised
        if alias.field in CLOCKS:
            return _clock(named, values, *CLOCKS[alias.field])
        if alias.field == "power" and alias.unit == "W":  # no board draws 5 kW, none less than 5 W in mW
            other, factor = values > 5e3, TO_SI["mW"]
        elif alias.field == "memory_used" and alias.unit == "MiB":  # no GPU has 1 TiB
            other, factor = values > 2**20, 1.0
        else:
            other, factor = np.zeros(len(values), np.bool_), promised
        return np.where(other, values * factor, named), other


# Clocks in Hz: from when on a reading fits its name, and between which a number in another unit is taken for a clock. The
# latter reach from idle (135 MHz of NVIDIA's, about the same of AMD's) to beyond the fastest, less than a factor of 1000,
# so that a number can be a clock in one of Hz, kHz, MHz and GHz only. Below the first some chips doze.
CLOCKS = {"sm_clock": (1e7, 1e8, 5e9), "memory_clock": (5e7, 9e7, 2e10)}
NO_CLOCK = 1e6  # Hz; no chip dozes as slowly


def _clock(named: Floats, values: Floats, fitting: float, lowest: float, highest: float) -> tuple[Floats, Masks]:
    """Return clocks in Hz: as named where they fit, else in the one unit in which they do; where that was needed.

    What fits no unit stays as named where a dozing chip may tell it, and is impossible (-1) where it can't.
    """
    found, guessed = named.copy(), np.zeros(len(values), np.bool_)
    unfit = (values > 0) & ((named < fitting) | (named > highest))
    for factor in (TO_SI[unit] for unit in ("Hz", "kHz", "MHz", "GHz")):
        fits = unfit & (values * factor >= lowest) & (values * factor <= highest)
        found[fits], guessed[fits] = values[fits] * factor, True
    found[unfit & ~guessed & (named < NO_CLOCK)] = -1.0
    return found, guessed
