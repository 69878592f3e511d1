"""The ledger of a step: every FLOP booked once, by what, in which pass, at which precision; every other number is a sum over it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ullage.models.passes import Pass

Status = Literal["certified", "formula", "traced"]


@dataclass(frozen=True)
class Term:
    """FLOPs of one kind of work in one pass, an exact integer over all layers and samples.

    `model` says whether the mathematics of the model needs them; what is only executed (recomputation, padding) does not
    count towards MFU. `least` is what is left when chunked scans are counted as their recurrence.
    """

    name: str
    group: str
    pass_: Pass
    flops: int
    precision: str = "bf16"
    model: bool = True
    least: int = 0


@dataclass(frozen=True)
class Ledger:
    """The terms of one step, and under which conventions they were counted.

    `convention` is that of attention ("causal": the true count, with windows; "full": every query with every key);
    `counted` records all of them. `status` says how far the numbers are proved.
    """

    terms: tuple[Term, ...]
    architecture: str
    family: str
    convention: str
    counted: Mapping[str, Any] = field(default_factory=dict)
    status: Status = "formula"
    notes: tuple[str, ...] = ()

    @property
    def forward(self) -> int:
        """Model FLOPs of the forward pass."""
        return self._sum(t for t in self.terms if t.pass_ == "forward" and t.model)

    @property
    def backward(self) -> int:
        """Model FLOPs of the backward pass."""
        return self._sum(t for t in self.terms if t.pass_ in ("dgrad", "wgrad") and t.model)

    @property
    def training(self) -> int:
        """Model FLOPs of the step: forward and backward (the forward alone, when nothing trains)."""
        return self._sum(t for t in self.terms if t.model)

    @property
    def executed(self) -> int:
        """FLOPs that the hardware does: those of the model, and recomputation and padding."""
        return self._sum(self.terms)

    @property
    def uncertainty(self) -> float:
        """The share of the model FLOPs that depends on how scans are computed: 0 when nothing does."""
        total = self.training
        return (total - sum(t.least for t in self.terms if t.model)) / total if total else 0.0

    def by(self, *fields: str) -> dict[tuple[str, ...], int]:
        """Return FLOPs summed by fields of the terms ("group", "pass_", "precision", "name", "model")."""
        sums: Counter[tuple[str, ...]] = Counter()
        for term in self.terms:
            sums[tuple(str(getattr(term, f)) for f in fields)] += term.flops
        return dict(sums)

    @property
    def by_precision(self) -> dict[str, int]:
        """Executed FLOPs by precision, for the effective peak."""
        return {key[0]: flops for key, flops in self.by("precision").items()}

    @staticmethod
    def _sum(terms: Iterable[Term]) -> int:
        return sum(t.flops for t in terms)
