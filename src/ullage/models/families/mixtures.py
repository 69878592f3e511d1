"""Decoders with routed experts, as tables; those whose experts stand elsewhere (JetMoE, DBRX, Hunyuan) as functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.decoders import ALL, BARE, CLASSIFIER, LM, family, head_dim, key_heads
from ullage.models.mixture import (
    FUSED,
    STACK,
    Bands,
    Mixture,
    SparsePlan,
    as_many,
    as_wide,
    banded,
    choice,
    grouped_attention,
    latent_attention,
    leading,
    leading_by,
    parted,
    sliding,
    sparse_decoder,
    stepped,
    whole,
)
from ullage.models.model import in_transformers, table, transformers_model
from ullage.models.sample import FULL, TEXT, Convention, Quantity, Sample, pairs
from ullage.models.work import Work, attention, contraction, matmul

# Experts in every layer

LOCAL = ("num_local_experts", "num_experts")
ROUTED = ("n_routed_experts", "num_experts", "num_local_experts")
MIXTRAL: dict[str, Any] = {
    "inner": "intermediate_size",
    "routed": LOCAL,
    "windows": sliding(lambda _: True),
    "paths": {"router": "block_sparse_moe.gate", "experts": "block_sparse_moe.experts", "modules": ("w1", "w3", "w2")},
}
table(
    "mixtral",
    """Mixtral, MiniMax-M2: grouped-query attention and, for each token, t of E gated experts of width e.

    A layer's feed-forward part is 2T(hE + 3the) FLOPs. A `sliding_window` holds for all layers.
    """,
    in_transformers("models/mixtral, models/minimax_m2"),
    SparsePlan("Mixtral", "mixtral", ALL, **MIXTRAL),
    SparsePlan("MiniMaxM2", "minimax_m2", **MIXTRAL),
)
table(
    "phimoe",
    "Phi-3.5-MoE: Mixtral's plan, and a router that always draws two experts.",
    in_transformers("models/phimoe"),
    SparsePlan(
        "Phimoe", "phimoe", (LM, CLASSIFIER, BARE), draws=2, aliases=("PhiMoEForCausalLM",),
        **{**MIXTRAL, "routed": ("num_local_experts",)},
    ),
)  # fmt: skip
table(
    "olmoe",
    "OLMoE, FlexOlmo: grouped-query attention and t of E gated experts of width `intermediate_size`; no shared expert.",
    in_transformers("models/olmoe, models/flex_olmo"),
    SparsePlan("Olmoe", "olmoe", inner="intermediate_size"),
    SparsePlan("FlexOlmo", "flex_olmo", inner="intermediate_size"),
)
table(
    "gpt_oss",
    """gpt-oss-20b and -120b: grouped-query attention, windows of 128 in every other layer, t of E experts of width e.

    Attention sinks add a number to each softmax and no product.
    """,
    in_transformers("models/gpt_oss"),
    SparsePlan(
        "GptOss", "gpt_oss", ALL, inner="intermediate_size", routed=LOCAL,
        active=("num_experts_per_tok", "experts_per_token"), windows=sliding(lambda i: i % 2 == 0, 128),
        paths={"router": "mlp.router", "modules": FUSED},
    ),
)  # fmt: skip

LINEAR = ("input_linear", "output_linear")
GRANITE: dict[str, Any] = {
    "inner": "intermediate_size",
    "routed": ("num_local_experts",),
    "shared": as_wide("shared_intermediate_size", default=0, least=0),
    "paths": {
        "router": "block_sparse_moe.router.layer",
        "experts": "block_sparse_moe",
        "modules": LINEAR,
        "shared_module": "shared_mlp",
        "shared_modules": LINEAR,
    },
}
table(
    "granitemoe",
    "Granite 3.0 and 3.1 MoE: t of E experts in every layer, and a shared MLP where `shared_intermediate_size` gives it a width.",
    in_transformers("models/granitemoe, models/granitemoeshared"),
    SparsePlan("GraniteMoe", "granitemoe", **GRANITE),
    SparsePlan("GraniteMoeShared", "granitemoeshared", **GRANITE),
)
table(
    "granitemoe_swa",
    "Granite MoE with windows: as Granite 3 MoE, and all layers but every fourth slide.",
    in_transformers("models/granitemoe_swa"),
    SparsePlan("GraniteMoeSWA", "granitemoe_swa", windows=sliding(lambda i: i % 4 != 0, 128), **GRANITE),
)
table(
    "solar_open",
    "Solar Open: t of E experts and shared ones in every layer.",
    in_transformers("models/solar_open"),
    SparsePlan("SolarOpen", "solar_open", routed=ROUTED, shared=as_many("n_shared_experts")),
)
table(
    "kolibri1",
    "Kolibri 1: t of E experts and a shared one of its own width in every layer; all but every fifth layer slide.",
    in_transformers("models/kolibri1"),
    SparsePlan(
        "Kolibri1", "kolibri1", routed=ROUTED, shared=as_wide("shared_expert_intermediate_size"),
        windows=sliding(lambda i: (i + 1) % 5 != 0, 513),
    ),
)  # fmt: skip

# Qwen's steps of dense and sparse layers


def _alternating(config: Config, layers: Sequence[int]) -> Bands:
    """Return Qwen2-MoE's windows: with `use_sliding_window`, every other layer below `max_window_layers`."""
    if not config.flag("use_sliding_window"):
        return [(None, layers)]
    limit = config.integer("max_window_layers", default=28, least=0)
    return banded(config, layers, lambda i: i % 2 == 0 and i < limit, 4096)


