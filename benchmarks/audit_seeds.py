"""Precision and recall of the MFU audit over simulated fleets: python benchmarks/audit_seeds.py [seeds].

Each fleet has every fault that the simulator can plant, three of which are miscounted MFUs. No telemetry is written: OFU is
what the answer key says that the emitted readings of trusted series come to.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ullage.asking.step import step_question
from ullage.metrics.agreement import relative_error
from ullage.models.config import Config
from ullage.reports.audit.fleet import Audited, Measure, ReportingJob, audit_jobs
from ullage.reports.fleet.agreement import Comparison
from ullage.reports.flops import StepQuestion
from ullage.simulate.configs import CONFIGS
from ullage.simulate.fleet import Specification, fleet

SEEDS, GPUS, HOURS, INTERVAL = 200, 96, 12.0, 60.0
# what the audit must say of what the simulator plants
CAUSES = {"latent_moe": "experts_at_full_width", "hybrid": "hybrid_as_dense", "recomputation": "recomputation_runs"}


@dataclass
class Score:
    """How many jobs were audited, miscounted, flagged; `named` were flagged with the right cause, and nothing else, before any other."""

    audited: int = 0
    planted: int = 0
    flagged: int = 0
    right: int = 0
    named: int = 0
    left_out: int = 0
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """The share of the flagged jobs that were miscounted."""
        return self.right / self.flagged if self.flagged else 1.0

    @property
    def recall(self) -> float:
        """The share of the miscounted jobs that were flagged."""
        return self.right / self.planted if self.planted else 1.0


def describe(_: str, name: str | None) -> tuple[Config, StepQuestion] | None:
    """Return the configuration and the step of a family."""
    fields = dict(CONFIGS[name or ""])
    return Config(fields, name or ""), step_question(**fields.pop("step"))


def compared(seed: int) -> tuple[list[ReportingJob], dict[str, Any]]:
    """Return the jobs of a fleet that report an MFU, as a fleet report compares them, and what was planted."""
    key = fleet(Specification(gpus=GPUS, hours=HOURS, interval=INTERVAL, seed=seed, faults=("all",))).answers
    jobs = []
    for job, told in key["reported"].items():
        measured = key["jobs"].get(job)
        if measured and measured["trusted_ofu"]:
            ofu, gpus = measured["trusted_ofu"], measured["gpus"]
            comparison = Comparison(job, gpus, told["mfu"], ofu, relative_error(told["mfu"], ofu), measured["model"])
            hours, trusted = measured["gpu_hours"], measured["trusted_gpu_hours"]
            jobs.append(ReportingJob(comparison, measured["name"], hours / gpus * 3600, trusted / hours))
    return jobs, key["reported"]


def score(seeds: range) -> Score:
    """Return how the audit did over the fleets of some seeds; a job counts as flagged when MFU and OFU are said to disagree."""
    total = Score()
    for seed in seeds:
        jobs, told = compared(seed)
        audited, left_out = audit_jobs(jobs, describe, Measure())
        total.left_out += len(left_out)
        for job in audited:
            _add(total, job, told[job.job]["mistake"], seed)
    return total


def _add(total: Score, job: Audited, planted: str | None, seed: int) -> None:
    finding = job.finding
    total.audited += 1
    total.planted += planted is not None
    total.flagged += not finding.agrees
    if planted is not None:
        total.right += not finding.agrees
        first = (
            " + ".join(finding.explanations[0].names) if finding.explanations else "nothing in the list" if not finding.agrees else "agrees"
        )
        total.named += first == CAUSES[planted]
        total.causes[planted, first] += 1
    if (planted is not None) == finding.agrees:
        low, high = finding.expected
        total.wrong.append(f"seed {seed}, job {job.job} ({planted or 'honest'}): {finding.reported:.4f}, allowed {low:.4f} to {high:.4f}")


def main() -> None:
    """Print the score over as many seeds as the command line says."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    begun = time.perf_counter()
    total = score(range(seeds))
    print(f"{seeds} fleets of {GPUS} GPUs for {HOURS:g} h: {total.audited:,} reported MFUs audited, {total.planted} of them miscounted")
    print(f"flagged     {total.flagged:,}: precision {total.precision:.4f}, recall {total.recall:.4f}")
    precision, recall = total.named / max(total.flagged, 1), total.named / max(total.planted, 1)
    print(f"right cause {total.named:,}: precision {precision:.4f}, recall {recall:.4f}")
    print(f"left out    {total.left_out:,}: observed for less than half an hour, or too few of their GPUs trusted")
    for (planted, cause), count in sorted(total.causes.items()):
        print(f"  {planted:14} {count:4}  {cause}")
    print("\n".join(total.wrong))
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
