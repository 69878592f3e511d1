"""Counters over ranges of a program on a GPU: around each kernel by itself, or around what the program names.

In the order that the headers ask for: profiler, chip, availability, config image (host); enable, image of counter data, config; then for
each pass start, ranges, stop; then decode, names, values; disable.

Source: `cupti_range_profiler.h`; guide 2.7.1 and 2.7.2 (multi-pass collection, auto and user ranges, kernel and user replay).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal

from ullage.cupti.counters import target
from ullage.cupti.counters.evaluate import Values, evaluated
from ullage.cupti.counters.host import Host, Use, config_passes
from ullage.cupti.counters.images import CounterImage
from ullage.cupti.counters.structures import FIRST_LEVEL, call, room
from ullage.cupti.driver import current_context
from ullage.cupti.library import Library, find
from ullage.errors import UllageError, harmless

_RANGE = {"auto": 1, "user": 2}  # CUpti_ProfilerRange
_REPLAY = {"kernel": 2, "user": 3}  # CUpti_ProfilerReplayMode
_DELIMITER = "/"
MOST = 1024


class Ranges:
    """Collects metrics (complete names) over ranges; every method but `values` and `image` is for inside the `with`.

    `range="auto"` makes each kernel a range by itself, `"user"` those that the program names with `range(…)`. `replay="kernel"` lets CUPTI
    run each kernel as often as there are passes (its memory is saved and restored, launches are serialised), `"user"` runs the work in
    `passes()`, which must do the same each time:

        with Ranges(metrics, range="user", replay="user") as ranges:
            for _ in ranges.passes():
                with ranges.range("step"):
                    train_step()
        ranges.values().table()

    Kernel replay knows no user ranges (guide 2.7.2.2). `most` ranges are kept at most, `dropped` says how many weren't. `levels` is how
    deep user ranges are nested; each level takes all the passes once more. `context` is a CUcontext as a number, by default the current
    one. Raises CuptiError, on entering, where counters are forbidden or something else counts on this GPU, and NotCollected for a metric
    that ranges don't have: what is measured should then go on without counters.
    """

    def __init__(
        self, metrics: Sequence[str], context: int | None = None, *, range: Literal["auto", "user"] = "auto",
        replay: Literal["kernel", "user"] = "kernel", most: int = MOST, levels: int = 1, library: Library | None = None,
    ) -> None:  # fmt: skip
        if range == "user" and replay == "kernel":
            raise UllageError("CUPTI replays no kernels inside ranges of the program's own", 'say replay="user", and loop over passes()')
        if not metrics:
            raise UllageError("there is no metric to collect", "`ullage cupti metrics CHIP` lists them")
        self.metrics, self.range_mode, self.replay, self.most, self.levels = tuple(metrics), range, replay, most, levels
        self.dropped = 0
        self.planned = 0  # passes of one level
        self._library, self._context = library, context
        self._object: int | None = None
        self._host: Host | None = None
        self._running = False
        self._complete = False
        self._found: Values | None = None

    def __enter__(self) -> Ranges:
        self.library = self._library or find()
        target.begin(self.library)
        context = current_context() if self._context is None else self._context
        self.chip = target.chip_name(self.library, target.device_of(self.library, context))
        available = target.availability(self.library, "cuptiProfilerGetCounterAvailability", ctx=context)
        try:
            self._host = Host(self.library, self.chip, Use.RANGES, available)
            config = self._host.config(self.metrics)
            self.planned = config_passes(self.library, config)
            self._object = call(self.library, "cuptiRangeProfilerEnable", "beginning to count", ctx=context).pRangeProfilerObject
            self._configure(config)
            if self.replay == "kernel":
                self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._end()
            elif self._running:
                with contextlib.suppress(UllageError):
                    self._ask("Stop", "ending to count")
        finally:
            self._close()

    def passes(self) -> Iterator[int]:
        """Yield the number of each pass; do the same work in each. Raises UllageError when the library never has enough."""
        if self.replay != "user":
            raise UllageError("kernels are replayed by CUPTI itself", 'passes() is for replay="user"')
        limit = max(self.planned, 1) * self.levels + 2
        number = 0
        while not self._complete:
            if number == limit:
                raise UllageError(f"the counters aren't complete after {limit} passes, {self.planned} were planned", "take fewer metrics")
            self._start()
            yield number
            self._stop()
            number += 1

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Name what is done inside; ranges may be nested, as deep as `levels` says."""
        self._ask("PushRange", f"beginning the range '{harmless(name, 80)}'", pRangeName=name)
        try:
            yield
        except BaseException:
            with contextlib.suppress(UllageError):
                self._ask("PopRange", "ending a range")
            raise
        self._ask("PopRange", f"ending the range '{harmless(name, 80)}'")

    def values(self) -> Values:
        """Return what was counted, after the `with`: a row a range ("0", "1", … of kernels, "step/forward" of nested ranges)."""
        if self._found is None:
            raise UllageError("nothing has been counted yet", "ask after the `with` is over, and it must have ended well")
        return self._found

    def image(self) -> CounterImage:
        """Return the counter data as they are, to be kept and evaluated elsewhere (`evaluate`)."""
        found = self.values()
        return CounterImage("range", self.chip, self.metrics, self.library.version, bytes(self._data), ranges=found.ranges)

    def _configure(self, config: bytes) -> None:
        """Make room for the counter data and tell the GPU what to count. All of it must live until the end."""
        size = self._ask(
            "GetCounterDataSize", "making room for counters", pMetricNames=self.metrics, numMetrics=len(self.metrics),
            maxNumOfRanges=self.most, maxNumRangeTreeNodes=self.most * self.levels,
        ).counterDataSize  # fmt: skip
        self._data, self._config = room(size), room(len(config))
        self._config[:] = config
        self._ask("CounterDataImageInitialize", "making room for counters", counterDataSize=size, pCounterData=self._data)
        self._ask(
            "SetConfig", "choosing what to count", configSize=len(config), pConfig=self._config, counterDataImageSize=size,
            pCounterDataImage=self._data, range=_RANGE[self.range_mode], replayMode=_REPLAY[self.replay], maxRangesPerPass=self.most,
            numNestingLevels=self.levels, minNestingLevel=FIRST_LEVEL, passIndex=0, targetNestingLevel=FIRST_LEVEL,
        )  # fmt: skip

    def _start(self) -> None:
        self._ask("Start", "beginning to count")
        self._running = True

    def _stop(self) -> None:
        self._running = False
        self._complete = bool(self._ask("Stop", "ending to count").isAllPassSubmitted)

    def _end(self) -> None:
        if self._running:
            self._stop()
        if not self._complete:
            raise UllageError("the work was not run in every pass, so the counters are incomplete", "loop over passes() until it ends")
        self.dropped = self._ask("DecodeData", "reading the counters").numOfRangeDropped
        assert self._host is not None
        self._found = evaluated(self._host, self._data, len(self._data), self._names(), self.metrics)

    def _names(self) -> list[str]:
        given = {"pCounterDataImage": self._data, "counterDataImageSize": len(self._data)}
        count = call(self.library, "cuptiRangeProfilerGetCounterDataInfo", "reading the counters", **given).numTotalRanges
        names = []
        for index in range(count):
            told = call(
                self.library, "cuptiRangeProfilerCounterDataGetRangeInfo", "reading the counters", rangeIndex=index,
                rangeDelimiter=_DELIMITER, **given,
            )  # fmt: skip
            names.append((told.rangeName or b"").decode(errors="replace"))
        return names

    def _close(self) -> None:
        """Give everything back."""
        if self._object is not None:
            target.let_go(lambda: self._ask("Disable", "ending to count"))
        if self._host is not None:
            target.let_go(self._host.close)
        self._object = self._host = None

    def _ask(self, what: str, doing: str, **values: Any) -> Any:
        return call(self.library, f"cuptiRangeProfiler{what}", doing, pRangeProfilerObject=self._object, **values)
