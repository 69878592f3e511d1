"""Vision transformers: ViT, DeiT, BEiT, DINOv2 (with registers too) and DINOv3."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import head_dim
from ullage.models.images import Images, Tower, pair, patching, scaled
from ullage.models.model import model
from ullage.models.planes import labels
from ullage.models.work import Work, matmul

QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
PATCHES = "embeddings.patch_embeddings.projection"
FEED, GATED_FEED = ("mlp.fc1", "mlp.fc2"), ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def _named(*stems: str) -> tuple[str, ...]:
    return tuple(f"{stem}{end}" for stem in stems for end in ("ForImageClassification", "Model"))


@model(
    *("vit", "deit", "beit", "DeiTForImageClassificationWithTeacher", *_named("ViT", "DeiT", "Beit")),
    kind="vision",
    source="transformers 5.23, models/vit, deit and beit; Dosovitskiy et al., arXiv:2010.11929; verified to the integer against traces",
)
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
    width = yield from _trunk(config, images, prefix, "layers", config.integer("intermediate_size"), FEED)
    if bare and base != "beit":
        columns = config.integer("pooler_output_size", default=width)
        yield matmul("head.pooler", images.count, width, columns, module="pooler.dense", to=None)
    if name.endswith("withteacher"):
        yield matmul("head", images.count, width, labels(config), module="cls_classifier", to=None)
        yield matmul("head.distilled", images.count, width, labels(config), module="distillation_classifier", to=None)
    elif not bare:
        yield matmul("head", images.count, width, labels(config), module="classifier", to=None)


@model(
    *("dinov2", "dinov2_with_registers", *_named("Dinov2", "Dinov2WithRegisters")),
    kind="vision",
    source="transformers 5.23, models/dinov2 and dinov2_with_registers; arXiv:2304.07193; verified to the integer against traces",
)
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
    width = yield from _trunk(config, images, prefix, "encoder.layer", inner, GATED_FEED if gated else FEED)
    if not bare:
        yield matmul("head", images.count, 2 * width, labels(config), module="classifier", to=None)


@model(
    *("dinov3_vit", "DINOv3ViTModel"),
    kind="vision",
    source="transformers 5.23, models/dinov3_vit; Siméoni et al., arXiv:2508.10104; verified to the integer against traces",
)
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