def _all_or_none(config: Config, layers: Sequence[int]) -> Bands:
    return banded(config, layers, lambda _: True, 4096) if config.flag("use_sliding_window") else [(None, layers)]


table(
    "qwen2_moe",
    """Qwen1.5-MoE, Qwen2-MoE: t of E experts and a shared one, whose own gate is a product with one column.

    A sparse layer's feed-forward part is 2T(hE + 3the + 3hs + h) FLOPs. Layers of `mlp_only_layers`, and those that
    `decoder_sparse_step` passes over, are dense.
    """,
    in_transformers("models/qwen2_moe"),
    SparsePlan(
        "Qwen2Moe", "qwen2_moe", ALL, shared=as_wide("shared_expert_intermediate_size"), layers=stepped,
        windows=_alternating,
        paths={
            "shared_module": "mlp.shared_expert", "shared_gate": "mlp.shared_expert_gate",
            "shared_first": True,
        },

    ),
)  # fmt: skip
table(
    "qwen3_moe",
    "Qwen3-MoE: t of E experts, no shared one; a window, where `use_sliding_window` says so, holds for all layers.",
    in_transformers("models/qwen3_moe"),
    SparsePlan("Qwen3Moe", "qwen3_moe", ALL, layers=stepped, windows=_all_or_none),
)
table(
    "mellum",
    "Mellum 2: Qwen3's experts; `layer_types` and `mlp_layer_types` say which layers slide and which are dense (none by default).",
    in_transformers("models/mellum"),
    SparsePlan("Mellum", "mellum", layers=leading_by(0), windows=sliding(lambda _: False, 1024)),
)
table(
    "flint",
    "Flint: Qwen2-MoE's layers, whose shared expert has no gate; the first two, every fourth and the last see all.",
    in_transformers("models/flint"),
    SparsePlan(
        "Flint", "flint", shared=as_wide("shared_expert_intermediate_size"),
        layers=lambda config, layers: stepped(config, layers, only=(0, 1)),
        windows=lambda config, layers: banded(config, layers, lambda i: i >= 2 and i % 4 != 1 and i != layers[-1], 513),
        paths={"shared_module": "mlp.shared_expert"},
    ),
)  # fmt: skip

# Leading dense layers, then experts and shared ones


def _lettered(config: Config, layers: Sequence[int]) -> Bands:
    """Return windows by a `sliding_window_pattern`: a number n (every n-th layer is full, 4 by default) or letters "LLLG", repeated."""
    value = config.values.get("sliding_window_pattern")
    if isinstance(value, str) and value:
        return banded(config, layers, lambda i: value[i % len(value)] == "L", 4096)
    every = config.integer("sliding_window_pattern", default=4)
    return banded(config, layers, lambda i: (i + 1) % every != 0, 4096)


