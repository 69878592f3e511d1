"""NeMo's count: a formula by family, each with the vocabulary of the family's first model."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.conventions.automodel import bert, gpt3, grouped
from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import feed_forward, kind, outline, products, squares, tokens
from ullage.models.formula import Formula
from ullage.models.step import Step

# What its map of names to vocabularies holds
_VOCABULARIES = {"gpt3": 51_200, "llama2": 32_000, "llama3": 128_256, "mixtral": 32_000, "nemotron": 256_000, "bert": 29_000}
_FAMILIES = {"gpt2": "gpt3", "llama": "llama3", "gpt3": "gpt3", "llama2": "llama2", "llama3": "llama3", "mixtral": "mixtral"}
_FAMILIES |= {"nemotron": "nemotron", "bert": "bert", "transformer": "transformer"}


@convention(
    "nemo",
    says="s²/2 pairs (all s² in the generic formula); heads hidden_size / heads wide; no router; the vocabulary is looked up by family,"
    " not read (Llama: 128,256)",
    source="NeMo @8cfedd72, nemo/utils/flops_formulas.py",
)
def nemo(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield what NeMo counts; a Llama with a vocabulary of 32,000 is its llama2."""
    family = _FAMILIES[kind(formula, _FAMILIES, "NeMo", "has no formula")]
    config = formula.config
    if family == "llama3" and config.values.get("vocab_size") == _VOCABULARIES["llama2"]:
        family = "llama2"
    if family == "transformer":
        yield from _transformer(config, step)
        return
    known = config.replaced(vocab_size=_VOCABULARIES[family])
    if family == "gpt3":
        yield from gpt3(known, step)
    elif family == "bert":
        yield from bert(known, step)
    else:
        experts = known.integer("num_experts_per_tok") if family == "mixtral" else 1
        yield from grouped(known, step, gated=family != "nemotron", experts=experts)


def _transformer(config: Config, step: Step) -> Iterator[Row]:
    """Yield the generic formula: all pairs, two products an MLP, no experts."""
    model = outline(config, head_dim=False)
    rows = tokens(step) * model.layers
    yield "attention.q and out", 4 * rows * model.width**2
    yield "attention.kv", 4 * rows * model.width * model.key_heads * model.head_dim
    yield from products(1, model.width, model.width, squares(step) * model.layers)
    yield from feed_forward("mlp", rows, model.width, config.integer("intermediate_size"), gated=False)
    yield model.head(tokens(step))
