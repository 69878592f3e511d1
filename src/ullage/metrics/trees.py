"""The efficiencies of hosts and devices, from sums of time: POP's tree, and TALP's for accelerated machines.

Times are in one unit, whichever (integer ns within the project). A parent is the product of its children, exactly: each
child's numerator is its neighbour's denominator.
"""

from __future__ import annotations

from ullage.metrics.metric import Value, metric, ratio


@metric(unit="1", source="TALP paper, eq. 6 (eq. 3 without devices)")
def host_parallel_efficiency(useful_time: Value, processes: Value, elapsed: Value) -> Value:
    """How much of the processes' time is useful: not in communication, in the GPU's interface or, where that is known, off the CPU.

    Low is no fault by itself where devices do the work: a host that only launches and waits is near 0.

    Two processes over 100 s, useful for 30 s and 50 s.

    >>> host_parallel_efficiency(useful_time=80, processes=2, elapsed=100)
    0.4
    """
    return ratio(useful_time, processes * elapsed)


@metric(unit="1", source="TALP paper, eq. 7")
def mpi_parallel_efficiency(useful_time: Value, offload_time: Value, processes: Value, elapsed: Value, off_time: Value = 0) -> Value:
    """How much of the processes' time is not lost to communication: useful time and time in the GPU's interface both count.

    So does time in which a process was on no processor: see `on_cpu_efficiency`.

    >>> mpi_parallel_efficiency(useful_time=80, offload_time=80, processes=2, elapsed=100)
    0.8
    """
    return ratio(useful_time + offload_time + off_time, processes * elapsed)


@metric(unit="1", source="TALP paper, eq. 4 on useful + offload time")
def host_load_balance(useful_time: Value, offload_time: Value, processes: Value, max_busy_time: Value, off_time: Value = 0) -> Value:
    """How evenly the processes are loaded, waiting for their devices (and for disks) included: 1 when all are, 1/n when one does it all.

    >>> host_load_balance(useful_time=80, offload_time=80, processes=2, max_busy_time=100)
    0.8
    """
    return ratio(useful_time + offload_time + off_time, processes * max_busy_time)


@metric(unit="1", source="Ullage equations, section 5; TALP counts time on no processor as useful")
def on_cpu_efficiency(useful_time: Value, offload_time: Value, off_time: Value, parallel_time: Value = 0) -> Value:
    """How much of the processes' own time they were on a processor, or waited for a device or for their own threads.

    What is missing is time off the CPU, in which a process neither communicated nor was in the GPU's interface: it slept, waited for a disk
    or a lock, was stopped, or had to leave the processor to others. Page faults that the kernel serves at once count as useful.

    Of 100 s one process reads from a disk for 25.

    >>> on_cpu_efficiency(useful_time=75, offload_time=0, off_time=25)
    0.75
    """
    return ratio(useful_time + offload_time + parallel_time, useful_time + offload_time + parallel_time + off_time)


@metric(unit="1", source="TALP paper, eq. 5 on useful + offload time")
def host_communication_efficiency(max_busy_time: Value, elapsed: Value) -> Value:
    """What communication costs even the busiest process: loss that is not the load's imbalance.

    >>> host_communication_efficiency(max_busy_time=90, elapsed=100)
    0.9
    """
    return ratio(max_busy_time, elapsed)


@metric(unit="1", source="TALP paper, eq. 8")
def device_offload_efficiency(useful_time: Value, offload_time: Value) -> Value:
    """How much of the processes' own time is computing, rather than launching, copying and waiting for devices.

    0.4 says that 40 % is computing and 60 % goes into the GPU's interface.

    >>> device_offload_efficiency(useful_time=40, offload_time=60)
    0.4
    """
    return ratio(useful_time, useful_time + offload_time)


@metric(unit="1", source="TALP paper, eq. 9")
def device_parallel_efficiency(kernel_time: Value, devices: Value, elapsed: Value) -> Value:
    """How much of the devices' time a kernel runs; with collectives set apart (`ai` mode), a kernel that computes.

    Says nothing of how well it computes: see OFU.

    >>> device_parallel_efficiency(kernel_time=120, devices=2, elapsed=100)
    0.6
    """
    return ratio(kernel_time, devices * elapsed)


@metric(unit="1", source="TALP paper, eq. 10")
def device_load_balance(kernel_time: Value, devices: Value, max_kernel_time: Value) -> Value:
    """How evenly kernel time is spread over the devices: 1 when all compute equally long, 1/m when one of m does it all.

    Says nothing about waiting: see `orchestration_efficiency`.

    Four devices run kernels for 8, 8, 8 and 16 s.

    >>> device_load_balance(kernel_time=40, devices=4, max_kernel_time=16)
    0.625
    """
    return ratio(kernel_time, devices * max_kernel_time)


@metric(unit="1", source="TALP paper, eq. 11; Ullage equations, section 5")
def device_communication_efficiency(max_kernel_time: Value, max_active_time: Value) -> Value:
    """What moving data costs: kernel time of the most loaded device over the most active device's time with anything running.

    >>> device_communication_efficiency(max_kernel_time=75, max_active_time=100)
    0.75
    """
    return ratio(max_kernel_time, max_active_time)


@metric(unit="1", source="Ullage equations, section 5")
def collective_efficiency(max_kernel_time: Value, max_kernel_collective_time: Value) -> Value:
    """What collectives cost that no computing hides (`ai` mode): the network, and ranks that come late.

    >>> collective_efficiency(max_kernel_time=60, max_kernel_collective_time=80)
    0.75
    """
    return ratio(max_kernel_time, max_kernel_collective_time)


@metric(unit="1", source="Ullage equations, section 5; POP transfer efficiency, on the device")
def transfer_efficiency(max_kernel_time: Value, max_kernel_transfer_time: Value) -> Value:
    """What moving the data of collectives costs, waiting for late ranks taken out: the network's part.

    >>> transfer_efficiency(max_kernel_time=60, max_kernel_transfer_time=75)
    0.8
    """
    return ratio(max_kernel_time, max_kernel_transfer_time)


@metric(unit="1", source="Ullage equations, section 5; POP serialisation efficiency, on the device")
def arrival_efficiency(max_kernel_transfer_time: Value, max_kernel_collective_time: Value) -> Value:
    """What waiting in collectives for ranks that come late costs: the load's and the hosts' part.

    >>> arrival_efficiency(max_kernel_transfer_time=75, max_kernel_collective_time=100)
    0.75
    """
    return ratio(max_kernel_transfer_time, max_kernel_collective_time)


@metric(unit="1", source="Ullage equations, section 5")
def copy_efficiency(max_kernel_collective_time: Value, max_active_time: Value) -> Value:
    """What copies and memsets cost that no kernel hides (in `talp` mode all of the communication efficiency).

    >>> copy_efficiency(max_kernel_collective_time=90, max_active_time=100)
    0.9
    """
    return ratio(max_kernel_collective_time, max_active_time)


@metric(unit="1", source="TALP paper, eq. 12")
def orchestration_efficiency(max_active_time: Value, elapsed: Value) -> Value:
    """How much of the time the most active device has anything to do: what is missing is the host's, who launches too late.

    >>> orchestration_efficiency(max_active_time=50, elapsed=100)
    0.5
    """
    return ratio(max_active_time, elapsed)
