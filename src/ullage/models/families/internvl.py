"""InternVL: a vision transformer over tiles, 2 × 2 patches merged, a projector of two products, and a language model."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.families.pixtral import features
from ullage.models.images import FUSED, Images, Tower, pair, patching, unused
from ullage.models.language import STACK, language, width
from ullage.models.model import model
from ullage.models.work import Work, matmul

_QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.projection_layer")
VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}


@model(
    *("internvl", "InternVLForConditionalGeneration", "internvl_chat", "InternVLChatModel"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/internvl; arXiv:2404.16821; verified to the integer against traces (internvl_chat read, not traced)",
)
def internvl(config: Config) -> Iterator[Work]:
    """InternVL 2, 2.5 and 3: ViT with a class token over each tile, a projector once per merged token, and Qwen2 or another text.

    A tile of P patches costs 2P·3p²v + 2(P + 1)L(4v² + 2vf) + 4vL(P + 1)² and, with a quarter of the patches left,
    2(P/4)(4v·h + h²). Each tile, the thumbnail too, is one image.
    """
    section = documented(config.section("vision_config"), **VISION)
    original = config.architecture.startswith(("internvl_chat", "InternVLChat"))
    merge = _merge(config)
    rows, columns = pair(section, "patch_size", 14)
    images = Images(rows, columns, 1, merge, size=pair(section, "image_size", 448))
    wide, layers = section.integer("hidden_size"), section.layers()
    works = list(language(config, "qwen2", "language_model.model.layers" if original else STACK))
    base, patches, stack, queries = _paths(original)
    yield patching(images, section.integer("num_channels", default=3), wide, f"{base}{patches}")
    heads, inner = section.integer("num_attention_heads"), section.integer("intermediate_size")
    tower = Tower(f"{base}{stack}", layers, wide, heads, inner, queries, dim=head_dim(section, wide, heads))
    read = features(config, config.integer("select_layer", default=-1, least=-len(layers)), len(layers))
    yield from unused(tower.works(images.tokens, [(images.pairs, layers)]), layers[max(read) :])
    up, down = ("mlp1.1", "mlp1.3") if original else (f"model.multi_modal_projector.linear_{i}" for i in (1, 2))
    outer = width(works)
    yield matmul("vision.merger.up", images.merged, wide * merge**2, outer, module=up, reads=("vision",), to=None)
    yield matmul("vision.merger.down", images.merged, outer, outer, module=down, reads=("vision.merger.up",))
    yield from works


def _merge(config: Config) -> int:
    """Return how many patches on a side become one token: one divided by `downsample_ratio`."""
    ratio = config.number("downsample_ratio", default=0.5)
    if not 0.01 <= ratio <= 1:
        raise config.error(("downsample_ratio",), f"is {ratio}, and must lie between 0.01 and 1")
    return int(1 / ratio)


def _paths(original: bool) -> tuple[str, str, str, tuple[str, ...]]:
    """Return where the tower lies: its base, the patch embedding, the layers, and the projections of attention."""
    if original:
        return "vision_model.", "embeddings.patch_embedding", "encoder.layers", FUSED
    return "model.vision_tower.", "embeddings.patch_embeddings.projection", "encoder.layer", _QUERIES
