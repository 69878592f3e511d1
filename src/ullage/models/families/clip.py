"""CLIP: a tower for images and one for text, and the projections in which they are compared; either tower alone."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from ullage.models.blocks import embedding
from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.images import Images, Tower, pair, patching
from ullage.models.model import model
from ullage.models.planes import labels
from ullage.models.sample import ONCE, TEXT, Quantity, every_pair, pairs
from ullage.models.work import Work, contraction, matmul

_SOURCE = "transformers 5.23, models/clip; Radford et al., arXiv:2103.00020; verified to the integer against traces"
# What the classes take for fields that files leave out
VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "patch_size": 32}
TEXTUAL = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8}


@model("clip", "CLIPModel", kind="vision-language", shapes=("seq", "image"), source=_SOURCE)
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


@model("clip_text_model", "CLIPTextModel", "CLIPTextModelWithProjection", kind="encoder", causal=True, source=_SOURCE)
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
    source=_SOURCE,
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
    tower = _layers(known, base, "vision.", "vision")
    yield from tower.works(images.tokens, [(images.pairs, tower.layers)])
    return tower.width


def text_tower(section: Config, base: str, of: Quantity, defaults: dict[str, int] = TEXTUAL) -> Generator[Work, None, int]:
    """Yield the layers of a text tower of CLIP's (or SigLIP's) plan, and return its width."""
    tower = _layers(documented(section, **defaults), base, "", "stream")
    yield from tower.works(TEXT, [(of, tower.layers)])
    return tower.width


def _layers(section: Config, base: str, name: str, stream: str) -> Tower:
    width, heads = section.integer("hidden_size"), section.integer("num_attention_heads")
    layers, inner = section.layers(), section.integer("intermediate_size")
    dim = head_dim(section, width, heads, ())
    return Tower(f"{base}encoder.layers", layers, width, heads, inner, dim=dim, name=name, stream=stream)
