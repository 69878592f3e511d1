"""Flux.1: blocks of two streams, then blocks of one; its variants for editing, filling and control; the ControlNet."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import Grid, square_patch
from ullage.models.latents import Ending, Stack, Streams, feed_forwards, fused_blocks, joint_attention, modulations, output, vectors
from ullage.models.model import model
from ullage.models.sample import PROMPT, Quantity, quantity
from ullage.models.work import Work, convolution, matmul

PACKED = 2  # pipelines pack 2×2 latents into a token before the model sees them; `patch_size` (1) comes on top


@model(
    *("FluxTransformer2DModel", "FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline", "FluxFillPipeline"),
    *("FluxKontextPipeline", "FluxKontextInpaintPipeline", "FluxControlPipeline", "FluxControlImg2ImgPipeline"),
    *("FluxControlInpaintPipeline", "FluxControlNetPipeline", "FluxControlNetImg2ImgPipeline", "FluxControlNetInpaintPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_flux.py; verified to the integer against traces",
)
def flux(config: Config) -> Iterator[Work]:
    """Flux.1 (dev, schnell, Fill, Kontext, Control): joint attention of two streams, then blocks of one sequence.

    With I latent tokens (2×2 latents each) and P prompt tokens a sample costs 2[12(L₂ + L₁)d²(I + P) + C·d·I + J·d·P +
    C_out·d·I + (12L₂ + 3L₁ + 2)d² + e(256d + d²) + C_pooled·d + d²] + 4(L₂ + L₁)d(I + P)², e = 2 with a guidance embedding, else 1.
    Kontext's reference images join the latent tokens; image-to-image, inpainting and ControlNet do not lengthen the
    sequence; Fill and Control widen the channels (`in_channels`). Redux adds its tokens to the prompt. IP-Adapters are left out.
    """
    streams, width = _streams(config), _width(config)
    double, single = _stacks(config)
    inputs = config.integer("in_channels", default=64)
    yield matmul("latent.in", streams.latents, inputs, width, module="x_embedder", reads=("data",))
    yield from _conditions(config, width)
    yield from _blocks(streams, double, single)
    side = config.integer("patch_size", default=1, most=1024)
    yield from output(streams, width, side * side * config.integer("out_channels", default=inputs))


@model(
    "FluxControlNetModel",
    kind="diffusion",
    source="diffusers 0.42, models/controlnets/controlnet_flux.py; verified to the integer against traces",
)
def flux_controlnet(config: Config) -> Iterator[Work]:
    """The ControlNet of Flux.1 alone, one of several modes too: its blocks, and a projection of each one's output.

    With `num_mode` a token for the mode joins the prompt; with `conditioning_embedding_channels` convolutions bring the
    control image from pixels (8 × 8 a latent) to latents.
    """
    streams, width = _streams(config, registers=1 if config.has("num_mode") else 0), _width(config)
    double, single = _stacks(config)
    inputs = config.integer("in_channels", default=64)
    yield matmul("latent.in", streams.latents, inputs, width, module="x_embedder", reads=("data",))
    hint = config.optional("conditioning_embedding_channels")
    if hint:
        yield from _hint(streams, config.integer("patch_size", default=1, most=1024), hint)
    reads = "hint" if hint else "data"
    yield matmul("control.in", streams.latents, inputs, width, module="controlnet_x_embedder", reads=(reads,))
    yield from _conditions(config, width)
    yield from _blocks(streams, double, single)
    for stack, path in ((double, "controlnet_blocks"), (single, "controlnet_single_blocks")):
        yield matmul("control.out", streams.latents, width, width, stack.layers, stack=path, to=None)


def _width(config: Config) -> int:
    return config.integer("num_attention_heads", default=24) * config.integer("attention_head_dim", default=128)


def _streams(config: Config, registers: int = 0) -> Streams:
    """Return the streams; a token is what the pipeline packs, or what `patch_size` says where the model is told of the packing."""
    side = square_patch(config, 1).rows
    side = PACKED if side == 1 else side
    return Streams(Grid(1, side, side), registers)


def _stacks(config: Config) -> tuple[Stack, Stack]:
    heads, dim = config.integer("num_attention_heads", default=24), config.integer("attention_head_dim", default=128)
    double = Stack("transformer_blocks", config.layers("num_layers", default=19), heads, dim)
    return double, Stack("single_transformer_blocks", config.layers("num_single_layers", default=38), heads, dim)


def _conditions(config: Config, width: int) -> Iterator[Work]:
    pooled = config.integer("pooled_projection_dim", default=768)
    yield from vectors(width, "time_text_embed", pooled=pooled, guidance=config.flag("guidance_embeds"))
    prompt = config.integer("joint_attention_dim", default=4096)
    yield matmul("prompt.in", PROMPT, prompt, width, module="context_embedder", reads=("data",), to="prompt")


def _blocks(streams: Streams, double: Stack, single: Stack) -> Iterator[Work]:
    ending: Ending = "used" if single.layers else "unused"
    yield from modulations(double)
    yield from joint_attention(streams, double, ending)
    yield from feed_forwards(streams, double, 4 * double.width, ending)
    yield from fused_blocks(streams, single, 4 * single.width, modules=("proj_mlp", "proj_out"))


def _hint(streams: Streams, side: int, channels: int) -> Iterator[Work]:
    """Yield the convolutions from the pixels of the control image to its latents: three of them halve both sides."""

    def positions(times: int) -> Quantity:
        per_token = side * side * times
        return quantity(f"control pixels, {per_token} a token, {streams.name}", lambda s: streams.latent(s) * per_token)

    base, reads = "input_hint_block", "data"
    for name, where, times, inputs, outputs in (
        ("hint.in", "conv_in", 64, 3, 16),
        *((f"hint.{i}", f"blocks.{i}", 4 ** (3 - (i + 1) // 2), 16, 16) for i in range(6)),
        ("hint.out", "conv_out", 1, 16, channels),
    ):
        yield convolution(name, positions(times), 9, inputs, outputs, module=f"{base}.{where}", reads=(reads,), to="hint")
        reads = "hint"
