"""verl's count: `FlopsCounter.estimate_flops` of verl 0.9.1, from fields of the configuration and the sequences' lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.models.config import Config
from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import Outline, feed_forward, halved, kind, lengths, outline, squares, text, tokens
from ullage.models.formula import Formula
from ullage.models.step import Step


@convention(
    "verl",
    says="the embedding's look-up as a product; s²/2 pairs, of a window s·W/2; no shared expert in Qwen2-MoE; heads of Qwen-VL"
    " hidden_size / heads wide; vision towers in full, without windows or a gate, mergers once per patch before merging",
    source="verl 0.9.1, verl/utils/flops_counter.py (FlopsCounter)",
)
def verl(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield what verl counts for the architecture's `model_type`; images are those of the samples' grids, frame by frame."""
    count = _COUNTS[kind(formula, _COUNTS, "verl", "prints 0")]
    yield from count(formula.config, step)


def _dense(config: Config, step: Step) -> Iterator[Row]:
    model = outline(config)
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, config.integer("intermediate_size"))
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)


def _mixture(config: Config, step: Step) -> Iterator[Row]:
    """Qwen2-MoE and Qwen3-MoE: the router and the routed experts, in every layer."""
    yield from _experts(outline(config), step, config.integer("moe_intermediate_size"), config.integer("num_experts"))


def _hunyuan(config: Config, step: Step) -> Iterator[Row]:
    """Hunyuan V3: shared experts beside the routed; leading dense layers are taken for sparse ones."""
    inner = config.integer("moe_intermediate_size", "expert_hidden_dim")
    shared = config.integer("num_shared_experts", least=0)
    yield from _experts(outline(config), step, inner, config.integer("num_experts"), shared)


def _gpt_oss(config: Config, step: Step) -> Iterator[Row]:
    model = outline(config)
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from _routed(model, tokens(step) * model.layers, config.integer("intermediate_size"), config.integer("num_local_experts"))
    yield from _banded(model, step, _sliding(config, model.layers, every=2), config.integer("sliding_window", default=128))


def _gemma(config: Config, step: Step) -> Iterator[Row]:
    model = outline(config)
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, config.integer("intermediate_size"))
    every = config.integer("sliding_window_pattern", default=6)
    yield from _banded(model, step, _sliding(config, model.layers, every), config.integer("sliding_window", default=1024))


def _apertus(config: Config, step: Step) -> Iterator[Row]:
    """Apertus: an MLP without a gate; the norms of queries and keys as products, a query's as wide as the model."""
    model = outline(config)
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, config.integer("intermediate_size"), gated=False)
    yield "attention.norms", 2 * tokens(step) * model.layers * (model.width + model.key_heads * model.head_dim)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)


def _deepseek(config: Config, step: Step) -> Iterator[Row]:
    """DeepSeek-V3: latent attention; the shared experts as if routed."""
    model = outline(config, head_dim=False)
    yield from _vocabulary(model, step)
    yield from latent_projections(model, tokens(step) * model.layers)
    dense = config.integer("first_k_dense_replace", least=0)
    yield from feed_forward("mlp", tokens(step) * dense, model.width, config.integer("intermediate_size"))
    rows, shared = tokens(step) * (model.layers - dense), config.integer("n_shared_experts", least=0)
    yield from _routed(model, rows, config.integer("moe_intermediate_size"), config.integer("n_routed_experts"), shared)
    dim = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    yield from halved(model.heads, dim, config.integer("v_head_dim"), squares(step) * model.layers)


