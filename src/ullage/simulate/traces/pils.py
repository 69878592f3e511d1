"""PILS: the synthetic benchmark of the TALP paper, as scenarios whose totals can be written down; and the paper's use cases.

Each rank, bound to one core and one GPU, allocates and copies a few bytes, launches one spinning kernel, waits for it, computes,
copies for a while, and meets the others in a barrier (bsc-pm/dlb, doc/examples/pils.cu). The kernel counts 1000 clock cycles for
each microsecond asked for, so on a GPU that isn't clocked at 1 GHz it runs another time than it is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from ullage.simulate.traces.answers import TreeAnswer
from ullage.simulate.traces.scenario import ProcessScenario, Scenario
from ullage.totals import DeviceTotals, HostTotals

PROCESS = 4100  # the first rank's process and main thread
STREAM = 7


@dataclass(frozen=True)
class Costs:
    """What the machine takes for each deed, in ns. `context` is spent in the process' first call, `latency` passes from a launch's
    end to its kernel's begin, `waking` from the kernel's end to the synchronisation's. A copy of the copying loop takes `piece`, and
    its data moves in `moving` of a thousand parts of that.
    """

    context: int = 125_000_000
    small_copy: int = 12_000
    small_move: int = 1_500
    launch: int = 6_000
    latency: int = 2_000
    waking: int = 3_000
    barrier: int = 4_000
    piece: int = 100_000_000
    moving: int = 890


@dataclass(frozen=True)
class Load:
    """What each rank is told to do: ns on its CPU, of its kernel as it then runs, and in the copying loop; `rounds` times.

    `asynchronous`: the kernel runs while the CPU computes, and is waited for after.
    """

    name: str
    cpu: tuple[int, ...]
    gpu: tuple[int, ...]
    memcpy: tuple[int, ...]
    rounds: int = 1
    asynchronous: bool = False
    costs: Costs = field(default_factory=Costs)


def load(
    name: str,
    cpu: str,
    gpu: str,
    memcpy: str = "0",
    *,
    rounds: int = 1,
    asynchronous: bool = False,
    clock_mhz: int = 1980,
    costs: Costs | None = None,
) -> Load:
    """Return a load from comma lists of microseconds per rank, as the benchmark takes them; a short list repeats its last number.

    >>> load("two ranks", cpu="10,1", gpu="1.98").gpu
    (1000, 1000)
    """
    lists = [[int(Decimal(word) * 1000) for word in words.split(",")] for words in (cpu, gpu, memcpy)]
    ranks = max(map(len, lists))
    cpus, cycles, copies = (tuple((*values, *[values[-1]] * ranks)[:ranks]) for values in lists)
    kernels = tuple(count * 1000 // clock_mhz for count in cycles)
    return Load(name, cpus, kernels, copies, rounds, asynchronous, costs or Costs())


def pils(told: Load) -> Scenario:
    """Return the scenario of a load: rank r is process 4100 + r and owns device r; a region around each phase."""
    recorders = [ProcessScenario(PROCESS + rank, rank) for rank in range(len(told.cpu))]
    at = [_setup(recorder, told.costs) for recorder in recorders]
    for _ in range(told.rounds):
        arrived = [_round(recorder, told, rank, at[rank]) for rank, recorder in enumerate(recorders)]
        met = max(arrived) + told.costs.barrier
        for recorder, moment in zip(recorders, arrived, strict=True):
            recorder.host(moment, met, "mpi", "MPI_Barrier", recorder.process)
        at = [met] * len(at)
    events = tuple(event for recorder in recorders for event in recorder.events)
    ranks = {recorder.process: rank for rank, recorder in enumerate(recorders)}
    devices = {rank: ("NVIDIA H100", f"GPU-0000000{rank}-7069-6c73-0000-00000000000{rank}") for rank in range(len(at))}
    return Scenario(told.name, events, ranks, devices)


def _setup(to: ProcessScenario, costs: Costs) -> int:
    """Write down the allocation, in which the context is created, and the copy of a few bytes; return when they are over."""
    me, end = to.process, costs.context + costs.small_copy
    to.call(0, costs.context, "cudaMalloc", "other", me)
    copy = to.call(costs.context, end, "cudaMemcpy", "copy", me)
    to.work(costs.context + 2_000, costs.context + 2_000 + costs.small_move, "memcpy", "Memcpy HtoD", STREAM, copy, bytes=4)
    to.host(0, end, "region", "setup", me)
    return end


def _round(to: ProcessScenario, told: Load, rank: int, begin: int) -> int:
    """Write down one round up to the barrier; return when the rank gets there."""
    costs, me = told.costs, to.process
    launched = begin + costs.launch
    launch = to.call(begin, launched, "cudaLaunchKernel", "launch", me)
    done = launched + costs.latency + told.gpu[rank]
    to.work(done - told.gpu[rank], done, "kernel", "spin(long)", STREAM, launch, blocks=1, threads=256)
    if told.asynchronous:
        computed = _compute(to, launched, told.cpu[rank])
        over = max(computed, done) + costs.waking
        to.call(computed, over, "cudaDeviceSynchronize", "sync", me)
    else:
        to.call(launched, done + costs.waking, "cudaDeviceSynchronize", "sync", me)
        to.host(begin, done + costs.waking, "region", "gpu", me)
        over = _compute(to, done + costs.waking, told.cpu[rank])
    return _copy(to, costs, over, told.memcpy[rank])


def _compute(to: ProcessScenario, begin: int, length: int) -> int:
    if length:
        to.host(begin, begin + length, "host", "spin", to.process)
        to.host(begin, begin + length, "region", "cpu", to.process)
    return begin + length


def _copy(to: ProcessScenario, costs: Costs, begin: int, length: int) -> int:
    for number, (start, end) in enumerate(_pieces(begin, length, costs.piece)):
        name = "Memcpy DtoH" if number % 2 else "Memcpy HtoD"
        call = to.call(start, end, "cudaMemcpy", "copy", to.process)
        to.work(end - _moves(end - start, costs), end, "memcpy", name, STREAM, call, bytes=(end - start) * 20)
    if length:
        to.host(begin, begin + length, "region", "memcpy", to.process)
    return begin + length


def _pieces(begin: int, length: int, piece: int) -> Iterator[tuple[int, int]]:
    for start in range(begin, begin + length, piece):
        yield start, min(start + piece, begin + length)


def _moves(length: int, costs: Costs) -> int:
    return length * costs.moving // 1000


def closed_form(told: Load) -> TreeAnswer:
    """Return the totals of a load's whole run, written down from the loads alone, without its events."""
    costs, rounds, ranks = told.costs, told.rounds, range(len(told.cpu))
    setup = costs.context + costs.small_copy
    busy = [_busy(told, rank) for rank in ranks]
    elapsed = setup + rounds * (max(busy) + costs.barrier)
    useful = [rounds * told.cpu[rank] for rank in ranks]
    kernel = [rounds * told.gpu[rank] for rank in ranks]
    copies = [list(_pieces(0, told.memcpy[rank], costs.piece)) for rank in ranks]
    memory = [costs.small_move + rounds * sum(_moves(end - start, costs) for start, end in pieces) for pieces in copies]
    calls_of_a_round = 2  # launch, synchronise
    host = HostTotals(
        processes=len(ranks),
        elapsed=elapsed,
        useful_time=sum(useful),
        offload_time=sum(setup + rounds * busy[rank] - useful[rank] for rank in ranks),
        max_busy_time=setup + rounds * max(busy),
        calls=sum(2 + rounds * (calls_of_a_round + len(pieces)) for pieces in copies),
    )
    device = DeviceTotals(
        devices=len(ranks),
        elapsed=elapsed,
        kernel_time=sum(kernel),
        collective_time=0,
        memory_time=sum(memory),
        max_kernel_time=max(kernel),
        max_kernel_collective_time=max(kernel),
        max_active_time=max(k + m for k, m in zip(kernel, memory, strict=True)),
        launches=rounds * len(ranks),
        bytes=sum(4 + rounds * 20 * told.memcpy[rank] for rank in ranks),
    )
    return TreeAnswer(host, device)


