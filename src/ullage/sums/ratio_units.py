"""Percent under the name of a ratio: in which unit an exporter wrote its activities, settled for spans of time.

`DCGM_FI_PROF_*` and "GPU utilization" of recent names are ratios by definition, and some exporters and recording rules
write percent under them. A reading of 58 says so itself, one of 0.4 does not: it is 0.4 or 0.4 %. So it is the exporter
that is judged, by all that it says at one time (a scrape):

- *percent* where a busy engine, SM or pipe reads above 2, and no engine or SM that must be as busy contradicts it;
- *ratio* where "GPU utilization" is high and the busiest gauge is as high when it is read as a ratio;
- *percent* too where the gauges, read as ratios, are ten times "GPU utilization" for long (an idle host).

What a scrape says holds until another says otherwise, and the first that says anything also holds for the time before.
What is known of exporters (`Habit`) is handed in and given back, so that pieces read one after another come out like the
whole. Until anything is known, readings stay as their names say. `Flag.NAMED_RATIO` says which rows this is about, and
`Flag.PERCENT` which were divided, so that rows at rest can be put right when more is known (`restated`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.sums.ordering import Ints, Mask, column_of, empty, has_value, milliseconds, numbers
from ullage.tables import RATIOS, SAMPLES, Flag

Floats = npt.NDArray[np.floating]
Exporter = tuple[str, str | None, str | None]  # what is told (see `KINDS`), the cluster, the host (a device where no host is known)

OPEN, RATIO, PERCENT = 0, 1, 2
EARLIEST = -(2**60)  # ms; before all times
HIGHEST_RATIO = 1.1  # as `tables.FIELDS` has it
CERTAINLY_PERCENT = 2.0  # counters overshoot up to here (A100 MIG: NVIDIA/DCGM issue 152)
# A steady load: both gauges see it alike, though "GPU utilization" looks at the last second and they at the last 30.
STEADY_UTILIZATION, STEADY_SHARE = 0.3, 0.5
# Of independent samples of a ratio whose sum is 15, "GPU utilization" shows a tenth or less once in a million times.
ENOUGH_READINGS, TOO_LITTLE_UTILIZATION, AWAKE_SCRAPES = 15.0, 0.1, 3

WORKING = 0.005  # tensor activity above which the SMs have a clock; DCGM rounds to 1e-6

_PIPES = ("tensor_active", "hmma_active", "imma_active", "dfma_active", "fp64_active", "fp32_active", "fp16_active")
# What a gauge can't exceed: a pipe works on an SM, an SM in the engine. The memory works for copies too, and proves nothing.
_WITHIN = {"gr_active": (), "sm_active": ("gr_active",), **dict.fromkeys(_PIPES, ("sm_active", "gr_active"))}
_JUDGED = ("tensor_active", "sm_active", "gr_active", "gpu_util")


@dataclass(frozen=True)
class Habit:
    """What is known of the unit in which an exporter writes.

    `changes` are (since ms, RATIO or PERCENT), in order; the first holds for all time before it too. `last` is the time of
    the latest evidence of an exporter that ever wrote percent. While there are no changes: `since` and `until` bound the
    scrapes that said nothing, and over them there are the sums of their busiest gauges and of "GPU utilization", and how
    many of them saw any utilization.
    """

    changes: tuple[tuple[int, int], ...] = ()
    last: int | None = None
    since: int | None = None
    until: int | None = None
    readings: float = 0.0
    utilization: float = 0.0
    awake: int = 0

    def units(self, times: Ints) -> npt.NDArray[np.int8]:
        """Return the unit at each time (ms)."""
        if not self.changes:
            return np.full(len(times), OPEN, np.int8)
        since = np.array([change[0] for change in self.changes], np.int64)
        place = np.searchsorted(since, times, side="right") - 1
        return np.array([change[1] for change in self.changes], np.int8)[np.maximum(place, 0)]


Habits = Mapping[Exporter, Habit]


@dataclass(frozen=True)
class Settled:
    """Rows whose units are settled as far as they can be, and what is known of exporters now.

    `changed` has the exporters of which another unit is known now than before, with the time (ms) from which on; rows at rest
    may need it. `percent` counts readings that were in percent, `impossible` those of each field that became missing.
    """

    rows: pa.Table
    habits: dict[Exporter, Habit]
    changed: dict[Exporter, int] = field(default_factory=dict)
    percent: int = 0
    impossible: dict[str, int] = field(default_factory=dict)


def settle_ratio_units(rows: pa.Table, habits: Habits) -> Settled:
    """Return rows of `SAMPLES` (merged: one a device and time, in any order) with ratios in [0, 1.1], and what is known now.

    Rows without `Flag.NAMED_RATIO` and `Flag.UTILIZATION_NAMED_RATIO`, and rows with `Flag.PERCENT`, are as they were.
    """
    settled = _settled(Settled(rows, dict(habits)), UTILIZATION)  # first: it is what the others are held against
    flags = column_of(settled.rows, "flags").to_numpy()
    if (flags & np.uint16(UTILIZATION.flag)).any():  # it is not put right later: only 0 and 1 could ever be either
        at = settled.rows.schema.get_field_index("flags")
        flags = pa.array(flags & ~np.uint16(UTILIZATION.flag))
        settled = replace(settled, rows=settled.rows.set_column(at, settled.rows.schema.field(at), flags))
    return _settled(settled, ACTIVITY)


def settled_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `SAMPLES` with their units settled as far as they and those before them tell."""
    habits: dict[Exporter, Habit] = {}
    for batch in batches:
        settled = settle_ratio_units(pa.Table.from_batches([batch]), habits)
        habits = settled.habits
        yield from settled.rows.to_batches()


