"""Gemma 3n and 4: an embedding of its own for each layer, and layers that read the keys and values of earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ullage.models.blocks import embedding, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import FULL_ATTENTION, LM, documented, family, head_dim, key_heads, output, patterned, windows
from ullage.models.model import transformers_model
from ullage.models.sample import TEXT, Quantity, pairs
from ullage.models.work import Work, attention, contraction, matmul

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


GEMMA3N_SIZES = {"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "vocab_size": 262_400, "intermediate_size": 16_384}
SMALL = {"num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "num_kv_shared_layers": 15}
GEMMA3N_FIELDS = {**SMALL, "altup_num_inputs": 4, "laurel_rank": 64, "hidden_size_per_layer_input": 256}


@transformers_model("models/gemma3n", *family("Gemma3n", LM, kind="gemma3n_text"))
def gemma3n(config: Config) -> Iterator[Work]:
    """Gemma 3n's text model (E2B, E4B): all its layers at full width, as the released configuration lists them.

    Beside attention and the gated MLP a layer spends 2T[2hA + A³ + A² + hA² + 2hr + 2hp] FLOPs, with A residual streams, a
    side branch of rank r and embeddings p wide for each layer; before and after all layers, 2T[2(A−1)h² + hpL]. The last
    layers read the keys and values of earlier ones and project none. The sparsity of the first MLPs saves nothing here.
    """
    yield from gemma3n_decoder(config)


def gemma3n_decoder(config: Config) -> Iterator[Work]:
    """Yield the work of a Gemma 3n text model; for a `text_config`, its section."""
    config = documented(config, **GEMMA3N_FIELDS)
    if config.path:
        config = documented(config, **GEMMA3N_SIZES)
    layers, width = config.layers(), config.integer("hidden_size")
    heads, streams = config.integer("num_attention_heads"), config.integer("altup_num_inputs")
    inner, rank = config.integer("hidden_size_per_layer_input"), config.integer("laurel_rank")
    first = shared_from(config, layers, default=15)
    yield embedding()
    yield from per_layer_embedding(width, inner, layers)
    yield matmul("altup.project", TEXT, width, width, range(streams - 1), stack="model.altup_projections")
    yield from _predicted(width, streams, layers)
    yield matmul("laurel.left", TEXT, width, rank, layers, stack=STACK, module="laurel.linear_left", to=None)
    yield matmul("laurel.right", TEXT, rank, width, layers, stack=STACK, module="laurel.linear_right", reads=("laurel.left",))
    keys, dim = key_heads(config, heads), head_dim(config, width, heads)
    for window, members in windows(patterned(config, layers, every=5), layers):
        yield from sharing_attention(width, heads, keys, dim, members, first, pairs(window))
    for columns, members in _inner(config, layers):
        yield from mlp(width, columns, members, gated=True)
    yield from _corrected(width, streams, layers)
    yield from per_layer_input(width, inner, layers)
    yield matmul("altup.unproject", TEXT, width, width, range(streams - 1), stack="model.altup_unembed_projections")
    yield from output(config, width, config.integer("vocab_size"))


def _predicted(width: int, streams: int, layers: range) -> Iterator[Work]:
    """Yield the prediction of all residual streams from the active one: a router, coefficients, and their product with the streams."""
    router, coefficients = "altup.predict_router", "altup.predict_coefficients"
    yield matmul(router, TEXT, width, streams, layers, stack=STACK, module="altup.modality_router", to=None)
    yield matmul(coefficients, TEXT, streams, streams**2, layers, stack=STACK, module="altup.prediction_coefs", reads=(router,), to=None)
    yield contraction("altup.predict", TEXT, 2 * width * streams**2, layers, stack=STACK, reads=("stream", coefficients), to="stream")


def _corrected(width: int, streams: int, layers: range) -> Iterator[Work]:
    """Yield the correction of the streams by the layer's result: the same router again, and a coefficient for each stream."""
    router = "altup.correct_router"
    yield matmul(router, TEXT, width, streams, layers, stack=STACK, module="altup.modality_router", to=None)
    yield matmul(
        *("altup.correct_coefficients", TEXT, streams, streams, layers), stack=STACK, module="altup.correction_coefs", reads=(router,)
    )


