"""The structures that counters are asked with: every call takes one, and its size tells the library which fields the caller knows.

The facts are those of the headers `cupti_profiler_host.h`, `cupti_profiler_target.h`, `cupti_range_profiler.h`, `cupti_pmsampling.h`,
`cupti_target.h`, `nvperf_host.h` and `nvperf_cuda_host.h` of CUDA 12.6 to 13.5. A structure that grew has its later fields marked with the
API version that brought them; the library is given the shortest one that it knows, as a longer one is refused as an invalid parameter.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ullage.cupti.library import Library

# The nesting level at which counting starts: minNestingLevel, and targetNestingLevel too. cupti_profiler_target.h says of the same field of
# CUpti_Profiler_SetConfig_Params that it is minNestingLevel where one process runs all passes, and minNestingLevel must be 1 or more; only
# application replay sets it to what the last pass answered. The recorder in C gets the number from its plan.
FIRST_LEVEL = 1

_C: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "text": ctypes.c_char_p,
    "texts": ctypes.POINTER(ctypes.c_char_p),
    "sizes": ctypes.POINTER(ctypes.c_size_t),
    "size": ctypes.c_size_t,
    "enum": ctypes.c_int,
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
}


@dataclass(frozen=True)
class StructShape:
    """A structure of the headers: its name there, and its fields after the two that all begin with, as (name, type, API version)."""

    name: str
    fields: tuple[tuple[str, str, int], ...]

    def known(self, version: int | None) -> tuple[tuple[str, str, int], ...]:
        """Return the fields that a release has; those of the first release where it is not known."""
        return tuple(field for field in self.fields if field[2] <= (version or 0))


def _shape(name: str, fields: str) -> StructShape:
    """ "a:text b:size@130100" is a field a, and a field b from CUPTI 13.1 on."""
    parts = [part.partition("@") for part in fields.split()]
    return StructShape(name, tuple((*field.split(":"), int(since or 0)) for field, _, since in parts))  # type: ignore[misc]


_HOST, _RANGE, _SAMPLING = "pHostObject:pointer", "pRangeProfilerObject:pointer", "pPmSamplingObject:pointer"
_IMAGE, _EVALUATOR = "pCounterDataImage:pointer counterDataImageSize:size", "pMetricsEvaluator:pointer"
_REQUESTS = "pMetricEvalRequests:pointer numMetricEvalRequests:size metricEvalRequestStructSize:size metricEvalRequestStrideSize:size"
_CONFIG, _CHIP = "pRawMetricsConfig:pointer", "pChipName:text pCounterAvailabilityImage:pointer"
_SUPPORT = "isSupported architecture sli vGpu confidentialCompute cmp wsl".replace(" ", ":enum ") + ":enum"

SHAPES: dict[str, StructShape] = {
    function: _shape(name, fields)
    for function, name, fields in (
        # the host half: no GPU is needed
        ("cuptiProfilerHostInitialize", "CUpti_Profiler_Host_Initialize_Params",
         f"profilerType:enum {_CHIP} {_HOST} pSinglePassMetricSetName:text@130200"),
        ("cuptiProfilerHostDeinitialize", "CUpti_Profiler_Host_Deinitialize_Params", _HOST),
        ("cuptiProfilerHostGetSupportedChips", "CUpti_Profiler_Host_GetSupportedChips_Params", "numChips:size ppChipNames:texts"),
        ("cuptiProfilerHostGetBaseMetrics", "CUpti_Profiler_Host_GetBaseMetrics_Params",
         f"{_HOST} metricType:enum ppMetricNames:texts numMetrics:size"),
        ("cuptiProfilerHostGetSubMetrics", "CUpti_Profiler_Host_GetSubMetrics_Params",
         f"{_HOST} metricType:enum pMetricName:text numOfSubmetrics:size ppSubMetrics:texts"),
        ("cuptiProfilerHostGetMetricProperties", "CUpti_Profiler_Host_GetMetricProperties_Params",
         f"{_HOST} pMetricName:text pDescription:text pHwUnit:text pDimUnit:text metricType:enum metricCollectionScope:enum@130100"),
        ("cuptiProfilerHostConfigAddMetrics", "CUpti_Profiler_Host_ConfigAddMetrics_Params",
         f"{_HOST} ppMetricNames:texts numMetrics:size"),
        ("cuptiProfilerHostGetConfigImageSize", "CUpti_Profiler_Host_GetConfigImageSize_Params", f"{_HOST} configImageSize:size"),
        ("cuptiProfilerHostGetConfigImage", "CUpti_Profiler_Host_GetConfigImage_Params",
         f"{_HOST} configImageSize:size pConfigImage:pointer"),
        ("cuptiProfilerHostGetNumOfPasses", "CUpti_Profiler_Host_GetNumOfPasses_Params",
         "configImageSize:size pConfigImage:pointer numOfPasses:size"),
        ("cuptiProfilerHostGetMaxNumHardwareMetricsPerPass", "CUpti_Profiler_Host_GetMaxNumHardwareMetricsPerPass_Params",
         f"profilerType:enum {_CHIP} maxMetricsPerPass:size"),
        ("cuptiProfilerHostEvaluateToGpuValues", "CUpti_Profiler_Host_EvaluateToGpuValues_Params",
         f"{_HOST} {_IMAGE} rangeIndex:size ppMetricNames:texts numMetrics:size pMetricValues:pointer"),
        # the target half
        ("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params", ""),
        ("cuptiProfilerDeInitialize", "CUpti_Profiler_DeInitialize_Params", ""),
        ("cuptiProfilerGetCounterAvailability", "CUpti_Profiler_GetCounterAvailability_Params",
         "ctx:pointer counterAvailabilityImageSize:size pCounterAvailabilityImage:pointer bAllowDeviceLevelCounters:u8@130100"),
        ("cuptiProfilerDeviceSupported", "CUpti_Profiler_DeviceSupported_Params", f"cuDevice:enum {_SUPPORT} api:enum sku:enum@130100"),
        ("cuptiDeviceGetChipName", "CUpti_Device_GetChipName_Params", "deviceIndex:size pChipName:text"),
        # ranges
        ("cuptiRangeProfilerEnable", "CUpti_RangeProfiler_Enable_Params", f"ctx:pointer {_RANGE} cacheControlMode:enum@130400"),
        ("cuptiRangeProfilerDisable", "CUpti_RangeProfiler_Disable_Params", _RANGE),
        ("cuptiRangeProfilerGetCounterDataSize", "CUpti_RangeProfiler_GetCounterDataSize_Params",
         f"{_RANGE} pMetricNames:texts numMetrics:size maxNumOfRanges:size maxNumRangeTreeNodes:u32 counterDataSize:size"),
        ("cuptiRangeProfilerCounterDataImageInitialize", "CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
         f"{_RANGE} counterDataSize:size pCounterData:pointer"),
        ("cuptiRangeProfilerSetConfig", "CUpti_RangeProfiler_SetConfig_Params",
         f"{_RANGE} configSize:size pConfig:pointer counterDataImageSize:size pCounterDataImage:pointer range:enum replayMode:enum "
         "maxRangesPerPass:size numNestingLevels:u16 minNestingLevel:u16 passIndex:size targetNestingLevel:u16"),
        ("cuptiRangeProfilerStart", "CUpti_RangeProfiler_Start_Params", _RANGE),
        ("cuptiRangeProfilerStop", "CUpti_RangeProfiler_Stop_Params",
         f"{_RANGE} passIndex:size targetNestingLevel:size isAllPassSubmitted:u8"),
        ("cuptiRangeProfilerPushRange", "CUpti_RangeProfiler_PushRange_Params", f"{_RANGE} pRangeName:text"),
        ("cuptiRangeProfilerPopRange", "CUpti_RangeProfiler_PopRange_Params", _RANGE),
        ("cuptiRangeProfilerDecodeData", "CUpti_RangeProfiler_DecodeData_Params", f"{_RANGE} numOfRangeDropped:size"),
        ("cuptiRangeProfilerGetCounterDataInfo", "CUpti_RangeProfiler_GetCounterDataInfo_Params", f"{_IMAGE} numTotalRanges:size"),
        ("cuptiRangeProfilerCounterDataGetRangeInfo", "CUpti_RangeProfiler_CounterData_GetRangeInfo_Params",
         f"{_IMAGE} rangeIndex:size rangeDelimiter:text rangeName:text"),
        # PM sampling
        ("cuptiPmSamplingEnable", "CUpti_PmSampling_Enable_Params", f"deviceIndex:size {_SAMPLING}"),
        ("cuptiPmSamplingDisable", "CUpti_PmSampling_Disable_Params", _SAMPLING),
        ("cuptiPmSamplingSetConfig", "CUpti_PmSampling_SetConfig_Params",
         f"{_SAMPLING} configSize:size pConfig:pointer hardwareBufferSize:size samplingInterval:u64 triggerMode:enum "
         "hwBufferAppendMode:enum@26"),
        ("cuptiPmSamplingStart", "CUpti_PmSampling_Start_Params", _SAMPLING),
        ("cuptiPmSamplingStop", "CUpti_PmSampling_Stop_Params", _SAMPLING),
        ("cuptiPmSamplingDecodeData", "CUpti_PmSampling_DecodeData_Params", f"{_SAMPLING} {_IMAGE} decodeStopReason:enum overflow:u8"),
        ("cuptiPmSamplingGetCounterAvailability", "CUpti_PmSampling_GetCounterAvailability_Params",
         "deviceIndex:size counterAvailabilityImageSize:size pCounterAvailabilityImage:pointer"),
        ("cuptiPmSamplingGetCounterDataSize", "CUpti_PmSampling_GetCounterDataSize_Params",
         f"{_SAMPLING} pMetricNames:texts numMetrics:size maxSamples:u32 counterDataSize:size"),
        ("cuptiPmSamplingCounterDataImageInitialize", "CUpti_PmSampling_CounterDataImage_Initialize_Params",
         f"{_SAMPLING} counterDataSize:size pCounterData:pointer"),
        ("cuptiPmSamplingGetCounterDataInfo", "CUpti_PmSampling_GetCounterDataInfo_Params",
         f"{_IMAGE} numTotalSamples:size numPopulatedSamples:size numCompletedSamples:size"),
        ("cuptiPmSamplingCounterDataGetSampleInfo", "CUpti_PmSampling_CounterData_GetSampleInfo_Params",
         f"{_SAMPLING} {_IMAGE} sampleIndex:size startTimestamp:u64 endTimestamp:u64"),
        # Perfworks, which libnvperf_host exports in every release
        ("NVPW_InitializeHost", "NVPW_InitializeHost_Params", ""),
        ("NVPW_GetSupportedChipNames", "NVPW_GetSupportedChipNames_Params", "ppChipNames:texts numChipNames:size"),
        ("NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize", "NVPW_CUDA_MetricsEvaluator_CalculateScratchBufferSize_Params",
         f"{_CHIP} scratchBufferSize:size"),
        ("NVPW_CUDA_MetricsEvaluator_Initialize", "NVPW_CUDA_MetricsEvaluator_Initialize_Params",
         f"pScratchBuffer:pointer scratchBufferSize:size {_CHIP} {_IMAGE} {_EVALUATOR}"),
        ("NVPW_MetricsEvaluator_Destroy", "NVPW_MetricsEvaluator_Destroy_Params", _EVALUATOR),
        ("NVPW_MetricsEvaluator_GetMetricNames", "NVPW_MetricsEvaluator_GetMetricNames_Params",
         f"{_EVALUATOR} metricType:u8 pMetricNames:pointer pMetricNameBeginIndices:sizes numMetrics:size"),
        ("NVPW_MetricsEvaluator_GetCounterProperties", "NVPW_MetricsEvaluator_GetCounterProperties_Params",
         f"{_EVALUATOR} counterIndex:size pDescription:text hwUnit:u32"),
        ("NVPW_MetricsEvaluator_GetRatioMetricProperties", "NVPW_MetricsEvaluator_GetRatioMetricProperties_Params",
         f"{_EVALUATOR} ratioMetricIndex:size pDescription:text hwUnit:u64"),
        ("NVPW_MetricsEvaluator_GetThroughputMetricProperties", "NVPW_MetricsEvaluator_GetThroughputMetricProperties_Params",
         f"{_EVALUATOR} throughputMetricIndex:size pDescription:text hwUnit:u32 numCounters:size pCounterIndices:sizes "
         "numSubThroughputs:size pSubThroughputIndices:sizes"),
        ("NVPW_MetricsEvaluator_GetSupportedSubmetrics", "NVPW_MetricsEvaluator_GetSupportedSubmetrics_Params",
         f"{_EVALUATOR} metricType:u8 pSupportedSubmetrics:pointer numSupportedSubmetrics:size"),
        ("NVPW_MetricsEvaluator_HwUnitToString", "NVPW_MetricsEvaluator_HwUnitToString_Params",
         f"{_EVALUATOR} hwUnit:u32 pHwUnitName:text"),
        ("NVPW_MetricsEvaluator_DimUnitToString", "NVPW_MetricsEvaluator_DimUnitToString_Params",
         f"{_EVALUATOR} dimUnit:u32 pSingularName:text pPluralName:text"),
        ("NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest",
         "NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest_Params",
         f"{_EVALUATOR} pMetricName:text pMetricEvalRequest:pointer metricEvalRequestStructSize:size"),
        ("NVPW_MetricsEvaluator_GetMetricDimUnits", "NVPW_MetricsEvaluator_GetMetricDimUnits_Params",
         f"{_EVALUATOR} pMetricEvalRequest:pointer metricEvalRequestStructSize:size pDimUnits:pointer numDimUnits:size "
         "dimUnitFactorStructSize:size"),
        ("NVPW_MetricsEvaluator_GetMetricRawDependencies", "NVPW_MetricsEvaluator_GetMetricRawDependencies_Params",
         f"{_EVALUATOR} {_REQUESTS} ppRawDependencies:texts numRawDependencies:size ppOptionalRawDependencies:texts "
         "numOptionalRawDependencies:size"),
        ("NVPW_CUDA_RawMetricsConfig_Create_V2", "NVPW_CUDA_RawMetricsConfig_Create_V2_Params", f"activityKind:enum {_CHIP} {_CONFIG}"),
        ("NVPW_RawMetricsConfig_Destroy", "NVPW_RawMetricsConfig_Destroy_Params", _CONFIG),
        ("NVPW_RawMetricsConfig_BeginPassGroup", "NVPW_RawMetricsConfig_BeginPassGroup_Params", f"{_CONFIG} maxPassCount:size"),
        ("NVPW_RawMetricsConfig_AddMetrics", "NVPW_RawMetricsConfig_AddMetrics_Params",
         f"{_CONFIG} pRawMetricRequests:pointer numMetricRequests:size"),
        ("NVPW_RawMetricsConfig_EndPassGroup", "NVPW_RawMetricsConfig_EndPassGroup_Params", _CONFIG),
        ("NVPW_RawMetricsConfig_GenerateConfigImage", "NVPW_RawMetricsConfig_GenerateConfigImage_Params",
         f"{_CONFIG} mergeAllPassGroups:u8"),
        ("NVPW_RawMetricsConfig_GetNumPasses_V2", "NVPW_RawMetricsConfig_GetNumPasses_V2_Params", f"{_CONFIG} numPasses:size"),
    )
}  # fmt: skip


@functools.cache
def structure(function: str, version: int | None) -> type[ctypes.Structure]:
    """Return the ctypes structure that a function takes in a release (None: the first), with `SIZE`, as the library wants to be told it.

    >>> structure("cuptiProfilerHostDeinitialize", 26).SIZE, structure("cuptiPmSamplingDecodeData", 26).SIZE
    (24, 45)
    """
    shape = SHAPES[function]
    fields = [("structSize", ctypes.c_size_t), ("pPriv", ctypes.c_void_p)]
    fields += [(name, _C[kind]) for name, kind, _ in shape.known(version)]
    made: Any = type(shape.name, (ctypes.Structure,), {"_fields_": fields})
    last = getattr(made, fields[-1][0])
    made.SIZE = last.offset + last.size  # the headers count no padding behind the last field
    return made  # type: ignore[no-any-return]


def parameters(function: str, version: int | None, **values: Any) -> Any:
    """Return the structure of a function, filled; what a release doesn't know yet is left out.

    Text is given as str, addresses as ctypes arrays or numbers, lists of names as lists of str. What it points to lives as long as it.
    """
    given: Any = structure(function, version)()
    given.structSize = type(given).SIZE
    given.kept = []
    for name, kind, _ in SHAPES[function].known(version):
        if name in values:
            setattr(given, name, _converted(kind, values[name], given.kept))
    return given


def _converted(kind: str, value: Any, kept: list[Any]) -> Any:
    if kind == "text" and isinstance(value, str):
        return value.encode()
    if kind == "texts" and value is not None and not isinstance(value, ctypes.Array):
        value = texts(value)
    kept.append(value)
    if kind == "pointer" and isinstance(value, ctypes.Array | ctypes.Structure):
        return ctypes.addressof(value)
    return value


def texts(names: Iterable[str]) -> Any:
    """Return names as C takes a list of them."""
    encoded = [name.encode() for name in names]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def call(library: Library, function: str, doing: str, **values: Any) -> Any:
    """Call a function of CUPTI with these values; return its structure, in which it has written. Raises CuptiError.

    `doing` says what the call was for, as the beginning of the error's sentence.
    """
    given = parameters(function, library.version, **values)
    library.call(function, ctypes.byref(given), doing=doing)
    return given


def room(size: int) -> Any:
    """Return so many zeroed bytes, aligned to 8, as images must be."""
    words = (ctypes.c_uint64 * ((size + 7) // 8))()
    return (ctypes.c_uint8 * size).from_buffer(words)
