"""The kinds of activity records, what asking for each costs, and the names of the calls that records are about.

Numbers and names are those of CUPTI 12.0 to 13.5 together (cupti_activity.h, cupti_driver_cbid.h, cupti_runtime_cbid.h).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cache

from ullage.cupti.stored import stored


class ActivityKind(IntEnum):
    """What an activity record is about (CUpti_ActivityKind). Which struct a record of it is: see `layouts`."""

    INVALID = 0
    MEMCPY = 1
    MEMSET = 2
    KERNEL = 3
    DRIVER = 4
    RUNTIME = 5
    EVENT = 6
    METRIC = 7
    DEVICE = 8
    CONTEXT = 9
    CONCURRENT_KERNEL = 10
    NAME = 11
    MARKER = 12
    MARKER_DATA = 13
    SOURCE_LOCATOR = 14
    GLOBAL_ACCESS = 15
    BRANCH = 16
    OVERHEAD = 17
    CDP_KERNEL = 18
    PREEMPTION = 19
    ENVIRONMENT = 20
    EVENT_INSTANCE = 21
    MEMCPY2 = 22
    METRIC_INSTANCE = 23
    INSTRUCTION_EXECUTION = 24
    UNIFIED_MEMORY_COUNTER = 25
    FUNCTION = 26
    MODULE = 27
    DEVICE_ATTRIBUTE = 28
    SHARED_ACCESS = 29
    PC_SAMPLING = 30
    PC_SAMPLING_RECORD_INFO = 31
    INSTRUCTION_CORRELATION = 32
    OPENACC_DATA = 33
    OPENACC_LAUNCH = 34
    OPENACC_OTHER = 35
    CUDA_EVENT = 36
    STREAM = 37
    SYNCHRONIZATION = 38
    EXTERNAL_CORRELATION = 39
    NVLINK = 40
    INSTANTANEOUS_EVENT = 41
    INSTANTANEOUS_EVENT_INSTANCE = 42
    INSTANTANEOUS_METRIC = 43
    INSTANTANEOUS_METRIC_INSTANCE = 44
    MEMORY = 45
    PCIE = 46
    OPENMP = 47
    INTERNAL_LAUNCH_API = 48
    MEMORY2 = 49
    MEMORY_POOL = 50
    GRAPH_TRACE = 51
    JIT = 52
    DEVICE_GRAPH_TRACE = 53
    MEM_DECOMPRESS = 54
    CONFIDENTIAL_COMPUTE_ROTATION = 55
    GRAPH_HOST_NODE = 56
    COMPUTE_ENGINE_CTX_SWITCH = 57
    HOST_LAUNCH = 58
    GREEN_CONTEXT = 59


# What every recorder asks for when nobody says otherwise, under `ullage run` as attached: all that the trees and the timeline need, with
# records only where work is done. A kind that no report is made of is not asked for: it would cost the program something for nothing.
# No GRAPH_TRACE: with it CUPTI gives no kernels of graphs (guide, 2.3.5).
DEFAULT = frozenset(
    {
        ActivityKind.CONCURRENT_KERNEL,  # one a kernel; kernels still run side by side (KERNEL would serialise them)
        ActivityKind.MEMCPY, ActivityKind.MEMCPY2, ActivityKind.MEMSET,  # one an operation of the device
        ActivityKind.RUNTIME, ActivityKind.DRIVER,  # one a call, most of a recording: libraries call the driver, programs the runtime
        ActivityKind.SYNCHRONIZATION,  # one a wait of the host
        ActivityKind.OVERHEAD,  # CUPTI's own time, the compiler's, the driver's: few
        ActivityKind.DEVICE,  # one a device
        ActivityKind.MARKER,  # two an NVTX range; nothing without NVTX
    }
)  # fmt: skip
# In place of a kernel for each node of a graph, one record a launched graph: far cheaper, but kernels in graphs are then not seen.
GRAPHS = frozenset({ActivityKind.GRAPH_TRACE})
# What may be asked for besides, by the word for it: each reaches the trees and the timeline. All else that CUPTI has would be recorded
# for nobody. (Clocks, temperatures and watts are sampled by NVML, beside the program; OpenMP's runtime tells of its threads' waits.)
ALSO = {
    "unified-memory": ActivityKind.UNIFIED_MEMORY_COUNTER,  # one a stretch of pages that moved; the recorder configures it first
    "decompression": ActivityKind.MEM_DECOMPRESS,  # one an operation of the decompression engine; from CUDA 12.8 on
}

# Calls that tell what CUDA's libraries know already: none launches, copies, waits, allocates or loads anything. Frameworks
# make many of them a launch (PyTorch some twenty, cudaGetDevice first of all), each takes some tens of ns, and to record one
# takes far longer than to make it.
ENQUIRIES: dict[int, frozenset[str]] = {
    ActivityKind.RUNTIME: frozenset(
        {
            "cudaGetDevice", "cudaGetLastError", "cudaPeekAtLastError", "cudaGetDriverEntryPoint",
            "cudaGetDriverEntryPointByVersion", "cudaStreamIsCapturing", "cudaStreamGetCaptureInfo",
            "cudaStreamGetPriority", "cudaStreamGetFlags", "cudaStreamGetId", "cudaPointerGetAttributes",
            "cudaOccupancyMaxActiveClusters", "cudaOccupancyMaxPotentialClusterSize",
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
            "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
            "cudaThreadExchangeStreamCaptureMode",
        }
    ),
    ActivityKind.DRIVER: frozenset(
        {
            "cuGetProcAddress", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetName",
            "cuDeviceGetCount", "cuDriverGetVersion", "cuDevicePrimaryCtxGetState", "cuCtxGetCurrent",
            "cuCtxGetDevice", "cuCtxGetId", "cuCtxPushCurrent", "cuCtxPopCurrent",
            "cuModuleGetLoadingMode", "cuKernelGetAttribute", "cuKernelGetName", "cuFuncGetAttribute",
            "cuFuncGetName", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuStreamIsCapturing",
            "cuStreamGetCaptureInfo", "cuStreamGetCtx", "cuStreamGetId", "cuStreamGetFlags",
            "cuStreamGetPriority", "cuThreadExchangeStreamCaptureMode", "cuOccupancyMaxActiveClusters",
            "cuOccupancyMaxPotentialClusterSize", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        }
    ),
}  # fmt: skip
_VERSION = re.compile(r"_v\d{4,}$")
_FORM = re.compile(r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$")  # a release, a stream of the thread's own


def kind_name(kind: int) -> str:
    """Return the name of a kind in plain words, its number where it has none.

    >>> kind_name(10), kind_name(4711)
    ('concurrent kernel', 'kind 4711')
    """
    return ActivityKind(kind).name.lower().replace("_", " ") if kind in ActivityKind._value2member_map_ else f"kind {kind}"


def call_name(driver: bool, cbid: int) -> str:
    """Return the function that a record of RUNTIME, or of DRIVER, is about, without the release that the runtime's ids end with.

    An id that is newer than CUPTI 13.5 is called by its number, as CUPTI itself does with those it keeps to itself.

    >>> call_name(False, 211), call_name(True, 307), call_name(False, 99999)
    ('cudaLaunchKernel', 'cuLaunchKernel', 'cuda99999')
    """
    return _calls(driver).get(cbid) or f"{'cu' if driver else 'cuda'}{cbid}"


def enquiries() -> str:
    """Return which calls of CUDA are enquiries, by number, as the recorder is told it: of each kind of calls, "4:7+9,5:20".

    >>> enquiries()[:12]
    '4:2+3+4+5+9+'
    """
    listed = {
        kind: [cbid for cbid, name in _calls(kind == ActivityKind.DRIVER).items() if _FORM.sub("", name) in ENQUIRIES[kind]]
        for kind in sorted(ENQUIRIES)
    }
    return ",".join(f"{kind:d}:{'+'.join(map(str, sorted(numbers)))}" for kind, numbers in listed.items())


@cache
def _calls(driver: bool) -> dict[int, str]:
    names = stored("names")["CUpti_driver_api_trace_cbid" if driver else "CUpti_runtime_api_trace_cbid"]
    plain = {int(cbid): label.partition("_TRACE_CBID_")[2] for cbid, label in names.items() if int(cbid)}
    return plain if driver else {cbid: _VERSION.sub("", name) for cbid, name in plain.items()}
