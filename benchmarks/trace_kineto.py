"""A PyTorch profile into trees: seconds, CPU time and memory, beside HolisticTraceAnalysis and traceinsight on the same file.

    python benchmarks/trace_kineto.py [--trace FILE] [--size 200MB] [--rounds 3] [--hta PYTHON] [--traceinsight PYTHON]
                                      [--quick] [--json FILE]

The file is a profile repeated, each time later and with other correlation numbers, until it is as large as --size: FILE, or that of
a simulated training run. Ours is reading, states, and both trees; theirs is loading, the temporal breakdown, and the overlap of
communication and computing. Each runs in a process of its own, all of them in turn and --rounds times, so that what else the machine
does hits all alike; medians are printed. Imports are not counted by the clock; CPU time is that of whole processes. The peers need
environments of their own: `pip install 'HolisticTraceAnalysis==0.5.0' 'pandas<3'` and `pip install 'traceinsight==0.6.1' 'pandas<3'`;
their Pythons are given as options or in HTA_PYTHON and TRACEINSIGHT_PYTHON. What is not given is not measured, and that is said.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import DATA, Figure, Figures, parser
from ullage.compressed import opened
from ullage.metrics.host import HOST
from ullage.metrics.tree import DEVICE_AI, evaluate
from ullage.profiles import profile
from ullage.sums.lanes.run import device_parts, device_totals, host_parts, host_totals
from ullage.traces.trace import TRACES

TIMES = 20  # as fast as HolisticTraceAnalysis
LIGHTER = 10  # times less memory than it
PEAK = 400  # MB
PEERS = {"HolisticTraceAnalysis 0.5.0": "hta", "traceinsight 0.6.1": "traceinsight"}
NUMBERS = ("correlation", "External id")
THEIRS = """
import json, sys, time, logging
from pathlib import Path
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
path = Path(sys.argv[1])
begin = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent), include_last_profiler_step=True)
found = analysis.get_temporal_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
taken = time.perf_counter() - begin
row = found.iloc[0]
busy = [float(row[name]) for name in found.columns if name.split("(")[0] in ("compute_time", "non_compute_time")]
print(json.dumps({"answer": busy, "seconds": taken}))
"""


@dataclass(frozen=True)
class Asked:
    """What one process took: seconds for the work by the clock, CPU seconds of the whole process, peak bytes, and its answer."""

    answer: Any
    seconds: float
    cpu: float
    peak: float


def once(*words: str) -> Asked | None:
    """Run a process that prints one line of JSON, and measure it; None when it fails."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(words, stdout=said, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)  # with what it waited for: times are summed, of memory the most counts
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode or not lines:
        return None
    told, peak = json.loads(lines[-1]), usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Asked(told["answer"], told["seconds"], usage.ru_utime + usage.ru_stime, peak)


def in_turn(rounds: int, commands: Mapping[str, Sequence[str]]) -> dict[str, Asked]:
    """Return the medians of each command's runs, one of each in every round; without those that fail."""
    runs: dict[str, list[Asked]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, words in commands.items():
            if (run := once(*words)) is not None:
                runs[name].append(run)
    return {name: _medians(found) for name, found in runs.items() if found}


def _medians(runs: Sequence[Asked]) -> Asked:
    seconds, cpu, peak = (statistics.median(getattr(run, name) for run in runs) for name in ("seconds", "cpu", "peak"))
    return Asked(runs[-1].answer, seconds, cpu, peak)


def ours(path: Path) -> dict[str, Any]:
    """Return device times in us and both parallel efficiencies of a file, through every stage that a report needs."""
    read = profile(str(path))
    run = read.run
    assert run is not None
    hosts, devices = host_parts(run), device_parts(run)
    host, device = host_totals(hosts, run.elapsed()), device_totals(devices, run.elapsed())
    assert host is not None
    assert device is not None
    trees = [evaluate(tree, totals.sums()).value for tree, totals in ((HOST, host), (DEVICE_AI, device))]
    busy = device.kernel_time + device.collective_time + device.memory_time
    return {"busy": busy / 1000, "trees": trees, "problems": read.problems.lines()}


def made(trace: Path | None, size: int) -> Path:
    """Return a file of about `size` bytes, making it when it isn't there yet."""
    from ullage.simulate.traces.kineto import write  # here, for what is measured needs none of it
    from ullage.simulate.traces.training import TrainingPlan, sized, training

    name = re.sub(r"\W+", "_", trace.name.split(".")[0]) if trace else "simulated"
    path = DATA / f"kineto_{name}_{size // 10**6}.json"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = trace or write(training(sized(20_000, TrainingPlan(ranks=1))), Path(folder))[0]
        with opened(source) as file:
            content = json.loads(file.read(), strict=False)
    unfinished = path.with_suffix(".part")
    with unfinished.open("w") as file:
        written = 0
        head = {key: value for key, value in content.items() if key != "traceEvents"} | {"distributedInfo": {"rank": 0, "world_size": 1}}
        file.write(json.dumps(head)[:-1] + ',\n"traceEvents": [\n')
        for number, lines in enumerate(copies(content["traceEvents"])):
            file.write((",\n" if number else "") + lines)
            written += len(lines)
            if written >= size:
                break
        file.write("\n]}\n")
    unfinished.rename(path)
    return path


def apart(trace: Path | None, size: int) -> Path:
    """Return the file, made by another process: the memory of whoever starts a process counts as that process' own."""
    words = [sys.executable, __file__, "made", str(trace or ""), str(size)]
    return Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())


