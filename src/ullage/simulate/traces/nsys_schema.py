"""The tables of Nsight Systems' SQLite exports through the years: those that hold events and say whose they are, column by column.

Columns are as in exports of the versions 2020, 2022.1, 2024.5, 2026.1 and 2026.2; those of MPI tables, GPU_METRICS and graph traces
as NVIDIA's exporter documentation and public readers name them, for want of a public sample.
"""

from __future__ import annotations

GENERATIONS = ("2020", "2022", "2024", "2026", "newest")

# The version of the schema that an export states, and of the program.
VERSIONS = {
    "2022": ("2.9.1", "2022.1.1.61"),
    "2024": ("3.13.2", "2024.5.1.113"),
    "2026": ("3.24.14", "2026.1.1.204"),
    "newest": ("3.25.0", "2026.2.1.210"),
}

_TEXTS = {"value", "name", "text", "busLocation", "uuid", "utcTime", "localTime", "devStateName", "jsonText", "binaryData", "metricName"}
_TEXTS |= {"chipName", "pciBusId", "tensorSizeMinusOneElements", "typeName", "description"}

_DEVICE = "start end deviceId contextId {green} streamId correlationId globalPid"
_GEOMETRY = "launchType cacheConfig registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory"
_MEMORY = "localMemoryPerThread localMemoryTotal gridId sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"
_HOPPER = (
    "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ clusterSchedulingPolicy "
    "maxPotentialClusterSize maxActiveClusters sharedMemoryRequestedPercentage"
)
_COPY = (
    "bytes copyKind deprecatedSrcId srcKind dstKind srcDeviceId srcContextId dstDeviceId dstContextId migrationCause "
    "graphNodeId virtualAddress"
)
_NVTX = (
    "start end eventType rangeId category color text globalTid endGlobalTid textId domainId uint64Value int64Value doubleValue "
    "uint32Value int32Value floatValue jsonTextId jsonText"
)
_GPU = "vmId id name busLocation isDiscrete l2CacheSize totalMemory memoryBandwidth clockRate smCount pwGpuId uuid luid chipName cuDevice"


def columns(generation: str) -> dict[str, tuple[str, ...]]:
    """Return the columns of every table that an export of a generation may have, by the table's name."""
    year = {"newest": 2027}.get(generation) or int(generation)
    green = "greenContextId" if year >= 2024 else ""
    device = _DEVICE.format(green=green)
    mangled = "mangledName" if year >= 2022 else ""
    hopper = _HOPPER if year >= 2026 else ""
    tables = {
        "StringIds": "id value",
        "ThreadNames": "nameId priority globalTid",
        "CUPTI_ACTIVITY_KIND_KERNEL": f"{device} demangledName shortName {mangled} {_GEOMETRY} {_MEMORY} {hopper}",
        "CUPTI_ACTIVITY_KIND_MEMCPY": f"{device} {_COPY} {'copyCount' if year >= 2026 else ''}",
        "CUPTI_ACTIVITY_KIND_MEMSET": f"{device} value bytes graphNodeId memKind",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue callchainId",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"{device} syncType eventId {'eventSyncId' if year >= 2026 else ''}",
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": f"{device} eventId {'eventSyncId' if year >= 2026 else ''}",
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{device} graphId graphExecId",
        "NVTX_EVENTS": f"{_NVTX} {'binaryData' if year >= 2026 else ''}",
        "OSRT_API": "start end eventClass globalTid nameId returnValue nestingLevel callchainId",
        "SCHED_EVENTS": "start cpu isSchedIn globalTid" + (" threadState threadBlock" if year >= 2024 else ""),
        "PROFILER_OVERHEAD": "start end globalTid nameId returnValue",
        "PROCESSES": "globalPid pid name",
    }
    tables |= _about_machine(year) | (_since_2024() if year >= 2024 else {}) | (_since_2026() if year >= 2026 else {})
    return {name: tuple(words.split()) for name, words in tables.items()}


def _about_machine(year: int) -> dict[str, str]:
    if year < 2022:
        return {
            "TARGET_INFO_GPU": "vmId deviceId name busLocation isDiscrete",
            "TARGET_INFO_CUDA_GPU": "vmId name pciBusId globalMemoryBandwidth globalMemorySize numMultiprocessors pid",
        }
    return {
        "META_DATA_EXPORT" if year >= 2024 else "EXPORT_META_DATA": "name value",
        "TARGET_INFO_GPU": _GPU,
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime localTime" + (" systemClockNs" if year >= 2026 else ""),
        "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
        "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    }


def _since_2024() -> dict[str, str]:
    return {
        "META_DATA_CAPTURE": "name value",
        "TARGET_INFO_CUDA_CONTEXT_INFO": "nullStreamId hwId vmId processId deviceId contextId parentContextId isGreenContext",
        "MPI_RANKS": "globalTid rank",
        "MPI_P2P_EVENTS": "start end globalTid textId commHandle size tag remoteRank",
        "MPI_START_WAIT_EVENTS": "start end globalTid textId requestHandle",
        "MPI_COLLECTIVES_EVENTS": "start end globalTid textId commHandle rootRank size recvSize",
        "MPI_OTHER_EVENTS": "start end globalTid textId",
    }


def _since_2026() -> dict[str, str]:
    return {
        "CUPTI_ACTIVITY_KIND_OVERHEAD": "start end eventClass globalTid correlationId nameId overheadType",
        "TARGET_INFO_CUDA_DEVICE": "gpuId cudaId pid uuid numMultiprocessors",
        "NVTX_PAYLOAD_SCHEMAS": "domainId schemaId name type flags numEntries payloadSize alignTo",
        "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name description arrayOrUnionDetail offset",
        "GPU_METRICS": "timestamp typeId metricId value",
        "TARGET_INFO_GPU_METRICS": "typeId sourceId typeName metricId metricName",
    }


def create(name: str, names: tuple[str, ...]) -> str:
    """Return the SQL that makes a table, as the exporter writes it.

    >>> create("StringIds", ("id", "value"))
    'CREATE TABLE "StringIds" ("id" INTEGER NOT NULL PRIMARY KEY, "value" TEXT)'
    """
    first = " NOT NULL PRIMARY KEY" if name == "StringIds" else ""
    made = [f'"{c}" {"TEXT" if c in _TEXTS and (name, c) != _MEMSET_VALUE else "INTEGER"}{first if c == "id" else ""}' for c in names]
    return f'CREATE TABLE "{name}" ({", ".join(made)})'


_MEMSET_VALUE = ("CUPTI_ACTIVITY_KIND_MEMSET", "value")  # a number there
