"""LLaVA and its successors: a CLIP, SigLIP or Pixtral tower, a projector of two products, and a language model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ullage.errors import UllageError, harmless
from ullage.models.config import Config
from ullage.models.families import clip, pixtral, siglip
from ullage.models.images import Grid, Images, Patches, pair, unused
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.sample import Quantity, Sample, quantity
from ullage.models.work import Work, matmul

_BASE = "model.multi_modal_projector"


@model(
    *("llava", "LlavaForConditionalGeneration", "llava_next", "LlavaNextForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/llava and llava_next; arXiv:2304.08485, 2310.03744; verified to the integer against traces",
)
def llava(config: Config) -> Iterator[Work]:
    """LLaVA 1.5, LLaVA-NeXT and Pixtral-12B: an image's tokens without the first go through a projector of two products.

    With v the tower's and h the text's width, a projected token costs 2(v·h + h²). Layers of the tower above the one that is
    read are run, and train nothing. LLaVA-NeXT cuts each image into tiles of the tower's size by its `image_grid_pinpoints`,
    and adds the whole image as one more; LLaVA's images come at the tower's size.
    """
    section = config.section("vision_config", optional=True)
    kind = section.word("model_type", default="clip_vision_model")
    images, works = _images(config, section, kind), list(language(config, "llama"))
    seen = list(_tower(section, kind, "model.vision_tower.", images))
    layers = max(len(work.layers) for work in seen if work.stack)
    read = pixtral.features(config, -2, layers)
    yield from unused(iter(seen), range(max(read), layers))
    inner, outer = _wide(section, kind) * len(read), width(works)
    drops = config.word("vision_feature_select_strategy", default="default") == "default"
    rows = _without_first(images) if drops else images.tokens
    yield matmul("vision.merger.up", rows, inner, outer, module=f"{_BASE}.linear_1", reads=("vision",), to=None)
    yield matmul("vision.merger.down", rows, outer, outer, module=f"{_BASE}.linear_2", reads=("vision.merger.up",))
    yield from works


def _tower(section: Config, kind: str, base: str, images: Images) -> Iterator[Work]:
    if kind == "pixtral":
        yield from pixtral.tower(section, base, images)
    elif kind == "siglip_vision_model":
        yield from siglip.pooled_tower(section, base, images, used=False)
    else:
        yield from clip.vision_tower(section, base, images)


def _wide(section: Config, kind: str) -> int:
    return section.integer("hidden_size", default=1024 if kind == "pixtral" else 768)


def _images(config: Config, section: Config, kind: str) -> Images:
    if kind == "pixtral":
        return pixtral.variable(section.replaced(patch_size=section.integer("patch_size", default=16)))
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        raise UllageError(
            f"no formula for the tower '{harmless(kind, 80)}' in {section.path}model_type of {section.place}",
            "the towers known here: clip_vision_model, siglip_vision_model, pixtral",
        )
    rows, columns = pair(section, "patch_size", 32 if kind == "clip_vision_model" else 16)
    size, extra = pair(section, "image_size", 224), int(kind == "clip_vision_model")
    if "next" not in config.architecture.casefold():
        return Images(rows, columns, extra, size=size)
    return Tiled(rows, columns, extra, size=size, canvases=_canvases(config))


def _canvases(config: Config) -> tuple[tuple[int, int], ...]:
    given = config.values.get("image_grid_pinpoints") or [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
    if not isinstance(given, list) or not all(isinstance(c, list | tuple) and len(c) == 2 for c in given):
        raise config.error(("image_grid_pinpoints",), "must be a list of sizes: [[336, 672], …]")
    sides = [side for canvas in given for side in canvas]
    if len(given) > 1000 or any(isinstance(s, bool) or not isinstance(s, int) or not 0 < s < 1 << 20 for s in sides):
        raise config.error(("image_grid_pinpoints",), "needs sizes in pixels, each of two whole numbers")
    return tuple((canvas[0], canvas[1]) for canvas in given)


@dataclass(frozen=True)
class Tiled(Images):
    """Images of any size, resized to the canvas that fits them best and cut into tiles of the tower's size; and each whole as a tile."""

    canvases: tuple[tuple[int, int], ...] = field(default=())

    @property
    def name(self) -> str:
        """What tells two towers' images apart."""
        return f"{super().name}, tiles of {self.size} from {self.canvases}"

    def of(self, sample: Sample) -> Patches:
        """Return the tiles of a sample's images; grids are taken as tiles."""
        if sample.grids or not sample.pixels or self.size is None:
            return super().of(sample)
        whole = self._grid(self.size)
        grids: list[Grid] = []
        for pixels in sample.pixels:
            height, width = canvas(pixels, self.canvases)
            grids += [whole] * (1 + -(-height // self.size[0]) * -(-width // self.size[0]))
        return self._checked(tuple(grids))


def canvas(size: tuple[int, int], canvases: tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """Return the canvas on which an image of `size` keeps most of its pixels and, of equals, leaves the least empty.

    >>> canvas((480, 640), ((336, 672), (672, 336), (672, 672)))
    (672, 672)
    """

    def worth(one: tuple[int, int]) -> tuple[int, int]:
        scale = min(one[1] / size[1], one[0] / size[0])
        kept = min(int(size[1] * scale) * int(size[0] * scale), size[0] * size[1])
        return kept, kept - one[0] * one[1]

    return max(canvases, key=worth)


def _without_first(images: Images) -> Quantity:
    """Return the tokens of a tower without the first of each image (the class token, where it has one)."""

    def of(sample: Sample) -> int:
        patches = images.of(sample)
        return patches.tokens - len(patches.grids)

    return quantity(f"tower tokens but the first, {images.name}", of)
