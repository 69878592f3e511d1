"""Vision transformers, convolutional networks and pyramids: classes of images and of pixels; CLIP and SigLIP with their texts."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from ullage.models.blocks import embedding, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.families.encoders import TEXT_PAIRS
from ullage.models.images import Images, Tower, pair, patching, scaled
from ullage.models.model import in_transformers, model, transformers_model
from ullage.models.planes import DEPTH, PIXELS, ImagePlane, Size, labels, numbers, ratio, stage_head_dim
from ullage.models.sample import ONCE, TEXT, Quantity, Sample, every_pair, pairs, quantity
from ullage.models.work import Work, attention, contraction, convolution, matmul

QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
PATCHES = "embeddings.patch_embeddings.projection"
VIT_FEED, GATED_FEED = ("mlp.fc1", "mlp.fc2"), ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def _named(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}{end}" for stem in stems for end in ("ForImageClassification", "Model"))


@transformers_model(
    "models/vit, deit and beit; Dosovitskiy et al., arXiv:2010.11929", "vit", "deit", "beit",
    "DeiTForImageClassificationWithTeacher", *_named("ViT", "DeiT", "Beit"), kind="vision",
)  # fmt: skip
def vit(config: Config) -> Iterator[Work]:
    """ViT, DeiT (one token more, for distillation) and BEiT: patches and a class token, ungated MLP.

    An image of P patches and T = P + 1 tokens costs 2P·3p²h + 2TL(4h² + 2hf) + 4hL × T² FLOPs forward, and the classifier once.
    Images of another size than the configuration's are counted as they are, with interpolated positions.
    """
    name = config.architecture.casefold()
    base = next(word for word in ("deit", "beit", "vit") if word in name)
    images = _images(config, 16, 2 if base == "deit" else 1)
    bare = config.architecture.endswith("Model")
    prefix = "" if bare else f"{base}."
    width = yield from _trunk(config, images, prefix, "layers", config.integer("intermediate_size"), VIT_FEED)
    if bare and base != "beit":
        columns = config.integer("pooler_output_size", default=width)
        yield matmul("head.pooler", images.count, width, columns, module="pooler.dense", to=None)
    if name.endswith("withteacher"):
        yield matmul("head", images.count, width, labels(config), module="cls_classifier", to=None)
        yield matmul("head.distilled", images.count, width, labels(config), module="distillation_classifier", to=None)
    elif not bare:
        yield matmul("head", images.count, width, labels(config), module="classifier", to=None)


@transformers_model(
    "models/dinov2 and dinov2_with_registers; arXiv:2304.07193", "dinov2", "dinov2_with_registers",
    *_named("Dinov2", "Dinov2WithRegisters"), kind="vision",
)  # fmt: skip
def dinov2(config: Config) -> Iterator[Work]:
    """DINOv2, with registers or without: ViT whose MLP may be gated, and whose classifier reads class token and mean patch."""
    registers = "registers" in config.architecture.casefold()
    extra = 1 + (config.integer("num_register_tokens", default=4, least=0) if registers else 0)
    images = _images(config, 16 if registers else 14, extra)
    bare = config.architecture.endswith("Model")
    prefix = "" if bare else ("dinov2_with_registers." if registers else "dinov2.")
    gated = config.flag("use_swiglu_ffn")
    inner = scaled(config, config.integer("hidden_size"))
    if gated:
        inner = (inner * 2 // 3 + 7) // 8 * 8
    width = yield from _trunk(config, images, prefix, "encoder.layer", inner, GATED_FEED if gated else VIT_FEED)
    if not bare:
        yield matmul("head", images.count, 2 * width, labels(config), module="classifier", to=None)


@transformers_model("models/dinov3_vit; Siméoni et al., arXiv:2508.10104", "dinov3_vit", "DINOv3ViTModel", kind="vision")
def dinov3(config: Config) -> Iterator[Work]:
    """DINOv3's ViT: registers, rotary positions, an MLP gated or not; no head."""
    images = _images(config, 16, 1 + config.integer("num_register_tokens", default=0, least=0))
    feed = GATED_FEED if config.flag("use_gated_mlp") else ("mlp.up_proj", "mlp.down_proj")
    inner = config.integer("intermediate_size")
    yield from _trunk(config, images, "", "model.layer", inner, feed, module="embeddings.patch_embeddings")


def _images(config: Config, patch: int, extra: int) -> Images:
    rows, columns = pair(config, "patch_size", patch)
    return Images(rows, columns, extra, needed=True)


