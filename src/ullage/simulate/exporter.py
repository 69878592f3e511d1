"""What the exporters of a host give out: the readings, disturbed by whatever is planted in the exporter.

`Emission` holds both sides: `values` are what a perfect reader gets (missing as NaN), `wire` what is written, still in SI
units but with sentinels and impossible numbers as they come; `wrong` says which units the writer then gets wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.field import HEALTH
from ullage.simulate.changes import SLICES, Script, SimulatedDevice
from ullage.simulate.faults import FaultPlan, Planted
from ullage.simulate.load import HostReadings
from ullage.simulate.specification import CYCLES, NOT_READ, SimulatedChip, Specification, stream
from ullage.tables import Flag

Codes = npt.NDArray[np.int64]
Column = npt.NDArray[Any]  # float64, or int64 for counters

PROFILING = ("gr_active", "sm_active", "tensor_active", "dram_active")
# dcgm_structs.h: blank, not found, not supported, no permission, as double, int64 and int32; then what exporters made of
# them: scaled to percent (slurm-job-exporter PR 53), and an unsigned -1 (DCGM issue 199). Form n of a sample is SENTINELS[n - 1].
SENTINELS = (
    *("140737488355328", "140737488355329", "140737488355330", "140737488355331"),
    *("9223372036854775792", "9223372036854775793", "9223372036854775794", "9223372036854775795"),
    *("2147483632", "2147483633", "2147483634", "2147483635"),
    *("14073748835532800", "4294967295"),
)
IMPOSSIBLE, IMPOSSIBLE_SHARE = 327.68, 0.04
SKEW = 1.2  # of an interval: enough for a row to be stamped later than the next one


@dataclass
class Emission:
    """What one host's GPUs give out. Arrays are [rows, windows]; `times` are the n + 1 true boundaries in ms.

    A row is a device: first the host's GPUs, then the instances of those that are cut for a while (`rows`). `weight` is the share of a GPU
    that a row is in a window, 0 where it is not; `unsliced` where that is the rest of a sliced GPU; `place` says in each window where the
    host is, by its number in the fleet's places. These are None where nothing changes in time.

    `first`, `second` are the numbers of the jobs that hold a GPU (-1: nobody); `stamps` the times as written; `present`
    where a row is given out at all; `form` the sentinel's form (0: none); `copies` rows per reading; `wrong` the wrong units.
    """

    host: int
    device: SimulatedChip
    times: npt.NDArray[np.int64]
    first: Codes
    second: Codes
    values: dict[str, Column]
    wire: dict[str, Column]
    truth: HostReadings
    stamps: Codes
    present: npt.NDArray[np.bool_]
    flags: npt.NDArray[np.uint16]
    form: npt.NDArray[np.uint8]
    copies: Codes
    wrong: set[str] = field(default_factory=set)
    reordered: bool = False
    rows: list[SimulatedDevice] = field(default_factory=list)
    weight: npt.NDArray[np.float64] | None = None
    unsliced: npt.NDArray[np.bool_] | None = None
    place: Codes | None = None


def emission(
    plan: FaultPlan,
    host: int,
    device: SimulatedChip,
    times: npt.NDArray[np.int64],
    rows: list[SimulatedDevice],
    owners: tuple[Codes, Codes],
    truth: HostReadings,
    bases: Codes,
) -> Emission:
    """Return what a host gives out: its readings with cumulative counters, and the planted faults and changes upon them.

    `bases` [rows, 3] are what the cycle counters read at the beginning of the window.
    """
    specification = plan.draft.specification
    values: dict[str, Column] = {name: column.copy() for name, column in truth.values.items()}
    if set(CYCLES) <= set(specification.exported):
        values |= _counters(truth, specification, device, bases, rows)
    shape = owners[0].shape
    values |= {name: np.zeros(shape) for name in HEALTH if name in specification.exported}
    given = Emission(
        host=host,
        device=device,
        times=times,
        first=owners[0],
        second=owners[1],
        values=values,
        wire=values,
        truth=truth,
        stamps=np.broadcast_to(times[1:], shape).copy(),
        present=np.ones(shape, np.bool_),
        flags=np.zeros(shape, np.uint16),
        form=np.zeros(shape, np.uint8),
        copies=np.ones(shape[0], np.int64),
        rows=rows,
    )
    mine = specification.gpus_of(host)
    for planted in plan.planted:
        disturb = _DISTURBED.get(planted.fault)
        chosen = [gpu - mine.start for gpu in planted.gpus if gpu in mine]
        if disturb and chosen:
            disturb(given, specification, planted, chosen)
    _write(given)
    if specification.changes:
        _change(given, plan, plan.scripts.get(host, Script(host)))
    return given


def counted_sms(specification: Specification, device: SimulatedChip, rows: Sequence[SimulatedDevice]) -> npt.NDArray[np.float64]:
    """Return by how many SMs each device's cycle counters are summed, [rows, 1]: one, or all of its own (an instance has a share)."""
    return np.array([[device.sms * row.share if specification.summed else 1.0] for row in rows])