def _from_window_layer(config: Config, layers: Sequence[int]) -> Bands:
    first = config.integer("max_window_layers", default=62, least=0)
    return banded(config, layers, lambda i: i >= first, 4096)


table(
    "glm4_moe",
    """GLM-4.5 to 4.7, GLM-4.5V's text: leading dense layers, then t of E experts and shared ones; multi-token prediction when asked.

    A sparse layer's feed-forward part is 2T(hE + 3the + 3hs) FLOPs.
    """,
    in_transformers("models/glm4_moe"),
    SparsePlan(
        "Glm4Moe", "glm4_moe", routed=ROUTED, shared=as_many("n_shared_experts"), layers=leading_by(1),
        predicts=True,
    ),
    SparsePlan(
        "", "glm4v_moe_text", (), routed=ROUTED, shared=as_many("n_shared_experts"), layers=leading_by(1),
    ),
)  # fmt: skip
table(
    "dots1",
    "dots.llm1: leading dense layers, then t of E experts and shared ones; layers from `max_window_layers` on slide.",
    in_transformers("models/dots1"),
    SparsePlan(
        "Dots1", "dots1", routed=ROUTED, shared=as_many("n_shared_experts"), layers=leading_by(0),
        windows=_from_window_layer,
    ),
)  # fmt: skip
table(
    "exaone_moe",
    "K-EXAONE: leading dense layers, then t of E experts and shared ones; all but every fourth layer slide.",
    in_transformers("models/exaone_moe"),
    SparsePlan(
        "ExaoneMoe", "exaone_moe", routed=ROUTED, shared=as_many("num_shared_experts"), layers=leading_by(1),
        windows=_lettered, aliases=("ExaoneMoEForCausalLM",),
    ),
)  # fmt: skip
table(
    "hy_v3",
    "Hunyuan 3: one leading dense layer, then t of E experts and shared ones.",
    in_transformers("models/hy_v3"),
    SparsePlan("HYV3", "hy_v3", routed=ROUTED, shared=as_many("num_shared_experts"), layers=leading_by(1)),
)


def _anew_behind_leading(config: Config, layers: Sequence[int]) -> Bands:
    """Return Cohere's layers by window; the pattern starts anew behind the leading dense layers, which have one of their own."""
    first = config.integer("first_k_dense_replace", default=0, least=0)
    lead = config.integer("prefix_dense_sliding_window_pattern", default=1)
    rest = config.integer("sliding_window_pattern", default=4)
    return banded(config, layers, lambda i: (i + 1) % lead != 0 if i < first else (i - first + 1) % rest != 0, 4096)


table(
    "cohere2_moe",
    "Cohere 2 MoE: t of E experts of width `intermediate_size`, shared ones where there are, three of four layers slide.",
    in_transformers("models/cohere2_moe"),
    SparsePlan(
        "Cohere2Moe", "cohere2_moe", inner="intermediate_size",
        shared=as_many("num_shared_experts", default=0), layers=leading_by(0), windows=_anew_behind_leading,
        dense_width=("prefix_dense_intermediate_size", "intermediate_size"),
    ),
)  # fmt: skip


