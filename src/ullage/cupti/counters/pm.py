"""Counters of a whole GPU over time: PM sampling reads them every so many nanoseconds, whatever runs and whoever runs it.

What a person should know before using it beside a job: it sees every process of the GPU; it needs the same privileges as all counters and
excludes DCGM's profiling fields; PyTorch's authors report that it locks the clocks while it samples, so that kernels take other times;
and on an H100 with CUDA 12.8 somebody reports that the records of kernels (`activity`) stay away while it is on. It is therefore never
switched on unasked.

Source: `cupti_pmsampling.h`. How decoding behaves (a full image loses samples, an overflow is for good, samples without a time) is not
in the header; it was reported for CUDA 13.3 on an H100, and the code below reckons with it. Seen on an H200 (driver 580, CUPTI 13.0;
results/nvidia-h200/cupti_pm_sampling.json): the first sample after a start is made by no interval, its time goes back seconds and its
counts are those since the start; a sample of eight metrics takes some 80 kB of the hardware's buffer; clocks are not locked, and the
records of kernels come.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ullage.cupti.counters import target
from ullage.cupti.counters.host import Host, Use, config_passes
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.counters.structures import call, parameters, room
from ullage.cupti.library import Library, find
from ullage.cupti.results import INVALID_PARAMETER, NOT_SUPPORTED, OUT_OF_MEMORY, CuptiError
from ullage.errors import UllageError

MILLISECOND = 1_000_000  # ns
_CYCLES, _NANOSECONDS = 0, 1  # CUpti_PmSampling_TriggerMode
_OLDEST, _LATEST = 0, 1  # CUpti_PmSampling_HardwareBuffer_AppendMode
_FULL = 1  # CUpti_PmSampling_DecodeStopReason
Keep = Literal["oldest", "latest"]
# Bytes of the hardware's buffer: public programs that are known to run on GPUs take 2 to 64 MiB. A small BAR and MIG instances are said
# to refuse the large ones; so it begins in the middle, and is halved down to the least.
BUFFER, LEAST = 8 << 20, 1 << 19
IMAGES = 64  # that are read in a row: a GPU that samples faster than this reads would else never be done


@dataclass(frozen=True)
class Samples:
    """What was sampled since the last time: `start` and `end` in ns of the GPU's clock, a column of `values` a metric.

    `overflow`: the hardware's buffer ran over; nothing comes any more from this sampling. `full`: more samples were waiting than the
    image holds: they were read into the next one, unless CUPTI lost them (then there are gaps between the times). `untimed` samples came
    without a time, as CUPTI gives them after it lost some; they are left out.
    """

    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    metrics: tuple[str, ...]
    values: npt.NDArray[np.float64]
    overflow: bool = False
    full: bool = False
    untimed: int = 0

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, metric: str) -> npt.NDArray[np.float64]:
        return self.values[:, self.metrics.index(metric)]


@dataclass(frozen=True)
class BufferSetting:
    """How a GPU keeps samples until they are read: what stays in its `buffer` (bytes) when that runs over."""

    keep: Keep
    buffer: int


@dataclass(frozen=True)
class RefusedSetting:
    """A setting that CUPTI did not take, and what it answered."""

    setting: BufferSetting
    error: CuptiError


@dataclass(frozen=True)
class _Decoded:
    count: int
    overflow: bool
    full: bool


class Sampling:
    """Samples metrics (complete names, one pass in all) of a GPU while the `with` lasts.

        with Sampling(metrics, interval=MILLISECOND) as sampling:
            work()
            samples = sampling.drain()          # again and again while it runs
        rest = sampling.drain()

    `interval` is in ns. Turing and GA100 have no trigger in time: there it is in cycles of the system clock, and the samples' own times
    say how long they were. `room` is how many samples are read at once. `keep` says what stays when the hardware's buffer runs over:
    "oldest" stops there and reports it, "latest" keeps a ring of the newest (not on Turing and not before CUPTI 12.8). Without it "oldest"
    is asked for first: with a ring nothing may be read before sampling stops, as was reported. A `buffer` (bytes) that is refused is
    halved, down to 512 KiB; `setting` is what was taken, `refused` what wasn't. Raises UllageError, on entering, for metrics that need
    several passes; CuptiError where counters are forbidden, or somebody samples already (`counters_taken`).
    """

    setting: BufferSetting

    def __init__(
        self, metrics: Sequence[str], device: int = 0, *, interval: int = MILLISECOND, room: int = 4096, buffer: int = BUFFER,
        keep: Keep | None = None, library: Library | None = None,
    ) -> None:  # fmt: skip
        if not metrics:
            raise UllageError("there is no metric to sample", "`ullage cupti metrics CHIP` lists them")
        if interval < 1 or room < 1 or buffer < 1:
            raise UllageError(
                f"a GPU can't be sampled every {interval} ns, {room} samples at a time, into {buffer} bytes", "give numbers above 0"
            )
        self.metrics, self.device, self.interval, self.room, self.buffer, self.keep = tuple(metrics), device, interval, room, buffer, keep
        self.refused: list[RefusedSetting] = []
        self._library = library
        self._object: int | None = None
        self._host: Host | None = None
        self._running = False
        self._first = True  # whether the next sample is the first after a start
        self._rest: Samples | None = None

    def __enter__(self) -> Sampling:
        self.library = self._library or find()
        target.begin(self.library)
        self.chip = target.chip_name(self.library, self.device)
        available = target.availability(self.library, "cuptiPmSamplingGetCounterAvailability", deviceIndex=self.device)
        try:
            self._host = Host(self.library, self.chip, Use.SAMPLING, available)
            config = self._host.config(self.metrics)
            self._refuse_passes(config_passes(self.library, config))
            self._start_first_accepted(config)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._running:
                self._running = False
                with contextlib.suppress(UllageError) if kind else contextlib.nullcontext():
                    self._ask("Stop", "ending to sample")
                    self._rest = self._drain_images()
        finally:
            self._close()

    def drain(self) -> Samples:
        """Return the samples that have come since the last call; after the `with`, those that were left."""
        if self._running:
            return self._drain_images()
        rest, self._rest = self._rest, None
        return rest if rest is not None else self._samples([], [])

    def image(self) -> CounterImage:
        """Return the samples that have come since the last call as the GPU's own counter data, to be evaluated elsewhere (`evaluate`).

        They are taken instead of by `drain`, while the `with` lasts. A sample that covers no time is none: leave it out.
        """
        if not self._running:
            raise UllageError("sampling is over, and its counter data are gone", "take them inside the `with`")
        decoded = self._decode()
        times = self._times(decoded.count)
        if self._first and times:  # it can't be taken out of the image, but covers no time
            self._first, times[0] = False, (times[0][1], times[0][1])
        image = CounterImage("pm", self.chip, self.metrics, self.library.version, bytes(self._data), times=tuple(times))
        self._empty()
        return image

    def _refuse_passes(self, passes: int) -> None:
        if passes > 1:
            raise UllageError(
                f"these {len(self.metrics)} metrics need {passes} passes on {self.chip}, and sampling has one",
                f"`ullage cupti plan {self.chip} … --mode pm` says which fit together",
            )

    def _start_first_accepted(self, config: bytes) -> None:
        """Start with the first setting that is taken. Raises what the first one was answered where none is."""
        for keep in self._keep_order():
            buffer = self.buffer
            while buffer >= min(LEAST, self.buffer):
                setting = BufferSetting(keep, buffer)
                try:
                    return self._start(config, setting)
                except CuptiError as error:
                    self.refused.append(RefusedSetting(setting, error))
                    self._give_back()
                    if error.code not in (INVALID_PARAMETER, OUT_OF_MEMORY, NOT_SUPPORTED):
                        raise
                    if error.code == NOT_SUPPORTED:  # which is no matter of size
                        break
                buffer //= 2
        raise self.refused[0].error

    def _keep_order(self) -> tuple[Keep, ...]:
        if self.chip.startswith("TU"):
            return ("oldest",)
        return ("oldest", "latest") if self.keep is None else (self.keep,)

    def _start(self, config: bytes, setting: BufferSetting) -> None:
        begun = call(self.library, "cuptiPmSamplingEnable", "beginning to sample", deviceIndex=self.device)
        self._object = begun.pPmSamplingObject
        self._configure(config, setting)
        self._ask("Start", "beginning to sample")
        self.setting, self._running, self._first = setting, True, True

    def _configure(self, config: bytes, setting: BufferSetting) -> None:
        early = self.chip.startswith("TU") or self.chip == "GA100"
        self._config = room(len(config))
        self._config[:] = config
        self._ask(
            "SetConfig", "choosing what to sample", configSize=len(config), pConfig=self._config, hardwareBufferSize=setting.buffer,
            samplingInterval=self.interval, triggerMode=_CYCLES if early else _NANOSECONDS,
            hwBufferAppendMode=_LATEST if setting.keep == "latest" else _OLDEST,
        )  # fmt: skip
        size = self._ask(
            "GetCounterDataSize", "making room for samples", pMetricNames=self.metrics, numMetrics=len(self.metrics), maxSamples=self.room
        ).counterDataSize  # asked once: with another number of samples CUPTI refuses to empty this image again
        self._data = room(size)
        self._empty()

    def _empty(self) -> None:
        self._ask("CounterDataImageInitialize", "making room for samples", counterDataSize=len(self._data), pCounterData=self._data)

    def _decode(self) -> _Decoded:
        held, overflow = self._held, False
        try:
            told = self._ask("DecodeData", "reading samples", **held)
            overflow, full = bool(told.overflow), told.decodeStopReason == _FULL
        except CuptiError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            overflow, full = True, False
        count = call(self.library, "cuptiPmSamplingGetCounterDataInfo", "reading samples", **held).numCompletedSamples
        return _Decoded(min(count, self.room), overflow, full)

    def _drain_images(self) -> Samples:
        """Read image after image, until what was waiting fits one."""
        parts = [self._decoded()]
        while parts[-1].full and len(parts) < IMAGES:
            parts.append(self._decoded())
        return _joined_samples(parts)

    def _decoded(self) -> Samples:
        decoded = self._decode()
        if not decoded.count:
            return self._samples([], [], decoded.overflow, decoded.full)
        times, rows = self._times(decoded.count), self._values(decoded.count)
        self._empty()
        since, self._first = int(self._first), False
        return self._samples(times[since:], rows[since:], decoded.overflow, decoded.full)

    @property
    def _held(self) -> dict[str, Any]:
        return {"pCounterDataImage": self._data, "counterDataImageSize": len(self._data)}

    def _times(self, count: int) -> list[tuple[int, int]]:
        function, found = "cuptiPmSamplingCounterDataGetSampleInfo", []
        given = parameters(function, self.library.version, pPmSamplingObject=self._object, **self._held)
        for index in range(count):
            given.sampleIndex = index
            self.library.call(function, ctypes.byref(given), doing="reading samples")
            found.append((int(given.startTimestamp), int(given.endTimestamp)))
        return found

    def _values(self, count: int) -> Any:
        assert self._host is not None
        return self._host.evaluate(self._data, len(self._data), count, self.metrics)

    def _samples(self, times: list[tuple[int, int]], rows: Any, overflow: bool = False, full: bool = False) -> Samples:
        """Leave out samples that cover no time: those without one, and the one or two that come after the end."""
        both = np.array(times, np.int64).reshape(-1, 2)
        values = np.asarray(rows, np.float64).reshape(len(both), len(self.metrics))
        timed = both[:, 0] > 0
        good = timed & (both[:, 1] > both[:, 0])
        return Samples(both[good, 0], both[good, 1], self.metrics, values[good], overflow, full, int((~timed).sum()))

    def _give_back(self) -> None:
        """Let the GPU's counters go."""
        if self._object is not None:
            target.let_go(lambda: self._ask("Disable", "ending to sample"))
        self._object = None

    def _close(self) -> None:
        """Give everything back."""
        self._running = False
        self._give_back()
        if self._host is not None:
            target.let_go(self._host.close)
        self._host = None

    def _ask(self, what: str, doing: str, **values: Any) -> Any:
        return call(self.library, f"cuptiPmSampling{what}", doing, pPmSamplingObject=self._object, **values)


def _joined_samples(parts: Sequence[Samples]) -> Samples:
    """Return samples that were read one after the other as if they had been read at once."""
    if len(parts) == 1:
        return parts[0]
    start, end, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("start", "end", "values"))
    overflow, full = (any(getattr(part, name) for part in parts) for name in ("overflow", "full"))
    return Samples(start, end, parts[0].metrics, values, overflow, full, sum(part.untimed for part in parts))
