"""From the device tree to OFU: what a device makes of the time in which it computes (Ullage equations, section 6).

    OFU = device parallel efficiency × device computational efficiency
    device computational efficiency = tensor issue efficiency × clock efficiency

The first factor is a trace's, the others are what counters say of the same devices over the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.metrics.metric import Value, metric, ratio
from ullage.metrics.telemetry import clock_efficiency
from ullage.metrics.tree import Node
from ullage.metrics.waterfall import device_computational_efficiency


@metric(unit="1", source="Ullage equations, section 6")
def tensor_issue_efficiency(mean_tensor_active: Value, device_parallel_efficiency: Value) -> Value:
    """In how much of the time in which kernels run the tensor pipes are active.

    1 would be nothing but matrix products that never wait for memory. Above 1 the trace and the counters contradict one another, or
    kernels ran that the trace does not hold (another process on the same GPU). SM fill and tensor issue of the telemetry tree are its
    parts.

    >>> tensor_issue_efficiency(mean_tensor_active=0.3, device_parallel_efficiency=0.6)
    0.5
    """
    return ratio(mean_tensor_active, device_parallel_efficiency)


def computation(device: Node, *, ofu: float, tensor: float) -> Node:
    """Return OFU as a tree: a device tree of a trace, and what the counters say of its computing time. `ofu` and `tensor` (TPA) are means
    over the same devices and the same time as the tree's.

    >>> whole = computation(Node("device_parallel_efficiency", "Parallel efficiency", 0.6, 0.6, 0.6), ofu=0.27, tensor=0.3)
    >>> [(node.label, round(node.value, 3)) for _, node in whole.walk()][1:]
    [('Device parallel efficiency', 0.6), ('Device computational efficiency', 0.45), ('Tensor issue', 0.5), ('Clock', 0.9)]
    """
    parallel = replace(device, label="Device parallel efficiency")
    issue = _of("tensor_issue_efficiency", "Tensor issue", tensor_issue_efficiency, tensor, parallel)
    clock = _exact("clock_efficiency", "Clock", clock_efficiency(ofu, tensor))
    name = "device_computational_efficiency"
    computing = _of(name, "Device computational efficiency", device_computational_efficiency, ofu, parallel)
    return replace(_exact("ofu", "OFU", ofu), children=(parallel, replace(computing, children=(issue, clock))))


def _of(metric: str, label: str, function: Callable[[Value, Value], Value], counted: float, parallel: Node) -> Node:
    """What was counted over the parallel efficiency, which may itself be in doubt."""
    value, low, high = (function(counted, bound) for bound in (parallel.value, parallel.high, parallel.low))
    return Node(metric, label, value, low, high)


def _exact(metric: str, label: str, value: float | None) -> Node:
    return Node(metric, label, value, value, value)