def _inner(config: Config, layers: range) -> list[tuple[int, list[int]]]:
    """Return the widths of the MLP, each with its layers: `intermediate_size` is one number, or one for each layer."""
    if isinstance(config.values.get("intermediate_size"), list | tuple):
        columns = config.integers("intermediate_size", len(layers), least=1) or []
    else:
        columns = [config.integer("intermediate_size")] * len(layers)
    return [(c, [i for i in layers if columns[i] == c]) for c in sorted(set(columns))]


GEMMA4_SIZES = {"hidden_size": 2304, "num_hidden_layers": 30, "num_attention_heads": 8, "vocab_size": 262_144, "intermediate_size": 9216}
GEMMA4_FIELDS = {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512, "hidden_size_per_layer_input": 256}
GLOBAL_DIM = 512


@transformers_model("models/gemma4", *family("Gemma4", LM, kind="gemma4_text"))
def gemma4(config: Config) -> Iterator[Work]:
    """Gemma 4's text model, dense (E2B, E4B, 31B) or with routed experts beside the dense MLP (26B-A4B).

    Layers with a window have heads `head_dim` wide, the others `global_head_dim`; where `attention_k_eq_v`, these take their
    keys as values. The last `num_kv_shared_layers` project no keys and values, and may have an MLP twice as wide.
    """
    yield from gemma4_decoder(config)


def gemma4_decoder(config: Config) -> Iterator[Work]:
    """Yield the work of a Gemma 4 text model; for a `text_config`, its section."""
    if config.values.get("use_bidirectional_attention") == "all":
        raise config.error(("use_bidirectional_attention",), "is 'all', and only the decoder is known here")
    config = documented(config, **GEMMA4_FIELDS)
    if config.path:
        config = documented(config, **GEMMA4_SIZES)
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    config = _last_full(patterned(config, layers, every=6), layers)
    first = shared_from(config, layers, default=0)
    inner = config.integer("hidden_size_per_layer_input", default=0, least=0)
    yield embedding()
    if inner:
        yield from per_layer_embedding(width, inner, layers)
    for window, members in windows(config, layers):
        shape = config if window else _global(config, members)
        keys, dim = key_heads(shape, heads), shape.integer("head_dim")
        values = bool(window) or not config.flag("attention_k_eq_v")
        yield from sharing_attention(width, heads, keys, dim, members, first, pairs(window), values)
    columns = config.integer("intermediate_size")
    yield from mlp(width, columns, layers[:first], gated=True)
    yield from mlp(width, columns * (2 if config.flag("use_double_wide_mlp") else 1), layers[first:], gated=True)
    if config.flag("enable_moe_block"):
        yield from _experts(config, width, layers)
    if inner:
        yield from per_layer_input(width, inner, layers)
    yield from output(config, width, config.integer("vocab_size"))


def _last_full(config: Config, layers: range) -> Config:
    """Return the configuration with its last layer full, whatever the list says: the class insists on it."""
    kinds = config.words("layer_types", len(layers)) or []
    return config.replaced(layer_types=[*kinds[:-1], FULL_ATTENTION])


def _global(config: Config, members: list[int]) -> Config:
    """Return the configuration of the layers without a window: their own heads, by name or by `per_layer_config`."""
    overrides: Any = config.values.get("per_layer_config")
    if isinstance(overrides, Mapping):
        told = {str(key).lstrip("0") or "0": fields for key, fields in overrides.items()}  # the library writes "05" beside "11"
        found = [told.get(str(i)) or {} for i in members]
        if not all(isinstance(f, Mapping) for f in found) or any(f != found[0] for f in found):
            raise config.error(("per_layer_config",), "must be one section, the same for each layer without a window")
        known = {name: value for name, value in found[0].items() if name in ("head_dim", "num_key_value_heads")}
        return config.replaced(**known)
    dim = config.integer("global_head_dim", default=GLOBAL_DIM)
    if config.flag("attention_k_eq_v") and config.has("num_global_key_value_heads"):
        return config.replaced(head_dim=dim, num_key_value_heads=config.integer("num_global_key_value_heads"))
    return config.replaced(head_dim=dim)


def _experts(config: Config, width: int, layers: range) -> Iterator[Work]:
    """Yield the router and the experts of each layer, which read what the dense MLP reads."""
    inner, active = config.integer("moe_intermediate_size"), config.integer("top_k_experts")
    yield matmul("moe.router", TEXT, width, config.integer("num_experts"), layers, stack=STACK, module="router.proj", to=None)
    yield from mlp(width, inner, layers, gated=True, name="moe.experts", module="experts", times=active)
