"""torchtitan's count: six FLOPs a parameter and token, and attention in full."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import kind, squares, tokens
from ullage.models.conventions.parameters import tied, vectors
from ullage.models.formula import Formula
from ullage.models.step import Step

_KNOWN = ("llama", "qwen3", "qwen3_moe", "deepseek_v3", "gpt_oss")


@convention(
    "torchtitan",
    says="every query meets every key, windows ignored; norms and biases as if they were products; a head that is tied to the"
    " embedding is left out",
    source="torchtitan, torchtitan/models/utils.py (get_dense_model_nparams_and_flops, get_moe_model_nparams_and_flops)",
)
def torchtitan(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield 2N per token over the weights that a token passes, and 2·n·(d_qk + d_v) FLOPs a pair and layer."""
    kind(formula, _KNOWN, "torchtitan", "has no model of it")
    rows, pairs = tokens(step), squares(step)
    for work in formula.works:
        if work.name.startswith("mtp.") or (work.name == "head" and tied(formula)):
            continue
        yield work.name, work.flops * len(work.layers) * (rows if work.shape else pairs)
    yield "norms and biases", 2 * vectors(formula, active=True) * rows
