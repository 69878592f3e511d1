"""Findings of checks over microbenchmarks: rows and notes of what is recorded, the tables as text, the ceilings on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gpu.bench_answers import by_device
from gpu.benches import Pass, Shelf, fill, suite
from gpu.check import Findings
from gpu.evidence import slug
from gpu.machine import Machine, described
from ullage.benches.bench import BENCHES
from ullage.benches.result import BenchResult
from ullage.gpus.measured import save
from ullage.reports.bench.power_curve import power_notes
from ullage.reports.bench.roofline import ceilings

MOST = 40  # problems that are told one by one
COLUMNS = {
    "bench": "its name",
    "cases": "how many were tried",
    "measured": "how many have a number",
    "all": "whether these are all cases of the bench",
    "seconds": "that it took",
    "problem": "of the first case without a number",
}


def recorded(machine: Machine, passes: Sequence[Pass]) -> tuple[Findings, list[BenchResult]]:
    """Run what is not recorded yet of some passes, and return their findings so far and the recordings; the ceilings are kept.

    Raises NotMeasured where no microbenchmark can run, RuntimeError where none has ended.
    """
    assert machine.room is not None, "the runner gives every check room"
    run = suite(machine)
    shelf = Shelf(machine.room, machine.name, str(described(machine)["driver"]))
    fill(shelf, run, passes)
    names = {one.name for one in passes}
    found = [result for result in shelf.all() if result.bench in names]
    if not found:
        raise RuntimeError("no microbenchmark has ended")
    findings = Findings({"folder": f"{slug(machine.name)}/benches"})
    findings.rows = [_row(result) for result in found]
    findings.notes, findings.unfinished = list(_notes(found)), shelf.missed(passes)
    for results in by_device(shelf.all()):
        kept = ceilings(results)
        if kept is not None:
            save(kept, machine.room.folder / "ceilings")
    return findings, found


def tables(found: Sequence[BenchResult]) -> str:
    """Return the tables of recordings as text."""
    from ullage.reports.bench.bench import bench_report

    return str(bench_report(found))


def _row(result: BenchResult) -> dict[str, Any]:
    problems = [row.problem for row in result.rows if row.problem]
    return {
        "bench": result.bench,
        "cases": len(result.rows),
        "measured": sum(1 for row in result.rows if row.values),
        "all": not result.quick,
        "seconds": result.seconds,
        "problem": problems[0] if problems else "; ".join(result.notes) if not result.rows else "",
    }


def _notes(found: Sequence[BenchResult]) -> Iterator[str]:
    """Tell every problem once, with how many cases of a bench have it, and what the benches found beyond their tables."""
    problems = Counter((result.bench, row.problem) for result in found for row in result.rows if row.problem)
    for (bench, problem), count in list(problems.items())[:MOST]:
        yield f"{bench}, {count} {'case' if count == 1 else 'cases'}: {problem}"
    if len(problems) > MOST:
        yield f"{len(problems) - MOST} more problems stand in the recordings"
    for result in found:
        tell = BENCHES[result.bench].findings
        yield from tell(result.rows) if tell else ()
    yield from power_notes(found)
