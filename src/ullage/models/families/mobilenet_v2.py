"""MobileNet V2: inverted residuals of pointwise and depthwise convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import PIXELS, Plane, labels, ratio
from ullage.models.work import Work, convolution, matmul

CHANNELS = (16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320)
STRIDES = (2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1)
FLOW = ("conv.reduce",)  # no norm stands before a layer's first convolution, so what it reads is named by the work that made it


@model(
    *("MobileNetV2ForImageClassification", "MobileNetV2Model", "mobilenet_v2"),
    kind="vision",
    source="transformers 5.23, models/mobilenet_v2; Sandler et al., arXiv:1801.04381; verified to the integer against traces",
)
def mobilenet_v2(config: Config) -> Iterator[Work]:
    """MobileNet V2: its seventeen widths times `depth_multiplier`, rounded as the paper's code rounds them.

    Below an `output_stride` of 32 the last strides become dilations, which cost by the larger plane.
    """
    widths, base = [_scaled(config, c) for c in CHANNELS], "mobilenet_v2"
    first, channels = _scaled(config, 32), config.integer("num_channels", default=3)
    plane = _strided(config, PIXELS, 2)
    stem = f"{base}.conv_stem"
    yield _conv("conv.stem", plane, 9, channels, first, f"{stem}.first_conv", ("data",))
    made = "conv.stem"
    if not config.flag("first_layer_is_expansion", True):
        yield _conv("conv.expand", plane, 1, first, first, f"{stem}.expand_1x1", (made,))
        made = "conv.expand"
    yield _conv("conv.depthwise", plane, 9, first, first, f"{stem}.conv_3x3", (made,), groups=first)
    yield _conv("conv.reduce", plane, 1, first, widths[0], f"{stem}.reduce_1x1", ("conv.depthwise",))
    expansion, reached, most = ratio(config, "expand_ratio", 6.0), 2, config.integer("output_stride", default=32)
    for i, stride in enumerate(STRIDES):
        taken = 1 if reached == most else stride
        reached *= taken
        before, wide = widths[i], _rounded(config, round(widths[i] * expansion))
        at, after = f"{base}.layer.{i}", _strided(config, plane, taken)
        yield _conv("conv.expand", plane, 1, before, wide, f"{at}.expand_1x1", FLOW)
        yield _conv("conv.depthwise", after, 9, wide, wide, f"{at}.conv_3x3", ("conv.expand",), groups=wide)
        yield _conv("conv.reduce", after, 1, wide, widths[i + 1], f"{at}.reduce_1x1", ("conv.depthwise",))
        plane = after
    fixed = config.flag("finegrained_output", True) and ratio(config, "depth_multiplier", 1.0) < 1
    last = 1280 if fixed else _scaled(config, 1280)
    yield _conv("conv.out", plane, 1, widths[-1], last, f"{base}.conv_1x1", FLOW)
    if not config.architecture.endswith("Model"):
        yield matmul("head", PIXELS.images, last, labels(config), module="classifier", reads=("conv.out",), to=None)


def _conv(name: str, plane: Plane, taps: int, inner: int, outer: int, module: str, reads: tuple[str, ...], groups: int = 1) -> Work:
    path = f"{module}.convolution"
    return convolution(name, plane.positions, taps, inner, outer, groups=groups, module=path, reads=reads, to=None)


def _strided(config: Config, plane: Plane, stride: int) -> Plane:
    """Return the plane after a 3x3 convolution: padded as TensorFlow does (rounded up), or by one on each side."""
    return plane.divided(stride) if config.flag("tf_padding", True) else plane.after(3, stride, 2)


def _scaled(config: Config, channels: int) -> int:
    return _rounded(config, round(channels * ratio(config, "depth_multiplier", 1.0)))


def _rounded(config: Config, channels: int) -> int:
    """Return the nearest multiple of the divisor, not below the least width, nor more than a tenth below what it was."""
    divisor, least = config.integer("depth_divisible_by", default=8), config.integer("min_depth", default=8)
    nearest = max(least, (2 * channels + divisor) // 2 // divisor * divisor)
    return nearest + divisor if 10 * nearest < 9 * channels else nearest
