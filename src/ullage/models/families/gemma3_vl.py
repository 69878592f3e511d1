"""Gemma 3 with images: a SigLIP tower, its patches pooled to a fixed number of tokens, a linear projector, and Gemma 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ullage.models.config import Config
from ullage.models.families.paligemma import resized
from ullage.models.families.siglip import pooled_tower
from ullage.models.images import Images
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.sample import FULL, Convention, Quantity, Sample
from ullage.models.work import Work, matmul


@model(
    *("gemma3", "Gemma3ForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/gemma3; arXiv:2503.19786; verified to the integer against traces",
)
def gemma3(config: Config) -> Iterator[Work]:
    """Gemma 3 with images: SigLIP at one size (896 pixels), averages of 4 × 4 patches, one product for each of the 256 tokens.

    The tokens of an image see each other both ways in every layer: m(m - 1)/2 pairs more than causal attention for m tokens.
    Crops of an image (pan and scan) are images of their own.
    """
    section = config.section("vision_config", optional=True)
    works, images = list(language(config, "gemma3_text")), resized(section)
    wide = yield from pooled_tower(section, "model.vision_tower.", images, used=False)
    tokens, place = _tokens(config, images), "model.multi_modal_projector.mm_input_projection_weight"
    yield matmul("vision.merger", images.count, wide, width(works), module=place, times=tokens, reads=("vision",))
    for work in works:
        yield replace(work, quantity=both_ways(work.quantity, images, tokens)) if work.quantity.name.startswith("causal pairs") else work


def both_ways(pairs: Quantity, images: Images, tokens: int) -> Quantity:
    """Return causal pairs, and those that the tokens of each image add by seeing each other both ways."""

    def of(sample: Sample, convention: Convention) -> int:
        more = 0 if convention == FULL else len(images.of(sample).grids) * (tokens * (tokens - 1) // 2)
        return pairs.of(sample, convention) + more

    return Quantity(f"{pairs.name}, images of {tokens} tokens both ways, {images.name}", of)


def _tokens(config: Config, images: Images) -> int:
    """Return the tokens of an image: the patches of a side, divided by a whole pooling window."""
    side = (images.size or (0, 0))[0] // images.rows
    wanted = config.integer("mm_tokens_per_image", default=256)
    window = side // int(wanted**0.5)
    if window < 1:
        raise config.error(("mm_tokens_per_image",), f"is {wanted:,}, and an image has {side**2:,} patches")
    return (side // window) ** 2
