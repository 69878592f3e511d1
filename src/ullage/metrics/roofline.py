"""How near a kernel came to what its own instructions and its own bytes allow."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="Williams, Waterman, Patterson: Roofline, CACM 52 (2009); ceilings by instruction: arXiv 2402.13499, table VII")
def roof_efficiency(roof_time: Value, time: Value) -> Value:
    """The least time that a kernel's work could take over the time that it took.

    `roof_time` is the longer of two: its FLOPs at the ceiling of the instructions it issues, its bytes at the memory's bandwidth. 1: only
    less work would be faster. Low: neither the pipes nor the memory are kept busy; look at occupancy, latency, the tail.

    >>> roof_efficiency(roof_time=6e-6, time=8e-6)
    0.75
    """
    return ratio(roof_time, time)


@metric(unit="FLOP/B", source="Williams, Waterman, Patterson: Roofline, CACM 52 (2009)")
def arithmetic_intensity(flops: Value, bytes: Value) -> Value:
    """How many FLOPs a kernel executes for each byte of device memory that it reads or writes.

    >>> arithmetic_intensity(flops=1e9, bytes=2e6)
    500.0
    """
    return ratio(flops, bytes)