def _trunk(
    config: Config, images: Images, prefix: str, stack: str, inner: int, feed: Sequence[str], module: str = PATCHES
) -> Generator[Work, None, int]:
    """Yield the patch embedding and the layers, and return the width."""
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    layers, channels = config.layers(), config.integer("num_channels", default=3)
    yield patching(images, channels, width, f"{prefix}{module}", to="stream")
    tower = Tower(f"{prefix}{stack}", layers, width, heads, inner, QUERIES, tuple(feed), head_dim(config, width, heads), "", "stream")
    yield from tower.works(images.tokens, [(images.pairs, layers)])
    return width


_CLIP_SOURCE = in_transformers("models/clip; Radford et al., arXiv:2103.00020")
# What the classes take for fields that files leave out
VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 32}
TEXTUAL = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8}


@model("clip", "CLIPModel", kind="vision-language", shapes=("seq", "image"), source=_CLIP_SOURCE)
def clip(config: Config) -> Iterator[Work]:
    """CLIP: images and texts through a tower each, one vector of each compared.

    An image of P patches costs 2P·3p²h + 2(P + 1)L(4h² + 2hf) + 4hL × (P + 1)²; the text the same without patches, causally.
    The comparison of all texts of a step with all its images costs 2 × projection_dim a pair.
    """
    yield embedding(module="text_model.embeddings.token_embedding")
    width = yield from text_tower(config.section("text_config", optional=True), "text_model.", pairs())
    images, columns = photographs(config.section("vision_config", optional=True)), config.integer("projection_dim", default=512)
    seen = yield from vision_tower(config.section("vision_config", optional=True), "vision_model.", images)
    place = "visual_projection"
    yield matmul("head.image", images.count, seen, columns, module=place, reads=("vision",), to=None)
    yield matmul("head.text", ONCE, width, columns, module="text_projection", to=None)
    yield contraction("head", every_pair(images.count), 2 * columns, reads=("head.text", "head.image"))


@model("clip_text_model", "CLIPTextModel", "CLIPTextModelWithProjection", kind="encoder", causal=True, source=_CLIP_SOURCE)
def clip_text(config: Config) -> Iterator[Work]:
    """CLIP's text tower, as diffusion models use it: causal attention, ungated MLP, a projection of one token or none."""
    projected = config.architecture.endswith("Projection")
    base = "text_model." if projected else ""
    yield embedding(module=f"{base}embeddings.token_embedding")
    width = yield from text_tower(config, base, pairs())
    if projected:
        columns = config.integer("projection_dim", default=512)
        yield matmul("head", ONCE, width, columns, module="text_projection", to=None)


@model(
    *("clip_vision_model", "CLIPVisionModel", "CLIPVisionModelWithProjection", "CLIPForImageClassification"),
    kind="vision",
    source=_CLIP_SOURCE,
)
def clip_vision(config: Config) -> Iterator[Work]:
    """CLIP's image tower alone, with its projection, with a classifier of the mean patch, or bare."""
    classifies = config.architecture.endswith("Classification")
    projected = config.architecture.endswith("Projection")
    section = config.section("vision_config", optional=True) if classifies else config
    images = photographs(section)
    width = yield from vision_tower(section, "vision_model." if classifies or projected else "", images)
    if classifies:
        yield matmul("head", images.count, width, labels(config), module="classifier", reads=("vision",), to=None)
    if projected:
        columns = config.integer("projection_dim", default=512)
        yield matmul("head", images.count, width, columns, module="visual_projection", reads=("vision",), to=None)


def photographs(section: Config, extra: int = 1, patch: int = 32) -> Images:
    """Return the images of a tower of this kind, which can't do without."""
    rows, columns = pair(section, "patch_size", patch)
    return Images(rows, columns, extra, needed=True)


def vision_tower(section: Config, base: str, images: Images, defaults: dict[str, int] = VISION) -> Generator[Work, None, int]:
    """Yield the works of an image tower of CLIP's (or SigLIP's) plan, and return its width."""
    known = documented(section, **defaults)
    yield patching(images, known.integer("num_channels", default=3), known.integer("hidden_size"), f"{base}embeddings.patch_embedding")
    tower = _clip_layers(known, base, "vision.", "vision")
    yield from tower.works(images.tokens, [(images.pairs, tower.layers)])
    return tower.width


def text_tower(section: Config, base: str, of: Quantity, defaults: dict[str, int] = TEXTUAL) -> Generator[Work, None, int]:
    """Yield the layers of a text tower of CLIP's (or SigLIP's) plan, and return its width."""
    tower = _clip_layers(documented(section, **defaults), base, "", "stream")
    yield from tower.works(TEXT, [(of, tower.layers)])
    return tower.width


