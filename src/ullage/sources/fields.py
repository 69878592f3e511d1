"""What exporters call things: every known name of a field, and the cleaning of its values.

The unit is settled by the name first, then by magnitude, and only where no other reading is possible: a "MHz" above
100,000 is Hz, a "ratio" series that lies beyond 2 is percent. What magnitude settled is flagged, and trust says so.
The names themselves are in `ullage.sources.names`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ullage.field import FIELDS, Flag
from ullage.problems import Problems
from ullage.sources.names import Alias, known, possible
from ullage.units import TO_SI

__all__ = ["Alias", "clean", "is_sentinel", "known", "possible", "settled"]

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Flags = npt.NDArray[np.uint16]
Codes = npt.NDArray[np.integer]


# What OFU and the tree rest on: only these fields decide whether a series can be trusted. A memory size that nobody
# supports is counted as dropped, and says nothing about the activity gauges.
JUDGED = frozenset({"tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock", "tensor_cycles", "sm_cycles"})


def clean(alias: Alias, values: Floats, problems: Problems, where: str = "", series: Codes | None = None) -> tuple[Floats, Flags]:
    """Return values in the field's SI unit with missing as NaN, and a flag per value (see `tables.Flag`).

    Sentinels in any of their forms, NaN and infinities become missing; a unit that the magnitude contradicts is settled
    by magnitude; what then lies outside the field's range is impossible and becomes missing. Each is counted; only the
    fields in `JUDGED` are flagged.
    `values` is one column of one source, any length; it is not changed. `series` says which series each value is of
    (integer codes from 0), so that hosts with a new and with an old exporter may share a column; None: all are one.
    `where` names the place for the count.
    """
    field, place = FIELDS[alias.field], f"{where} {alias.name}".strip()
    sentinel = is_sentinel(values, alias)
    values = np.where(sentinel, np.nan, values)
    unreal = np.isinf(values)
    if unreal.any():
        values[unreal] = np.nan
        problems.drop("infinite readings", int(np.count_nonzero(unreal)), place)
    values, guessed = settled(alias, values, series)
    impossible = (values < field.lowest) | (values > field.highest)
    flags = np.zeros(len(values), np.uint16)
    for mask, flag in ((sentinel, Flag.SENTINEL), (guessed, Flag.UNIT_GUESSED), (impossible, Flag.IMPOSSIBLE)):
        if alias.field in JUDGED and mask.any():
            flags[mask] |= np.uint16(flag)
    if impossible.any():
        values[impossible] = np.nan
    problems.drop("'no value' numbers of the exporter (sentinels)", int(np.count_nonzero(sentinel)), place)
    problems.mend(
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


def settled(alias: Alias, values: Floats, series: Codes | None = None) -> tuple[Floats, Masks]:
    """Return values in the field's SI unit, and where magnitude had to overrule the unit that the name promises.

    >>> values, guessed = settled(Alias("x", "sm_clock", "MHz"), np.array([1.352e9, 1352]))
    >>> values.tolist(), guessed.tolist()
    ([1352000000.0, 1352000000.0], [True, False])
    """
    other, factor = _contradicted(alias, values, series)
    promised = TO_SI[alias.unit]
    with np.errstate(over="ignore"):  # what is too large for a number is too large for the field
        if not other.any():
            return (values if promised == 1.0 else values * promised), other
        return values * np.where(other, factor, promised), other


def _contradicted(alias: Alias, values: Floats, series: Codes | None) -> tuple[Masks, float]:
    """Return where the promised unit cannot be true, and the factor of the unit that is."""
    promised, unit = TO_SI[alias.unit], FIELDS[alias.field].unit
    if unit == "Hz":  # no clock is below 0.1 MHz, none above 100 GHz: each number says for itself
        return (values > 1e5, 1.0) if promised > 1 else ((values > 0) & (values <= 1e5), 1e6)
    if unit == "1" and promised == 1.0:
        return _percent(values, series), TO_SI["%"]
    if alias.field == "power" and alias.unit == "W":  # no board draws 5 kW, none less than 5 W in mW
        return values > 5e3, TO_SI["mW"]
    if alias.field == "memory_used" and alias.unit == "MiB":  # no GPU has 1 TiB
        return _anywhere(values > 2**20, series), 1.0
    return np.zeros(len(values), np.bool_), promised


def _percent(values: Floats, series: Codes | None) -> Masks:
    """Return where a "ratio" belongs to a series that is really in percent.

    A series with a number in (2, 110], and more than 5 % of its positive numbers beyond 1.1, is percent. One whose
    numbers end between 1.1 and 2 may be percent at idle, or a ratio that the vendor's counters overshot (A100 MIG,
    DCGM issue 152): it follows the other series of the column, and without any it stays what its name says.
    """
    if not (values > 1.1).any():
        return np.zeros(len(values), np.bool_)
    codes = np.zeros(len(values), np.intp) if series is None else series
    length = int(codes.max()) + 1
    over = np.bincount(codes, values > 1.1, length) > 0.05 * np.bincount(codes, values > 0, length)
    plain = np.bincount(codes, (values > 2) & (values <= 110), length) > 0
    beyond = np.bincount(codes, values > 110, length) > np.bincount(codes, (values > 2) & (values <= 110), length)
    percent = over & plain & ~beyond
    small = over & ~plain & ~beyond
    if percent.any() and small.any():
        decided = np.bincount(codes, values > 0, length) > 0
        if percent.sum() >= (decided & ~percent & ~small).sum():
            percent |= small
    answer: Masks = percent[codes]
    return answer


def _anywhere(true: Masks, series: Codes | None) -> Masks:
    """Return, for every value, whether anything of its series is true."""
    if not true.any() or series is None:
        return np.full(len(true), bool(true.any()))
    hit: Masks = np.bincount(series, true) > 0
    return hit[series]
