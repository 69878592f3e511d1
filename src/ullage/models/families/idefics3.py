"""Idefics3 and SmolVLM: a SigLIP-like tower over tiles, s × s patches merged into one token, one product, and Llama."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.families.clip import vision_tower
from ullage.models.images import Images, pair
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.work import Work, matmul

VISION = {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16}


@model(
    *("idefics3", "Idefics3ForConditionalGeneration", "smolvlm", "SmolVLMForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source="transformers 5.23, models/idefics3 and smolvlm; arXiv:2408.12637, 2504.05299; verified to the integer against traces",
)
def idefics3(config: Config) -> Iterator[Work]:
    """Idefics3 and SmolVLM: each tile through the tower, s² patches side by side through one product (s = scale_factor).

    A tile of P patches costs 2P·3p²v + 2PL(4v² + 2vf) + 4vL·P² and 2(P/s²)·s²v·h. Each tile, the whole image too, is one image.
    """
    section = config.section("vision_config", optional=True)
    merge = config.integer("scale_factor", default=2, most=64)
    rows, columns = pair(section, "patch_size", 32)
    images = Images(rows, columns, merge=merge, size=pair(section, "image_size", 224))
    works = list(language(config, "llama", "model.text_model.layers"))
    wide = yield from vision_tower(section, "model.vision_model.", images, VISION)
    place = "model.connector.modality_projection.proj"
    yield matmul("vision.merger", images.merged, wide * merge**2, width(works), module=place, reads=("vision",))
    yield from works
