"""Diffusion transformers of two streams, latents and prompt, that meet in one attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ullage.models.blocks import TO_QUERIES, mlp, self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    LatentGrid,
    feed_forward,
    heads_and_width,
    modulation,
    output_channels,
    prompt_tokens,
    square_patch,
    timestep,
)
from ullage.models.latents import (
    Ending,
    Stack,
    Streams,
    feed_forwards,
    fused_blocks,
    joint_attention,
    modulations,
    multiple,
    normed_prompt,
    output,
    prompt_modulation,
    same_width,
    single_attention,
    vectors,
)
from ullage.models.model import diffusers_model
from ullage.models.sample import ONCE, PROMPT, Quantity, quantity
from ullage.models.work import Work, attention, convolution, matmul


@diffusers_model(
    "models/transformers/transformer_sd3.py", "SD3Transformer2DModel", "StableDiffusion3Pipeline",
    "StableDiffusion3Img2ImgPipeline", "StableDiffusion3InpaintPipeline",
    "StableDiffusion3ControlNetPipeline", "StableDiffusion3ControlNetInpaintingPipeline",
)  # fmt: skip
def sd3(config: Config) -> Iterator[Work]:
    """Stable Diffusion 3 and 3.5 (medium, large): joint attention of two streams; 3.5 medium attends to the latents once more.

    With I latent and P prompt tokens a sample costs 2[12Ld²·I + (12L − 9)d²·P + p²d(C_in + C_out)·I + J·d·P + (12L − 4)d² + 256d +
    C_pooled·d + 4d²] + 4Ld(I + P)²; each of the `dual_attention_layers` adds 2[4d²·I + 3d²] + 4d·I². Image-to-image and
    inpainting pipelines do not lengthen the sequence; a ControlNet is a model of its own.
    """
    stack, streams = _sd3_stack(config), Streams(square_patch(config, 2))
    inputs = config.integer("in_channels", default=16)
    yield _patch("latent.patch", streams, inputs, stack.width, "pos_embed.proj")
    yield from _sd3_conditions(config, stack.width)
    yield _prompt(config, stack.width)
    yield from _joint_blocks(config, streams, stack, "absent")
    outputs = config.integer("out_channels", default=16 if "out_channels" not in config.values else inputs)
    yield from output(streams, stack.width, streams.grid.volume * outputs)


@diffusers_model("models/controlnets/controlnet_sd3.py", "SD3ControlNetModel")
def sd3_controlnet(config: Config) -> Iterator[Work]:
    """The ControlNet of Stable Diffusion 3 alone, joint or (3.5 large) over the latents only, and a projection of each block's output.

    The one of 3.5 large has no patch embedder of its own (`use_pos_embed` false) and sees no prompt (`joint_attention_dim` null).
    """
    stack, streams = _sd3_stack(config), Streams(square_patch(config, 2))
    inputs = config.integer("in_channels", default=16)
    if config.flag("use_pos_embed", True):
        yield _patch("latent.patch", streams, inputs, stack.width, "pos_embed.proj")
    extra = config.integer("extra_conditioning_channels", default=0, least=0)
    yield _patch("control.patch", streams, inputs + extra, stack.width, "pos_embed_input.proj")
    yield from _sd3_conditions(config, stack.width)
    if "joint_attention_dim" in config.values and not config.has("joint_attention_dim"):
        yield from _latent_blocks(streams, stack)
    else:
        yield _prompt(config, stack.width)
        yield from _joint_blocks(config, streams, stack, "unused")
    yield matmul("control.out", streams.latents, stack.width, stack.width, stack.layers, stack="controlnet_blocks", to=None)


def _sd3_stack(config: Config) -> Stack:
    heads, dim = config.integer("num_attention_heads", default=18), config.integer("attention_head_dim", default=64)
    return Stack("transformer_blocks", config.layers("num_layers", default=18), heads, dim)


def _patch(name: str, streams: Streams, channels: int, width: int, module: str) -> Work:
    return convolution(name, streams.latents, streams.grid.volume, channels, width, module=module, reads=("data",))


def _sd3_conditions(config: Config, width: int) -> Iterator[Work]:
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
        yield from single_attention(streams.latents, streams.latent_pairs, twice, name=name, module="attn2", reads=("stream",), out=False)
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


PACKED = 2  # pipelines pack 2×2 latents into a token before the model sees them; `patch_size` (1) comes on top


@diffusers_model(
    "models/transformers/transformer_flux.py", "FluxTransformer2DModel", "FluxPipeline",
    "FluxImg2ImgPipeline", "FluxInpaintPipeline", "FluxFillPipeline", "FluxKontextPipeline",
    "FluxKontextInpaintPipeline", "FluxControlPipeline", "FluxControlImg2ImgPipeline",
    "FluxControlInpaintPipeline", "FluxControlNetPipeline", "FluxControlNetImg2ImgPipeline",
    "FluxControlNetInpaintPipeline",
)  # fmt: skip
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
    yield from _flux_conditions(config, width)
    yield from _flux_blocks(streams, double, single)
    side = config.integer("patch_size", default=1, most=1024)
    yield from output(streams, width, side * side * config.integer("out_channels", default=inputs))


@diffusers_model("models/controlnets/controlnet_flux.py", "FluxControlNetModel")
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
    yield from _flux_conditions(config, width)
    yield from _flux_blocks(streams, double, single)
    for stack, path in ((double, "controlnet_blocks"), (single, "controlnet_single_blocks")):
        yield matmul("control.out", streams.latents, width, width, stack.layers, stack=path, to=None)


def _width(config: Config) -> int:
    return config.integer("num_attention_heads", default=24) * config.integer("attention_head_dim", default=128)


def _streams(config: Config, registers: int = 0) -> Streams:
    """Return the streams; a token is what the pipeline packs, or what `patch_size` says where the model is told of the packing."""
    side = square_patch(config, 1).rows
    side = PACKED if side == 1 else side
    return Streams(LatentGrid(1, side, side), registers)


def _stacks(config: Config) -> tuple[Stack, Stack]:
    heads, dim = config.integer("num_attention_heads", default=24), config.integer("attention_head_dim", default=128)
    double = Stack("transformer_blocks", config.layers("num_layers", default=19), heads, dim)
    return double, Stack("single_transformer_blocks", config.layers("num_single_layers", default=38), heads, dim)


def _flux_conditions(config: Config, width: int) -> Iterator[Work]:
    pooled = config.integer("pooled_projection_dim", default=768)
    yield from vectors(width, "time_text_embed", pooled=pooled, guidance=config.flag("guidance_embeds"))
    prompt = config.integer("joint_attention_dim", default=4096)
    yield matmul("prompt.in", PROMPT, prompt, width, module="context_embedder", reads=("data",), to="prompt")


def _flux_blocks(streams: Streams, double: Stack, single: Stack) -> Iterator[Work]:
    ending: Ending = "used" if single.layers else "unused"
    yield from modulations(double)
    yield from joint_attention(streams, double, ending)
    yield from feed_forwards(streams, double, 4 * double.width, ending)
    yield from fused_blocks(streams, single, 4 * single.width)


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


@diffusers_model(
    "models/transformers/transformer_flux2.py", "Flux2Transformer2DModel", "Flux2Pipeline",
    "Flux2KleinPipeline", "Flux2KleinInpaintPipeline",
)  # fmt: skip
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
    streams = Streams(LatentGrid(1, *(PACKED if side == 1 else side,) * 2))
    channels = config.integer("timestep_guidance_channels", default=256)
    yield from vectors(width, "time_guidance_embed", pooled=None, guidance=config.flag("guidance_embeds", True), channels=channels)
    yield from _modulations(width, bool(single.layers))
    inputs, prompt = config.integer("in_channels", default=128), config.integer("joint_attention_dim", default=15360)
    yield matmul("latent.in", streams.latents, inputs, width, module="x_embedder", reads=("data",))
    yield matmul("prompt.in", PROMPT, prompt, width, module="context_embedder", reads=("data",), to="prompt")
    yield from joint_attention(streams, double, "used")
    place: dict[str, Any] = {"stack": double.path, "modules": ("linear_in", "linear_out")}
    for name, rows, stream, module in (
        ("mlp", streams.latents, "stream", "ff"),
        ("prompt.mlp", streams.prompts, "prompt", "ff_context"),
    ):
        yield from mlp(width, inner, double.layers, gated=True, rows=rows, name=name, module=module, stream=stream, **place)
    yield from _flux2_single_blocks(streams, single, inner)
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


def _flux2_single_blocks(streams: Streams, stack: Stack, inner: int) -> Iterator[Work]:
    """Yield blocks with one projection in (queries, keys, values, gate and up) and one out (of attention and feed-forward)."""
    width, layers, both = stack.width, stack.layers, ("stream", "prompt")
    name, columns = "fused.in", 3 * width + 2 * inner
    yield matmul(name, streams.joint, width, columns, layers, stack=stack.path, module="attn.to_qkv_mlp_proj", reads=both, to=None)
    yield from attention(streams.pairs, stack.heads, stack.dim, layers, stack=stack.path, inputs=(name, name, name))
    made = ("attention.values", name)
    yield matmul("fused.out", streams.joint, width + inner, width, layers, stack=stack.path, module="attn.to_out", reads=made)


TWICE = quantity("samples, twice", lambda _: 2)


@diffusers_model(
    "models/transformers/transformer_qwenimage.py", "QwenImageTransformer2DModel", "QwenImagePipeline",
    "QwenImageImg2ImgPipeline", "QwenImageInpaintPipeline", "QwenImageEditPipeline",
    "QwenImageEditPlusPipeline", "QwenImageEditInpaintPipeline", "QwenImageLayeredPipeline",
    "QwenImageControlNetPipeline", "QwenImageControlNetInpaintPipeline",
)  # fmt: skip
def qwen_image(config: Config) -> Iterator[Work]:
    """Qwen-Image, text to image, editing and layered: joint attention of two streams.

    With I latent tokens (2×2 of a latent each; in editing the reference images' tokens are among them) and P prompt tokens a
    sample costs 2[12Ld²(I + P) + C·d·I + J·d·P + p²·C_out·d·I + 12Ld² + 256d + 3d²] + 4Ld(I + P)². Image-to-image, inpainting
    and ControlNet pipelines do not lengthen the sequence; the ControlNet itself is a model of its own. The newer editing
    model (`zero_cond_t`) modulates the latents by two timesteps.
    """
    stack, streams = _qwen_image_stack(config), Streams(square_patch(config, 2))
    vectors = TWICE if config.flag("zero_cond_t") else ONCE
    inputs = config.integer("in_channels", default=64)
    yield matmul("latent.in", streams.latents, inputs, stack.width, module="img_in", reads=("data",))
    yield from _qwen_image_conditions(config, stack.width, vectors)
    yield from _qwen_image_blocks(streams, stack, vectors)
    columns = streams.grid.volume * config.integer("out_channels", default=16 if "out_channels" not in config.values else inputs)
    yield from output(streams, stack.width, columns)


@diffusers_model("models/controlnets/controlnet_qwenimage.py", "QwenImageControlNetModel")
def qwen_image_controlnet(config: Config) -> Iterator[Work]:
    """The ControlNet of Qwen-Image alone: its blocks over latents to which the control is added, and a projection of each one's output."""
    stack, streams = _qwen_image_stack(config), Streams(square_patch(config, 2))
    inputs, extra = config.integer("in_channels", default=64), config.integer("extra_condition_channels", default=0, least=0)
    yield matmul("latent.in", streams.latents, inputs, stack.width, module="img_in", reads=("data",))
    yield matmul("control.in", streams.latents, inputs + extra, stack.width, module="controlnet_x_embedder", reads=("data",))
    yield from _qwen_image_conditions(config, stack.width, ONCE)
    yield from _qwen_image_blocks(streams, stack, ONCE)
    yield matmul("control.out", streams.latents, stack.width, stack.width, stack.layers, stack="controlnet_blocks", to=None)


def _qwen_image_stack(config: Config) -> Stack:
    heads, dim = config.integer("num_attention_heads", default=24), config.integer("attention_head_dim", default=128)
    return Stack("transformer_blocks", config.layers("num_layers", default=60), heads, dim)


def _qwen_image_conditions(config: Config, width: int, vectors: Quantity) -> Iterator[Work]:
    yield normed_prompt("txt_norm", PROMPT)
    prompt = config.integer("joint_attention_dim", default=3584)
    yield matmul("prompt.in", PROMPT, prompt, width, module="txt_in", reads=("normed prompt",), to="prompt")
    yield from timestep(256, width, "time_text_embed.timestep_embedder", rows=vectors)


def _qwen_image_blocks(streams: Streams, stack: Stack, vectors: Quantity) -> Iterator[Work]:
    """Yield the blocks; nothing reads the prompt's stream after the last one."""
    width = stack.width
    yield modulation(width, 6 * width, stack.layers, name="modulation.latent", module="img_mod.1", stack=stack.path, rows=vectors)
    yield prompt_modulation(stack, stack.layers, 6, "txt_mod.1")
    yield from joint_attention(streams, stack, "unused")
    yield from feed_forwards(streams, stack, 4 * width, "unused", "img_mlp", "txt_mlp")


GATED_FEED = ("linear_1", "linear_2", "out_projection")
REGISTERS = 8  # learned tokens before the prompt's


@diffusers_model("models/transformers/auraflow_transformer_2d.py", "AuraFlowTransformer2DModel", "AuraFlowPipeline")
def auraflow(config: Config) -> Iterator[Work]:
    """AuraFlow: joint attention of two streams, then blocks of one sequence; eight register tokens join the prompt.

    With I latent tokens, P prompt tokens, Q = P + 8 and f the next multiple of 256 from 8d/3 on, a sample costs
    2[(L₂ + L₁)(4d² + 3df)(I + Q) + p²d(C + C_out)·I + J·d·P + (12L₂ + 6L₁ + 3)d² + 256d] + 4(L₂ + L₁)d(I + Q)².
    """
    heads, dim = config.integer("num_attention_heads", default=12), config.integer("attention_head_dim", default=256)
    double = Stack("joint_transformer_blocks", config.layers("num_mmdit_layers", default=4), heads, dim)
    single = Stack("single_transformer_blocks", config.layers("num_single_dit_layers", default=32), heads, dim)
    width, streams = double.width, Streams(square_patch(config, 2), REGISTERS)
    inputs, volume = config.integer("in_channels", default=4), streams.grid.volume
    yield matmul("latent.patch", streams.latents, volume * inputs, width, module="pos_embed.proj", reads=("data",))
    yield from timestep(256, width, "time_step_proj")
    same_width(config, "caption_projection_dim", width)
    prompt = config.integer("joint_attention_dim", default=2048)
    yield matmul("prompt.in", PROMPT, prompt, width, module="context_embedder", reads=("data",), to="prompt")
    yield from _double_blocks(streams, double, "used" if single.layers else "unused")
    yield from _auraflow_single_blocks(streams, single)
    outputs = config.integer("out_channels", default=4 if "out_channels" not in config.values else inputs)
    yield from output(streams, width, volume * outputs)


def _double_blocks(streams: Streams, stack: Stack, ending: Ending) -> Iterator[Work]:
    inner, name = _inner(stack.width), "prompt.mlp"
    yield from modulations(stack)
    yield from joint_attention(streams, stack, ending)
    place: dict[str, Any] = {"stack": stack.path, "modules": GATED_FEED}
    yield from mlp(stack.width, inner, stack.layers, gated=True, rows=streams.latents, module="ff", **place)
    for layers, flows in stack.lasting(ending):
        yield from mlp(
            stack.width, inner, layers, gated=True, rows=streams.prompts, name=name, module="ff_context", stream="prompt",
            gradient=flows, **place,
        )  # fmt: skip


def _auraflow_single_blocks(streams: Streams, stack: Stack) -> Iterator[Work]:
    width, layers, rows = stack.width, stack.layers, streams.joint
    yield modulation(width, 6 * width, layers, name="modulation.joint", module="norm1.linear", stack=stack.path)
    yield from single_attention(rows, streams.pairs, stack)
    place: dict[str, Any] = {"stack": stack.path, "module": "ff", "modules": GATED_FEED}
    yield from mlp(width, _inner(width), layers, gated=True, rows=rows, reads=("stream", "prompt"), **place)


def _inner(width: int) -> int:
    return multiple(2 * 4 * width // 3, 256)


PADDING = 32  # tokens; the model pads latents and prompt to multiples of it
VECTOR = 256  # the modulation vector is no wider
BOTH = ("stream", "prompt")


@diffusers_model(
    "models/transformers/transformer_z_image.py", "ZImageTransformer2DModel", "ZImagePipeline",
    "ZImageImg2ImgPipeline", "ZImageInpaintPipeline", "ZImageControlNetPipeline",
    "ZImageControlNetInpaintPipeline",
)  # fmt: skip
def z_image(config: Config) -> Iterator[Work]:
    """Z-Image (base and Turbo): a single stream after two refiners; latents and prompt are padded to multiples of 32 tokens.

    With I latent and P prompt tokens so padded, T = I + P, f = 8d/3, R refiner layers and m = min(d, 256) a sample costs
    2[(4d² + 3df)(LT + RI + RP) + p²C·d(I + T) + J·d·P + (L + R)·4md + md + 1024(256 + m)] + 4d(LT² + RI² + RP²). Its
    `n_kv_heads` changes nothing: keys have as many heads as queries. Left out: the Omni pipeline, whose reference images come
    with tokens of a vision model; the ControlNet is a model of its own.
    """
    width, vector = config.integer("dim", default=3840), min(config.integer("dim", default=3840), VECTOR)
    frames, side = ((config.integers(name, least=1) or [default])[0] for name, default in (("all_f_patch_size", 1), ("all_patch_size", 2)))
    streams = Streams(LatentGrid(frames, side, side), padding=PADDING)
    patch = streams.grid.volume * config.integer("in_channels", default=16)
    refiners = config.layers("n_refiner_layers", default=2)
    yield from timestep(256, 1024, "t_embedder", modules=("mlp.0", "mlp.2"), outputs=vector)
    yield matmul("latent.in", streams.latents, patch, width, module=f"all_x_embedder.{side}-{frames}", reads=("data",))
    yield from _z_image_blocks(config, streams, "noise_refiner", refiners)
    yield normed_prompt("cap_embedder.0", PROMPT)
    prompt = config.integer("cap_feat_dim", default=2560)
    yield matmul("prompt.in", streams.prompts, prompt, width, module="cap_embedder.1", reads=("normed prompt",), to="prompt")
    yield from _z_image_blocks(config, streams, "context_refiner", refiners)
    yield from _z_image_blocks(config, streams, "layers", config.layers("n_layers", default=30))
    final = f"all_final_layer.{side}-{frames}"
    yield modulation(vector, width, name="output.modulation", module=f"{final}.adaLN_modulation.1")
    yield matmul("output.proj", streams.joint, width, patch, module=f"{final}.linear", reads=BOTH)


def _z_image_blocks(config: Config, streams: Streams, path: str, layers: range) -> Iterator[Work]:
    """Yield the blocks of a stack: over the latents, over the prompt (unmodulated), or over both."""
    width, heads = config.integer("dim", default=3840), config.integer("n_heads", default=30)
    if width % heads:
        raise config.error(("n_heads",), f"is {heads}, and does not divide dim, {width:,}")
    stack = Stack(path, layers, heads, width // heads)
    prefix, rows, of, reads, to = {
        "noise_refiner": ("latent.", streams.latents, streams.latent_pairs, ("stream",), "stream"),
        "context_refiner": ("prompt.", streams.prompts, streams.prompt_pairs, ("prompt",), "prompt"),
        "layers": ("", streams.joint, streams.pairs, BOTH, "stream"),
    }[path]
    if to == "stream":
        name = f"modulation.{prefix.rstrip('.') or 'joint'}"
        yield modulation(min(width, VECTOR), 4 * width, layers, name=name, module="adaLN_modulation.0", stack=path)
    yield from single_attention(rows, of, stack, name=f"{prefix}attention", module="attention", reads=reads, stream=to)
    modules = ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2")
    inner = int(width / 3 * 8)
    name = f"{prefix}mlp"
    yield from mlp(width, inner, layers, gated=True, rows=rows, name=name, stack=path, module="", modules=modules, stream=to, reads=reads)


PROMPT_PAIRS = quantity("prompt pairs", lambda s: s.prompt**2)
REFINER = "context_embedder.token_refiner.refiner_blocks"


@diffusers_model(
    "models/transformers/transformer_hunyuan_video.py", "HunyuanVideoTransformer3DModel",
    "HunyuanVideoPipeline", "HunyuanVideoImageToVideoPipeline", "HunyuanSkyreelsImageToVideoPipeline",
)  # fmt: skip
def hunyuan_video(config: Config) -> Iterator[Work]:
    """HunyuanVideo, text and image to video (13B), and SkyReels V1.

    Double and single blocks cost 2(I + P)·12d² + 4d(I + P)² each with an MLP of 4d; per sample a double block has 2·12d², a
    single one 2·3d² of modulation. With `token_replace` (image to video) the latents' modulation runs twice, at the timestep
    and at zero. The refiner is two blocks of self-attention over the prompt. Prompt padding is counted as prompt tokens.
    """
    grid = square_patch(config, 2)
    width = heads_and_width(config, 24, 128)[2]
    inputs = config.integer("in_channels", default=16)
    twice = 2 if config.has("image_condition_type") and config.word("image_condition_type") == "token_replace" else 1
    yield convolution("latent.patch", grid.latents, grid.volume, inputs, width, module="x_embedder.proj", reads=("data",))
    times = quantity(f"timesteps of a sample, {twice}", lambda _: twice)
    yield from timestep(256, width, "time_text_embed.timestep_embedder", rows=times)
    pooled = config.integer("pooled_projection_dim", default=768)
    yield from timestep(pooled, width, "time_text_embed.text_embedder", name="pooled")
    if config.flag("guidance_embeds", True):
        yield from timestep(256, width, "time_text_embed.guidance_embedder", name="guidance")
    yield from refiner(config, 4096)
    heads, dim, _ = heads_and_width(config, 24, 128)
    double = Stack("transformer_blocks", config.layers("num_layers", default=20), heads, dim)
    single = Stack("single_transformer_blocks", config.layers("num_single_layers", default=40), heads, dim)
    streams, inner = Streams(grid, whole=False), int(width * config.number("mlp_ratio", default=4.0))
    ending: Ending = "used" if single.layers else "unused"
    yield from modulations(double, twice)
    yield from joint_attention(streams, double, ending)
    yield from feed_forwards(streams, double, inner, ending)
    yield from fused_blocks(streams, single, inner, vectors=twice)
    yield from output(streams, width, grid.volume * output_channels(config, inputs, 16))


def refiner(config: Config, text: int) -> Iterator[Work]:
    """Yield the prompt's way to the blocks: projection, then self-attention and MLP, gated by timestep and mean prompt."""
    heads, dim, width = heads_and_width(config, 24, 128)
    inner, path = config.integer("text_embed_dim", default=text), "context_embedder.time_text_embed"
    yield from timestep(256, width, f"{path}.timestep_embedder", name="refiner.time", to="refiner vector")
    yield from timestep(inner, width, f"{path}.text_embedder", name="refiner.pooled", to="refiner vector")
    yield matmul("prompt.proj", PROMPT, inner, width, module="context_embedder.proj_in", reads=("data",), to="prompt")
    layers = config.layers("num_refiner_layers", default=2)
    yield from self_attention(
        width, heads, heads, dim, layers, rows=PROMPT, of=PROMPT_PAIRS, name="refiner.attention", stack=REFINER, module="attn",
        modules=TO_QUERIES, stream="prompt",
    )  # fmt: skip
    vector, module = ("refiner vector",), "norm_out.linear"
    yield matmul("refiner.modulation", ONCE, width, 2 * width, layers, stack=REFINER, module=module, reads=vector, to="prompt")
    yield from feed_forward(width, 4 * width, layers, rows=PROMPT, stack=REFINER, name="refiner.mlp", stream="prompt")


STACK = "transformer_blocks"
POOL_HEADS = 8
POOLED = quantity("prompt tokens and their mean", lambda s: prompt_tokens(s) + 1)


@diffusers_model("models/transformers/transformer_mochi.py", "MochiTransformer3DModel", "MochiPipeline", left_out=("rope",))
def mochi(config: Config) -> Iterator[Work]:
    """Mochi 1, text to video.

    With I latent and P prompt tokens, widths d and e: a block costs 2I(4d² + 3df) + 2P(4ed + 3eg) + 4d(I + P)², f = 8d/3,
    g = 8e/3, gated; the last one spares the prompt's output and MLP. The prompt counted is the one that attention sees:
    projections of padding are not in it, and the pooled prompt is one query over it and its mean. The product of positions with
    learned frequencies, once a step, is left out.
    """
    grid, layers = square_patch(config, 2), config.layers("num_layers", default=48)
    streams = Streams(grid, whole=False)
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
    yield from joint_attention(streams, Stack(STACK, layers, heads, dim), "absent", module="attn1", prompt_width=narrow)
    place: dict[str, Any] = {"activation": "swiglu", "stack": STACK}
    yield from feed_forward(width, 8 * width // 3, layers, rows=streams.latents, **place)
    inner, name = 8 * narrow // 3, "prompt.mlp"
    yield from feed_forward(narrow, inner, both, rows=streams.prompts, module="ff_context", name=name, stream="prompt", **place)
    yield from output(streams, width, side * output_channels(config, inputs))


def _embedders(text: int, width: int, narrow: int) -> Iterator[Work]:
    """Yield the prompt's projection, and its pooling by attention of its mean into the modulation vector."""
    path = "time_embed.pooler"
    yield matmul("pool.kv", POOLED, text, 2 * text, module=f"{path}.to_kv", reads=("data",), to=None)
    yield matmul("pool.q", ONCE, text, text, module=f"{path}.to_q", reads=("data",), to=None)
    yield from attention(POOLED, POOL_HEADS, text // POOL_HEADS, name="pool", inputs=("pool.q", "pool.kv", "pool.kv"))
    yield matmul("pool.out", ONCE, text, width, module=f"{path}.to_out", reads=("pool.values",), to="vector")
    yield matmul("prompt.proj", PROMPT, text, narrow, module="time_embed.caption_proj", reads=("data",), to="prompt")
