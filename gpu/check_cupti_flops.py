"""Do SASS metrics count the FLOPs of an unmodified program's kernels exactly, each kernel run once?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_flops_program import LAUNCHES, NAME, PLAIN, STAGES, needed
from gpu.cupti_tools import injected, library, needs_recorder, recordings, settings, understood
from gpu.machine import Machine
from ullage.cupti.counters.sass_metrics import METRICS, VARIABLE, executed_instructions
from ullage.errors import UllageError
from ullage.reports.counters.kernel_flops import KernelFlops, program_flops

LIMIT = 30.0  # seconds for one stage: it needs a few


@check(
    headline="{fp32:.6f} of the FP32 FLOPs counted, {fp64:.6f} of FP64, the program {slowdown:.2f} times as long",
    answers={
        "fp32": "FLOPs counted in FP32, over those that the kernel does",
        "fp64": "the same in FP64",
        "launches": "launches counted",
        "slowdown": "time of the kernels while counted, over that without",
        "dropped": "records that CUPTI dropped",
        "lacking": "metrics that the chip does not have",
    },
    columns={
        "stage": "plain: not counted; counted: with the recorder",
        "seconds": "that its kernels took",
        "launches": "counted",
        "fp32": "FLOPs counted",
        "fp64": "FLOPs counted",
        "problems": "what failed on the way",
    },
)
def cupti_flops(machine: Machine) -> Findings:
    """Do SASS metrics count the FLOPs of an unmodified program's kernels exactly, each kernel run once?

    A program without a word of CUPTI launches a kernel of known FLOPs in FP32 and FP64: without the recorder, and with the recorder
    injected as `ullage run --flops` does it. CUPTI is configured and enabled at the context's first launch, and read at the program's
    end: whether it allows that, and what the code that it adds costs, is what a double can't tell.
    """
    needs_recorder(machine)
    findings = Findings({**settings(library(machine)), "launches": LAUNCHES})
    found: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for stage in STAGES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_stage(machine, stage, Path(folder), findings, found))
    findings.rows = list(rows)
    plain, counted = rows
    if not counted["launches"]:
        raise NotMeasured("; ".join([*findings.notes, *findings.wrong]) or "nothing was counted")
    findings.answers = {
        **{kind: counted[kind] / amount for kind, amount in needed().items()},
        "launches": counted["launches"],
        "slowdown": counted["seconds"] / plain["seconds"] if counted["seconds"] and plain["seconds"] else None,
        **found,
    }
    for kind, amount in needed().items():
        if counted[kind] != amount:
            findings.wrong.append(f"{counted[kind]:,.0f} FLOPs are counted in {kind.upper()}, where the kernel does {amount:,}")
    return findings


def _stage(machine: Machine, stage: str, folder: Path, findings: Findings, found: dict[str, Any]) -> dict[str, Any]:
    """Run a stage and return its row; what was dropped and what the chip lacks is put into `found`."""
    given = {} if stage == PLAIN else injected(machine, folder, findings.notes, **{VARIABLE: ",".join(METRICS)})
    told = apart.told(machine, apart.asked("cupti_flops_program", stage, environment=given), LIMIT)
    understood(f"'{stage}'", told, findings)
    counts = executed_instructions(recordings(folder))
    findings.notes += [f"{stage}: {problem}" for problem in counts.problems]
    if stage != PLAIN:
        found |= {"dropped": counts.dropped, "lacking": len(counts.lacking)}
    try:
        kernel = next((one for one in program_flops(counts).kernels if one.name == NAME), None)
    except UllageError:
        kernel = None
    return {"stage": stage, "seconds": told.facts.get("seconds"), **_counted(kernel), "problems": len(counts.problems) + (told.code != 0)}


def _counted(kernel: KernelFlops | None) -> dict[str, Any]:
    if kernel is None:
        return {"launches": 0, "fp32": 0.0, "fp64": 0.0}
    return {"launches": kernel.launches, **{kind: kernel.flops.get(kind, 0.0) for kind in needed()}}
