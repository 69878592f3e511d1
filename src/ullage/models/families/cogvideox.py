"""CogVideoX: prompt and latents in one sequence through shared weights, modulated by the timestep twice a block."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import ATTENTION, activation, feed_forward, heads_and_width, modulation, square_patch, timestep
from ullage.models.model import model
from ullage.models.sample import PROMPT
from ullage.models.work import Work, convolution, matmul

STACK = "transformer_blocks"


@model(
    *("CogVideoXTransformer3DModel", "CogVideoXPipeline", "CogVideoXImageToVideoPipeline", "CogVideoXVideoToVideoPipeline"),
    *("CogVideoXFunControlPipeline",),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/cogvideox_transformer_3d.py; verified to the integer against traces",
)
def cogvideox(config: Config) -> Iterator[Work]:
    """CogVideoX 1.0 and 1.5 (2B, 5B), text and image to video.

    With I latent and P prompt tokens a sample costs 2(I + P)·L·12d² + 4Ld(I + P)² + 2I·v·d(C_in + C_out) + 2P·t·d
    + 2e(12Ld + 2d + d + e), e being the width of the timestep's embedding. The image of image-to-video comes as channels.
    """
    grid = square_patch(config, 2)
    layers = config.layers("num_layers", default=30)
    heads, dim, width = heads_and_width(config, 30, 64)
    inputs, vector = config.integer("in_channels", default=16), config.integer("time_embed_dim", default=512)
    yield from timestep(width, vector, "time_embedding")
    offset = config.optional("ofs_embed_dim")
    if offset is not None:
        yield from timestep(offset, offset, "ofs_embedding", name="offset")
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="patch_embed.proj", reads=("data",))
    text = config.integer("text_embed_dim", default=4096)
    yield matmul("prompt.proj", PROMPT, text, width, module="patch_embed.text_proj", reads=("data",))
    yield modulation(vector, 6 * width, layers, name="modulation.attention", module="norm1.linear", stack=STACK)
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.joint, of=grid.joint_pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    yield modulation(vector, 6 * width, layers, name="modulation.mlp", module="norm2.linear", stack=STACK)
    kind = activation(config, "gelu-approximate")
    yield from feed_forward(width, 4 * width, layers, rows=grid.joint, activation=kind, stack=STACK)
    yield modulation(vector, 2 * width, name="output.modulation", module="norm_out.linear")
    outputs = config.integer("out_channels", default=16)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out")
