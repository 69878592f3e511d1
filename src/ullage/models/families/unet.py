"""The U-shaped denoisers of diffusers: Stable Diffusion 1 and 2, SDXL, and the unconditional ones of DDPM."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models import unet_config as fields
from ullage.models import unets
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import LATENT, per_stage
from ullage.models.unets import Time
from ullage.models.work import Work

UP = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
DDPM_DOWN = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
DDPM_UP = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")


@model(
    *("UNet2DConditionModel", "StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline"),
    *("StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline"),
    *("StableDiffusionUpscalePipeline", "StableDiffusionInstructPix2PixPipeline", "LatentConsistencyModelPipeline"),
    kind="diffusion",
    source="diffusers 0.42, UNet2DConditionModel; Rombach et al., arXiv:2112.10752; verified to the integer against traces",
)
def unet_condition(config: Config) -> Iterator[Work]:
    """The UNet of Stable Diffusion 1.x, 2.x, XL, inpainting and upscaling: residual blocks, and transformers that read the prompt.

    `--latent` is the grid it works on (pixels / 8); the text encoder and the autoencoder are not in it. The additional input
    channels of inpainting, editing and upscaling are in the configuration. XL's pooled text and sizes enter the time embedding
    once a sample.
    """
    plan = fields.prompted(config)
    count, first = len(plan.widths), plan.widths[0]
    inner, width, time = fields.prompted_time(config, first)
    yield from fields.time_works(config, inner, width)
    yield from fields.prompt_works(config, plan.sources[0])
    kernel = config.integer("conv_in_kernel", default=3, most=99)
    finest = unets.same(LATENT, kernel)
    yield unets.entry(config.integer("in_channels", default=4), finest, kernel, first)
    levels = fields.planes(config, finest, count)
    yield from unets.down(plan.down(), levels, first, time)
    yield from fields.prompted_middle(config, plan, levels[-1], time)
    rising = fields.kinds(config, "up_block_types", UP, count, (fields.PLAIN, fields.SELF, fields.CROSS))
    depths = None
    if config.has("reverse_transformer_layers_per_block"):
        depths = per_stage(config, "reverse_transformer_layers_per_block", count, 1, most=unets.BLOCKS)
    yield from unets.up(plan.up(rising, depths), levels[::-1], plan.widths[::-1], time)
    kernel = config.integer("conv_out_kernel", default=3, most=99)
    yield unets.leave(config.integer("out_channels", default=4), unets.same(finest, kernel), kernel, first)


@model(
    *("UNet2DModel", "DDPMPipeline", "DDIMPipeline"),
    kind="diffusion",
    shapes=("latent",),
    source="diffusers 0.42, UNet2DModel; Ho et al., arXiv:2006.11239; verified to the integer against traces",
)
def unet_image(config: Config) -> Iterator[Work]:
    """The UNet of DDPM and its like, without a prompt: residual blocks, attention over the plane at low resolutions.

    `--latent` is the grid it works on: of pixels, where no autoencoder stands before it.
    """
    for field in ("downsample_type", "upsample_type"):
        fields.one_of(config, field, ("conv",), "conv")
    null = "attention_head_dim" in config.values and not config.has("attention_head_dim")
    dim = None if null else config.integer("attention_head_dim", default=8)
    plan = fields.unprompted(config, (224, 448, 672, 896), DDPM_DOWN, 2, dim)
    count, first = len(plan.widths), plan.widths[0]
    fourier = fields.one_of(config, "time_embedding_type", ("positional", "fourier", "learned"), "positional") == "fourier"
    width = config.integer("time_embedding_dim", default=4 * first)
    yield from fields.time_works(config, 2 * first if fourier else first, width)
    time = Time(width, fields.time_parts(config))
    yield unets.entry(config.integer("in_channels", default=3), LATENT, 3, first)
    levels = fields.planes(config, LATENT, count)
    yield from unets.down(plan.down(), levels, first, time)
    if config.has("mid_block_type") or "mid_block_type" not in config.values:
        kind = fields.SELF if config.flag("add_attention", True) else fields.PLAIN
        yield from unets.middle(plan.middle(kind), levels[-1], time)
    rising = fields.kinds(config, "up_block_types", DDPM_UP, count, (fields.PLAIN, fields.SELF))
    yield from unets.up(plan.up(rising), levels[::-1], plan.widths[::-1], time)
    yield unets.leave(config.integer("out_channels", default=3), LATENT, 3, first)
