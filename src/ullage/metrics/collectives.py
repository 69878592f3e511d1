"""How fast collectives move data: algorithm and bus bandwidth, as NCCL's tests define them."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio

_TESTS = "nccl-tests, doc/PERFORMANCE.md"

# How often each byte crosses a GPU's link one way, at least: so many times (n - 1)/n among n ranks, or always once.
_SHARED = {"allreduce": 2, "allgather": 1, "reducescatter": 1, "alltoall": 1}
_ONCE = ("broadcast", "reduce", "sendrecv")


def crossings(operation: str, ranks: int) -> float | None:
    """Return bus over algorithm bandwidth of an operation among `ranks` (2 or more); None for operations without such a factor.

    It is how often each byte crosses a GPU's link one way, at least. Source: nccl-tests, doc/PERFORMANCE.md and src/alltoall.cu.

    >>> crossings("allreduce", 8), crossings("allgather", 4), crossings("broadcast", 8), crossings("barrier", 8)
    (1.75, 0.75, 1.0, None)
    """
    if ranks < 2 or operation not in (*_SHARED, *_ONCE):
        return None
    return 1.0 if operation in _ONCE else _SHARED[operation] * (ranks - 1) / ranks


@metric(unit="B/s", source=_TESTS)
def algorithm_bandwidth(size: Value, seconds: Value) -> Value:
    """How fast a collective is done: its size over its time.

    The size is what one rank has of the larger of input and output: all that is gathered, all that is scattered. It depends on the
    number of ranks, so of different groups only the bus bandwidth can be compared.

    256 MB in 1 ms.

    >>> algorithm_bandwidth(size=256e6, seconds=1e-3)
    256000000000.0
    """
    return ratio(size, seconds)


@metric(unit="B/s", source=_TESTS)
def bus_bandwidth(size: Value, seconds: Value, link_crossings: Value) -> Value:
    """How fast data cross each GPU's link, one way: algorithm bandwidth x how often each byte must cross a link.

    It can be held against the link's rate, whatever the number of ranks: all-reduce 2(n - 1)/n, all-gather, reduce-scatter and
    all-to-all (n - 1)/n, broadcast, reduce, send and receive 1. A switch that reduces (NVLink SHARP) saves crossings: then it may exceed
    the rate.

    256 MB in 1 ms, all-reduced among 8 ranks.

    >>> bus_bandwidth(size=256e6, seconds=1e-3, link_crossings=1.75)
    448000000000.0
    """
    return ratio(size * link_crossings, seconds)
