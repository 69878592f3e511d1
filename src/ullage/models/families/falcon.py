"""Falcon: multi-query or grouped attention from one projection, an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, Layout, Shape, dense, family, head_dim, key_heads
from ullage.models.model import model
from ullage.models.work import Work

LAYOUT = Layout(
    *("transformer.h", "transformer.word_embeddings", ""),
    ("self_attention.query_key_value", "self_attention.dense"),
    ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
)


@model(
    *family("Falcon", LM, CLASSIFIER, TAGGER, BARE, kind="falcon"),
    *family("RW", LM, BARE),
    *("RefinedWeb", "RefinedWebModel"),
    source="transformers 5.23, models/falcon; verified to the integer against traces",
)
def falcon(config: Config) -> Iterator[Work]:
    """Falcon 7B (one head of keys and values), 40B and 180B (`num_kv_heads` of them), Falcon-RW (all), 11B.

    A step of T tokens costs 2T[L(h(n+2k)d + h² + 2hf) + Vh] + 4hL × pairs FLOPs forward. Falcon 3 is Llama's plan.
    """
    width, heads = config.integer("n_embed", "hidden_size"), config.integer("num_attention_heads", "n_head")
    grouped, single = config.flag("new_decoder_architecture"), config.flag("multi_query", True)
    keys = key_heads(config, heads, "num_kv_heads", "n_head_kv") if grouped else 1 if single else heads
    yield from dense(
        config,
        Shape(
            width=width,
            heads=heads,
            key_heads=keys,
            dim=head_dim(config.replaced(head_dim=None), width, heads),
            inner=config.integer("ffn_hidden_size", default=4 * width),
            vocabulary=config.integer("vocab_size"),
            layers=config.layers("num_hidden_layers", "n_layer"),
            gated=False,
        ),
        LAYOUT,
    )
