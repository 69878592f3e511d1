"""PaLM's convention, which many trainers quote: attention in full, windows and causality ignored."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.conventions.convention import Row, convention
from ullage.models.formula import Formula
from ullage.models.step import Step


@convention(
    "palm",
    says="every query meets every key, causality and windows ignored (6N + 12·L·n·d·S per token)",
    source="PaLM, arXiv:2204.02311, appendix B",
)
def palm(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield the model's own work with full attention; look-ups count 0."""
    full = Step(step.samples, "full", step.repeats)
    for work in formula.works:
        yield work.name, work.flops * len(work.layers) * full.value(work.quantity)
