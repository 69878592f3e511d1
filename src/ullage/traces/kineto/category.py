"""The categories of a PyTorch profile's events: which are work on a device, which calls of its runtime, and so on.

`ENGINE` is what MTIA's engines do, kernels and copies alike; an `OPERATOR` or a Python `FUNCTION` shows that its process lived, and
some of them what a kernel computes and in which layer; what is `OTHER` counts for nothing: copies of host ranges that the profiler
draws on devices, flows, counters and instants. A `WAIT` is a call's wait for an event or a stream, which PyTorch records where it is asked
to (`enable_cuda_sync_events`). `META` has no category: names of processes and threads, and instants.
"""

from __future__ import annotations

OTHER, KERNEL, MEMCPY, MEMSET, ENGINE, API, NOTE, OPERATOR, FUNCTION, OVERHEAD, META, WAIT = range(12)
DEVICE = (KERNEL, MEMCPY, MEMSET, ENGINE)
KNOWN = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
    "mtia_ccp_events": ENGINE,
    "cuda_runtime": API,
    "cuda_driver": API,
    "mtia_runtime": API,
    "xpu_runtime": API,
    "xpu_driver": API,
    "privateuse1_runtime": API,
    "privateuse1_driver": API,
    "Runtime": API,
    "user_annotation": NOTE,
    "cpu_op": OPERATOR,
    "Operator": OPERATOR,
    "python_function": FUNCTION,
    "overhead": OVERHEAD,
    "Trace": OTHER,
    "ac2g": OTHER,
    "async_cpu_to_gpu": OTHER,
    "async_gpu": OTHER,
    "cpu_instant_event": OTHER,
    "cuda_event": OTHER,
    "cuda_profiler_range": OTHER,
    "cuda_sync": WAIT,
    "fwdbwd": OTHER,
    "gpu_user_annotation": OTHER,
}


class _Categories(dict[str | None, int]):
    """The code of each category; a runtime or driver that nobody knew when this was written is an API too."""

    def __missing__(self, category: str | None) -> int:
        code = API if category and category.endswith(("_runtime", "_driver")) else OTHER
        if len(self) < 1000:
            self[category] = code
        return code


CODES = _Categories(KNOWN | {"": META})
