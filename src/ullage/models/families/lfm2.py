"""Liquid's LFM2 and LFM3: gated short convolutions and attention by turns, dense or with experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.mixture import Mixture, choice, parted
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.scans import short_convolution
from ullage.models.work import Work, matmul

_STACK = "model.layers"
_MODULES = ("w1", "w3", "w2")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")


@model(
    *("Lfm2ForCausalLM", "lfm2"),
    source="transformers 5.23, models/lfm2; verified to the integer against traces",
)
def lfm2(config: Config) -> Iterator[Work]:
    """LFM2: short convolutions in layers of `layer_types` "conv" (or those not in `full_attn_idxs`), attention in the others.

    A convolution layer costs 2T(3h² + h²) FLOPs and 2·taps·h at each position, before its gated MLP. The MLP's width is two
    thirds of the configured one, rounded up to a multiple, unless `block_auto_adjust_ff_dim` says no.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from _mixers(config, width, layers)
    yield from mlp(width, _inner(config), layers, gated=True, module="feed_forward", modules=_MODULES)
    yield head(width, config.integer("vocab_size"))


@model(
    *("Lfm2MoeForCausalLM", "lfm2_moe"),
    source="transformers 5.23, models/lfm2_moe; verified to the integer against traces",
)
def lfm2_moe(config: Config) -> Iterator[Work]:
    """LFM2-MoE: the mixers of LFM2; experts in all layers but the first `num_dense_layers`."""
    layers, width = config.layers(), config.integer("hidden_size")
    first = config.integer("num_dense_layers", default=2, least=0)
    dense, sparse = parted(layers, lambda i: i < first)
    taken = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    yield embedding()
    yield from _mixers(config, width, layers)
    yield from mlp(width, config.integer("intermediate_size"), dense, gated=True, module="feed_forward", modules=_MODULES)
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *taken,
        router="feed_forward.gate", experts="feed_forward.experts", modules=_MODULES,
    )  # fmt: skip
    yield from mixture.works(width, sparse)
    yield head(width, config.integer("vocab_size"))


@model(
    *("Lfm3ForCausalLM", "lfm3"),
    source="transformers 5.23, models/lfm3; verified to the integer against traces",
)
def lfm3(config: Config) -> Iterator[Work]:
    """LFM3: as LFM2, with windows in some attention layers and an output gate for each of their heads."""
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"conv", "full_attention", "sliding_attention"})
    kinds = kinds or ["full_attention" if i % 4 == 2 else "sliding_attention" if i % 4 == 0 and i else "conv" for i in layers]
    heads, dim = config.integer("num_attention_heads"), config.integer("head_dim", default=128)
    key_heads = config.integer("num_key_value_heads", default=heads)
    attending, convolving = parted(layers, lambda i: kinds[i] != "conv")
    yield embedding()
    yield from _convolution(width, config.integer("conv_L_cache", default=7), convolving)
    if config.flag("use_attention_gate", True):
        yield matmul("attention.gate", TEXT, width, heads, attending, stack=_STACK, module="self_attn.g_proj", to=None)
    for window, kind in ((None, "full_attention"), (config.optional("sliding_window"), "sliding_attention")):
        members = [i for i in layers if kinds[i] == kind]
        yield from self_attention(width, heads, key_heads, dim, members, of=pairs(window))
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True, module="feed_forward", modules=_MODULES)
    yield head(width, config.integer("vocab_size"))


def _mixers(config: Config, width: int, layers: range) -> Iterator[Work]:
    kinds = config.words("layer_types", len(layers), {"conv", "full_attention"})
    chosen = config.integers("full_attn_idxs")
    if kinds is None and chosen is None:
        raise config.missing("layer_types", "full_attn_idxs")
    attending, convolving = parted(layers, lambda i: kinds[i] != "conv" if kinds else i in (chosen or ()))
    heads = config.integer("num_attention_heads", "num_heads")
    key_heads, dim = config.integer("num_key_value_heads", default=heads), config.integer("head_dim", default=width // heads)
    yield from _convolution(width, config.integer("conv_L_cache", default=3), convolving)
    yield from self_attention(width, heads, key_heads, dim, attending, modules=_ATTENTION)


def _convolution(width: int, taps: int, layers: Sequence[int]) -> Iterator[Work]:
    yield matmul("conv.in", TEXT, width, 3 * width, layers, stack=_STACK, module="conv.in_proj", to=None)
    yield short_convolution("conv.taps", taps, width, layers, stack=_STACK, module="conv.conv", reads=("conv.in",))
    yield matmul("conv.out", TEXT, width, width, layers, stack=_STACK, module="conv.out_proj", reads=("conv.taps", "conv.in"))


def _inner(config: Config) -> int:
    inner = config.integer("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = 2 * inner // 3
    if "block_ffn_dim_multiplier" in config.values and config.values["block_ffn_dim_multiplier"] is None:
        return inner  # null means: no multiplier and no rounding
    multiple = config.integer("block_multiple_of", default=256)
    return multiple * ceil(int(config.number("block_ffn_dim_multiplier", default=1.0) * inner) / multiple)
