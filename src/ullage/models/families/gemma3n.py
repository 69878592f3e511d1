"""Gemma 3n: alternating updates over several residual streams, a low-rank side branch, embeddings per layer, shared keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, mlp
from ullage.models.config import Config
from ullage.models.decoders import LM, documented, family, head_dim, key_heads, output, patterned, windows
from ullage.models.model import model
from ullage.models.per_layer import STACK, per_layer_embedding, per_layer_input, shared_from, sharing_attention
from ullage.models.sample import TEXT, pairs
from ullage.models.work import Work, contraction, matmul

SIZES = {"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "vocab_size": 262_400, "intermediate_size": 16_384}
SMALL = {"num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512, "num_kv_shared_layers": 15}
FIELDS = {**SMALL, "altup_num_inputs": 4, "laurel_rank": 64, "hidden_size_per_layer_input": 256}


@model(*family("Gemma3n", LM, kind="gemma3n_text"), source="transformers 5.23, models/gemma3n; verified to the integer against traces")
def gemma3n(config: Config) -> Iterator[Work]:
    """Gemma 3n's text model (E2B, E4B): all its layers at full width, as the released configuration lists them.

    Beside attention and the gated MLP a layer spends 2T[2hA + A³ + A² + hA² + 2hr + 2hp] FLOPs, with A residual streams, a
    side branch of rank r and embeddings p wide for each layer; before and after all layers, 2T[2(A−1)h² + hpL]. The last
    layers read the keys and values of earlier ones and project none. The sparsity of the first MLPs saves nothing here.
    """
    yield from decoder(config)


def decoder(config: Config) -> Iterator[Work]:
    """Yield the work of a Gemma 3n text model; for a `text_config`, its section."""
    config = documented(config, **FIELDS)
    if config.path:
        config = documented(config, **SIZES)
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
