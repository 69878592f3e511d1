"""Cosmos-Predict: self-attention over the latents, cross-attention to the prompt, low-rank modulation before each part of a block."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import ATTENTION, cross_attention, feed_forward, heads_and_width, solid_patch, timestep
from ullage.models.model import model
from ullage.models.sample import ONCE, PROMPT, Quantity
from ullage.models.work import Work, lookup, matmul

STACK = "transformer_blocks"


@model(
    *("CosmosTransformer3DModel", "CosmosTextToWorldPipeline", "CosmosVideoToWorldPipeline", "Cosmos2TextToImagePipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_cosmos.py; verified to the integer against traces",
)
def cosmos(config: Config) -> Iterator[Work]:
    """Cosmos-Predict 1 and 2, with one timestep a sample.

    With I latent and P prompt tokens a sample costs 2I·L(6d² + 2df) + 4P·L·d·t + 4Ld(I² + IP) + 2I·v·d(C_in + C_out)
    + 2·4d² + 2[3L(da + 3ad) + da + 2ad], a being the rank of the modulation. Not covered, and refused: image context and
    projected prompts (Predict 2.5). Pipelines with a timestep per frame (Predict 2 video to world) modulate each token, which
    this does not count; they are not registered.
    """
    for field in ("img_context_dim_in", "use_crossattn_projection"):
        if config.values.get(field):
            raise config.error((field,), "is set, and no formula covers it", "--trace derives one from the model itself")
    grid = solid_patch(config, (1, 2, 2))
    layers = config.layers("num_layers", default=28)
    heads, dim, width = heads_and_width(config, 32, 128)
    inputs = config.integer("in_channels", default=16) + config.flag("concat_padding_mask", True)
    yield matmul("latent.patch", grid.latents, grid.volume * inputs, width, module="patch_embed.proj", reads=("data",))
    yield from timestep(width, width, "time_embed.t_embedder", outputs=3 * width)
    yield lookup("time.norm", ONCE, "time_embed.norm", to="normed timestep")  # its weights need the input's gradient
    rank = config.integer("adaln_lora_dim", default=256)
    yield from _modulation("attention", width, rank, layers, STACK, "norm1.")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=grid.stream, of=grid.pairs, stack=STACK, module="attn1", modules=ATTENTION
    )
    yield from _modulation("cross_attention", width, rank, layers, STACK, "norm2.")
    text = config.integer("text_embed_dim", default=1024)
    yield from cross_attention(
        width, heads, dim, layers, rows=grid.stream, source=PROMPT, of=grid.prompt_pairs, source_width=text, stack=STACK
    )
    yield from _modulation("mlp", width, rank, layers, STACK, "norm3.")
    inner = int(config.number("mlp_ratio", default=4.0) * width)
    yield from feed_forward(width, inner, layers, rows=grid.stream, stack=STACK)
    yield from _modulation("output", width, rank, range(1), "", "norm_out.", parts=2)
    yield matmul("output.proj", grid.stream, width, grid.volume * config.integer("out_channels", default=16), module="proj_out")


def _modulation(
    what: str, width: int, rank: int, layers: range, stack: str, module: str, parts: int = 3, rows: Quantity = ONCE
) -> Iterator[Work]:
    """Yield a modulation of low rank: down from the timestep's features, up to shift, scale and gate."""
    down, up = f"modulation.{what}_down", f"modulation.{what}_up"
    yield matmul(down, rows, width, rank, layers, stack=stack, module=f"{module}linear_1", reads=("normed timestep",), to=None)
    yield matmul(up, rows, rank, parts * width, layers, stack=stack, module=f"{module}linear_2", reads=(down,))
