"""CogView 3-Plus and 4: prompt and latents of an image in one sequence through shared weights, modulated once a block."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import ATTENTION, Grid, feed_forward, heads_and_width, modulation, square_patch, timestep
from ullage.models.model import model
from ullage.models.sample import PROMPT
from ullage.models.work import Work, matmul

STACK = "transformer_blocks"


@model(
    *("CogView3PlusTransformer2DModel", "CogView3PlusPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_cogview3plus.py; verified to the integer against traces",
)
def cogview3(config: Config) -> Iterator[Work]:
    """CogView 3-Plus, text to image.

    With I latent and P prompt tokens a sample costs 2(I + P)·L·12d² + 4Ld(I + P)² + 2I·p²·d(C_in + C_out) + 2P·t·d
    + 2e(12Ld + 2d + d + e) + 2(6ce + e²), e being the width of the timestep's embedding, c that of a size's.
    """
    grid, layers, width = square_patch(config, 2), config.layers("num_layers", default=30), heads_and_width(config, 64, 40)[2]
    yield from _before_mlp(config, grid, layers)
    yield from feed_forward(width, 4 * width, layers, rows=grid.joint, stack=STACK)
    yield from _output(config, grid)


@model(
    *("CogView4Transformer2DModel", "CogView4Pipeline", "CogView4ControlPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_cogview4.py; verified to the integer against traces",
)
def cogview4(config: Config) -> Iterator[Work]:
    """CogView 4, text to image: as CogView 3-Plus, but the MLP runs over latents and prompt apart, the last time for nothing."""
    grid, layers, width = square_patch(config, 2), config.layers("num_layers", default=30), heads_and_width(config, 64, 40)[2]
    yield from _before_mlp(config, grid, layers)
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, stack=STACK)
    for part, gradient in ((layers[:-1], True), (layers[-1:], False)):
        if part:
            yield from feed_forward(width, 4 * width, part, rows=PROMPT, stack=STACK, name="mlp.prompt", gradient=gradient)
    yield from _output(config, grid)


def _before_mlp(config: Config, grid: Grid, layers: range) -> Iterator[Work]:
    """Yield the embedders of latents, prompt, timestep and sizes, and each block's modulation and attention."""
    heads, dim, width = heads_and_width(config, 64, 40)
    vector, sizes = config.integer("time_embed_dim", default=512), config.integer("condition_dim", default=256)
    inputs, text = config.integer("in_channels", default=16), config.integer("text_embed_dim", default=4096)
    yield matmul("latent.patch", grid.latents, grid.volume * inputs, width, module="patch_embed.proj", reads=("data",))
    yield matmul("prompt.proj", PROMPT, text, width, module="patch_embed.text_proj", reads=("data",))
    yield from timestep(width, vector, "time_condition_embed.timestep_embedder")
    yield from timestep(6 * sizes, vector, "time_condition_embed.condition_embedder", name="size")
    yield modulation(vector, 12 * width, layers, name="modulation.joint", module="norm1.linear", stack=STACK)
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.joint, of=grid.joint_pairs, stack=STACK, module="attn1", modules=ATTENTION
    )


def _output(config: Config, grid: Grid) -> Iterator[Work]:
    """Yield the last modulation and the projection of each latent token back to its patch."""
    width = heads_and_width(config, 64, 40)[2]
    yield modulation(config.integer("time_embed_dim", default=512), 2 * width, name="output.modulation", module="norm_out.linear")
    yield matmul("output.proj", grid.stream, width, grid.volume * config.integer("out_channels", default=16), module="proj_out")
