"""The MFU audit over reports whose mistake is known: python benchmarks/audit_labelled.py [-v].

`labelled_reports.json` holds measured ratios of what frameworks count over what a trace of the model counts, with their known
causes. Each becomes a report, MFU = ratio × the truth of an imagined job, and the audit must say why. The ratios were taken
with causal attention as half of all pairs and windows ignored: what that is beside the truth is computed here.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ullage
from ullage.asking.step import step_question
from ullage.audit.mfu import OFU_ERROR, MfuFinding, audit
from ullage.audit.mistakes.mistake import is_softmax
from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.reports.audit.audit import case_of

REPORTS = Path(__file__).with_name("labelled_reports.json")
OFU, TILE = 0.40, 0.97
JOB = {"gpu": "H100 SXM", "gpus": 64}
NAMES = {"verl": "verl", "Automodel": "automodel", "Megatron-LM": "megatron", "HF Trainer": "hf", "torchtitan": "torchtitan"}
OUTCOMES = ("first", "listed", "missed", "agrees", "accused")


@dataclass(frozen=True)
class Answer:
    """What the audit made of one labelled report.

    `outcome`: the first explanation holds known causes and nothing else, or a later one does (listed), or none (missed). Of a
    report that OFU can't tell from the truth the audit must say that it agrees, or it accuses.
    """

    model: str
    tool: str
    causes: tuple[str, ...]
    ratio: float
    outcome: str
    finding: MfuFinding

    @property
    def said(self) -> str:
        """The first explanation."""
        if self.finding.agrees:
            return "nothing to explain"
        return " + ".join(self.finding.explanations[0].names) if self.finding.explanations else "nothing in the list"


def reference(config: dict[str, Any], step: dict[str, Any]) -> float:
    """Return the FLOPs by which the ratios were taken over the true ones: s²/2 pairs for causal attention, no windows."""
    true, full = ullage.flops(config, **step), ullage.flops(config, attention="full", **step)
    if true.convention == "full":
        return 1.0
    core = sum(t.flops for t in full.terms if is_softmax(t.name) and not t.name.startswith("vision."))
    return (full.training - core / 2) / true.training


def answers(tile_efficiency: float | None = TILE, *, named: bool = False) -> list[Answer]:
    """Return what the audit says of each report, with the tile efficiency measured or unknown.

    `named` says which framework reported, and takes the reports of those whose count is known for the model.
    """
    told = json.loads(REPORTS.read_text(encoding="utf-8"))
    found = []
    for row in told["reports"]:
        config, step = told["models"][row["model"]], row["step"]
        question = step_question(**step, **JOB, imitate=NAMES.get(row["tool"]) if named else None)
        if named and (question.imitated is None or "vision tower" in row["model"]):
            continue
        case = case_of(Config(config), question, 8)[0]
        try:
            case.effects  # noqa: B018 - a framework may have no count for a model
        except UllageError:
            continue
        ratio = row["ratio"] * reference(config, step)
        finding = audit(case, OFU * TILE * ratio, OFU, tile_efficiency=tile_efficiency)
        causes = [*row["causes"], "framework_formula"]
        found.append(Answer(row["model"], row["tool"], tuple(row["causes"]), ratio, outcome(finding, causes, ratio), finding))
    return found


def scored() -> tuple[list[Answer], list[Answer], list[Answer]]:
    """Return the answers with the tile efficiency measured, with it unknown, and with the framework named beside it."""
    return answers(), answers(None), answers(named=True)


def outcome(finding: MfuFinding, causes: list[str], ratio: float) -> str:
    """Return which of the outcomes a finding is."""
    told_apart = abs(math.log(ratio)) > math.log1p(OFU_ERROR)
    if finding.agrees:
        return "agrees"  # an unknown tile efficiency hides up to ten per cent more
    if not told_apart:
        return "accused"
    right = [set(e.names) <= set(causes) for e in finding.explanations]
    return "first" if right[:1] == [True] else "listed" if any(right) else "missed"


def main() -> None:
    """Print the score with the tile efficiency measured and unknown, and with -v each answer."""
    for words, told in zip(("tile efficiency measured", "tile efficiency unknown", "framework named"), scored(), strict=True):
        counts = Counter(a.outcome for a in told)
        print(f"{words}: {len(told)} reports: " + ", ".join(f"{counts[o]} {o}" for o in OUTCOMES))
        for a in told:
            if "-v" in sys.argv or a.outcome in ("missed", "accused"):
                print(f"  {a.outcome:8} {a.model}, {a.tool}: {a.ratio:.3f}: {a.said}  [{' + '.join(a.causes) or 'right'}]")


if __name__ == "__main__":
    main()
