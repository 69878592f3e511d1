"""What the hosts' processors make of useful time: TALP's computational metrics."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.metrics.metric import Value, metric, ratio
from ullage.totals import HostTotals


@metric(unit="1", source="POP methodology: IPC; DLB user guide, TALP computational metrics")
def instructions_per_cycle(instructions: Value, cycles: Value) -> Value:
    """How many instructions a processor finishes in a cycle, in useful time: near 0 it waits for memory, most can reach 4 to 6.

    Waiting for others (MPI, OpenMP) is left out: a thread that spins there does many instructions, and none of use.

    >>> instructions_per_cycle(instructions=3000, cycles=2000)
    1.5
    """
    return ratio(instructions, cycles)


@metric(unit="Hz", source="POP methodology: frequency; DLB user guide, TALP computational metrics")
def useful_clock(cycles: Value, useful_seconds: Value) -> Value:
    """The mean clock of the processors in useful time; lower where the threads were not on a processor for all of it.

    6e9 cycles of the program's own in 2 s of useful time:

    >>> useful_clock(cycles=6e9, useful_seconds=2)
    3000000000.0
    """
    return ratio(cycles, useful_seconds)


@dataclass(frozen=True)
class HostInstructions:
    """What processors made of useful time: instructions, instructions a cycle, and the mean clock in Hz."""

    instructions: int
    per_cycle: float
    clock: float


def host_instructions(totals: HostTotals | None) -> HostInstructions | None:
    """Return what the hosts' processors made of useful time, None where nobody counted.

    >>> half = HostTotals(1, 10**9, useful_time=5 * 10**8, offload_time=0, max_busy_time=0, instructions=3 * 10**9, cycles=10**9)
    >>> host_instructions(half)
    HostInstructions(instructions=3000000000, per_cycle=3.0, clock=2000000000.0)
    """
    if totals is None or not totals.instructions or not totals.cycles or not totals.useful_time:
        return None
    clock = useful_clock(totals.cycles, totals.useful_time / 1e9)
    return HostInstructions(totals.instructions, instructions_per_cycle(totals.instructions, totals.cycles), clock)
