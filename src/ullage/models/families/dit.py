"""DiT: self-attention over the latents of an image, conditioned on a timestep and a class in every block by itself."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import ATTENTION, activation, feed_forward, heads_and_width, modulation, output_channels, square_patch, timestep
from ullage.models.model import model
from ullage.models.sample import ONCE
from ullage.models.work import Work, convolution, lookup, matmul

STACK = "transformer_blocks"
EMBEDDER = "norm1.emb.timestep_embedder"


@model(
    *("DiTTransformer2DModel", "DiTPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/dit_transformer_2d.py; verified to the integer against traces",
    shapes=("latent",),
)
def dit(config: Config) -> Iterator[Work]:
    """DiT, class-conditional images: every block owns a timestep MLP, and the head runs the first block's once more.

    With I tokens after patching a sample costs 2I[12Ld² + p²d(C_in + C_out)] + 4Ld·I² + 2(L + 1)(256d + d²) + 2(6Ld² + 2d²).
    There is no prompt; a class label is looked up.
    """
    grid = square_patch(config, 2)
    layers = config.layers("num_layers", default=28)
    heads, dim, width = heads_and_width(config, 16, 72)
    inputs = config.integer("in_channels", default=4)
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="pos_embed.proj", reads=("data",))
    yield lookup("class.embedding", ONCE, "norm1.emb.class_embedder.embedding_table", stack=STACK, to="vector")
    yield from timestep(256, width, EMBEDDER, layers=layers, stack=STACK)
    yield modulation(width, 6 * width, layers, name="modulation.latent", module="norm1.linear", stack=STACK)
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    kind = activation(config, "gelu-approximate")
    yield from feed_forward(width, 4 * width, layers, rows=grid.stream, activation=kind, stack=STACK)
    yield from timestep(256, width, f"{STACK}.0.{EMBEDDER}", name="output.time")
    yield modulation(width, 2 * width, name="output.modulation", module="proj_out_1")
    outputs = output_channels(config, inputs)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out_2")
