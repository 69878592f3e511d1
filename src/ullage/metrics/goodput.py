"""Goodput: how much of a fleet's peak went into work that counts, as a product of what the scheduler, the runtime and the program leave.

    goodput = scheduling goodput × runtime goodput × program goodput

The three parts are those of "ML Productivity Goodput" (arXiv 2502.06982). The program's part there is ideal time over
the time that was taken; here it is the chain of telemetry from "held idle" to "clock", whose product is OFU over the time that jobs held.
"""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio

SOURCE = "after ML Productivity Goodput, arXiv 2502.06982"


@metric(unit="1", source=SOURCE)
def scheduling_goodput(allocated: Value, capacity: Value) -> Value:
    """How much of the GPU time jobs held: what is missing was free, or a part of a GPU that was in no slice.

    `capacity` is the GPU time whose owner is known. Says nothing of what the jobs did with it: see `program_goodput`.

    Of 100 GPU-hours jobs held 80:

    >>> scheduling_goodput(allocated=80, capacity=100)
    0.8
    """
    return ratio(allocated, capacity)


@metric(unit="1", source=SOURCE)
def runtime_goodput(kept: Value, allocated: Value) -> Value:
    """How much of the time that jobs held belongs to runs whose work was kept: what is missing failed, or was started again.

    A lower bound where jobs save their work: records do not say what a checkpoint saved. Runs that were cancelled or reached their time
    limit count as kept: many jobs save their work and end so.

    Of 80 GPU-hours 20 belong to runs that failed:

    >>> runtime_goodput(kept=60, allocated=80)
    0.75
    """
    return ratio(kept, allocated)


@metric(unit="1", source=SOURCE)
def program_goodput(useful: Value, kept: Value) -> Value:
    """How full the GPUs were in runs whose work was kept: OFU over all time that these held, which is the product of the chain's factors.

    60 GPU-hours come to 18 at the peak:

    >>> program_goodput(useful=18, kept=60)
    0.3
    """
    return ratio(useful, kept)


@metric(unit="1", source=SOURCE)
def goodput(scheduling: Value, runtime: Value, program: Value) -> Value:
    """How much of the fleet's peak went into work that was kept: the product of its three parts.

    >>> round(goodput(scheduling=0.8, runtime=0.75, program=0.3), 12)
    0.18
    """
    return scheduling * runtime * program
