"""Planes of positions: an image, or a grid of latents, after a chain of convolutions; and lists of numbers, one a stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ullage.errors import UllageError
from ullage.models.config import MOST, Config
from ullage.models.sample import Quantity, Sample, quantity, required

Size = tuple[int, int]  # rows, columns
STAGES = 64  # no network halves an image more often
DEPTH = 1000  # layers of one stage: more is a mistake or an attack
LARGEST_RATIO = 1000.0


@dataclass(frozen=True)
class ImagePlane:
    """The positions of a sample's images at one depth of a network.

    `name` carries the chain of what was done to them, so that planes of one name are equal; `sizes` gives (rows, columns)
    of each image of a sample.

    >>> half = PIXELS.after(kernel=7, stride=2, padding=6)
    >>> half.name, half.sizes(Sample(pixels=((224, 223), (63, 64))))
    ('pixels > 7/2+6', ((112, 112), (32, 32)))
    """

    name: str
    sizes: Callable[[Sample], tuple[Size, ...]] = field(compare=False, repr=False)

    def after(self, kernel: int, stride: int = 1, padding: int = 0) -> ImagePlane:
        """Return the plane after a convolution or pooling; `padding` is that of both edges together."""
        if stride == 1 and padding == kernel - 1:
            return self
        return self._changed(f"{kernel}/{stride}+{padding}", lambda side: (side + padding - kernel) // stride + 1)

    def divided(self, stride: int) -> ImagePlane:
        """Return the plane after a stride that rounds up: what does not fill a stride is padded ("same" padding)."""
        return self if stride == 1 else self._changed(f"1/{stride} rounded up", lambda side: -(-side // stride))

    def enlarged(self, factor: int) -> ImagePlane:
        """Return the plane after upsampling."""
        return self if factor == 1 else self._changed(f"x{factor}", lambda side: side * factor)

    @property
    def positions(self) -> Quantity:
        """The positions of all images of a sample."""
        return quantity(f"positions of {self.name}", lambda s: sum(rows * columns for rows, columns in self.sizes(s)))

    @property
    def pairs(self) -> Quantity:
        """The pairs of self-attention within each image."""
        return quantity(f"pairs of {self.name}", lambda s: sum((rows * columns) ** 2 for rows, columns in self.sizes(s)))

    def pairs_with(self, other: ImagePlane) -> Quantity:
        """Return the pairs of attention from each image's positions to those of its other plane."""

        def of(sample: Sample) -> int:
            return sum(a * b * c * d for (a, b), (c, d) in zip(self.sizes(sample), other.sizes(sample), strict=True))

        return quantity(f"pairs of {self.name} with {other.name}", of)

    @property
    def images(self) -> Quantity:
        """The images of a sample: what is done once for each, after pooling."""
        return quantity(f"images of {self.name.partition(' ')[0]}", lambda s: len(self.sizes(s)))

    def _changed(self, step: str, side: Callable[[int], int]) -> ImagePlane:
        def sizes(sample: Sample) -> tuple[Size, ...]:
            before = self.sizes(sample)
            after = tuple((side(rows), side(columns)) for rows, columns in before)
            for size, (rows, columns) in zip(before, after, strict=True):
                if rows < 1 or columns < 1:
                    raise UllageError(
                        f"an image is too small for this model: nothing is left of {size[0]} × {size[1]} positions after {step}",
                        "give a larger --image or --latent",
                    )
            return after

        return ImagePlane(f"{self.name} > {step}", sizes)


def _pixels(sample: Sample) -> tuple[Size, ...]:
    required("--image", len(sample.pixels), "images")
    return sample.pixels


def _latent(sample: Sample) -> tuple[Size, ...]:
    if sample.latent is None:
        required("--latent", None, "a grid of latents")
        return ()
    frames, rows, columns = sample.latent
    if frames != 1:
        raise UllageError(f"this model makes one image at a time, and the grid of latents has {frames:,} frames", "--latent H,W")
    return ((rows, columns),)


PIXELS = ImagePlane("pixels", _pixels)
LATENT = ImagePlane("latent", _latent)


def numbers(config: Config, name: str, default: tuple[int, ...] | None = None, *, least: int = 1, most: int = MOST) -> list[int]:
    """Return a list of one integer a stage, or the documented default of the class when it is missing."""
    given = config.integers(name, least=least)
    if given is None and default is None:
        raise config.missing(name)
    found = list(default or ()) if given is None else given
    if not 1 <= len(found) <= STAGES:
        raise config.error((name,), f"has {len(found):,} entries, and needs 1 to {STAGES}")
    if max(found) > most:
        raise config.error((name,), f"has {max(found):,}, and may have {most:,}")
    return found


def per_stage(config: Config, name: str, count: int, default: int, most: int = MOST) -> list[int]:
    """Return one integer a stage: a list of `count`, or one number for all."""
    if not isinstance(config.values.get(name), list | tuple):
        return [config.integer(name, default=default, most=most)] * count
    given = numbers(config, name, most=most)
    if len(given) != count:
        raise config.error((name,), f"has {len(given)} entries for {count} stages")
    return given


def ratio(config: Config, name: str, default: float) -> float:
    """Return a field by which widths are multiplied: positive, and no mistake or attack."""
    value = config.number(name, default=default)
    if not 0 < value <= LARGEST_RATIO:
        raise config.error((name,), f"is {value:g}, and must lie between 0 and {LARGEST_RATIO:g}")
    return value


def stage_head_dim(config: Config, name: str, width: int, heads: int) -> int:
    """Return the width of a head: no stage has more heads than channels."""
    if heads > width:
        raise config.error((name,), f"asks for {heads:,} heads of {width:,} channels")
    return width // heads


def labels(config: Config, default: int = 2) -> int:
    """Return the classes of an image classifier: `num_labels`, or what `id2label` lists (transformers: 2 when silent)."""
    names = config.values.get("id2label")
    if not config.has("num_labels") and isinstance(names, dict) and names:
        return len(names)
    return config.integer("num_labels", default=default)
