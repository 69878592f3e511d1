"""The efficiencies of hosts whose CPUs run OpenMP threads: TALP's hybrid tree, made to multiply.

Times are CPU times: `processes` is the number of CPUs, and `parallel_time` is what its three parts add up to: CPUs that wait
because the work of a parallel region is uneven (imbalance), because it is handed out (scheduling), or because nothing is
parallel (serialisation). TALP divides by the CPU time that it saw and leaves its parent unequal to the product of its
children (DLB, `perf_metrics.c`, hybrid model 2); here the parent divides by CPUs × elapsed, and each child's numerator is its
neighbour's denominator.
"""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="TALP paper, eq. 7; DLB user guide, TALP metrics: MPI parallel efficiency of the hybrid model")
def hybrid_mpi_parallel_efficiency(
    useful_time: Value, offload_time: Value, parallel_time: Value, processes: Value, elapsed: Value, off_time: Value = 0
) -> Value:
    """How much of the CPUs' time is not lost to communication, whatever their threads do with it.

    Four CPUs over 100 s: 200 s of computing, 20 s in the GPU's interface, 100 s of threads that wait for one another.

    >>> hybrid_mpi_parallel_efficiency(useful_time=200, offload_time=20, parallel_time=100, processes=4, elapsed=100)
    0.8
    """
    return ratio(useful_time + offload_time + parallel_time + off_time, processes * elapsed)


@metric(unit="1", source="TALP paper, eq. 4; DLB user guide, TALP metrics: MPI load balance of the hybrid model")
def hybrid_load_balance(
    useful_time: Value, offload_time: Value, parallel_time: Value, processes: Value, max_busy_time: Value, off_time: Value = 0
) -> Value:
    """How evenly the processes are loaded, per CPU, their waiting threads included: 1 when all are.

    The longest process is outside communication for 100 s on each of its CPUs, all four CPUs together for 320 s.

    >>> hybrid_load_balance(useful_time=200, offload_time=20, parallel_time=100, processes=4, max_busy_time=100)
    0.8
    """
    return ratio(useful_time + offload_time + parallel_time + off_time, processes * max_busy_time)


@metric(unit="1", source="DLB user guide, TALP metrics: OpenMP parallel efficiency, without the time in MPI")
def openmp_parallel_efficiency(useful_time: Value, offload_time: Value, parallel_time: Value) -> Value:
    """How much of the CPU time outside communication is not lost by OpenMP.

    TALP's own value counts the time in MPI on both sides of the fraction; this one multiplies.

    >>> openmp_parallel_efficiency(useful_time=280, offload_time=40, parallel_time=80)
    0.8
    """
    return ratio(useful_time + offload_time, useful_time + offload_time + parallel_time)


@metric(unit="1", source="DLB user guide, TALP metrics: OpenMP serialization efficiency (3.8: coverage efficiency)")
def openmp_serialisation_efficiency(useful_time: Value, offload_time: Value, openmp_serialisation_time: Value) -> Value:
    """What is lost because CPUs wait while only one thread works, outside parallel regions.

    >>> openmp_serialisation_efficiency(useful_time=280, offload_time=40, openmp_serialisation_time=80)
    0.8
    """
    return ratio(useful_time + offload_time, useful_time + offload_time + openmp_serialisation_time)


@metric(unit="1", source="DLB user guide, TALP metrics: OpenMP load balance")
def openmp_load_balance(useful_time: Value, offload_time: Value, openmp_serialisation_time: Value, openmp_imbalance_time: Value) -> Value:
    """What is lost within parallel regions because some threads have more work than others.

    >>> openmp_load_balance(useful_time=300, offload_time=0, openmp_serialisation_time=20, openmp_imbalance_time=80)
    0.8
    """
    return ratio(
        useful_time + offload_time + openmp_serialisation_time,
        useful_time + offload_time + openmp_serialisation_time + openmp_imbalance_time,
    )


@metric(unit="1", source="DLB user guide, TALP metrics: OpenMP scheduling efficiency")
def openmp_scheduling_efficiency(useful_time: Value, offload_time: Value, parallel_time: Value, openmp_scheduling_time: Value) -> Value:
    """What is lost within parallel regions to handing out work: chunks too small, too many tasks.

    Of 400 s outside communication 100 s are lost by threads, 40 s of them to scheduling.

    >>> openmp_scheduling_efficiency(useful_time=300, offload_time=0, parallel_time=100, openmp_scheduling_time=40)
    0.9
    """
    return ratio(useful_time + offload_time + parallel_time - openmp_scheduling_time, useful_time + offload_time + parallel_time)
