"""Llama 4: attention in chunks in most layers, a shared expert beside the routed ones, and a vision tower for tiles of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.blocks import mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import head_dim, key_heads
from ullage.models.mixture import FUSED, Mixture, choice, parted, whole
from ullage.models.model import model
from ullage.models.sample import FULL, Convention, Quantity, Sample, pairs, quantity
from ullage.models.work import Work, matmul

SOURCE = "transformers 5.23, models/llama4; verified to the integer against traces, but for the experts that no token chose"
TILES = "vision_model.model.layers"


@model("Llama4ForCausalLM", "Llama4TextModel", "llama4_text", source=SOURCE)
def llama4(config: Config) -> Iterator[Work]:
    """Llama 4 Scout and Maverick, text: chunked attention, dense layers between sparse ones, a shared expert.

    Counted are the experts that a token is routed to. transformers runs every expert on every token and scales the others by
    zero: it executes 6·h·e·(E - t) FLOPs a token and sparse layer more, which no result needs.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    dim, groups = head_dim(config, width, heads), key_heads(config, heads)
    dense, sparse = interleaved(config, layers)
    inner = config.integer("intermediate_size")
    routed, active = choice(config, ("num_local_experts",), ("num_experts_per_tok",))
    mixture = Mixture(
        inner, routed, active, shared=inner, router="feed_forward.router", experts="feed_forward.experts", modules=FUSED,
        shared_module="feed_forward.shared_expert",
    )  # fmt: skip
    works: list[Work] = []
    for of, members in chunks(config, layers):
        works += self_attention(width, heads, groups, dim, members, of=of)
    if dense:
        works += mlp(width, config.integer("intermediate_size_mlp"), dense, gated=True, module="feed_forward")
    yield from whole(config, width, [*works, *mixture.works(width, sparse)])


@model("Llama4ForConditionalGeneration", "llama4", kind="vision-language", source=SOURCE)
def llama4_vision(config: Config) -> Iterator[Work]:
    """Llama 4 Scout and Maverick with their vision tower: each tile of an image is a grid of patches and one token more.

    The tower joins 2 × 2 patches (by `pixel_shuffle_ratio`) behind its layers, and two projections bring them into the text,
    where they count among its tokens. Text alone needs no tower.
    """
    text = config.section("text_config")
    yield from tower(config.section("vision_config"), text.integer("hidden_size"))
    for work in llama4(replace(text, architecture="Llama4ForCausalLM")):
        stack, module = (f"language_model.{path}" if path else "" for path in (work.stack, work.module))
        yield replace(work, stack=stack, module=work.module if work.stack else module)


def tower(config: Config, columns: int) -> Iterator[Work]:
    """Yield the vision tower: patches, layers over the tokens of a tile, the adapter and the projection to the text's width."""
    width, heads, layers = config.integer("hidden_size"), config.integer("num_attention_heads"), config.layers()
    side = round(1 / config.number("pixel_shuffle_ratio", default=0.5))
    taps = config.integer("num_channels", default=3) * config.integer("patch_size", default=14) ** 2
    patches = quantity("patches of tiles", lambda s: sum(t * r * c for t, r, c in s.grids))
    tokens = quantity("tokens of tiles", lambda s: sum(t * (r * c + 1) for t, r, c in s.grids))
    square = quantity("pairs of tiles", lambda s: sum(t * (r * c + 1) ** 2 for t, r, c in s.grids))
    merged = quantity(f"patches of tiles, {side}x{side} joined", lambda s: sum(t * (r // side) * (c // side) for t, r, c in s.grids))
    first = "vision_model.patch_embedding.linear"
    yield matmul("vision.patch", patches, taps, width, module=first, reads=("data",), to="vision")
    dim, inner = head_dim(config, width, heads), config.integer("intermediate_size")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=tokens, of=square, name="vision.attention", stack=TILES, stream="vision"
    )
    names = ("", "fc1", "fc2")
    yield from mlp(width, inner, layers, gated=False, rows=tokens, name="vision.mlp", stack=TILES, modules=names, stream="vision")
    narrow, wide = config.integer("projector_input_dim", default=4096), config.integer("projector_output_dim", default=4096)
    shuffled = [
        ("vision.merger.up", inner, narrow, "vision_model.vision_adapter.mlp.fc1", "vision"),
        ("vision.merger.down", wide, wide, "vision_model.vision_adapter.mlp.fc2", "vision.merger.up"),
    ]
    for name, inputs, outputs, module, read in shuffled:
        yield matmul(name, merged, inputs, outputs, module=module, reads=(read,), to=None)
    projector = "multi_modal_projector.linear_1"
    yield matmul("vision.projector", merged, wide, columns, module=projector, reads=("vision.merger.down",))


def interleaved(config: Config, layers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers: `moe_layers` names the sparse ones, else every `interleave_moe_layer_step`-th is."""
    listed = config.integers("moe_layers")
    if listed is not None:
        return parted(layers, lambda i: i not in set(listed))
    step = config.integer("interleave_moe_layer_step", default=1)
    return parted(layers, lambda i: (i + 1) % step != 0)


def chunks(config: Config, layers: Sequence[int]) -> list[tuple[Quantity, list[int]]]:
    """Return the layers by the pairs they see: those with rotary embeddings (three of four by default) see their chunk only."""
    size = config.optional("attention_chunk_size") if "attention_chunk_size" in config.values else 8192
    kinds = config.words("layer_types", len(layers), {"full_attention", "chunked_attention"})
    rotary = config.integers("no_rope_layers", len(layers)) if config.values.get("no_rope_layers") else None
    every = config.integer("no_rope_layer_interval", default=4)

    def chunked(layer: int) -> bool:
        if kinds:
            return kinds[layer] == "chunked_attention"
        return bool(rotary[layer]) if rotary else (layer + 1) % every != 0

    local, full = parted(layers, chunked)
    parts = [(pairs() if size is None else chunked_pairs(size), local), (pairs(), full)]
    return [(of, members) for of, members in parts if members]


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
