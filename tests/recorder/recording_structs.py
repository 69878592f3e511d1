"""CUPTI's activity records as `struct` sees them, written by hand from the headers of 12.0 to 13.5: nothing of Ullage is used.

A struct grows at its end only, so each is what it was at first and what each release added. Fields that no test asks for stand together.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

# of cuptiGetVersion, 12.0 to 13.5
VERSIONS = (
    18, 20, 21, 22, 23, 24, 26, 27, 28, 130000, 130001, 130100, 130101, 130200, 130201, 130202, 130300, 130301, 130400, 130401, 130500,
)  # fmt: skip
COPY, MEMSET, KERNEL, DRIVER, RUNTIME, DEVICE, CONTEXT, CONCURRENT = 1, 2, 3, 4, 5, 8, 9, 10
MARKER, MARKER_DATA, OVERHEAD, CHILD = 12, 13, 17, 18
PEER_COPY, PAGES, WAIT, EXTERNAL, GRAPH, GRAPH_ON_DEVICE, UNPACKED = 22, 25, 38, 39, 51, 53, 54

_TIMES = "Q start, Q end, "
_WHERE = "I deviceId, I contextId, I streamId, "
_SHAPE = "i gridX, i gridY, i gridZ, i blockX, i blockY, i blockZ, "
_NODE = "Q graphNodeId, I graphId, I channelID, I channelType, 4x"
_SOURCE = "I sourceGraphId, 4x, Q sourceGraphNodeId"
# by kind: from which number of cuptiGetVersion on, and what is there from then on
STRUCTS: dict[int, tuple[tuple[int, str], ...]] = {
    COPY: (
        (18, f"I kind, B copyKind, 3B kinds, Q bytes, {_TIMES}{_WHERE}I correlationId, I runtimeCorrelationId, 12x, {_NODE}"),
        (26, "Q copyCount"),
        (130400, _SOURCE),
    ),
    MEMSET: (
        (18, f"I kind, I value, Q bytes, {_TIMES}{_WHERE}I correlationId, H flags, H memoryKind, 12x, {_NODE}"),
        (130400, _SOURCE),
    ),
    RUNTIME: ((18, f"I kind, I cbid, {_TIMES}I processId, I threadId, I correlationId, I returnValue"),),
    DEVICE: (
        (18, "I kind, I flags, 2Q memory, 5I sizes, I numMultiprocessors, 16I limits, I id, I eccEnabled, 16s uuid, Q name"),
        (18, "B isCudaVisible, B isMigEnabled, 6x, I gpuInstanceId, I computeInstanceId, 16s migUuid"),
        (20, "I isNumaNode, I numaId"),
        (130200, "I numTpcs, 4x"),
    ),
    CONTEXT: (
        (18, "I kind, I contextId, I deviceId, H computeApiKind, H nullStreamId"),
        (22, "I parentContextId, B isGreenContext, 1x, H numMultiprocessors"),
        (23, "I cigMode, 4x"),
        (130100, "Q processId"),
    ),
    CONCURRENT: (
        (18, f"I kind, 2B cache, H registersPerThread, 2I partitioned, {_TIMES}Q completed, {_WHERE}{_SHAPE}i staticSharedMemory"),
        (18, "i dynamicSharedMemory, I localMemoryPerThread, I localMemoryTotal, I correlationId, q gridId, Q name, 8x, Q queued"),
        (18, "Q submitted, 4B launch, I sharedMemoryExecuted, Q graphNodeId, I shmemLimitConfig, I graphId, Q pAccessPolicyWindow"),
        (18, "I channelID, I channelType, I clusterX, I clusterY, I clusterZ, I clusterSchedulingPolicy, Q localMemoryTotal_v2"),
        (18, "I maxPotentialClusterSize, I maxActiveClusters"),
        (130000, "B isDeviceLaunched, 7x"),
        (130100, "i priority, 4x"),
        (130300, "I executionModel, 4x"),
        (130400, _SOURCE),
    ),
    MARKER: ((18, "I kind, I flags, Q timestamp, I id, I objectKind, I processId, I threadId, 8x, Q name, Q domain"),),
    MARKER_DATA: ((18, "I kind, I flags, I id, I payloadKind, Q payload, I color, I category"), (130000, "2I more")),
    OVERHEAD: (
        (18, f"I kind, I overheadKind, I objectKind, I processId, I threadId, 4x, {_TIMES}"),
        (21, "I correlationId, 4x"),
        (22, "Q overheadData"),
    ),
    CHILD: (
        (18, f"I kind, 2B cache, H registersPerThread, {_TIMES}{_WHERE}{_SHAPE}i staticSharedMemory, i dynamicSharedMemory"),
        (18, "I localMemoryPerThread, I localMemoryTotal, I correlationId, q gridId, q parentGridId, Q queued, Q submitted, Q completed"),
        (18, "3I parentBlock, 4x, Q name"),
    ),
    PEER_COPY: (
        (18, f"I kind, B copyKind, 3B kinds, Q bytes, {_TIMES}{_WHERE}I srcDeviceId, I srcContextId, I dstDeviceId, I dstContextId"),
        (18, f"I correlationId, 8x, {_NODE}"),
    ),
    PAGES: (
        (18, f"I kind, I counterKind, Q value, {_TIMES}Q address, I srcId, I dstId, I streamId, I processId, I flags, 4x"),
        (26, "5Q processors"),
    ),
    WAIT: (
        (18, f"I kind, I type, {_TIMES}I correlationId, I contextId, I streamId, I cudaEventId"),
        (26, "Q cudaEventSyncId, I returnValue, 4x"),
    ),
    EXTERNAL: ((18, "I kind, I externalKind, Q externalId, I correlationId, 4x"),),
    GRAPH: (
        (18, f"I kind, I correlationId, {_TIMES}I deviceId, I graphId, I contextId, I streamId, 8x"),
        (21, "I endDeviceId, I endContextId"),
    ),
    GRAPH_ON_DEVICE: ((26, f"I kind, I deviceId, {_TIMES}I graphId, I launcherGraphId, I deviceLaunchMode, I contextId, Q streamId, 8x"),),
    UNPACKED: ((26, f"I kind, {_WHERE}I channelID, I channelType, I correlationId, I numberOfOperations, Q sourceBytes, 8x, {_TIMES}"),),
}
STRUCTS[KERNEL], STRUCTS[DRIVER] = STRUCTS[CONCURRENT], STRUCTS[RUNTIME]

# some numbers of cupti_runtime_cbid.h and cupti_driver_cbid.h, with the names that they have there; what puts work on a device is marked
CALLS = {
    RUNTIME: {
        211: "cudaLaunchKernel *", 31: "cudaMemcpy *", 41: "cudaMemcpyAsync *", 51: "cudaMemsetAsync *",
        311: "cudaGraphLaunch *", 430: "cudaLaunchKernelExC *", 165: "cudaDeviceSynchronize",
        131: "cudaStreamSynchronize", 20: "cudaMalloc", 135: "cudaEventRecord", 3: "cudaGetDeviceCount", 138: "cudaEventQuery",
    },
    DRIVER: {
        307: "cuLaunchKernel *", 276: "cuMemcpyHtoD_v2 *", 278: "cuMemcpyDtoH_v2 *", 249: "cuMemsetD8_v2 *", 514: "cuGraphLaunch *",
        652: "cuLaunchKernelEx *", 17: "cuCtxSynchronize", 126: "cuStreamSynchronize", 243: "cuMemAlloc_v2",
    },
}  # fmt: skip


@cache
def layout(kind: int, version: int) -> tuple[struct.Struct, tuple[tuple[str, str], ...]]:
    """Return a kind's struct in a release, and its fields with their codes."""
    parts = ", ".join(more.strip(", ") for since, more in STRUCTS[kind] if since <= version).split(", ")
    fields = [tuple(part.split(" ")) for part in parts]
    return struct.Struct("<" + "".join(field[0] for field in fields)), tuple((field[1], field[0]) for field in fields if len(field) == 2)


