"""Perfworks (NVPW_*), which libnvperf_host exports in every release: chips, metrics with unit and description, passes over ranges.

It needs neither a GPU nor a driver, in any of the releases 12.0 to 13.5, and describes three thousand metrics in a tenth of a second. The
headers call it deprecated from 13.1 on: `host` is what replaces it, and where a function is missing here it says so.

Source: guide 2.8 (Perfworks Metric API); `nvperf_host.h`, `nvperf_cuda_host.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ullage.cupti.counters.names import KINDS, CounterMetric
from ullage.cupti.counters.structures import parameters, room
from ullage.cupti.library import Library
from ullage.errors import UllageError, harmless

_PROPERTIES = (("Counter", "counterIndex"), ("RatioMetric", "ratioMetricIndex"), ("ThroughputMetric", "throughputMetricIndex"))
_SUM, _UNIT_OF = 3, (0, 21, 20)  # NVPW_RollupOp; the NVPW_Submetric whose unit is told: a counter's own, a ratio's, a throughput's share
_PROFILER = 1  # NVPA_ActivityKind
_UNSUPPORTED, _INVALID_ARGUMENT, _INVALID_METRIC = 14, 8, 9  # NVPA_Status


class Refused(UllageError):  # noqa: N818 - an error of its own only by its number
    """Perfworks refused a call; `code` is its NVPA_Status."""

    def __init__(self, function: str, code: int) -> None:
        super().__init__(f"NVIDIA's libnvperf_host refuses {function} (status {code})", "take another release of nvidia-cuda-cupti")
        self.code = code


class Request(ctypes.Structure):
    """NVPW_MetricEvalRequest; the library is told its size without padding."""

    _fields_ = (("metric", ctypes.c_size_t), ("kind", ctypes.c_uint8), ("rollup", ctypes.c_uint8), ("submetric", ctypes.c_uint16))
    SIZE = 12


class UnitFactor(ctypes.Structure):
    """NVPW_DimUnitFactor."""

    _fields_ = (("unit", ctypes.c_uint32), ("exponent", ctypes.c_int8))
    SIZE = 5


class RawRequest(ctypes.Structure):
    """NVPA_RawMetricRequest."""

    _fields_ = (
        ("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p), ("name", ctypes.c_char_p), ("isolated", ctypes.c_uint8),
        ("keepInstances", ctypes.c_uint8),
    )  # fmt: skip
    SIZE = 26


def call(library: Library, function: str, **values: Any) -> Any:
    """Call a function of libnvperf_host; return its structure. Raises Refused, and UllageError where a release lacks the function."""
    if not hasattr(library.counters, function):
        raise UllageError(f"the libnvperf_host beside {harmless(str(library.path))} has no {function}", "take another nvidia-cuda-cupti")
    given = parameters(function, None, **values)
    code = getattr(library.counters, function)(ctypes.byref(given))
    if code:
        raise Refused(function, code)
    return given


def chips(library: Library) -> list[str]:
    """Return the chips that the library names, as it names them ("GH100")."""
    call(library, "NVPW_InitializeHost")
    found = call(library, "NVPW_GetSupportedChipNames")
    return list(dict.fromkeys(found.ppChipNames[index].decode() for index in range(found.numChipNames)))


class Evaluator:
    """The metrics of one chip, as libnvperf_host knows them. Raises UllageError for a chip that it doesn't know."""

    def __init__(self, library: Library, chip: str) -> None:
        self.library, self.chip = library, chip
        call(library, "NVPW_InitializeHost")
        try:
            size = call(library, "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", pChipName=chip).scratchBufferSize
        except Refused as refused:
            if refused.code not in (_UNSUPPORTED, _INVALID_ARGUMENT):
                raise
            raise UllageError(f"this CUPTI doesn't know the chip '{harmless(chip)}'", "`ullage cupti chips` lists all") from refused
        self._scratch = room(size)
        begun = call(
            library, "NVPW_CUDA_MetricsEvaluator_Initialize", pChipName=chip, pScratchBuffer=self._scratch, scratchBufferSize=size
        )  # fmt: skip
        self._evaluator = begun.pMetricsEvaluator
        self._words: dict[tuple[str, int], str] = {}

    def close(self) -> None:
        """Let the library forget the chip; a second call does nothing."""
        if self._evaluator:
            self._ask("Destroy")
            self._evaluator = None

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def metrics(self) -> list[CounterMetric]:
        """Return every metric: counters, then ratios, then throughputs, in the library's order."""
        return [metric for kind in range(len(KINDS)) for metric in self._of_kind(kind)]

    def _of_kind(self, kind: int) -> Iterator[CounterMetric]:
        found = self._ask("GetMetricNames", metricType=kind)
        function, index = _PROPERTIES[kind]
        for number in range(found.numMetrics):
            told = self._ask(f"Get{function}Properties", **{index: number})
            name = ctypes.string_at(found.pMetricNames + found.pMetricNameBeginIndices[number]).decode()
            description = (told.pDescription or b"").decode(errors="replace")
            yield CounterMetric(name, KINDS[kind], self._unit(kind, number), self._hardware(told.hwUnit & 0xFFFFFFFF), description)

    def check(self, names: Sequence[str]) -> None:
        """Raise UllageError for the first of these that is no metric with an ending that may follow it."""
        for name in names:
            self._request(name)

    def raw(self, names: Sequence[str]) -> list[str]:
        """Return the hardware's own counters, by hashed names, that these metrics are made of; those that may be missing come last."""
        requests = (Request * len(names))(*(self._request(name) for name in names))
        given: dict[str, Any] = {
            "pMetricEvalRequests": requests, "numMetricEvalRequests": len(names), "metricEvalRequestStructSize": Request.SIZE,
            "metricEvalRequestStrideSize": ctypes.sizeof(Request),
        }  # fmt: skip
        counted = self._ask("GetMetricRawDependencies", **given)
        needed = (ctypes.c_char_p * counted.numRawDependencies)()
        optional = (ctypes.c_char_p * counted.numOptionalRawDependencies)()
        told = self._ask(
            "GetMetricRawDependencies", ppRawDependencies=needed, numRawDependencies=len(needed), ppOptionalRawDependencies=optional,
            numOptionalRawDependencies=len(optional), **given,
        )  # fmt: skip
        found = [*needed[: told.numRawDependencies], *optional[: told.numOptionalRawDependencies]]
        return [name.decode() for name in found if name]

    def passes(self, names: Sequence[str]) -> int:
        """Return how often a kernel must be replayed to collect these metrics over ranges, one level deep."""
        raw = self.raw(names)
        wanted = (RawRequest * len(raw))(*(RawRequest(RawRequest.SIZE, None, name.encode(), 1, 1) for name in raw))
        with self._config() as config:
            call(self.library, "NVPW_RawMetricsConfig_BeginPassGroup", pRawMetricsConfig=config)
            call(
                self.library, "NVPW_RawMetricsConfig_AddMetrics", pRawMetricsConfig=config, pRawMetricRequests=wanted,
                numMetricRequests=len(wanted),
            )  # fmt: skip
            call(self.library, "NVPW_RawMetricsConfig_EndPassGroup", pRawMetricsConfig=config)
            call(self.library, "NVPW_RawMetricsConfig_GenerateConfigImage", pRawMetricsConfig=config)
            return int(call(self.library, "NVPW_RawMetricsConfig_GetNumPasses_V2", pRawMetricsConfig=config).numPasses)

    @contextmanager
    def _config(self) -> Iterator[int]:
        made = call(self.library, "NVPW_CUDA_RawMetricsConfig_Create_V2", activityKind=_PROFILER, pChipName=self.chip)
        try:
            yield made.pRawMetricsConfig
        finally:
            call(self.library, "NVPW_RawMetricsConfig_Destroy", pRawMetricsConfig=made.pRawMetricsConfig)

    def _request(self, name: str) -> Request:
        request = Request()
        try:
            self._ask(
                "ConvertMetricNameToMetricEvalRequest", pMetricName=name, pMetricEvalRequest=request,
                metricEvalRequestStructSize=Request.SIZE,
            )  # fmt: skip
        except Refused as refused:
            if refused.code not in (_INVALID_ARGUMENT, _INVALID_METRIC):
                raise
            raise UllageError(
                f"{self.chip} has no metric '{harmless(name, 120)}'",
                f"a counter ends in .sum, .avg, .max or .min, a ratio in .ratio or .pct: `ullage cupti describe {self.chip} NAME`",
            ) from refused
        return request

    def _unit(self, kind: int, index: int) -> str:
        request, factors = Request(index, kind, _SUM, _UNIT_OF[kind]), (UnitFactor * 16)()
        found = self._ask(
            "GetMetricDimUnits", pMetricEvalRequest=request, metricEvalRequestStructSize=Request.SIZE, pDimUnits=factors,
            numDimUnits=len(factors), dimUnitFactorStructSize=UnitFactor.SIZE,
        )  # fmt: skip
        return unit([(self._word("DimUnit", factor.unit), factor.exponent) for factor in factors[: found.numDimUnits]])

    def _hardware(self, number: int) -> str:
        return self._word("HwUnit", number)

    def _word(self, what: str, number: int) -> str:
        if (what, number) not in self._words:
            asked, told = ("dimUnit", "pPluralName") if what == "DimUnit" else ("hwUnit", "pHwUnitName")
            found = getattr(self._ask(f"{what}ToString", **{asked: number}), told) or b""
            self._words[what, number] = found.decode(errors="replace")
        return self._words[what, number]

    def _ask(self, what: str, **values: Any) -> Any:
        return call(self.library, f"NVPW_MetricsEvaluator_{what}", pMetricsEvaluator=self._evaluator, **values)


def unit(factors: Sequence[tuple[str, int]]) -> str:
    """Return a unit from its factors and their exponents: "1" without any, "unknown" for what the library calls invalid.

    >>> unit([("sectors", 1), ("requests", -1)]), unit([]), unit([("invalid", 1)])
    ('sectors/requests', '1', 'unknown')
    """
    sides: dict[bool, list[str]] = {True: [], False: []}
    for name, exponent in sorted(factors):
        if exponent and name != "unitless":
            word = "unknown" if name == "invalid" else name
            sides[exponent > 0].append(word if abs(exponent) == 1 else f"{word}^{abs(exponent)}")
    return "/".join(["*".join(sides[True]) or "1", *sides[False]])
