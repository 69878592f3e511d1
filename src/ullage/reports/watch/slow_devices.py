"""Which devices of a job make it wait, from what each shows beside the others at the same time and beside its own past.

Training is synchronous: a step ends when its last rank is ready, and the others wait inside a collective, busy but without tensor work. All
ranks do as much work as before, each in a longer step. So a slow device shows in one of four signs, all at *equal work*:

- `clock`: its clock is lower than that of the others, and tensor pipes work in more of its cycles: as many of fewer.
- `busy`: its SMs are busy for longer for as much tensor work: slow memory, or anything else in kernels.
- `late`: its engine rests while those of the others wait: data, the host's CPU, PCIe.
- `link`: it counts NVLink replays, and the job does less work.

Who has more to do (longer sequences, popular experts) does more, and is none. What differs from the start (stages, boards of another model)
is each device's own level; it counts only where it lasts, without a pause, and nothing else explains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LEAST_SECONDS = 10  # over which readings are averaged: shorter than a few steps they show which part of a step was met
LONG_SECONDS = 30  # a pause is not over before twice this, and what lasts is looked at so far apart
PAST = 40  # windows of its past beside which a device is judged,
LEAST_PAST = 5  # at least so many
LATELY = 10  # windows beside which a job's work is judged: it may change for good
WAITING = 0.9  # of engine activity: who waits for another is busy with it
LOWER_CLOCK = 0.10  # log; ranks that wait clock 8 % higher than those that compute
MORE_CYCLES = 0.05  # log of tensor activity beside the others: a clock lower by a tenth, over half a window
BUSIER = 0.08  # log of SM activity beside tensor activity
EQUAL_WORK = 0.06  # log
RESTING = 0.05  # of engine activity
RESTING_BRIEFLY = 0.08  # where less than half a minute is averaged: a single stall is as much
BEGUN = {"clock": 0.9, "busy": 0.3, "late": 0.3, "link": 0.3}  # of these in the window before: a part of it, where a fault begins inside
NOISES = 4.0  # times the usual deviation of what a device shows
NO_REST = 0.03  # of engine or SM activity: less than any rest that counts
LEAST_NOISE = 0.004
LESS_WORK = 0.04  # log: what a straggler takes from its job's work at least
PAUSE = 0.45  # of a job's usual work: below it does something else
FROM_START = 6  # windows in which a device must differ where it did so from the start
FEW_HOSTS = 4
FEW_DEVICES = 64
LEAST_SIBLINGS = 3
MOST_VALUES = 4_000_000  # looked at in one go: 32 MB
GONE = 4  # windows without it after which it is over: a slow device may look like the others for a moment


@dataclass(frozen=True)
class JobReadings:
    """What the devices of a job showed, window by window (window, device), NaN where nothing: activities, clock, replays since the last."""

    times: npt.NDArray[np.int64]
    tensor: Array
    sm: Array
    engine: Array
    clock: Array
    replays: Array
    hosts: tuple[str | None, ...]
    models: tuple[str | None, ...]


@dataclass(frozen=True)
class SlowSpell:
    """A device that made its job wait: from window `start` on, known at `found`, until `end` (None: to the last one)."""

    device: int
    start: int
    found: int
    end: int | None
    sign: str
    longer: float


@dataclass(frozen=True)
class _Beside:
    """Each device beside the others of its model, as logs (window, device); the engine as a difference, and how the others' rests."""

    tensor: Array
    clock: Array
    busy: Array
    engine: Array
    others_engine: Array
    apart: Flags  # whose engine works for longer than those of most others of its host


def window_numbers(times: npt.NDArray[np.int64], devices: npt.NDArray[np.int64], window_ms: int) -> npt.NDArray[np.int64]:
    """Return which window each reading belongs to: each device is read at a phase of its own, around which its readings jitter.

    >>> window_numbers(np.array([29_900, 60_100, 89_900]), np.zeros(3, np.int64), 30_000).tolist()
    [1, 2, 3]
    """
    angle = np.exp(2j * np.pi * ((times % window_ms) / window_ms))
    sums = np.zeros(int(devices.max(initial=0)) + 1, complex)
    np.add.at(sums, devices, angle)
    phase = np.angle(sums) / (2 * np.pi) * window_ms
    return np.asarray(np.round((times - phase[devices]) / window_ms), np.int64)


def slow_devices(readings: JobReadings, window_seconds: float) -> list[SlowSpell]:
    """Return the spells in which a device made its job wait, by when they were found."""
    count, devices = readings.tensor.shape
    width = max(1, round(LEAST_SECONDS / window_seconds))
    if devices < 2 or count < 2 * width:
        return []
    smooth = {name: _averaged(getattr(readings, name), width) for name in ("tensor", "sm", "engine", "clock", "replays")}
    with np.errstate(invalid="ignore", divide="ignore"):
        beside = _beside(readings, smooth)
        signs = _signs(beside, smooth, _middle(smooth["tensor"] * smooth["clock"]), width, max(width, round(LONG_SECONDS / window_seconds)))
        spells = _spells(signs, width)
    return sorted(spells, key=lambda one: one.found)


