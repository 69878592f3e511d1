"""PixArt: self-attention over an image's latents, cross-attention to the prompt, one modulation for all layers."""

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
    output_channels,
    square_patch,
    text_projection,
    timestep,
)
from ullage.models.model import model
from ullage.models.sample import quantity
from ullage.models.work import Work, convolution, matmul

STACK = "transformer_blocks"
SIDES = quantity("sides of an image", lambda _: 2)


@model(
    *("PixArtTransformer2DModel", "PixArtAlphaPipeline", "PixArtSigmaPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/pixart_transformer_2d.py; verified to the integer against traces",
)
def pixart(config: Config) -> Iterator[Work]:
    """PixArt alpha and sigma, text to image; alpha at 1024 pixels also embeds the resolution and the aspect ratio.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·p²·d(C_in + C_out)
    + 2P(td + d²) + 2(256d + 7d²), and for the size 6(256d/3 + d²/9): height, width and aspect ratio.
    """
    grid = square_patch(config, 2)
    layers = config.layers("num_layers", default=28)
    heads, dim, width = heads_and_width(config, 16, 72)
    inputs = config.integer("in_channels", default=4)
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="pos_embed.proj", reads=("data",))
    yield from timestep(256, width, "adaln_single.emb.timestep_embedder")
    if config.flag("use_additional_conditions", config.integer("sample_size", default=128) == 128):
        third = width // 3
        yield from timestep(256, third, "adaln_single.emb.resolution_embedder", name="size.resolution", rows=SIDES)
        yield from timestep(256, third, "adaln_single.emb.aspect_ratio_embedder", name="size.aspect_ratio")
    yield modulation(width, 6 * width, name="modulation.shared", module="adaln_single.linear")
    if config.has("caption_channels"):
        yield from text_projection(config.integer("caption_channels"), width, "caption_projection")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    source = config.integer("cross_attention_dim", default=1152)
    yield from cross_attention(width, heads, dim, layers, rows=grid.stream, of=grid.prompt_pairs, source_width=source, stack=STACK)
    kind = activation(config, "gelu-approximate")
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=STACK)
    outputs = output_channels(config, inputs, 8)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out")
