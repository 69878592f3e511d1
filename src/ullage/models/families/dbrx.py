"""DBRX: sixteen fine-grained experts in every layer, queries, keys and values from one projection."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Mixture, choice, whole
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, attention, matmul

BLOCKS = "transformer.blocks"


@model(
    *family("Dbrx", LM, BARE, kind="dbrx"),
    source="transformers 5.23, models/dbrx; verified to the integer against traces",
)
def dbrx(config: Config) -> Iterator[Work]:
    """DBRX: grouped-query attention, then `moe_top_k` of `moe_num_experts` gated experts of width `ffn_hidden_size`."""
    yield from whole(config, config.integer("d_model", "hidden_size"), blocks(config), "transformer.wte")


def blocks(config: Config) -> Iterator[Work]:
    """Yield the works of all layers."""
    layers = config.layers("n_layers", "num_hidden_layers")
    width, heads = config.integer("d_model", "hidden_size"), config.integer("n_heads", "num_attention_heads")
    dim, key_heads = width // heads, config.section("attn_config").integer("kv_n_heads")
    ffn = config.section("ffn_config")
    mixture = Mixture(
        ffn.integer("ffn_hidden_size"), *choice(ffn, ("moe_num_experts",), ("moe_top_k",)),
        router="ffn.router.layer", experts="ffn.experts.mlp", modules=("w1", "v1", "w2"),
    )  # fmt: skip
    block = "norm_attn_norm.attn"
    columns = width + 2 * key_heads * dim
    yield matmul("attention.qkv", TEXT, width, columns, layers, stack=BLOCKS, module=f"{block}.Wqkv", to=None)
    inputs = ("attention.qkv", "attention.qkv", "attention.qkv")
    yield from attention(pairs(), heads, dim, layers, stack=BLOCKS, inputs=inputs)
    yield matmul("attention.out", TEXT, width, width, layers, stack=BLOCKS, module=f"{block}.out_proj", reads=("attention.values",))
    yield from mixture.works(width, layers, BLOCKS)