def _busy(told: Load, rank: int) -> int:
    """Return how long a rank is not in the barrier, per round."""
    costs, kernel = told.costs, told.costs.latency + told.gpu[rank]
    together = max(kernel, told.cpu[rank]) if told.asynchronous else kernel + told.cpu[rank]
    return costs.launch + together + costs.waking + told.memcpy[rank]


@dataclass(frozen=True)
class UseCase:
    """A use case of the paper's section 5.1: its load, and every number that the text or the figure's text gives, as printed."""

    title: str
    load: Load
    printed: dict[str, float]


_EVEN_HOST = {"mpi_parallel_efficiency": 1.00, "host_load_balance": 1.00, "host_communication_efficiency": 1.00}
_EVEN_DEVICE = {"device_load_balance": 1.00, "device_communication_efficiency": 1.00}
_ONE, _TEN, _TEN_ONE = "1000000", "10000000", "10000000,1000000"  # µs

# The paper doesn't print the loads. These reproduce all of its numbers, and they are the plainest that can be: each load is 1 s or
# 10 s, the GPU is an H100 at 1980 MHz (so a kernel told to spin for 10 s runs 5.05 s), the context costs each process 125 ms, and
# data moves in 89 % of the copying loop's time. With c = 0.125 s:
#   1  device orchestration 5.05 / (5.05 + 1 + c) = 0.818
#   2  offload 10 / (10 + 0.505 + c) = 0.941; device parallel 0.505 / 10.63 = 0.047
#   3  offload 2 / (2 + 5.555 + 2c) = 0.256; device load balance 5.555 / (2 × 5.05) = 0.55; MPI parallel 7.805 / (2 × 6.175) = 0.63
#   4  offload 11 / (11 + 5.555 + 2c) = 0.655 (0.6545), host load balance 16.805 / (2 × 15.175) = 0.554, orchestration 5.05 / 15.175 = 0.333
#   5  host load balance (15.175 + 6.175) / (2 × 15.175) = 0.703; orchestration 0.333
#   6  offload 2 / (16.175 + 7.175) = 0.086, host load balance 23.35 / 32.35 = 0.722, device communication 5.05 / (5.05 + 8.9) = 0.362,
#      orchestration 13.95 / 16.175 = 0.862
#   7  offload 10 / 15.175 = 0.659 without and 10 / 10.125 = 0.988 with overlap: 0.33 more; orchestration 5.05 / 10.125 = 0.4988
USE_CASES: dict[str, UseCase] = {
    "1": UseCase(
        "loaded GPUs, underutilised CPUs, well balanced",
        load("use case 1", cpu=f"{_ONE},{_ONE}", gpu=_TEN),
        {**_EVEN_HOST, **_EVEN_DEVICE, "orchestration_efficiency": 0.82},
    ),
    "2": UseCase(
        "loaded CPUs, underutilised GPUs, well balanced",
        load("use case 2", cpu=f"{_TEN},{_TEN}", gpu=_ONE),
        {**_EVEN_HOST, "device_offload_efficiency": 0.94, "device_parallel_efficiency": 0.05},
    ),
    "3": UseCase(
        "loaded GPUs, imbalanced GPU computation, underutilised CPUs",
        load("use case 3", cpu=_ONE, gpu=_TEN_ONE),
        {"device_offload_efficiency": 0.26, "device_load_balance": 0.55},
    ),
    "4": UseCase(
        "imbalanced GPUs and CPUs, CPUs more loaded than GPUs",
        load("use case 4", cpu=_TEN_ONE, gpu=_TEN_ONE),
        {
            "host_parallel_efficiency": 0.36,
            "mpi_parallel_efficiency": 0.55,
            "host_communication_efficiency": 1.00,
            "host_load_balance": 0.55,
            "device_offload_efficiency": 0.65,
            "device_parallel_efficiency": 0.18,
            "device_load_balance": 0.55,
            "device_communication_efficiency": 1.00,
            "orchestration_efficiency": 0.33,
        },
    ),
    "5": UseCase(
        "imbalanced CPU load, same global load on CPUs and GPUs",
        load("use case 5", cpu=_TEN_ONE, gpu=_TEN),
        {"host_load_balance": 0.70, "orchestration_efficiency": 0.33},
    ),
    "6": UseCase(
        "even distribution of work, large movement of data",
        load("use case 6", cpu=_ONE, gpu=_TEN, memcpy=_TEN_ONE),
        {
            "device_offload_efficiency": 0.09,
            "host_load_balance": 0.72,
            "device_communication_efficiency": 0.36,
            "orchestration_efficiency": 0.86,
        },
    ),
    "7": UseCase(
        "no overlap of CPU and GPU computation",
        load("use case 7", cpu=f"{_TEN},{_TEN}", gpu=_TEN),
        {**_EVEN_HOST, **_EVEN_DEVICE},
    ),
    "7 overlapped": UseCase(
        "CPU and GPU compute at the same time",
        load("use case 7, overlapped", cpu=f"{_TEN},{_TEN}", gpu=_TEN, asynchronous=True),
        {**_EVEN_HOST, **_EVEN_DEVICE, "orchestration_efficiency": 0.50},
    ),
}
