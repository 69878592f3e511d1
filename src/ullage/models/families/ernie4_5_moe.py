"""ERNIE 4.5 MoE: a range of layers, every so many of them sparse, with shared experts."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Mixture, choice, grouped_attention, parted, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *family("Ernie4_5_Moe", LM, BARE, kind="ernie4_5_moe"),
    source="transformers 5.23, models/ernie4_5_moe; verified to the integer against traces",
)
def ernie4_5_moe(config: Config) -> Iterator[Work]:
    """ERNIE 4.5 MoE, text: t of E experts and shared ones; `moe_layer_start_index`, `_end_index` and `_interval` say where."""
    layers = config.layers()
    start, step = config.integer("moe_layer_start_index", default=1, least=0), config.integer("moe_layer_interval", default=1)
    end = config.integer("moe_layer_end_index", default=-1, least=-1)
    end = len(layers) - 1 if end == -1 else end
    sparse, dense = parted(layers, lambda i: (i + 1) % step == 0 and start <= i <= end)
    inner = config.integer("moe_intermediate_size")
    mixture = Mixture(
        inner, *choice(config, ("moe_num_experts", "num_experts"), ("moe_k", "num_experts_per_tok")),
        shared=inner * config.integer("moe_num_shared_experts", least=0), shared_first=True,
    )  # fmt: skip
    attention = grouped_attention(config, [(None, layers)])
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse))
