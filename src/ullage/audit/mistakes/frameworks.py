"""The mistakes of a framework that is known: its whole count beside the right one."""

from __future__ import annotations

from ullage.audit.mistakes.mistake import AuditedJob, mistake
from ullage.models.conventions.convention import terms


@mistake(
    "framework_formula",
    about="formula",
    says="the framework's own count of this model is off",
    decides="the release of the framework: `ullage flops … --as NAME` gives its count and what it leaves out",
    weight=50,
)
def framework_formula(case: AuditedJob) -> float | None:
    """All that the framework's formula gets wrong at once; only where the framework is named (--as)."""
    if case.framework is None:
        return None
    counted, _ = terms(case.framework, case.formula, case.step, case.training)
    return sum(term.flops for term in counted) / case.truth
