"""MiMo-V2-Flash: layers with windows have twice the key heads, values are narrower than keys, no shared expert."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Mixture, banded, choice, parted, sparse_decoder
from ullage.models.model import model
from ullage.models.sample import pairs
from ullage.models.work import Work


@model(
    *family("MiMoV2Flash", LM, BARE, kind="mimo_v2_flash"),
    source="transformers 5.23, models/mimo_v2_flash; verified to the integer against traces",
)
def mimo_v2_flash(config: Config) -> Iterator[Work]:
    """MiMo-V2-Flash: windows in all but the first and every sixth layer, a leading dense layer, then t of E experts.

    Its multi-token prediction layers, which no field describes, are left out.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("mlp_layer_types", len(layers), {"dense", "sparse"})
    dense, sparse = parted(layers, (lambda i: kinds[i] == "dense") if kinds else (lambda i: i == 0))
    mixture = Mixture(config.integer("moe_intermediate_size"), *choice(config, ("n_routed_experts",), ("num_experts_per_tok",)))
    yield from sparse_decoder(config, attention(config, layers), dense, mixture.works(width, sparse))


def attention(config: Config, layers: range) -> Iterator[Work]:
    """Yield the attention of all layers; `sliding_window_size` does not count the token itself, `sliding_window` does."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    key_heads, dim = config.integer("num_key_value_heads"), config.integer("head_dim")
    previous = config.optional("sliding_window_size")
    typed = config if previous is None else replace(config, values={**config.values, "sliding_window": previous + 1})
    for size, members in banded(typed, layers, lambda i: i != 0 and (i + 1) % 6 != 0, 129):
        count = key_heads if size is None else 2 * key_heads
        yield from self_attention(width, heads, count, dim, members, of=pairs(size), value_dim=config.integer("v_head_dim"))
