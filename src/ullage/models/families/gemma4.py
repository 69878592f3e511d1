"""Gemma 4: wider heads in the layers without a window, embeddings per layer, shared keys and values, experts beside the MLP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ullage.models.blocks import embedding, mlp
from ullage.models.config import Config
from ullage.models.decoders import FULL_ATTENTION, LM, documented, family, key_heads, output, patterned, windows
from ullage.models.model import model
from ullage.models.per_layer import STACK, per_layer_embedding, per_layer_input, shared_from, sharing_attention
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, matmul

SIZES = {"hidden_size": 2304, "num_hidden_layers": 30, "num_attention_heads": 8, "vocab_size": 262_144, "intermediate_size": 9216}
FIELDS = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512, "hidden_size_per_layer_input": 256}
GLOBAL_DIM = 512


@model(
    *family("Gemma4", LM, kind="gemma4_text"),
    source="transformers 5.23, models/gemma4; verified to the integer against traces",
)
def gemma4(config: Config) -> Iterator[Work]:
    """Gemma 4's text model, dense (E2B, E4B, 31B) or with routed experts beside the dense MLP (26B-A4B).

    Layers with a window have heads `head_dim` wide, the others `global_head_dim`; where `attention_k_eq_v`, these take their
    keys as values. The last `num_kv_shared_layers` project no keys and values, and may have an MLP twice as wide.
    """
    yield from decoder(config)


def decoder(config: Config) -> Iterator[Work]:
    """Yield the work of a Gemma 4 text model; for a `text_config`, its section."""
    if config.values.get("use_bidirectional_attention") == "all":
        raise config.error(("use_bidirectional_attention",), "is 'all', and only the decoder is known here")
    config = documented(config, **FIELDS)
    if config.path:
        config = documented(config, **SIZES)
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    config = _last_full(patterned(config, layers, every=6), layers)
    first = shared_from(config, layers, default=0)
    inner = config.integer("hidden_size_per_layer_input", default=0, least=0)
    yield embedding()
    if inner:
        yield from per_layer_embedding(width, inner, layers)
    for window, members in windows(config, layers):
        shape = config if window else _global(config, members)
        keys, dim = key_heads(shape, heads), shape.integer("head_dim")
        values = bool(window) or not config.flag("attention_k_eq_v")
        yield from sharing_attention(width, heads, keys, dim, members, first, pairs(window), values)
    columns = config.integer("intermediate_size")
    yield from mlp(width, columns, layers[:first], gated=True)
    yield from mlp(width, columns * (2 if config.flag("use_double_wide_mlp") else 1), layers[first:], gated=True)
    if config.flag("enable_moe_block"):
        yield from _experts(config, width, layers)
    if inner:
        yield from per_layer_input(width, inner, layers)
    yield from output(config, width, config.integer("vocab_size"))


def _last_full(config: Config, layers: range) -> Config:
    """Return the configuration with its last layer full, whatever the list says: the class insists on it."""
    kinds = config.words("layer_types", len(layers)) or []
    return config.replaced(layer_types=[*kinds[:-1], FULL_ATTENTION])


def _global(config: Config, members: list[int]) -> Config:
    """Return the configuration of the layers without a window: their own heads, by name or by `per_layer_config`."""
    overrides: Any = config.values.get("per_layer_config")
    if isinstance(overrides, Mapping):
        found = [overrides.get(str(i), overrides.get(i)) or {} for i in members]
        if not all(isinstance(f, Mapping) for f in found) or any(f != found[0] for f in found):
            raise config.error(("per_layer_config",), "must be one section, the same for each layer without a window")
        known = {name: value for name, value in found[0].items() if name in ("head_dim", "num_key_value_heads")}
        return config.replaced(**known)
    dim = config.integer("global_head_dim", default=GLOBAL_DIM)
    if config.flag("attention_k_eq_v") and config.has("num_global_key_value_heads"):
        return config.replaced(head_dim=dim, num_key_value_heads=config.integer("num_global_key_value_heads"))
    return config.replaced(head_dim=dim)


def _experts(config: Config, width: int, layers: range) -> Iterator[Work]:
    """Yield the router and the experts of each layer, which read what the dense MLP reads."""
    inner, active = config.integer("moe_intermediate_size"), config.integer("top_k_experts")
    yield matmul("moe.router", TEXT, width, config.integer("num_experts"), layers, stack=STACK, module="router.proj", to=None)
    yield from mlp(width, inner, layers, gated=True, name="moe.experts", module="experts", times=active)
