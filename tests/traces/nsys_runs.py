"""Small runs for the tests of the Nsight Systems reader, and the way from a file or a scenario to its totals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ullage.problems import Problems
from ullage.recording import Recording
from ullage.simulate.traces.scenario import Scenario, ScenarioEvent
from ullage.sums.lanes.gather import Capture, gather
from ullage.sums.lanes.reduce import reduce
from ullage.sums.lanes.run import Run, device_parts, device_totals, host_parts, host_totals, merge
from ullage.totals import DeviceTotals, HostTotals
from ullage.traces.trace import TraceOptions, recognised

A100 = ("NVIDIA A100-SXM4-80GB", "GPU-00000000-0000-0000-0000-0000000000aa")
H100 = ("NVIDIA H100 80GB HBM3", "GPU-00000000-0000-0000-0000-0000000000bb")


def rank(process: int, device: int, useful: int, wait: int, end: int, kernel: int) -> tuple[ScenarioEvent, ...]:
    """One process: launches, waits for its kernel, computes, is in MPI until the end."""
    on = {"process": process, "thread": 100 + process}
    return (
        ScenarioEvent(0, 10, "api", "cudaLaunchKernel", **on, call="launch", correlation=5),
        ScenarioEvent(10, wait, "api", "cudaDeviceSynchronize", **on, call="sync", correlation=6),
        ScenarioEvent(
            12, 12 + kernel, "kernel", "void work<float>(int)", process, device=device, stream=7, correlation=5, blocks=64, threads=256
        ),
        ScenarioEvent(wait, wait + useful, "host", "x", **on),
        *(
            [ScenarioEvent(wait + useful, end, "mpi", "MPI_Allreduce", **on, bytes=64, operation="allreduce")]
            if wait + useful < end
            else []
        ),
    )


BALANCED = Scenario("one", rank(3, 0, 600, 400, 1000, 350), {3: 0}, {0: A100})
MPI = Scenario("mpi", rank(0, 0, 330, 670, 1000, 329) + rank(1, 1, 55, 45, 1000, 33), {0: 0, 1: 1}, {0: A100, 1: H100})
SHARED = Scenario("shared", rank(0, 0, 300, 500, 900, 400) + rank(1, 0, 100, 700, 1000, 600), {0: 0, 1: 1}, {0: A100})
BUSY = Scenario(
    "busy",
    (
        *rank(5, 0, 500, 400, 2000, 300),
        ScenarioEvent(450, 470, "api", "cudaMemcpyAsync", 5, thread=105, call="copy", correlation=20),
        ScenarioEvent(460, 700, "memcpy", "Memcpy HtoD", 5, device=0, stream=8, correlation=20, bytes=4096),
        ScenarioEvent(300, 500, "memset", "Memset", 5, device=1, stream=9, correlation=21, bytes=100),
        ScenarioEvent(800, 820, "api", "cuLaunchKernel", 5, thread=106, call="launch", correlation=22),
        ScenarioEvent(
            900, 1300, "collective", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5, device=1, stream=3, correlation=22, operation="allreduce"
        ),
        ScenarioEvent(1100, 1200, "kernel", "gemm", 5, device=1, stream=4, correlation=23, blocks=2, threads=128),
        ScenarioEvent(100, 1500, "region", "step 1", 5, thread=105),
        ScenarioEvent(1600, 1700, "region", "step 1", 5, thread=105),
        ScenarioEvent(1500, 1550, "off", "", 5, thread=105),
        ScenarioEvent(1200, 1210, "overhead", "buffer", 5, thread=105),
        ScenarioEvent(950, 960, "mpi", "MPI_Send", 5, thread=105, bytes=8, operation="sendrecv"),
        ScenarioEvent(960, 990, "mpi", "MPI_Waitall", 5, thread=105),
        ScenarioEvent(1900, 1900, "lost", "gemm", 5, device=1, stream=4, correlation=24),
    ),
    {5: 0},
    {0: A100, 1: H100},
)
GRAPHS = Scenario(
    "graphs",
    (
        ScenarioEvent(0, 30, "api", "cudaGraphLaunch", 2, thread=102, call="graph", correlation=9),
        ScenarioEvent(30, 900, "api", "cudaStreamSynchronize", 2, thread=102, call="sync", correlation=10),
        *(ScenarioEvent(start, start + 80, "kernel", "node", 2, device=0, stream=7, correlation=9) for start in range(50, 850, 80)),
        ScenarioEvent(0, 1000, "host", "x", 2, thread=102),
    ),
    {2: 0},
    {0: A100},
)
RUNS = (BALANCED, MPI, SHARED, BUSY, GRAPHS)


def read(path: Path, options: TraceOptions | None = None) -> tuple[Capture, Problems]:
    """Read a file whose format is found by its content."""
    trace, file = recognised(path)
    problems, recording = Problems(), Recording(file.name)
    assert trace.name == "nsys" and trace.read is not None
    return gather(trace.read(file, recording, options or TraceOptions(), problems), recording), problems


def run_of(capture: Capture) -> Run:
    """One capture as a run."""
    return merge([reduce(capture)])


def perfect(scenario: Scenario) -> Run:
    """The run that a perfect reader would give."""
    return run_of(gather(scenario.batches(), scenario.recording()))


def totals(run: Run, region: str | None = None) -> tuple[HostTotals | None, DeviceTotals | None]:
    """All times of a run; how many calls there were is left out, since some generations write one call twice."""
    windows = run.region(region) if region else None
    host = host_totals(host_parts(run, windows), run.elapsed(windows))
    return replace(host, calls=None) if host else None, device_totals(device_parts(run, windows), run.elapsed(windows))
