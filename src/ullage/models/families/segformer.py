"""SegFormer: a pyramid of transformers whose attention reads a shrunken plane; for classes of images and of pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.planes import DEPTH, PIXELS, Plane, head_dim, labels, numbers
from ullage.models.work import Work, attention, convolution, matmul


@model(
    *("SegformerForSemanticSegmentation", "SegformerForImageClassification", "SegformerModel", "segformer"),
    kind="vision",
    source="transformers 5.23, models/segformer; Xie et al., arXiv:2105.15203; verified to the integer against traces",
)
def segformer(config: Config) -> Iterator[Work]:
    """SegFormer: overlapping patches, attention to keys and values of a plane shrunken by `sr_ratios`, MLPs with a depthwise 3x3.

    Without `architectures` it segments: every stage is projected to one width, on the finest plane fused into classes.
    """
    stages = _Stages(config)
    plane, before, planes = PIXELS, config.integer("num_channels", default=3), []
    for i, width in enumerate(stages.widths):
        patch, base = stages.patches[i], f"segformer.stages.{i}"
        plane = plane.after(patch, stages.strides[i], patch // 2 * 2)
        reads = ("stream",) if i else ("data",)
        yield convolution("vision.patch", plane.positions, patch**2, before, width, module=f"{base}.patch_embeddings.proj", reads=reads)
        yield from _layers(stages, i, plane, f"{base}.blocks")
        before = width
        planes.append(plane)
    if config.architecture.endswith("Classification"):
        yield matmul("head", PIXELS.images, before, labels(config), module="classifier", to=None)
    elif not config.architecture.endswith("Model"):
        yield from _segmentation(config, stages.widths, planes)


class _Stages:
    """The numbers of each stage, from the finest plane to the coarsest; the defaults are those of transformers' class."""

    def __init__(self, config: Config) -> None:
        self.depths = numbers(config, "depths", (2, 2, 2, 2), most=DEPTH)
        self.widths = numbers(config, "hidden_sizes", (32, 64, 160, 256))
        self.ratios = numbers(config, "sr_ratios", (8, 4, 2, 1), most=1024)
        self.patches = numbers(config, "patch_sizes", (7, 3, 3, 3), most=1024)
        self.strides = numbers(config, "strides", (4, 2, 2, 2), most=1024)
        self.heads = numbers(config, "num_attention_heads", (1, 2, 5, 8))
        self.inner = numbers(config, "mlp_ratios", (4, 4, 4, 4))
        count = config.integer("num_encoder_blocks", default=4)
        names = ("depths", "hidden_sizes", "sr_ratios", "patch_sizes", "strides", "num_attention_heads", "mlp_ratios")
        lists = (self.depths, self.widths, self.ratios, self.patches, self.strides, self.heads, self.inner)
        for name, values in zip(names, lists, strict=True):
            if len(values) != count:
                raise config.error((name,), f"has {len(values)} entries for {count} num_encoder_blocks")
        self.dims = [head_dim(config, "num_attention_heads", w, h) for w, h in zip(self.widths, self.heads, strict=True)]


def _layers(stages: _Stages, i: int, plane: Plane, stack: str) -> Iterator[Work]:
    width, heads, ratio, layers = stages.widths[i], stages.heads[i], stages.ratios[i], range(stages.depths[i])
    rows, small, inner = plane.positions, plane.after(ratio, ratio), stages.inner[i] * width
    wide = stages.dims[i] * heads
    yield matmul("attention.q", rows, width, wide, layers, stack=stack, module="attention.q_proj", to=None)
    source = ("stream",)
    if ratio > 1:
        source = ("attention.reduce",)
        module = "attention.sequence_reduction.sequence_reduction"
        yield convolution(source[0], small.positions, ratio**2, width, width, layers, stack=stack, module=module, to=None)
    for what in ("k", "v"):
        path = f"attention.{what}_proj"
        yield matmul(f"attention.{what}", small.positions, width, wide, layers, stack=stack, module=path, reads=source, to=None)
    yield from attention(plane.pairs_with(small), heads, stages.dims[i], layers, stack=stack)
    yield matmul("attention.out", rows, wide, width, layers, stack=stack, module="attention.o_proj", reads=("attention.values",))
    yield matmul("mlp.up", rows, width, inner, layers, stack=stack, module="mlp.fc1", to=None)
    depthwise = "mlp.dwconv.dwconv"
    yield convolution("mlp.conv", rows, 9, inner, inner, layers, groups=inner, stack=stack, module=depthwise, reads=("mlp.up",), to=None)
    yield matmul("mlp.down", rows, inner, width, layers, stack=stack, module="mlp.fc2", reads=("mlp.conv",))


def _segmentation(config: Config, widths: Sequence[int], planes: Sequence[Plane]) -> Iterator[Work]:
    """Yield the head that segments: a projection of each stage, their fusion and the classes on the finest plane."""
    wide, finest = config.integer("decoder_hidden_size", default=256), planes[0].positions
    for i, (width, plane) in enumerate(zip(widths, planes, strict=True)):
        yield matmul("decoder.projection", plane.positions, width, wide, (i,), stack="decode_head.linear_projections", module="proj")
    yield convolution("decoder.fuse", finest, 1, wide * len(planes), wide, module="decode_head.linear_fuse")
    yield convolution("head", finest, 1, wide, labels(config), module="decode_head.classifier", to=None)
