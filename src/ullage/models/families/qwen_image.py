"""Qwen-Image: latents and prompt in two streams of equal blocks, joined in attention; the editing models and the ControlNet."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import modulation, square_patch, timestep
from ullage.models.latents import Stack, Streams, feed_forwards, joint_attention, normed_prompt, output, prompt_modulation
from ullage.models.model import model
from ullage.models.sample import ONCE, PROMPT, Quantity, quantity
from ullage.models.work import Work, matmul

TWICE = quantity("samples, twice", lambda _: 2)


@model(
    *("QwenImageTransformer2DModel", "QwenImagePipeline", "QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline"),
    *("QwenImageEditPipeline", "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline", "QwenImageLayeredPipeline"),
    *("QwenImageControlNetPipeline", "QwenImageControlNetInpaintPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_qwenimage.py; verified to the integer against traces",
)
def qwen_image(config: Config) -> Iterator[Work]:
    """Qwen-Image, text to image, editing and layered: joint attention of two streams.

    With I latent tokens (2×2 of a latent each; in editing the reference images' tokens are among them) and P prompt tokens a
    sample costs 2[12Ld²(I + P) + C·d·I + J·d·P + p²·C_out·d·I + 12Ld² + 256d + 3d²] + 4Ld(I + P)². Image-to-image, inpainting
    and ControlNet pipelines do not lengthen the sequence; the ControlNet itself is a model of its own. The newer editing
    model (`zero_cond_t`) modulates the latents by two timesteps.
    """
    stack, streams = _stack(config), Streams(square_patch(config, 2))
    vectors = TWICE if config.flag("zero_cond_t") else ONCE
    inputs = config.integer("in_channels", default=64)
    yield matmul("latent.in", streams.latents, inputs, stack.width, module="img_in", reads=("data",))
    yield from _conditions(config, stack.width, vectors)
    yield from _blocks(streams, stack, vectors)
    columns = streams.grid.volume * config.integer("out_channels", default=16 if "out_channels" not in config.values else inputs)
    yield from output(streams, stack.width, columns)


@model(
    "QwenImageControlNetModel",
    kind="diffusion",
    source="diffusers 0.42, models/controlnets/controlnet_qwenimage.py; verified to the integer against traces",
)
def qwen_image_controlnet(config: Config) -> Iterator[Work]:
    """The ControlNet of Qwen-Image alone: its blocks over latents to which the control is added, and a projection of each one's output."""
    stack, streams = _stack(config), Streams(square_patch(config, 2))
    inputs, extra = config.integer("in_channels", default=64), config.integer("extra_condition_channels", default=0, least=0)
    yield matmul("latent.in", streams.latents, inputs, stack.width, module="img_in", reads=("data",))
    yield matmul("control.in", streams.latents, inputs + extra, stack.width, module="controlnet_x_embedder", reads=("data",))
    yield from _conditions(config, stack.width, ONCE)
    yield from _blocks(streams, stack, ONCE)
    yield matmul("control.out", streams.latents, stack.width, stack.width, stack.layers, stack="controlnet_blocks", to=None)


def _stack(config: Config) -> Stack:
    heads, dim = config.integer("num_attention_heads", default=24), config.integer("attention_head_dim", default=128)
    return Stack("transformer_blocks", config.layers("num_layers", default=60), heads, dim)


def _conditions(config: Config, width: int, vectors: Quantity) -> Iterator[Work]:
    yield normed_prompt("txt_norm", PROMPT)
    prompt = config.integer("joint_attention_dim", default=3584)
    yield matmul("prompt.in", PROMPT, prompt, width, module="txt_in", reads=("normed prompt",), to="prompt")
    yield from timestep(256, width, "time_text_embed.timestep_embedder", rows=vectors)


def _blocks(streams: Streams, stack: Stack, vectors: Quantity) -> Iterator[Work]:
    """Yield the blocks; nothing reads the prompt's stream after the last one."""
    width = stack.width
    yield modulation(width, 6 * width, stack.layers, name="modulation.latent", module="img_mod.1", stack=stack.path, rows=vectors)
    yield prompt_modulation(stack, stack.layers, 6, "txt_mod.1")
    yield from joint_attention(streams, stack, "unused")
    yield from feed_forwards(streams, stack, 4 * width, "unused", "img_mlp", "txt_mlp")