def _clip_layers(section: Config, base: str, name: str, stream: str) -> Tower:
    width, heads = section.integer("hidden_size"), section.integer("num_attention_heads")
    layers, inner = section.layers(), section.integer("intermediate_size")
    dim = head_dim(section, width, heads, ())
    return Tower(f"{base}encoder.layers", layers, width, heads, inner, dim=dim, name=name, stream=stream)


_SIGLIP_SOURCE = in_transformers("models/siglip and siglip2; Zhai et al., arXiv:2303.15343")
SIZES = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}  # of both towers


@model(
    *("siglip", "SiglipModel", "siglip2", "Siglip2Model"),
    kind="vision-language",
    causal=False,
    shapes=("seq", "image"),
    source=_SIGLIP_SOURCE,
)
def siglip(config: Config) -> Iterator[Work]:
    """SigLIP and SigLIP 2: texts (all tokens see all) and images through a tower each, one vector of each compared.

    A learned query pools an image's T tokens: 4Th² for keys and values, 4Th for its attention, 4h² + 4hf once. The
    comparison of all texts with all images (see CLIP) ends it. Images are counted without
    the padding that SigLIP 2's processor adds.
    """
    texts, seen = config.section("text_config", optional=True), config.section("vision_config", optional=True)
    yield embedding(module="text_model.embeddings.token_embedding")
    columns = yield from _text(texts, "text_model.")
    images = photographs(seen, 0, 16)
    yield from pooled_tower(seen, "vision_model.", images)
    yield contraction("head", every_pair(images.count), 2 * columns, reads=("head.text", "vision.pool.down"))


@model("siglip_text_model", "SiglipTextModel", "siglip2_text_model", "Siglip2TextModel", kind="encoder", source=_SIGLIP_SOURCE)
def siglip_text(config: Config) -> Iterator[Work]:
    """The text tower of SigLIP or SigLIP 2: all tokens see all, one is projected."""
    yield embedding(module="embeddings.token_embedding")
    yield from _text(config, "")


@model(
    *("siglip_vision_model", "SiglipVisionModel", "SiglipForImageClassification"),
    *("siglip2_vision_model", "Siglip2VisionModel", "Siglip2ForImageClassification"),
    kind="vision",
    source=_SIGLIP_SOURCE,
)
def siglip_vision(config: Config) -> Iterator[Work]:
    """The image tower of SigLIP or SigLIP 2 alone; a classifier reads the mean patch, and leaves the pooled vector unused."""
    classifies = config.architecture.endswith("Classification")
    section = config.section("vision_config", optional=True) if classifies else config
    images = photographs(section, 0, 16)
    width = yield from pooled_tower(section, "vision_model." if classifies else "", images, used=not classifies)
    if classifies:
        yield matmul("head", images.count, width, labels(config), module="classifier", reads=("vision",), to=None)