def without_dead_clocks(rows: pa.Table) -> pa.Table:
    """Return rows of `SAMPLES` in which no SM clock is 0 while the tensor pipes work: such a clock is missing, and flagged.

    On an idle device 0 may be true: it sleeps. `rows` are merged, and their ratios settled.
    """
    clock, tensor = column_of(rows, "sm_clock"), column_of(rows, "tensor_active")
    if empty(clock) or empty(tensor):
        return rows
    dead = has_value(clock) & (numbers(clock) == 0) & (np.nan_to_num(_known(tensor)) > WORKING)
    if not dead.any():
        return rows
    columns = {name: column_of(rows, name) for name in rows.column_names}
    columns["sm_clock"] = _replaced(clock, np.flatnonzero(dead), np.full(int(dead.sum()), np.nan), "sm_clock")
    columns["flags"] = pa.array(columns["flags"].to_numpy() | np.where(dead, np.uint16(Flag.IMPOSSIBLE), np.uint16(0)))
    return pa.table(columns, schema=rows.schema)


def restated(rows: pa.Table, habits: Habits) -> pa.Table | None:
    """Return rows at rest in the unit that is known of these exporters by now, None where all are in it already."""
    found = rows
    for flags, wrong, factor in ((Flag.NAMED_RATIO, PERCENT, 0.01), (Flag.NAMED_RATIO | Flag.PERCENT, RATIO, 100.0)):
        named = _Named.of(found, flags, Flag.NAMED_RATIO | Flag.PERCENT, ACTIVITY.name)
        if named is not None:
            at = named.at[_units_by_exporter(named, habits) == wrong]
            found = _scaled(found, at, factor) if len(at) else found
    return None if found is rows else found


def _scaled(rows: pa.Table, at: Ints, factor: float) -> pa.Table:
    """Return rows with the activities of some of them times a factor, and the flags that go with it."""
    columns = {name: column_of(rows, name) for name in rows.column_names}
    for name, values in _values(rows, ACTIVITY.fields, at).items():
        columns[name] = _replaced(columns[name], at, values * factor, name)
    flags = columns["flags"].to_numpy().copy()
    divided = np.uint16(Flag.PERCENT | Flag.UNIT_GUESSED)
    flags[at] = flags[at] | divided if factor < 1 else flags[at] & ~divided
    columns["flags"] = pa.array(flags)
    return pa.table(columns, schema=rows.schema)


# --- what a scrape says ---


@dataclass(frozen=True)
class GaugeKind:
    """Gauges that an exporter writes in one unit: their fields, the flag of rows whose unit is open, and what rows say of it."""

    name: str
    fields: tuple[str, ...]
    flag: Flag
    evidence: Callable[[Mapping[str, Floats], int], _Evidence]


