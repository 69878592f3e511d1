"""What do the cumulative cycle counters count: from when, of which SMs, idle too, and how finely?"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from gpu.check import Findings, NotMeasured, check
from gpu.counters import ACTIVITY, NAMES, counts_from, fresh, steps, units
from gpu.machine import WITHOUT_LOAD, Machine
from ullage.benches.running.gpm import ELAPSED, TENSOR, sampler, told

SIZE = 8192
LOOKS = 0.1  # seconds between two looks at the clock within a window
FINE = (100, 0.01)  # how many fast reads for the resolution, and how far apart (s)


@dataclass(frozen=True)
class Moment:
    """A GPM sample with its time (s since 1970) and the SM clocks (Hz) seen on the way to it."""

    sample: Any
    time: float
    clocks: tuple[float, ...] = ()


@check(
    headline="cycles are counted {counted}, over the clock {rate_over_clock_loaded:.3f} loaded and {rate_over_clock_idle:.3f} idle",
    answers={
        "counts_from": "where the counters start",
        "counted": "per SM, summed over the SMs, or neither",
        "units": "by what Δcycles is to be divided: 1 or the number of SMs",
        "rate_over_clock_idle": "Δcycles/Δt over the sampled SM clock and the units, idle (0: the counter stands still)",
        "rate_over_clock_loaded": "the same under a GEMM",
        "tensor_share_error": "largest difference of Δtensor/Δelapsed cycles and GPM's tensor activity, under a GEMM",
        "across_handles": "whether new samples and a new handle go on counting",
        "across_processes": "whether another process sees the same count",
        "smallest_step": "smallest change of the elapsed counter between fast reads, cycles",
        "seconds_between_changes": "median time between changes of the elapsed counter under fast reads, s",
        "told": "counters that the driver tells",
    },
    columns={
        "phase": "idle or loaded",
        "seconds": "of the window",
        "rate": "Δ elapsed cycles / Δt, 1/s",
        "sm_clock": "mean of the samples within the window, Hz",
        "rate_over_clock": "their ratio",
        "tensor_share": "Δ tensor / Δ elapsed cycles",
        "tensor_active": "GPM's activity over the same window",
    },
)
def cycle_counters(machine: Machine) -> Findings:
    """What do the cumulative cycle counters count: from when, of which SMs, idle too, and how finely?

    Samples A, B, C of the idle GPU tell where counting starts (a cumulative counter is the same from A to C as from B
    to C); Δcycles/Δt beside samples of the SM clock tells what is summed; a new handle and another process tell whether
    it resets; a hundred reads 10 ms apart tell how finely it moves. Then the same in one-second windows under a GEMM.
    """
    try:
        with sampler(machine.nvml, machine.handle) as take:
            return _findings(machine, take)
    except machine.nvml.NVMLError as error:
        raise NotMeasured(f"the driver gives no GPM samples ({error})") from error


def _findings(machine: Machine, take: Callable[[], Any]) -> Findings:
    first = Moment(take(), machine.clock() / 1000)
    idle = [_after(machine, take, 1.0), _after(machine, take, 2.0)]
    start = _start(machine, first, idle)
    if start == "unclear" and machine.load:  # it stands still on an idle GPU
        with machine.load(SIZE):
            start = _start(machine, idle[-1], [_after(machine, take, 1.0), _after(machine, take, 1.0)])
    handles, processes, notes = _resets(machine, take, first, start)
    windows = [_window(machine, first, "idle", *idle)]
    loaded, fine = _loaded(machine, take, first)
    windows += loaded
    counted = units(windows[-1]["rate"], windows[-1]["sm_clock"], machine.sms)
    return Findings(
        settings={
            "gemm": SIZE if machine.load else None,
            "load": machine.load_name,
            "fast_reads": FINE[0],
            "fast_interval": FINE[1],
            "sms": machine.sms,
        },
        answers={
            "counts_from": start,
            "counted": "neither" if counted is None else "per SM" if counted == 1 else "summed over the SMs",
            "units": counted,
            "rate_over_clock_idle": _over_clock(windows[:1], counted),
            "rate_over_clock_loaded": _over_clock(loaded, counted),
            "tensor_share_error": _share_error(loaded),
            "across_handles": handles,
            "across_processes": processes,
            **fine,
            "told": " ".join(told(machine.nvml, first.sample, idle[-1].sample, NAMES)),
        },
        rows=windows,
        notes=notes + ([] if machine.load else [WITHOUT_LOAD]),
        wrong=["the counters are differences, and the reader takes them as cumulative"] if start == "the older sample" else [],
    )


def _after(machine: Machine, take: Callable[[], Any], seconds: float) -> Moment:
    """Wait, looking at the clock, and take a sample."""
    clocks, end = [], machine.clock() + 1000 * seconds
    while machine.clock() < end:
        machine.sleep(LOOKS)
        megahertz = machine.ask("nvmlDeviceGetClockInfo", machine.handle, machine.nvml.NVML_CLOCK_SM)
        clocks += [] if megahertz is None else [megahertz * 1e6]
    return Moment(take(), machine.clock() / 1000, tuple(clocks))


def _start(machine: Machine, first: Moment, idle: list[Moment]) -> str:
    pairs = ((first, idle[0]), (idle[0], idle[1]), (first, idle[1]))
    values = [told(machine.nvml, older.sample, newer.sample).get(ELAPSED) for older, newer in pairs]
    known = [value for value in values if value is not None]
    if len(known) < 3:
        raise NotMeasured("the driver tells no cycle counters (NVML GPM 248 to 260)")
    return counts_from(*known)


def _resets(machine: Machine, take: Callable[[], Any], first: Moment, start: str) -> tuple[str, str, list[str]]:
    """Return whether a new handle and another process go on counting, and notes."""
    if start != "the start of the driver":
        return "not asked", "not asked", []

    def level() -> float:
        return told(machine.nvml, first.sample, take())[ELAPSED]

    before = level()
    handle = machine.nvml.nvmlDeviceGetHandleByIndex(machine.index)
    other = fresh(machine.nvml, handle, machine.sleep).get(ELAPSED)
    between = level()
    try:
        elsewhere, notes = json.loads(machine.elsewhere(machine.index)).get(ELAPSED), []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        elsewhere, notes = None, [f"another process could not read the counters ({type(error).__name__})"]
    return _continues(before, other, between), _continues(between, elsewhere, level()), notes


def _continues(before: float, value: float | None, after: float) -> str:
    if value is None:
        return "unclear"
    return "goes on" if before <= value <= after else "starts anew" if value < before else "unclear"


def _loaded(machine: Machine, take: Callable[[], Any], first: Moment) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the windows under load (none without one) and the resolution, under load if there is one."""
    if machine.load is None:
        return [], _resolution(machine, take, first)
    with machine.load(SIZE):
        moments = [_after(machine, take, 1.0) for _ in range(6)]
        fine = _resolution(machine, take, first)
    return [_window(machine, first, "loaded", *pair) for pair in pairwise(moments)], fine


