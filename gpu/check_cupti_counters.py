"""Do CUPTI's counters count the tensor work that kernels execute, over ranges, in one pass and in several?"""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

from gpu import apart
from gpu.check import Findings, NotMeasured, check
from gpu.cupti_counters_program import REPLAYED, STAGES
from gpu.cupti_tools import library, settings, understood
from gpu.evidence import MOST
from gpu.machine import Machine

LIMIT = 28.0  # seconds for one stage: importing PyTorch takes most of them
CLOSE = 0.02  # of shares of cycles that must agree: each is a mean over the SMs
COLUMNS = {
    "kind": "what ran: a product of PyTorch's, or an instruction in a kernel of ours",
    "precision": "of the operands",
    "size": "of the square product; of a kernel of ours its trips",
    "kernels": "that were counted",
    "counted": "tensor operations",
    "needed": "by the closed form: 2 M N K, of a kernel of ours warps times instructions times that of one",
    "difference": "counted minus needed",
    "identity": "share of elapsed cycles over that of active cycles times active over elapsed, minus 1",
    "tensor_active": "share of elapsed cycles, percent",
    "problem": "why it was not counted",
}


@check(
    headline="{exact} of {counted} products exact, {passes} passes for all",
    answers={
        "exact": "rows whose tensor operations are exactly the closed form's",
        "counted": "rows counted",
        "identity": "farthest that the shares of tensor cycles are from agreeing",
        "passes": "passes of all that Ullage wants of a kernel, as planned",
        "unknown": "of those metrics, how many have no value",
        "user_passes": "passes of a range of the program's own, replayed by it",
        "user_result": "what a counter of passes on the device holds in the end; 1: the checkpoint restored it",
        "evaluates": "whether a kept image gives the same values when it is evaluated again",
        "images": "images of counter data that are kept for tests",
    },
    columns=COLUMNS,
)
def cupti_counters(machine: Machine) -> Findings:
    """Do CUPTI's counters count the tensor work that kernels execute, over ranges, in one pass and in several?

    With PyTorch products of 1024 and 4096 in BF16 and FP8, each a range by itself; without it kernels of ours by `mma.sync` and, on
    Hopper where NVRTC is at hand, `wgmma`, for few and many trips. `sm__ops_path_tensor_…` should count their FLOPs (of products perhaps
    what whole tiles execute), and the share of elapsed tensor cycles be that of active ones times active over elapsed. Then all that
    Ullage wants to know of a kernel, in several passes by kernel replay; then a range of the program's own, replayed by the program, with
    a checkpoint that brings the device's memory back. Images of counter data are kept with the values that this machine makes of them.
    """
    found = library(machine)
    findings = Findings({**settings(found)})
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            told = apart.told(machine, apart.asked("cupti_counters_program", stage, folder), LIMIT)
            facts |= understood(f"'{stage}'", told, findings)
        images = _kept(Path(folder), findings)
    if not facts.get("rows") and "planned" not in facts and "user_passes" not in facts:
        raise NotMeasured(findings.notes[0] if findings.notes else "; ".join(findings.wrong) or "nothing was counted")
    findings.settings["load"] = facts.get("load")
    findings.notes += facts.get("missing", [])
    findings.rows = [_row(row) for row in facts.get("rows", [])]
    findings.answers = _answers(findings.rows, facts, images)
    findings.wrong += _wrong(findings.answers)
    return findings


def _kept(folder: Path, findings: Findings) -> list[dict[str, Any]]:
    """Keep the images with their values, and return what is known of each."""
    found = []
    for path in sorted(folder.glob("*.image")):
        known, packed = json.loads(path.with_suffix(".json").read_text()), gzip.compress(path.read_bytes(), mtime=0)
        if len(packed) > MOST:
            findings.notes.append(f"the image of '{path.stem}' is not kept, it has {len(packed):,} bytes")
            continue
        findings.recordings[f"cupti_counters.{path.stem}.image.gz"] = packed
        findings.recordings[f"cupti_counters.{path.stem}.json"] = json.dumps(known, indent=1).encode()
        found.append(known)
    return found


def _row(told: dict[str, Any]) -> dict[str, Any]:
    row = {name: told.get(name) for name in COLUMNS}
    return row | {"difference": None if row["counted"] is None else row["counted"] - row["needed"]}


def _answers(rows: list[dict[str, Any]], facts: dict[str, Any], images: list[dict[str, Any]]) -> dict[str, Any]:
    counted = [row for row in rows if row["counted"]]
    return {
        "exact": sum(row["difference"] == 0 for row in counted),
        "counted": len(counted),
        "identity": max((abs(row["identity"]) for row in counted if row["identity"] is not None), default=None),
        "passes": facts.get("planned"),
        "unknown": len(facts["unknown"]) if "unknown" in facts else None,
        "user_passes": facts.get("user_passes"),
        "user_result": facts.get("user_result"),
        "evaluates": all(image["again"] == image["values"] for image in images) if images else None,
        "images": len(images),
    }


def _wrong(answers: dict[str, Any]) -> list[str]:
    wrong = []
    if (answers["identity"] or 0) > CLOSE:
        wrong.append(f"the shares of tensor cycles contradict one another by {answers['identity']:.1%}")
    if answers["user_result"] not in (None, REPLAYED):
        wrong.append(f"after user replay with a checkpoint the device holds {answers['user_result']:g} in place of {REPLAYED:g}")
    if answers["evaluates"] is False:
        wrong.append("a kept image evaluates to other values")
    return wrong
