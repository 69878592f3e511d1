"""TALP's own formulas for the efficiencies that it prints, by the keys of its JSON, on its own sums.

Source: github.com/bsc-pm/dlb, src/talp/perf_metrics.c (3.6 on) and perf_metrics.h (3.5), hybrid models 1 and 2. Facts carried
over, not code. They are used to explain TALP's numbers, never to compute the trees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ullage.metrics.metric import ratio

# Our metric for each of TALP's keys. OpenMP's are those of the hybrid tree; without threads they give the plain tree's values.
TREES = {
    "parallelEfficiency": "host_parallel_efficiency",
    "mpiParallelEfficiency": "hybrid_mpi_parallel_efficiency",
    "mpiCommunicationEfficiency": "host_communication_efficiency",
    "mpiLoadBalance": "hybrid_load_balance",
    "ompParallelEfficiency": "openmp_parallel_efficiency",
    "ompLoadBalance": "openmp_load_balance",
    "ompSchedulingEfficiency": "openmp_scheduling_efficiency",
    "ompSerializationEfficiency": "openmp_serialisation_efficiency",
    "ompCoverageEfficiency": "openmp_serialisation_efficiency",
    "deviceOffloadEfficiency": "device_offload_efficiency",
    "gpuParallelEfficiency": "device_parallel_efficiency",
    "gpuLoadBalance": "device_load_balance",
    "gpuCommunicationEfficiency": "device_communication_efficiency",
    "gpuOrchestrationEfficiency": "orchestration_efficiency",
}


class TalpSums:
    """TALP's sums of a region by its own names; what a version doesn't write is 0. CPU times in ns."""

    def __init__(self, sums: Mapping[str, float]) -> None:
        self._sums = sums

    def __getitem__(self, key: str) -> float:
        return self._sums.get(key, 0.0)

    def has(self, *keys: str) -> bool:
        """Whether the version writes all of these."""
        return all(key in self._sums for key in keys)

    @property
    def lost(self) -> float:
        """CPU time lost by OpenMP's threads."""
        return self["ompLoadImbalanceTime"] + self["ompSchedulingTime"] + self["ompSerializationTime"]

    @property
    def without_threads(self) -> float:
        """CPU time without what OpenMP's threads lose."""
        return self["usefulTime"] + self["mpiTime"] + self["gpuRuntimeTime"]

    @property
    def active(self) -> float:
        """All CPU time that TALP divides by."""
        return self.without_threads + self.lost

    @property
    def communicating(self) -> float:
        """Time in MPI per CPU."""
        return ratio(self["mpiTime"] + self["mpiWorkerIdleTime"], self["numCpus"]) or 0.0

    @property
    def useful(self) -> float:
        """Useful time per CPU."""
        return ratio(self["usefulTime"], self["numCpus"]) or 0.0


@dataclass(frozen=True)
class TalpFormula:
    """A formula of TALP's, and how it differs from the trees' definition."""

    function: Callable[[TalpSums], float | None]
    why: str


_ACTIVE = "TALP divides by the CPU time that it saw, the trees by CPUs × elapsed time"
_OUTSIDE = "TALP counts all time outside MPI, also of processes and CPUs that were not there"
_OLD = "TALP 3.5 counts useful time alone, and divides by the busiest process' useful and MPI time"
_MPI = "TALP's OpenMP factors count the time in MPI on both sides of the fraction"
_OFFLOAD = "TALP counts what threads lose as if it were useful here"
_NODES = "a factor within or between nodes, which the trees don't have"


def _old(part: Callable[[TalpSums], float], whole: Callable[[TalpSums], float]) -> Callable[[TalpSums], float | None]:
    return lambda g: ratio(part(g), whole(g)) if g.has("maxUsefulNormdProc") else None


def _new(part: Callable[[TalpSums], float], whole: Callable[[TalpSums], float]) -> Callable[[TalpSums], float | None]:
    return lambda g: ratio(part(g), whole(g)) if g.has("minMpiNormdProc") else None


def _outside(g: TalpSums) -> float:
    return g["elapsedTime"] - g.communicating


def _busiest(g: TalpSums) -> float:
    return g["elapsedTime"] - g["minMpiNormdProc"]


