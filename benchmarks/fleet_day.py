"""One day of a fleet: OFU, the tree of every job, the whole report; beside pandas, Polars, SQL by hand, and Prometheus.

    python benchmarks/fleet_day.py [--gpus 100 1000 10000] [--hours 24] [--prometheus-gpus 200 1000] [--quick] [--json FILE]

A sample every 30 s of six fields, in Parquet, the files in the page cache. Every question is asked in a process of its
own; a time is the median of five (of three where it takes longer than 5 s), once the libraries are loaded; the time of
the whole process and its peak memory stand beside it. All ways must give the same answer, or the benchmark fails.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

from day import at_rest
from measure import Figure, Figures, Run, fresh, parser, table
from prometheus_day import prometheus_figures
from ullage.store.store import Store

ASKED = str(Path(__file__).parent / "asked.py")
PEERS = ("pandas", "polars", "sql")
NAMES = {
    "ullage": "ullage",
    "rolled": "from the roll-ups of its store",
    "pandas": "pandas",
    "polars": "Polars",
    "sql": "DuckDB SQL by hand",
}
QUESTIONS = {"ofu": "fleet OFU", "tree": "tree of every job", "report": "whole report"}
ROLLED = "Ullage, from the roll-ups of its store"
TARGETS = {"ofu": 1.5, "tree": 3.0}  # seconds, 10,000 GPUs, on two cores
MEMORY = 1.5  # GB
FULL = 10_000


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--gpus", type=int, nargs="+", default=[100, 1000, FULL])
    options.add_argument("--hours", type=float, default=24)
    options.add_argument(
        "--prometheus-gpus", type=int, nargs="*", default=[200], help="sizes to ask Prometheus at; it takes minutes to fill"
    )
    asked = options.parse_args()
    if asked.quick:
        asked.gpus, asked.hours, asked.prometheus_gpus = [8, 16], 1, [8]
    figures = Figures(asked.json)
    runs: dict[int, dict[str, Run]] = {}
    for gpus in asked.gpus:
        runs[gpus] = ask_all(at_rest(gpus, asked.hours), asked.quick)
        for question in QUESTIONS:
            figures.add(*compared(gpus, question, runs[gpus]))
    print(f"\n{growth(runs)}\n")
    for gpus in asked.prometheus_gpus:
        figures.add(*prometheus_figures(gpus, asked.hours, quick=asked.quick))


def ask_all(store: Path, quick: bool) -> dict[str, Run]:
    """Ask every question in every way; stop when two ways differ."""
    ways = [f"{question}-{way}" for question in TARGETS for way in ("ullage", *PEERS)]
    runs = {way: fresh(ASKED, way, str(store), quick=quick) for way in ways}
    for question in TARGETS:
        for peer in PEERS:
            agree(question, runs[f"{question}-ullage"].answer, runs[f"{question}-{peer}"].answer)
    begin = time.process_time()
    made = Store.open(store).roll_up()
    print(f"{made} parts added up in {time.process_time() - begin:.1f} s of CPU")
    return runs | {way: fresh(ASKED, way, str(store), quick=quick) for way in ("report-ullage", "report-rolled")}


def agree(question: str, ours: object, theirs: object) -> None:
    """Stop unless two answers are the same to 1e-5, relatively."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        pairs = [(ours[job], chain) for job, chain in theirs.items()]
        same = set(ours) - set(theirs) <= {"no job"} and all(alike(a, b) for mine, other in pairs for a, b in zip(mine, other, strict=True))
    else:
        same = alike(float(str(ours)), float(str(theirs)))
    if not same:
        sys.exit(f"two ways to ask for {question} differ")


def alike(ours: float | None, theirs: float) -> bool:
    return math.isnan(theirs) if ours is None else math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-9)


def compared(gpus: int, question: str, runs: dict[str, Run]) -> list[Figure]:
    """Return our time, the time of the whole process, and its peak memory, each beside the peers'."""
    ours = runs[f"{question}-ullage"]
    target, memory = (TARGETS.get(question), MEMORY) if gpus == FULL else (None, None)
    what = f"{QUESTIONS[question]}, {gpus:,} GPUs"
    theirs = {NAMES[peer]: runs[f"{question}-{peer}"] for peer in (*PEERS, "rolled") if f"{question}-{peer}" in runs}
    return [
        Figure(what, ours.seconds, "s", {name: run.seconds for name, run in theirs.items()}, target),
        Figure(f"{what}, whole process", ours.process, "s", {name: run.process for name, run in theirs.items()}),
        Figure(f"{what}, peak memory", ours.peak / 1e9, "GB", {name: run.peak / 1e9 for name, run in theirs.items()}, memory),
    ]


def growth(runs: dict[int, dict[str, Run]]) -> str:
    """Return how the times grow with the fleet, in seconds."""
    sizes = list(runs)
    rows = [
        [f"{QUESTIONS[question]}, {NAMES[way]}", *(f"{runs[gpus][f'{question}-{way}'].seconds:.2f}" for gpus in sizes)]
        for question, way in (pair.split("-") for pair in runs[sizes[0]])
    ]
    return table(["seconds for a fleet of", *(f"{gpus:,} GPUs" for gpus in sizes)], rows)


if __name__ == "__main__":
    main()
