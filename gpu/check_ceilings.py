"""What can this GPU really do, in a burst and over seconds?"""

from __future__ import annotations

from gpu.bench_answers import answers, contradictions, counts
from gpu.bench_findings import COLUMNS, recorded, tables
from gpu.benches import ceilings_first
from gpu.check import Findings, check
from gpu.machine import Machine


@check(
    headline="wgmma {wgmma_zero_share:.1%} of the peak on zeros, {wgmma_random_share:.1%} on random data; memory {hbm_share:.1%}; "
    "sustained BF16 {sustained_share:.1%} at {sustained_clock:.4g} Hz, {sustained_power:.0f} W; the limit costs {power_cost:.1%}",
    answers={
        "benches": "microbenchmarks recorded so far, of those that ceilings need",
        "measured": "cases with a number",
        "wrong_results": "cases whose result was wrong: they have no number",
        "without": "cases without a number for another reason (see the notes)",
        "l1_latency": "of a load from L1, SM cycles",
        "shared_latency": "from shared memory",
        "l2_latency": "from L2",
        "global_latency": "from global memory",
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
    columns=COLUMNS,
)
def ceilings(machine: Machine) -> Findings:
    """What can this GPU really do, in a burst and over seconds?

    The microbenchmarks that every share of a ceiling rests on: latencies, tensor instructions by type and shape on zeros and on random
    data, memory, copies; then what is sustained for five seconds, with clock, power and temperature, and watts, clock and throughput from
    idle to full load. Each runs in a process of its own and is recorded as it ends in `results/<gpu>/benches/`; the next start goes on
    with the rest. `ULLAGE_CEILINGS` may name the folder `ceilings/`, which has both kinds, each with what it was measured under.

    Expected are 85 to 100 % of the stated memory bandwidth, wgmma that issues on zeros in 97 % of the cycles that its SMs had, the
    latencies that the Hopper paper gives for L2 (within 15 %) and shared memory (from a quarter below to 7 % above), and not one wrong
    result. How near products come to the stated peak, in a burst and over seconds, is told and not judged, for the power limit decides
    it: only what no clock allows is an error, a board that draws more than its limit, and bursts that are slower than what is sustained.
    """
    findings, found = recorded(machine, ceilings_first())
    findings.answers = {**counts(found), **answers(found, machine.chip)}
    findings.wrong = list(contradictions(findings.answers, machine.chip, found))
    findings.add_table("ceilings.txt", lambda: tables(found))
    return findings
