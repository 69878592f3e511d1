"""PaliGemma 1 and 2: a SigLIP tower, a linear projector, and Gemma."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.families.siglip import pooled_tower
from ullage.models.images import Images, pair
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.work import Work, matmul


@model(
    *("paligemma", "PaliGemmaForConditionalGeneration"),
    kind="vision-language",
    causal=False,
    shapes=("seq", "image"),
    source="transformers 5.23, models/paligemma; Beyer et al., arXiv:2407.07726; verified to the integer against traces",
)
def paligemma(config: Config) -> Iterator[Work]:
    """PaliGemma: one product per patch between SigLIP and Gemma; images and prompt see each other fully.

    All text tokens are counted as that prefix. The answer in training sees only what came before it: s of its tokens make
    s(s - 1)/2 pairs fewer than counted here; "causal" counts every token so.
    """
    section = config.section("vision_config", optional=True)
    works, images = list(language(config, "gemma")), resized(section)
    wide = yield from pooled_tower(section, "model.vision_tower.", images, used=False)
    outer = config.integer("projection_dim", default=width(works))
    yield matmul("vision.merger", images.patches, wide, outer, module="model.multi_modal_projector.linear", reads=("vision",))
    yield from works


def resized(section: Config) -> Images:
    """Return the images of a SigLIP tower that takes one size."""
    rows, columns = pair(section, "patch_size", 16)
    return Images(rows, columns, size=pair(section, "image_size", 224))