@dataclass(frozen=True)
class _Evidence:
    """For each row: whether it proves percent, or a ratio; its busiest gauge and "GPU utilization" (NaN: not known)."""

    percent: Mask
    ratio: Mask
    busiest: Floats
    utilization: Floats


def _activity_evidence(values: Mapping[str, Floats], rows: int) -> _Evidence:
    unknown = np.full(rows, np.nan, np.float32)
    utilization, busiest = values.get("gpu_util", unknown), unknown
    percent = np.zeros(rows, np.bool_)
    for name, containers in _WITHIN.items():
        if name not in values:
            continue
        gauge = values[name]
        proves = (gauge > CERTAINLY_PERCENT) & (gauge <= 100 * HIGHEST_RATIO)
        for container in containers:
            around = values.get(container, unknown)
            proves &= ~((around > 0) & (around <= HIGHEST_RATIO))
        percent |= proves
        busiest = np.fmax(busiest, gauge)
    steady = (utilization >= STEADY_UTILIZATION) & (busiest <= HIGHEST_RATIO) & (busiest >= STEADY_SHARE * utilization)
    return _Evidence(percent, steady, busiest, utilization)


def _utilization_evidence(values: Mapping[str, Floats], rows: int) -> _Evidence:
    """Percent are whole numbers, so that only 0 and 1 can be either."""
    nothing = np.full(rows, np.nan, np.float32)
    told = values.get("gpu_util", nothing)
    return _Evidence((told > HIGHEST_RATIO) & (told <= 100 * HIGHEST_RATIO), (told > 0) & (told < 1), nothing, nothing)


UTILIZATION = GaugeKind("utilization", ("gpu_util",), Flag.UTILIZATION_NAMED_RATIO, _utilization_evidence)
ACTIVITY = GaugeKind("activity", tuple(name for name in RATIOS if name != "gpu_util"), Flag.NAMED_RATIO, _activity_evidence)


# --- rows under the names of ratios ---


@dataclass(frozen=True)
class _Named:
    """Rows under the names of ratios: their numbers, times, and exporters by number."""

    at: Ints
    times: Ints
    codes: Ints
    exporters: list[Exporter]

    @classmethod
    def of(cls, rows: pa.Table, flags: Flag, among: Flag, kind: str) -> _Named | None:
        """Return the rows that have these flags `among` some, None where none has."""
        at = np.flatnonzero((numbers(column_of(rows, "flags")) & np.uint16(among)) == np.uint16(flags))
        if not len(at):
            return None
        words = [_words(rows, name, at) for name in ("cluster", "host", "gpu")]
        places = np.where(words[1][0] >= 0, words[1][0], len(words[1][1]) + words[2][0])  # a device, where no host is known
        names = [*words[1][1], *words[2][1]]
        clusters = words[0][0] + 1
        found, codes = np.unique(clusters * (len(names) + 1) + places, return_inverse=True)
        exporters: list[Exporter] = [
            (kind, None if cluster == 0 else words[0][1][cluster - 1], names[place])
            for cluster, place in zip(*(part.tolist() for part in np.divmod(found, len(names) + 1)), strict=True)
        ]
        return cls(at, milliseconds(column_of(rows, "time"))[at], codes.reshape(-1).astype(np.int64), exporters)


def _words(rows: pa.Table, name: str, at: Ints) -> tuple[Ints, list[str]]:
    """Return the codes of a column of words in some rows, -1 for null, and the words."""
    column = column_of(rows, name)
    if empty(column):
        return np.full(len(at), -1, np.int64), []
    codes = np.where(has_value(column), numbers(column), -1).astype(np.int64)
    return codes[at], column.dictionary.to_pylist()


def _values(rows: pa.Table, names: tuple[str, ...], at: Ints) -> dict[str, Floats]:
    """Return the fields that are known at all in some rows, NaN where they are not."""
    columns = {name: column_of(rows, name) for name in names}
    return {name: _known(column)[at] for name, column in columns.items() if not empty(column)}


def _known(column: pa.Array) -> Floats:
    return np.where(has_value(column), numbers(column), np.nan).astype(np.float32)


