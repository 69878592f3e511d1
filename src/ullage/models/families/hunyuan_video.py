"""HunyuanVideo: latents and prompt in two streams joined by attention, then in one; the prompt is refined by two blocks before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import self_attention
from ullage.models.config import Config
from ullage.models.grids import (
    ATTENTION,
    Grid,
    feed_forward,
    heads_and_width,
    modulation,
    output_channels,
    square_patch,
    timestep,
)
from ullage.models.model import model
from ullage.models.sample import ONCE, PROMPT, Quantity, quantity
from ullage.models.work import Work, attention, convolution, matmul

PROMPT_PAIRS = quantity("prompt pairs", lambda s: s.prompt**2)
DOUBLE, SINGLE, REFINER = "transformer_blocks", "single_transformer_blocks", "context_embedder.token_refiner.refiner_blocks"


@model(
    *("HunyuanVideoTransformer3DModel", "HunyuanVideoPipeline", "HunyuanVideoImageToVideoPipeline", "HunyuanSkyreelsImageToVideoPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/transformer_hunyuan_video.py; verified to the integer against traces",
)
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
    double, single = config.layers("num_layers", default=20), config.layers("num_single_layers", default=40)
    yield modulation(width, 6 * width, double, name="modulation.latent", module="norm1.linear", stack=DOUBLE, times=twice)
    yield modulation(width, 6 * width, double, name="modulation.prompt", module="norm1_context.linear", stack=DOUBLE)
    yield from double_blocks(config, grid, PROMPT, grid.joint_pairs, double, last_prompt=bool(single))
    yield modulation(width, 3 * width, single, name="modulation.single", module="norm.linear", stack=SINGLE, times=twice)
    yield from _single_blocks(config, grid, single)
    yield from _output(config, grid, width, 16)


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
        modules=ATTENTION, stream="prompt",
    )  # fmt: skip
    yield matmul(
        "refiner.modulation",
        ONCE,
        width,
        2 * width,
        layers,
        stack=REFINER,
        module="norm_out.linear",
        reads=("refiner vector",),
        to="prompt",
    )
    yield from feed_forward(width, 4 * width, layers, rows=PROMPT, stack=REFINER, name="refiner.mlp", stream="prompt")


def double_blocks(config: Config, grid: Grid, prompt: Quantity, pairs: Quantity, layers: range, *, last_prompt: bool) -> Iterator[Work]:
    """Yield blocks of two streams, each with its own projections and MLP, and one attention over both.

    Unless `last_prompt`, nothing reads the prompt's stream after the last block, and no gradient comes to its output and MLP.
    """
    heads, dim, width = heads_and_width(config, 24, 128)
    rows, inner = grid.stream, int(width * config.number("mlp_ratio", default=4.0))
    for what, module in zip(("q", "k", "v"), ATTENTION, strict=False):
        yield matmul(f"attention.{what}", rows, width, width, layers, stack=DOUBLE, module=f"attn.{module}", to=None)
    for what in ("q", "k", "v"):
        name, path = f"attention.prompt_{what}", f"attn.add_{what}_proj"
        yield matmul(name, prompt, width, width, layers, stack=DOUBLE, module=path, reads=("prompt",), to=f"attention.{what}")
    yield from attention(pairs, heads, dim, layers, stack=DOUBLE)
    yield matmul("attention.out", rows, width, width, layers, stack=DOUBLE, module="attn.to_out.0", reads=("attention.values",))
    yield from feed_forward(width, inner, layers, rows=rows, stack=DOUBLE)
    unread = [] if last_prompt else list(layers[-1:])
    for part, gradient in (([i for i in layers if i not in unread], True), (unread, False)):
        if part:
            yield from _prompt_output(prompt, width, inner, part, gradient)


def _prompt_output(prompt: Quantity, width: int, inner: int, layers: Sequence[int], gradient: bool) -> Iterator[Work]:
    """Yield what a double block does to the prompt's stream after attention."""
    yield matmul(
        "attention.prompt_out", prompt, width, width, layers, stack=DOUBLE, module="attn.to_add_out", reads=("attention.values",),
        to="prompt", gradient=gradient,
    )  # fmt: skip
    yield from feed_forward(
        width, inner, layers, rows=prompt, stack=DOUBLE, module="ff_context", name="mlp.prompt", stream="prompt", gradient=gradient
    )


def _single_blocks(config: Config, grid: Grid, layers: range) -> Iterator[Work]:
    """Yield blocks over both streams in one sequence: attention beside the MLP, one projection for both results."""
    heads, dim, width = heads_and_width(config, 24, 128)
    rows, inner, name = grid.joint, int(width * config.number("mlp_ratio", default=4.0)), "attention.single"
    both = ("stream", "prompt")
    yield matmul("mlp.single.up", rows, width, inner, layers, stack=SINGLE, module="proj_mlp", reads=both, to=None)
    for what, module in zip(("q", "k", "v"), ATTENTION, strict=False):
        yield matmul(f"{name}.{what}", rows, width, width, layers, stack=SINGLE, module=f"attn.{module}", reads=both, to=None)
    yield from attention(grid.joint_pairs, heads, dim, layers, name=name, stack=SINGLE)
    made = (f"{name}.values", "mlp.single.up")
    yield matmul("mlp.single.down", rows, width + inner, width, layers, stack=SINGLE, module="proj_out", reads=made)


def _output(config: Config, grid: Grid, width: int, channels: int) -> Iterator[Work]:
    """Yield the last modulation and the projection of each latent token back to its patch."""
    yield modulation(width, 2 * width, name="output.modulation", module="norm_out.linear")
    outputs = output_channels(config, config.integer("in_channels", default=channels), channels)
    yield matmul("output.proj", grid.stream, width, grid.volume * outputs, module="proj_out")