def pooled_tower(section: Config, base: str, images: Images, *, used: bool = True) -> Generator[Work, None, int]:
    """Yield the image tower and, unless the section says it has none, the attention that pools its tokens; return the width."""
    width = yield from vision_tower(section, base, images, SIZES)
    if not section.flag("vision_use_head", True):
        return width
    heads, inner = section.integer("num_attention_heads", default=12), section.integer("intermediate_size", default=3072)
    module, once = f"{base}head.attention", images.count
    for what, rows in (("q", once), ("k", images.tokens), ("v", images.tokens)):
        yield matmul(f"vision.pool.{what}", rows, width, width, module=module, reads=("vision",), to=None, gradient=used)
    yield from attention(images.tokens, heads, width // heads, name="vision.pool", gradient=used)
    yield matmul("vision.pool.out", once, width, width, module=f"{module}.out_proj", reads=("vision.pool.values",), to=None, gradient=used)
    feed, before = f"{base}head.mlp", ("vision.pool.out",)
    yield matmul("vision.pool.up", once, width, inner, module=f"{feed}.fc1", reads=before, to=None, gradient=used)
    yield matmul("vision.pool.down", once, inner, width, module=f"{feed}.fc2", reads=("vision.pool.up",), to=None, gradient=used)
    return width


def _text(section: Config, base: str) -> Generator[Work, None, int]:
    width = yield from text_tower(section, base, TEXT_PAIRS, SIZES)
    columns = section.integer("projection_size", default=width)
    yield matmul("head.text", ONCE, width, columns, module=f"{base}head", to=None)
    return columns


QUERIES_V2 = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
SWIN_FEED, FEED_V2 = ("mlp.fc1", "mlp.fc2"), ("intermediate.dense", "output.dense")


@transformers_model(
    "models/swin and swinv2; Liu et al., arXiv:2103.14030, 2111.09883", "SwinForImageClassification",
    "SwinModel", "swin", "Swinv2ForImageClassification", "Swinv2Model", "swinv2", kind="vision",
    left_out=("*.continuous_position_bias_mlp.*",),
)  # fmt: skip
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
        yield from _swin_layers(
            windows, width, (count, stage_head_dim(config, "num_heads", width, count)), int(times * width), range(depth), stack, second
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


def _swin_layers(
    windows: _Windows, width: int, heads: tuple[int, int], inner: int, layers: Sequence[int], stack: str, second: bool
) -> Iterator[Work]:
    modules, feed = (QUERIES_V2, FEED_V2) if second else (QUERIES, SWIN_FEED)
    place: dict[str, Any] = {"stack": stack, "module": ""}
    count, dim = heads
    yield from self_attention(width, count, count, dim, layers, rows=windows.positions, of=windows.pairs, modules=modules, **place)
    yield from mlp(width, inner, layers, gated=False, rows=windows.plane.positions, modules=feed, **place)


class _Windows:
    """A plane cut into square windows of `side`; what does not fill one is padded. Unless fixed, a window shrinks to the plane."""

    def __init__(self, plane: ImagePlane, side: int, fixed: bool) -> None:
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


@transformers_model(
    "models/segformer; Xie et al., arXiv:2105.15203", "SegformerForSemanticSegmentation",
    "SegformerForImageClassification", "SegformerModel", "segformer", kind="vision",
)  # fmt: skip
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
        yield from _segformer_layers(stages, i, plane, f"{base}.blocks")
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
        self.dims = [stage_head_dim(config, "num_attention_heads", w, h) for w, h in zip(self.widths, self.heads, strict=True)]


def _segformer_layers(stages: _Stages, i: int, plane: ImagePlane, stack: str) -> Iterator[Work]:
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


def _segmentation(config: Config, widths: Sequence[int], planes: Sequence[ImagePlane]) -> Iterator[Work]:
    """Yield the head that segments: a projection of each stage, their fusion and the classes on the finest plane."""
    wide, finest = config.integer("decoder_hidden_size", default=256), planes[0].positions
    for i, (width, plane) in enumerate(zip(widths, planes, strict=True)):
        yield matmul("decoder.projection", plane.positions, width, wide, (i,), stack="decode_head.linear_projections", module="proj")
    yield convolution("decoder.fuse", finest, 1, wide * len(planes), wide, module="decode_head.linear_fuse")
    yield convolution("head", finest, 1, wide, labels(config), module="decode_head.classifier", to=None)


# torchvision's names: depths, and whether a layer is a bottleneck (widths then are four times as large)
TORCHVISION = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
    "resnet101": ((3, 4, 23, 3), True),
    "resnet152": ((3, 8, 36, 3), True),
}
BOTTLENECK, BASIC = "bottleneck", "basic"


@transformers_model(
    "models/resnet; He et al., arXiv:1512.03385", "ResNetForImageClassification", "ResNetModel", "resnet",
    *TORCHVISION, kind="vision",
)  # fmt: skip
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
    yield _normed("conv.stem", plane, 49, config.integer("num_channels", default=3), before, reads=("data",), module="embedder.embedder")
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

    def works(self, plane: ImagePlane, before: int, width: int, depth: int, stride: int) -> Iterator[Work]:
        """Yield the first layer, which changes the width and the plane, and the others."""
        after = plane.after(1, stride)
        if before != width or stride != 1:
            yield self._work("conv.shortcut", after, 1, before, width, range(1), self.inputs, "shortcut")
        yield from self._layer(plane, after, before, width, range(min(1, depth)))
        if depth > 1:
            yield from self._layer(after, after, width, width, range(1, depth))

    def _layer(self, plane: ImagePlane, after: ImagePlane, before: int, width: int, layers: Sequence[int]) -> Iterator[Work]:
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
        self, name: str, plane: ImagePlane, taps: int, inner: int, outer: int, layers: Sequence[int], reads: tuple[str, ...], module: str
    ) -> Work:
        return _normed(name, plane, taps, inner, outer, layers=layers, stack=self.stack, reads=reads, module=module)


def _normed(
    name: str, plane: ImagePlane, taps: int, inner: int, outer: int, *, reads: tuple[str, ...], module: str,
    layers: Sequence[int] = (0,), stack: str = "",
) -> Work:  # fmt: skip
    of: Quantity = plane.positions
    path = f"{module}.convolution" if stack else f"resnet.{module}.convolution"
    return convolution(name, of, taps, inner, outer, layers, stack=stack, module=path, reads=reads, to=None)


