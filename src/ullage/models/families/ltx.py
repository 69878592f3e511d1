"""LTX-Video: self-attention over packed latents, cross-attention to the prompt, one modulation for all layers."""

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
from ullage.models.sample import ONCE
from ullage.models.work import Work, matmul

STACK = "transformer_blocks"
PER_TOKEN = ("LTXImageToVideoPipeline", "LTXConditionPipeline")  # they give each token its own timestep


@model(
    *("LTXVideoTransformer3DModel", "LTXPipeline", *PER_TOKEN),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_ltx.py; verified to the integer against traces",
)
def ltx(config: Config) -> Iterator[Work]:
    """LTX-Video, text and image to video.

    With I latent and P prompt tokens a sample costs 2I·L·14d² + 4P·L·d·c + 4Ld(I² + IP) + 2I·d(C_in + C_out) + 2P(td + d²)
    + 2(256d + 7d²), c being the width of the prompt (= d). The last term counts per token instead of per sample in the
    image-to-video and condition pipelines, which set a timestep for each token; a bare transformer's config counts it once.
    """
    grid = square_patch(config, 1)
    layers = config.layers("num_layers", default=28)
    heads, dim, width = heads_and_width(config, 32, 64)
    inputs = config.integer("in_channels", default=128)
    rows = grid.stream if config.architecture in PER_TOKEN else ONCE
    yield matmul("latent.patch", grid.latents, inputs, width, module="proj_in", reads=("data",))
    yield from timestep(256, width, "time_embed.emb.timestep_embedder", rows=rows)
    yield modulation(width, 6 * width, name="modulation.shared", module="time_embed.linear", rows=rows)
    yield from text_projection(config.integer("caption_channels", default=4096), width, "caption_projection")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    source = config.integer("cross_attention_dim", default=2048)
    yield from cross_attention(width, heads, dim, layers, rows=grid.stream, of=grid.prompt_pairs, source_width=source, stack=STACK)
    kind = activation(config, "gelu-approximate")
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=STACK)
    outputs = output_channels(config, inputs, 128)
    yield matmul("output.proj", grid.stream, width, outputs, module="proj_out")
