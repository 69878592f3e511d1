"""AFMoE (Arcee Trinity): gated attention, windows in three of four layers, leading dense layers, shared experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import STACK, Bands, Mixture, banded, choice, grouped_attention, parted, sparse_decoder
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.work import Work, matmul


@model(
    *family("Afmoe", LM, BARE, kind="afmoe"),
    source="transformers 5.23, models/afmoe; verified to the integer against traces",
)
def afmoe(config: Config) -> Iterator[Work]:
    """Arcee Trinity: attention whose output is gated by a projection of its input, then t of E experts and shared ones."""
    layers = config.layers()
    first = config.integer("num_dense_layers", default=1, least=0)
    dense, sparse = parted(layers, lambda i: i < first)
    every = config.integer("global_attn_every_n_layers", default=4)
    heads = config.integer("num_attention_heads")
    dim = config.integer("head_dim", default=config.integer("hidden_size") // heads)
    inner = config.integer("moe_intermediate_size")
    mixture = Mixture(
        inner, *choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",)),
        shared=inner * config.integer("num_shared_experts", least=0), router="mlp.router.gate", shared_first=True,
    )  # fmt: skip
    bands = banded(config, layers, lambda i: (i + 1) % every != 0, 1024)
    attention = gated_attention(config, bands, layers, heads * dim)
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse))


def gated_attention(config: Config, bands: Bands, layers: Sequence[int], columns: int) -> Iterator[Work]:
    """Yield grouped-query attention whose values a projection of `columns` columns gates before they leave."""
    width = config.integer("hidden_size")
    yield matmul("attention.gate", TEXT, width, columns, layers, stack=STACK, module="self_attn.gate_proj", to=None)
    for work in grouped_attention(config, bands):
        gated = work.name == "attention.out"
        yield replace(work, reads=("attention.values", "attention.gate")) if gated else work
