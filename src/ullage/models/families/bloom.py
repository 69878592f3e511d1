"""BLOOM and MPT: multi-head attention with linear biases for positions, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout, Shape, dense, family, head_dim
from ullage.models.model import model
from ullage.models.work import Work

BLOOM = Layout(
    *("transformer.h", "transformer.word_embeddings", ""),
    ("self_attention.query_key_value", "self_attention.dense"),
    ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
)
MPT = Layout("transformer.blocks", "transformer.wte", "", ("attn.Wqkv", "attn.out_proj"), ("ffn.up_proj", "ffn.down_proj"))


@model(*family("Bloom", LM, CLASSIFIER, BARE, kind="bloom"), source="transformers 5.23, models/bloom; verified against traces")
def bloom(config: Config) -> Iterator[Work]:
    """BLOOM, BLOOMZ: 2T[12Lh² + Vh] + 4hL × pairs FLOPs forward for T tokens; the MLP is always four times as wide."""
    width, heads = config.integer("n_embed", "hidden_size"), config.integer("n_head", "num_attention_heads")
    layers = config.layers("n_layer", "num_hidden_layers")
    yield from dense(config, _shape(config, width, heads, heads, 4 * width, layers), BLOOM)


@model(
    *family("Mpt", LM, CLASSIFIER, TAGGER, BARE, kind="mpt"),
    "MPTForCausalLM",
    source="transformers 5.23, models/mpt; verified to the integer against traces",
)
def mpt(config: Config) -> Iterator[Work]:
    """MPT: the same products; `expansion_ratio` widens the MLP, `attn_config` may give several queries fewer keys.

    transformers itself builds only multi-head attention and a ratio of 4; other values were read from the published code.
    """
    width, heads = config.integer("d_model", "hidden_size"), config.integer("n_heads", "num_attention_heads")
    attention = config.section("attn_config", optional=True)
    kind = attention.word("attn_type", default="multihead_attention")
    keys = {"multihead_attention": heads, "multiquery_attention": 1}.get(kind) or attention.integer("kv_n_heads")
    inner = config.integer("expansion_ratio", default=4) * width
    yield from dense(config, _shape(config, width, heads, keys, inner, config.layers("n_layers", "num_hidden_layers")), MPT)


def _shape(config: Config, width: int, heads: int, keys: int, inner: int, layers: range) -> Shape:
    dim = head_dim(config.replaced(head_dim=None), width, heads)
    return Shape(width, heads, keys, dim, inner, config.integer("vocab_size"), layers, gated=False)
