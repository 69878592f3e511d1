"""The profiler host of CUPTI (cuptiProfilerHost*): passes by ranges and by PM sampling, config images, counter values.

From 12.6 on. Releases 12.6 to 13.1 answer without a GPU and without a driver; later ones need the driver: 13.2 crashes without it and
13.3 to 13.5 answer 999. `refusal` tells beforehand, asking a doubtful library in a process of its own.

Source: `cupti_profiler_host.h`; guide 2.7 (enumeration, configuration and evaluation, "host").
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ullage.cupti.counters.names import KINDS, CounterMetric, complete
from ullage.cupti.counters.structures import call, parameters, room
from ullage.cupti.driver import cuda_version
from ullage.cupti.library import Library
from ullage.cupti.results import INVALID_PARAMETER, NOT_SUPPORTED, CuptiError
from ullage.errors import UllageError, harmless

ANYWHERE = range(24, 130_200)  # API versions (12.6 to 13.1) that need no driver
WHICH = "take CUPTI 12.6 to 13.1, which need no driver for this: pip install 'nvidia-cuda-cupti==13.1.*', then ULLAGE_CUPTI or --cupti"
_NO_CHIP, _NO_METRICS = (INVALID_PARAMETER, 46), (INVALID_PARAMETER, 17, NOT_SUPPORTED)
# Begins the profiler host and says how that went: a structure of 48 bytes is what 12.6 knew, and what later ones accept.
_PROBE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
given = (ctypes.c_uint64 * 6)(48, 0, 0, 0, 0, 0)
chip = ctypes.c_char_p(b"GH100")
given[3] = ctypes.cast(chip, ctypes.c_void_p).value
print(ctypes.CDLL(sys.argv[2]).cuptiProfilerHostInitialize(given))
"""


class Use(IntEnum):
    """What the metrics are collected by (CUpti_ProfilerType)."""

    RANGES = 0
    SAMPLING = 1


BY = {Use.RANGES: "over ranges", Use.SAMPLING: "by PM sampling"}


def refusal(library: Library) -> str:
    """Return why this library can't count passes here, in one sentence; "" where it can."""
    if not library.has("cuptiProfilerHostInitialize"):
        return f"{harmless(str(library.path))} has no profiler host, which came with CUPTI 12.6"
    if library.version in ANYWHERE or cuda_version() is not None:
        return ""
    return _asked_apart(library)


def named(library: Library) -> str:
    """Return what to call a library: its release, where that is known, and its file."""
    try:
        return f"CUPTI {library.release.name} ({harmless(str(library.path))})"
    except UllageError:
        return harmless(str(library.path))


