"""RecurrentGemma (Griffin): gated linear recurrences with attention over a window in every third layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.mixture import parted
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.scans import short_convolution
from ullage.models.work import Work, matmul

_STACK = "model.layers"
_PATTERN = ["recurrent", "recurrent", "attention"]


@model(
    *("RecurrentGemmaForCausalLM", "recurrent_gemma"),
    source="transformers 5.23, models/recurrent_gemma; arXiv:2402.19427; verified to the integer against traces",
)
def recurrent_gemma(config: Config) -> Iterator[Work]:
    """RecurrentGemma: `block_types` by turns, recurrent (RG-LRU) or attention over a window; a gated MLP of half the configured width.

    A recurrent mixer of width w costs 2T(3hw + 2w²/n) FLOPs and 2·taps·w at each position: three projections, two gates in n
    diagonal blocks, a convolution. The recurrence is element-wise, one number a channel, and counts 0.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    pattern = config.words("block_types", None, set(_PATTERN)) or _PATTERN
    attending, recurrent = parted(layers, lambda i: pattern[i % len(pattern)] == "attention")
    window = config.integer("attention_window_size", "sliding_window", default=2048)
    yield embedding()
    heads = config.integer("num_attention_heads")
    key_heads = config.integer("num_key_value_heads", default=heads)
    yield from self_attention(
        width, heads, key_heads, config.integer("head_dim", default=width // heads), attending, of=pairs(window), module="temporal_block"
    )
    yield from _recurrence(config, width, recurrent)
    yield from mlp(width, config.integer("intermediate_size", least=2) // 2, layers, gated=True, module="mlp_block")
    yield head(width, config.integer("vocab_size"))


def _recurrence(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    inner, blocks = config.integer("lru_width", default=width), config.integer("num_attention_heads")
    taps, name, module = config.integer("conv1d_width", default=4), "linear_attention", "temporal_block"
    yield matmul(f"{name}.gate", TEXT, width, inner, layers, stack=_STACK, module=f"{module}.linear_y", to=None)
    yield matmul(f"{name}.in", TEXT, width, inner, layers, stack=_STACK, module=f"{module}.linear_x", to=None)
    yield short_convolution(f"{name}.conv", taps, inner, layers, stack=_STACK, module=f"{module}.conv_1d", reads=(f"{name}.in",))
    for what in ("input_gate", "recurrent_gate"):
        place, reads = f"{module}.rg_lru.{what}_weight", (f"{name}.conv",)
        yield matmul(f"{name}.{what}", TEXT, inner // blocks, inner, layers, stack=_STACK, module=place, reads=reads, to=None)
    made = (f"{name}.input_gate", f"{name}.recurrent_gate", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, layers, stack=_STACK, module=f"{module}.linear_out", reads=made)
