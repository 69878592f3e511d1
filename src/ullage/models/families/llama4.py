"""Llama 4 with its vision tower for tiles of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.models.blocks import mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import head_dim
from ullage.models.model import MODELS, model
from ullage.models.sample import quantity
from ullage.models.work import Work, matmul

SOURCE = "transformers 5.23, models/llama4; verified to the integer against traces, but for the experts that no token chose"
TILES = "vision_model.model.layers"


@model("Llama4ForConditionalGeneration", "llama4", kind="vision-language", source=SOURCE)
def llama4_vision(config: Config) -> Iterator[Work]:
    """Llama 4 Scout and Maverick with their vision tower: each tile of an image is a grid of patches and one token more.

    The tower joins 2 × 2 patches (by `pixel_shuffle_ratio`) behind its layers, and two projections bring them into the text,
    where they count among its tokens. Text alone needs no tower.
    """
    text = config.section("text_config")
    yield from tower(config.section("vision_config"), text.integer("hidden_size"))
    for work in MODELS["llama4_text"].function(replace(text, architecture="Llama4ForCausalLM")):
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