def _window(machine: Machine, first: Moment, phase: str, begin: Moment, end: Moment) -> dict[str, Any]:
    """Return what was counted between two moments. Levels are asked from the first sample, so that both kinds of counter serve."""
    low, high = (told(machine.nvml, first.sample, moment.sample) for moment in (begin, end))
    seconds, cycles = end.time - begin.time, high[ELAPSED] - low[ELAPSED]
    clock = fmean(end.clocks) if end.clocks else 0.0
    activity = told(machine.nvml, begin.sample, end.sample, (ACTIVITY,)).get(ACTIVITY)
    known = TENSOR in high and TENSOR in low and cycles
    return {
        "phase": phase,
        "seconds": seconds,
        "rate": cycles / seconds,
        "sm_clock": clock,
        "rate_over_clock": cycles / seconds / clock if clock else None,
        "tensor_share": (high[TENSOR] - low[TENSOR]) / cycles if known else None,
        "tensor_active": None if activity is None else activity / 100,
    }


def _resolution(machine: Machine, take: Callable[[], Any], first: Moment) -> dict[str, float | None]:
    reads: list[tuple[float, float]] = []
    for _ in range(FINE[0]):
        machine.sleep(FINE[1])
        reads.append((told(machine.nvml, first.sample, take(), (ELAPSED,))[ELAPSED], machine.clock() / 1000))
    return steps([value for value, _ in reads], [time for _, time in reads])


def _over_clock(windows: list[dict[str, Any]], counted: int | None) -> float | None:
    ratios = [window["rate_over_clock"] for window in windows if window["rate_over_clock"] is not None]
    return median(ratios) / (counted or 1) if ratios else None


def _share_error(windows: list[dict[str, Any]]) -> float | None:
    told_both = [w for w in windows if w["tensor_share"] is not None and w["tensor_active"] is not None]
    return max((abs(w["tensor_share"] - w["tensor_active"]) for w in told_both), default=None)
