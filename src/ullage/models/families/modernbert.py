"""Encoders of text with local and global layers: ModernBERT."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding
from ullage.models.config import Config
from ullage.models.decoders import head_dim
from ullage.models.families.bert import TEXT_PAIRS
from ullage.models.model import model
from ullage.models.planes import labels
from ullage.models.sample import FULL, ONCE, TEXT, Convention, Quantity, Sample
from ullage.models.work import Work, attention, matmul

LOCAL, GLOBAL = "sliding_attention", "full_attention"


@model(
    *("modernbert", "ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification", "ModernBertForTokenClassification"),
    kind="encoder",
    causal=True,
    source="transformers 5.23, models/modernbert; Warner et al., arXiv:2412.13663; verified to the integer against traces",
)
def modernbert(config: Config) -> Iterator[Work]:
    """ModernBERT: gated MLP, fused projections, every third layer global, the others within a window on both sides.

    Its attention is not causal; the conventions differ by the window: "causal" counts the tokens at most local_attention / 2
    to the left or right, "full" all pairs, as a trace does. A bare configuration has the classifier of sequences.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    heads, inner = config.integer("num_attention_heads"), config.integer("intermediate_size")
    bare = config.architecture == "ModernBertModel"
    base = "" if bare else "model."
    stack, reach = f"{base}layers", config.integer("local_attention", default=128) // 2
    yield embedding(module=f"{base}embeddings.tok_embeddings")
    yield matmul("attention.qkv", TEXT, width, 3 * width, layers, stack=stack, module="attn.Wqkv", to=None)
    fused = ("attention.qkv", "attention.qkv", "attention.qkv")
    dim = head_dim(config, width, heads)
    for near, members in _reaches(config, layers, reach):
        yield from attention(both_ways(near), heads, dim, members, stack=stack, inputs=fused)
    yield matmul("attention.out", TEXT, width, width, layers, stack=stack, module="attn.Wo", reads=("attention.values",))
    yield matmul("mlp.gate_up", TEXT, width, 2 * inner, layers, stack=stack, module="mlp.Wi", to=None)
    yield matmul("mlp.down", TEXT, inner, width, layers, stack=stack, module="mlp.Wo", reads=("mlp.gate_up",))
    if not bare:
        yield from _heads(config, width)


def _heads(config: Config, width: int) -> Iterator[Work]:
    words, tokens = (config.architecture.endswith(end) for end in ("ForMaskedLM", "ForTokenClassification"))
    rows = TEXT if words or tokens else ONCE
    yield matmul("head.dense", rows, width, width, module="head.dense", to=None)
    columns = config.integer("vocab_size") if words else labels(config)
    yield matmul("head", rows, width, columns, module="decoder" if words else "classifier", reads=("head.dense",), to=None)


def both_ways(reach: int | None) -> Quantity:
    """Return the pairs of attention to at most `reach` tokens on either side; `full` counts all, as None does.

    Five tokens with a reach of 1 see 2, 3, 3, 3 and 2.

    >>> both_ways(1).of(Sample(text=5), "causal"), both_ways(1).of(Sample(text=5), "full")
    (13, 25)
    """

    def of(sample: Sample, convention: Convention) -> int:
        tokens = sample.text
        if convention == FULL or reach is None or tokens <= reach:
            return tokens**2
        return tokens + 2 * (reach * (reach + 1) // 2 + (tokens - 1 - reach) * reach)

    return Quantity(TEXT_PAIRS.name if reach is None else f"text pairs, {reach} both ways", of)


def _reaches(config: Config, layers: range, reach: int) -> list[tuple[int | None, list[int]]]:
    kinds = config.words("layer_types", len(layers), {LOCAL, GLOBAL})
    if kinds is None:
        every = config.integer("global_attn_every_n_layers", default=3)
        kinds = [LOCAL if i % every else GLOBAL for i in layers]
    parts = [(None, [i for i in layers if kinds[i] == GLOBAL]), (reach, [i for i in layers if kinds[i] == LOCAL])]
    return [(near, members) for near, members in parts if members]
