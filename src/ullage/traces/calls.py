"""What a call of a GPU runtime or driver does, told by its name: CUDA's and HIP's, with or without version suffix."""

from __future__ import annotations

import re
from functools import lru_cache

LONGEST = 1000  # letters of a name that are looked at: some patterns take the square of a name's length
_VERSION = re.compile(r"(_v\d+(_ptsz|_ptds)?|_ptsz|_ptds)$")
_FIRST_CUDA = re.compile(r"(_ptsz|_ptds)?_v\d{4,}$")  # the driver's own `_v2` belongs to the name
_KINDS = (
    ("graph", re.compile(r"^(cudaGraphLaunch|cuGraphLaunch|hipGraphLaunch)")),
    (
        "launch",
        re.compile(
            r"Launch(Cooperative|CooperativeMultiDevice|Host|Multi\w*)?Kernel|cuLaunch(?!HostFunc)|hip\w*ModuleLaunch|^(cuda|hip)Launch(?!HostFunc)"
        ),
    ),
    ("sync", re.compile(r"Synchronize|^(cuda|cu|hip)(Stream|Event)WaitValue|StreamSync")),
    ("copy", re.compile(r"^(cuda|cu|hip)(Memcpy|Memset|MemPrefetch)")),
)


@lru_cache(maxsize=4096)
def call(name: str) -> str:
    """Return what a call does, as one of `ullage.tables.CALLS`. A device-side wait (StreamWaitEvent) does not block: other.

    >>> call("cudaLaunchKernel_v7000"), call("hipGraphLaunch"), call("cuStreamSynchronize"), call("cudaMemcpyAsync"), call("cudaMalloc")
    ('launch', 'graph', 'sync', 'copy', 'other')
    """
    plain = _VERSION.sub("", name[:LONGEST])
    return next((kind for kind, pattern in _KINDS if pattern.search(plain)), "other")


def without_cuda_version(name: str) -> str:
    """Return the name that programmers call; CUPTI, and so Nsight Systems, adds the CUDA version that first had the call.

    >>> without_cuda_version("cudaLaunchKernel_ptsz_v7000"), without_cuda_version("cudaMemcpy_v3020"), without_cuda_version("cuMemAlloc_v2")
    ('cudaLaunchKernel', 'cudaMemcpy', 'cuMemAlloc_v2')
    """
    return _FIRST_CUDA.sub("", name)


_COLLECTIVE = re.compile(
    r"(?i)\b(nccl|rccl|deep_ep|mscclpp|msccl|oneccl|hccl)|ncclDev|ncclKernel|mscclKernel|nvshmem\w*(barrier|reduce|broadcast|alltoall|put|get)|multimem_(all|one_shot|two_shot)|(one|two)_shot_all_reduce|cross_device_reduce|custom_all_reduce|quickreduce|vllm::cross_device"
)


# one of these is in whatever the pattern finds; a profile may have a million names
_HINTS = ("ccl", "deep_ep", "nvshmem", "multimem_", "shot_all_reduce", "cross_device", "custom_all_reduce", "quickreduce")


@lru_cache(maxsize=65536)
def is_collective(name: str) -> bool:
    """Return whether a kernel only communicates, told by its name: NCCL, RCCL, MSCCL, custom all-reduce kernels.

    >>> is_collective("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"), is_collective("ampere_bf16_s16816gemm")
    (True, False)
    """
    start = name[:LONGEST].lower()
    return any(hint in start for hint in _HINTS) and _COLLECTIVE.search(start) is not None


_OPERATIONS = (
    ("allreduce", re.compile(r"(?i)all_?reduce")),
    ("reducescatter", re.compile(r"(?i)reduce_?scatter")),
    ("allgather", re.compile(r"(?i)all_?gather")),
    ("alltoall", re.compile(r"(?i)all_?to_?all")),
    ("broadcast", re.compile(r"(?i)broadcast|bcast")),
    ("sendrecv", re.compile(r"(?i)send_?recv|nccl\w*_?(send|recv)")),
    ("reduce", re.compile(r"(?i)reduce")),
)


@lru_cache(maxsize=65536)
def operation(name: str) -> str | None:
    """Return a collective's operation from its kernel's name, None where the name doesn't tell.

    >>> operation("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"), operation("ncclDevKernel_Generic")
    ('allreduce', None)
    """
    return next((word for word, pattern in _OPERATIONS if pattern.search(name, 0, LONGEST)), None)
