"""What the recorder costs the program that it runs in.

    python benchmarks/recorder_cost.py [--quick] [--json FILE]

Nanoseconds of the caller's CPU for each region, host record and call of MPI, as events and summed up, beside an interposed call that does
nothing; each callback of a call of CUDA, each activity buffer; on this machine, with the tests' double of CUPTI, so that of CUPTI's own
cost nothing is said. The best of five rounds each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Figure, Figures, parser
from ullage.cupti.chunks import ChunkType, chunks
from ullage.cupti.native.build import compiler
from ullage.cupti.native.build import recorder as built
from ullage.cupti.recorder import Recorder

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from tests.cupti import cupti_double  # noqa: E402 - beside the benchmarks, not installed

ROWS = {
    "clock": "the clock alone",
    "region": "a region, begun and ended (two records)",
    "host": "a record of what the host did",
    "mpi": "a call of MPI",
    "empty": "the same through a function that does nothing",
    "api": "a call of CUDA, by callbacks",
}


def times(program: Path, count: int, environment: dict[str, str]) -> dict[str, float]:
    """Return ns by name, as the program prints them."""
    command = [str(program), str(count), str(cupti_double.library())]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return {name: float(value) for name, value in (line.split() for line in printed.splitlines())}


def compiled(folder: Path) -> Path:
    target = folder / "recorder_cost"
    command = [*compiler(os.environ), "-O2", "-rdynamic", "-o", str(target), str(HERE / "recorder_cost.c"), "-ldl"]
    subprocess.run(command, check=True)
    return target


SUMMED = {"region": "a region, summed up", "host": "a record of what the host did, summed up", "mpi": "a call of MPI, summed up"}


TASK_CLOCK = "1:1,1:1"  # in place of instructions and cycles, which virtual machines seldom have: a reading costs as much


def costs(count: int, events: int, instructions: str = "0") -> dict[str, float]:
    """Return ns of each kind of call, where so many bytes of events are recorded, and these counters are read in useful time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = cupti_double.environment(
            ULLAGE_RECORD=str(folder / "rec"),
            ULLAGE_RECORDER=str(built()),
            ULLAGE_KINDS="10",
            ULLAGE_CALLBACKS="runtime",
            ULLAGE_EVENTS=str(events),
            ULLAGE_INSTRUCTIONS=instructions,
        )
        found = times(compiled(folder), count, environment)
    found["api"] = found["call-traced"] - found["call"]
    return found


def openmp(count: int) -> dict[str, float]:
    """Return by how many ns the recorder makes a parallel region and a barrier of OpenMP's longer, summed up; {} without clang."""
    if shutil.which("clang") is None:
        return {}
    with tempfile.TemporaryDirectory() as name:
        program = Path(name, "openmp_cost")
        subprocess.run(["clang", "-O2", "-fopenmp", "-o", str(program), str(HERE / "openmp_cost.c")], check=True)
        recorded = {"ULLAGE_RECORD": str(Path(name, "rec")), "ULLAGE_EVENTS": "0", "LD_PRELOAD": str(built())}
        without, with_recorder = (times(program, count, {**os.environ, **more}) for more in ({}, recorded))
        return {deed: with_recorder[deed] - ns for deed, ns in without.items()}


def buffers(seconds: float) -> dict[str, float]:
    """Return what END says after a program that launched kernels as fast as the double lets it."""
    with tempfile.TemporaryDirectory() as name:
        recording = Path(name, "rec")
        environment = cupti_double.environment(
            ULLAGE_RECORD=str(recording), CUDA_INJECTION64_PATH=str(built()), ULLAGE_KINDS="10,4,5", ULLAGE_NAMES="10:104"
        )
        command = [str(cupti_double.program()), "--flood", "--microseconds", "1", "--seconds", str(seconds)]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        with next(recording.iterdir()).open("rb") as file:
            return next(chunk.json() for chunk in chunks(file, "recording") if chunk.type == ChunkType.END)


def from_python(count: int) -> float:
    """Return ns of CPU of a region begun and ended from Python, best of five."""
    import time
    import timeit

    with tempfile.TemporaryDirectory() as name:
        recorder = Recorder(built())
        recorder.attach(name)
        found = timeit.repeat(lambda: recorder.end(recorder.begin("a region")), timer=time.thread_time, number=count, repeat=5)
        recorder.detach()
        return min(found) / count * 1e9


def around(*command: str) -> tuple[float, float]:
    """Return what `ullage run` takes beside a program that does nothing: CPU in ms (the least of five), peak memory in MB."""
    # a child's peak begins with what its parent has in memory: a small one starts it
    told = (
        "import os, resource, sys; os.waitpid(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN); print(used.ru_utime + used.ru_stime, used.ru_maxrss)"
    )
    run = [sys.executable, "-ISc", told, sys.executable, "-m", "ullage", "run", "--", *command]
    found = [subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() for _ in range(5)]
    return min(float(cpu) for cpu, _ in found) * 1e3, max(float(memory) for _, memory in found) / 1e3


def main() -> None:
    asked = parser(__doc__).parse_args()
    figures, count = Figures(asked.json), 20_000 if asked.quick else 200_000
    found, summed, counted = costs(count, 2**62), costs(count, 0), costs(count, 0, TASK_CLOCK)
    figures.add(*(Figure(words, found[name], "ns") for name, words in ROWS.items()))
    figures.add(*(Figure(words, summed[name], "ns") for name, words in SUMMED.items()))
    figures.add(Figure("a call of MPI summed up, without an empty one", summed["mpi"] - summed["empty"], "ns"))
    figures.add(Figure("a call of MPI summed up, with counters in useful time", counted["mpi"], "ns"))
    names = {
        "region": "a parallel region of OpenMP, summed up, without an empty one",
        "barrier": "a barrier of OpenMP, summed up, without one",
    }
    figures.add(*(Figure(names[deed], ns, "ns") for deed, ns in openmp(count // 2).items()))
    figures.add(Figure("a region, begun and ended from Python", from_python(count // 10), "ns"))
    end = buffers(0.5 if asked.quick else 3)
    figures.add(
        Figure("a callback of CUPTI for a buffer", end["callback_ns"] / end["callbacks"], "ns"),
        Figure("the writer's own thread, a MB of records", end["writer_ns"] / end["bytes"] * 1e3, "µs"),
        Figure("buffers kept at most", end["memory_peak"] / 1e6, "MB"),
    )
    cpu, memory = around("true")
    figures.add(Figure("ullage run -- true, CPU", cpu, "ms"), Figure("ullage run -- true, peak memory", memory, "MB"))


if __name__ == "__main__":
    main()
