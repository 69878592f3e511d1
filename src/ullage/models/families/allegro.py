"""Allegro: self-attention over a video's latents, cross-attention to the prompt, one modulation for all layers."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    ATTENTION,
    activation,
    cross_attention,
    feed_forward,
    heads_and_width,
    modulation,
    square_patch,
    text_projection,
    timestep,
)
from ullage.models.model import model
from ullage.models.work import Work, convolution, matmul

STACK = "transformer_blocks"


@model(
    *("AllegroTransformer3DModel", "AllegroPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_allegro.py; verified to the integer against traces",
)
def allegro(config: Config) -> Iterator[Work]:
    """Allegro, text to video.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·p²·d(C_in + C_out)
    + 2P(td + d²) + 2(256d + 7d²).
    """
    grid = square_patch(config, 2)
    layers = config.layers("num_layers", default=32)
    heads, dim, width = heads_and_width(config, 24, 96)
    inputs, side = config.integer("in_channels", default=4), grid.rows * grid.columns
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    yield convolution("latent.patch", grid.latents, side, inputs, width, module="pos_embed.proj", reads=("data",))
    yield from text_projection(config.integer("caption_channels", default=4096), width, "caption_projection")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    source = config.integer("cross_attention_dim", default=2304)
    yield from cross_attention(width, heads, dim, layers, rows=grid.stream, of=grid.prompt_pairs, source_width=source, stack=STACK)
    kind = activation(config, "gelu-approximate")
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=STACK)
    yield matmul("output.proj", grid.stream, width, side * config.integer("out_channels", default=4), module="proj_out")
