"""What Gemma 3n and 4 share: an embedding of its own for each layer, and layers that read the keys and values of earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, self_attention
from ullage.models.config import Config
from ullage.models.sample import TEXT, Quantity
from ullage.models.work import Work, attention, matmul

STACK = "model.layers"
PROJECTED = "embedding.per_layer"


def per_layer_embedding(width: int, inner: int, layers: range) -> Iterator[Work]:
    """Yield the table of the layers' own embeddings, and their projection from the token's, for all layers at once."""
    yield embedding(module="model.embed_tokens_per_layer")
    yield matmul(PROJECTED, TEXT, width, inner * len(layers), module="model.per_layer_model_projection", to=None)


def per_layer_input(width: int, inner: int, layers: range) -> Iterator[Work]:
    """Yield what ends each layer: a gate down to its own embedding's width, times that embedding, and up again."""
    yield matmul("per_layer.gate", TEXT, width, inner, layers, stack=STACK, module="per_layer_input_gate", to=None)
    reads = ("per_layer.gate", PROJECTED)
    yield matmul("per_layer.projection", TEXT, inner, width, layers, stack=STACK, module="per_layer_projection", reads=reads)


def shared_from(config: Config, layers: range, default: int) -> int:
    """Return the first layer that reads keys and values of earlier ones instead of making its own."""
    shared = config.integer("num_kv_shared_layers", default=default, least=0)
    if shared and shared >= len(layers):
        raise config.error(("num_kv_shared_layers",), f"is {shared}, and some of the {len(layers)} layers must make keys")
    return len(layers) - shared


def sharing_attention(
    width: int, heads: int, key_heads: int, dim: int, members: Sequence[int], first: int, of: Quantity, values: bool = True
) -> Iterator[Work]:
    """Yield the attention of some layers: with its own keys and values before layer `first`, with those of earlier layers from there.

    Without `values` the keys are the values too.
    """
    own, shared = [i for i in members if i < first], [i for i in members if i >= first]
    if own and values:
        yield from self_attention(width, heads, key_heads, dim, own, of=of)
    elif own:
        yield matmul("attention.q", TEXT, width, heads * dim, own, stack=STACK, module="self_attn.q_proj", to=None)
        yield matmul("attention.k", TEXT, width, key_heads * dim, own, stack=STACK, module="self_attn.k_proj", to=None)
        yield from _attended(width, heads, dim, own, of, "attention.k")
    if shared:
        yield matmul("attention.q", TEXT, width, heads * dim, shared, stack=STACK, module="self_attn.q_proj", to=None)
        yield from _attended(width, heads, dim, shared, of, "attention.v" if values else "attention.k")


def _attended(width: int, heads: int, dim: int, members: Sequence[int], of: Quantity, values: str) -> Iterator[Work]:
    yield from attention(of, heads, dim, members, stack=STACK, inputs=("attention.q", "attention.k", values))
    reads = ("attention.values",)
    yield matmul("attention.out", TEXT, heads * dim, width, members, stack=STACK, module="self_attn.o_proj", reads=reads)
