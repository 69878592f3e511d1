"""Kimi Linear and Ling 2.5 (Bailing hybrid): Kimi Delta Attention and latent attention by turns, with experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.blocks import embedding, head, mlp
from ullage.models.config import Config
from ullage.models.mixture import Mixture, choice, latent_attention, leading, parted
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.scans import delta_rule, short_convolution
from ullage.models.work import Work, matmul

_STACK = "model.layers"
_CHUNK = 64  # the chunk of the delta rule in transformers and in flash-linear-attention; no config has it
_KINDS = {"full_attention", "linear_attention"}
_ROUTED = ("num_experts", "num_local_experts")
_ACTIVE = ("num_experts_per_token", "num_experts_per_tok")


@model(
    *("KimiLinearForCausalLM", "kimi_linear"),
    source="transformers 5.23, models/kimi_linear; arXiv:2510.26692; verified to the integer against traces",
)
def kimi_linear(config: Config) -> Iterator[Work]:
    """Kimi Linear: Kimi Delta Attention, and latent attention without positions in every fourth layer; experts but in the first.

    The delta rule with a decay for each channel is counted by chunks of 64: see `delta_rule`, also for what is left out and
    the uncertainty. The gates (forgetting, and of the output) are low-rank products.
    """
    layers = config.layers()
    linear = config.section("linear_attn_config", optional=True)
    dim = linear.integer("head_dim", default=config.integer("linear_head_dim", default=128))
    heads = linear.integer("num_heads", default=config.integer("linear_num_heads", default=32))
    taps = linear.integer("short_conv_kernel_size", default=config.integer("linear_conv_kernel_dim", default=4))
    attending, recurrent = _kinds(config, linear, layers)
    yield embedding()
    yield from latent_attention(_ranked(config), attending)
    yield from _delta_attention(config.integer("hidden_size"), heads, dim, taps, recurrent, low_rank=True)
    yield from _feed_forward(config, layers, 1)


@model(
    *("BailingHybridForCausalLM", "bailing_hybrid"),
    source="transformers 5.23, models/bailing_hybrid; verified to the integer against traces",
)
def bailing_hybrid(config: Config) -> Iterator[Work]:
    """Ling's hybrid: Kimi Delta Attention with full-rank gates, and every `layer_group_size` layers gated latent attention.

    Multi-token-prediction layers are not built by transformers and left out.
    """
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    kinds, group = config.words("layer_types", len(layers), _KINDS), config.integer("layer_group_size", default=6)
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % group == 0)
    dim = config.integer("linear_head_dim", "head_dim", default=128)
    taps = config.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    yield embedding()
    yield matmul("attention.gate", TEXT, width, heads, attending, stack=_STACK, module="self_attn.g_proj", to=None)
    yield from latent_attention(_ranked(config), attending)
    yield from _delta_attention(width, config.integer("linear_num_heads", default=heads), dim, taps, recurrent, low_rank=False)
    yield from _feed_forward(config, layers, 2)


def _kinds(config: Config, linear: Config, layers: range) -> tuple[list[int], list[int]]:
    """Return the layers of latent and of delta attention; `linear_attn_config` counts them from one."""
    if kinds := config.words("layer_types", len(layers), _KINDS):
        return parted(layers, lambda i: kinds[i] == "full_attention")
    full, delta = linear.integers("full_attn_layers", least=1), linear.integers("kda_layers", least=1)
    if full is None or delta is None:
        return parted(layers, lambda i: i > 0 and i % 4 == 0)
    if sorted([*full, *delta]) != [i + 1 for i in layers]:
        raise linear.error(("full_attn_layers",), f"and kda_layers must name each of the {len(layers)} layers once")
    return parted(layers, lambda i: i + 1 in full)


def _ranked(config: Config) -> Config:
    """Return the configuration with the class's default: queries without a latent."""
    return replace(config, values={"q_lora_rank": None, **config.values})


def _delta_attention(width: int, heads: int, dim: int, taps: int, layers: Sequence[int], *, low_rank: bool) -> Iterator[Work]:
    inner, name = heads * dim, "linear_attention"
    for what in ("q", "k", "v"):
        yield matmul(f"{name}.{what}", TEXT, width, inner, layers, stack=_STACK, module=f"self_attn.{what}_proj", to=None)
    made = (f"{name}.q", f"{name}.k", f"{name}.v")
    yield short_convolution(f"{name}.conv", taps, 3 * inner, layers, stack=_STACK, module="self_attn.conv1d", reads=made)
    yield from _gate("forget", width, dim, inner, layers, "self_attn.forget_gate.f", low_rank)
    yield matmul(f"{name}.b", TEXT, width, heads, layers, stack=_STACK, module="self_attn.b_proj", to=None)
    yield from delta_rule(heads, dim, dim, _CHUNK, layers, stack=_STACK, by_channel=True)
    yield from _gate("gate", width, dim, inner, layers, "self_attn.g", low_rank)
    reads = (f"{name}.delta.values", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, layers, stack=_STACK, module="self_attn.o_proj", reads=reads)


def _gate(what: str, width: int, rank: int, inner: int, layers: Sequence[int], module: str, low_rank: bool) -> Iterator[Work]:
    name = f"linear_attention.{what}"
    if not low_rank:
        yield matmul(name, TEXT, width, inner, layers, stack=_STACK, module=f"{module}_proj", to=None)
        return
    yield matmul(f"{name}_down", TEXT, width, rank, layers, stack=_STACK, module=f"{module}_a_proj", to=None)
    yield matmul(name, TEXT, rank, inner, layers, stack=_STACK, module=f"{module}_b_proj", reads=(f"{name}_down",), to=None)


def _feed_forward(config: Config, layers: range, dense: int) -> Iterator[Work]:
    width, inner = config.integer("hidden_size"), config.integer("moe_intermediate_size")
    first, sparse = leading(config, layers, dense)
    if first:
        yield from mlp(width, config.integer("intermediate_size"), first, gated=True)
    shared = inner * config.integer("num_shared_experts", "n_shared_experts", default=1, least=0)
    yield from Mixture(inner, *choice(config, _ROUTED, _ACTIVE), shared=shared).works(width, sparse)
    yield head(width, config.integer("vocab_size"))
