"""Qwen3-Next and the text decoders of Qwen3.5: gated delta networks with gated attention in every fourth layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import output
from ullage.models.mixture import Mixture, choice, parted, stepped
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.scans import delta_rule, short_convolution
from ullage.models.work import Work, matmul

_STACK = "model.layers"
_CHUNK = 64  # the chunk of the delta rule in transformers and in flash-linear-attention; no config has it
_KINDS = {"full_attention", "linear_attention"}


@model(
    *("Qwen3NextForCausalLM", "Qwen3NextForSequenceClassification", "qwen3_next"),
    source="transformers 5.23, models/qwen3_next; arXiv:2412.06464; verified to the integer against traces",
)
def qwen3_next(config: Config) -> Iterator[Work]:
    """Qwen3-Next: three layers of Gated DeltaNet to one of attention with an output gate; experts and a gated shared one.

    The delta rule is counted by chunks of 64: see `delta_rule`, also for what is left out and the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    dense, sparse = stepped(config, layers)
    yield embedding()
    yield from mixers(config, layers, fused=True)
    if dense:
        yield from mlp(width, config.integer("intermediate_size"), dense, gated=True)
    yield from experts(config, sparse)
    yield from output(config, width, config.integer("vocab_size"))


@model(
    *("Qwen3_5ForCausalLM", "Qwen3_5TextForSequenceClassification", "qwen3_5_text"),
    source="transformers 5.23, models/qwen3_5; verified to the integer against traces",
)
def qwen3_5_text(config: Config) -> Iterator[Work]:
    """Qwen3.5, the text decoder: the mixers of Qwen3-Next with separate projections, and a gated MLP."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixers(config, layers)
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True)
    yield from output(config, width, config.integer("vocab_size"))


@model(
    *("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"),
    source="transformers 5.23, models/qwen3_5_moe; verified to the integer against traces",
)
def qwen3_5_moe_text(config: Config) -> Iterator[Work]:
    """Qwen3.5-MoE, the text decoder: the mixers of Qwen3-Next with separate projections; experts and a gated shared one."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixers(config, layers)
    yield from experts(config, layers)
    yield from output(config, width, config.integer("vocab_size"))


def mixers(config: Config, layers: range, *, fused: bool = False, stack: str = _STACK) -> Iterator[Work]:
    """Yield the mixers: gated attention every `full_attention_interval` layers, or as `layer_types` says, else Gated DeltaNet."""
    kinds = config.words("layer_types", len(layers), _KINDS)
    every = config.integer("full_attention_interval", default=4)
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % every == 0)
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    key_heads, dim = config.integer("num_key_value_heads", default=heads), config.integer("head_dim", default=256)
    yield from self_attention(width, heads, key_heads, dim, attending, output_gate=True, stack=stack)
    yield from delta_network(config, width, recurrent, fused=fused, stack=stack)


def delta_network(config: Config, width: int, layers: Sequence[int], *, fused: bool, stack: str = _STACK) -> Iterator[Work]:
    """Yield Gated DeltaNet: queries, keys, values and output gate z, a convolution over the first three, the delta rule, out.

    `fused` says that z lies in one matrix with queries, keys and values, and the gates a and b in another.
    """
    heads, value_dim = config.integer("linear_num_value_heads", default=32), config.integer("linear_value_head_dim", default=128)
    key_dim = config.integer("linear_key_head_dim", default=128)
    keys, values = config.integer("linear_num_key_heads", default=16) * key_dim, heads * value_dim
    name, module = "linear_attention", "linear_attn"
    columns = {"qkvz": 2 * keys + 2 * values, "ba": 2 * heads}
    if not fused:
        columns = {"qkv": 2 * keys + values, "z": values, "b": heads, "a": heads}
    for what, wide in columns.items():
        path = f"{module}.in_proj_{what}"
        yield matmul(f"{name}.{what}", TEXT, width, wide, layers, stack=stack, module=path, to=None)
    made = (f"{name}.{next(iter(columns))}",)
    taps = config.integer("linear_conv_kernel_dim", default=4)
    yield short_convolution(f"{name}.conv", taps, 2 * keys + values, layers, stack=stack, module=f"{module}.conv1d", reads=made)
    yield from delta_rule(heads, key_dim, value_dim, _CHUNK, layers, stack=stack)
    reads = (f"{name}.delta.values", *made)
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=stack, module=f"{module}.out_proj", reads=reads)


def experts(config: Config, layers: Sequence[int], stack: str = _STACK) -> Iterator[Work]:
    """Yield the routed experts and the shared one with its gate."""
    taken = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *taken,
        shared=config.integer("shared_expert_intermediate_size", least=0),
        shared_module="mlp.shared_expert", shared_gate="mlp.shared_expert_gate", shared_first=True,
    )  # fmt: skip
    yield from mixture.works(config.integer("hidden_size"), layers, stack)
