"""Vision transformers with shifted windows: Swin and Swin V2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import DEPTH, PIXELS, Plane, Size, head_dim, labels, numbers, ratio
from ullage.models.sample import Quantity, Sample, quantity
from ullage.models.work import Work, attention, convolution, matmul

QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
QUERIES_V2 = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
FEED, FEED_V2 = ("mlp.fc1", "mlp.fc2"), ("intermediate.dense", "output.dense")


@model(
    *("SwinForImageClassification", "SwinModel", "swin", "Swinv2ForImageClassification", "Swinv2Model", "swinv2"),
    kind="vision",
    source="transformers 5.23, models/swin and swinv2; Liu et al., arXiv:2103.14030, 2111.09883; verified to the integer against traces",
    left_out=("*.continuous_position_bias_mlp.*",),  # V2's position bias: once a step whatever the batch, so that no sample pays for it
)
def swin(config: Config) -> Iterator[Work]:
    """Swin and Swin V2: attention within windows, patches merged four to one between stages.

    The attention and its projections work on the plane padded to whole windows; the MLP and the merging do not. A window is
    never larger than the plane (V2: than the plane of the configured image size). V2's position bias is made by a small MLP
    of the window's offsets, once a step whatever the batch: 2(2w - 1)²(2 + heads)512 FLOPs a layer, left out.
    """
    depths = numbers(config, "depths", (2, 2, 6, 2), most=DEPTH)
    heads = numbers(config, "num_heads", (3, 6, 12, 24))
    if len(heads) != len(depths):
        raise config.error(("num_heads",), f"has {len(heads)} entries for {len(depths)} depths")
    second = "v2" in config.architecture.casefold()
    base = "swinv2" if second else "swin"
    width, patch = config.integer("embed_dim", default=96), config.integer("patch_size", default=4, most=1024)
    times, channels = ratio(config, "mlp_ratio", 4.0), config.integer("num_channels", default=3)
    plane = PIXELS.divided(patch)
    stem = f"{base}.embeddings.patch_embeddings.projection"
    yield convolution("vision.patch", plane.positions, patch**2, channels, width, module=stem, reads=("data",))
    for i, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        windows = _Windows(plane, _window(config, i, patch) if second else config.integer("window_size", default=7), second)
        stack = f"{base}.encoder.layers.{i}.blocks"
        yield from _layers(
            windows, width, (count, head_dim(config, "num_heads", width, count)), int(times * width), range(depth), stack, second
        )
        if i < len(depths) - 1:
            plane = plane.divided(2)
            stack = f"{base}.encoder.layers"
            yield matmul("vision.merger", plane.positions, 4 * width, 2 * width, (i,), stack=stack, module="downsample.reduction")
            width *= 2
    if not config.architecture.endswith("Model"):
        yield matmul("head", PIXELS.images, width, labels(config), module="classifier", to=None)


def _window(config: Config, stage: int, patch: int) -> int:
    """Return the side of V2's windows in a stage: at most the rows of the plane of the configured image size."""
    given = config.values.get("image_size")
    rows = numbers(config, "image_size")[0] if isinstance(given, list | tuple) else config.integer("image_size", default=224)
    return max(1, min(config.integer("window_size", default=7), rows // (patch << stage)))


def _layers(
    windows: _Windows, width: int, heads: tuple[int, int], inner: int, layers: Sequence[int], stack: str, second: bool
) -> Iterator[Work]:
    rows, true = windows.positions, windows.plane.positions
    modules, (up, down) = (QUERIES_V2, FEED_V2) if second else (QUERIES, FEED)
    for what, module in zip(("q", "k", "v"), modules, strict=False):
        yield matmul(f"attention.{what}", rows, width, width, layers, stack=stack, module=module, to=None)
    yield from attention(windows.pairs, *heads, layers, stack=stack)
    yield matmul("attention.out", rows, width, width, layers, stack=stack, module=modules[3], reads=("attention.values",))
    yield matmul("mlp.up", true, width, inner, layers, stack=stack, module=up, to=None)
    yield matmul("mlp.down", true, inner, width, layers, stack=stack, module=down, reads=("mlp.up",))


class _Windows:
    """A plane cut into square windows of `side`; what does not fill one is padded. Unless fixed, a window shrinks to the plane."""

    def __init__(self, plane: Plane, side: int, fixed: bool) -> None:
        self.plane, self.side, self.fixed = plane, side, fixed

    @property
    def name(self) -> str:
        return f"{self.plane.name} in {'fixed ' if self.fixed else ''}windows of {self.side}"

    def _covered(self, size: Size) -> tuple[int, int]:
        """Return the padded positions of an image, and the positions of one window."""
        side = self.side if self.fixed else min(self.side, *size)
        rows, columns = (-(-n // side) * side for n in size)
        return rows * columns, side**2

    @property
    def positions(self) -> Quantity:
        """The positions of all windows of a sample."""
        return quantity(f"positions of {self.name}", lambda s: sum(covered for covered, _ in self._all(s)))

    @property
    def pairs(self) -> Quantity:
        """The pairs within all windows of a sample."""
        return quantity(f"pairs of {self.name}", lambda s: sum(covered * window for covered, window in self._all(s)))

    def _all(self, sample: Sample) -> list[tuple[int, int]]:
        return [self._covered(size) for size in self.plane.sizes(sample)]
