"""NeMo Automodel's counts of mixtures of experts: DeepSeek and its kin, gpt-oss, GLM-4, MiniMax-M2."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.conventions.convention import Row
from ullage.models.conventions.outline import Outline, feed_forward, halved, lengths, outline, products, squares, text, tokens
from ullage.models.conventions.verl import latent_projections
from ullage.models.step import Step


def deepseek(config: Config, step: Step) -> Iterator[Row]:
    """DeepSeek-V3: one shared expert as wide as a routed one; layers that predict tokens ahead where `mtp_num_layers` says so."""
    model = outline(config, head_dim=False)
    if config.has("moe_layer_freq") and not isinstance(config.values["moe_layer_freq"], int):
        pattern = config.integers("moe_layer_freq") or []
    elif config.has("moe_layer_freq"):
        pattern = [int(i % config.integer("moe_layer_freq") == 0) for i in range(model.layers)]
    else:
        dense = config.integer("first_k_dense_replace", default=0, least=0)
        pattern = [int(i >= dense) for i in range(model.layers)]
    ahead = config.integer("mtp_num_layers", default=0, least=0)
    inner = config.integer("moe_intermediate_size")
    active = config.integer("num_experts_per_tok")
    yield from _latent(model, step, pattern, ahead, (config.integer("intermediate_size"), inner, inner, active), routed_ahead=True)


def latent(config: Config, step: Step) -> Iterator[Row]:
    """GLM-5, Kimi K2, Mistral Small 4, LongCat: as DeepSeek-V3, with all shared experts; the text alone."""
    model = outline(config if config.has("num_hidden_layers") else text(config), head_dim=False)
    config = model.config
    inner = config.integer("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    dense = config.integer("intermediate_size", "ffn_hidden_size", default=inner)
    shared = inner * config.integer("n_shared_experts", default=0, least=0)
    active = config.integer("num_experts_per_tok", "moe_topk", default=1)
    pattern = _pattern(config, model.layers)
    ahead = config.integer("num_nextn_predict_layers", "mtp_num_layers", default=0, least=0)
    yield from _latent(model, step, pattern, ahead, (dense, inner, shared, active), routed_ahead=bool(pattern and pattern[-1]))


def _pattern(config: Config, layers: int) -> list[int]:
    kinds = config.words("mlp_layer_types")
    if kinds:
        return [int(kind != "dense") for kind in kinds]
    if isinstance(config.values.get("moe_layer_freq"), list):
        return config.integers("moe_layer_freq") or []
    dense, every = config.integer("first_k_dense_replace", default=0, least=0), config.integer("moe_layer_freq", default=1)
    return [int(i >= dense and (i - dense) % every == 0) for i in range(layers)]


def _latent(
    model: Outline, step: Step, pattern: list[int], ahead: int, widths: tuple[int, int, int, int], *, routed_ahead: bool
) -> Iterator[Row]:
    dense, inner, shared, active = widths
    rows, layers = tokens(step), model.layers + ahead
    yield from latent_projections(model, rows * layers)
    yield from _attended(model, step, layers)
    routed = sum(1 for p in pattern if p) + (ahead if routed_ahead else 0)
    plain = sum(1 for p in pattern if not p) + (0 if routed_ahead else ahead)
    yield from feed_forward("mlp", rows * plain, model.width, dense)
    yield from feed_forward("moe.experts", rows * routed * active, model.width, inner)
    yield from feed_forward("moe.shared", rows * routed, model.width, shared)
    yield model.head(rows)
    yield "mtp.proj", 4 * rows * model.width**2 * ahead
    yield "mtp.head", model.head(rows)[1] * ahead


def _attended(model: Outline, step: Step, layers: int) -> Iterator[Row]:
    """Yield attention's products: half of s², or s × `index_topk` where keys are chosen, with an indexer that scores all s²."""
    config = model.config
    dim, values = model.field("qk_nope_head_dim") + model.field("qk_rope_head_dim"), model.field("v_head_dim")
    chosen, heads = config.optional("index_topk", least=0), config.integer("index_n_heads", default=0, least=0)
    if not chosen:
        yield from halved(model.heads, dim, values, squares(step) * layers)
        return
    yield from products(model.heads, dim, values, tokens(step) * chosen * layers)
    wide = heads * config.integer("index_head_dim", default=0, least=0)
    if heads:
        weights = config.integer("q_lora_rank", default=0, least=0) * wide + model.width * (wide // heads + heads)
        yield "indexer.projections", 2 * tokens(step) * weights * layers
        yield "indexer.scores", 2 * squares(step) * wide * layers


def gpt_oss(config: Config, step: Step) -> Iterator[Row]:
    """gpt-oss: the true band of a window in every other layer, also of sequences shorter than it; no router."""
    model = outline(config)
    window = (config.integers("window_size") or [128])[0]
    every = config.integer("window_attn_skip_freq", default=2)
    full = len(range(0, model.layers, every))
    rows = tokens(step)
    yield from model.projections(rows)
    pairs = sum(
        count * (full * s * (s + 1) // 2 + (model.layers - full) * (window * (window + 1) // 2 + (s - window) * window))
        for s, count in lengths(step)
    )
    yield from model.products(pairs)
    inner = config.integer("moe_ffn_hidden_size", "intermediate_size")
    yield from feed_forward("moe.experts", rows * model.layers * config.integer("num_experts_per_tok"), model.width, inner)
    yield model.head(rows)


def glm4_moe(config: Config, step: Step) -> Iterator[Row]:
    """GLM-4-MoE: leading dense layers, then shared and routed experts; no router."""
    model, rows = outline(config), tokens(step)
    yield from model.projections(rows)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)
    dense = config.integer("first_k_dense_replace", default=0, least=0)
    routed = rows * (model.layers - dense)
    inner = config.integer("moe_intermediate_size", "intermediate_size")
    yield from feed_forward("mlp", rows * dense, model.width, config.integer("intermediate_size"))
    yield from feed_forward("moe.shared", routed * config.integer("n_shared_experts", default=0, least=0), model.width, inner)
    yield from feed_forward("moe.experts", routed * config.integer("num_experts_per_tok", default=1), model.width, inner)
    yield model.head(rows)


def minimax_m2(config: Config, step: Step) -> Iterator[Row]:
    """MiniMax-M2: routed experts of `intermediate_size` in every layer, a shared one where it has a width; no router."""
    model, rows = outline(config), tokens(step)
    modules = config.integer("num_mtp_modules", default=0, least=0) if config.flag("use_mtp") else 0
    layers = model.layers + modules * config.integer("mtp_transformer_layers", default=1)
    yield from model.projections(rows, layers)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * layers)
    active = config.integer("num_experts_per_tok", default=8)
    yield from feed_forward("moe.experts", rows * layers * active, model.width, config.integer("intermediate_size"))
    yield from feed_forward("moe.shared", rows * layers, model.width, config.integer("shared_intermediate_size", default=0, least=0))
    yield model.head(rows)
    yield "mtp.proj", 4 * rows * model.width**2 * modules
    yield "mtp.head", model.head(rows)[1] * modules
