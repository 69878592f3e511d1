"""PM sampling of this machine's GPUs as telemetry: what the hardware counted in each interval, as rows of the samples table.

The hardware counts in short samples of its own; they are added up, and ratios are taken last. Cycles are those of an SM on average, so
that `u` of the exact OFU (Ullage equations, section 2) is 1. The clock is the cycles that elapsed by the seconds that did: a true mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.counters.pm import BUFFER, BufferSetting, Samples, Sampling
from ullage.cupti.counters.target import chip_name, hindrances
from ullage.cupti.counters.wanted import wanted
from ullage.cupti.driver import cuda_version
from ullage.cupti.library import Library, find
from ullage.cupti.metric_names import dictionary
from ullage.cupti.permissions import COUNTERS, diagnose
from ullage.cupti.results import CuptiError, explain
from ullage.cupti.surroundings import surroundings
from ullage.errors import UllageError
from ullage.live.cuda_devices import CudaDevice, cuda_devices
from ullage.problems import Problems
from ullage.sources.machine import DeviceReading, GpuLibrary, rows
from ullage.sources.source import Options

Numbers = npt.NDArray[np.float64]
Metrics = Mapping[str, str]  # the metric of each quantity: CYCLES, and shares in percent by the field that they fill

STEP = 10_000_000  # ns of a hardware sample: its counts are whole, so a longer one loses nothing, and far from 2^32 cycles
ROOM = 1024  # hardware samples that are read at once
SAMPLE = 1 << 17  # bytes of the hardware's buffer that a sample takes, at most: 80 kB for eight metrics on an H200
MOST_BUFFER = 512 << 20  # bytes of that buffer, which is doubled when it ran over: what NVIDIA's own example takes
GAP = 0.01  # of an interval: where more is missing, nobody knows by how much the counters grew
CYCLES = "cycles"
_ELAPSED = "sm__cycles_elapsed.avg"
_ENGINE = "gr__cycles_active.avg.pct_of_peak_sustained_elapsed"
OVER_CYCLES, OVER_TIME = ("tensor_active", "sm_active"), ("dram_active", "gr_active")  # what each share is weighted by
COUNTED = {"tensor_active": "tensor_cycles", "sm_active": "sm_active_cycles"}  # the counters that shares of SM cycles make
UNITS = {
    **dict.fromkeys((*OVER_CYCLES, *OVER_TIME), "1"), "sm_clock": "Hz", **dict.fromkeys(("sm_cycles", *COUNTED.values()), "cycles")
}  # fmt: skip


def metrics(chip: str, release: str | None = None) -> dict[str, str]:
    """Return what is sampled on a chip: one pass from Ampere on. Raises UllageError for a chip that counts no tensor cycles.

    >>> metrics("GH100")["cycles"], "dram_active" in metrics("GA100")
    ('sm__cycles_elapsed.avg', True)
    """
    known = [metric.name for metric in dictionary.metrics(chip, release if release in dictionary.releases(chip) else None)]
    found = {name: metric for name, metric in wanted("device", known).items() if name in OVER_CYCLES + OVER_TIME}
    if "tensor_active" not in found:
        raise UllageError(f"the chip {chip} has no counter of tensor activity", "PM sampling of it can't give OFU")
    return found | {CYCLES: _ELAPSED} | ({"gr_active": _ENGINE} if dictionary.base(_ENGINE) in known else {})


class CycleTally:
    """What a GPU has counted since sampling began, cycles of an SM on average; `take` adds samples and returns what they say."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.totals = dict.fromkeys(("sm_cycles", *COUNTED.values()), 0.0)
        self.lost = 0  # ns without a sample
        self._end: int | None = None

    def take(self, samples: Samples) -> dict[str, float]:
        """Return the fields of one interval in SI units; what its samples can't tell is absent, as are the counters after a gap."""
        seconds = (samples.end - samples.start).astype(np.float64) / 1e9
        cycles = samples[self.metrics[CYCLES]]
        told = {name: _mean(samples[metric] / 100, cycles if name in OVER_CYCLES else seconds) for name, metric in self._shares()}
        told["sm_clock"] = _mean(cycles / seconds, seconds)
        missing = self._missing(samples)
        self.lost += missing
        whole = bool(np.isfinite(cycles).all()) and missing <= GAP * (seconds.sum() * 1e9 + missing)
        return {name: value for name, value in (told | self._grown(told, cycles, whole)).items() if np.isfinite(value)}

    def _shares(self) -> list[tuple[str, str]]:
        return [(name, metric) for name, metric in self.metrics.items() if name != CYCLES]

    def _grown(self, told: Mapping[str, float], cycles: Numbers, whole: bool) -> dict[str, float]:
        elapsed = float(np.nansum(cycles))
        self.totals["sm_cycles"] += elapsed
        for share, counter in COUNTED.items():
            self.totals[counter] += elapsed * np.nan_to_num(told.get(share, 0.0))
        counted = {"sm_cycles", *(counter for share, counter in COUNTED.items() if np.isfinite(told.get(share, np.nan)))}
        return {name: round(total) for name, total in self.totals.items() if whole and name in counted}

    def _missing(self, samples: Samples) -> int:
        """How many ns before and between these samples have none."""
        before = samples.start[0] if self._end is None else self._end
        self._end = int(samples.end[-1])
        gaps = samples.start - np.concatenate(([before], samples.end[:-1]))
        return int(gaps[gaps > 0].sum())