def _vision_language(config: Config, step: Step) -> Iterator[Row]:
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL: heads are taken as hidden_size / heads wide."""
    model = outline(text(config), head_dim=False)
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from feed_forward("mlp", tokens(step) * model.layers, model.width, model.config.integer("intermediate_size"))
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)
    yield from _vision(config, step)


def _vision_language_mixture(config: Config, step: Step) -> Iterator[Row]:
    yield from _mixture(text(config), step)
    yield from _vision(config, step)


def _hybrid(config: Config, step: Step) -> Iterator[Row]:
    """Qwen3.5: attention with a gate, and delta networks whose recurrence is 5 FLOPs an entry of the state."""
    model = outline(text(config))
    kinds = model.config.words("layer_types")
    every = model.config.integer("full_attention_interval", default=4)
    full = kinds.count("full_attention") if kinds else model.layers // every
    linear = kinds.count("linear_attention") if kinds else model.layers - full
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step), full, gated=True)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * full)
    yield from _delta(model, tokens(step) * linear)
    rows = tokens(step) * model.layers
    if model.config.has("num_experts"):
        yield from _routed(model, rows, model.field("moe_intermediate_size"), model.field("num_experts"))
        yield from feed_forward("moe.shared", rows, model.width, model.field("shared_expert_intermediate_size"))
        yield "moe.shared_gate", 2 * rows * model.width
    else:
        yield from feed_forward("mlp", rows, model.width, model.field("intermediate_size"))
    yield from _vision(config, step)


_COUNTS: dict[str, Callable[[Config, Step], Iterator[Row]]] = {
    **dict.fromkeys(("qwen2", "llama", "qwen3", "minicpmv", "minicpmo", "mistral", "seed_oss", "glm4v", "mimo"), _dense),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _mixture),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl"), _vision_language),
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), _hybrid),
    "qwen3_vl_moe": _vision_language_mixture,
    "deepseek_v3": _deepseek,
    "gemma3_text": _gemma,
    "apertus": _apertus,
    "gpt_oss": _gpt_oss,
    "hy_v3": _hunyuan,
}


def _vocabulary(model: Outline, step: Step) -> Iterator[Row]:
    _, flops = model.head(tokens(step))
    yield "embedding", flops
    yield "head", flops


def _experts(model: Outline, step: Step, inner: int, count: int, shared: int = 0) -> Iterator[Row]:
    yield from _vocabulary(model, step)
    yield from model.projections(tokens(step))
    yield from _routed(model, tokens(step) * model.layers, inner, count, shared)
    yield from halved(model.heads, model.head_dim, model.head_dim, squares(step) * model.layers)


def _routed(model: Outline, rows: int, inner: int, count: int, shared: int = 0) -> Iterator[Row]:
    yield "moe.router", 2 * rows * model.width * count
    yield from feed_forward("moe.experts", rows * model.field("num_experts_per_tok"), model.width, inner)
    yield from feed_forward("moe.shared", rows * shared, model.width, inner)


def latent_projections(model: Outline, rows: int) -> Iterator[Row]:
    """Yield the projections of latent attention, with and without a low rank of the queries."""
    config, heads, width = model.config, model.heads, model.width
    plain, rotated, values = (config.integer(f) for f in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    rank, down = config.integer("kv_lora_rank"), config.optional("q_lora_rank")
    if down is None:
        yield "attention.q", 2 * rows * width * heads * (plain + rotated)
    else:
        yield "attention.q_down", 2 * rows * width * down
        yield "attention.q_up", 2 * rows * down * heads * (plain + rotated)
    yield "attention.kv_down", 2 * rows * width * (rank + rotated)
    yield "attention.kv_up", 2 * rows * rank * heads * (plain + values)
    yield "attention.out", 2 * rows * heads * values * width


def _sliding(config: Config, layers: int, every: int) -> list[bool]:
    """Return which layers slide: as `layer_types` says, else all but every so manyth."""
    kinds = config.words("layer_types")
    return [k == "sliding_attention" for k in kinds] if kinds else [(i + 1) % every != 0 for i in range(layers)]


def _banded(model: Outline, step: Step, sliding: list[bool], window: int) -> Iterator[Row]:
    """Yield attention's products with s·min(s, W) in place of s² where a layer slides: the window, and then half of it."""
    near = sum(sliding)
    pairs = sum(count * s * (near * min(s, window) + (len(sliding) - near) * s) for s, count in lengths(step))
    yield from halved(model.heads, model.head_dim, model.head_dim, pairs)


def _delta(model: Outline, rows: int) -> Iterator[Row]:
    heads, key_dim = model.field("linear_num_value_heads"), model.field("linear_key_head_dim")
    keys, values = model.field("linear_num_key_heads") * key_dim, heads * model.field("linear_value_head_dim")
    yield "linear_attention.in", 2 * rows * model.width * (2 * keys + 2 * values + 2 * heads)
    yield "linear_attention.conv", 2 * rows * model.field("linear_conv_kernel_dim") * (2 * keys + values)
    yield "linear_attention.state", 5 * rows * key_dim * values
    yield "linear_attention.out", 2 * rows * model.width * values


def _vision(config: Config, step: Step) -> Iterator[Row]:
    """Yield the tower over each frame's patches: full attention, an MLP without a gate, mergers at the width of four patches."""
    frames = [(rows * columns, times * count) for sample, count in step.samples for times, rows, columns in sample.grids]
    if not frames or not config.has("vision_config"):
        return
    tower = config.section("vision_config")
    width, depth = tower.integer("hidden_size"), tower.integer("depth")
    patches = sum(size * count for size, count in frames)
    taps = tower.integer("in_channels", "in_chans", default=3) * tower.integer("temporal_patch_size") * tower.integer("patch_size") ** 2
    merged = width * tower.integer("spatial_merge_size") ** 2
    mergers = 1 + len(tower.integers("deepstack_visual_indexes") or ())
    yield "vision.patch", 2 * patches * width * taps
    yield "vision.attention.qkv", 6 * patches * depth * width**2
    yield "vision.attention.out", 2 * patches * depth * width**2
    inner = tower.integer("intermediate_size")
    yield from feed_forward("vision.mlp", patches * depth, width, inner, gated=False)
    yield "vision.merger", 2 * patches * mergers * merged * (merged + tower.integer("out_hidden_size"))
    pairs = sum(size**2 * count for size, count in frames) * depth
    heads = tower.integer("num_heads")
    yield "vision.attention.scores", 2 * pairs * heads * (width // heads)
    yield "vision.attention.values", 2 * pairs * heads * (width // heads)