def _from_start_to_end(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return ERNIE's dense and sparse layers: every n-th layer from a start to an end is sparse."""
    start, step = config.integer("moe_layer_start_index", default=1, least=0), config.integer("moe_layer_interval", default=1)
    end = config.integer("moe_layer_end_index", default=-1, least=-1)
    end = len(layers) - 1 if end == -1 else end
    sparse, dense = parted(layers, lambda i: (i + 1) % step == 0 and start <= i <= end)
    return dense, sparse


table(
    "ernie4_5_moe",
    "ERNIE 4.5 MoE, text: t of E experts and shared ones; `moe_layer_start_index`, `_end_index` and `_interval` say where.",
    in_transformers("models/ernie4_5_moe"),
    SparsePlan(
        "Ernie4_5_Moe", "ernie4_5_moe", routed=("moe_num_experts", "num_experts"),
        active=("moe_k", "num_experts_per_tok"), shared=as_many("moe_num_shared_experts"),
        layers=_from_start_to_end, paths={"shared_first": True},
    ),
)  # fmt: skip


def _first_alone(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers as `mlp_layer_types` names them, else the first alone is dense."""
    kinds = config.words("mlp_layer_types", len(layers), {"dense", "sparse"})
    return parted(layers, (lambda i: kinds[i] == "dense") if kinds else (lambda i: i == 0))


def _narrow_values(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield MiMo's attention: layers with a window have twice the key heads, values are narrower than keys."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    key_heads, dim = config.integer("num_key_value_heads"), config.integer("head_dim")
    for size, members in bands:
        count = key_heads if size is None else 2 * key_heads
        yield from self_attention(width, heads, count, dim, members, of=pairs(size), value_dim=config.integer("v_head_dim"))


def _counting_itself(config: Config, layers: Sequence[int]) -> Bands:
    """Return MiMo's windows; `sliding_window_size` does not count the token itself, `sliding_window` does."""
    previous = config.optional("sliding_window_size")
    typed = config if previous is None else replace(config, values={**config.values, "sliding_window": previous + 1})
    return banded(typed, layers, lambda i: i != 0 and (i + 1) % 6 != 0, 129)


table(
    "mimo_v2_flash",
    """MiMo-V2-Flash: windows in all but the first and every sixth layer, a leading dense layer, then t of E experts.

    Its multi-token prediction layers, which no field describes, are left out.
    """,
    in_transformers("models/mimo_v2_flash"),
    SparsePlan(
        "MiMoV2Flash", "mimo_v2_flash", routed=("n_routed_experts",), layers=_first_alone,
        windows=_counting_itself, attention=_narrow_values,
    ),
)  # fmt: skip


def _gated(works: Iterator[Work]) -> Iterator[Work]:
    """Yield attention whose values a gate, a work of its own, multiplies before they leave."""
    for work in works:
        yield replace(work, reads=("attention.values", "attention.gate")) if work.name == "attention.out" else work


def _gated_attention(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield AFMoE's attention, gated by a projection of its input as wide as its heads."""
    width, members = config.integer("hidden_size"), sorted(i for _, band in bands for i in band)
    heads = config.integer("num_attention_heads")
    columns = heads * config.integer("head_dim", default=width // heads)
    yield matmul("attention.gate", TEXT, width, columns, members, stack=STACK, module="self_attn.gate_proj", to=None)
    yield from _gated(grouped_attention(config, bands))


def _all_but_global(config: Config, layers: Sequence[int]) -> Bands:
    every = config.integer("global_attn_every_n_layers", default=4)
    return banded(config, layers, lambda i: (i + 1) % every != 0, 1024)


def _behind_dense(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    first = config.integer("num_dense_layers", default=1, least=0)
    return parted(layers, lambda i: i < first)


table(
    "afmoe",
    "Arcee Trinity: attention whose output is gated by a projection of its input, then t of E experts and shared ones.",
    in_transformers("models/afmoe"),
    SparsePlan(
        "Afmoe", "afmoe", shared=as_many("num_shared_experts"), layers=_behind_dense, windows=_all_but_global,
        attention=_gated_attention, paths={"router": "mlp.router.gate", "shared_first": True},
    ),
)  # fmt: skip


def _own_heads(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield Laguna's attention, the layers of one window and one number of heads together; gated per head or per element."""
    width, dim = config.integer("hidden_size"), config.integer("head_dim", default=128)
    layers = config.layers()
    counts = config.integers("num_attention_heads_per_layer", len(layers), least=1) or [config.integer("num_attention_heads")] * len(layers)
    key_heads = config.integer("num_key_value_heads")
    gating = config.values.get("gating", True)
    for window, band in bands:
        for heads in sorted({counts[i] for i in band}):
            members = [i for i in band if counts[i] == heads]
            columns = heads if gating is True or gating == "per-head" else heads * dim
            yield matmul("attention.gate", TEXT, width, columns, members, stack=STACK, module="self_attn.g_proj", to=None)
            yield from _gated(self_attention(width, heads, key_heads, dim, members, of=pairs(window)))


table(
    "laguna",
    "Laguna: attention gated per head or per element, one leading dense layer, then t of E experts and a shared one.",
    in_transformers("models/laguna"),
    SparsePlan(
        "Laguna", "laguna", shared=as_wide("shared_expert_intermediate_size"), layers=_first_alone,
        windows=sliding(lambda _: False, 512), attention=_own_heads, paths={"shared_first": True},
    ),
)  # fmt: skip

# Latent attention


def _latent(config: Config, bands: Bands) -> Iterator[Work]:
    for window, members in bands:
        yield from latent_attention(config, members, pairs(window))


def _stepped_behind_leading(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return A.X K1's dense and sparse layers: behind the leading dense ones every `moe_layer_freq`-th is sparse."""
    if config.has("mlp_layer_types"):
        return leading(config, layers, 1)
    step, first = config.integer("moe_layer_freq", default=1), config.integer("first_k_dense_replace", default=1, least=0)
    return parted(layers, lambda i: i < first or i % step != 0)


DEEPSEEK: dict[str, Any] = {"routed": ROUTED, "shared": as_many("n_shared_experts"), "attention": _latent, "predicts": True}
table(
    "deepseek_v2",
    "DeepSeek V2, V2-Lite, Coder-V2: latent attention with or without a latent for queries; see DeepSeek V3.",
    in_transformers("models/deepseek_v2"),
    SparsePlan("DeepseekV2", "deepseek_v2", (LM, CLASSIFIER, BARE), layers=leading_by(0), **DEEPSEEK),
)
table(
    "deepseek_v3",
    """DeepSeek V3 and R1, Kimi K2, Moonlight: latent attention, leading dense layers, then routed and shared experts.

    Attention of a layer is 2T[h·r + r·n(d+e) + h(k+e) + k·n(d+v) + n·v·h] + 2·pairs·n(d+e+v) FLOPs, with ranks r (queries)
    and k (keys and values), head widths d without and e with rotation, v of values; h·n(d+e) without a query latent. Keys and
    values are expanded once, when their token is new; an implementation that expands a cache again, or absorbs the expansion
    into queries, executes more. Routing by groups costs no product. Multi-token prediction, which a config declares
    (`num_nextn_predict_layers`) and the transformers class does not build, is counted when the field `count_mtp` is true.
    """,
    in_transformers("models/deepseek_v3"),
    SparsePlan("DeepseekV3", "deepseek_v3", ALL, layers=leading_by(3), aliases=("kimi_k2",), **DEEPSEEK),
)
table(
    "mistral4",
    "Mistral 4: latent attention, routed and shared experts in all layers but the leading dense ones (none by default).",
    in_transformers("models/mistral4"),
    SparsePlan("Mistral4", "mistral4", ALL, layers=leading_by(0), **DEEPSEEK),
)
table(
    "glm4_moe_lite",
    "GLM-4.7-Flash: latent attention, one leading dense layer, then routed and shared experts.",
    in_transformers("models/glm4_moe_lite"),
    SparsePlan("Glm4MoeLite", "glm4_moe_lite", layers=leading_by(1), **DEEPSEEK),
)
table(
    "axk1",
    "A.X K1: DeepSeek V3's plan, with one leading dense layer; behind it every `moe_layer_freq`-th is sparse.",
    in_transformers("models/axk1"),
    SparsePlan("AXK1", "axk1", ALL, layers=_stepped_behind_leading, **DEEPSEEK),
)


def _indexed(config: Config, layers: Sequence[int]) -> list[int]:
    """Return the layers with an indexer of their own: all, unless `indexer_types`, a pattern or a frequency says otherwise."""
    kinds = config.words("indexer_types", len(layers), {"full", "shared"})
    pattern = config.values.get("index_topk_pattern")
    if kinds is None and isinstance(pattern, str):
        if len(pattern) != len(layers) or set(pattern) - set("FS"):
            raise config.error(["index_topk_pattern"], f"must be {len(layers)} letters F or S, one for each layer")
        kinds = ["full" if letter == "F" else "shared" for letter in pattern]
    kinds = kinds or config.words("index_topk_pattern", len(layers), {"full", "shared"})
    if kinds:
        return parted(layers, lambda i: kinds[i] == "full")[0]
    step = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, least=0)
    return parted(layers, lambda i: max(i - offset + 1, 0) % step == 0)[0]


def _indexer(config: Config, layers: Sequence[int]) -> Iterator[Work]:
    """Yield what chooses the keys: narrow queries and one key a token, a score of each pair and head, their weighted sum."""
    width, rank = config.integer("hidden_size"), config.integer("q_lora_rank")
    heads, dim = config.integer("index_n_heads"), config.integer("index_head_dim")
    for what, inner, columns, leaf, read in (
        ("q", rank, heads * dim, "wq_b", "attention.q_down"),
        ("k", width, dim, "wk", "stream"),
        ("weights", width, heads, "weights_proj", "stream"),
    ):
        module = f"self_attn.indexer.{leaf}"
        yield matmul(f"indexer.{what}", TEXT, inner, columns, layers, stack=STACK, module=module, reads=(read,), to=None, gradient=False)
    scored, summed = ("indexer.q", "indexer.k"), ("indexer.weights", "indexer.scores")
    yield contraction("indexer.scores", pairs(), 2 * heads * dim, layers, stack=STACK, reads=scored, gradient=False)
    yield contraction("indexer.sum", pairs(), 2 * heads, layers, stack=STACK, reads=summed, gradient=False)


def _chosen_keys(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield latent attention over the keys that indexers choose; layers that predict further tokens have one each."""
    layers, (_, members) = config.layers(), bands[0]
    yield from latent_attention(config, members, pairs(config.integer("index_topk")))
    ahead = members[0] >= len(layers) if members else False
    yield from _indexer(config, members if ahead else _indexed(config, layers))


SPARSE_ATTENTION: dict[str, Any] = {**DEEPSEEK, "attention": _chosen_keys, "layers": leading_by(3)}
table(
    "deepseek_v32",
    """DeepSeek V3.2: V3 with an indexer of H heads of width D; a query attends to the `index_topk` keys that score best.

    The indexer adds 2T(rHD + hD + hH) + 2·pairs·(HD + H) FLOPs a layer, over all causal pairs; attention needs
    min(position, topk) keys a query, as a window of that size would. By the convention "full" both count all pairs, which is
    what an implementation by masks executes. No gradient flows through the choice of keys, so the indexer has no backward.
    """,
    in_transformers("models/deepseek_v32"),
    SparsePlan("DeepseekV32", "deepseek_v32", **SPARSE_ATTENTION),
)
table(
    "glm_moe_dsa",
    "GLM-5: DeepSeek V3.2's plan; layers that share the choice of keys of an earlier one have no indexer.",
    in_transformers("models/glm_moe_dsa"),
    SparsePlan("GlmMoeDsa", "glm_moe_dsa", **SPARSE_ATTENTION),
)

# Llama 4


def _interleaved(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers: `moe_layers` names the sparse ones, else every `interleave_moe_layer_step`-th is."""
    listed = config.integers("moe_layers")
    if listed is not None:
        return parted(layers, lambda i: i not in set(listed))
    step = config.integer("interleave_moe_layer_step", default=1)
    return parted(layers, lambda i: (i + 1) % step != 0)


def _chunked_attention(config: Config, _: Bands) -> Iterator[Work]:
    """Yield attention of which layers with rotary embeddings (three of four by default) see their chunk only."""
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    dim, groups = head_dim(config, width, heads), key_heads(config, heads)
    size = config.optional("attention_chunk_size") if "attention_chunk_size" in config.values else 8192
    kinds = config.words("layer_types", len(layers), {"full_attention", "chunked_attention"})
    rotary = config.integers("no_rope_layers", len(layers)) if config.values.get("no_rope_layers") else None
    every = config.integer("no_rope_layer_interval", default=4)

    def chunked(layer: int) -> bool:
        if kinds:
            return kinds[layer] == "chunked_attention"
        return bool(rotary[layer]) if rotary else (layer + 1) % every != 0

    local, full = parted(layers, chunked)
    for of, members in ((pairs() if size is None else chunked_pairs(size), local), (pairs(), full)):
        if members:
            yield from self_attention(width, heads, groups, dim, members, of=of)


def chunked_pairs(size: int) -> Quantity:
    """Return the query-key pairs of causal attention within chunks of `size` positions; `full` counts all, chunks ignored.

    Six tokens in chunks of four see 1, 2, 3, 4, 1, 2 keys; after three cached tokens, three new ones see 4, 1, 2.

    >>> chunked_pairs(4).of(Sample(text=6), "causal"), chunked_pairs(4).of(Sample(text=3, context=3), "causal")
    (13, 7)
    """

    def below(position: int) -> int:
        whole, rest = divmod(position, size)
        return whole * (size * (size + 1) // 2) + rest * (rest + 1) // 2

    def of(sample: Sample, convention: Convention) -> int:
        if convention == FULL:
            return sample.text * (sample.context + sample.text)
        return below(sample.context + sample.text) - below(sample.context)

    return Quantity(f"causal pairs, chunk {size}", of)


IN_LLAMA4 = in_transformers("models/llama4") + ", but for the experts that no token chose"
table(
    "llama4",
    """Llama 4 Scout and Maverick, text: chunked attention, dense layers between sparse ones, a shared expert.

    Counted are the experts that a token is routed to. transformers runs every expert on every token and scales the others by
    zero: it executes 6·h·e·(E - t) FLOPs a token and sparse layer more, which no result needs.
    """,
    IN_LLAMA4,
    SparsePlan(
        "Llama4", "llama4_text", (LM, "TextModel"), inner="intermediate_size", routed=("num_local_experts",),
        shared=lambda _, inner: inner, layers=_interleaved, attention=_chunked_attention,
        dense_width=("intermediate_size_mlp",), dense_module="feed_forward",
        paths={
            "router": "feed_forward.router", "experts": "feed_forward.experts", "modules": FUSED,
            "shared_module": "feed_forward.shared_expert",
        },

    ),
)  # fmt: skip

# Experts elsewhere


@transformers_model("models/jetmoe", *family("JetMoe", LM, CLASSIFIER, BARE, kind="jetmoe"))
def jetmoe(config: Config) -> Iterator[Work]:
    """JetMoE: t of E experts project the queries and the outputs of attention, t of E experts are the MLP; each has a router.

    Keys and values are one projection, common to all experts; t times as many heads attend as there are key heads.
    """
    yield from whole(config, config.integer("hidden_size"), _expert_attention(config))


def _expert_attention(config: Config) -> Iterator[Work]:
    layers, width = config.layers(), config.integer("hidden_size")
    experts = choice(config, ("num_local_experts",), ("num_experts_per_tok",))
    (routed, active), dim = experts, config.integer("kv_channels", "head_dim")
    key_heads = config.integer("num_key_value_heads")
    columns, block = key_heads * dim, "self_attention"
    router = f"{block}.experts.router.layer"
    yield matmul("attention.router", TEXT, width, routed, layers, stack=STACK, module=router, to=None)
    query = f"{block}.experts.input_linear"
    yield matmul("attention.q", TEXT, width, columns, layers, stack=STACK, module=query, times=active, to=None)
    yield matmul("attention.kv", TEXT, width, 2 * columns, layers, stack=STACK, module=f"{block}.kv_proj", to=None)
    inputs = ("attention.q", "attention.kv", "attention.kv")
    yield from attention(pairs(), key_heads * active, dim, layers, stack=STACK, inputs=inputs)
    out = f"{block}.experts.output_linear"
    yield matmul("attention.out", TEXT, columns, width, layers, stack=STACK, module=out, times=active, reads=("attention.values",))
    mixture = Mixture(config.integer("intermediate_size"), *experts, router="mlp.router.layer", experts="mlp", modules=LINEAR)
    yield from mixture.works(width, layers)


@transformers_model("models/dbrx", *family("Dbrx", LM, BARE, kind="dbrx"))
def dbrx(config: Config) -> Iterator[Work]:
    """DBRX: grouped-query attention, then `moe_top_k` of `moe_num_experts` gated experts of width `ffn_hidden_size`."""
    yield from whole(config, config.integer("d_model", "hidden_size"), _fine_grained(config), "transformer.wte")


def _fine_grained(config: Config) -> Iterator[Work]:
    layers, stack = config.layers("n_layers", "num_hidden_layers"), "transformer.blocks"
    width, heads = config.integer("d_model", "hidden_size"), config.integer("n_heads", "num_attention_heads")
    dim, key_heads = width // heads, config.section("attn_config").integer("kv_n_heads")
    ffn, fused, block = config.section("ffn_config"), "attention.qkv", "norm_attn_norm.attn"
    mixture = Mixture(
        *(ffn.integer("ffn_hidden_size"), *choice(ffn, ("moe_num_experts",), ("moe_top_k",))),
        router="ffn.router.layer",
        experts="ffn.experts.mlp",
        modules=("w1", "v1", "w2"),
    )
    yield matmul(fused, TEXT, width, width + 2 * key_heads * dim, layers, stack=stack, module=f"{block}.Wqkv", to=None)
    yield from attention(pairs(), heads, dim, layers, stack=stack, inputs=(fused, fused, fused))
    yield matmul("attention.out", TEXT, width, width, layers, stack=stack, module=f"{block}.out_proj", reads=("attention.values",))
    yield from mixture.works(width, layers, stack)


@transformers_model("models/hunyuan_v1_moe", *family("HunYuanMoEV1", LM, CLASSIFIER, BARE, kind="hunyuan_v1_moe"))
def hunyuan_moe(config: Config) -> Iterator[Work]:
    """Hunyuan-A13B: t of E experts beside a shared MLP of the same width; both numbers may differ from layer to layer.

    The width is `intermediate_size`. The transformers class knows one shared MLP and no other width for an expert; fields that
    say otherwise (`num_shared_expert`, `moe_intermediate_size`) are refused.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    inner = config.integer("intermediate_size")
    _same(config, "num_shared_expert", 1, len(layers))
    _same(config, "moe_intermediate_size", inner, len(layers))
    routed = _each(config, ("num_experts", "num_local_experts"), layers)
    active = _each(config, ("moe_topk", "num_experts_per_tok"), layers)
    works = [work for members, mixture in _alike(config, inner, routed, active) for work in mixture.works(width, members)]
    yield from sparse_decoder(config, grouped_attention(config, [(None, layers)]), [], works)


def _alike(config: Config, inner: int, routed: list[int], active: list[int]) -> Iterator[tuple[list[int], Mixture]]:
    """Yield the layers that have as many experts and take as many, and their block."""
    for count, taken in dict.fromkeys(zip(routed, active, strict=True)):
        if taken > count:
            raise config.error(["moe_topk"], f"takes {taken:,} of {count:,} experts")
        members = [i for i, both in enumerate(zip(routed, active, strict=True)) if both == (count, taken)]
        yield members, Mixture(inner, count, taken, shared=inner, router="mlp.gate.wg", shared_module="mlp.shared_mlp", shared_first=True)


def _each(config: Config, names: tuple[str, ...], layers: Sequence[int]) -> list[int]:
    """Return a number for each layer, from a list or from one number for all."""
    used = next((n for n in names if config.has(n)), names[0])
    if isinstance(config.values.get(used), list):
        return config.integers(used, len(layers), least=1) or []
    return [config.integer(used)] * len(layers)


def _same(config: Config, name: str, value: int, layers: int) -> None:
    """Raise an error unless the field, a number or a list, is missing or says `value` for every layer."""
    given = config.values.get(name)
    if given is not None and given != value and given != [value] * layers:
        raise config.error([name], f"must be {value:,} in every layer: the class has no other")
