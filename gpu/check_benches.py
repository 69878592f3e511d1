"""What do all microbenchmarks measure, case by case?"""

from __future__ import annotations

from gpu.bench_answers import counts, latency, wrong_results
from gpu.bench_findings import COLUMNS, recorded, tables
from gpu.benches import plan
from gpu.check import Findings, check
from gpu.machine import Machine


@check(
    headline="{measured} cases of {benches} microbenchmarks measured, {wrong_results} wrong, {without} without a number",
    answers={
        "benches": "microbenchmarks recorded so far",
        "measured": "cases with a number",
        "wrong_results": "cases whose result was wrong: they have no number",
        "without": "cases without a number for another reason (see the notes)",
        "cluster_latency": "of a load from another block's shared memory in a cluster, SM cycles",
    },
    columns=COLUMNS,
)
def benches(machine: Machine) -> Findings:
    """What do all microbenchmarks measure, case by case?

    Every case of every bench of `ullage bench`, after those that the check `ceilings` has recorded; each is recorded as it ends in
    `results/<gpu>/benches/`, so that the next start goes on with the rest. `benches.txt` holds the tables as text;
    `ullage bench --from FILE`, once for each recording, draws them. Not one result may be wrong.
    """
    findings, found = recorded(machine, plan())
    findings.answers = {**counts(found), "cluster_latency": latency(found, "cluster-latency")}
    findings.wrong = list(wrong_results(found))
    findings.add_table("benches.txt", lambda: tables(found))
    return findings