def _counters(
    truth: HostReadings, specification: Specification, device: SimulatedChip, bases: Codes, rows: Sequence[SimulatedDevice]
) -> dict[str, Column]:
    units = counted_sms(specification, device, rows)
    grown = (truth.tensor_cycles, truth.sm_cycles, truth.sm_active_cycles)
    return {
        name: np.cumsum(np.rint(column * units).astype(np.int64), axis=1) + np.rint(units * bases[:, i : i + 1]).astype(np.int64)
        for i, (name, column) in enumerate(zip(CYCLES, grown, strict=True))
    }


def scale(given: Emission, name: str, factor: float) -> float:
    """Return by what a host multiplies a field to write it: `factor` if its units are right.

    A wrong clock is in the other one of Hz and MHz, a wrong ratio in percent.
    """
    if name == "sm_clock" and "hertz" in given.wrong:
        return 1e-6 if factor == 1 else 1.0
    return 100 * factor if name in PROFILING and "percent" in given.wrong else factor


def _inside(given: Emission, planted: Planted) -> slice:
    """Return the windows that lie within the time of what was planted."""
    begin = int(np.searchsorted(given.times[:-1], planted.start))
    return slice(begin, max(begin, int(np.searchsorted(given.times[1:], planted.end, side="right"))))


def _stuck(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    for name in PROFILING:
        if name in given.values:
            given.values[name][rows, _inside(given, planted)] = 0


def _stale(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    windows = _inside(given, planted)
    for name, column in given.values.items():
        if windows.stop > windows.start and name:
            column[rows, windows] = column[rows, windows.start][:, None]


def _frozen_gauge(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    windows = _inside(given, planted)
    if windows.stop > windows.start:
        given.values["tensor_active"][rows, windows] = given.values["tensor_active"][rows, windows.start][:, None]


def _clock(given: Emission, planted: Planted, rows: list[int], reading: Any) -> None:
    """Let the clock read what a function makes of the true one."""
    windows = _inside(given, planted)
    given.values["sm_clock"][rows, windows] = reading(given.values["sm_clock"][rows, windows])


def _tensor_above_sm(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    windows = _inside(given, planted)
    sm, tensor = (given.values[name][rows, windows] for name in ("sm_active", "tensor_active"))
    given.values["tensor_active"][rows, windows] = np.where(tensor > 0, np.round(np.minimum(1, sm + 0.15), 6), 0)


def _faint_percent(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    """Let activity read a hundred times what "GPU utilization", power and clock show."""
    windows, span = _inside(given, planted), np.diff(given.times) / 1000
    drawn = given.device.idle_power
    levels = {"gpu_util": 0.01, "power": drawn, "sm_clock": given.device.boost}
    for name in levels.keys() & given.values.keys():
        given.values[name][rows, windows] = levels[name]
    if "energy" in given.values:
        column = given.values["energy"]
        grown = np.diff(column, axis=1, prepend=column[:, :1])
        grown[rows, windows] = drawn * span[windows]
        column[rows] = np.floor(column[:, :1] + np.cumsum(grown, axis=1))[rows]


def _no_tensor(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    given.values["tensor_active"][rows, _inside(given, planted)] = 0


def _sentinel(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    windows = _inside(given, planted)
    count = windows.stop - windows.start
    given.form[rows, windows] = 1 + np.arange(count) * len(SENTINELS) // max(count, 1)
    given.flags[rows, windows] |= np.uint16(Flag.SENTINEL)


def _impossible(given: Emission, specification: Specification, _: Planted, rows: list[int]) -> None:
    for row in rows:
        hit = stream(specification, 5, specification.gpus_of(given.host).start + row).random(given.flags.shape[1]) < IMPOSSIBLE_SHARE
        given.flags[row, hit] |= np.uint16(Flag.IMPOSSIBLE)


def _duplicated(given: Emission, _: Specification, __: Planted, rows: list[int]) -> None:
    given.copies[rows] = 2


def _percent(given: Emission, _: Specification, __: Planted, ___: list[int]) -> None:
    given.wrong.add("percent")
    given.flags |= np.uint16(Flag.UNIT_GUESSED)


def _hertz(given: Emission, _: Specification, __: Planted, ___: list[int]) -> None:
    given.wrong.add("hertz")
    given.flags |= np.uint16(Flag.UNIT_GUESSED)


def _silent(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    given.present[rows, _inside(given, planted)] = False


def _reordered(given: Emission, _: Specification, __: Planted, ___: list[int]) -> None:
    given.reordered = True


def _skewed(given: Emission, specification: Specification, planted: Planted, rows: list[int]) -> None:
    given.stamps[rows, _inside(given, planted)] += round(SKEW * specification.interval_ms)


def _reset(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    """Let counters begin again from 0 with the first window of what was planted; what they held in it before is lost."""
    window = min(_inside(given, planted).start, given.flags.shape[1] - 1)
    for name in (*CYCLES, "energy"):
        if name in given.values and window > 0:
            column = given.values[name]
            column[rows, window:] -= (column[rows, window - 1] + column[rows, window])[:, None] // 2


# What a fault lets the driver tell: the last Xid, which counts of errors grow, and by one in how many windows.
_FAILING: dict[str, tuple[int, tuple[str, ...], int]] = {
    "failing_memory": (94, ("ecc_uncorrected", "remapped_rows"), 10**6),
    "failing_link": (74, ("nvlink_replays", "nvlink_recoveries"), 20),
    "application_xid": (31, (), 1),
}


def _failing(given: Emission, _: Specification, planted: Planted, rows: list[int]) -> None:
    xid, grows, every = _FAILING[planted.fault]
    first, count = _inside(given, planted).start, given.flags.shape[1]
    given.values["xid"][rows, first:] = xid
    for name in grows:
        given.values[name][rows, first:] = 1 + np.arange(count - first) // every


def _write(given: Emission) -> None:
    """Work out both sides: what is missing for a reader, and what stands on the wire."""
    given.wire = dict(given.values)
    silenced, impossible = given.form > 0, (given.flags & np.uint16(Flag.IMPOSSIBLE)) > 0
    numbers = np.array([0.0, *(float(text) for text in SENTINELS)])
    for name, column in given.values.items():
        if silenced.any() and name not in (*CYCLES, "energy", "throttle"):
            given.wire[name] = np.where(silenced, numbers[given.form], column)
            given.values[name] = np.where(silenced, np.nan, column)
        if impossible.any() and name in ("sm_active", "tensor_active"):
            given.wire[name] = np.where(impossible, IMPOSSIBLE, given.wire[name])
            given.values[name] = np.where(impossible, np.nan, given.values[name])


def _change(given: Emission, plan: FaultPlan, script: Script) -> None:
    """Let the host be, and say, what its script says, window by window."""
    specification, after = plan.draft.specification, given.times[1:]
    first = specification.gpus_of(given.host).start
    given.place = np.full(len(after), given.host)
    for number, since in plan.places.get(given.host, []):
        given.place[after > since] = number
    given.weight, given.unsliced = np.ones(given.first.shape), np.zeros(given.first.shape, np.bool_)
    for gpu, (start, end) in script.lives.items():
        gone = (after <= start) | (after > end)
        given.weight[gpu - first, gone], given.present[gpu - first, gone] = 0, False
    _cut(given, first)
    counted = np.full(len(after), specification.counters)
    if script.counted:
        counted = (after > script.counted[0]) & (after <= script.counted[1])
    _hide(given, CYCLES, ~counted & np.ones(given.first.shape, np.bool_))
    if script.percent is not None:
        for name in PROFILING:
            if name in given.wire:
                later = after > script.percent
                given.wire[name] = np.where(later, np.round(100 * given.wire[name], 6), given.wire[name])
                given.flags[:, later] |= np.uint16(Flag.UNIT_GUESSED)


def _cut(given: Emission, first: int) -> None:
    """Let instances stand for their GPUs while these are cut.

    NVIDIA documents that layout: instances give what is profiled, and the GPU itself its clock, power and memory.
    """
    assert given.weight is not None and given.unsliced is not None
    for number, row in enumerate(given.rows):
        if row.profile is None:
            continue
        parent, there = row.gpu - first, (given.times[1:] > row.start) & (given.times[1:] <= row.end)
        given.weight[number], given.present[number] = there * row.share, there
        given.weight[parent, there] -= row.share
        given.unsliced[parent] |= there
    apart = np.array([row.profile is not None for row in given.rows])[:, None] & np.ones(given.first.shape, np.bool_)
    given.weight[given.unsliced] = np.rint(given.weight[given.unsliced] * SLICES) / SLICES
    _hide(given, (*PROFILING, "gpu_util", *CYCLES), given.unsliced)
    _hide(given, tuple(name for name in given.values if name not in (*PROFILING, *CYCLES)), apart)


def _hide(given: Emission, names: tuple[str, ...], where: npt.NDArray[np.bool_]) -> None:
    """Take readings out of what is given out."""
    if not where.any():
        return
    for name in names:
        for side in (given.values, given.wire):
            if name in side:
                nothing = NOT_READ if side[name].dtype.kind == "i" else np.nan
                side[name] = np.where(where, nothing, side[name])


_DISTURBED = {
    "stuck": _stuck,
    "stale": _stale,
    "stuck_part": _stuck,
    "stale_part": _stale,
    "frozen_gauge": _frozen_gauge,
    "zero_clock": lambda given, _, planted, rows: _clock(given, planted, rows, lambda true: 0 * true),
    "gigahertz": lambda given, _, planted, rows: _clock(given, planted, rows, lambda true: true / 1000),
    "idle_clock": lambda given, _, planted, rows: _clock(given, planted, rows, lambda true: 0 * true + 345e6),
    "constant_clock": lambda given, _, planted, rows: _clock(given, planted, rows, lambda true: 0 * true + 1.2e9),
    "tensor_above_sm": _tensor_above_sm,
    "faint_percent": _faint_percent,
    "no_tensor": _no_tensor,
    "sentinel": _sentinel,
    "impossible": _impossible,
    "duplicated": _duplicated,
    "percent": _percent,
    "hertz": _hertz,
    "silent": _silent,
    "reordered": _reordered,
    "skewed": _skewed,
    "reset": _reset,
    **dict.fromkeys(_FAILING, _failing),
}
