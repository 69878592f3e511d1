"""OLMo Hybrid: gated delta networks with softmax attention in every fourth layer, and a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, head, mlp
from ullage.models.config import Config
from ullage.models.mixture import grouped_attention, parted
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.scans import delta_rule, short_convolution
from ullage.models.work import Work, matmul

_STACK = "model.layers"
_CHUNK = 64  # the chunk of the delta rule in transformers and in flash-linear-attention; no config has it


@model(
    *("OlmoHybridForCausalLM", "olmo_hybrid"),
    source="transformers 5.23, models/olmo_hybrid; verified to the integer against traces",
)
def olmo_hybrid(config: Config) -> Iterator[Work]:
    """OLMo Hybrid: Gated DeltaNet with separate projections in most layers, attention in the others, a gated MLP in each.

    The delta rule is counted by chunks of 64: see `delta_rule`, also for what is left out and the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"full_attention", "linear_attention"})
    every = 4 if len(layers) >= 4 else len(layers)  # a stack of fewer layers ends with attention
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % every == 0)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    yield from _delta_network(config, width, recurrent)
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True)
    yield head(width, config.integer("vocab_size"))


def _delta_network(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    attending = config.integer("num_attention_heads")
    heads = config.integer("linear_num_value_heads", default=attending)
    key_heads = config.integer("linear_num_key_heads", default=attending)
    key_dim = config.integer("linear_key_head_dim", default=3 * width // (4 * key_heads))
    value_dim = config.integer("linear_value_head_dim", default=2 * key_dim)
    keys, values, name = key_heads * key_dim, heads * value_dim, "linear_attention"
    for what, columns in (("q", keys), ("k", keys), ("v", values), ("b", heads), ("a", heads), ("g", values)):
        yield matmul(f"{name}.{what}", TEXT, width, columns, layers, stack=_STACK, module=f"linear_attn.{what}_proj", to=None)
    made, taps = (f"{name}.q", f"{name}.k", f"{name}.v"), config.integer("linear_conv_kernel_dim", default=4)
    yield short_convolution(f"{name}.conv", taps, 2 * keys + values, layers, stack=_STACK, module="linear_attn.conv1d", reads=made)
    yield from delta_rule(heads, key_dim, value_dim, _CHUNK, layers, stack=_STACK)
    reads = (f"{name}.delta.values", f"{name}.g")
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=_STACK, module="linear_attn.o_proj", reads=reads)