def _settled(before: Settled, kind: GaugeKind) -> Settled:
    opened = _Named.of(before.rows, kind.flag, kind.flag | Flag.PERCENT, kind.name)
    if opened is None:
        return before
    evidence = kind.evidence(_values(before.rows, ("gpu_util", *_WITHIN), opened.at), len(opened.at))
    habits, changed = dict(before.habits), dict(before.changed)
    asked = _asked(opened, evidence, habits)
    rows = np.flatnonzero(np.isin(opened.codes, asked))
    rows = rows[np.lexsort((opened.times[rows], opened.codes[rows]))]
    ends = np.searchsorted(opened.codes[rows], np.arange(len(opened.exporters) + 1))
    for code in asked:
        exporter, own = opened.exporters[code], rows[ends[code] : ends[code + 1]]
        known = habits.get(exporter, Habit())
        habits[exporter] = _followed(known, _scrapes(opened.times[own], evidence, own))
        differs = _first_difference(known, habits[exporter])
        if differs is not None and kind is ACTIVITY:
            changed[exporter] = differs
    return _applied(replace(before, habits=habits, changed=changed), opened, _units_by_exporter(opened, habits), kind)


def _first_difference(before: Habit, after: Habit) -> int | None:
    """Return the time (ms) from which on readings are percent by one habit and ratios by the other, None where they agree."""
    times = np.array(sorted({EARLIEST, *(at for at, _ in (*before.changes, *after.changes))}), np.int64)
    differ = (before.units(times) == PERCENT) != (after.units(times) == PERCENT)
    return int(times[np.argmax(differ)]) if differ.any() else None


def _asked(opened: _Named, evidence: _Evidence, habits: Habits) -> list[int]:
    """Return the exporters whose scrapes must be looked at one after another: all but those that always wrote ratios."""
    proof = np.bincount(opened.codes, evidence.percent, len(opened.exporters)) > 0
    habit = [habits.get(exporter, Habit()).changes for exporter in opened.exporters]
    return [code for code, changes in enumerate(habit) if proof[code] or not changes or any(unit == PERCENT for _, unit in changes)]


def _units_by_exporter(opened: _Named, habits: Habits) -> npt.NDArray[np.int8]:
    units = np.full(len(opened.at), OPEN, np.int8)
    simple = np.full(len(opened.exporters), OPEN, np.int8)  # the unit of exporters that never changed it
    for code, exporter in enumerate(opened.exporters):
        habit = habits.get(exporter, Habit())
        if len(habit.changes) == 1:
            simple[code] = habit.changes[0][1]
        elif habit.changes:
            own = np.flatnonzero(opened.codes == code)
            units[own] = habit.units(opened.times[own])
    return np.where(simple[opened.codes] != OPEN, simple[opened.codes], units)


def _applied(before: Settled, opened: _Named, units: npt.NDArray[np.int8], kind: GaugeKind) -> Settled:
    """Return the rows in the unit that is known for each, what no ratio can be taken out, and flags to say so."""
    columns = {name: column_of(before.rows, name) for name in before.rows.column_names}
    flags = columns["flags"].to_numpy().copy()
    percent, impossible = before.percent, dict(before.impossible)
    for name, values in _values(before.rows, kind.fields, opened.at).items():
        divided = (units == PERCENT) & (values > 0)
        values[divided] /= 100
        outside = values > HIGHEST_RATIO
        values[outside] = np.nan
        percent += int(np.count_nonzero(divided))
        if outside.any():
            impossible[name] = impossible.get(name, 0) + int(np.count_nonzero(outside))
            if name in _JUDGED:
                flags[opened.at[outside]] |= np.uint16(Flag.IMPOSSIBLE)
        if divided.any() or outside.any():
            columns[name] = _replaced(columns[name], opened.at[divided | outside], values[divided | outside], name)
    flags[opened.at[units == PERCENT]] |= np.uint16(Flag.UNIT_GUESSED | (Flag.PERCENT if kind is ACTIVITY else 0))
    columns["flags"] = pa.array(flags)
    return replace(before, rows=pa.table(columns, schema=before.rows.schema), percent=percent, impossible=impossible)


