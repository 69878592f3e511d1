"""Qwen2-VL and Qwen2.5-VL: a vision tower over patches of any image, a merger of 2 × 2 of them, and Qwen2; the towers alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.images import FUSED, Images, Tower, patching, scaled
from ullage.models.language import language
from ullage.models.model import model
from ullage.models.sample import Quantity
from ullage.models.work import Work, matmul

_SOURCE = "transformers 5.23, models/qwen2_vl and qwen2_5_vl; arXiv:2409.12191, 2502.13923; verified to the integer against traces"
_GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
FULL_BLOCKS = [7, 15, 23, 31]  # of Qwen2.5-VL, where the file is silent


@model("qwen2_vl", "Qwen2VLForConditionalGeneration", kind="vision-language", source=_SOURCE)
def qwen2_vl(config: Config) -> Iterator[Work]:
    """Qwen2-VL: a vision transformer whose attention stays within a frame, a merger once per four patches, and Qwen2.

    P patches cost 2P[1176e + L(4e² + 2ef)] + 4eL × (patches of a frame)² summed over frames, and 2(P/4)(16e² + 4e·h) for the
    merger. The text (all its tokens, those of images among them) costs what Qwen2 costs.
    """
    yield from _tower(config.section("vision_config"), "model.visual.", to="stream")
    yield from language(config, "qwen2")


@model("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", kind="vision-language", source=_SOURCE)
def qwen2_5_vl(config: Config) -> Iterator[Work]:
    """Qwen2.5-VL: Qwen2-VL with a gated MLP in its tower, and attention within windows of 112 × 112 pixels in most blocks.

    A window is 64 patches (fewer at an edge); the blocks of `fullatt_block_indexes` see the whole frame.
    """
    yield from _windowed(config.section("vision_config"), "model.visual.", to="stream")
    yield from language(config, "qwen2")


@model(
    "qwen2_vl_vision", "Qwen2VisionTransformerPretrainedModel", kind="vision", shapes=("grid",), source=_SOURCE
)  # fmt: skip
def qwen2_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen2-VL alone, with its merger."""
    yield from _tower(config, "", needed=True)


@model(
    "qwen2_5_vl_vision", "Qwen2_5_VisionTransformerPretrainedModel", kind="vision", shapes=("grid",), source=_SOURCE
)  # fmt: skip
def qwen2_5_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen2.5-VL alone, with its merger."""
    yield from _windowed(config, "", needed=True)


def patched(config: Config, patch: int, needed: bool = False) -> Images:
    """Return the images of a tower that merges patches; images in pixels are resized to whole merged patches."""
    side = config.integer("patch_size", default=patch, most=1024)
    return Images(side, side, merge=config.integer("spatial_merge_size", default=2, most=64), fit="nearest", needed=needed)


def embedded(config: Config, images: Images, width: int, base: str) -> Work:
    """Return the patch embedding, a convolution over two frames of each patch."""
    channels, frames = config.integer("in_channels", "in_chans", default=3), config.integer("temporal_patch_size", default=2, most=64)
    return patching(images, channels, width, f"{base}patch_embed.proj", frames=frames)


def heads(config: Config, width: int) -> int:
    """Return the heads of a tower, which must divide its width."""
    count = config.integer("num_heads", default=16)
    if width % count:
        raise config.error(("num_heads",), f"is {count:,}, which does not divide the width of {width:,}")
    return count


def merger(
    images: Images, width: int, outer: int, module: str, modules: tuple[str, str], *, to: str | None, name: str = "vision.merger",
    layers: Sequence[int] = (0,), stack: str = "",
) -> Iterator[Work]:  # fmt: skip
    """Yield the two products that turn merge × merge patches into one token of the language model, once for each such token."""
    inner = width * images.merge**2
    up, down = (f"{module}.{part}".lstrip(".") for part in modules)
    yield matmul(f"{name}.up", images.merged, inner, inner, layers, stack=stack, module=up, reads=("vision",), to=None)
    yield matmul(f"{name}.down", images.merged, inner, outer, layers, stack=stack, module=down, reads=(f"{name}.up",), to=to)


def _tower(config: Config, base: str, *, to: str | None = None, needed: bool = False) -> Iterator[Work]:
    width = config.integer("embed_dim", default=1280)
    inner = scaled(config, width)
    images, layers = patched(config, 14, needed), config.layers("depth", default=32)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, FUSED)
    yield from _works(config, base, images, tower, [(images.frame_pairs, layers)], config.integer("hidden_size", default=3584), to)


def _windowed(config: Config, base: str, *, to: str | None = None, needed: bool = False) -> Iterator[Work]:
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size", default=3420)
    images, layers = patched(config, 14, needed), config.layers("depth", default=32)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, FUSED, _GATED)
    given = config.integers("fullatt_block_indexes")
    whole = set(FULL_BLOCKS if given is None else given)
    merged = config.integer("window_size", default=112) // images.merge // images.rows  # tokens on a side of a window
    if merged < 1:
        raise config.error(("window_size",), f"holds no merged patch of {images.merge * images.rows} pixels")
    windows = (images.window_pairs(merged * images.merge), [i for i in layers if i not in whole])
    parts = [windows, (images.frame_pairs, [i for i in layers if i in whole])]
    yield from _works(config, base, images, tower, parts, config.integer("out_hidden_size", default=3584), to)


def _works(
    config: Config, base: str, images: Images, tower: Tower, parts: Sequence[tuple[Quantity, Sequence[int]]], outer: int, to: str | None
) -> Iterator[Work]:
    yield embedded(config, images, tower.width, base)
    yield from tower.works(images.patches, [(of, members) for of, members in parts if members])
    yield from merger(images, tower.width, outer, f"{base}merger.mlp", ("0", "2"), to=to)
