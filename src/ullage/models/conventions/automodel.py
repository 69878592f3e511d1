"""NeMo Automodel's count: the formula that its table gives for the configuration's class, at its sequence length."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.conventions.automodel_hybrids import hybrid, nemotron_h
from ullage.models.conventions.automodel_mixtures import deepseek, glm4_moe, gpt_oss, latent, minimax_m2
from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import Outline, feed_forward, halved, kind, outline, products, squares, text, tokens
from ullage.models.formula import Formula
from ullage.models.step import Step

_ENCODERS = ("bert", "roberta", "albert", "electra")


@convention(
    "automodel",
    says="s²/2 pairs; no router but Nemotron-H's; Nemotron-H's MLPs as gated and its heads hidden_size / heads wide; what its table"
    " lacks (Mistral, Gemma, Qwen2-MoE) as an MLP without a gate, and if it has experts, in every second layer",
    source="nemo_automodel 0.7.0, components/utils/flops_utils.py (get_flops_formula_for_hf_config)",
)
def automodel(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield what NeMo Automodel counts: by its own formula for some thirty classes, else by a generic one, as it does silently."""
    name = kind(formula, _named(formula), "NeMo Automodel", "fails")
    yield from _COUNTS.get(name, _generic)(formula.config, step)


def _named(formula: Formula) -> list[str]:
    """Return the names under which there is a count: those of the table, and any decoder's."""
    said = formula.config.values.get("model_type")
    several_sided = formula.model.kind not in ("decoder", "encoder")
    return [*_COUNTS, *([] if several_sided else [str(said or formula.name)])]


def gpt3(config: Config, step: Step) -> Iterator[Row]:
    """GPT-2, NeoX, J: 24h² a token and layer."""
    model = outline(config, head_dim=False)
    yield "attention.qkv", 6 * tokens(step) * model.layers * model.width**2
    yield "attention.out", 2 * tokens(step) * model.layers * model.width**2
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, 4 * model.width, gated=False)
    yield from halved(1, model.width, model.width, squares(step) * model.layers)
    yield model.head(tokens(step))


def grouped(config: Config, step: Step, *, gated: bool = True, experts: int = 1) -> Iterator[Row]:
    """Llama, Nemotron, Mixtral: heads hidden_size / heads wide; `experts` of `intermediate_size` a token."""
    model = outline(config, head_dim=False)
    yield from ratios(model, tokens(step) * model.layers, model.width)
    inner = config.integer("intermediate_size")
    yield from feed_forward("mlp", tokens(step) * model.layers * experts, model.width, inner, gated=gated)
    yield from halved(1, model.width, model.width, squares(step) * model.layers)
    yield model.head(tokens(step))


def ratios(model: Outline, rows: int, query: int) -> Iterator[Row]:
    """Yield projections whose keys and values are a share of the queries' width, k/n."""
    yield "attention.q", 2 * rows * model.width * query
    yield "attention.kv", 4 * rows * model.width * query * model.key_heads // model.heads
    yield "attention.out", 2 * rows * model.width * query


def _mixtral(config: Config, step: Step) -> Iterator[Row]:
    yield from grouped(config, step, experts=config.integer("num_experts_per_tok", default=2))


def _nemotron(config: Config, step: Step) -> Iterator[Row]:
    yield from grouped(config, step, gated=False)


def qwen3(config: Config, step: Step) -> Iterator[Row]:
    """Qwen 2 and 3, dense or routed, the text alone: every layer is routed where the configuration has experts."""
    model = outline(config if config.has("num_hidden_layers") else text(config))
    yield from model.projections(tokens(step))
    inner = model.config.integer("moe_intermediate_size", "intermediate_size")
    rows = tokens(step) * model.layers * model.config.integer("num_experts_per_tok", default=1)
    yield from feed_forward("moe.experts" if model.config.has("moe_intermediate_size") else "mlp", rows, model.width, inner)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)
    yield model.head(tokens(step))


def bert(config: Config, step: Step) -> Iterator[Row]:
    """Encoders: 24h² a token and layer, all pairs, and a head over the vocabulary."""
    model = outline(config, head_dim=False)
    yield "attention.qkv", 6 * tokens(step) * model.layers * model.width**2
    yield "attention.out", 2 * tokens(step) * model.layers * model.width**2
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, 4 * model.width, gated=False)
    yield from products(1, model.width, model.width, squares(step) * model.layers)
    yield model.head(tokens(step))


def _generic(config: Config, step: Step) -> Iterator[Row]:
    """Whatever the table lacks: two products an MLP, keys and values together k/n of the queries' two."""
    if config.has("text_config") and not config.has("num_hidden_layers"):
        raise UllageError("NeMo Automodel has no count for this model of several parts", "give the text model's configuration")
    model = outline(config, head_dim=False)
    wide = model.heads * model.head_dim
    rows = tokens(step) * model.layers
    yield "attention.q and out", 4 * rows * model.width * wide
    yield "attention.kv", 4 * rows * model.width * model.key_heads * model.head_dim
    yield from halved(1, wide, 0, squares(step) * model.layers * 2)
    active = config.integer("num_experts_per_tok", default=0, least=0)
    routed = model.layers // 2 if active else 0
    inner = config.integer("intermediate_size")
    yield from feed_forward("mlp", tokens(step) * (model.layers - routed), model.width, inner, gated=False)
    yield from feed_forward("moe.experts", tokens(step) * routed * active, model.width, inner, gated=False)
    yield model.head(tokens(step))


_COUNTS: dict[str, Callable[[Config, Step], Iterator[Row]]] = {
    **dict.fromkeys(("gpt2", "gpt_neo", "gpt_neox", "gptj", "gpt3"), gpt3),
    **dict.fromkeys(("qwen2", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text", "glm4"), qwen3),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe", "qwen3_next"), hybrid),
    **dict.fromkeys(("glm4_moe_lite", "glm_moe_dsa", "mistral3", "kimi_k2", "kimi_k25", "longcat_flash"), latent),
    **dict.fromkeys(_ENCODERS, bert),
    "llama": grouped,
    "mixtral": _mixtral,
    "nemotron": _nemotron,
    "deepseek_v3": deepseek,
    "gpt_oss": gpt_oss,
    "glm4_moe": glm4_moe,
    "minimax_m2": minimax_m2,
    "nemotron_h": nemotron_h,
}
