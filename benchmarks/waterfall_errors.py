"""How often the waterfall's stated intervals hold what was planted in simulated jobs, and how wide they are.

    python benchmarks/waterfall_errors.py [--count 300] [--seed 0]

Each job (`ullage simulate job`) is written to files and read back as anybody would: telemetry, a trace of each rank, configuration and
matrix products. Planted are overlap on SMs of its own or shared, partial last waves, blocks of unequal length, clocks that follow the
work, and in every second job products in FP8 or TF32 beside those in BF16. For each factor: in how many jobs the planted value lies
within the stated interval, the median and the greatest width of that (in points of the factor), and the median distance of the stated
value from the planted one. The peak has no interval: it is within where it is the planted one to a hundred-thousandth, in points of itself.

`--csv FILE` appends what each job showed and skips the jobs that are in it, so that many jobs can be tried in parts.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import tempfile
from pathlib import Path

import ullage
from ullage.metrics.steps import FACTORS
from ullage.simulate.job import JobPlan, job
from ullage.simulate.job_files import write
from ullage.views.table import table

PEAK = "peak"
NAMES = {**FACTORS, PEAK: PEAK}
HEAD = ["factor", "jobs", "within", "median width", "greatest", "median off"]
ROUNDING = 1e-6  # what float32 gauges and whole nanoseconds leave
WHOLE = 1e-5  # what whole sizes of products leave of a mixture's shares
Found = tuple[bool, float, float]  # within, width, distance


def looked_at(seed: int) -> dict[str, Found]:
    """Return what is found of each factor of one job."""
    simulated = job(JobPlan(ranks=1 + seed % 4, steps=1, seed=seed, mixed=(seed // 4) % 2 == 1))
    with tempfile.TemporaryDirectory() as folder:
        made = write(simulated, Path(folder) / "job")
        report = ullage.waterfall(*map(str, (made.telemetry, made.traces, made.config, made.gemms)))
    found = {}
    if report.peak is not None:
        off = abs(report.peak / simulated.truth["peak"] - 1)
        found[PEAK] = off <= WHOLE, 0.0, off
    for name, planted in simulated.truth["factors"].items():
        step = report.chain.step(name)
        if step is not None and step.factor.low is not None and step.factor.high is not None:
            low, high = step.factor.low, step.factor.high
            found[name] = low - ROUNDING <= planted <= high + ROUNDING, high - low, abs(step.factor.value - planted)
    return found


def row(name: str, found: list[Found]) -> list[str]:
    """Return a row of the table; widths and distances in points."""
    widths, off = [100 * width for _, width, _ in found], [100 * distance for *_, distance in found]
    held = f"{sum(within for within, *_ in found) / len(found):.1%}"
    return [
        NAMES[name],
        str(len(found)),
        held,
        *(f"{value:.2f}" for value in (statistics.median(widths), max(widths), statistics.median(off))),
    ]


def kept(path: Path | None) -> dict[int, dict[str, Found]]:
    """Return what a file of earlier jobs holds, by seed."""
    found: dict[int, dict[str, Found]] = {}
    if path is not None and path.exists():
        for seed, name, within, width, distance in csv.reader(path.read_text().splitlines()):
            found.setdefault(int(seed), {})[name] = within == "True", float(width), float(distance)
    return found


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--csv", type=Path)
    asked = words.parse_args()
    jobs = kept(asked.csv)
    for seed in range(asked.seed, asked.seed + asked.count):
        if seed not in jobs:
            jobs[seed] = looked_at(seed)
            if asked.csv is not None:
                with asked.csv.open("a", newline="") as file:
                    csv.writer(file).writerows([seed, name, *one] for name, one in jobs[seed].items())
    every = {name: [found[name] for found in jobs.values() if name in found] for name in NAMES}
    print(table(HEAD, [row(name, held) for name, held in every.items() if held], left=1))


if __name__ == "__main__":
    main()
