"""Why a reported MFU and the counters disagree: the answer of `ullage audit mfu`."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.audit.mfu import OFU_ERROR, TILE_UNKNOWN, MfuFinding, audit
from ullage.audit.mistakes.mistake import MISTAKES, AuditedJob, Mistake
from ullage.errors import UllageError
from ullage.gpus.chip import find
from ullage.gpus.precision import canonical
from ullage.models.config import Config
from ullage.models.shapes import step
from ullage.reports.flops import StepQuestion, formula_of, training, world
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class Reported:
    """A reported MFU and what the counters say, as ratios; `node` is the number of GPUs in a machine."""

    mfu: float
    ofu: float
    tile_efficiency: float | None = None
    error: float = OFU_ERROR
    node: int = 8


@dataclass(frozen=True)
class AuditReport(ShownByView, view="ullage.render.audit"):
    """The finding, with the step that was taken for the truth and the notes that go with it."""

    finding: MfuFinding
    architecture: str
    convention: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MistakeList(ShownByView, view="ullage.render.audit:mistakes"):
    """The known mistakes, by what they are about."""

    mistakes: tuple[Mistake, ...]


def known_mistakes() -> tuple[Mistake, ...]:
    """Return every known mistake, by what it is about."""
    return tuple(sorted(MISTAKES.values(), key=lambda mistake: (mistake.about, mistake.name)))


def audit_mfu(config: Config, question: StepQuestion, reported: Reported, *, most: int = 10) -> AuditReport:
    """Return which mistakes explain a reported MFU; `question` describes the job as `ullage flops` is asked about it.

    Raises UllageError for an unknown architecture or GPU, wrong shapes, and ratios that can't be.
    """
    case, notes = case_of(config, question, reported.node)
    finding = audit(case, reported.mfu, reported.ofu, tile_efficiency=reported.tile_efficiency, error=reported.error, most=most)
    return AuditReport(finding, case.formula.name, case.step.attention, (*notes, *_assumed(question, reported)))


def case_of(config: Config, question: StepQuestion, node: int) -> tuple[AuditedJob, list[str]]:
    """Return the job that a question describes, `node` GPUs in a machine, and a note for each shape that nobody gave."""
    if node < 1:
        raise UllageError(f"--node must be 1 or more, not {node}", "give the number of GPUs in a machine: --node 8")
    formula = formula_of(config, question)
    described, notes = step(question.shapes, formula, question.attention or formula.attention)
    case = AuditedJob(
        formula=formula,
        step=described,
        training=training(question),
        chip=find(question.gpu) if question.gpu else None,
        precision=canonical(question.precisions.get("*", "bf16")),
        gpus=world(question),
        node=node,
        data_parallel=question.layout.dp,
        sequence_parallel=question.layout.sp,
        accumulation=question.shapes.accumulation,
        framework=question.imitated,
    )
    said = [] if case.chip is None else [case.chip.warning, case.chip.clock_warning]
    return case, [*notes, *filter(None, said)]


def _assumed(question: StepQuestion, reported: Reported) -> list[str]:
    notes = []
    if reported.tile_efficiency is None:
        low, high = TILE_UNKNOWN
        notes.append(f"tile efficiency is not given: {low:.2f} to {high:.2f} is allowed (--tile-efficiency)")
    if question.imitated is None:
        notes.append("the framework is not given: its own formula is not tried (--as)")
    if question.gpu is None:
        notes.append("no GPU is given: another GPU's or precision's peak is not tried (--gpu)")
    if question.training.recompute == "none":
        notes.append("recomputation is not given: it is tried as a circumstance (--recompute full, where it runs)")
    return notes
