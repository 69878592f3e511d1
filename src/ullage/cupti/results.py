"""What CUPTI's answers mean, and what a person can do about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError

SUCCESS = 0
INVALID_PARAMETER = 1
INVALID_OPERATION = 7
OUT_OF_MEMORY = 8
HARDWARE_BUSY = 26
NOT_SUPPORTED = 27

_ASK_ULLAGE = "`ullage cupti check` says what stands in the way on this machine"
_OURS = "this is a fault of Ullage's: please report it, with the line above"
_COUNTERS = (
    "the program runs on without counters; for counters run as root, give the container `--cap-add SYS_ADMIN`, or let the "
    "administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0. " + _ASK_ULLAGE
)
_OTHER = "one profiler at a time: run without nsys, ncu, cuda-gdb and PyTorch's profiler. " + _ASK_ULLAGE
_EVENTS_GONE = "`ullage cupti map NAME` tells the metric that replaces it"
_UNIFIED = "leave unified memory out; the other kinds are recorded"

# Names and numbers: cupti_result.h of CUDA 12.0 to 13.5; 46 is new in 12.6, 47 in 13.1. What they mean, and the hints: our words.
_KNOWN: dict[int, tuple[str, str, str]] = {
    0: ("SUCCESS", "it worked", ""),
    1: ("INVALID_PARAMETER", "an argument is wrong, or of another release of CUPTI", _OURS),
    2: ("INVALID_DEVICE", "there is no such GPU", "is it hidden by CUDA_VISIBLE_DEVICES? `nvidia-smi -L` lists all"),
    3: ("INVALID_CONTEXT", "there is no such CUDA context, or none yet", "call CUDA once before (cuInit and a context), then again"),
    4: ("INVALID_EVENT_DOMAIN_ID", "there is no such event domain", _EVENTS_GONE),
    5: ("INVALID_EVENT_ID", "there is no such event", _EVENTS_GONE),
    6: ("INVALID_EVENT_NAME", "no event has this name", _EVENTS_GONE),
    7: ("INVALID_OPERATION", "this can't be done in the state CUPTI is in", "stop what else measures on this GPU, then again"),
    8: ("OUT_OF_MEMORY", "memory ran out", "smaller buffers, fewer metrics or fewer ranges need less of it"),
    9: ("HARDWARE", "the GPU's counters report a fault", "`nvidia-smi -q` and the kernel's log (Xid) tell more"),
    10: ("PARAMETER_SIZE_NOT_SUFFICIENT", "the room given for the answer is too small", _OURS),
    11: ("API_NOT_IMPLEMENTED", "this release of CUPTI can't do it", "install a newer nvidia-cuda-cupti that the driver allows"),
    12: ("MAX_LIMIT_REACHED", "there is no more (records of a buffer, ranges of an image)", ""),
    13: ("NOT_READY", "it isn't ready yet", "try again a moment later"),
    14: (
        "NOT_COMPATIBLE", "it doesn't go together with what is already switched on, or this kind can't be asked for by itself",
        "leave this kind out; the others are recorded",
    ),
    15: (
        "NOT_INITIALIZED", "CUPTI found no NVIDIA driver, one that is too old for it, or not its own libnvperf libraries",
        "is there a GPU (a container needs `--gpus all`)? is the driver at least as new as this CUPTI? " + _ASK_ULLAGE,
    ),
    16: ("INVALID_METRIC_ID", "there is no such metric", _EVENTS_GONE),
    17: ("INVALID_METRIC_NAME", "no metric of this chip has this name", "`ullage cupti metrics CHIP` lists all"),
    18: ("QUEUE_EMPTY", "nothing is waiting", ""),
    19: ("INVALID_HANDLE", "a handle is of no use any more", _OURS),
    20: ("INVALID_STREAM", "there is no such stream", _OURS),
    21: ("INVALID_KIND", "this release of CUPTI doesn't know this kind of record", "leave this kind out; the others are recorded"),
    22: ("INVALID_EVENT_VALUE", "an event's value makes no sense", "measure again"),
    23: ("DISABLED", "another profiler has switched CUPTI off", _OTHER),
    24: ("INVALID_MODULE", "there is no such CUDA module, or it is no whole cubin", ""),
    25: ("INVALID_METRIC_VALUE", "a metric has no value here, as when its denominator is 0", "measure a range in which kernels run"),
    26: (
        "HARDWARE_BUSY", "somebody else is using this GPU's counters",
        "DCGM lets go of them by `dcgmi profile --pause` (and takes them again by `dcgmi profile --resume`); otherwise stop the other "
        "profiler. " + _ASK_ULLAGE,
    ),
    27: ("NOT_SUPPORTED", "this GPU or system can't do it", "leave it out; " + _ASK_ULLAGE),
    28: ("UM_PROFILING_NOT_SUPPORTED", "unified memory can't be traced on this system", _UNIFIED),
    29: ("UM_PROFILING_NOT_SUPPORTED_ON_DEVICE", "unified memory can't be traced on this GPU", _UNIFIED),
    30: ("UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES", "unified memory can't be traced: the GPUs don't reach each other", _UNIFIED),
    31: ("UM_PROFILING_NOT_SUPPORTED_WITH_MPS", "unified memory can't be traced under MPS", _UNIFIED),
    32: ("CDP_TRACING_NOT_SUPPORTED", "kernels launched by kernels can't be traced on this GPU", "leave kind 18 out"),
    33: (
        "VIRTUALIZED_DEVICE_NOT_SUPPORTED", "this GPU is a virtual one (vGPU), which can't be profiled here",
        "ask the provider for pass-through, or for a vGPU profile with profiling",
    ),
    34: ("CUDA_COMPILER_NOT_COMPATIBLE", "the program was compiled by an nvcc before 9.0; its figures may be wrong", "compile it anew"),
    35: ("INSUFFICIENT_PRIVILEGES", "the driver lets only the administrator read the GPU's counters", _COUNTERS),
    36: (
        "OLD_PROFILER_API_INITIALIZED", "the old event interface is in use in this process, which excludes the new one",
        "run without the library that uses it (old PAPI, old TAU)",
    ),
    37: ("OPENACC_UNDEFINED_ROUTINE", "the OpenACC library lacks a routine", "link OpenACC dynamically"),
    38: (
        "LEGACY_PROFILER_NOT_SUPPORTED", "events and metrics of the old interface ended with CUDA 13 and Turing",
        _EVENTS_GONE + "; on Rubin and later only the range profiler works",
    ),
    39: ("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED", "another profiler is already attached to this program", _OTHER),
    40: (
        "VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES", "the hypervisor forbids profiling on this virtual GPU",
        "the provider must allow it for the virtual machine (vGPU: pciPassthru0.cfg.enable_profiling or its like)",
    ),
    41: (
        "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", "confidential computing is on, which forbids tracing and counters",
        "use NVML's figures (`ullage sample`), or a machine without it",
    ),
    42: ("CMP_DEVICE_NOT_SUPPORTED", "this is a mining processor (CMP), which CUPTI doesn't serve", "use another GPU"),
    43: (
        "MIG_DEVICE_NOT_SUPPORTED", "this GPU is split by MIG, which forbids this kind of profiling",
        "the program runs on; for counters use a whole GPU, or DCGM's, which know the instances",
    ),
    44: ("SLI_DEVICE_NOT_SUPPORTED", "this GPU is part of an SLI group", "switch SLI off"),
    45: (
        "WSL_DEVICE_NOT_SUPPORTED", "this GPU is reached through WSL, which forbids this kind of profiling",
        "allow access to the counters for all users in Windows' NVIDIA Control Panel (Developer), or measure on Linux itself",
    ),
    46: ("INVALID_CHIP_NAME", "this release of CUPTI doesn't know this chip", "`ullage cupti chips` lists those it knows"),
    47: ("HES_TRACE_NOT_SUPPORTED_ON_MPS", "tracing by the hardware's own events is impossible under MPS", "leave it off"),
    999: (
        "UNKNOWN", "CUPTI gives no reason; without an NVIDIA driver many of its functions answer so",
        "is there a GPU (a container needs `--gpus all`)? " + _ASK_ULLAGE,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class CuptiResult:
    """An answer of CUPTI's: its number, the header's name of it, what it means, and what to do ("" where there is nothing)."""

    code: int
    name: str
    meaning: str
    hint: str


def explain(code: int) -> CuptiResult:
    """Return what an answer of CUPTI's (CUptiResult) means; a number of no known release is said to be so.

    >>> explain(39).name, explain(39).meaning
    ('CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED', 'another profiler is already attached to this program')
    >>> explain(4711).meaning
    'an answer that no release up to 13.5 gives'
    """
    if code not in _KNOWN:
        return CuptiResult(code, f"CUptiResult {code}", "an answer that no release up to 13.5 gives", _ASK_ULLAGE)
    name, meaning, hint = _KNOWN[code]
    return CuptiResult(code, ("CUPTI_" if code == SUCCESS else "CUPTI_ERROR_") + name, meaning, hint)


# Calls that answer INVALID_OPERATION where somebody else has a GPU's counters: "if PM sampling is already enabled on the device"
# (cupti_pmsampling.h); of the others it means a wrong order of calls.
_TAKING = (
    "cuptiPmSamplingEnable",
    "cuptiPmSamplingGetCounterAvailability",
    "cuptiProfilerGetCounterAvailability",
    "cuptiRangeProfilerEnable",
)


class CuptiError(UllageError):
    """CUPTI refused something; `code` is its answer, `doing` what was to be done, `function` which call it was ("": not told).

    >>> print(CuptiError("starting to trace", 39).problem)
    starting to trace failed: another profiler is already attached to this program (CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    """

    def __init__(self, doing: str, code: int, function: str = "") -> None:
        result = explain(code)
        super().__init__(f"{doing} failed: {result.meaning} ({result.name})", result.hint)
        self.doing = doing
        self.code = code
        self.function = function

    @property
    def counters_taken(self) -> bool:
        """Whether another profiler has the GPU's counters: nothing is wrong, they can only not be had now."""
        return self.code == HARDWARE_BUSY or (self.code == INVALID_OPERATION and self.function in _TAKING)


def recorded_problems(info: Mapping[str, Any], doing: str, words: Mapping[str, str], since: str = "") -> Iterator[str]:
    """Yield what a recording's INFO says went wrong, in words: calls of CUPTI that failed while the recorder was `doing` something, and
    what else `words` has a sentence for. A call that this CUPTI lacks came with the release `since`.

    >>> list(recorded_problems({"problems": [{"what": "cuptiX", "code": -1, "detail": "counting"}]}, "counting", {}, "CUDA 12.5"))
    ['counting failed: this CUPTI has no cuptiX, which came with CUDA 12.5']
    """
    listed = info.get("problems")
    for one in listed if isinstance(listed, list) else ():
        what, code, detail = (one.get(name) for name in ("what", "code", "detail")) if isinstance(one, dict) else (None, None, None)
        if detail == doing and isinstance(code, int) and code > 0:
            answer = explain(code)
            yield f"{doing} failed: {answer.meaning} ({what}: {answer.name}){f'; {answer.hint}' if answer.hint else ''}"
        elif detail == doing:
            yield f"{doing} failed: this CUPTI has no {what}{f', which came with {since}' if since else ''}"
        elif isinstance(what, str) and what in words:
            yield f"{words[what]}: {detail}" if detail else words[what]
