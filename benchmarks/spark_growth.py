"""How a fleet's report grows with GPUs × days on DuckDB and on Spark, from the samples themselves, and where the lines cross.

    python benchmarks/spark_growth.py [--gpus 100 1000] [--hours 24] [--engine spark://local-cluster[2,1,1024]] [--json FILE]

Both engines answer in one process, once to warm up (on Spark with its start) and then `--times` times; the median counts, and their
reports must be equal. CPU time is that of the process and of all that it started, Spark's driver and executors too: where others use the
machine, it says more than the clock. Through the two largest sizes goes a line: a fixed cost and a cost per GPU-day. Spark's share of a
GPU-day falls with its cores. What that makes of larger clusters is reckoned, not measured.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from day import at_rest
from measure import Figure, Figures, amount, parser, table
from ullage.reports.fleet.fleet import fleet
from ullage.reports.fleet.request import FleetRequest
from ullage.store.spark_session import spark_address
from ullage.store.store import Store

TICK = os.sysconf("SC_CLK_TCK")
CLUSTERS = (2, 4, 8, 32, 128)  # times the cores that were measured


@dataclass(frozen=True)
class Line:
    """What an answer takes: seconds that any size costs, and seconds per GPU-day."""

    fixed: float
    each: float


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--gpus", type=int, nargs="+", default=[100, 1000])
    options.add_argument("--hours", type=float, default=24)
    options.add_argument("--times", type=int, default=3)
    options.add_argument("--engine", default="spark://local-cluster[2,1,1024]")
    asked = options.parse_args()
    if asked.quick:
        asked.gpus, asked.hours, asked.times = [8, 16], 1, 1
    if spark_address(asked.engine) is None:
        options.error("--engine names a Spark")
    figures, found, work = Figures(asked.json), dict[float, tuple[float, float]](), dict[float, tuple[float, float]]()
    for gpus in asked.gpus:
        place = str(at_rest(gpus, asked.hours))
        print(f"{gpus:,} GPUs: first answer of Spark {first(place, asked.engine):.1f} s", file=sys.stderr, flush=True)
        (ours, ours_cpu), (spark, spark_cpu) = (taken(place, engine, asked.times) for engine in ("duckdb", asked.engine))
        found[gpus * asked.hours / 24], work[gpus * asked.hours / 24] = (ours, spark), (ours_cpu, spark_cpu)
        figures.add(
            Figure(f"fleet report of {gpus:,} GPUs × {asked.hours:g} h on DuckDB", ours, "s", {"Spark": spark}),
            Figure("  its CPU time", ours_cpu, "s", {"Spark": spark_cpu}),
        )
    lines = [line(found, engine) for engine in (0, 1)]
    print(f"\n{os.cpu_count()} cores; {asked.engine}\n{growth(found)}\n\nCPU time\n{growth(work)}\n\n{crossings(*lines)}")


def answer(place: str, engine: str) -> Any:
    """Return the report on a store's samples; its roll-ups are not looked at."""
    store = Store.open(place, engine=engine)
    return fleet(store.speaking(None, None), store.jobs(), FleetRequest(by="job"), [], None)


def taken(place: str, engine: str, times: int) -> tuple[float, float]:
    """Return the median seconds of an answer, and of CPU time."""
    runs = []
    for _ in range(times):
        begin, used = time.perf_counter(), cpu_seconds()
        answer(place, engine)
        runs.append((time.perf_counter() - begin, cpu_seconds() - used))
    wall, work = zip(*runs, strict=True)
    return statistics.median(wall), statistics.median(work)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that come of it and live: it needs Linux's /proc."""
    parents, used = dict[int, int](), dict[int, float]()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.name)], used[int(place.name)] = int(words[1]), (int(words[11]) + int(words[12])) / TICK
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[one] for one in ours)


def first(place: str, engine: str) -> float:
    """Return the seconds of Spark's first answer, which must be DuckDB's."""
    expected = answer(place, "duckdb")
    begin = time.perf_counter()
    found = answer(place, engine)
    passed = time.perf_counter() - begin
    if (found.ofu, found.groups, found.tree) != (expected.ofu, expected.groups, expected.tree):
        sys.exit(f"{engine} and DuckDB differ on {place}")
    return passed


def line(found: dict[float, tuple[float, float]], engine: int) -> Line:
    """Return the line through the two largest sizes."""
    days = sorted(found)[-2:]
    if len(days) < 2:
        sys.exit("two sizes make a line: --gpus 100 1000")
    each = (found[days[1]][engine] - found[days[0]][engine]) / (days[1] - days[0])
    return Line(found[days[1]][engine] - each * days[1], each)


def growth(found: dict[float, tuple[float, float]]) -> str:
    """Return the times by size."""
    rows = [[amount(days), amount(ours), amount(spark), amount(spark / ours)] for days, (ours, spark) in sorted(found.items())]
    return table(["GPU-days", "DuckDB, s", "Spark, s", "Spark / DuckDB"], rows)


def crossings(duckdb: Line, spark: Line) -> str:
    """Return from how many GPU-days on a cluster of so many times the cores were sooner than DuckDB on this machine: reckoned."""
    words = [f"{name}: {one.fixed:.1f} s and {1000 * one.each:.1f} ms a GPU-day" for name, one in (("DuckDB", duckdb), ("Spark", spark))]
    if min(duckdb.each, spark.each) <= 0:
        return "\n".join([*words, "a GPU-day costs too little at these sizes to be seen: no crossing is told"])
    for times in (1, *CLUSTERS):
        saved = duckdb.each - spark.each / times
        point = f"from {amount((spark.fixed - duckdb.fixed) / saved)} GPU-days on" if saved > 0 else "never"
        words.append(f"Spark on {times} times these cores is sooner {point}")
    return "\n".join(words)


if __name__ == "__main__":
    main()
