"""Qwen3-VL, dense and with experts: a vision tower whose early layers reach the language model as well (deepstack); the towers alone."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.families.qwen2_vl import embedded, heads, merger, patched
from ullage.models.images import FUSED, Tower
from ullage.models.language import language
from ullage.models.model import model
from ullage.models.work import Work, lookup

_SOURCE = "transformers 5.23, models/qwen3_vl and qwen3_vl_moe; arXiv:2511.21631; verified to the integer against traces"
DEEPSTACK = [8, 16, 24]  # where the file is silent


@model(
    *("qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
    kind="vision-language",
    source=_SOURCE,
)
def qwen3_vl(config: Config) -> Iterator[Work]:
    """Qwen3-VL and Qwen3-VL-MoE: a vision transformer, a merger for its last layer and for each deepstack layer, and Qwen3.

    P patches cost 2P[1536e + L(4e² + 2ef)] + 4eL × (patches of a frame)² summed over frames; each of the 1 + deepstack mergers
    2(P/4)(16e² + 4e·h). The interpolation of positions and the sum of deepstack features count 0.
    """
    yield from _tower(config.section("vision_config"), "model.visual.", to="stream")
    moe = "moe" in config.architecture.casefold()
    yield from language(config, "qwen3_moe" if moe else "qwen3")


@model(
    *("qwen3_vl_vision", "Qwen3VLVisionModel", "qwen3_vl_moe_vision", "Qwen3VLMoeVisionModel"),
    kind="vision",
    shapes=("grid",),
    source=_SOURCE,
)
def qwen3_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen3-VL alone, with its mergers."""
    yield from _tower(config, "", to=None, needed=True)


def _tower(config: Config, base: str, *, to: str | None, needed: bool = False) -> Iterator[Work]:
    width, outer = config.integer("hidden_size", default=1152), config.integer("out_hidden_size", default=3584)
    images, layers = patched(config, 16, needed), config.layers("depth", default=27)
    inner = config.integer("intermediate_size", default=4304)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, FUSED, ("mlp.linear_fc1", "mlp.linear_fc2"))
    yield embedded(config, images, width, base)
    yield lookup("vision.positions", images.patches, f"{base}pos_embed", to="vision")
    yield from tower.works(images.patches, [(images.frame_pairs, layers)])
    modules = ("linear_fc1", "linear_fc2")
    yield from merger(images, width, outer, f"{base}merger", modules, to=to)
    given = config.integers("deepstack_visual_indexes")
    reached = [i for i in (DEEPSTACK if given is None else given) if i < len(layers)]
    if reached:
        stack, members = f"{base}deepstack_merger_list", range(len(reached))
        yield from merger(images, width, outer, "", modules, to=to, name="vision.deepstack", layers=members, stack=stack)
