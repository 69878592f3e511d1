"""Laguna (Poolside): heads that differ from layer to layer, a gate on attention, windows, a shared expert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import STACK, Bands, Mixture, banded, choice, parted, sparse_decoder
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, matmul


@model(
    *family("Laguna", LM, BARE, kind="laguna"),
    source="transformers 5.23, models/laguna; verified to the integer against traces",
)
def laguna(config: Config) -> Iterator[Work]:
    """Laguna: attention gated per head or per element, one leading dense layer, then t of E experts and a shared one."""
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("mlp_layer_types", len(layers), {"dense", "sparse"})
    dense, sparse = parted(layers, (lambda i: kinds[i] == "dense") if kinds else (lambda i: i == 0))
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",)),
        shared=config.integer("shared_expert_intermediate_size"), shared_first=True,
    )  # fmt: skip
    bands = banded(config, layers, lambda _: False, 512)
    yield from sparse_decoder(config, attention(config, layers, bands), dense, mixture.works(width, sparse))


def attention(config: Config, layers: Sequence[int], bands: Bands) -> Iterator[Work]:
    """Yield the attention of all layers, those of one window and one number of heads together."""
    width, dim = config.integer("hidden_size"), config.integer("head_dim", default=128)
    counts = config.integers("num_attention_heads_per_layer", len(layers), least=1) or [config.integer("num_attention_heads")] * len(layers)
    key_heads = config.integer("num_key_value_heads")
    gating = config.values.get("gating", True)
    per_head = gating is True or gating == "per-head"
    for window, band in bands:
        for heads in sorted({counts[i] for i in band}):
            members = [i for i in band if counts[i] == heads]
            columns = heads if per_head else heads * dim
            yield matmul("attention.gate", TEXT, width, columns, members, stack=STACK, module="self_attn.g_proj", to=None)
            for work in self_attention(width, heads, key_heads, dim, members, of=pairs(window)):
                gated = work.name == "attention.out"
                yield replace(work, reads=("attention.values", "attention.gate")) if gated else work
