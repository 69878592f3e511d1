"""Vision-language models with Pixtral's tower, which takes images of any size: Mistral 3 and its successors; and the tower for LLaVA."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.images import Images, Tower, patching, unused
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.work import Work, matmul

_QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
_FEED = ("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj")
VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 16}


@model(
    *("mistral3", "Mistral3ForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/mistral3 and pixtral; verified to the integer against traces",
)
def mistral3(config: Config) -> Iterator[Work]:
    """Mistral Small 3.1 and its like: Pixtral's tower, a merger of 2 × 2 patches, a projector of two products, and the text.

    Each image sees itself alone; its sides are filled up to whole merged patches. A trace of several images at once counts
    them as one sequence with a mask, which no kernel for packed images does.
    """
    section = documented(config.section("vision_config"), **VISION)
    merge = config.integer("spatial_merge_size", default=2, most=64)
    images, layers = variable(section, merge), section.layers()
    read = features(config, -1, len(layers))
    works = list(language(config, "mistral"))
    yield from unused(tower(section, "model.vision_tower.", images), layers[max(read) :])
    wide, outer, base = section.integer("hidden_size"), width(works), "model.multi_modal_projector"
    place = f"{base}.patch_merger.merging_layer"
    yield matmul("vision.merger.merge", images.merged, wide * merge**2 * len(read), wide, module=place, reads=("vision",), to=None)
    yield from projector(images, wide, outer, base, reads="vision.merger.merge")
    yield from works


def variable(section: Config, merge: int = 1) -> Images:
    """Return the images of Pixtral's tower: of any size, filled up to whole merged patches."""
    side = section.integer("patch_size", most=1024)
    return Images(side, side, merge=merge, fit="filled")


def tower(section: Config, base: str, images: Images) -> Iterator[Work]:
    """Yield Pixtral's tower: a gated MLP, attention within each image."""
    known = documented(section, **VISION)
    wide, heads = known.integer("hidden_size"), known.integer("num_attention_heads")
    layers, inner = known.layers(), known.integer("intermediate_size")
    yield patching(images, known.integer("num_channels", default=3), wide, f"{base}patch_conv")
    dim = head_dim(known, wide, heads, ())
    stack = Tower(f"{base}transformer.layers", layers, wide, heads, inner, _QUERIES, _FEED, dim)
    yield from stack.works(images.patches, [(images.pairs, layers)])


def projector(images: Images, inner: int, outer: int, base: str, *, reads: str = "vision") -> Iterator[Work]:
    """Yield the two products that bring merged tokens to the width of the language model."""
    yield matmul("vision.merger.up", images.merged, inner, outer, module=f"{base}.linear_1", reads=(reads,), to=None)
    yield matmul("vision.merger.down", images.merged, outer, outer, module=f"{base}.linear_2", reads=("vision.merger.up",))


def features(config: Config, default: int, layers: int) -> list[int]:
    """Return how many layers lie below each feature that the language model sees (`vision_feature_layer`, one or a list).

    0 is what enters the first layer, -1 what leaves the last.
    """
    given = config.values.get("vision_feature_layer", default)
    listed = given if isinstance(given, list | tuple) else [default if given is None else given]
    if not listed or any(isinstance(i, bool) or not isinstance(i, int) for i in listed):
        raise config.error(("vision_feature_layer",), "must be a whole number or a list of them")
    below = [i if i >= 0 else layers + 1 + i for i in listed]
    if not all(0 <= count <= layers for count in below):
        raise config.error(("vision_feature_layer",), f"is {given}, and the tower has {layers} layers")
    return below
