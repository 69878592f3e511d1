"""Formulas proved by tracing the real model (`ullage flops --certify`), and FLOPs derived from traces (`--trace`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.tracing import certificate as certificates
from ullage.models.tracing import shelf
from ullage.models.tracing.derived import derive
from ullage.reports.flops import StepQuestion
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class CertifiedFormula(ShownByView, view="ullage.render.certified"):
    """A formula held against traces of the real model; `file` is where the certificate is kept, None where they differ."""

    certificate: certificates.Certificate
    file: Path | None

    @property
    def equal(self) -> bool:
        """Whether formula and model agree to the integer."""
        return self.certificate.equal


def certified_formula(config: Config, kind: str | None, progress: Callable[[str], None]) -> CertifiedFormula:
    """Trace the model at small shapes, compare, and keep the certificate where all is equal."""
    made = certificates.certify(config, kind, progress=progress)
    return CertifiedFormula(made, shelf.store(made) if made.equal else None)


@dataclass(frozen=True)
class DerivedFlops(ShownByView, view="ullage.render.derived"):
    """FLOPs of a step by the polynomials that traces of an architecture give; attention is counted in full."""

    architecture: str
    forward: int
    backward: int
    polynomials: Mapping[str, str]
    versions: Mapping[str, str]

    @property
    def training(self) -> int:
        """FLOPs of the whole step."""
        return self.forward + self.backward


def derived_flops(config: Config, question: StepQuestion, progress: Callable[[str], None]) -> DerivedFlops:
    """Derive the FLOPs of an architecture from small traces, and evaluate them at the step's batch and lengths."""
    found, shapes = derive(config, progress=progress), question.shapes
    lengths = {"seq": shapes.decoder_seq or shapes.seq, "encoder": shapes.encoder_seq or shapes.seq}
    values = [{"batch": shapes.batch or 1, **lengths}[name] for name in found.variables]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        raise UllageError("a derived count needs lengths", "give --seq, or --encoder-seq and --decoder-seq")
    return DerivedFlops(
        architecture=found.architecture,
        forward=found.flops(*known),
        backward=0 if question.training.forward_only else found.backward(*known),
        polynomials={"forward": str(found.forward), "training": str(found.training)},
        versions=dict(found.versions),
    )
