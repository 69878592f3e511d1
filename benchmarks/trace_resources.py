"""What `ullage trace FILE` takes of a machine: the most memory of any of its processes, and CPU time of a replay.

    python benchmarks/trace_resources.py [--trace FILE] [--size 1GB] [--events 1000000] [--quick] [--json FILE]

Three files: a PyTorch profile of --size, made of FILE as in trace_kineto.py; a simulated training run of that many events as
rocprofv3's JSON; and the same run as a PyTorch profile, which is replayed (--what-if).
Whole processes are measured, from the start of Python to the last line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Figure, Figures, parser
from trace_kineto import PEAK, apart, bytes_in
from ullage.simulate.traces import kineto, rocprof
from ullage.simulate.traces.scenario import Scenario
from ullage.simulate.traces.training import TrainingPlan, sized, training

WRITERS: dict[str, Callable[[Scenario, Path], list[Path]]] = {"kineto": kineto.write, "rocprof": rocprof.write_json}


def taken(path: Path, *options: str) -> tuple[float, float]:
    """Return CPU seconds of `ullage trace` and the most bytes that any of its processes held."""
    words = [sys.executable, "-m", "ullage", "trace", str(path), "--json", *options]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # with what it waited for: times are summed, of memory the most counts
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(words)} failed with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    if len(sys.argv) == 5 and sys.argv[1] == "made":  # by a process of its own, whose memory is not that of what is measured
        print(WRITERS[sys.argv[2]](training(sized(int(sys.argv[3]), TrainingPlan(ranks=1))), Path(sys.argv[4]))[0])
        return
    options = parser(__doc__)
    options.add_argument("--trace", type=Path, metavar="FILE", help="the profile to repeat; default: a simulated one")
    options.add_argument("--size", type=bytes_in, default="1GB", help="of the profile made of it; default: %(default)s")
    options.add_argument("--events", type=int, default=1_000_000, help="of the simulated run; default: %(default)s")
    asked = options.parse_args()
    size, events = (2_000_000, 5_000) if asked.quick else (asked.size, asked.events)
    figures = Figures(asked.json)
    path = apart(asked.trace, size)
    cpu, peak = taken(path)
    figures.add(
        Figure(
            f"a PyTorch profile of {path.stat().st_size / 1e6:,.0f} MB, memory at most", peak / 1e6, "MB", {}, None if asked.quick else PEAK
        ),
        Figure("  CPU time", cpu, "s"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for writer, name, more in (("rocprof", "rocprofv3's JSON", ()), ("kineto", "a PyTorch profile, replayed", ("--what-if",))):
            words = [sys.executable, __file__, "made", writer, str(events), str(Path(folder) / writer)]
            path = Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())
            cpu, peak = taken(path, *more)
            figures.add(
                Figure(f"{name}, {events:,} events, {path.stat().st_size / 1e6:,.0f} MB, memory at most", peak / 1e6, "MB"),
                Figure("  CPU time", cpu, "s"),
            )


if __name__ == "__main__":
    main()
