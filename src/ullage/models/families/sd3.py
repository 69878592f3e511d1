"""Stable Diffusion 3 and 3.5: latents and prompt in two streams, joined in attention; the ControlNets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.models.config import Config
from ullage.models.grids import feed_forward, modulation, square_patch
from ullage.models.latents import (
    Ending,
    Stack,
    Streams,
    feed_forwards,
    joint_attention,
    output,
    prompt_modulation,
    same_width,
    single_attention,
    vectors,
)
from ullage.models.model import model
from ullage.models.sample import PROMPT
from ullage.models.work import Work, convolution, matmul


@model(
    *("SD3Transformer2DModel", "StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline", "StableDiffusion3InpaintPipeline"),
    *("StableDiffusion3ControlNetPipeline", "StableDiffusion3ControlNetInpaintingPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_sd3.py; verified to the integer against traces",
)
def sd3(config: Config) -> Iterator[Work]:
    """Stable Diffusion 3 and 3.5 (medium, large): joint attention of two streams; 3.5 medium attends to the latents once more.

    With I latent and P prompt tokens a sample costs 2[12Ld²·I + (12L − 9)d²·P + p²d(C_in + C_out)·I + J·d·P + (12L − 4)d² + 256d +
    C_pooled·d + 4d²] + 4Ld(I + P)²; each of the `dual_attention_layers` adds 2[4d²·I + 3d²] + 4d·I². Image-to-image and
    inpainting pipelines do not lengthen the sequence; a ControlNet is a model of its own.
    """
    stack, streams = _stack(config), Streams(square_patch(config, 2))
    inputs = config.integer("in_channels", default=16)
    yield _patch("latent.patch", streams, inputs, stack.width, "pos_embed.proj")
    yield from _conditions(config, stack.width)
    yield _prompt(config, stack.width)
    yield from _joint_blocks(config, streams, stack, "absent")
    outputs = config.integer("out_channels", default=16 if "out_channels" not in config.values else inputs)
    yield from output(streams, stack.width, streams.grid.volume * outputs)


@model(
    "SD3ControlNetModel",
    kind="diffusion",
    source="diffusers 0.42, models/controlnets/controlnet_sd3.py; verified to the integer against traces",
)
def sd3_controlnet(config: Config) -> Iterator[Work]:
    """The ControlNet of Stable Diffusion 3 alone, joint or (3.5 large) over the latents only, and a projection of each block's output.

    The one of 3.5 large has no patch embedder of its own (`use_pos_embed` false) and sees no prompt (`joint_attention_dim` null).
    """
    stack, streams = _stack(config), Streams(square_patch(config, 2))
    inputs = config.integer("in_channels", default=16)
    if config.flag("use_pos_embed", True):
        yield _patch("latent.patch", streams, inputs, stack.width, "pos_embed.proj")
    extra = config.integer("extra_conditioning_channels", default=0, least=0)
    yield _patch("control.patch", streams, inputs + extra, stack.width, "pos_embed_input.proj")
    yield from _conditions(config, stack.width)
    if "joint_attention_dim" in config.values and not config.has("joint_attention_dim"):
        yield from _latent_blocks(streams, stack)
    else:
        yield _prompt(config, stack.width)
        yield from _joint_blocks(config, streams, stack, "unused")
    yield matmul("control.out", streams.latents, stack.width, stack.width, stack.layers, stack="controlnet_blocks", to=None)


def _stack(config: Config) -> Stack:
    heads, dim = config.integer("num_attention_heads", default=18), config.integer("attention_head_dim", default=64)
    return Stack("transformer_blocks", config.layers("num_layers", default=18), heads, dim)


def _patch(name: str, streams: Streams, channels: int, width: int, module: str) -> Work:
    return convolution(name, streams.latents, streams.grid.volume, channels, width, module=module, reads=("data",))


def _conditions(config: Config, width: int) -> Iterator[Work]:
    yield from vectors(width, "time_text_embed", pooled=config.integer("pooled_projection_dim", default=2048), guidance=False)


def _prompt(config: Config, width: int) -> Work:
    same_width(config, "caption_projection_dim", width)
    inner = config.integer("joint_attention_dim", default=4096)
    return matmul("prompt.in", PROMPT, inner, width, module="context_embedder", reads=("data",), to="prompt")


def _joint_blocks(config: Config, streams: Streams, stack: Stack, ending: Ending) -> Iterator[Work]:
    """Yield the blocks; where the last one lacks the prompt's tail ("absent") it modulates its input by two vectors only."""
    width, layers = stack.width, stack.layers
    named = set(config.integers("dual_attention_layers") or ())
    dual = [i for i in layers if i in named]
    plain = [i for i in layers if i not in dual]
    for members, count in ((plain, 6), (dual, 9)):
        if members:
            yield modulation(width, count * width, members, name="modulation.latent", module="norm1.linear", stack=stack.path)
    tail = layers[-1:] if ending == "absent" else layers[:0]
    for some, count in ((layers[: len(layers) - len(tail)], 6), (tail, 2)):
        if some:
            yield prompt_modulation(stack, some, count)
    twice, name = replace(stack, layers=dual), "latent.attention"
    if dual:  # it reads the block's input, and not what the joint attention adds
        yield from single_attention(streams.latents, streams.latent_pairs, twice, name=name, module="attn2", reads=("stream",), out=None)
    yield from joint_attention(streams, stack, ending)
    if dual:
        values = (f"{name}.values",)
        yield matmul(f"{name}.out", streams.latents, width, width, dual, stack=stack.path, module="attn2.to_out.0", reads=values)
    yield from feed_forwards(streams, stack, 4 * width, ending)


def _latent_blocks(streams: Streams, stack: Stack) -> Iterator[Work]:
    width, layers = stack.width, stack.layers
    yield modulation(width, 6 * width, layers, name="modulation.latent", module="norm1.linear", stack=stack.path)
    yield from single_attention(streams.latents, streams.latent_pairs, stack, reads=("stream",))
    yield from feed_forward(width, 4 * width, layers, rows=streams.latents, stack=stack.path)
