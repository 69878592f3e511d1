"""ModernBERT's decoder: gate and up in one projection, a window in two of three layers, a dense layer before the head."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import Layout, Shape, decoder_attention, documented, embeddings, family, feed_forward, head_dim
from ullage.models.model import model
from ullage.models.plans import patterned, windows
from ullage.models.sample import LOGITS, pairs
from ullage.models.work import Work, matmul

LAYOUT = Layout(
    *("model.layers", "model.embeddings.tok_embeddings", ""),
    ("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.Wo"),
    ("mlp.Wi", "mlp.Wo"),
    "decoder",
)


@model(
    *family("ModernBertDecoder", "ForCausalLM", kind="modernbert-decoder"),
    source="transformers 5.23, models/modernbert_decoder; verified to the integer against traces",
)
def modernbert_decoder(config: Config) -> Iterator[Work]:
    """ModernBERT decoder, Ettin: Llama's products with multi-head attention, and h² more for each token that reaches the head.

    A window is half of `local_attention`; every third layer, the first of three, has none.
    """
    config = documented(config, local_attention=128, global_attn_every_n_layers=3)
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    local = config.integer("local_attention") // 2 if config.has("local_attention") else None
    spanned = patterned(config.replaced(sliding_window=local), layers, config.integer("global_attn_every_n_layers"), first=True)
    dim = head_dim(config.replaced(head_dim=None), width, heads)
    inner, vocabulary = config.integer("intermediate_size"), config.integer("vocab_size")
    shape = Shape(width, heads, heads, dim, inner, vocabulary, layers, gated=True, spans=windows(spanned, layers))
    yield from embeddings(LAYOUT)
    for window, members in shape.spans:
        yield from decoder_attention(shape, members, pairs(window), LAYOUT)
    yield from feed_forward(width, inner, layers, gated=True, modules=LAYOUT.mlp)
    yield matmul("head.dense", LOGITS, width, width, module="lm_head.dense")
    yield matmul("head", LOGITS, width, vocabulary, module=LAYOUT.head)