def _asked_apart(library: Library) -> str:
    told = named(library)
    command = [sys.executable, "-I", "-S", "-c", _PROBE, library.counters._name, str(library.path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return f"{told} doesn't answer"
    if done.returncode:
        return f"{told} crashes when it is asked without an NVIDIA driver"
    answer = done.stdout.strip()
    return "" if answer == "0" else f"{told} counts passes only where there is an NVIDIA driver (it answers {answer})"


def prepare(library: Library) -> None:
    """Load what CUPTI counts with, which it looks for by its bare name; where it isn't there CUPTI's own answers say so."""
    with contextlib.suppress(UllageError):
        _ = library.counters


def chips(library: Library) -> list[str]:
    """Return the chips that the profiler host supports."""
    prepare(library)
    found = call(library, "cuptiProfilerHostGetSupportedChips", "listing the chips")
    return [found.ppChipNames[index].decode() for index in range(found.numChips)]


def most(library: Library, chip: str, use: Use) -> int | None:
    """Return how many hardware counters fit one pass at best, None on a chip without; see `Host.passes` for which do together."""
    prepare(library)
    function = "cuptiProfilerHostGetMaxNumHardwareMetricsPerPass"
    try:
        return int(call(library, function, "asking what fits a pass", profilerType=use, pChipName=chip).maxMetricsPerPass)
    except CuptiError as error:
        if error.code != NOT_SUPPORTED:
            raise
        return None


class Host:
    """The profiler host for one chip and one use. Close it, or use `with`.

    `availability` is what the GPU itself says it can count (see `ranges` and `pm`); without, everything the chip has. Raises UllageError
    for a chip that the library doesn't know, and where the library can't be asked here.
    """

    def __init__(self, library: Library, chip: str, use: Use, availability: Any = None) -> None:
        reason = refusal(library)
        if reason:
            raise UllageError(reason, WHICH)
        self.library, self.chip, self.use, self._availability = library, chip, use, availability
        self._name = ctypes.c_char_p(chip.encode())  # CUPTI keeps the pointer, and plans other passes once it points to something else
        prepare(library)
        self._object: int | None = self._begun()

    def _begun(self) -> int:
        try:
            begun = call(
                self.library, "cuptiProfilerHostInitialize", f"asking CUPTI for {self.chip}", profilerType=self.use, pChipName=self._name,
                pCounterAvailabilityImage=self._availability,
            )  # fmt: skip
        except CuptiError as error:
            if error.code == NOT_SUPPORTED:
                raise Unserved(self.chip, self.use) from error
            if error.code not in _NO_CHIP:
                raise
            raise UllageError(f"this CUPTI doesn't know the chip '{harmless(self.chip)}'", "`ullage cupti chips` lists all") from error
        return int(begun.pHostObject)

    def close(self) -> None:
        """Let the library forget it; a second call does nothing."""
        if self._object is not None:
            call(self.library, "cuptiProfilerHostDeinitialize", "closing CUPTI's profiler host", pHostObject=self._object)
            self._object = None

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self, kind: int) -> list[str]:
        """Return the base names of a kind (0 counters, 1 ratios, 2 throughputs).

        The list that the library keeps grows with every call, so a name may come again; here it comes once.
        """
        found = self._ask("GetBaseMetrics", "listing metrics", metricType=kind)
        return list(dict.fromkeys(found.ppMetricNames[index].decode() for index in range(found.numMetrics)))

    def describe(self, name: str) -> CounterMetric:
        """Return a metric's kind, unit, hardware unit and description. This is slow (milliseconds): see `perfworks` for many."""
        told = self._ask("GetMetricProperties", f"describing {harmless(name, 120)}", pMetricName=name)
        words = [(text or b"").decode(errors="replace") for text in (told.pDimUnit, told.pHwUnit, told.pDescription)]
        return CounterMetric(name, KINDS[told.metricType], *words)

    def submetrics(self, name: str, kind: int) -> list[str]:
        """Return what may follow a metric's base name: ".sum", ".avg.per_second", … Releases before 13.0 take complete names alone."""
        told = self._ask(
            "GetSubMetrics", f"listing the sub-metrics of {harmless(name, 120)}", metricType=kind, pMetricName=complete(name, KINDS[kind])
        )  # fmt: skip
        return [told.ppSubMetrics[index].decode() for index in range(told.numOfSubmetrics)]

    def config(self, names: Sequence[str]) -> bytes:
        """Return the config image with which a GPU collects these metrics (complete names). It can be kept and used elsewhere.

        Raises UllageError when one of them can't be collected in this use: by PM sampling many of those that ranges know can't.
        """
        self._renew()
        try:
            self._ask("ConfigAddMetrics", "choosing metrics", ppMetricNames=list(names), numMetrics=len(names))
        except CuptiError as error:
            if error.code not in _NO_METRICS:
                raise
            raise NotCollected(names, self.chip, self.use) from error
        size = self._ask("GetConfigImageSize", "planning passes").configImageSize
        image = room(size)
        self._ask("GetConfigImage", "planning passes", configImageSize=size, pConfigImage=image)
        return bytes(image)

    def passes(self, names: Sequence[str]) -> int:
        """Return in how many passes these metrics are collected; see `config`."""
        return config_passes(self.library, self.config(names))

    def evaluate(self, image: Any, size: int, count: int, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the values of an image of counter data: a row for each of its first `count` ranges or samples, a column a metric.

        One call to the library for a row; it has none for many. NaN is what it could not compute.
        """
        values = np.full((count, len(names)), np.nan)
        function = "cuptiProfilerHostEvaluateToGpuValues"
        given = parameters(
            function, self.library.version, pHostObject=self._object, pCounterDataImage=image, counterDataImageSize=size,
            ppMetricNames=names, numMetrics=len(names),
        )  # fmt: skip
        for index in range(count):
            given.rangeIndex, given.pMetricValues = index, values[index].ctypes.data
            self.library.call(function, ctypes.byref(given), doing="evaluating counters")
        return values

    def _renew(self) -> None:
        """Begin anew: the library adds metrics to those of before, and can't take one away."""
        self.close()
        self._object = self._begun()

    def _ask(self, what: str, doing: str, **values: Any) -> Any:
        return call(self.library, f"cuptiProfilerHost{what}", doing, pHostObject=self._object, **values)


class Unserved(UllageError):  # noqa: N818 - an error of its own only to be told apart
    """A chip that CUPTI knows, and doesn't count on in this use."""

    def __init__(self, chip: str, use: Use) -> None:
        super().__init__(f"this CUPTI doesn't count {BY[use]} on {chip}", f"`ullage cupti plan {chip} NAME` says what it does")
        self.chip, self.use = chip, use


class NotCollected(UllageError):  # noqa: N818 - an error of its own only to be told apart
    """Metrics that can't be collected together in this use, or not at all."""

    def __init__(self, names: Sequence[str], chip: str, use: Use) -> None:
        shown = ", ".join(harmless(name, 80) for name in names[:4]) + (", …" if len(names) > 4 else "")
        super().__init__(f"{chip} can't collect {shown} {BY[use]}", f"`ullage cupti plan {chip} NAME` says how each can be collected")


def config_passes(library: Library, image: bytes) -> int:
    """Return the number of passes of a config image."""
    held = room(len(image))
    held[:] = image
    told = call(library, "cuptiProfilerHostGetNumOfPasses", "planning passes", configImageSize=len(image), pConfigImage=held)
    return int(told.numOfPasses)
