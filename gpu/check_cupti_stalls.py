"""Can the recorder sample the program counters of an unmodified program, whichever way it ends?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_stalls_program import LAUNCHES, PLAIN, STAGES
from gpu.cupti_tools import injected, library, needs_recorder, recordings, settings, understood
from gpu.machine import Machine
from ullage.cupti.pc_sampling.recorded import sampled
from ullage.live.recording import STALLS

LIMIT = 30.0  # seconds for one stage: it needs a few


@check(
    headline="{samples:,} samples, {with_code:.0%} of them with machine code, the program {slowdown:.2f} times as long",
    answers={
        "samples": "of the kernel, in the stage that leaves its context",
        "with_code": "samples whose machine code was kept, as a share",
        "dropped": "samples that the hardware dropped, as a share",
        "slowdown": "time of the kernels while sampled, over that without",
        "agree": "samples of the stage that destroys its context over those of the other",
        "ended": "whether every program ended well and was sampled",
    },
    columns={
        "stage": "plain: not sampled; exits: its context stays until the end; destroys: it destroys it",
        "seconds": "that its kernels took",
        "samples": "of its kernels",
        "total": "samples as CUPTI counts them",
        "dropped": "of them, in the hardware",
        "with_code": "samples whose machine code was kept",
        "problems": "what failed on the way",
    },
)
def cupti_stalls(machine: Machine) -> Findings:
    """Can the recorder sample the program counters of an unmodified program, whichever way it ends?

    A program without a word of CUPTI launches a kernel some hundred times: without the recorder; with the recorder injected as
    `ullage run --stalls` does it; and the same, destroying its context at the end. CUPTI is enabled in the callback of the new context,
    read by a thread of the recorder's, and disabled in the callback of the context's end or at the program's: whether it allows all that
    is what a double can't tell. Both ways to end must end well and bring about as many samples.
    """
    needs_recorder(machine)
    findings = Findings({**settings(library(machine)), "launches": LAUNCHES})
    for stage in STAGES:
        with tempfile.TemporaryDirectory() as folder:
            findings.rows.append(_stage(machine, stage, Path(folder), findings))
    if not any(row["samples"] for row in findings.rows):
        raise NotMeasured("; ".join([*findings.notes, *findings.wrong]) or "nothing was sampled")
    findings.answers = _answers({str(row["stage"]): row for row in findings.rows}, findings)
    return findings


def _stage(machine: Machine, stage: str, folder: Path, findings: Findings) -> dict[str, Any]:
    """Run a stage and return its row."""
    given = {} if stage == PLAIN else injected(machine, folder, findings.notes, **{STALLS: "0"})
    told = apart.told(machine, apart.asked("cupti_stalls_program", stage, environment=given), LIMIT)
    understood(f"'{stage}'", told, findings)
    found = sampled(recordings(folder))
    findings.notes += [f"{stage}: {problem}" for problem in found.facts.problems]
    if stage != PLAIN and told.code == 0 and not found.table.num_rows:
        findings.wrong.append(f"'{stage}' sampled nothing")
    rows = found.table.to_pylist()
    return {
        "stage": stage,
        "seconds": told.facts.get("seconds"),
        "samples": sum(row["samples"] for row in rows),
        "total": found.facts.total,
        "dropped": found.facts.dropped,
        "with_code": sum(row["samples"] for row in rows if row["cubin"] in found.cubins),
        "problems": len(found.facts.problems) + (told.code != 0),
    }


def _answers(rows: dict[str, dict[str, Any]], findings: Findings) -> dict[str, Any]:
    plain, exits, destroys = (rows[stage] for stage in STAGES)
    return {
        "samples": exits["samples"],
        "with_code": exits["with_code"] / exits["samples"] if exits["samples"] else None,
        "dropped": exits["dropped"] / exits["total"] if exits["total"] else None,
        "slowdown": exits["seconds"] / plain["seconds"] if exits["seconds"] and plain["seconds"] else None,
        "agree": destroys["samples"] / exits["samples"] if exits["samples"] else None,
        "ended": not findings.wrong,
    }
