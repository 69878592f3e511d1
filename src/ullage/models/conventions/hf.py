"""The Transformers trainer's count: six FLOPs a token and parameter, attention left out."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.errors import UllageError
from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.parameters import tied, vectors, weights
from ullage.models.formula import Formula
from ullage.models.model import TRANSFORMERS
from ullage.models.step import Step

_KINDS = ("decoder", "encoder", "encoder-decoder", "vision-language")


@convention(
    "hf",
    says="6 × parameters × tokens as padded: every expert, no attention's products, no head that is tied to the embedding; norms and"
    " biases as if they were products (here only of the commonest families; they are under 0.1 % of most models)",
    source=f"{TRANSFORMERS}, trainer.py (Trainer.floating_point_ops)",
)
def hf(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield 2 FLOPs a token for each weight of a product; the tokens are the main input's: an encoder's, where there is one."""
    if formula.model.kind not in _KINDS:
        raise UllageError(
            f"the Transformers trainer counts elements of its main input, which are not tokens for {formula.name}", "leave --as out"
        )
    samples = step.padded or step.samples
    two_sided = formula.model.kind == "encoder-decoder"
    rows = sum(count * (sample.encoder if two_sided else sample.text) for sample, count in samples)
    for work, count in weights(formula):
        if not (work.name == "head" and tied(formula)):
            yield work.name, 2 * count * rows
    yield "norms and biases", 2 * vectors(formula, active=False) * rows
