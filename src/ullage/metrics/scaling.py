"""How work and time change from a reference run to a larger one: POP's scalability for hosts, and its like for devices.

`work_growth` says how many times the reference's work a run does: 1 in strong scaling, the growth of the resources in weak
scaling. A scaling of 1 is ideal, below 1 is a loss, above 1 a gain (a cache that now fits). Parents are the products of
their children, exactly: each child's numerator is its neighbour's denominator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ullage.metrics.metric import Value, metric, ratio
from ullage.metrics.tree import Branch

Kind = Literal["strong", "weak"]


@metric(unit="1", source="POP methodology: global efficiency = parallel efficiency × computation scalability")
def global_efficiency(reference_useful_time: Value, work_growth: Value, processes: Value, elapsed: Value) -> Value:
    """How much of the processes' time the reference's work would need: parallel efficiency × computation scalability.

    In the reference run it is the parallel efficiency.

    The reference computes for 160 s; four processes do the same work in 50 s.

    >>> global_efficiency(reference_useful_time=160, work_growth=1, processes=4, elapsed=50)
    0.8
    """
    return ratio(reference_useful_time * work_growth, processes * elapsed)


@metric(unit="1", source="POP methodology; Ullage equations, section 5")
def computation_scalability(reference_useful_time: Value, useful_time: Value, work_growth: Value) -> Value:
    """How the time in useful computing grows: below 1 the same work costs more than in the reference run.

    Says nothing of waiting: see the parallel efficiency.

    Strong scaling: 160 s of computing became 200 s. Weak scaling to twice the processes: 160 s became 400 s.

    >>> computation_scalability(160, 200, work_growth=1), computation_scalability(160, 400, work_growth=2)
    (0.8, 0.8)
    """
    return ratio(reference_useful_time * work_growth, useful_time)


@metric(unit="1", source="POP methodology")
def instruction_scaling(reference_instructions: Value, instructions: Value, work_growth: Value) -> Value:
    """Whether a larger run does more instructions for the same work: replicated work makes it less than 1.

    >>> instruction_scaling(reference_instructions=800, instructions=1000, work_growth=1)
    0.8
    """
    return ratio(reference_instructions * work_growth, instructions)


@metric(unit="1", source="POP methodology")
def ipc_scaling(reference_instructions: Value, reference_cycles: Value, instructions: Value, cycles: Value) -> Value:
    """How instructions per cycle change: less than 1 where processes share a memory or a cache.

    From 2 instructions a cycle to 1.5.

    >>> ipc_scaling(reference_instructions=800, reference_cycles=400, instructions=900, cycles=600)
    0.75
    """
    return ratio(instructions * reference_cycles, cycles * reference_instructions)


@metric(unit="1", source="POP methodology")
def frequency_scaling(reference_cycles: Value, reference_useful_time: Value, cycles: Value, useful_time: Value) -> Value:
    """How the clock changes while computing: more busy cores run slower.

    From 4 cycles a nanosecond to 3.

    >>> frequency_scaling(reference_cycles=400, reference_useful_time=100, cycles=600, useful_time=200)
    0.75
    """
    return ratio(cycles * reference_useful_time, useful_time * reference_cycles)


@metric(unit="1", source="Ullage equations, section 5: POP's global efficiency, on the device")
def device_global_efficiency(reference_kernel_time: Value, work_growth: Value, devices: Value, elapsed: Value) -> Value:
    """How much of the devices' time the reference's kernels would need: parallel efficiency × kernel-time scaling.

    >>> device_global_efficiency(reference_kernel_time=160, work_growth=1, devices=4, elapsed=50)
    0.8
    """
    return ratio(reference_kernel_time * work_growth, devices * elapsed)


@metric(unit="1", source="Ullage equations, section 5: POP's computation scalability, on the device")
def kernel_time_scaling(reference_kernel_time: Value, kernel_time: Value, work_growth: Value) -> Value:
    """How the time in kernels grows: below 1 the same work costs more, mostly because kernels are too small for the device.

    Collectives count where kernel time counts them (`talp` mode): ranks that wait then look like work.

    >>> kernel_time_scaling(reference_kernel_time=160, kernel_time=200, work_growth=1)
    0.8
    """
    return ratio(reference_kernel_time * work_growth, kernel_time)


@metric(unit="1", source="Ullage equations, section 5")
def launch_scaling(reference_launches: Value, launches: Value, work_growth: Value) -> Value:
    """Whether a larger run launches more kernels for the same work: 1/2 when twice the devices each launch as many as before.

    That is how a divided domain scales, and no loss if each kernel takes half as long: see the time per launch.

    >>> launch_scaling(reference_launches=1000, launches=2000, work_growth=1)
    0.5
    """
    return ratio(reference_launches * work_growth, launches)


@metric(unit="1", source="Ullage equations, section 5")
def launch_time_scaling(reference_kernel_time: Value, reference_launches: Value, kernel_time: Value, launches: Value) -> Value:
    """How much shorter a kernel is than in the reference run: 2 when it takes half as long.

    >>> launch_time_scaling(reference_kernel_time=100, reference_launches=1000, kernel_time=100, launches=2000)
    2.0
    """
    return ratio(reference_kernel_time * launches, kernel_time * reference_launches)


@metric(unit="1", source="Ullage equations, section 5")
def bytes_scaling(reference_bytes: Value, bytes: Value, work_growth: Value) -> Value:
    """Whether a larger run copies more for the same work: halos and replicated inputs make it less than 1.

    >>> bytes_scaling(reference_bytes=100, bytes=125, work_growth=1)
    0.8
    """
    return ratio(reference_bytes * work_growth, bytes)


@metric(unit="1", source="POP methodology: speedup; scaled speedup where the work grows (Gustafson 1988)")
def speedup(reference_elapsed: Value, elapsed: Value, work_growth: Value) -> Value:
    """How many times the reference's work a run does in the reference's time.

    >>> speedup(reference_elapsed=100, elapsed=40, work_growth=1)
    2.5
    """
    return ratio(reference_elapsed * work_growth, elapsed)


@metric(unit="1", source="POP methodology: speedup over its ideal")
def scaling_efficiency(reference_elapsed: Value, elapsed: Value, work_growth: Value, resource_growth: Value) -> Value:
    """How much of the ideal speedup is reached; in weak scaling the reference's time over the run's.

    >>> scaling_efficiency(reference_elapsed=100, elapsed=40, work_growth=1, resource_growth=4)
    0.625
    """
    return ratio(reference_elapsed * work_growth, elapsed * resource_growth)


HOST_SCALING = Branch(
    "global_efficiency",
    "Global efficiency",
    (
        Branch("host_parallel_efficiency", "Parallel efficiency"),
        Branch(
            "computation_scalability",
            "Computation scalability",
            (
                Branch("instruction_scaling", "Instruction scaling"),
                Branch("ipc_scaling", "IPC scaling"),
                Branch("frequency_scaling", "Frequency scaling"),
            ),
        ),
    ),
)
DEVICE_SCALING = Branch(
    "device_global_efficiency",
    "Global efficiency",
    (
        Branch("device_parallel_efficiency", "Parallel efficiency"),
        Branch(
            "kernel_time_scaling",
            "Kernel-time scaling",
            (Branch("launch_scaling", "Launch-count scaling"), Branch("launch_time_scaling", "Time-per-launch scaling")),
        ),
    ),
)
BYTES_SCALING = Branch("bytes_scaling", "Bytes-copied scaling")
SPEEDUP = Branch("speedup", "Speedup")
EFFICIENCY = Branch("scaling_efficiency", "Scaling efficiency")

SURE = 0.25  # how near its ideal exponent (0 strong, 1 weak) the work's growth must be


@dataclass(frozen=True)
class Detected:
    """Whether runs scale strongly or weakly, told from `basis`, a sum of work (empty where nothing tells).

    `exponent` e says that the work grows like resources to the e: 0 in strong scaling, 1 in weak scaling. `sure` when e is
    within `SURE` of one of them and all runs agree.
    """

    kind: Kind
    basis: str
    exponent: float | None
    sure: bool


def detected(resources: Sequence[int], work: Mapping[str, Sequence[float | None]], reference: int = 0) -> Detected:
    """Return whether runs scale strongly or weakly, from the first kind of work that is known of the reference and a larger run.

    `resources` are counts of devices or processes; `work` has a sum over the run for each of them, the most telling kind first.
    `launches` count only where they say "strong": a divided domain launches more kernels on more devices in either case. Where
    nothing tells the runs are taken as strong scaling, and it is not sure.

    Twice the processes, the same instructions; twice the devices, twice the kernel time:

    >>> detected([2, 4], {"instructions": [1000, 1010]}).kind, detected([2, 4], {"kernel_time": [100, 190]}).kind
    ('strong', 'weak')
    """
    doubtful: Detected | None = None
    for basis, sums in work.items():
        found = _told(resources, sums, reference, basis)
        if found is None or (basis == "launches" and not (found.kind == "strong" and found.sure)):
            continue
        if found.sure:
            return found
        doubtful = doubtful or found
    return doubtful or Detected("strong", "", None, sure=False)


def _told(resources: Sequence[int], sums: Sequence[float | None], reference: int, basis: str) -> Detected | None:
    first, least = sums[reference], resources[reference]
    if not first or not least:
        return None
    exponents = [
        (abs(math.log(count / least)), math.log(done / first) / math.log(count / least))
        for count, done in zip(resources, sums, strict=True)
        if done and count and count != least
    ]
    if not exponents:
        return None
    farthest = max(exponents)[1]
    kind: Kind = "weak" if farthest > 0.5 else "strong"
    agree = all((exponent > 0.5) == (farthest > 0.5) for _, exponent in exponents)
    return Detected(kind, basis, farthest, sure=agree and abs(farthest - (kind == "weak")) <= SURE)
