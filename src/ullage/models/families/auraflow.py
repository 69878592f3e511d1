"""AuraFlow: a few blocks of two streams, then blocks of one, with gated MLPs and register tokens."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.grids import modulation, square_patch, timestep
from ullage.models.latents import (
    Ending,
    Stack,
    Streams,
    gated_feed_forward,
    joint_attention,
    modulations,
    multiple,
    output,
    same_width,
    single_attention,
)
from ullage.models.model import model
from ullage.models.sample import PROMPT
from ullage.models.work import Work, matmul

REGISTERS = 8  # learned tokens before the prompt's


@model(
    *("AuraFlowTransformer2DModel", "AuraFlowPipeline"),
    kind="diffusion",
    source="diffusers 0.42, models/transformers/auraflow_transformer_2d.py; verified to the integer against traces",
)
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
    yield from _single_blocks(streams, single)
    outputs = config.integer("out_channels", default=4 if "out_channels" not in config.values else inputs)
    yield from output(streams, width, volume * outputs)


def _double_blocks(streams: Streams, stack: Stack, ending: Ending) -> Iterator[Work]:
    inner, name = _inner(stack.width), "prompt.mlp"
    yield from modulations(stack)
    yield from joint_attention(streams, stack, ending)
    yield from gated_feed_forward(stack, inner, stack.layers, rows=streams.latents, modules=_gated("ff"))
    for layers, flows in stack.lasting(ending):
        modules, reads = _gated("ff_context"), ("prompt",)
        yield from gated_feed_forward(
            stack, inner, layers, rows=streams.prompts, modules=modules, name=name, reads=reads, to="prompt", gradient=flows
        )


def _single_blocks(streams: Streams, stack: Stack) -> Iterator[Work]:
    width, layers, rows = stack.width, stack.layers, streams.joint
    yield modulation(width, 6 * width, layers, name="modulation.joint", module="norm1.linear", stack=stack.path)
    yield from single_attention(rows, streams.pairs, stack)
    yield from gated_feed_forward(stack, _inner(width), layers, rows=rows, modules=_gated("ff"), reads=("stream", "prompt"))


def _inner(width: int) -> int:
    return multiple(2 * 4 * width // 3, 256)


def _gated(module: str) -> tuple[str, str, str]:
    return f"{module}.linear_1", f"{module}.linear_2", f"{module}.out_projection"
