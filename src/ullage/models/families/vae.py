"""The image autoencoder of latent diffusion: AutoencoderKL of diffusers, both ways or one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models import unets
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import LATENT, PIXELS, Plane, Size
from ullage.models.sample import Sample
from ullage.models.unet_config import PLAIN, SELF, kinds, unprompted
from ullage.models.unets import Time, halved
from ullage.models.work import Work, convolution

NO_TIME = Time()


@model(
    *("AutoencoderKL", "AutoencoderKL.encode", "AutoencoderKL.decode"),
    kind="vision",
    source="diffusers 0.42, AutoencoderKL; Rombach et al., arXiv:2112.10752; verified to the integer against traces",
)
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


def _encoder(config: Config, blocks: Sequence[unets.Block], middle: unets.Block, planes: Sequence[Plane], latents: int) -> Iterator[Work]:
    first, last, path = blocks[0].width, blocks[-1].width, "encoder."
    yield unets.entry(config.integer("in_channels", default=3), planes[0], 3, first, path)
    yield from unets.down(blocks, planes, first, NO_TIME, path)
    yield from unets.middle(middle, planes[-1], NO_TIME, path)
    yield unets.leave(2 * latents, planes[-1], 3, last, path)
    if config.flag("use_quant_conv", True):
        yield convolution("conv.quant", planes[-1].positions, 1, 2 * latents, 2 * latents, module="quant_conv")


def _decoder(
    config: Config, blocks: Sequence[unets.Block], middle: unets.Block, planes: Sequence[Plane], latents: int, reads: str
) -> Iterator[Work]:
    first, last, path = blocks[0].width, blocks[-1].width, "decoder."
    if config.flag("use_post_quant_conv", True):
        yield convolution("conv.quant", planes[0].positions, 1, latents, latents, module="post_quant_conv", reads=(reads,))
        reads = "stream"
    yield convolution("conv.in", planes[0].positions, 9, latents, first, module=f"{path}conv_in", reads=(reads,))
    yield from unets.middle(middle, planes[0], NO_TIME, path)
    yield from unets.up(blocks, planes, None, NO_TIME, path)
    yield unets.leave(config.integer("out_channels", default=3), planes[-1], 3, last, path)


def _images(count: int) -> Plane:
    """Return the plane of the images: pixels, or what the grid of latents stands for."""
    grown = LATENT.enlarged(1 << (count - 1))

    def sizes(sample: Sample) -> tuple[Size, ...]:
        return PIXELS.sizes(sample) if sample.pixels or sample.latent is None else grown.sizes(sample)

    return Plane(f"images of {count} stages", sizes)


def _latents(encoded: Plane) -> Plane:
    """Return the plane of the latents: as given, or what the images become."""

    def sizes(sample: Sample) -> tuple[Size, ...]:
        return encoded.sizes(sample) if sample.pixels or sample.latent is None else LATENT.sizes(sample)

    return Plane(f"latents of {encoded.name}", sizes)
