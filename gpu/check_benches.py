"""What do the microbenchmarks measure, and is it what this GPU should do?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gpu.bench_answers import answers, contradictions
from gpu.benches import Shelf, fill, suite
from gpu.check import Findings, check
from gpu.evidence import slug
from gpu.machine import Machine, described
from ullage.benches.bench import BENCHES
from ullage.benches.result import Result
from ullage.gpus.measured import save
from ullage.reports.power_curve import power_notes
from ullage.reports.roofline import ceilings

MOST = 40  # problems that are told one by one


@check(
    seconds=560,
    least=120,
    rank=1,
    answers={
        "benches": "microbenchmarks recorded so far",
        "measured": "cases with a number",
        "wrong_results": "cases whose result was wrong: they have no number",
        "without": "cases without a number for another reason (see the notes)",
        "l1_latency": "of a load from L1, SM cycles",
        "shared_latency": "from shared memory",
        "l2_latency": "from L2",
        "global_latency": "from global memory",
        "cluster_latency": "from another block's shared memory in a cluster",
        "hbm_share": "best bandwidth of global memory over the stated one",
        "wgmma_zero_share": "wgmma on zeros over the stated peak, the precision that does worst",
        "wgmma_random_share": "the same on random data",
        "wgmma_zero_issue_share": "wgmma on zeros over what all SMs issue at the clock that the kernel saw, the precision that does worst",
        "wgmma_random_issue_share": "the same on random data",
        "mma_share": "best dense mma over the stated peak of its precision",
        "best_gemm_share": "PyTorch's best BF16 product over the stated peak",
        "sustained_share": "BF16 on random data over five seconds, after one that does not count, over the stated peak",
        "sustained_over_burst": "the same over the best burst of a fraction of a second",
        "sustained_clock": "its median SM clock, Hz",
        "sustained_power": "its mean power, W",
        "idle_power": "of the board while nothing runs, W",
        "highest_power": "of the heaviest load of the power curve, W",
        "power_limit": "that the driver enforces, W",
        "power_cost": "share of the throughput on random data that the limit costs (see the notes)",
        "free_clock": "SM clock at which the product runs while nothing holds it back, Hz",
    },
    columns={
        "bench": "its name",
        "cases": "how many were tried",
        "measured": "how many have a number",
        "all": "whether these are all cases of the bench",
        "seconds": "that it took",
        "problem": "of the first case without a number",
    },
)
def benches(machine: Machine) -> Findings:
    """What do the microbenchmarks measure, and is it what this GPU should do?

    Every bench of `ullage bench` in a process of its own, what matters most first; each is recorded as it ends in
    `results/<gpu>/benches/`, so that the next start goes on with the rest. `benches.txt` holds the tables as text;
    `ullage bench --from FILE`, once for each recording, draws them, and `ULLAGE_CEILINGS` may name the folder `ceilings/`.

    Expected are 85 to 100 % of the stated memory bandwidth, wgmma that issues on zeros in 97 % of the cycles that its SMs had, the
    latencies that the Hopper paper gives for L2 (within 15 %) and shared memory (within 7 %, 2 cycles), and not one wrong result. How near
    products come to the stated peak, in a burst and over seconds, is told and not judged, for the power limit decides it: only what no
    clock allows is an error, a board that draws more than its limit, and bursts that are slower than what is sustained.
    """
    assert machine.room is not None, "the runner gives every check room"
    run = suite(machine)
    if machine.torch is not None:
        machine.torch.cuda.empty_cache()  # the benches' process wants the memory
    shelf = Shelf(machine.room, machine.pseudonym, str(described(machine)["driver"]))
    fill(shelf, run)
    found = shelf.all()
    if not found:
        raise RuntimeError("no microbenchmark has ended")
    findings = Findings({"folder": f"{slug(machine.name)}/benches"})
    findings.answers, findings.rows = answers(found, machine.chip), [_row(result) for result in found]
    findings.notes, findings.unfinished = list(_notes(found)), shelf.missed
    findings.wrong = list(contradictions(findings.answers, machine.chip, found))
    findings.add_table("benches.txt", lambda: _text(found))
    kept = ceilings(found)
    if kept is not None:
        save(kept, machine.room.folder / "ceilings")
    return findings


def _text(found: Sequence[Result]) -> str:
    from ullage.render.bench import text
    from ullage.reports.bench import bench_report

    return text(bench_report(found))


def _row(result: Result) -> dict[str, Any]:
    problems = [row.problem for row in result.rows if row.problem]
    return {
        "bench": result.bench,
        "cases": len(result.rows),
        "measured": sum(1 for row in result.rows if row.values),
        "all": not result.quick,
        "seconds": result.seconds,
        "problem": problems[0] if problems else "; ".join(result.notes) if not result.rows else "",
    }


def _notes(found: Sequence[Result]) -> Iterator[str]:
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
