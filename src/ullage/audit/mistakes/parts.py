"""Mistakes about what a model has beside its decoder: a vision tower, layers that predict further tokens, an indexer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.audit.mistakes.mistake import SHAPES, AuditedJob, mistake
from ullage.models.formula import compiled
from ullage.models.work import Work

_AHEAD = ("num_nextn_predict_layers", "num_mtp_layers")
_PATCHES = "the rows of the tower's GEMMs in a trace: patches, or merged tokens"


@mistake("vision_forgotten", about="vision", says="the vision tower is left out", decides=SHAPES, weight=2)
def vision_forgotten(case: AuditedJob) -> float | None:
    """torchtitan#4057; most counters take the text alone."""
    return None if case.formula.model.kind == "vision" else case.without("vision")


@mistake(
    "mergers_per_patch",
    about="mergers",
    says="the mergers of a vision tower are counted once a patch instead of once a merged token",
    decides=_PATCHES,
)
def mergers_per_patch(case: AuditedJob) -> float | None:
    """verl#6944: four times, with 2 × 2 patches to a token."""
    patches = [w.quantity for w in case.named("vision.patch")]
    if not patches:
        return None

    def change(work: Work) -> Iterable[Work]:
        return [replace(work, quantity=patches[0]) if work.quantity.name.startswith("merged tokens") else work]

    return case.with_works(change)


@mistake(
    "vision_windows_ignored",
    about="vision attention",
    says="the windows of a vision tower are ignored: every block is counted as seeing the whole frame",
    decides="the framework's FLOPs at two image sizes: windows make them linear",
)
def vision_windows_ignored(case: AuditedJob) -> float | None:
    """verl charges Qwen2.5-VL's tower so: all blocks as the few with full attention."""
    whole = [w.quantity for w in case.named("vision") if w.quantity.name.startswith("tower pairs by frame")]
    if not whole:
        return None

    def change(work: Work) -> Iterable[Work]:
        return [replace(work, quantity=whole[0]) if work.quantity.name.startswith("tower pairs in windows") else work]

    return case.with_works(change)


@mistake("mtp_forgotten", about="multi-token prediction", says="the layers that predict further tokens are left out", decides=SHAPES)
def mtp_forgotten(case: AuditedJob) -> float | None:
    """Multi-token prediction runs one layer and the head once more for each further token."""
    return case.without("mtp")


@mistake(
    "mtp_head_forgotten",
    about="multi-token prediction",
    says="the logits of the layers that predict further tokens are left out",
    decides=SHAPES,
)
def mtp_head_forgotten(case: AuditedJob) -> float | None:
    """MaxText counts those layers without their logits."""
    return case.without("mtp.head")


@mistake(
    "mtp_counted",
    about="multi-token prediction",
    says="layers that predict further tokens are counted and don't run",
    decides="whether the trainer builds them: transformers does not",
)
def mtp_counted(case: AuditedJob) -> float | None:
    """The configuration declares them (num_nextn_predict_layers), and counters believe it."""
    config = case.formula.config
    if not config.has(*_AHEAD) or case.named("mtp"):
        return None
    ahead = compiled(replace(config, values={**config.values, "count_mtp": True}), case.formula.name).works
    return case.counted(ahead) / case.truth


@mistake("indexer_forgotten", about="indexer", says="the indexer of sparse attention is left out", decides=SHAPES)
def indexer_forgotten(case: AuditedJob) -> float | None:
    """DeepSeek V3.2's indexer scores every pair, if with few and narrow heads."""
    return case.without("indexer")
