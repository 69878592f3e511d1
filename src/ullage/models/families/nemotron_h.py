"""Nemotron-H, Nemotron Nano v2 and Nemotron 3: layers of one mixer each, of Mamba 2, attention, MLP or mixture of experts."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.scans import state_space
from ullage.models.work import Work, matmul

_SYMBOLS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OLDER = {"mamba": "linear_attention", "attention": "full_attention"}
_STACK = "model.layers"


@model(
    *("NemotronHForCausalLM", "nemotron_h"),
    source="transformers 5.23, models/nemotron_h; verified to the integer against traces",
)
def nemotron_h(config: Config) -> Iterator[Work]:
    """Nemotron-H and Nemotron 3: each layer one mixer, by `layers_block_type` or the older `hybrid_override_pattern`.

    MLPs and experts are ungated (relu²). With `moe_latent_size` a token is projected to that width before its routed experts
    and back after them; router and shared expert see the full width. The inner width of Mamba is heads × head_dim, not
    expand × hidden_size. Multi-token-prediction layers are not built by transformers and left out.
    """
    width = config.integer("hidden_size")
    kinds = layer_kinds(config)
    members = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in ("linear_attention", "full_attention", "mlp", "moe")}
    yield embedding(module="model.embeddings")
    if layers := members["linear_attention"]:
        yield from _mamba(config, width, layers)
    if layers := members["full_attention"]:
        heads = config.integer("num_attention_heads")
        dim = config.integer("head_dim", "attention_head_dim", default=width // heads)
        yield from self_attention(width, heads, config.integer("num_key_value_heads", default=heads), dim, layers, module="mixer")
    if layers := members["mlp"]:
        yield from mlp(width, config.integer("intermediate_size"), layers, gated=False, module="mixer")
    if layers := members["moe"]:
        yield from _experts(config, width, layers)
    yield head(width, config.integer("vocab_size"))


def layer_kinds(config: Config) -> list[str]:
    """Return the kind of each layer; the list or pattern decides how many there are."""
    for name in ("layers_block_type", "layer_types"):
        words = config.words(name, known={*_SYMBOLS.values(), *_OLDER})
        if words is not None:
            return [_OLDER.get(word, word) for word in words]
    pattern = config.word("hybrid_override_pattern", "hybrid_pattern")
    if unknown := sorted(set(pattern) - set(_SYMBOLS)):
        raise config.error(("hybrid_override_pattern", "hybrid_pattern"), f"has {unknown[0]!r}, and its symbols are {' '.join(_SYMBOLS)}")
    return [_SYMBOLS[symbol] for symbol in pattern]


def _mamba(config: Config, width: int, layers: list[int]) -> Iterator[Work]:
    heads, dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    state, groups = config.integer("ssm_state_size", default=128), config.integer("mamba_n_groups", "n_groups", default=8)
    taps, chunk = config.integer("mamba_d_conv", "conv_kernel", default=4), config.integer("mamba_chunk_size", "chunk_size", default=128)
    yield from state_space(width, heads, dim, state, groups, taps, chunk, layers, stack=_STACK)


def _experts(config: Config, width: int, layers: list[int]) -> Iterator[Work]:
    inner, active = config.integer("moe_intermediate_size"), config.integer("num_experts_per_tok")
    routed = config.integer("n_routed_experts", "num_local_experts", "num_experts")
    yield matmul("moe.router", TEXT, width, routed, layers, stack=_STACK, module="mixer.gate", to=None)
    stream, at = "stream", width
    if latent := config.optional("moe_latent_size"):
        stream, at = "moe.latent_down", latent
        yield matmul("moe.latent_down", TEXT, width, latent, layers, stack=_STACK, module="mixer.fc1_latent_proj", to=None)
    experts, out = "mixer.experts", "moe.routed" if latent else "stream"
    yield matmul(
        "moe.experts.up", TEXT, at, inner, layers,
        stack=_STACK, module=f"{experts}.up_proj", times=active, reads=(stream,), to=None,
    )  # fmt: skip
    yield matmul(
        "moe.experts.down", TEXT, inner, at, layers,
        stack=_STACK, module=f"{experts}.down_proj", times=active, reads=("moe.experts.up",), to=out,
    )  # fmt: skip
    if latent:
        yield matmul("moe.latent_up", TEXT, latent, width, layers, stack=_STACK, module="mixer.fc2_latent_proj", reads=(out,))
    shared = config.integer("moe_shared_expert_intermediate_size", default=0, least=0)
    if shared:
        yield from mlp(width, shared, layers, gated=False, name="moe.shared", module="mixer.shared_experts")
