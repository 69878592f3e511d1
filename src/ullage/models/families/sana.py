"""Sana: linear attention over an image's latents, softmax cross-attention to the prompt, a gated MLP of convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import (
    ATTENTION,
    Grid,
    cross_attention,
    heads_and_width,
    modulation,
    output_channels,
    square_patch,
    text_projection,
    timestep,
)
from ullage.models.model import model
from ullage.models.work import Work, contraction, convolution, matmul

STACK = "transformer_blocks"


@model(
    *("SanaTransformer2DModel", "SanaPipeline", "SanaSprintPipeline", "SanaSprintImg2ImgPipeline", "SanaPAGPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/sana_transformer.py; verified to the integer against traces",
)
def sana(config: Config) -> Iterator[Work]:
    """Sana, Sana 1.5 and Sana-Sprint, text to image.

    Linear attention multiplies values, with a row of ones below them, by keys, and the result by queries: 4n(d + 1)d per
    token for n heads of width d, so nothing grows with the square of the tokens but the prompt's part. The MLP is
    a 1×1 convolution to twice its width m, a depthwise 3×3 (18 × 2m per token), a gate, and a 1×1 back.
    """
    grid = square_patch(config, 1)
    layers = config.layers("num_layers", default=20)
    width = heads_and_width(config, 70, 32)[2]
    inputs = config.integer("in_channels", default=32)
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="patch_embed.proj", reads=("data",))
    guided = config.flag("guidance_embeds")
    embedder = "time_embed" if guided else "time_embed.emb"
    yield from timestep(256, width, f"{embedder}.timestep_embedder")
    if guided:
        yield from timestep(256, width, f"{embedder}.guidance_embedder", name="guidance")
    yield modulation(width, 6 * width, name="modulation.shared", module="time_embed.linear")
    yield from text_projection(config.integer("caption_channels", default=2304), width, "caption_projection")
    yield from _linear_attention(config, grid, layers)
    heads = config.integer("num_cross_attention_heads", default=20)
    dim = config.integer("cross_attention_head_dim", default=112)
    source = config.integer("cross_attention_dim", default=2240)
    yield from cross_attention(width, heads, dim, layers, rows=grid.stream, of=grid.prompt_pairs, source_width=source, stack=STACK)
    yield from _convolutions(grid, width, int(config.number("mlp_ratio", default=2.5) * width), layers)
    outputs = output_channels(config, inputs, 32)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out")


def _linear_attention(config: Config, grid: Grid, layers: range) -> Iterator[Work]:
    """Yield the projections and the two products of attention without a softmax: keys × values first, then × queries."""
    heads, dim, width = heads_and_width(config, 70, 32)
    for what, module in zip(("q", "k", "v"), ATTENTION, strict=False):
        yield matmul(f"linear_attention.{what}", grid.stream, width, width, layers, stack=STACK, module=f"attn1.{module}", to=None)
    flops = 2 * heads * (dim + 1) * dim
    made = ("linear_attention.k", "linear_attention.v")
    yield contraction("linear_attention.state", grid.stream, flops, layers, stack=STACK, reads=made)
    reads = ("linear_attention.q", "linear_attention.state")
    yield contraction("linear_attention.values", grid.stream, flops, layers, stack=STACK, reads=reads)
    values = ("linear_attention.values",)
    yield matmul("linear_attention.out", grid.stream, width, width, layers, stack=STACK, module="attn1.to_out.0", reads=values)


def _convolutions(grid: Grid, width: int, inner: int, layers: range) -> Iterator[Work]:
    """Yield the gated MLP of convolutions: out, over the neighbours, back."""
    rows, both = grid.stream, 2 * inner
    yield convolution("mlp.gate_up", rows, 1, width, both, layers, stack=STACK, module="ff.conv_inverted", to=None)
    yield convolution(
        "mlp.depthwise", rows, 9, both, both, layers, groups=both, stack=STACK, module="ff.conv_depth", reads=("mlp.gate_up",), to=None
    )
    yield convolution("mlp.down", rows, 1, inner, width, layers, stack=STACK, module="ff.conv_point", reads=("mlp.depthwise",))
