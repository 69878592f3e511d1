"""The roofs beside the tensor pipes: memory, other pipes and links, each as the share of its peak that a GPU used; and energy."""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="Ullage equations, section 10")
def bandwidth_utilization(dram_active: Value, memory_clock: Value, highest_memory_clock: Value) -> Value:
    """How much of its stated memory bandwidth a GPU used (OBU), from one activity reading and one clock sample.

    1 is the stated peak, which no program reaches: 0.85 to 0.93 is what benchmarks measure on most GPUs. High OBU with low OFU is work that
    is bound by memory, and not work that is done badly. It counts bytes that cross the memory interface, also those that a
    larger cache would have kept.

    Memory moves data in 60 % of its cycles, at half of its clock:

    >>> bandwidth_utilization(dram_active=0.6, memory_clock=1.3e9, highest_memory_clock=2.6e9)
    0.3
    """
    return dram_active * ratio(memory_clock, highest_memory_clock)


@metric(unit="1", source="Ullage equations, section 10, after the OFU paper's eq. 1")
def pipe_utilization(pipe_active: Value, sm_clock: Value, highest_sm_clock: Value) -> Value:
    """How much of its peak issue rate a pipe outside the tensor cores used: FP64, FP32 or FP16.

    1 is an instruction in every cycle in which the pipe takes one, at the highest clock. Stencils, solvers and much of HPC live
    here, where OFU is 0.

    >>> pipe_utilization(pipe_active=0.5, sm_clock=1.41e9, highest_sm_clock=1.41e9)
    0.5
    """
    return pipe_active * ratio(sm_clock, highest_sm_clock)


@metric(unit="1", source="Ullage equations, section 10")
def link_utilization(bytes_per_second: Value, peak_per_direction: Value) -> Value:
    """How much of a link's rate in one direction a GPU used: NVLink, or PCIe.

    Of the two directions the fuller one counts: a link that only sends is full when it sends all it can.

    >>> link_utilization(bytes_per_second=225e9, peak_per_direction=450e9)
    0.5
    """
    return ratio(bytes_per_second, peak_per_direction)


@metric(unit="1", source="Ullage equations, section 10")
def roof_distance(utilization: Value, reachable: Value) -> Value:
    """How far a job is from a roof: 0 at the roof.

    `reachable` is the measured ceiling over the stated peak, 1 where nothing was measured. The nearest roof is the one with the least
    distance; it may be far all the same, and then the job waits for something else than a roof.

    A job uses 45 % of the stated bandwidth, of which 90 % were measured to be reachable:

    >>> roof_distance(utilization=0.45, reachable=0.9)
    0.5
    """
    return 1 - ratio(utilization, reachable)


@metric(unit="FLOP/J", source="Ullage: OFU times the peak, over the power")
def flops_per_joule(ofu: Value, peak: Value, power: Value) -> Value:
    """How many FLOPs the tensor pipes did for each joule of the accelerator, as if all were of the precision of `peak`.

    The chip's best is its peak over its power limit: a job comes near it only at full tensor activity. Host, network and cooling are
    not in it.

    >>> flops_per_joule(ofu=0.5, peak=1e15, power=500)
    1000000000000.0
    """
    return ratio(ofu * peak, power)
