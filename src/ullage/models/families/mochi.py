"""Mochi: latents and a narrower prompt in two streams, joined by attention; the prompt's last block stops at its keys and values."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import ATTENTION, feed_forward, heads_and_width, modulation, output_channels, prompt_tokens, square_patch, timestep
from ullage.models.model import model
from ullage.models.sample import ONCE, PROMPT, quantity
from ullage.models.work import Work, attention, convolution, matmul

STACK = "transformer_blocks"
POOL_HEADS = 8
POOLED = quantity("prompt tokens and their mean", lambda s: prompt_tokens(s) + 1)


@model(
    *("MochiTransformer3DModel", "MochiPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_mochi.py; verified to the integer against traces",
    left_out=("rope",),  # positions times learned frequencies: once a step whatever the batch, so that no sample pays for it
)
def mochi(config: Config) -> Iterator[Work]:
    """Mochi 1, text to video.

    With I latent and P prompt tokens, widths d and e: a block costs 2I(4d² + 3df) + 2P(4ed + 3eg) + 4d(I + P)², f = 8d/3,
    g = 8e/3, gated; the last one spares the prompt's output and MLP. The prompt counted is the one that attention sees:
    projections of padding are not in it, and the pooled prompt is one query over it and its mean. The product of positions with
    learned frequencies, once a step, is left out.
    """
    grid = square_patch(config, 2)
    layers = config.layers("num_layers", default=48)
    heads, dim, width = heads_and_width(config, 24, 128)
    inputs, narrow = config.integer("in_channels", default=12), config.integer("pooled_projection_dim", default=1536)
    yield from timestep(config.integer("time_embed_dim", default=256), width, "time_embed.timestep_embedder")
    yield from _embedders(config.integer("text_embed_dim", default=4096), width, narrow)
    side = grid.rows * grid.columns
    yield convolution("latent.patch", grid.latents, side, inputs, width, module="patch_embed.proj", reads=("data",))
    both, last = layers[:-1], layers[-1:]
    yield modulation(width, 4 * width, layers, name="modulation.latent", module="norm1.linear", stack=STACK)
    yield modulation(width, 4 * narrow, both, name="modulation.prompt", module="norm1_context.linear", stack=STACK)
    yield modulation(width, narrow, last, name="modulation.prompt_last", module="norm1_context.linear_1", stack=STACK)
    for what, module in zip(("q", "k", "v"), ATTENTION, strict=False):
        yield matmul(f"attention.{what}", grid.stream, width, width, layers, stack=STACK, module=f"attn1.{module}", to=None)
    for what in ("q", "k", "v"):
        name, path = f"attention.prompt_{what}", f"attn1.add_{what}_proj"
        yield matmul(name, PROMPT, narrow, width, layers, stack=STACK, module=path, reads=("prompt",), to=f"attention.{what}")
    yield from attention(grid.joint_pairs, heads, dim, layers, stack=STACK)
    made = ("attention.values",)
    yield matmul("attention.out", grid.stream, width, width, layers, stack=STACK, module="attn1.to_out.0", reads=made)
    yield matmul("attention.prompt_out", PROMPT, width, narrow, both, stack=STACK, module="attn1.to_add_out", reads=made, to="prompt")
    yield from feed_forward(width, 8 * width // 3, layers, rows=grid.stream, activation="swiglu", stack=STACK)
    yield from feed_forward(
        narrow,
        8 * narrow // 3,
        both,
        rows=PROMPT,
        activation="swiglu",
        stack=STACK,
        module="ff_context",
        name="mlp.prompt",
        stream="prompt",
    )
    yield modulation(width, 2 * width, name="output.modulation", module="norm_out.linear")
    yield matmul("output.proj", grid.stream, width, side * output_channels(config, inputs), module="proj_out")


def _embedders(text: int, width: int, narrow: int) -> Iterator[Work]:
    """Yield the prompt's projection, and its pooling by attention of its mean into the modulation vector."""
    path = "time_embed.pooler"
    yield matmul("pool.kv", POOLED, text, 2 * text, module=f"{path}.to_kv", reads=("data",), to=None)
    yield matmul("pool.q", ONCE, text, text, module=f"{path}.to_q", reads=("data",), to=None)
    yield from attention(POOLED, POOL_HEADS, text // POOL_HEADS, name="pool", inputs=("pool.q", "pool.kv", "pool.kv"))
    yield matmul("pool.out", ONCE, text, width, module=f"{path}.to_out", reads=("pool.values",), to="vector")
    yield matmul("prompt.proj", PROMPT, text, narrow, module="time_embed.caption_proj", reads=("data",), to="prompt")
