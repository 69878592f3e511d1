"""Which devices of a job make it wait, from what each shows beside the others at the same time and beside its own past.

Training is synchronous: a step ends when its last rank is ready, and the others wait inside a collective, busy but without tensor work. All
ranks do as much work as before, each in a longer step. So a slow device shows in one of four signs, all at *equal work*:

- `clock`: its clock is lower than that of the others, and tensor pipes work in more of its cycles: as many of fewer.
- `busy`: its SMs are busy for longer for as much tensor work: slow memory, or anything else in kernels.
- `late`: its engine rests while those of the others wait: data, the host's CPU, PCIe.
- `link`: it counts NVLink replays, and the job does less work.

Who has more to do (longer sequences, popular experts) does more, and is none. What differs from the start (stages, boards of another model)
is each device's own level; it counts only where it lasts, and nothing else explains it. Pauses of the job say nothing and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.reports.stragglers.device_peers import RESTING, BesidePeers, JobReadings, beside_peers
from ullage.reports.stragglers.job_pauses import Array, Flags, averaged, job_pauses, middle

LEAST_SECONDS = 10  # over which readings are averaged: shorter than a few steps they show which part of a step was met
WARM_UP_SECONDS = 600  # within which a job shows how busy its engines are
LONG_SECONDS = 30  # what lasts is looked at so far apart; rests of all count for twice this
PAST = 40  # windows of its past beside which a device is judged,
LEAST_PAST = 5  # at least so many
LATELY = 10  # windows beside which a job's work is judged: it may change for good
WAITING = 0.9  # of engine activity: who waits for another is busy with it
WAITING_AT_FIRST = 0.96  # where there is no past: nobody is still on its way up
LOWER_CLOCK = 0.10  # log; ranks that wait clock 8 % higher than those that compute
MORE_CYCLES = 0.05  # log of tensor activity beside the others: a clock lower by a tenth, over half a window
BUSIER = 0.08  # log of SM activity beside tensor activity
EQUAL_WORK = 0.06  # log
RESTING_BRIEFLY = 0.08  # where ten seconds are averaged
BEGUN = {"clock": 0.9, "busy": 0.3, "late": 0.3, "link": 0.3}  # of these in the window before: a part of it, where a fault begins inside
AT_ONCE = {"clock": 3.0, "busy": 2.5, "late": np.inf, "link": 1.0}  # where one window is enough; a rank may rest once for as long
LASTING = 1.4  # times as much where there is no past to compare with: a rank whose sequences are longer for good shows a little of it
OWN_CHANGE = 0.5  # of these beside its own past: others that change, as where a fault of theirs ends, make a device differ from them too
NOISES = 4.0  # times the usual deviation of what a device shows
NO_REST = 0.03  # of engine or SM activity: less than any rest that counts
OUTSTANDING = 1.5  # times the rests of the others: with a slow disk all rest, one after the other
LEAST_NOISE = 0.004
LESS_WORK = 0.04  # log: what a straggler takes from its job's work at least
PAUSE = 0.45  # of a job's usual work: below it does something else
FROM_START = 6  # windows in which a device must differ where it did so from the start
MOST_VALUES = 4_000_000  # looked at in one go: 32 MB
GONE = 4  # windows without it after which it is over: a slow device may look like the others for a moment


@dataclass(frozen=True)
class SlowSpell:
    """A device that made its job wait: from window `start` on, known at `found`, until `end` (None: to the last one).

    `longer` is how many times as long as the others it needed for the same work (the median over windows that show it); `waited` is for
    which share of each window of all readings the others waited for it: 0 outside of the spell, and where nothing is known.
    """

    device: int
    start: int
    found: int
    end: int | None
    sign: str
    longer: float
    waited: Array = field(compare=False, repr=False)


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
    paused = job_pauses(readings.engine, readings.tensor, width, round(WARM_UP_SECONDS / window_seconds))
    names = ("tensor", "sm", "engine", "clock", "replays")
    smooth = {name: averaged(np.where(paused, np.nan, getattr(readings, name)), width) for name in names}
    with np.errstate(invalid="ignore", divide="ignore"):
        beside = beside_peers(readings, smooth, width)
        job = _job_work(middle(smooth["tensor"] * smooth["clock"]), width)
        chosen = _may_be_slow(beside, smooth["replays"])
        smooth = {name: values[:, chosen] for name, values in smooth.items()}
        shown = _job_levels(job, beside.of_devices(chosen), smooth, width, max(width, round(LONG_SECONDS / window_seconds)))
        spells = _spells(_signs(shown, smooth["replays"]), width)
    return sorted((replace(one, device=int(chosen[one.device])) for one in spells), key=lambda one: one.found)


def _may_be_slow(beside: BesidePeers, replays: Array) -> npt.NDArray[np.int64]:
    """Return the devices that show any sign at all: what they do beside the others moves by as much as counts, or is as far from them."""
    shown = ((-beside.clock, LOWER_CLOCK), (beside.busy, BUSIER), (-beside.engine, RESTING))
    moves = [np.fmax.reduce(values) - np.fmin(np.fmin.reduce(values), 0) >= least for values, least in shown]
    return np.flatnonzero(np.any([*moves, np.fmax.reduce(replays) > 0], axis=0))


def _usual(values: Array, width: int, windows: int = PAST) -> Array:
    """Return the usual value at each window, from windows of the past; NaN of too few."""
    return _past(values, width, windows, noise=False)[0]


def _past(values: Array, width: int, windows: int = PAST, *, noise: bool) -> tuple[Array, Array]:
    """Return the usual value at each window, from windows of the past, and how far single ones usually are from it; NaN of too few.

    Without `noise` nobody asks how far: it is then NaN.
    """
    most = max(1, MOST_VALUES // (len(values) * windows))
    if values.shape[1] > most:  # many devices, some at a time
        parts = [_past(values[:, first : first + most], width, windows, noise=noise) for first in range(0, values.shape[1], most)]
        return np.concatenate([part[0] for part in parts], axis=1), np.concatenate([part[1] for part in parts], axis=1)
    count = len(values)
    back = np.arange(windows + 1, 1, -1) * width
    rows = np.arange(count)[:, None] - back[None, :]
    past = np.where((rows >= 0)[..., None], values[np.maximum(rows, 0)], np.nan)
    known = (~np.isnan(past)).sum(axis=1)
    middle = _middle_of_second(past)
    spread = 1.48 * _middle_of_second(np.abs(past - middle[:, None])) if noise else np.full_like(middle, np.nan)
    enough = known >= LEAST_PAST
    return np.where(enough, middle, np.nan), np.where(enough, spread, np.nan)


def _middle_of_second(values: Array) -> Array:
    shape = values.shape
    flat = np.moveaxis(values, 1, -1).reshape(-1, shape[1])
    return middle(flat).reshape(shape[0], *shape[2:])


@dataclass(frozen=True)
class _Sign:
    """One sign (window, device), in times of the least that counts: what is seen, and the device's usual level.

    `told` is where nothing else explains it, `lasting` where it was seen so long that no past is needed. `slowness` says how many times as
    long as the others a device needs for the same work (log), and `usual_slowness` its level of that (NaN: no past). `working` is the share
    of time that it needs for it.
    """

    values: Array
    usual: Array
    told: Flags
    lasting: Flags
    slowness: Array
    usual_slowness: Array
    working: Array

    def longer(self, device: int, found: int) -> Array:
        """Return how many times as long a device needs in each window as it would without what was found in one."""
        usual = self.usual_slowness[found, device]
        level = 0.0 if self.lasting[found, device] or np.isnan(usual) else usual
        return np.asarray(np.exp(self.slowness[:, device] - level))


@dataclass(frozen=True)
class _JobWork:
    """How a job does beside its past, window by window: whether it trains at all, and by how much (log) it does less work."""

    log_work: Array
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
    first = _usual(np.where(work[:, None] > PAUSE * most, work[:, None], np.nan), width)
    trains = work[:, None] > PAUSE * np.fmin(most, first)
    worked = np.where(trains, work[:, None], np.nan)
    change, lately = (np.log(work[:, None] / _usual(worked, width, windows)) for windows in (PAST, LATELY))
    lately = np.where(np.isnan(lately), change, lately)
    training = lately > np.log(PAUSE)
    return _JobWork(np.log(work[:, None]), trains, training, change, np.minimum(change, lately))


class _Level:
    """What each device shows beside the others, and how that differs from its own past (`over`), with the usual noise of that."""

    def __init__(self, values: Array, trains: Flags, width: int, long: int, *, noise: bool = False) -> None:
        self.values = values
        self.usual, noise_of_past = _past(np.where(trains, values, np.nan), width, noise=noise)
        self.noise = np.maximum(noise_of_past, LEAST_NOISE)
        self.over = values - self.usual
        self.lowest, self.highest = _lasting(values, long)
        earlier = np.full_like(values, np.nan)
        earlier[_half(width) :] = values[: -_half(width)]
        # of the last two where there is no past
        self.new_lowest, self.new_highest = (np.where(np.isnan(self.usual), of(values, earlier), np.nan) for of in (np.minimum, np.maximum))


@dataclass(frozen=True)
class _JobLevels:
    """What the devices of a job show: each measure beside the others and beside its own past; over windows averaged `width` at a time.

    `others_engine` is that of the others; `sm`, `own_clock` and `own_busy` (log) are beside its own past alone.
    """

    job: _JobWork
    tensor: _Level
    clock: _Level
    busy: _Level
    engine: _Level
    others_engine: _Level
    sm: _Level
    own_clock: _Level
    own_busy: _Level
    beside: BesidePeers
    width: int
    long: int

    @property
    def waiting(self) -> Flags:
        return np.asarray(self.others_engine.values > WAITING)

    @property
    def as_full(self) -> Flags:
        """Where SMs hold as much while the engine is busy as those of the others: it computes, and does not wait for one that rests."""
        engine = np.log1p(self.engine.values / self.others_engine.values)
        return np.asarray(self.busy.values + self.tensor.values - engine > -NO_REST)

    @property
    def working(self) -> Array:
        """How busy the engine of each device is: who makes the others wait does not wait itself (1 where nobody measured it)."""
        return np.nan_to_num(self.engine.values + self.others_engine.values, nan=1.0)


def _job_levels(job: _JobWork, beside: BesidePeers, smooth: dict[str, Array], width: int, long: int) -> _JobLevels:
    level = partial(_Level, trains=job.trains, width=width, long=long)
    return _JobLevels(
        job=job,
        tensor=level(beside.tensor, noise=True),
        clock=level(beside.clock, noise=True),
        busy=level(beside.busy, noise=True),
        engine=level(beside.engine, noise=True),
        others_engine=level(beside.others_engine),
        sm=level(np.log(smooth["sm"])),
        own_clock=level(np.log(smooth["clock"])),
        own_busy=level(np.log(smooth["sm"] / smooth["tensor"])),
        beside=beside,
        width=width,
        long=long,
    )


def _signs(shown: _JobLevels, replays: Array) -> dict[str, _Sign]:
    return {"clock": _clock_sign(shown), "busy": _busy_sign(shown), "late": _late_sign(shown), "link": _link_sign(shown.job, replays)}


def _clock_sign(shown: _JobLevels) -> _Sign:
    job, tensor, clock = shown.job, shown.tensor, shown.clock
    waited = shown.waiting & _before(shown.waiting, _half(shown.width))
    # in a job that has just begun: boards of one model have one clock
    new = np.isnan(clock.usual)
    unlike = new & waited & (clock.values < -1.5 * LOWER_CLOCK) & (tensor.values > MORE_CYCLES)
    unlike &= tensor.values + clock.values < LOWER_CLOCK
    # as many cycles of fewer: with more than that it has more work; a reading of a clock that differs a lot needs no such care
    surplus = LOWER_CLOCK + 2 * np.maximum(0, -clock.over - 1.5 * LOWER_CLOCK)
    fewer = (tensor.over > MORE_CYCLES) & (tensor.over + clock.over < surplus) & (clock.values < -0.9 * LOWER_CLOCK)
    far = -clock.over > 3 * LOWER_CLOCK  # and busy at such a clock: nothing else is so slow
    fewer |= far & (clock.values < -2 * LOWER_CLOCK) & waited & (shown.engine.values > -NO_REST)
    sure = np.maximum(tensor.over / tensor.noise, -clock.over / clock.noise) >= NOISES
    sure &= shown.own_clock.over < -OWN_CHANGE * LOWER_CLOCK
    changed = sure & job.training & ((job.least < LESS_WORK) | far) & fewer & (shown.waiting | (-clock.over > 1.5 * LOWER_CLOCK))
    lasting = (clock.highest < -LASTING * LOWER_CLOCK) & (tensor.lowest > MORE_CYCLES)
    lasting &= tensor.highest + tensor.lowest + clock.highest + clock.lowest < 2 * LOWER_CLOCK
    usual = np.where(new, 0, -clock.usual / LOWER_CLOCK)
    return _Sign(-clock.values / LOWER_CLOCK, usual, changed | unlike, lasting, tensor.values, tensor.usual, shown.working)


def _busy_sign(shown: _JobLevels) -> _Sign:
    # who waits has less SM activity than before, and a little more beside its tensor activity; so has who waits for one that rests,
    # but so have its siblings, and what it does in that time is less than their work
    tensor, busy, engine = shown.tensor, shown.busy, shown.engine
    own = shown.beside.apart | shown.as_full
    equal = (tensor.over > -_slack(tensor)) & (tensor.over < _slack(tensor) + 0.5 * busy.over)
    beyond = (
        (busy.values > 0) & (shown.own_busy.over > OWN_CHANGE * BUSIER) & (shown.clock.values < LOWER_CLOCK) & (shown.sm.over > -NO_REST)
    )
    changed = (busy.over >= NOISES * busy.noise) & shown.job.slower & equal & beyond & ((engine.over < NO_REST) | own)
    lasting = (busy.lowest > LASTING * BUSIER) & _level(tensor) & ((engine.lowest < NO_REST) | own)
    lasting |= (busy.new_lowest > 2 * BUSIER) & _new_level(tensor) & ((engine.new_lowest < NO_REST) | own)
    return _Sign(busy.values / BUSIER, busy.usual / BUSIER, changed, lasting, busy.values, busy.usual, shown.working)


def _late_sign(shown: _JobLevels) -> _Sign:
    tensor, engine, beside = shown.tensor, shown.engine, shown.beside
    least = RESTING if shown.width == 1 else RESTING_BRIEFLY
    # who rests because it has less to do does less by all of its rest
    no_less = np.isfinite(tensor.over) & (tensor.over > 0.4 * np.log1p(np.clip(engine.over, -0.95, 0)) + 0.02 - _slack(tensor))
    sure = (-engine.over >= np.maximum(NOISES * engine.noise, OUTSTANDING * beside.others_rest)) & (engine.values < -least)
    changed = sure & shown.job.slower & shown.waiting & no_less & _no_common_rest(shown)
    lasting = (engine.highest < -RESTING) & _level(tensor) & (shown.others_engine.lowest > WAITING)
    begins = (shown.others_engine.new_lowest > WAITING_AT_FIRST) & _new_level(tensor) & (beside.of_host < -RESTING)
    lasting |= begins & (-engine.new_highest > np.maximum(2 * RESTING, OUTSTANDING * beside.others_rest))
    slowness, usual = (-np.log1p(np.clip(one, -0.95, 0)) for one in (engine.values, engine.usual))
    changed, lasting = changed & beside.recurs, lasting & beside.recurs
    return _Sign(-engine.values / least, -engine.usual / least, changed, lasting, slowness, usual, np.ones_like(usual))


def _no_common_rest(shown: _JobLevels) -> Flags:
    """Return where the others do not rest too, as all do in a pause; hosts that are read later show it in a later window."""
    rests = shown.others_engine.over <= -NO_REST
    common = ~_in_all(~rests, 2 if shown.width == 1 else 2 * shown.long)
    known = ~rests & ~np.isnan(shown.engine.values)
    twice = _before(np.where(known, -shown.engine.over, 0), shown.width) > RESTING
    return np.asarray(~common & _in_all(known, 2) & ((shown.beside.of_host < -RESTING) | (shown.width > 1) | twice))


def _link_sign(job: _JobWork, replays: Array) -> _Sign:
    nothing = np.zeros_like(replays)
    never = np.zeros(replays.shape, bool)  # however long replays last, the job must do less work
    slowness, usual = nothing - job.log_work, nothing + job.change - job.log_work
    return _Sign(np.where(replays > 0, 2.0, 0), nothing, job.slower & (replays > 0), never, slowness, usual, np.ones_like(usual))


def _slack(tensor: _Level) -> Array:
    """Return how far from equal (log) the work of a device may be that does as much as before."""
    return np.asarray(EQUAL_WORK + np.minimum(tensor.noise, LOWER_CLOCK))


def _level(tensor: _Level) -> Flags:
    return np.asarray(np.abs(tensor.lowest + tensor.highest) < EQUAL_WORK)


def _new_level(tensor: _Level) -> Flags:
    return np.asarray(np.abs(tensor.new_lowest + tensor.new_highest) < 2 * EQUAL_WORK)


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


def _half(width: int) -> int:
    return max(1, width // 2)


def _before(values: Any, width: int) -> Any:
    earlier = np.empty_like(values)
    earlier[:width], earlier[width:] = values[:width], values[:-width]
    return earlier


def _spells(signs: dict[str, _Sign], width: int) -> list[SlowSpell]:
    spells = []
    for name, sign in signs.items():
        over = sign.values - sign.usual
        begun = _before(over, max(1, width // (2 if name == "late" else 3))) > BEGUN[name]
        told = (over >= 1) & sign.told & (begun | (over >= AT_ONCE[name])) | sign.lasting
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
        seen = found + np.flatnonzero(sign.values[found:, device] - level >= 0.5)
        gone = np.flatnonzero(np.diff(seen, prepend=found) > GONE * width)
        seen = np.append(found, seen[: gone[0]] if len(gone) else seen)
        last = int(seen[-1])
        over = last + GONE * width
        end = None if over >= len(told) - 1 else last
        start, longer = max(0, found - width), sign.longer(device, found)
        windows = np.arange(len(told))
        waits = sign.working[:, device] * (1 - 1 / longer)
        waited = np.where((windows >= start) & (windows <= last), np.fmax(waits, 0.0), 0.0)
        spells.append(SlowSpell(device, start, found, end, name, float(np.nanmedian(longer[seen])), waited))
    return spells
