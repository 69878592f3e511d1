"""NeMo Automodel's counts of hybrids: Nemotron-H by its pattern, Qwen3-Next and Qwen3.5 by their layer kinds."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.conventions.convention import Row
from ullage.models.conventions.outline import Outline, feed_forward, halved, outline, squares, text, tokens
from ullage.models.step import Step

_SYMBOLS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def nemotron_h(config: Config, step: Step) -> Iterator[Row]:
    """Nemotron-H: symbols of the pattern; dense MLPs as if gated, experts and the router as they are."""
    model, rows = outline(config, head_dim=False), tokens(step)
    pattern = config.words("layers_block_type")
    symbols = "".join(_SYMBOLS.get(word, "") for word in pattern) if pattern else config.word("hybrid_override_pattern")
    count = {symbol: symbols.count(symbol) for symbol in "M-*E"}
    width = model.width
    if count["*"]:
        yield "attention.q and out", 4 * rows * count["*"] * width**2
        yield "attention.kv", 4 * rows * count["*"] * width**2 * model.key_heads // model.heads
        yield from halved(1, width, width, squares(step) * count["*"])
    if count["M"]:
        yield from _mamba(model, rows * count["M"])
    if count["-"]:
        yield from feed_forward("mlp", rows * count["-"], width, config.integer("intermediate_size"))
    if count["E"]:
        yield from _experts(model, rows * count["E"])
    yield model.head(rows)


def _mamba(model: Outline, rows: int) -> Iterator[Row]:
    config, width = model.config, model.width
    state, groups = model.field("mamba_state_dim", "ssm_state_size"), model.field("mamba_num_groups", "n_groups")
    dim = config.integer("mamba_head_dim")
    heads = config.integer("mamba_num_heads", default=2 * width // dim)
    inner = heads * dim
    yield "mamba.in", 2 * rows * width * (2 * inner + 2 * groups * state + heads)
    yield "mamba.scan", 7 * rows * inner * state
    yield "mamba.out", 2 * rows * inner * width


def _experts(model: Outline, rows: int) -> Iterator[Row]:
    config, width = model.config, model.width
    latent = config.optional("moe_latent_size")
    if latent:
        yield "moe.latent_down", 2 * rows * width * latent
        yield "moe.latent_up", 2 * rows * width * latent
    active, inner = model.field("num_experts_per_tok"), model.field("moe_intermediate_size")
    yield from feed_forward("moe.experts", rows * active, latent or width, inner, gated=False)
    yield from feed_forward("moe.shared", rows, width, model.field("moe_shared_expert_intermediate_size"), gated=False)
    yield "moe.router", 2 * rows * width * model.field("n_routed_experts")


def hybrid(config: Config, step: Step) -> Iterator[Row]:
    """Qwen3-Next, Qwen3.5: attention with a gate, and delta networks whose state is as wide as their values; no router."""
    model, rows = outline(config if config.has("num_hidden_layers") else text(config)), tokens(step)
    config = model.config
    kinds = config.words("layer_types")
    full = kinds.count("full_attention") if kinds else model.layers // config.integer("full_attention_interval", default=4)
    ahead = config.integer("mtp_num_hidden_layers", default=0, least=0)
    gated = config.flag("attn_output_gate", True)
    yield from model.projections(rows, full + ahead, gated=gated)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * (full + ahead))
    yield from _delta(model, rows * (model.layers - full))
    layers = rows * (model.layers + ahead)
    if config.integer("num_experts", default=0, least=0) > 1:
        active, inner = config.integer("num_experts_per_tok", default=1), config.integer("moe_intermediate_size", default=0, least=0)
        yield from feed_forward("moe.experts", layers * active, model.width, inner)
        shared = config.integer("shared_expert_intermediate_size", default=0, least=0)
        yield from feed_forward("moe.shared", layers, model.width, shared)
    else:
        yield from feed_forward("mlp", layers, model.width, config.integer("intermediate_size", default=0, least=0))
    yield model.head(rows)
    yield "mtp.proj", 4 * rows * model.width**2 * ahead
    yield "mtp.head", model.head(rows)[1] * ahead


def _delta(model: Outline, rows: int) -> Iterator[Row]:
    config = model.config
    heads, dim = model.field("linear_num_value_heads"), model.field("linear_value_head_dim")
    keys, values = model.field("linear_num_key_heads") * model.field("linear_key_head_dim"), heads * dim
    yield "linear_attention.in", 2 * rows * model.width * (2 * keys + 2 * values + 2 * heads)
    yield "linear_attention.conv", 2 * rows * config.integer("linear_conv_kernel_dim", default=4) * (2 * keys + values)
    yield "linear_attention.state", 8 * rows * heads * dim**2
    yield "linear_attention.out", 2 * rows * model.width * values
