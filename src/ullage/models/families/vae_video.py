"""The causal video autoencoders of Wan 2.1, Wan 2.2 and Qwen-Image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import numbers
from ullage.models.sample import Quantity, Sample, quantity, required
from ullage.models.unets import BLOCKS, within
from ullage.models.work import Work, attention, convolution

QKV = ("attention.qkv", "attention.qkv", "attention.qkv")


@model(
    *("AutoencoderKLWan", "AutoencoderKLWan.encode", "AutoencoderKLWan.decode"),
    *("AutoencoderKLQwenImage", "AutoencoderKLQwenImage.encode", "AutoencoderKLQwenImage.decode"),
    kind="vision",
    shapes=("latent",),
    source="diffusers 0.42, AutoencoderKLWan and AutoencoderKLQwenImage; verified to the integer against traces",
)
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
        yield from within("encoder", _encoder(config, plan, wide, 2 * z))
        yield convolution("conv.quant", coarse.positions, 1, 2 * z, 2 * z, module="quant_conv")
    if not config.architecture.endswith(".encode"):
        reads = ("data",) if config.architecture.endswith(".decode") else ("stream",)
        wide = config.integer("decoder_base_dim", "base_dim", default=96)
        yield convolution("conv.post_quant", coarse.positions, 1, z, z, module="post_quant_conv", reads=reads)
        yield from within("decoder", _decoder(config, plan, wide, z))


def _encoder(config: Config, plan: _Plan, base: int, z: int) -> Iterator[Work]:
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


def _decoder(config: Config, plan: _Plan, base: int, z: int) -> Iterator[Work]:
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