def copies(events: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the events again and again as lines of JSON: later by their whole length, with their own numbers and steps."""
    timed = [event for event in events if "dur" in event]
    length = max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed) + 1
    numbers = 1 + max(int(e.get("args", {}).get(name, 0)) for e in timed for name in NUMBERS)
    steps = sum(str(e.get("name")).startswith("ProfilerStep#") for e in events)
    turn = 0
    while True:
        yield ",\n".join(json.dumps(moved(event, turn * length, turn * numbers, turn * steps)) for event in events)
        turn += 1


def moved(event: dict[str, Any], later: float, numbers: int, steps: int) -> dict[str, Any]:
    """Return an event that much later."""
    found = dict(event)
    if "ts" in found:
        found["ts"] = round(found["ts"] + later, 3)
    if "id" in found and isinstance(found["id"], int):
        found["id"] += numbers
    if isinstance(found.get("args"), dict):
        found["args"] = found["args"] | {name: found["args"][name] + numbers for name in NUMBERS if name in found["args"]}
    step = re.fullmatch(r"ProfilerStep#(\d+)", str(found.get("name")))
    if step:
        found["name"] = f"ProfilerStep#{int(step[1]) + steps}"
    return found


def bytes_in(text: str) -> int:
    """Return the bytes that a size names.

    >>> bytes_in("200MB"), bytes_in("1GB")
    (200000000, 1000000000)
    """
    found = re.fullmatch(r"(?i)(\d+(?:\.\d+)?)\s*([MG])B?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: write 200MB or 1GB")
    return int(float(found[1]) * {"M": 10**6, "G": 10**9}[found[2].upper()])


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "ours":
        TRACES.load()
        begin = time.perf_counter()
        answer = ours(Path(sys.argv[2]))
        print(json.dumps({"answer": answer, "seconds": time.perf_counter() - begin}))
        return
    if len(sys.argv) == 4 and sys.argv[1] == "made":
        print(made(Path(sys.argv[2]) if sys.argv[2] else None, int(sys.argv[3])))
        return
    options = parser(__doc__)
    options.add_argument("--trace", type=Path, metavar="FILE", help="the profile to repeat; default: a simulated one")
    options.add_argument("--size", type=bytes_in, default="200MB", help="of the file made of it; default: %(default)s")
    options.add_argument("--rounds", type=int, default=3, help="how often each is run; default: %(default)s")
    for name, short in PEERS.items():
        default = os.environ.get(f"{short.upper()}_PYTHON")
        options.add_argument(f"--{short}", metavar="PYTHON", default=default, help=f"the Python that has {name}")
    asked = options.parse_args()
    path = apart(asked.trace, 2_000_000 if asked.quick else asked.size)
    pythons = {name: getattr(asked, short) for name, short in PEERS.items()}
    compare(path, pythons, 1 if asked.quick else asked.rounds, Figures(asked.json), quick=asked.quick)


def compare(path: Path, pythons: dict[str, str | None], rounds: int, figures: Figures, *, quick: bool) -> None:
    """Measure everybody on one file and print how they stand."""
    size = path.stat().st_size / 1e6
    commands = {"ours": [sys.executable, __file__, "ours", str(path)]}
    commands |= {name: [python, "-c", THEIRS, str(path)] for name, python in pythons.items() if python}
    runs = in_turn(rounds, commands)
    mine = runs.pop("ours", None)
    if mine is None:
        sys.exit(f"our own reading of {path} failed")
    for name, python in pythons.items():
        if name not in runs:
            print(f"{name} is not measured: {'it failed' if python else 'no Python that has it was given'}")
        else:
            print(f"{name} finds the device busy for {sum(runs[name].answer):,.0f} us, we {mine.answer['busy']:,.0f} us")
    hosts, devices = mine.answer["trees"]
    print(f"{path.name}, {size:,.0f} MB: parallel efficiency of hosts {hosts:.3f}, of devices {devices:.3f}")
    figures.add(
        Figure("a PyTorch profile into trees", mine.seconds, "s", {name: run.seconds for name, run in runs.items()}),
        Figure("  of its JSON", size / mine.seconds, "MB/s", {name: size / run.seconds for name, run in runs.items()}),
        Figure("  CPU time, with imports", mine.cpu, "s", {name: run.cpu for name, run in runs.items()}),
        Figure("  memory at most", mine.peak / 1e6, "MB", {n: r.peak / 1e6 for n, r in runs.items()}, None if quick else PEAK),
    )
    if (hta := runs.get(next(iter(PEERS)))) is not None and not quick:
        figures.add(
            Figure("  as fast as HolisticTraceAnalysis", hta.seconds / mine.seconds, "times", target=TIMES),
            Figure("  as light as HolisticTraceAnalysis", hta.peak / mine.peak, "times", target=LIGHTER),
        )


if __name__ == "__main__":
    main()
