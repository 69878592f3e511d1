"""Flux.2: blocks of two streams, then blocks of one, with one modulation for all blocks of a kind."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.families.flux import PACKED
from ullage.models.grids import Grid, square_patch
from ullage.models.latents import Stack, Streams, joint_attention, output, vectors
from ullage.models.model import model
from ullage.models.sample import ONCE, PROMPT, Quantity
from ullage.models.work import Work, attention, matmul


@model(
    *("Flux2Transformer2DModel", "Flux2Pipeline", "Flux2KleinPipeline", "Flux2KleinInpaintPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_flux2.py; verified to the integer against traces",
)
def flux2(config: Config) -> Iterator[Work]:
    """Flux.2 (dev, Klein): joint attention of two streams, then blocks of one sequence; gated MLPs; three modulations in all.

    With I latent tokens (2×2 latents each, reference images' tokens among them) and P prompt tokens a sample costs
    2[(4 + 3r)(L₂ + L₁)d²(I + P) + C·d·I + J·d·P + C_out·d·I + 17d² + e(256d + d²)] + 4(L₂ + L₁)d(I + P)², r the MLP ratio, e = 2 with a
    guidance embedding, else 1. Left out: the pipeline that keeps keys and values of reference images between timesteps.
    """
    heads, dim = config.integer("num_attention_heads", default=48), config.integer("attention_head_dim", default=128)
    double = Stack("transformer_blocks", config.layers("num_layers", default=8), heads, dim)
    single = Stack("single_transformer_blocks", config.layers("num_single_layers", default=48), heads, dim)
    width, inner = double.width, int(double.width * config.number("mlp_ratio", default=3.0))
    side = square_patch(config, 1).rows
    streams = Streams(Grid(1, *(PACKED if side == 1 else side,) * 2))
    channels = config.integer("timestep_guidance_channels", default=256)
    yield from vectors(width, "time_guidance_embed", pooled=None, guidance=config.flag("guidance_embeds", True), channels=channels)
    yield from _modulations(width, bool(single.layers))
    inputs, prompt = config.integer("in_channels", default=128), config.integer("joint_attention_dim", default=15360)
    yield matmul("latent.in", streams.latents, inputs, width, module="x_embedder", reads=("data",))
    yield matmul("prompt.in", PROMPT, prompt, width, module="context_embedder", reads=("data",), to="prompt")
    yield from joint_attention(streams, double, "used")
    yield from _mlp("mlp", streams.latents, "stream", "ff", double, inner)
    yield from _mlp("prompt.mlp", streams.prompts, "prompt", "ff_context", double, inner)
    yield from _single_blocks(streams, single, inner)
    yield from output(streams, width, side * side * config.integer("out_channels", default=inputs))


def _modulations(width: int, single: bool) -> Iterator[Work]:
    """Yield the modulations of latents, prompt and joint sequence, the last also where no block reads it."""
    for name, count, module, to in (
        ("modulation.latent", 6, "double_stream_modulation_img", "stream"),
        ("modulation.prompt", 6, "double_stream_modulation_txt", "prompt"),
        ("modulation.joint", 3, "single_stream_modulation", "stream"),
    ):
        flows = single or name != "modulation.joint"
        yield matmul(name, ONCE, width, count * width, module=f"{module}.linear", reads=("vector",), to=to, gradient=flows)


def _mlp(name: str, rows: Quantity, stream: str, module: str, stack: Stack, inner: int) -> Iterator[Work]:
    """Yield the gated feed-forward block of a stream, its gate fused with the way up."""
    width, up, down = stack.width, f"{module}.linear_in", f"{module}.linear_out"
    yield matmul(f"{name}.gate_up", rows, width, 2 * inner, stack.layers, stack=stack.path, module=up, reads=(stream,), to=None)
    yield matmul(f"{name}.down", rows, inner, width, stack.layers, stack=stack.path, module=down, reads=(f"{name}.gate_up",), to=stream)


def _single_blocks(streams: Streams, stack: Stack, inner: int) -> Iterator[Work]:
    """Yield blocks with one projection in (queries, keys, values, gate and up) and one out (of attention and feed-forward)."""
    width, layers, both = stack.width, stack.layers, ("stream", "prompt")
    name, columns = "fused.in", 3 * width + 2 * inner
    yield matmul(name, streams.joint, width, columns, layers, stack=stack.path, module="attn.to_qkv_mlp_proj", reads=both, to=None)
    yield from attention(streams.pairs, stack.heads, stack.dim, layers, stack=stack.path, inputs=(name, name, name))
    made = ("attention.values", name)
    yield matmul("fused.out", streams.joint, width + inner, width, layers, stack=stack.path, module="attn.to_out", reads=made)