def _averaged(values: Array, width: int) -> Array:
    """Return the mean of the last `width` windows at each, without those that are missing."""
    if width == 1:
        return values
    known = ~np.isnan(values)
    sums = np.cumsum(np.where(known, values, 0), axis=0)
    counts = np.cumsum(known, axis=0).astype(float)
    sums[width:], counts[width:] = sums[width:] - sums[:-width], counts[width:] - counts[:-width]
    return np.where(counts >= 0.6 * width, sums / np.maximum(counts, 1), np.nan)


def _beside(readings: JobReadings, smooth: dict[str, Array]) -> _Beside:
    tensor, clock, sm, engine = (smooth[name] for name in ("tensor", "clock", "sm", "engine"))
    others = _Others(readings)
    log_tensor = np.log(tensor / others.middle(tensor))
    others_engine = others.middle(engine)
    return _Beside(
        log_tensor,
        np.log(clock / others.middle(clock)),
        np.log(sm / others.middle(sm)) - log_tensor,
        engine - others_engine,
        others_engine,
        others.apart(engine),
    )


class _Others:
    """With whom each device is compared: devices of its model, on other hosts where there are enough, else on its own."""

    def __init__(self, readings: JobReadings) -> None:
        hosts, models = np.array(readings.hosts, object), np.array(readings.models, object)
        few = len(set(hosts)) <= FEW_HOSTS  # of many hosts one more or less moves no median
        groups: dict[tuple[str | None, str | None, int | None], list[int]] = {}
        for device, (host, model) in enumerate(zip(readings.hosts, readings.models, strict=True)):
            single = few and not np.any((models == model) & (hosts != host)) and np.count_nonzero(models == model) <= FEW_DEVICES
            key = (model, host if few else None, device if single else None)
            groups.setdefault(key, []).append(device)
        self.groups: list[tuple[list[int], npt.NDArray[np.int64]]] = []
        for (model, host, alone), members in groups.items():
            alike = models == model
            if alone is not None:
                alike[alone] = False
            elif few and np.any(alike & (hosts != host)):
                alike &= hosts != host
            self.groups.append((members, np.flatnonzero(alike)))

        self.hosts = hosts

    def apart(self, engine: Array) -> Flags:
        """Return whose engine works for longer than those of the others of its host, of which there must be three."""
        apart = np.zeros(engine.shape, bool)
        for device, host in enumerate(self.hosts):
            siblings = np.flatnonzero(self.hosts == host)
            siblings = siblings[siblings != device]
            if host is not None and LEAST_SIBLINGS <= len(siblings) <= FEW_DEVICES:
                apart[:, device] = engine[:, device] - _middle(engine[:, siblings]) > RESTING
        return apart

    def middle(self, values: Array) -> Array:
        found = np.full_like(values, np.nan)
        for members, others in self.groups:
            if len(others):
                found[:, members] = _middle(values[:, others])[:, None]
        return found