MADE = ("conv.stem", "conv.down", "mlp.down")  # what a layer's first convolution reads: no norm stands before it


@transformers_model(
    "models/convnext and convnextv2", "ConvNextForImageClassification", "ConvNextModel", "convnext",
    "ConvNextV2ForImageClassification", "ConvNextV2Model", "convnextv2", kind="vision",
)  # fmt: skip
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


CHANNELS = (16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320)
STRIDES = (2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1)
FLOW = ("conv.reduce",)  # no norm stands before a layer's first convolution, so what it reads is named by the work that made it


@transformers_model(
    "models/mobilenet_v2; Sandler et al., arXiv:1801.04381", "MobileNetV2ForImageClassification",
    "MobileNetV2Model", "mobilenet_v2", kind="vision",
)  # fmt: skip
def mobilenet_v2(config: Config) -> Iterator[Work]:
    """MobileNet V2: its seventeen widths times `depth_multiplier`, rounded as the paper's code rounds them.

    Below an `output_stride` of 32 the last strides become dilations, which cost by the larger plane.
    """
    widths, base = [_scaled(config, c) for c in CHANNELS], "mobilenet_v2"
    first, channels = _scaled(config, 32), config.integer("num_channels", default=3)
    plane = _strided(config, PIXELS, 2)
    stem = f"{base}.conv_stem"
    yield _linear_conv("conv.stem", plane, 9, channels, first, f"{stem}.first_conv", ("data",))
    made = "conv.stem"
    if not config.flag("first_layer_is_expansion", True):
        yield _linear_conv("conv.expand", plane, 1, first, first, f"{stem}.expand_1x1", (made,))
        made = "conv.expand"
    yield _linear_conv("conv.depthwise", plane, 9, first, first, f"{stem}.conv_3x3", (made,), groups=first)
    yield _linear_conv("conv.reduce", plane, 1, first, widths[0], f"{stem}.reduce_1x1", ("conv.depthwise",))
    expansion, reached, most = ratio(config, "expand_ratio", 6.0), 2, config.integer("output_stride", default=32)
    for i, stride in enumerate(STRIDES):
        taken = 1 if reached == most else stride
        reached *= taken
        before, wide = widths[i], _rounded(config, round(widths[i] * expansion))
        at, after = f"{base}.layer.{i}", _strided(config, plane, taken)
        yield _linear_conv("conv.expand", plane, 1, before, wide, f"{at}.expand_1x1", FLOW)
        yield _linear_conv("conv.depthwise", after, 9, wide, wide, f"{at}.conv_3x3", ("conv.expand",), groups=wide)
        yield _linear_conv("conv.reduce", after, 1, wide, widths[i + 1], f"{at}.reduce_1x1", ("conv.depthwise",))
        plane = after
    fixed = config.flag("finegrained_output", True) and ratio(config, "depth_multiplier", 1.0) < 1
    last = 1280 if fixed else _scaled(config, 1280)
    yield _linear_conv("conv.out", plane, 1, widths[-1], last, f"{base}.conv_1x1", FLOW)
    if not config.architecture.endswith("Model"):
        yield matmul("head", PIXELS.images, last, labels(config), module="classifier", reads=("conv.out",), to=None)


def _linear_conv(
    name: str, plane: ImagePlane, taps: int, inner: int, outer: int, module: str, reads: tuple[str, ...], groups: int = 1
) -> Work:
    path = f"{module}.convolution"
    return convolution(name, plane.positions, taps, inner, outer, groups=groups, module=path, reads=reads, to=None)


def _strided(config: Config, plane: ImagePlane, stride: int) -> ImagePlane:
    """Return the plane after a 3x3 convolution: padded as TensorFlow does (rounded up), or by one on each side."""
    return plane.divided(stride) if config.flag("tf_padding", True) else plane.after(3, stride, 2)


def _scaled(config: Config, channels: int) -> int:
    return _rounded(config, round(channels * ratio(config, "depth_multiplier", 1.0)))


def _rounded(config: Config, channels: int) -> int:
    """Return the nearest multiple of the divisor, not below the least width, nor more than a tenth below what it was."""
    divisor, least = config.integer("depth_divisible_by", default=8), config.integer("min_depth", default=8)
    nearest = max(least, (2 * channels + divisor) // 2 // divisor * divisor)
    return nearest + divisor if 10 * nearest < 9 * channels else nearest