def _busiest_node(g: TalpSums) -> float:
    return g["elapsedTime"] - g["minMpiNormdNode"]


def _old_elapsed(g: TalpSums) -> float:
    return g["maxUsefulNormdProc"] + g["mpiNormdOfMaxUseful"]


def _threads(part: Callable[[TalpSums], float], whole: Callable[[TalpSums], float]) -> tuple[TalpFormula, ...]:
    return (TalpFormula(lambda g: ratio(part(g), whole(g)), _MPI),)


def _gpu(part: Callable[[TalpSums], float], whole: Callable[[TalpSums], float]) -> tuple[TalpFormula, ...]:
    return (TalpFormula(lambda g: ratio(part(g), whole(g)), "the same definition, on other numbers"),)


_SERIAL = _threads(lambda g: g.without_threads, lambda g: g.without_threads + g["ompSerializationTime"])

FORMULAS: dict[str, tuple[TalpFormula, ...]] = {
    "parallelEfficiency": (TalpFormula(lambda g: ratio(g["usefulTime"], g.active), _ACTIVE),),
    "mpiParallelEfficiency": (
        TalpFormula(_new(_outside, lambda g: g["elapsedTime"]), _OUTSIDE),
        TalpFormula(_old(lambda g: g.useful, _old_elapsed), _OLD),
        TalpFormula(
            lambda g: ratio(g["usefulTime"], g["usefulTime"] + g["mpiTime"]), "TALP's hybrid model 1 leaves out all but useful time and MPI"
        ),
    ),
    "mpiCommunicationEfficiency": (
        TalpFormula(_new(_busiest, lambda g: g["elapsedTime"]), _OUTSIDE),
        TalpFormula(_old(lambda g: g["maxUsefulNormdProc"], _old_elapsed), _OLD),
    ),
    "mpiLoadBalance": (
        TalpFormula(_new(_outside, _busiest), _OUTSIDE),
        TalpFormula(_old(lambda g: g.useful, lambda g: g["maxUsefulNormdProc"]), _OLD),
    ),
    "mpiLoadBalanceIn": (
        TalpFormula(_new(_busiest_node, _busiest), _NODES),
        TalpFormula(_old(lambda g: g["maxUsefulNormdNode"], lambda g: g["maxUsefulNormdProc"]), _NODES),
    ),
    "mpiLoadBalanceOut": (
        TalpFormula(_new(_outside, _busiest_node), _NODES),
        TalpFormula(_old(lambda g: g.useful, lambda g: g["maxUsefulNormdNode"]), _NODES),
    ),
    "ompParallelEfficiency": _threads(lambda g: g.without_threads, lambda g: g.active),
    "ompLoadBalance": _threads(
        lambda g: g.without_threads + g["ompSerializationTime"],
        lambda g: g.without_threads + g["ompSerializationTime"] + g["ompLoadImbalanceTime"],
    ),
    "ompSchedulingEfficiency": _threads(lambda g: g.active - g["ompSchedulingTime"], lambda g: g.active),
    "ompSerializationEfficiency": _SERIAL,
    "ompCoverageEfficiency": _SERIAL,
    "deviceOffloadEfficiency": (
        TalpFormula(lambda g: ratio(g["usefulTime"] + g.lost, g["usefulTime"] + g.lost + g["gpuRuntimeTime"]), _OFFLOAD),
        TalpFormula(lambda g: ratio(g.active - g["gpuRuntimeTime"], g.active), "TALP's hybrid model 1 divides by all CPU time, MPI too"),
    ),
    "gpuParallelEfficiency": _gpu(lambda g: g["gpuUsefulTime"], lambda g: g["numGpus"] * g["elapsedTime"]),
    "gpuLoadBalance": _gpu(lambda g: g["gpuUsefulTime"], lambda g: g["numGpus"] * g["maxGpuUsefulTime"]),
    "gpuCommunicationEfficiency": _gpu(lambda g: g["maxGpuUsefulTime"], lambda g: g["maxGpuActiveTime"]),
    "gpuOrchestrationEfficiency": _gpu(lambda g: g["maxGpuActiveTime"], lambda g: g["elapsedTime"]),
}
