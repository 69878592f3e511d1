"""How often the waterfall's stated intervals hold what was planted in simulated jobs, and how wide they are.

    python benchmarks/waterfall_errors.py [--count 300] [--seed 0]

Each job (`ullage simulate job`) is written to files and read back as anybody would: telemetry, a trace of each rank, configuration and
matrix products. Planted are overlap on SMs of its own or shared, partial last waves, blocks of unequal length, clocks that follow the
work. For each factor: in how many jobs the planted value lies within the stated interval, the median and the greatest width of that (in
points of the factor), and the median distance of the stated value from the planted one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import ullage
from ullage.metrics.steps import FACTORS
from ullage.render.table import table
from ullage.simulate.job import Plan, job
from ullage.simulate.job_files import write

HEAD = ["factor", "jobs", "within", "median width", "greatest", "median off"]
ROUNDING = 1e-6  # what float32 gauges and whole nanoseconds leave
Found = tuple[bool, float, float]  # within, width, distance


def looked_at(seed: int) -> dict[str, Found]:
    """Return what is found of each factor of one job."""
    simulated = job(Plan(ranks=1 + seed % 4, steps=1, seed=seed))
    with tempfile.TemporaryDirectory() as folder:
        made = write(simulated, Path(folder) / "job")
        report = ullage.waterfall(*map(str, (made.telemetry, made.traces, made.config, made.gemms)))
    found = {}
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
        FACTORS[name],
        str(len(found)),
        held,
        *(f"{value:.2f}" for value in (statistics.median(widths), max(widths), statistics.median(off))),
    ]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--count", type=int, default=300)
    words.add_argument("--seed", type=int, default=0)
    asked = words.parse_args()
    jobs = [looked_at(seed) for seed in range(asked.seed, asked.seed + asked.count)]
    print(table(HEAD, [row(name, held) for name in FACTORS if (held := [found[name] for found in jobs if name in found])], left=1))


if __name__ == "__main__":
    main()
