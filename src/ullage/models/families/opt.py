"""OPT, BioGPT and XGLM: decoders in BART's words, multi-head attention and an MLP without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import (
    BARE,
    CLASSIFIER,
    LM,
    Layout,
    Shape,
    decoder_attention,
    dense,
    embeddings,
    family,
    feed_forward,
    head_dim,
    output,
    placed,
)
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, matmul

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj")
MLP = ("fc1", "fc2")
OPT = Layout("model.decoder.layers", "model.decoder.embed_tokens", "model.decoder.embed_positions", ATTENTION, MLP)
BIOGPT = Layout("biogpt.layers", "biogpt.embed_tokens", "biogpt.embed_positions", ATTENTION, MLP, "output_projection")
XGLM = Layout("model.layers", "model.embed_tokens", "", ATTENTION, MLP)


@model(*family("OPT", LM, CLASSIFIER, BARE, kind="opt"), source="transformers 5.23, models/opt; verified to the integer against traces")
def opt(config: Config) -> Iterator[Work]:
    """OPT, Galactica: 2T[L(4h² + 2hf) + Ve + 2he] + 4hL × pairs FLOPs forward for T tokens.

    The term 2he only where embeddings are e wide and e is not h: a projection in, and one out (OPT-350M, e = 512).
    """
    shape = _shape(config, config.integer("hidden_size"), config.integer("num_attention_heads"), config.layers("num_hidden_layers"))
    layout = placed(config, OPT)
    narrow = config.integer("word_embed_proj_dim", default=shape.width)
    parent = layout.stack.rpartition(".")[0]
    yield from embeddings(layout)
    if narrow != shape.width:
        yield matmul("embedding.in", TEXT, narrow, shape.width, module=f"{parent}.project_in")
    yield from decoder_attention(shape, shape.layers, pairs(), layout)
    yield from feed_forward(shape.width, shape.inner, shape.layers, gated=False, stack=layout.stack, modules=MLP)
    if narrow != shape.width:
        yield matmul("embedding.out", TEXT, shape.width, narrow, module=f"{parent}.project_out")
    yield from output(config, narrow, shape.vocabulary)


@model(*family("BioGpt", LM, CLASSIFIER, BARE, kind="biogpt"), source="transformers 5.23, models/biogpt; verified against traces")
def biogpt(config: Config) -> Iterator[Work]:
    """BioGPT: OPT's block under its own paths."""
    config = config.replaced(ffn_dim=config.integer("intermediate_size"))
    yield from dense(
        config,
        _shape(config, config.integer("hidden_size"), config.integer("num_attention_heads"), config.layers("num_hidden_layers")),
        BIOGPT,
    )


@model(*family("XGLM", LM, BARE, kind="xglm"), source="transformers 5.23, models/xglm; verified to the integer against traces")
def xglm(config: Config) -> Iterator[Work]:
    """XGLM: OPT's block, with positions that are not learned."""
    width, heads = config.integer("d_model", "hidden_size"), config.integer("attention_heads", "num_attention_heads")
    yield from dense(config, _shape(config, width, heads, config.layers("num_layers", "num_hidden_layers")), XGLM)


def _shape(config: Config, width: int, heads: int, layers: range) -> Shape:
    return Shape(
        width=width,
        heads=heads,
        key_heads=heads,
        dim=head_dim(config.replaced(head_dim=None), width, heads),
        inner=config.integer("ffn_dim"),
        vocabulary=config.integer("vocab_size"),
        layers=layers,
        gated=False,
    )
