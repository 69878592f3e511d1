"""ControlNet of diffusers, for Stable Diffusion and SDXL; alone, and in the pipelines that run it beside the UNet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from ullage.models import unets
from ullage.models.config import Config
from ullage.models.families.unet import unet_condition
from ullage.models.model import model
from ullage.models.planes import LATENT, numbers
from ullage.models.unet_config import planes, prompt_works, prompted, prompted_middle, prompted_time, time_works
from ullage.models.work import Work, convolution

CONDITION = "controlnet_cond_embedding"


@model(
    "ControlNetModel",
    kind="diffusion",
    source="diffusers 0.42, ControlNetModel; Zhang et al., arXiv:2302.05543; verified to the integer against traces",
)
def controlnet(config: Config) -> Iterator[Work]:
    """ControlNet: the downward half of a Stable Diffusion UNet, a small network for the image that steers, and 1x1 convolutions out.

    The steering image has the pixels that the latents stand for: each of its stages but the first halves it. The UNet that
    ControlNet steers is not in it.
    """
    plan = prompted(config)
    first = plan.widths[0]
    inner, width, time = prompted_time(config, first)
    yield from time_works(config, inner, width)
    yield from prompt_works(config, plan.sources[0])
    yield unets.entry(config.integer("in_channels", default=4), LATENT, 3, first)
    yield from _steering(config, first)
    blocks, levels = plan.down(), planes(config, LATENT, len(plan.widths))
    yield from unets.down(blocks, levels, first, time)
    yield from prompted_middle(config, plan, levels[-1], time)
    outs = [(LATENT, first)]
    for i, block in enumerate(blocks):
        outs += [(levels[i], block.width)] * block.layers
        outs += [(levels[i + 1], block.width)] if i < len(blocks) - 1 else []
    for i, (plane, wide) in enumerate(outs):
        yield convolution("output.down", plane.positions, 1, wide, wide, (i,), stack="controlnet_down_blocks", to=None)
    last = plan.widths[-1]
    yield convolution("output.middle", levels[-1].positions, 1, last, last, module="controlnet_mid_block", to=None)


def _steering(config: Config, width: int) -> Iterator[Work]:
    """Yield the network for the steering image: 3x3 convolutions, and between its widths one of stride 2."""
    widths = numbers(config, "conditioning_embedding_out_channels", (16, 32, 96, 256))
    plane = LATENT.enlarged(1 << (len(widths) - 1))
    channels, module = config.integer("conditioning_channels", default=3), f"{CONDITION}.conv_in"
    yield convolution("condition.in", plane.positions, 9, channels, widths[0], module=module, reads=("data",), to=None)
    made, stack = ("condition.in", "condition.down"), f"{CONDITION}.blocks"
    for i, (before, after) in enumerate(pairwise(widths)):
        yield convolution("condition.same", plane.positions, 9, before, before, (2 * i,), stack=stack, reads=made, to=None)
        plane, reads = plane.after(3, 2, 2), ("condition.same",)
        yield convolution("condition.down", plane.positions, 9, before, after, (2 * i + 1,), stack=stack, reads=reads, to=None)
    yield convolution("condition.out", plane.positions, 9, widths[-1], width, module=f"{CONDITION}.conv_out", reads=made)


@model(
    *("StableDiffusionControlNetPipeline", "StableDiffusionControlNetImg2ImgPipeline", "StableDiffusionControlNetInpaintPipeline"),
    *("StableDiffusionXLControlNetPipeline", "StableDiffusionXLControlNetImg2ImgPipeline", "StableDiffusionXLControlNetInpaintPipeline"),
    kind="diffusion",
    source="diffusers 0.42, UNet2DConditionModel and ControlNetModel; verified to the integer against traces",
)
def steered_unet(config: Config) -> Iterator[Work]:
    """A Stable Diffusion UNet with a ControlNet beside it, which is run as often: the section `controlnet` is its configuration.

    What ControlNet makes joins the UNet behind its middle: with a frozen UNet, nothing flows back into the path down.
    """
    beside = list(unets.within("controlnet", controlnet(config.section("controlnet")), path="controlnet.", streams=True))
    joined = False
    for work in unet_condition(config):
        if not joined and work.stack.startswith("up_blocks"):
            yield from (replace(w, to="stream") if w.group == "controlnet.output" else w for w in beside)
            joined = True
        yield work
