"""Stable Audio: self-attention over latents in time, cross-attention to the prompt, one global token for timestep and length."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import ATTENTION, Grid, cross_attention, feed_forward, heads_and_width, text_projection, timestep
from ullage.models.model import model
from ullage.models.sample import ONCE
from ullage.models.work import Work, contraction, convolution, matmul

STACK = "transformer_blocks"
LAYER = ("0", "2")  # an embedder is a sequence of linear, activation, linear


@model(
    *("StableAudioDiTModel", "StableAudioPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/stable_audio_transformer.py; verified to the integer against traces",
)
def stable_audio(config: Config) -> Iterator[Work]:
    """Stable Audio Open 1.0, text to audio: the latent grid is 1 × 1 × latents in time, and is not patched.

    The model puts one token before them; the prompt's tokens include the two for start and length that the pipeline appends.
    Cross-attention has fewer key than query heads; the MLP is gated. Fourier features of the timestep are a product of one
    column, counted and without a gradient.
    """
    grid = Grid(1, 1, 1, extra=1)
    layers = config.layers("num_layers", default=24)
    heads, dim, width = heads_and_width(config, 24, 64)
    source, inputs = config.integer("cross_attention_dim", default=768), config.integer("in_channels", default=64)
    text, features = config.integer("cross_attention_input_dim", default=768), config.integer("time_proj_dim", default=256)
    yield from text_projection(text, source, "cross_attention_proj", modules=LAYER)
    extent = config.integer("global_states_input_dim", default=1536)
    yield from timestep(extent, width, "global_proj", name="global", modules=LAYER, to="stream")
    yield contraction("time.fourier", ONCE, 2 * (features // 2), reads=("data",), gradient=False)
    yield from timestep(features, width, "timestep_proj", modules=LAYER, to="stream")
    yield convolution("latent.conv", grid.latents, 1, inputs, inputs, module="preprocess_conv", reads=("data",), to="latent")
    yield matmul("latent.patch", grid.latents, inputs, width, module="proj_in", reads=("latent",))
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    keys = config.integer("num_key_value_attention_heads", default=12)
    yield from cross_attention(
        width, heads, dim, layers, rows=grid.stream, of=grid.prompt_pairs, source_width=source, key_heads=keys, stack=STACK
    )
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation="swiglu", stack=STACK)
    outputs = config.integer("out_channels", default=64)
    yield matmul("output.proj", grid.stream, width, outputs, module="proj_out", to="output")
    yield convolution("output.conv", grid.latents, 1, outputs, outputs, module="postprocess_conv", reads=("output",), to="output")
