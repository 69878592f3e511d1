"""The view of FLOPs that were derived from traces."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import field

from ullage.reports.proofs import DerivedFlops
from ullage.views.declared import At, Document, Flops, plain_data
from ullage.views.numbers import flops
from ullage.views.view import Headline, Paragraph, Section, View


def view(report: DerivedFlops) -> View:
    """Return FLOPs of the step, and the polynomial that gives them."""
    passes = f": {flops(report.forward)} forward, {flops(report.backward)} backward"
    return View(
        kind="flops-traced",
        subject=f"FLOPs of a step, {report.architecture}",
        headline=Headline(f"{flops(report.training)} a step", passes, aside=f"{report.architecture}, full attention, traced"),
        sections=[Section("polynomial", "Polynomial", [Paragraph(f"forward = {report.polynomials['forward']}", kept=True)])],
        notes=["traces know no causal half: attention is counted in full"],
    )


class TracedTermDocument(Document):
    """FLOPs of the whole model in one pass."""

    name: str
    group: str
    pass_: str = field(name="pass")
    flops: Flops


class FlopsTracedDocument(Document):
    """The answer of `ullage flops --trace`: FLOPs as counted in small traces, and evaluated at the asked sizes."""

    architecture: str
    forward: Flops
    backward: Flops
    training: Flops
    executed: Annotated[Flops, At("training")]
    convention: str
    status: str
    terms: list[TracedTermDocument]
    polynomial: Annotated[dict[str, str], At("polynomials")]
    versions: dict[str, str]


def record(report: DerivedFlops) -> dict[str, Any]:
    """Return the FLOPs as plain data, as those of a ledger."""
    passes = (("forward", report.forward), ("backward", report.backward))
    terms = [TracedTermDocument("model", "model", name, count) for name, count in passes if count]
    return plain_data(FlopsTracedDocument, report, convention="full", status="traced", terms=terms)