def _middle(values: Array) -> Array:
    """Return the median over devices without those that are missing; NaN where all are."""
    known = np.sort(values, axis=1)  # NaN last
    counts = (~np.isnan(known)).sum(axis=1)
    rows = np.arange(len(known))
    low, high = np.maximum((counts - 1) // 2, 0), np.maximum(counts // 2, 0)
    return np.asarray(np.where(counts > 0, (known[rows, low] + known[rows, np.minimum(high, known.shape[1] - 1)]) / 2, np.nan))


def _past(values: Array, width: int, windows: int = PAST) -> tuple[Array, Array]:
    """Return the usual value at each window, from windows of the past, and how far single ones usually are from it; NaN of too few."""
    most = max(1, MOST_VALUES // (len(values) * windows))
    if values.shape[1] > most:  # many devices, some at a time
        parts = [_past(values[:, first : first + most], width, windows) for first in range(0, values.shape[1], most)]
        return np.concatenate([part[0] for part in parts], axis=1), np.concatenate([part[1] for part in parts], axis=1)
    count = len(values)
    back = np.arange(windows + 1, 1, -1) * width
    rows = np.arange(count)[:, None] - back[None, :]
    past = np.where((rows >= 0)[..., None], values[np.maximum(rows, 0)], np.nan)
    known = (~np.isnan(past)).sum(axis=1)
    middle = _middle_of_second(past)
    spread = 1.48 * _middle_of_second(np.abs(past - middle[:, None]))
    enough = known >= LEAST_PAST
    return np.where(enough, middle, np.nan), np.where(enough, spread, np.nan)


def _middle_of_second(values: Array) -> Array:
    shape = values.shape
    flat = np.moveaxis(values, 1, -1).reshape(-1, shape[1])
    return _middle(flat).reshape(shape[0], *shape[2:])


@dataclass(frozen=True)
class _Sign:
    """One sign (window, device), in times of the least that counts: what is seen, and the device's usual level.

    `told` is where nothing else explains it, `lasting` where it was seen so long that no past is needed; `longer` is by how much.
    """

    values: Array
    usual: Array
    told: Flags
    lasting: Flags
    longer: Array


@dataclass(frozen=True)
class _JobWork:
    """How a job does beside its past, window by window: whether it trains at all, and by how much (log) it does less work."""

    trains: Flags
    training: Flags
    change: Array
    least: Array

    @property
    def slower(self) -> Flags:
        return np.asarray(self.training & (self.least < -LESS_WORK))


def _job_work(work: Array, width: int) -> _JobWork:
    """Return how a job does, by the work of its middle device (clock × tensor activity): pauses are no past for anything."""
    most = np.fmax.accumulate(np.where(np.isnan(work), 0, work))[:, None]
    first = _past(np.where(work[:, None] > PAUSE * most, work[:, None], np.nan), width)[0]
    trains = work[:, None] > PAUSE * np.fmin(most, first)
    worked = np.where(trains, work[:, None], np.nan)
    change, lately = (np.log(work[:, None] / _past(worked, width, windows)[0]) for windows in (PAST, LATELY))
    lately = np.where(np.isnan(lately), change, lately)
    training = lately > np.log(PAUSE)
    return _JobWork(trains, training & _before(training, width), change, np.minimum(change, lately))


class _Level:
    """What each device shows beside the others, and how that differs from its own past (`over`), with the usual noise of that."""

    def __init__(self, values: Array, trains: Flags, width: int, long: int) -> None:
        self.values = values
        self.usual, noise = _past(np.where(trains, values, np.nan), width)
        self.noise = np.maximum(noise, LEAST_NOISE)
        self.over = values - self.usual
        self.lowest, self.highest = _lasting(values, long)

    def excess(self, lasting: Flags) -> Array:
        """Return what is beyond the usual level, or beyond the others where there is none, or it has lasted."""
        return np.where(lasting | np.isnan(self.over), self.values, self.over)


def _signs(beside: _Beside, smooth: dict[str, Array], work: Array, width: int, long: int) -> dict[str, _Sign]:
    job = _job_work(work, width)
    tensor, clock, busy, engine = (
        _Level(values, job.trains, width, long) for values in (beside.tensor, beside.clock, beside.busy, beside.engine)
    )
    waiting = beside.others_engine > WAITING
    return {
        "clock": _clock_sign(job, tensor, clock, waiting & _before(waiting, width), waiting),
        "busy": _busy_sign(job, tensor, clock, busy, (engine, beside.apart), _Level(np.log(smooth["sm"]), job.trains, width, long)),
        "late": _late_sign(job, tensor, engine, _Level(beside.others_engine, job.trains, width, long), waiting, (width, long)),
        "link": _link_sign(job, smooth["replays"]),
    }


def _clock_sign(job: _JobWork, tensor: _Level, clock: _Level, waited: Flags, waiting: Flags) -> _Sign:
    # in a job that has just begun: boards of one model have one clock
    new = np.isnan(clock.usual)
    unlike = new & waited & (clock.values < -1.5 * LOWER_CLOCK) & (tensor.values > MORE_CYCLES)
    unlike &= tensor.values + clock.values < LOWER_CLOCK
    # as many cycles of fewer: with more than that it has more work; a reading of a clock that differs a lot needs no such care
    surplus = LOWER_CLOCK + 2 * np.maximum(0, -clock.over - 1.5 * LOWER_CLOCK)
    fewer = (tensor.over > MORE_CYCLES) & (tensor.over + clock.over < surplus) & (clock.values < -0.9 * LOWER_CLOCK)
    sure = np.maximum(tensor.over / tensor.noise, -clock.over / clock.noise) >= NOISES
    lasting = (clock.highest < -LOWER_CLOCK) & (tensor.lowest > MORE_CYCLES)
    lasting &= tensor.highest + tensor.lowest + clock.highest + clock.lowest < 2 * LOWER_CLOCK
    return _Sign(
        -clock.values / LOWER_CLOCK,
        np.where(new, 0, -clock.usual / LOWER_CLOCK),
        (sure & job.training & (job.least < LESS_WORK) & fewer & (waiting | (-clock.over > 1.5 * LOWER_CLOCK))) | unlike,
        lasting,
        np.exp(tensor.excess(lasting)),
    )


def _busy_sign(job: _JobWork, tensor: _Level, clock: _Level, busy: _Level, engines: tuple[_Level, Flags], sm: _Level) -> _Sign:
    # who waits has less SM activity than before, and a little more beside its tensor activity; so has who waits for one that rests,
    # but so have its siblings
    engine, apart = engines
    equal = (tensor.over > -_slack(tensor)) & (tensor.over < _slack(tensor) + 0.5 * busy.over)
    beyond = (busy.values > 0) & (clock.values < LOWER_CLOCK)
    told = (busy.over >= NOISES * busy.noise) & job.slower & equal & beyond & ((engine.over < NO_REST) | apart) & (sm.over > -NO_REST)
    lasting = (busy.lowest > BUSIER) & _level(tensor) & ((engine.lowest < NO_REST) | apart)
    return _Sign(busy.values / BUSIER, busy.usual / BUSIER, told, lasting, np.exp(busy.excess(lasting)))


def _late_sign(job: _JobWork, tensor: _Level, engine: _Level, others: _Level, waiting: Flags, widths: tuple[int, int]) -> _Sign:
    # in a pause all rest, one after the other; who rests because it has less to do does less by all of its rest
    no_pause = others.over > -NO_REST
    no_pause = _in_all(no_pause, 2 * widths[1] + 1)
    least = RESTING if widths[0] == widths[1] else RESTING_BRIEFLY
    no_less = np.isfinite(tensor.over) & (tensor.over > 0.4 * np.log1p(np.clip(engine.over, -0.95, 0)) + 0.02 - _slack(tensor))
    sure = (-engine.over >= NOISES * engine.noise) & (engine.values < -least)
    lasting = (engine.highest < -RESTING) & _level(tensor) & (others.lowest > WAITING)
    return _Sign(
        -engine.values / least,
        -engine.usual / least,
        sure & job.slower & waiting & no_pause & no_less,
        lasting,
        1 / (1 + np.clip(engine.excess(lasting), -0.95, 0)),
    )


def _link_sign(job: _JobWork, replays: Array) -> _Sign:
    nothing = np.zeros_like(replays)
    never = np.zeros(replays.shape, bool)  # however long replays last, the job must do less work
    return _Sign(np.where(replays > 0, 2.0, 0), nothing, job.slower & (replays > 0), never, np.exp(-job.change) + nothing)


def _slack(tensor: _Level) -> Array:
    """Return how far from equal (log) the work of a device may be that does as much as before."""
    return np.asarray(EQUAL_WORK + np.minimum(tensor.noise, LOWER_CLOCK))


def _level(tensor: _Level) -> Flags:
    return np.asarray(np.abs(tensor.lowest + tensor.highest) < EQUAL_WORK)


def _in_all(flags: Flags, count: int) -> Flags:
    """Return where the last `count` windows (those that there are) are all set."""
    failed = np.cumsum(~flags, axis=0)
    earlier = np.zeros_like(failed)
    earlier[count:] = failed[:-count]
    return np.asarray(failed == earlier)


def _lasting(values: Array, width: int) -> tuple[Array, Array]:
    """Return what the last `FROM_START` windows have in common: the lowest but one and the highest but one, all of them known."""
    rows = np.arange(len(values))[:, None] - np.arange(FROM_START)[None, :] * width
    last = np.sort(np.where((rows >= 0)[..., None], values[np.maximum(rows, 0)], np.nan), axis=1)
    unknown = np.isnan(last).any(axis=1)
    return np.where(unknown, np.nan, last[:, 1]), np.where(unknown, np.nan, last[:, -2])


def _before(values: Any, width: int) -> Any:
    earlier = np.empty_like(values)
    earlier[:width], earlier[width:] = values[:width], values[:-width]
    return earlier


def _spells(signs: dict[str, _Sign], width: int) -> list[SlowSpell]:
    spells = []
    for name, sign in signs.items():
        over = sign.values - sign.usual
        told = (over >= 1) & sign.told & (_before(over, max(1, width // (2 if name == "late" else 3))) > BEGUN[name]) | sign.lasting
        for device in np.flatnonzero(told.any(axis=0)):
            spells += _spells_of_device(name, sign, told[:, device], int(device), width)
    return spells


def _spells_of_device(name: str, sign: _Sign, told: Flags, device: int, width: int) -> list[SlowSpell]:
    """Return the spells of a device: one goes on while half of the least is seen beside the level that it had before."""
    spells, over = [], -1
    for found in map(int, np.flatnonzero(told)):
        if found <= over:
            continue
        level = 0.0 if sign.lasting[found, device] else sign.usual[found, device]
        last = found
        for at in found + np.flatnonzero(sign.values[found:, device] - level >= 0.5):
            if at - last > GONE * width:
                break
            last = int(at)
        over = last + GONE * width
        end = None if over >= len(told) - 1 else last
        spells.append(SlowSpell(device, max(0, found - width), found, end, name, float(sign.longer[found, device])))
    return spells
