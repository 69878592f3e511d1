"""CUPTI's settings: how much memory tracing may use, by what number a thread goes, what is collected beside the records."""

from __future__ import annotations

import ctypes
from enum import IntEnum

from ullage.cupti.library import Library

THREAD_AS_SYSTEM = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM: what gettid says
SUCCESS = 0


class Attribute(IntEnum):
    """CUpti_ActivityAttribute (cupti_activity.h, 12.0 to 13.5), as far as `read` and `write` reach.

    3, 4 and 7 do nothing since CUDA 12.3; 9 is new in 13.0. Those from 10 on belong to one subscriber of several, which is not served.
    """

    DEVICE_BUFFER_SIZE = 0
    DEVICE_BUFFER_SIZE_CDP = 1
    DEVICE_BUFFER_POOL_LIMIT = 2
    PROFILING_SEMAPHORE_POOL_SIZE = 3
    PROFILING_SEMAPHORE_POOL_LIMIT = 4
    ZEROED_OUT_ACTIVITY_BUFFER = 5
    DEVICE_BUFFER_PRE_ALLOCATE_VALUE = 6
    PROFILING_SEMAPHORE_PRE_ALLOCATE_VALUE = 7
    MEM_ALLOCATION_TYPE_HOST_PINNED = 8
    PER_THREAD_ACTIVITY_BUFFER = 9


_FLAGS = (Attribute.ZEROED_OUT_ACTIVITY_BUFFER, Attribute.MEM_ALLOCATION_TYPE_HOST_PINNED, Attribute.PER_THREAD_ACTIVITY_BUFFER)


def read(library: Library, attribute: Attribute) -> int:
    """Return an attribute's value: bytes, a count, or 0 and 1 for a flag. Raises CuptiError where this release hasn't it."""
    value = _value(attribute, 0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    library.call(
        "cuptiActivityGetAttribute", attribute, ctypes.byref(size), ctypes.byref(value), doing=f"reading CUPTI's setting {attribute.name}"
    )
    return int(value.value)


def write(library: Library, attribute: Attribute, value: int) -> None:
    """Set an attribute; most count only for what is allocated later, so set it before the program's first context. Raises CuptiError."""
    given = _value(attribute, value)
    size = ctypes.c_size_t(ctypes.sizeof(given))
    library.call(
        "cuptiActivitySetAttribute",
        attribute,
        ctypes.byref(size),
        ctypes.byref(given),
        doing=f"setting CUPTI's {attribute.name} to {value}",
    )


def name_threads_as_system(library: Library) -> None:
    """Let records name a thread as the system does (gettid), which joins them with what else is known of it. Raises CuptiError."""
    library.call("cuptiSetThreadIdType", THREAD_AS_SYSTEM, doing="naming threads as the system does")


def flush_every(library: Library, milliseconds: int) -> None:
    """Let CUPTI deliver full buffers so often (0: as it sees fit). Raises CuptiError."""
    library.call("cuptiActivityFlushPeriod", ctypes.c_uint32(milliseconds), doing=f"delivering buffers every {milliseconds} ms")


def queue_times(library: Library, on: bool = True) -> None:
    """Let kernel records say when they were queued and submitted; it costs time at each launch. Raises CuptiError."""
    library.call("cuptiActivityEnableLatencyTimestamps", ctypes.c_uint8(on), doing="asking for the times of queueing")


def now(library: Library) -> int | None:
    """Return CUPTI's time in ns, on the clock of its records; None where it doesn't tell."""
    time = ctypes.c_uint64()
    return time.value if library.has("cuptiGetTimestamp") and library.ask("cuptiGetTimestamp", ctypes.byref(time)) == SUCCESS else None


def push_external(library: Library, kind: int, identity: int) -> None:
    """Mark the CUDA calls of this thread from now on with `identity` (external correlation, guide 2.3.6).

    `kind` is a number of CUpti_ExternalCorrelationKind: 1 unknown, 2 OpenACC, 3 to 5 the user's own. Raises CuptiError.
    """
    library.call(
        "cuptiActivityPushExternalCorrelationId", kind, ctypes.c_uint64(identity), doing=f"marking calls with external id {identity}"
    )


def pop_external(library: Library, kind: int) -> int:
    """End the newest mark of this thread and kind, and return its identity. Raises CuptiError where there is none."""
    identity = ctypes.c_uint64()
    library.call("cuptiActivityPopExternalCorrelationId", kind, ctypes.byref(identity), doing="ending an external id")
    return identity.value


def _value(attribute: Attribute, value: int) -> ctypes.c_uint8 | ctypes.c_size_t:
    return ctypes.c_uint8(value) if attribute in _FLAGS else ctypes.c_size_t(value)
