"""The U-shaped denoisers of diffusers, ControlNet, and the autoencoders of images and videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ullage.models import unets
from ullage.models.config import Config
from ullage.models.model import diffusers_model
from ullage.models.planes import LATENT, PIXELS, ImagePlane, Size, numbers, per_stage
from ullage.models.sample import Quantity, Sample, quantity, required
from ullage.models.unets import (
    BLOCKS,
    PLAIN,
    SELF,
    Time,
    halved,
    kinds,
    planes,
    prompt_works,
    prompted,
    prompted_middle,
    prompted_time,
    time_works,
    unprompted,
    within,
)
from ullage.models.work import Work, attention, convolution

UP = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
DDPM_DOWN = ("DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D")
DDPM_UP = ("AttnUpBlock2D", "AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D")


@diffusers_model(
    "UNet2DConditionModel; Rombach et al., arXiv:2112.10752", "UNet2DConditionModel",
    "StableDiffusionPipeline", "StableDiffusionImg2ImgPipeline", "StableDiffusionInpaintPipeline",
    "StableDiffusionXLPipeline", "StableDiffusionXLImg2ImgPipeline", "StableDiffusionXLInpaintPipeline",
    "StableDiffusionUpscalePipeline", "StableDiffusionInstructPix2PixPipeline",
    "LatentConsistencyModelPipeline",
)  # fmt: skip
def unet_condition(config: Config) -> Iterator[Work]:
    """The UNet of Stable Diffusion 1.x, 2.x, XL, inpainting and upscaling: residual blocks, and transformers that read the prompt.

    `--latent` is the grid it works on (pixels / 8); the text encoder and the autoencoder are not in it. The additional input
    channels of inpainting, editing and upscaling are in the configuration. XL's pooled text and sizes enter the time embedding
    once a sample.
    """
    plan = unets.prompted(config)
    count, first = len(plan.widths), plan.widths[0]
    inner, width, time = unets.prompted_time(config, first)
    yield from unets.time_works(config, inner, width)
    yield from unets.prompt_works(config, plan.sources[0])
    kernel = config.integer("conv_in_kernel", default=3, most=99)
    finest = unets.same(LATENT, kernel)
    yield unets.entry(config.integer("in_channels", default=4), finest, kernel, first)
    levels = unets.planes(config, finest, count)
    yield from unets.down(plan.down(), levels, first, time)
    yield from unets.prompted_middle(config, plan, levels[-1], time)
    rising = unets.kinds(config, "up_block_types", UP, count, (unets.PLAIN, unets.SELF, unets.CROSS))
    depths = None
    if config.has("reverse_transformer_layers_per_block"):
        depths = per_stage(config, "reverse_transformer_layers_per_block", count, 1, most=unets.BLOCKS)
    yield from unets.up(plan.up(rising, depths), levels[::-1], plan.widths[::-1], time)
    kernel = config.integer("conv_out_kernel", default=3, most=99)
    yield unets.leave(config.integer("out_channels", default=4), unets.same(finest, kernel), kernel, first)


@diffusers_model("UNet2DModel; Ho et al., arXiv:2006.11239", "UNet2DModel", "DDPMPipeline", "DDIMPipeline", shapes=("latent",))
def unet_image(config: Config) -> Iterator[Work]:
    """The UNet of DDPM and its like, without a prompt: residual blocks, attention over the plane at low resolutions.

    `--latent` is the grid it works on: of pixels, where no autoencoder stands before it.
    """
    for field in ("downsample_type", "upsample_type"):
        unets.one_of(config, field, ("conv",), "conv")
    null = "attention_head_dim" in config.values and not config.has("attention_head_dim")
    dim = None if null else config.integer("attention_head_dim", default=8)
    plan = unets.unprompted(config, (224, 448, 672, 896), DDPM_DOWN, 2, dim)
    count, first = len(plan.widths), plan.widths[0]
    fourier = unets.one_of(config, "time_embedding_type", ("positional", "fourier", "learned"), "positional") == "fourier"
    width = config.integer("time_embedding_dim", default=4 * first)
    yield from unets.time_works(config, 2 * first if fourier else first, width)
    time = Time(width, unets.time_parts(config))
    yield unets.entry(config.integer("in_channels", default=3), LATENT, 3, first)
    levels = unets.planes(config, LATENT, count)
    yield from unets.down(plan.down(), levels, first, time)
    if config.has("mid_block_type") or "mid_block_type" not in config.values:
        kind = unets.SELF if config.flag("add_attention", True) else unets.PLAIN
        yield from unets.middle(plan.middle(kind), levels[-1], time)
    rising = unets.kinds(config, "up_block_types", DDPM_UP, count, (unets.PLAIN, unets.SELF))
    yield from unets.up(plan.up(rising), levels[::-1], plan.widths[::-1], time)
    yield unets.leave(config.integer("out_channels", default=3), LATENT, 3, first)


CONDITION = "controlnet_cond_embedding"


@diffusers_model("ControlNetModel; Zhang et al., arXiv:2302.05543", "ControlNetModel")
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


@diffusers_model(
    "UNet2DConditionModel and ControlNetModel", "StableDiffusionControlNetPipeline",
    "StableDiffusionControlNetImg2ImgPipeline", "StableDiffusionControlNetInpaintPipeline",
    "StableDiffusionXLControlNetPipeline", "StableDiffusionXLControlNetImg2ImgPipeline",
    "StableDiffusionXLControlNetInpaintPipeline",
)  # fmt: skip
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


NO_TIME = Time()


@diffusers_model(
    "AutoencoderKL; Rombach et al., arXiv:2112.10752", "AutoencoderKL", "AutoencoderKL.encode",
    "AutoencoderKL.decode", kind="vision",
)  # fmt: skip
def autoencoder(config: Config) -> Iterator[Work]:
    """AutoencoderKL of Stable Diffusion, SDXL, SD3 and Flux: encoder, then decoder, as its forward pass does.

    Generation decodes only and training a denoiser encodes only: these are the kinds "AutoencoderKL.decode" and
    "AutoencoderKL.encode". Images are given by `--image`, or by the `--latent` grid that they become. Tiling counts nothing:
    the overlaps of tiles are not in it.
    """
    plan = unprompted(config, (64,), ("DownEncoderBlock2D",), 1, None)
    count = len(plan.widths)
    latents = config.integer("latent_channels", default=4)
    fine = [_images(count)]
    for _ in range(count - 1):
        fine.append(halved(fine[-1], padding=0))
    middle = plan.middle(SELF if config.flag("mid_block_add_attention", True) else PLAIN)
    if not config.architecture.endswith(".decode"):
        yield from unets.within("encoder", _encoder(config, plan.down(), middle, fine, latents))
    if config.architecture.endswith(".encode"):
        return
    coarse = [_latents(fine[-1])]
    for _ in range(count - 1):
        coarse.append(coarse[-1].enlarged(2))
    rising = plan.up(kinds(config, "up_block_types", ("UpDecoderBlock2D",), count, (PLAIN, SELF)))
    reads = "data" if config.architecture.endswith(".decode") else "stream"
    yield from unets.within("decoder", _decoder(config, rising, middle, coarse, latents, reads))


def _encoder(
    config: Config, blocks: Sequence[unets.Resolution], middle: unets.Resolution, planes: Sequence[ImagePlane], latents: int
) -> Iterator[Work]:
    first, last, path = blocks[0].width, blocks[-1].width, "encoder."
    yield unets.entry(config.integer("in_channels", default=3), planes[0], 3, first, path)
    yield from unets.down(blocks, planes, first, NO_TIME, path)
    yield from unets.middle(middle, planes[-1], NO_TIME, path)
    yield unets.leave(2 * latents, planes[-1], 3, last, path)
    if config.flag("use_quant_conv", True):
        yield convolution("conv.quant", planes[-1].positions, 1, 2 * latents, 2 * latents, module="quant_conv")


def _decoder(
    config: Config, blocks: Sequence[unets.Resolution], middle: unets.Resolution, planes: Sequence[ImagePlane], latents: int, reads: str
) -> Iterator[Work]:
    first, last, path = blocks[0].width, blocks[-1].width, "decoder."
    if config.flag("use_post_quant_conv", True):
        yield convolution("conv.quant", planes[0].positions, 1, latents, latents, module="post_quant_conv", reads=(reads,))
        reads = "stream"
    yield convolution("conv.in", planes[0].positions, 9, latents, first, module=f"{path}conv_in", reads=(reads,))
    yield from unets.middle(middle, planes[0], NO_TIME, path)
    yield from unets.up(blocks, planes, None, NO_TIME, path)
    yield unets.leave(config.integer("out_channels", default=3), planes[-1], 3, last, path)


def _images(count: int) -> ImagePlane:
    """Return the plane of the images: pixels, or what the grid of latents stands for."""
    grown = LATENT.enlarged(1 << (count - 1))

    def sizes(sample: Sample) -> tuple[Size, ...]:
        return PIXELS.sizes(sample) if sample.pixels or sample.latent is None else grown.sizes(sample)

    return ImagePlane(f"images of {count} stages", sizes)


def _latents(encoded: ImagePlane) -> ImagePlane:
    """Return the plane of the latents: as given, or what the images become."""

    def sizes(sample: Sample) -> tuple[Size, ...]:
        return encoded.sizes(sample) if sample.pixels or sample.latent is None else LATENT.sizes(sample)

    return ImagePlane(f"latents of {encoded.name}", sizes)


QKV = ("attention.qkv", "attention.qkv", "attention.qkv")


@diffusers_model(
    "AutoencoderKLWan and AutoencoderKLQwenImage", "AutoencoderKLWan", "AutoencoderKLWan.encode",
    "AutoencoderKLWan.decode", "AutoencoderKLQwenImage", "AutoencoderKLQwenImage.encode",
    "AutoencoderKLQwenImage.decode", kind="vision", shapes=("latent",),
)  # fmt: skip
def video_autoencoder(config: Config) -> Iterator[Work]:
    """The autoencoder of Wan and Qwen-Image: encoder, then decoder, as its forward pass does; ".encode" and ".decode" are one of them.

    Convolutions are causal in time and keep the frames they have seen, so that a video costs what it would in one piece: each
    frame once. The first frame stands alone, the others are halved and doubled in time. Videos are given by the `--latent`
    grid that they become; a single image also by `--image`. Tiling counts nothing.
    """
    plan = _Plan.of(config)
    coarse = plan.grid(len(plan.factors) - 1)
    z = config.integer("z_dim", default=16)
    if not config.architecture.endswith(".decode"):
        wide = config.integer("base_dim", default=96)
        yield from within("encoder", _video_encoder(config, plan, wide, 2 * z))
        yield convolution("conv.quant", coarse.positions, 1, 2 * z, 2 * z, module="quant_conv")
    if not config.architecture.endswith(".encode"):
        reads = ("data",) if config.architecture.endswith(".decode") else ("stream",)
        wide = config.integer("decoder_base_dim", "base_dim", default=96)
        yield convolution("conv.post_quant", coarse.positions, 1, z, z, module="post_quant_conv", reads=reads)
        yield from within("decoder", _video_decoder(config, plan, wide, z))


def _video_encoder(config: Config, plan: _Plan, base: int, z: int) -> Iterator[Work]:
    widths = [base, *(base * factor for factor in plan.factors)]
    channels = config.integer("in_channels", "input_channels", default=3)
    yield convolution("conv.in", plan.grid(0).positions, 27, channels, base, module="encoder.conv_in", reads=("data",))
    index = 0  # of the layer: Wan 2.1 lists all layers of all stages in one row
    for i, (before, width) in enumerate(pairwise(widths)):
        grid = plan.grid(i)
        for j in range(plan.blocks):
            place = ("encoder.down_blocks", index) if not plan.nested else (f"encoder.down_blocks.{i}.resnets", j)
            yield from _residual(grid, before if j == 0 else width, width, *place)
            index += 1
        if i == len(plan.factors) - 1:
            break
        down = f"encoder.down_blocks.{i}.downsampler" if plan.nested else f"encoder.down_blocks.{index}"
        index += 1
        yield convolution("conv.down", plan.grid(i + 1, grid.frames).positions, 9, width, width, module=f"{down}.resample.1")
        if plan.timed[i]:
            yield convolution("conv.time", plan.grid(i + 1).moving, 3, width, width, module=f"{down}.time_conv")
    yield from _middle(grid, width, "encoder")
    yield convolution("conv.out", grid.positions, 27, width, z, module="encoder.conv_out")


def _video_decoder(config: Config, plan: _Plan, base: int, z: int) -> Iterator[Work]:
    factors = plan.factors[::-1]
    last = len(factors) - 1
    grid, before = plan.grid(last), base * factors[0]
    yield convolution("conv.in", grid.positions, 27, z, before, module="decoder.conv_in")
    yield from _middle(grid, before, "decoder")
    for i, factor in enumerate(factors):
        width, path = base * factor, f"decoder.up_blocks.{i}"
        for j in range(plan.blocks + 1):
            yield from _residual(grid, before if j == 0 else width, width, f"{path}.resnets", j)
        before = width
        if i == last:
            break
        upper = f"{path}.upsampler" if plan.nested else f"{path}.upsamplers.0"
        if plan.timed[last - 1 - i]:
            yield convolution("conv.time", grid.moving, 3, width, 2 * width, module=f"{upper}.time_conv")
        grid, before = plan.grid(last - 1 - i), width if plan.nested else width // 2
        yield convolution("conv.up", grid.positions, 9, width, before, module=f"{upper}.resample.1")
    channels = config.integer("out_channels", "input_channels", default=3)
    yield convolution("conv.out", grid.positions, 27, before, channels, module="decoder.conv_out")


def _residual(grid: _Grid, before: int, width: int, stack: str, index: int) -> Iterator[Work]:
    rows, layers = grid.positions, (index,)
    if before != width:
        yield convolution("conv.shortcut", rows, 1, before, width, layers, stack=stack, module="conv_shortcut")
    yield convolution("conv.first", rows, 27, before, width, layers, stack=stack, module="conv1", to=None)
    yield convolution("conv.second", rows, 27, width, width, layers, stack=stack, module="conv2", reads=("conv.first",))


def _middle(grid: _Grid, width: int, part: str) -> Iterator[Work]:
    """Yield a residual block, attention of one head within each frame, and a residual block."""
    path, stack = f"{part}.mid_block.resnets", f"{part}.mid_block.attentions"
    yield from _residual(grid, width, width, path, 0)
    yield convolution("attention.qkv", grid.positions, 1, width, 3 * width, stack=stack, module="to_qkv", to=None)
    yield from attention(grid.pairs, 1, width, stack=stack, inputs=QKV)
    yield convolution("attention.out", grid.positions, 1, width, width, stack=stack, module="proj", reads=("attention.values",))
    yield from _residual(grid, width, width, path, 1)


@dataclass(frozen=True)
class _Plan:
    """The stages from the finest: their widths in units of the base, and behind which of them time is halved."""

    factors: list[int]
    timed: list[bool]
    blocks: int
    nested: bool  # Wan 2.2: each stage is a block with a shortcut of its own
    patch: int

    @classmethod
    def of(cls, config: Config) -> _Plan:
        factors = numbers(config, "dim_mult", (1, 2, 4, 4))
        timed = config.values.get("temperal_downsample", [False, True, True])
        if not isinstance(timed, list | tuple) or len(timed) != len(factors) - 1 or not all(isinstance(t, bool) for t in timed):
            raise config.error(("temperal_downsample",), f"must be {len(factors) - 1} times true or false")
        if config.values.get("attn_scales"):
            raise config.error(("attn_scales",), "is not empty, and there is no formula for attention between the stages")
        blocks = config.integer("num_res_blocks", default=2, most=BLOCKS)
        return cls(factors, list(timed), blocks, config.flag("is_residual"), config.integer("patch_size", default=1, most=1024))

    def grid(self, stage: int, doublings: int | None = None) -> _Grid:
        """Return the grid of a stage; its frames are those before time is halved `doublings` times more, if given."""
        return _Grid(stage, len(self.factors) - 1, sum(self.timed[stage:]) if doublings is None else doublings, self.patch)


@dataclass(frozen=True)
class _Grid:
    """Frames, rows and columns at a stage of an autoencoder with `last` halvings; time is to be halved `frames` times from here."""

    stage: int
    last: int
    frames: int
    patch: int

    @property
    def name(self) -> str:
        return f"stage {self.stage} of {self.last}, frames doubled {self.frames} times, patch {self.patch}"

    def _shape(self, sample: Sample) -> tuple[int, int]:
        """Return the frames behind the first, and the positions of a frame."""
        if sample.latent is not None:
            frames, rows, columns = sample.latent
            scale = 1 << (self.last - self.stage)
            return (frames - 1) << self.frames, rows * columns * scale * scale
        required("--latent", len(sample.pixels) == 1, "a video's or an image's grid of latents")
        height, width = (side // self.patch >> self.stage for side in sample.pixels[0])
        return 0, height * width

    @property
    def positions(self) -> Quantity:
        """The positions of all frames."""
        return quantity(f"video positions, {self.name}", lambda s: (1 + self._shape(s)[0]) * self._shape(s)[1])

    @property
    def moving(self) -> Quantity:
        """The positions of the frames behind the first."""
        return quantity(f"video positions behind the first frame, {self.name}", lambda s: self._shape(s)[0] * self._shape(s)[1])

    @property
    def pairs(self) -> Quantity:
        """The pairs of attention within each frame."""
        return quantity(f"video pairs, {self.name}", lambda s: (1 + self._shape(s)[0]) * self._shape(s)[1] ** 2)
