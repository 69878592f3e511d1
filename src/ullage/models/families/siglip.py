"""SigLIP and SigLIP 2: a tower for images, whose patches are pooled by attention, and one for text; either tower alone."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ullage.models.blocks import embedding
from ullage.models.config import Config
from ullage.models.families.bert import TEXT_PAIRS
from ullage.models.families.clip import photographs, text_tower, vision_tower
from ullage.models.images import Images
from ullage.models.model import model
from ullage.models.planes import labels
from ullage.models.sample import ONCE, every_pair
from ullage.models.work import Work, attention, contraction, matmul

_SOURCE = "transformers 5.23, models/siglip and siglip2; Zhai et al., arXiv:2303.15343; verified to the integer against traces"
SIZES = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}  # of both towers


@model(
    *("siglip", "SiglipModel", "siglip2", "Siglip2Model"),
    kind="vision-language",
    causal=False,
    shapes=("seq", "image"),
    source=_SOURCE,
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


@model("siglip_text_model", "SiglipTextModel", "siglip2_text_model", "Siglip2TextModel", kind="encoder", source=_SOURCE)
def siglip_text(config: Config) -> Iterator[Work]:
    """The text tower of SigLIP or SigLIP 2: all tokens see all, one is projected."""
    yield embedding(module="embeddings.token_embedding")
    yield from _text(config, "")


@model(
    *("siglip_vision_model", "SiglipVisionModel", "SiglipForImageClassification"),
    *("siglip2_vision_model", "Siglip2VisionModel", "Siglip2ForImageClassification"),
    kind="vision",
    source=_SOURCE,
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