def _replaced(column: pa.Array, at: Ints, values: Floats, name: str) -> pa.Array:
    changed = _known(column)
    changed[at] = values
    return pa.array(changed, SAMPLES.field(name).type, mask=np.isnan(changed))


# --- one exporter, scrape by scrape ---


@dataclass(frozen=True)
class _Scrapes:
    """An exporter's scrapes in the order of time: what each says, and the means of its gauges (NaN: not known)."""

    times: Ints
    says: npt.NDArray[np.int8]
    busiest: Floats
    utilization: Floats
    awake: Mask


def _scrapes(times: Ints, evidence: _Evidence, rows: Ints) -> _Scrapes:
    """Return the scrapes of an exporter from its rows (numbers in the order of time) and their times."""
    moments, scrape = np.unique(times, return_inverse=True)
    count = len(moments)
    percent = np.bincount(scrape, evidence.percent[rows], count) > 0
    ratio = np.bincount(scrape, evidence.ratio[rows], count) > 0
    busiest, utilization = evidence.busiest[rows], evidence.utilization[rows]
    known = ~np.isnan(busiest) & ~np.isnan(utilization)
    paired = np.bincount(scrape, known, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_busiest, mean_utilization = (
            np.bincount(scrape, np.where(known, values, 0), count) / paired for values in (busiest, utilization)
        )
    awake = np.bincount(scrape, np.where(known, utilization, 0) > 0, count) > 0
    says = np.where(percent, PERCENT, np.where(ratio, RATIO, OPEN)).astype(np.int8)
    return _Scrapes(moments, says, mean_busiest, mean_utilization, awake)


def _followed(habit: Habit, scrapes: _Scrapes) -> Habit:
    """Return what is known of an exporter after some more of its scrapes."""
    said = np.flatnonzero(scrapes.says != OPEN)
    if not habit.changes:
        quiet = int(said[0]) if len(said) else len(scrapes.times)
        habit = _waited(habit, scrapes, quiet)
    if not len(said):
        return habit
    units, times = scrapes.says[said], scrapes.times[said]
    changes = _spliced(habit, list(zip(times.tolist(), units.tolist(), strict=True)))
    wrote_percent = any(unit == PERCENT for _, unit in changes)
    return Habit(changes, max(int(times[-1]), habit.last or 0) if wrote_percent else None)


def _waited(habit: Habit, scrapes: _Scrapes, quiet: int) -> Habit:
    """Return what is known after the first `quiet` scrapes, which say nothing alone: percent, where together they do."""
    times = scrapes.times[:quiet]
    if not quiet:
        return habit
    fresh = (times > (EARLIEST if habit.until is None else habit.until)) & (scrapes.busiest[:quiet] > 0)
    readings = habit.readings + np.cumsum(np.where(fresh, scrapes.busiest[:quiet], 0))
    utilization = habit.utilization + np.cumsum(np.where(fresh, scrapes.utilization[:quiet], 0))
    awake = habit.awake + np.cumsum(fresh & scrapes.awake[:quiet])
    since = min(int(times[0]), habit.since if habit.since is not None else int(times[0]))
    proves = (readings >= ENOUGH_READINGS) & (utilization <= TOO_LITTLE_UTILIZATION * readings) & (awake >= AWAKE_SCRAPES)
    if proves.any():
        return Habit(((since, PERCENT),), int(times[int(np.argmax(proves))]))
    until = max(int(times[fresh][-1]), habit.until or 0) if fresh.any() else habit.until  # the habits of silent fleets stay as they are
    return Habit((), None, since, until, float(readings[-1]), float(utilization[-1]), int(awake[-1]))


def _spliced(habit: Habit, found: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the changes with what some scrapes say, as (time, unit) in order; what is known of later times stays."""
    known = dict(habit.changes)
    last = found[-1][0]
    if habit.last is not None and last < habit.last:  # what holds after them was known before
        known.setdefault(last + 1, int(habit.units(np.array([last + 1]))[0]))
    joined: list[tuple[int, int]] = []
    for change in sorted((known | dict(found)).items()):
        if not joined or joined[-1][1] != change[1]:
            joined.append(change)
    return tuple(joined)