def _mean(values: Numbers, weights: Numbers) -> float:
    """The weighted mean over the samples that have both; NaN where none has."""
    known = np.isfinite(values) & np.isfinite(weights)
    weight = weights[known].sum()
    return float((values[known] * weights[known]).sum() / weight) if weight > 0 else np.nan


class _Gpu:
    """A GPU that is being sampled."""

    def __init__(
        self, device: CudaDevice, metrics: Metrics, sampling: Callable[[int], Sampling], problems: Problems, buffer: int = BUFFER
    ) -> None:
        self.device, self.problems = device, problems
        self._made, self._tally = sampling, CycleTally(metrics)
        self._lost = 0
        self._sampling: Sampling | None = self._begin(buffer)
        if self._sampling.refused:
            problems.note(f"GPU {device.ordinal} {_setting_words(self._sampling)}")

    def close(self) -> None:
        """End to sample it."""
        sampling, self._sampling = self._sampling, None
        if sampling is not None:
            with suppress(UllageError):
                sampling.__exit__(None, None, None)

    def read(self) -> DeviceReading | None:
        """Return what it counted since the last reading; None where nothing came."""
        if self._sampling is None:
            return None
        try:
            samples = self._sampling.drain()
            if samples.overflow:
                self._again()
        except UllageError as error:
            self.close()
            self.problems.note(f"PM sampling of GPU {self.device.ordinal} ended before the program did: {error.problem}")
            return None
        return self._told(samples) if len(samples) else None

    def _told(self, samples: Samples) -> DeviceReading:
        values = self._tally.take(samples)
        lost = round((self._tally.lost - self._lost) / float(np.median(samples.end - samples.start)))
        self._lost = self._tally.lost if lost else self._lost
        self.problems.drop("PM samples that were lost", lost, where=f"GPU {self.device.ordinal}")
        return DeviceReading(self.device.uuid, self.device.ordinal, self.device.name, values)

    def _again(self) -> None:
        """Begin anew, with more room: after an overflow nothing comes any more."""
        self.problems.drop("times that a GPU's buffer of PM samples ran over, and what was in it", where=f"GPU {self.device.ordinal}")
        assert self._sampling is not None
        size = self._sampling.setting.buffer
        self.close()
        self._sampling = self._begin(min(2 * size, MOST_BUFFER))

    def _begin(self, buffer: int) -> Sampling:
        sampling = self._made(buffer)
        sampling.__enter__()
        return sampling


