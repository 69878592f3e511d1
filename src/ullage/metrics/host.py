"""The hosts' tree of efficiencies: POP's for processes, what time off the CPU costs, a branch for what OpenMP threads lose, TALP's for what
devices cost."""

from __future__ import annotations

from ullage.metrics.tree import Branch
from ullage.totals import Factors


def host_tree(factors: Factors) -> Branch:
    """Return the tree of a program that can have these factors: what it can't lose by is not in it.

    What unevenly loaded processes lose is one level, named after MPI, where MPI was called; else its factors hang from the top. So do
    the factors of a level that stands alone.

    >>> [[child.label for child in host_tree(found).children] for found in (Factors(mpi=True), Factors(devices=True))]
    [['Communication efficiency', 'Load balance'], ['Device offload efficiency']]
    """
    processes = _processes(factors)
    levels = (
        *((processes,) if factors.mpi else processes.children if factors.processes else ()),
        *((Branch("on_cpu_efficiency", "On-CPU efficiency"),) if factors.off else ()),
        *((_OPENMP,) if factors.openmp else ()),
        *((Branch("device_offload_efficiency", "Device offload efficiency"),) if factors.devices else ()),
    )
    alone = len(levels) == 1 and levels[0].children
    return Branch("host_parallel_efficiency", "Parallel efficiency", levels[0].children if alone else levels)


def _processes(factors: Factors) -> Branch:
    names = (
        ("hybrid_mpi_parallel_efficiency", "hybrid_load_balance") if factors.openmp else ("mpi_parallel_efficiency", "host_load_balance")
    )
    parts = (Branch("host_communication_efficiency", "Communication efficiency"), Branch(names[1], "Load balance"))
    return Branch(names[0], "MPI parallel efficiency", parts)


_OPENMP = Branch(
    "openmp_parallel_efficiency",
    "OpenMP parallel efficiency",
    (
        Branch("openmp_load_balance", "Load balance"),
        Branch("openmp_scheduling_efficiency", "Scheduling efficiency"),
        Branch("openmp_serialisation_efficiency", "Serialisation efficiency"),
    ),
)
HOST = host_tree(Factors(mpi=True, devices=True))  # the TALP paper's
