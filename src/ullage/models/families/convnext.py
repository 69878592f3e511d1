"""Convolutional networks after the plan of transformers: ConvNeXt and ConvNeXt V2."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import DEPTH, PIXELS, labels, numbers
from ullage.models.work import Work, convolution, matmul

MADE = ("conv.stem", "conv.down", "mlp.down")  # what a layer's first convolution reads: no norm stands before it


@model(
    *("ConvNextForImageClassification", "ConvNextModel", "convnext"),
    *("ConvNextV2ForImageClassification", "ConvNextV2Model", "convnextv2"),
    kind="vision",
    source="transformers 5.23, models/convnext and convnextv2; verified to the integer against traces",
)
def convnext(config: Config) -> Iterator[Work]:
    """ConvNeXt and ConvNeXt V2: a depthwise 7x7 convolution and a four times wider MLP in every layer.

    A layer of width w costs 2w(49 + 8w) FLOPs a position. The layer scale and V2's response normalization count 0.
    """
    widths = numbers(config, "hidden_sizes", (96, 192, 384, 768))
    depths = numbers(config, "depths", (3, 3, 9, 3), most=DEPTH)
    stages = config.integer("num_stages", default=4)
    if not stages == len(widths) == len(depths):
        raise config.error(("num_stages", "depths"), f"differ: {stages} stages, {len(widths)} hidden_sizes, {len(depths)} depths")
    base = "convnextv2" if "v2" in config.architecture.casefold() else "convnext"
    patch, channels = config.integer("patch_size", default=4, most=1024), config.integer("num_channels", default=3)
    plane = PIXELS.after(patch, patch)
    stem = f"{base}.embeddings.patch_embeddings"
    yield convolution("conv.stem", plane.positions, patch**2, channels, widths[0], module=stem, reads=("data",))
    for i, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        stage = f"{base}.encoder.stages.{i}"
        if i:
            plane = plane.after(2, 2)
            down = f"{stage}.downsampling_layer"
            yield convolution("conv.down", plane.positions, 4, widths[i - 1], width, (1,), stack=down, reads=("stream",))
        at = f"{stage}.layers"
        rows, layers = plane.positions, range(depth)
        yield convolution("conv.depthwise", rows, 49, width, width, layers, groups=width, stack=at, module="dwconv", reads=MADE, to=None)
        yield matmul("mlp.up", rows, width, 4 * width, layers, stack=at, module="pwconv1", reads=("conv.depthwise",), to=None)
        yield matmul("mlp.down", rows, 4 * width, width, layers, stack=at, module="pwconv2", reads=("mlp.up",))
    if not config.architecture.endswith("Model"):
        yield matmul("head", PIXELS.images, widths[-1], labels(config), module="classifier", to=None)