def _setting_words(sampling: Sampling) -> str:
    """Return what a GPU's samples are kept in, and what CUPTI refused before."""
    used, first, more = sampling.setting, sampling.refused[0], len(sampling.refused) - 1
    answer = f"{first.error.function}: {explain(first.error.code).name}"
    return (
        f"keeps the {used.keep} PM samples in {_mebibytes(used)} until they are read: CUPTI refused the {first.setting.keep} in "
        f"{_mebibytes(first.setting)} ({answer})" + (f" and {more} more" if more else "")
    )


def _mebibytes(setting: BufferSetting) -> str:
    return f"{setting.buffer / 2**20:g} MiB"


@contextmanager
def opened(
    options: Options,
    problems: Problems,
    host: str,
    *,
    library: Library | None = None,
    devices: Sequence[CudaDevice] | None = None,
    chosen: Callable[[str, str | None], Metrics] = metrics,
) -> Iterator[GpuLibrary]:
    """Sample every GPU that CUDA shows for as long as the body runs; a reading's activities are those since the one before.

    A GPU that refuses is noted, with the reason. Raises UllageError where all do. `chosen` says what is sampled on a chip of a release.
    """
    found = library or find()
    _ = found.release  # a library that can't say which it is must not be asked for more
    with ExitStack() as stack:
        gpus = []
        for device in cuda_devices() if devices is None else devices:
            try:
                gpus.append(_begun(found, device, chosen, problems, buffer_for(options.interval)))
            except UllageError as error:
                problems.note(f"GPU {device.ordinal} ({device.name}) can't be sampled: {explained(error)}")
                continue
            stack.callback(gpus[-1].close)
        if not gpus:
            raise UllageError(problems.notes[-1] if problems.notes else "CUDA shows no GPU", "`ullage cupti check` says more")
        read = lambda moment: rows(moment, host, [told for gpu in gpus if (told := gpu.read())], UNITS, options, problems)  # noqa: E731
        yield GpuLibrary(read=read, shortest=5 * STEP / 1e9)


def buffer_for(interval: float) -> int:
    """Return the bytes of the hardware's buffer that hold what is sampled in twice an interval (s).

    Read every second it holds 200 samples of 10 ms, 128 KiB each at most: 25 MiB, and the next power of two is 32.

    >>> [buffer_for(seconds) >> 20 for seconds in (0.05, 1, 15, 600)]
    [8, 32, 512, 512]
    """
    needed = 2e9 * interval / STEP * SAMPLE
    return min(MOST_BUFFER, max(BUFFER, 1 << math.ceil(math.log2(max(needed, 1)))))


def _begun(library: Library, device: CudaDevice, chosen: Callable[[str, str | None], Metrics], problems: Problems, buffer: int) -> _Gpu:
    if device.exclusive:
        raise UllageError("it serves one process at a time (compute mode EXCLUSIVE_PROCESS), which is to be the program")
    if against := hindrances(library, device.ordinal, sampling=True):
        raise UllageError(", ".join(against))
    names = chosen(chip_name(library, device.ordinal), library.release.name)

    def sampling(buffer: int) -> Sampling:
        return Sampling(tuple(names.values()), device.ordinal, interval=STEP, room=ROOM, buffer=buffer, library=library)

    return _Gpu(device, names, sampling, problems, buffer)


def explained(error: UllageError, here: Any = None) -> str:
    """Return why counters were refused, and what to do: what stands in the way on this machine, where that is known."""
    if not isinstance(error, CuptiError):
        return f"{error.problem} ({error.hint})" if error.hint else error.problem
    findings = [finding for finding in diagnose(here or surroundings(driver=cuda_version())) if COUNTERS in finding.stops]
    do = f"{findings[0].what}: {findings[0].do}" if findings else error.hint
    return f"{error.problem} ({do})"
