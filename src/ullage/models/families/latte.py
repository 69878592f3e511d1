"""Latte: blocks within a frame and blocks across frames in turn, one modulation for all layers."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    ATTENTION,
    Grid,
    activation,
    cross_attention,
    feed_forward,
    heads_and_width,
    modulation,
    output_channels,
    prompt_tokens,
    text_projection,
    timestep,
)
from ullage.models.model import model
from ullage.models.sample import Sample, quantity, required
from ullage.models.work import Work, convolution, matmul

SPACE, TIME = "transformer_blocks", "temporal_transformer_blocks"


@model(
    *("LatteTransformer3DModel", "LattePipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/latte_transformer_3d.py; verified to the integer against traces",
)
def latte(config: Config) -> Iterator[Work]:
    """Latte, text to video.

    With F frames of I tokens each and P prompt tokens, a layer within the frames costs 2FI·14d² + 4FP·d·c + 4dF(I² + IP), a layer
    across them 2FI·12d² + 4dI·F². The prompt's keys and values are computed for each frame anew, as the implementation does.
    """
    side = config.integer("patch_size", most=1024)
    grid = Grid(1, side, side)
    layers = config.layers("num_layers", default=1)
    heads, dim, width = heads_and_width(config, 16, 88)
    kind, inputs = activation(config, "geglu"), config.integer("in_channels")
    within = quantity(f"latent pairs within frames, {grid.name}", lambda s: frames(s) * (grid.tokens(s) // frames(s)) ** 2)
    across = quantity(f"latent pairs across frames, {grid.name}", lambda s: grid.tokens(s) * frames(s))
    prompts = quantity("prompt tokens of all frames", lambda s: frames(s) * prompt_tokens(s))
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="pos_embed.proj", reads=("data",))
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    yield from text_projection(config.integer("caption_channels"), width, "caption_projection")
    yield from self_attention(width, heads, heads, dim, layers, rows=grid.stream, of=within, stack=SPACE, module="attn1", modules=ATTENTION)
    yield from cross_attention(
        width, heads, dim, layers, rows=grid.stream, source=prompts, of=grid.prompt_pairs, stack=SPACE,
        source_width=config.integer("cross_attention_dim"),
    )  # fmt: skip
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=SPACE)
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=across, name="attention.time", stack=TIME, module="attn1", modules=ATTENTION
    )
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=TIME, name="mlp.time")
    outputs = output_channels(config, inputs)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out")


def frames(sample: Sample) -> int:
    """Return the frames of a sample's grid: attention here does not see the whole, so the number of tokens would not do."""
    return required("--latent", sample.latent and sample.latent[0], "a grid of latents (frames, rows, columns)")
