"""A job's steps and a GPU's clock, and what counters make of them.

A job repeats a step: compute, then communication, then waiting for the host. Where a window begins and ends inside a
step is worked out exactly, so activity beats with the scrape interval as it does in a real fleet. A course is an array
[gpus, len(LOAD), windows]: the load of each GPU in each of its windows; it is constant within a window.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.simulate.specification import (
    CLOCK_MEMORY,
    HIGHEST_LOAD_CLOCK,
    LOAD_CLOCK,
    LOAD_CLOCK_DEVIATION,
    LOWEST_LOAD_CLOCK,
    SimulatedChip,
)
from ullage.units import TO_SI

Array = npt.NDArray[np.float64]

# The rows of a load; all but the first two and the last two are shares.
LOAD = ("step", "phase", "compute", "communication", "sm", "communication_sm", "tensor", "dram", "clock", "alternates", "memory", "limits")
STEP, PHASE, COMPUTE, COMMUNICATION, SM, COMMUNICATION_SM, TENSOR, DRAM, CLOCK, ALTERNATES, MEMORY, LIMITS = range(len(LOAD))

# nvml.h, nvmlClocksEventReason…: why the clock is not at its highest
IDLE, APPLICATION_CLOCK, POWER_CAP, SLOWDOWN, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x1, 0x2, 0x4, 0x8, 0x20, 0x40, 0x80
HOT = 25.0  # degrees by which a GPU that heat slows is warmer than its power makes it
EMPTY_MEMORY = 600 * TO_SI["MiB"]  # what the driver keeps for itself, about
TENSOR_NOISE, POWER_NOISE = 0.01, 0.015


def load(
    *,
    step: float,
    compute: float,
    communication: float,
    tensor: float,
    phase: float = 0.0,
    sm: float = 0.9,
    communication_sm: float = 0.2,
    dram: float = 0.4,
    clock: float = 1.0,
    alternates: bool = False,
    memory: float = 0.8,
    limits: int = POWER_CAP,
) -> Array:
    """Return the load vector of a job: the step in seconds, the shares of it in compute and communication (the rest waits).

    `sm`, `tensor`, `dram` are activities while computing, `communication_sm` the SM activity while communicating; `clock`
    is relative to the chip's load clock; with `alternates` the clock follows the step, up to boost while waiting;
    `memory` is a share of the device's.
    """
    assert step > 0 and compute + communication <= 1 and tensor <= sm
    return np.array(
        [step, phase, compute, communication, sm, communication_sm, tensor, dram, clock, alternates, memory, limits], dtype=np.float64
    )


def idle_load(memory: float = 0.0) -> Array:
    """Return the load vector of a GPU on which nothing runs; `memory` is the share that somebody holds nevertheless."""
    return np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 1.0, 0, memory, IDLE], dtype=np.float64)


def expected_ofu(loads: Array, device: SimulatedChip) -> Array:
    """Return the OFU that loads [..., len(LOAD)] come to in the long run: compute x tensor activity x load clock / tensor clock."""
    result: Array = loads[..., COMPUTE] * loads[..., TENSOR] * loads[..., CLOCK] * device.load_clock / device.tensor_clock
    return result


@dataclass(frozen=True)
class HostReadings:
    """What the GPUs of one host read: `values` has an array [gpus, windows] per field, in SI units, as the exporter rounds it.

    `tensor_cycles`, `sm_cycles`, `sm_active_cycles` are the truth: cycles of each window, per SM on average.
    """

    values: dict[str, Array]
    tensor_cycles: Array
    sm_cycles: Array
    sm_active_cycles: Array


def time_in_phase(turns: Array, begin: Array, share: Array) -> Array:
    """Return how much of `turns` steps from 0 lies in the phase from `begin` to `begin + share` of each step, in steps.

    Two and a half steps with a phase over the first half: half of each of three steps.

    >>> float(time_in_phase(np.array(2.5), np.array(0.0), np.array(0.5)))
    1.5
    """
    whole = np.floor(turns)
    result: Array = whole * share + np.clip(turns - whole - begin, 0, share)
    return result


def clock_noise(draws: Array, interval: float) -> tuple[Array, Array]:
    """Return a unit-variance AR(1) series at the n + 1 window boundaries, and its mean within each of the n windows.

    It is an Ornstein-Uhlenbeck process of `CLOCK_MEMORY` seconds, sampled exactly: given both ends the mean of a window is
    normal with a known mean and variance. `draws` are normal numbers [gpus, 2, n + 1].
    """
    age = interval / CLOCK_MEMORY
    kept = float(np.exp(-age))
    ends = draws[:, 0] * np.sqrt(1 - kept**2)
    ends[:, 0] = draws[:, 0, 0]
    # 1 / (1 - kept L) as the product of (1 + kept^(2^i) L^(2^i)): a recursion in a few whole-array steps
    lag, weight = 1, kept
    while lag < ends.shape[1] and weight > 1e-12:
        ends[:, lag:] += weight * ends[:, :-lag].copy()
        lag, weight = 2 * lag, weight**2
    pull = np.tanh(age / 2) / age
    spread = np.sqrt(max(0.0, 2 / age**2 * (age - 1 + kept) - 2 * pull * (1 - kept) / age))
    return ends, pull * (ends[:, :-1] + ends[:, 1:]) + spread * draws[:, 1, 1:]


def readings(
    course: Array, times: npt.NDArray[np.int64], origin: int, device: SimulatedChip, draws: Array, interval: float, wanted: Collection[str]
) -> HostReadings:
    """Return what GPUs of one model read under a course of loads.

    `times` are the n + 1 boundaries in ms, `origin` the time of phase 0; `draws` are normal numbers [gpus, 4, n + 1];
    `wanted` are fields.
    """
    seconds = (times - origin) / 1000
    span = np.diff(seconds)
    row = dict(zip(LOAD, np.moveaxis(course, 1, 0), strict=True))
    computing, communicating, position = _phases(row, seconds, span)
    busy = computing + communicating
    ends, means = clock_noise(draws[:, :2], interval)
    now, mean = _clock(ends[:, 1:], row, device), _clock(means, row, device)
    follows = row["alternates"] > 0
    loaded = np.where(follows, position < row["compute"] + row["communication"], busy > 0)
    works = np.where(follows, busy, busy > 0)  # the share of the window at the load clock; otherwise the clock is at boost
    elapsed = span * (works * mean + (1 - works) * device.boost)
    tensor = np.minimum(row["tensor"] * (1 + TENSOR_NOISE * draws[:, 2, 1:]), row["sm"])
    tensor_cycles = span * computing * mean * tensor
    sm_active = span * mean * (computing * row["sm"] + communicating * row["communication_sm"])
    values = {
        "gr_active": np.round(busy, 6),
        "sm_active": np.round(sm_active / elapsed, 6),
        "tensor_active": np.round(tensor_cycles / elapsed, 6),
        "sm_clock": np.round(np.where(loaded, now, device.boost) / 1e6) * 1e6,
        "gpu_util": np.where(busy > 0, 1 - np.round(0.6 * np.abs(draws[:, 3, 1:])) / 100, 0.0),
    }
    now_in = np.where(position < row["compute"], 1.0, 0.0), np.where(position < row["compute"], 0.0, np.where(loaded, 1.0, 0.0))
    values |= _slow(row, values, computing, communicating, now_in, device, draws[:, 3], span, wanted)
    return HostReadings(values, tensor_cycles, elapsed, sm_active)


def _phases(row: dict[str, Array], seconds: Array, span: Array) -> tuple[Array, Array, Array]:
    """Return the share of each window in compute and in communication, and the position in the step at its end."""
    begin, end = seconds[:-1] / row["step"] + row["phase"], seconds[1:] / row["step"] + row["phase"]
    scale = row["step"] / span
    compute, communication = row["compute"], row["communication"]
    computing = scale * (time_in_phase(end, 0 * end, compute) - time_in_phase(begin, 0 * begin, compute))
    communicating = scale * (time_in_phase(end, compute, communication) - time_in_phase(begin, compute, communication))
    return np.clip(computing, 0, 1), np.clip(communicating, 0, 1 - np.clip(computing, 0, 1)), end - np.floor(end)


def _clock(noise: Array, row: dict[str, Array], device: SimulatedChip) -> Array:
    hertz = np.clip(LOAD_CLOCK + LOAD_CLOCK_DEVIATION * noise, LOWEST_LOAD_CLOCK, HIGHEST_LOAD_CLOCK)
    result: Array = hertz * (device.load_clock / LOAD_CLOCK) * row["clock"]
    return result


def _power(effort: Array, row: dict[str, Array], noise: Array, device: SimulatedChip) -> Array:
    drawn = device.idle_power + (device.power - device.idle_power) * np.clip(effort, 0, 1) * np.minimum(1, row["clock"])
    result: Array = np.clip(drawn * (1 + POWER_NOISE * noise), 0.9 * device.idle_power, device.power)
    return result


def _slow(
    row: dict[str, Array],
    values: dict[str, Array],
    computing: Array,
    communicating: Array,
    now_in: tuple[Array, Array],
    device: SimulatedChip,
    draws: Array,
    span: Array,
    wanted: Collection[str],
) -> dict[str, Array]:
    """Return the fields that follow from activity: memory traffic, power and what comes of it.

    `now_in` says whether a scrape meets the compute and the communication phase: where the clock follows the step, so does power.
    """
    first, noise = draws[:, :1], draws[:, 1:]
    found: dict[str, Array] = {}
    if "dram_active" in wanted:
        found["dram_active"] = np.round(computing * row["dram"] + 0.1 * communicating, 6)
    if "memory_clock" in wanted:
        found["memory_clock"] = np.full_like(span + computing, device.memory_clock)  # high-bandwidth memory keeps its clock at rest, too
    if "memory_used" in wanted:
        found["memory_used"] = np.round((EMPTY_MEMORY + row["memory"] * (device.memory - 2 * EMPTY_MEMORY)) / TO_SI["MiB"]) * TO_SI["MiB"]
    if "throttle" in wanted:
        found["throttle"] = row["limits"]
    if {"power", "energy", "temperature"} & set(wanted):
        power = _power(0.35 * values["gr_active"] + 0.25 * values["sm_active"] + 0.8 * values["tensor_active"], row, noise, device)
        phases = (0.35 + 0.25 * row["sm"] + 0.8 * row["tensor"], 0.35 + 0.25 * row["communication_sm"])
        at_once = _power(now_in[0] * phases[0] + now_in[1] * phases[1], row, noise, device)
        mean = _power(computing * phases[0] + communicating * phases[1], row, noise, device)
        read: Array = np.where(row["alternates"] > 0, at_once, power)
        found["power"] = np.round(read, 3)
        drawn: Array = np.where(row["alternates"] > 0, mean, power)
        hot: Array = np.where(row["limits"].astype(np.int64) & (SOFTWARE_THERMAL | HARDWARE_THERMAL), HOT, 0.0)
        found["temperature"] = np.round(28 + 45 * drawn / device.power + 0.5 * noise + hot)
        found["energy"] = np.floor(1e8 * np.abs(first) + np.cumsum(drawn * span, axis=1))
    return {name: column for name, column in found.items() if name in wanted}
