"""DeepSeek V2 and V3 and what follows their plan: latent attention, leading dense layers, routed and shared experts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, family
from ullage.models.mixture import STACK, Mixture, choice, leading, predictors, sparse_decoder
from ullage.models.model import model
from ullage.models.sample import TEXT, Quantity, pairs
from ullage.models.work import Work, attention, matmul


@model(
    *family("DeepseekV2", LM, CLASSIFIER, BARE, kind="deepseek_v2"),
    source="transformers 5.23, models/deepseek_v2; verified to the integer against traces",
)
def deepseek_v2(config: Config) -> Iterator[Work]:
    """DeepSeek V2, V2-Lite, Coder-V2: latent attention with or without a latent for queries; see DeepSeek V3."""
    yield from latent_decoder(config, dense=0)


@model(
    *family("DeepseekV3", LM, CLASSIFIER, TAGGER, BARE, kind="deepseek_v3"),
    "kimi_k2",
    source="transformers 5.23, models/deepseek_v3; verified to the integer against traces",
)
def deepseek_v3(config: Config) -> Iterator[Work]:
    """DeepSeek V3 and R1, Kimi K2, Moonlight: latent attention, leading dense layers, then routed and shared experts.

    Attention of a layer is 2T[h·r + r·n(d+e) + h(k+e) + k·n(d+v) + n·v·h] + 2·pairs·n(d+e+v) FLOPs, with ranks r (queries)
    and k (keys and values), head widths d without and e with rotation, v of values; h·n(d+e) without a query latent. Keys and
    values are expanded once, when their token is new; an implementation that expands a cache again, or absorbs the expansion
    into queries, executes more. Routing by groups costs no product. Multi-token prediction, which a config declares
    (`num_nextn_predict_layers`) and the transformers class does not build, is counted when the field `count_mtp` is true.
    """
    yield from latent_decoder(config, dense=3)


@model(
    *family("Mistral4", LM, CLASSIFIER, TAGGER, BARE, kind="mistral4"),
    source="transformers 5.23, models/mistral4; verified to the integer against traces",
)
def mistral4(config: Config) -> Iterator[Work]:
    """Mistral 4: latent attention, routed and shared experts in all layers but the leading dense ones (none by default)."""
    yield from latent_decoder(config, dense=0)


@model(
    *family("Glm4MoeLite", LM, BARE, kind="glm4_moe_lite"),
    source="transformers 5.23, models/glm4_moe_lite; verified to the integer against traces",
)
def glm4_moe_lite(config: Config) -> Iterator[Work]:
    """GLM-4.7-Flash: latent attention, one leading dense layer, then routed and shared experts."""
    yield from latent_decoder(config, dense=1)


@model(
    *family("AXK1", LM, CLASSIFIER, TAGGER, BARE, kind="axk1"),
    source="transformers 5.23, models/axk1; verified to the integer against traces",
)
def axk1(config: Config) -> Iterator[Work]:
    """A.X K1: DeepSeek V3's plan, with one leading dense layer; behind it every `moe_layer_freq`-th is sparse."""
    layers, step = config.layers(), config.integer("moe_layer_freq", default=1)
    first = config.integer("first_k_dense_replace", default=1, least=0)
    kinds = ["sparse" if i >= first and i % step == 0 else "dense" for i in layers]
    typed = config if config.has("mlp_layer_types") else replace(config, values={**config.values, "mlp_layer_types": kinds})
    yield from latent_decoder(typed, dense=1)


def latent_decoder(config: Config, dense: int) -> Iterator[Work]:
    """Yield a decoder of latent attention with routed and shared experts; `dense` is the class's default of leading dense layers."""
    layers, width = config.layers(), config.integer("hidden_size")
    first, sparse = leading(config, layers, dense)
    mixture = experts(config)
    yield from sparse_decoder(config, latent_attention(config, layers), first, mixture.works(width, sparse))
    yield from predictors(config, layers, lambda ahead: [*latent_attention(config, ahead), *mixture.works(width, ahead)])


def experts(config: Config) -> Mixture:
    """Return DeepSeek's experts: the shared ones are as many times an expert wide as `n_shared_experts` says."""
    inner = config.integer("moe_intermediate_size")
    chosen = choice(config, ("n_routed_experts", "num_experts", "num_local_experts"), ("num_experts_per_tok",))
    return Mixture(inner, *chosen, shared=inner * config.integer("n_shared_experts", least=0))


def latent_attention(config: Config, layers: Sequence[int], of: Quantity | None = None, stack: str = STACK) -> Iterator[Work]:
    """Yield multi-head latent attention: queries, keys and values expanded from narrow latents, over causal pairs or `of`."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    plain, rotated = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    values, rank = config.integer("v_head_dim"), config.integer("kv_lora_rank")
    if "q_lora_rank" not in config.values:  # null says that queries have no latent; absence says nothing
        raise config.missing("q_lora_rank")
    narrow, wide = config.optional("q_lora_rank"), heads * (plain + rotated)
    if narrow is None:
        query = "attention.q"
        yield matmul(query, TEXT, width, wide, layers, stack=stack, module="self_attn.q_proj", to=None)
    else:
        query = "attention.q_up"
        yield matmul("attention.q_down", TEXT, width, narrow, layers, stack=stack, module="self_attn.q_a_proj", to=None)
        reads = ("attention.q_down",)
        yield matmul(query, TEXT, narrow, wide, layers, stack=stack, module="self_attn.q_b_proj", reads=reads, to=None)
    down, up = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"
    yield matmul("attention.kv_down", TEXT, width, rank + rotated, layers, stack=stack, module=down, to=None)
    reads, columns = ("attention.kv_down",), heads * (plain + values)
    yield matmul("attention.kv_up", TEXT, rank, columns, layers, stack=stack, module=up, reads=reads, to=None)
    inputs = (query, "attention.kv_up", "attention.kv_up")
    yield from attention(of or pairs(), heads, plain + rotated, layers, value_dim=values, stack=stack, inputs=inputs)
    out = "self_attn.o_proj"
    yield matmul("attention.out", TEXT, heads * values, width, layers, stack=stack, module=out, reads=("attention.values",))