def known_in(version: int) -> list[int]:
    """Return the kinds written down here that a release has."""
    return sorted(kind for kind, steps in STRUCTS.items() if steps[0][0] <= version)


def offsets(kind: int, version: int) -> dict[str, int]:
    """Return at which byte each field that has one value begins."""
    at, found = 0, {}
    for since, more in STRUCTS[kind]:
        for code, _, name in (part.partition(" ") for part in more.strip(", ").split(", ") if since <= version):
            at += struct.calcsize("<" + code)
            if name and not code[0].isdigit():
                found[name] = at - struct.calcsize("<" + code)
    return found


def packed(kind: int, version: int, **values: Any) -> bytes:
    """Return a record; fields that are not told are zero, and those that the release doesn't have are left out."""
    made, fields = layout(kind, version)
    return made.pack(*(one for name, code in fields for one in _given(name, code, {"kind": kind, **values})))


def _given(name: str, code: str, values: dict[str, Any]) -> tuple[Any, ...]:
    if code.endswith("s"):
        return (values.get(name, b""),)
    return (values.get(name, 0),) * int(code[:-1] or 1)


def record(kind: int, version: int, data: bytes, at: int) -> dict[str, Any]:
    """Return the fields of the record at a byte; of a field of several values the first."""
    made, fields = layout(kind, version)
    values = list(made.unpack_from(data, at))
    found = {}
    for name, code in fields:
        found[name] = values.pop(0)
        del values[: 0 if code.endswith("s") else int(code[:-1] or 1) - 1]
    return found
