"""Residual networks of convolutions: ResNet with basic and bottleneck layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import DEPTH, PIXELS, Plane, labels, numbers
from ullage.models.sample import Quantity
from ullage.models.work import Work, convolution, matmul

# torchvision's names: depths, and whether a layer is a bottleneck (widths then are four times as large)
TORCHVISION = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}
BOTTLENECK, BASIC = "bottleneck", "basic"


@model(
    *("ResNetForImageClassification", "ResNetModel", "resnet", *TORCHVISION),
    kind="vision",
    source="transformers 5.23, models/resnet; He et al., arXiv:1512.03385; verified to the integer against traces",
)
def resnet(config: Config) -> Iterator[Work]:
    """ResNet of transformers, and torchvision's resnet18 to resnet152 by name; the stride is in the 3x3 (v1.5) unless told.

    A convolution costs 2 × taps × inputs × outputs FLOPs a position. Batch norm, pooling and the sums count 0. By a name of
    torchvision the head has 1000 classes; a configuration of transformers that is silent has 2.
    """
    kind = config.word("layer_type", default=BOTTLENECK)
    if kind not in (BOTTLENECK, BASIC):
        raise config.error(("layer_type",), f"must be {BOTTLENECK} or {BASIC}")
    depths, bottleneck = TORCHVISION.get(config.architecture, ((3, 4, 6, 3), kind == BOTTLENECK))
    named = config.architecture in TORCHVISION
    stages = numbers(config, "depths", depths, most=DEPTH)
    narrow = named and not bottleneck
    widths = numbers(config, "hidden_sizes", (64, 128, 256, 512) if narrow else (256, 512, 1024, 2048), least=4)
    if len(widths) != len(stages):
        raise config.error(("hidden_sizes",), f"has {len(widths)} entries for {len(stages)} depths")
    before = config.integer("embedding_size", default=64)
    plane = PIXELS.after(7, 2, 6)
    yield _conv("conv.stem", plane, 49, config.integer("num_channels", default=3), before, reads=("data",), module="embedder.embedder")
    plane = plane.after(3, 2, 2)
    for i, (depth, width) in enumerate(zip(stages, widths, strict=True)):
        stride = 2 if i or config.flag("downsample_in_first_stage") else 1
        stage = _Stage(f"resnet.encoder.stages.{i}.layers", bottleneck, config.flag("downsample_in_bottleneck"))
        yield from stage.works(plane, before, width, depth, stride)
        plane, before = plane.after(1, stride), width
    if config.architecture != "ResNetModel":
        count = labels(config, 1000 if named else 2)
        yield matmul("head", PIXELS.images, before, count, module="classifier.1", reads=stage.inputs, to=None)


class _Stage:
    """The layers of one stage; what flows on is named by the works that made it, for no norm stands before a layer."""

    def __init__(self, stack: str, bottleneck: bool, early: bool) -> None:
        self.stack, self.bottleneck, self.early = stack, bottleneck, early
        self.last = "conv.third" if bottleneck else "conv.second"
        self.inputs = ("conv.stem", self.last)

    def works(self, plane: Plane, before: int, width: int, depth: int, stride: int) -> Iterator[Work]:
        """Yield the first layer, which changes the width and the plane, and the others."""
        after = plane.after(1, stride)
        if before != width or stride != 1:
            yield self._work("conv.shortcut", after, 1, before, width, range(1), self.inputs, "shortcut")
        yield from self._layer(plane, after, before, width, range(min(1, depth)))
        if depth > 1:
            yield from self._layer(after, after, width, width, range(1, depth))

    def _layer(self, plane: Plane, after: Plane, before: int, width: int, layers: Sequence[int]) -> Iterator[Work]:
        shortcut = "conv.shortcut"
        if not self.bottleneck:
            yield self._work("conv.first", after, 9, before, width, layers, self.inputs, "layer.0")
            yield self._work("conv.second", after, 9, width, width, layers, ("conv.first", shortcut), "layer.1")
            return
        inner = width // 4
        first = after if self.early else plane
        yield self._work("conv.first", first, 1, before, inner, layers, self.inputs, "layer.0")
        yield self._work("conv.second", after, 9, inner, inner, layers, ("conv.first",), "layer.1")
        yield self._work("conv.third", after, 1, inner, width, layers, ("conv.second", shortcut), "layer.2")

    def _work(
        self, name: str, plane: Plane, taps: int, inner: int, outer: int, layers: Sequence[int], reads: tuple[str, ...], module: str
    ) -> Work:
        return _conv(name, plane, taps, inner, outer, layers=layers, stack=self.stack, reads=reads, module=module)


def _conv(
    name: str, plane: Plane, taps: int, inner: int, outer: int, *, reads: tuple[str, ...], module: str,
    layers: Sequence[int] = (0,), stack: str = "",
) -> Work:  # fmt: skip
    of: Quantity = plane.positions
    path = f"{module}.convolution" if stack else f"resnet.{module}.convolution"
    return convolution(name, of, taps, inner, outer, layers, stack=stack, module=path, reads=reads, to=None)
