"""Models of vision or sound and language: a tower, a way into the text, and a language model that is known by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ullage.errors import UllageError, harmless
from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.families.encoders import Side, encoder
from ullage.models.families.vision import pooled_tower, vision_tower
from ullage.models.images import FUSED, Grid, Images, Patches, Tower, pair, patching, scaled, unused
from ullage.models.language import STACK, language, width
from ullage.models.model import MODELS, in_transformers, model
from ullage.models.sample import FULL, TEXT, Convention, Quantity, Sample, quantity
from ullage.models.work import Work, attention, convolution, lookup, matmul

_PIXTRAL_QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
_FEED = ("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj")
PIXTRAL_VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 16}


@model(
    *("mistral3", "Mistral3ForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/mistral3 and pixtral"),
)
def mistral3(config: Config) -> Iterator[Work]:
    """Mistral Small 3.1 and its like: Pixtral's tower, a merger of 2 × 2 patches, a projector of two products, and the text.

    Each image sees itself alone; its sides are filled up to whole merged patches. A trace of several images at once counts
    them as one sequence with a mask, which no kernel for packed images does.
    """
    section = documented(config.section("vision_config"), **PIXTRAL_VISION)
    merge = config.integer("spatial_merge_size", default=2, most=64)
    images, layers = variable(section, merge), section.layers()
    read = features(config, -1, len(layers))
    works = list(language(config, "mistral"))
    yield from unused(pixtral_tower(section, "model.vision_tower.", images), layers[max(read) :])
    wide, outer, base = section.integer("hidden_size"), width(works), "model.multi_modal_projector"
    place = f"{base}.patch_merger.merging_layer"
    yield matmul("vision.merger.merge", images.merged, wide * merge**2 * len(read), wide, module=place, reads=("vision",), to=None)
    yield from projector(images, wide, outer, base, reads="vision.merger.merge")
    yield from works


def variable(section: Config, merge: int = 1) -> Images:
    """Return the images of Pixtral's tower: of any size, filled up to whole merged patches."""
    side = section.integer("patch_size", most=1024)
    return Images(side, side, merge=merge, fit="filled")


def pixtral_tower(section: Config, base: str, images: Images) -> Iterator[Work]:
    """Yield Pixtral's tower: a gated MLP, attention within each image."""
    known = documented(section, **PIXTRAL_VISION)
    wide, heads = known.integer("hidden_size"), known.integer("num_attention_heads")
    layers, inner = known.layers(), known.integer("intermediate_size")
    yield patching(images, known.integer("num_channels", default=3), wide, f"{base}patch_conv")
    dim = head_dim(known, wide, heads, ())
    stack = Tower(f"{base}transformer.layers", layers, wide, heads, inner, _PIXTRAL_QUERIES, _FEED, dim)
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


_BASE = "model.multi_modal_projector"


@model(
    *("llava", "LlavaForConditionalGeneration", "llava_next", "LlavaNextForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/llava and llava_next; arXiv:2304.08485, 2310.03744"),
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
    seen = list(_llava_tower(section, kind, "model.vision_tower.", images))
    layers = max(len(work.layers) for work in seen if work.stack)
    read = features(config, -2, layers)
    yield from unused(iter(seen), range(max(read), layers))
    inner, outer = _wide(section, kind) * len(read), width(works)
    drops = config.word("vision_feature_select_strategy", default="default") == "default"
    rows = _without_first(images) if drops else images.tokens
    yield matmul("vision.merger.up", rows, inner, outer, module=f"{_BASE}.linear_1", reads=("vision",), to=None)
    yield matmul("vision.merger.down", rows, outer, outer, module=f"{_BASE}.linear_2", reads=("vision.merger.up",))
    yield from works


def _llava_tower(section: Config, kind: str, base: str, images: Images) -> Iterator[Work]:
    if kind == "pixtral":
        yield from pixtral_tower(section, base, images)
    elif kind == "siglip_vision_model":
        yield from pooled_tower(section, base, images, used=False)
    else:
        yield from vision_tower(section, base, images)


def _wide(section: Config, kind: str) -> int:
    return section.integer("hidden_size", default=1024 if kind == "pixtral" else 768)


def _images(config: Config, section: Config, kind: str) -> Images:
    if kind == "pixtral":
        return variable(section.replaced(patch_size=section.integer("patch_size", default=16)))
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


_INTERNVL_QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.projection_layer")
INTERNVL_VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}


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
    section = documented(config.section("vision_config"), **INTERNVL_VISION)
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
    return "model.vision_tower.", "embeddings.patch_embeddings.projection", "encoder.layer", _INTERNVL_QUERIES


IDEFICS3_VISION = {"hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16}


@model(
    *("idefics3", "Idefics3ForConditionalGeneration", "smolvlm", "SmolVLMForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/idefics3 and smolvlm; arXiv:2408.12637, 2504.05299"),
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
    wide = yield from vision_tower(section, "model.vision_model.", images, IDEFICS3_VISION)
    place = "model.connector.modality_projection.proj"
    yield matmul("vision.merger", images.merged, wide * merge**2, width(works), module=place, reads=("vision",))
    yield from works


@model(
    *("paligemma", "PaliGemmaForConditionalGeneration"),
    kind="vision-language",
    causal=False,
    shapes=("seq", "image"),
    source=in_transformers("models/paligemma; Beyer et al., arXiv:2407.07726"),
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


@model(
    *("gemma3", "Gemma3ForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/gemma3; arXiv:2503.19786"),
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


_QWEN2_VL_SOURCE = in_transformers("models/qwen2_vl and qwen2_5_vl; arXiv:2409.12191, 2502.13923")
_GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
FULL_BLOCKS = [7, 15, 23, 31]  # of Qwen2.5-VL, where the file is silent


@model("qwen2_vl", "Qwen2VLForConditionalGeneration", kind="vision-language", source=_QWEN2_VL_SOURCE)
def qwen2_vl(config: Config) -> Iterator[Work]:
    """Qwen2-VL: a vision transformer whose attention stays within a frame, a merger once per four patches, and Qwen2.

    P patches cost 2P[1176e + L(4e² + 2ef)] + 4eL × (patches of a frame)² summed over frames, and 2(P/4)(16e² + 4e·h) for the
    merger. The text (all its tokens, those of images among them) costs what Qwen2 costs.
    """
    yield from _qwen2_vl_tower(config.section("vision_config"), "model.visual.", to="stream")
    yield from language(config, "qwen2")


@model("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", kind="vision-language", source=_QWEN2_VL_SOURCE)
def qwen2_5_vl(config: Config) -> Iterator[Work]:
    """Qwen2.5-VL: Qwen2-VL with a gated MLP in its tower, and attention within windows of 112 × 112 pixels in most blocks.

    A window is 64 patches (fewer at an edge); the blocks of `fullatt_block_indexes` see the whole frame.
    """
    yield from _windowed(config.section("vision_config"), "model.visual.", to="stream")
    yield from language(config, "qwen2")


@model(
    "qwen2_vl_vision", "Qwen2VisionTransformerPretrainedModel", kind="vision", shapes=("grid",), source=_QWEN2_VL_SOURCE
)  # fmt: skip
def qwen2_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen2-VL alone, with its merger."""
    yield from _qwen2_vl_tower(config, "", needed=True)


@model(
    "qwen2_5_vl_vision", "Qwen2_5_VisionTransformerPretrainedModel", kind="vision", shapes=("grid",), source=_QWEN2_VL_SOURCE
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


def _qwen2_vl_tower(config: Config, base: str, *, to: str | None = None, needed: bool = False) -> Iterator[Work]:
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


_QWEN3_VL_SOURCE = in_transformers("models/qwen3_vl and qwen3_vl_moe; arXiv:2511.21631")
DEEPSTACK = [8, 16, 24]  # where the file is silent


@model(
    *("qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration"),
    kind="vision-language",
    source=_QWEN3_VL_SOURCE,
)
def qwen3_vl(config: Config) -> Iterator[Work]:
    """Qwen3-VL and Qwen3-VL-MoE: a vision transformer, a merger for its last layer and for each deepstack layer, and Qwen3.

    P patches cost 2P[1536e + L(4e² + 2ef)] + 4eL × (patches of a frame)² summed over frames; each of the 1 + deepstack mergers
    2(P/4)(16e² + 4e·h). The interpolation of positions and the sum of deepstack features count 0.
    """
    yield from _qwen3_vl_tower(config.section("vision_config"), "model.visual.", to="stream")
    moe = "moe" in config.architecture.casefold()
    yield from language(config, "qwen3_moe" if moe else "qwen3")


@model(
    *("qwen3_vl_vision", "Qwen3VLVisionModel", "qwen3_vl_moe_vision", "Qwen3VLMoeVisionModel"),
    kind="vision",
    shapes=("grid",),
    source=_QWEN3_VL_SOURCE,
)
def qwen3_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen3-VL alone, with its mergers."""
    yield from _qwen3_vl_tower(config, "", to=None, needed=True)


def _qwen3_vl_tower(config: Config, base: str, *, to: str | None, needed: bool = False) -> Iterator[Work]:
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


MLLAMA_VISION = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8}
TEXTUAL = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8}
CROSS_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]


@model(
    *("mllama", "MllamaForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/mllama; arXiv:2407.21783"),
)
def mllama(config: Config) -> Iterator[Work]:
    """Llama 3.2 Vision: tiles through two stages of a ViT, Llama, and cross-attention of the text to all tiles' tokens.

    An image is cut into tiles of image_size, those at its edges filled; all tiles of an image see each other. A tile's P + 1
    tokens are padded to a multiple of 8 in the tower. Tiles that fill an image up to max_num_tiles are masked, and left out,
    as is the product that makes the mask: 2 × (tokens of an image)². Without images the layers with cross-attention are
    skipped; with a context the images' keys and values are cached.
    """
    seen, section = documented(config.section("vision_config"), **MLLAMA_VISION), documented(config.section("text_config"), **TEXTUAL)
    side, patch = seen.integer("image_size", default=448), seen.integer("patch_size", default=14, most=1024)
    if side < patch:
        raise seen.error(("image_size",), f"is {side}, less than a patch of {patch}")
    tiles = Tiles(side, (side // patch) ** 2)
    yield from _mllama_tower(seen, tiles, patch)
    width = section.integer("hidden_size")
    merged = "model.multi_modal_projector"
    outer = seen.integer("vision_output_dim", default=7680)
    yield matmul("vision.merger", tiles.tokens, outer, width, module=merged, reads=("vision",), to="images")
    yield embedding(module="model.language_model.embed_tokens")
    yield from _text(section, width, tiles)
    yield head(width, section.integer("vocab_size", default=128_256))


def _mllama_tower(seen: Config, tiles: Tiles, patch: int) -> Iterator[Work]:
    width, channels = seen.integer("hidden_size"), seen.integer("num_channels", default=3)
    heads, inner = seen.integer("attention_heads", "num_attention_heads", default=16), seen.integer("intermediate_size")
    base, module = "model.vision_model.", "model.vision_model.patch_embedding"
    yield convolution("vision.patch", tiles.patches, patch**2, channels, width, module=module, reads=("data",), to="vision")
    queries = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    for stage, depth in (("transformer", "num_hidden_layers"), ("global_transformer", "num_global_layers")):
        layers = seen.layers(depth)
        tower = Tower(f"{base}{stage}.layers", layers, width, heads, inner, queries, dim=head_dim(seen, width, heads))
        yield from tower.works(tiles.padded, [(tiles.pairs, layers)])


def _text(section: Config, width: int, tiles: Tiles) -> Iterator[Work]:
    layers = section.layers()
    given = section.integers("cross_attention_layers")
    crossed = [i for i in layers if i in set(CROSS_LAYERS if given is None else given)]
    plain = [i for i in layers if i not in crossed]
    heads, inner = section.integer("num_attention_heads"), section.integer("intermediate_size")
    keys, dim = section.integer("num_key_value_heads"), head_dim(section, width, heads)
    yield from self_attention(width, heads, keys, dim, plain, stack=STACK)
    yield from _cross_attention(width, heads, keys, dim, crossed, tiles)
    yield from mlp(width, inner, plain, gated=True, stack=STACK)
    yield from mlp(width, inner, crossed, gated=True, stack=STACK, rows=tiles.text)


def _cross_attention(width: int, heads: int, keys: int, dim: int, layers: Sequence[int], tiles: Tiles) -> Iterator[Work]:
    name, module = "cross_attention", "cross_attn"
    yield matmul(f"{name}.q", tiles.text, width, heads * dim, layers, stack=STACK, module=f"{module}.q_proj", to=None)
    for what in ("k", "v"):
        place = f"{module}.{what}_proj"
        yield matmul(f"{name}.{what}", tiles.tokens, width, keys * dim, layers, stack=STACK, module=place, reads=("images",), to=None)
    yield from attention(tiles.crossed, heads, dim, layers, name=name, stack=STACK)
    out, made = f"{module}.o_proj", (f"{name}.values",)
    yield matmul(f"{name}.out", tiles.text, heads * dim, width, layers, stack=STACK, module=out, reads=made)


@dataclass(frozen=True)
class Tiles:
    """The tiles of a sample's images: squares of `side` pixels, of so many `patches` each."""

    side: int
    each: int

    def counts(self, sample: Sample) -> tuple[int, ...]:
        """Return the tiles of each image; raises UllageError for grids, which don't tell them."""
        if sample.grids or (sample.image_tokens and not sample.pixels):
            raise UllageError("this model cuts images into tiles, and needs their size", f"--image {self.side},{self.side}")
        return tuple(-(-height // self.side) * -(-width // self.side) for height, width in sample.pixels)

    def _new(self, name: str, factor: int) -> Quantity:
        return quantity(f"{name} of tiles of {self.each}", lambda s: 0 if s.context else sum(self.counts(s)) * factor)

    @property
    def _filled(self) -> int:
        return -(-(self.each + 1) // 8) * 8

    @property
    def patches(self) -> Quantity:
        """The patches of all tiles."""
        return self._new("patches", self.each)

    @property
    def tokens(self) -> Quantity:
        """The patches and class tokens of all tiles: what the text attends to."""
        return self._new("tokens", self.each + 1)

    @property
    def padded(self) -> Quantity:
        """The tokens of the tower, a multiple of 8 a tile."""
        return self._new("padded tokens", self._filled)

    @property
    def pairs(self) -> Quantity:
        """The pairs of the tower's attention, within each image."""
        return quantity(
            f"pairs of tiles of {self.each}", lambda s: 0 if s.context else sum((n * self._filled) ** 2 for n in self.counts(s))
        )

    @property
    def crossed(self) -> Quantity:
        """The pairs of attention from the text to the images, cached or not."""
        return quantity(f"text-image pairs of tiles of {self.each}", lambda s: s.text * sum(self.counts(s)) * (self.each + 1))

    @property
    def text(self) -> Quantity:
        """The text tokens of samples with images: layers with cross-attention are skipped in the others."""
        return quantity("text tokens beside images", lambda s: TEXT.of(s, "full") if s.pixels else 0)


SOURCE = "transformers 5.23, models/llama4; verified to the integer against traces, but for the experts that no token chose"
TILES = "vision_model.model.layers"


@model("Llama4ForConditionalGeneration", "llama4", kind="vision-language", source=SOURCE)
def llama4_vision(config: Config) -> Iterator[Work]:
    """Llama 4 Scout and Maverick with their vision tower: each tile of an image is a grid of patches and one token more.

    The tower joins 2 × 2 patches (by `pixel_shuffle_ratio`) behind its layers, and two projections bring them into the text,
    where they count among its tokens. Text alone needs no tower.
    """
    text = config.section("text_config")
    yield from llama4_tower(config.section("vision_config"), text.integer("hidden_size"))
    for work in MODELS["llama4_text"].function(replace(text, architecture="Llama4ForCausalLM")):
        stack, module = (f"language_model.{path}" if path else "" for path in (work.stack, work.module))
        yield replace(work, stack=stack, module=work.module if work.stack else module)


def llama4_tower(config: Config, columns: int) -> Iterator[Work]:
    """Yield the vision tower: patches, layers over the tokens of a tile, the adapter and the projection to the text's width."""
    width, heads, layers = config.integer("hidden_size"), config.integer("num_attention_heads"), config.layers()
    side = round(1 / config.number("pixel_shuffle_ratio", default=0.5))
    taps = config.integer("num_channels", default=3) * config.integer("patch_size", default=14) ** 2
    patches = quantity("patches of tiles", lambda s: sum(t * r * c for t, r, c in s.grids))
    tokens = quantity("tokens of tiles", lambda s: sum(t * (r * c + 1) for t, r, c in s.grids))
    square = quantity("pairs of tiles", lambda s: sum(t * (r * c + 1) ** 2 for t, r, c in s.grids))
    merged = quantity(f"patches of tiles, {side}x{side} joined", lambda s: sum(t * (r // side) * (c // side) for t, r, c in s.grids))
    first = "vision_model.patch_embedding.linear"
    yield matmul("vision.patch", patches, taps, width, module=first, reads=("data",), to="vision")
    dim, inner = head_dim(config, width, heads), config.integer("intermediate_size")
    yield from self_attention(
        width, heads, heads, dim, layers, rows=tokens, of=square, name="vision.attention", stack=TILES, stream="vision"
    )
    names = ("", "fc1", "fc2")
    yield from mlp(width, inner, layers, gated=False, rows=tokens, name="vision.mlp", stack=TILES, modules=names, stream="vision")
    narrow, wide = config.integer("projector_input_dim", default=4096), config.integer("projector_output_dim", default=4096)
    shuffled = [
        ("vision.merger.up", inner, narrow, "vision_model.vision_adapter.mlp.fc1", "vision"),
        ("vision.merger.down", wide, wide, "vision_model.vision_adapter.mlp.fc2", "vision.merger.up"),
    ]
    for name, inputs, outputs, module, read in shuffled:
        yield matmul(name, merged, inputs, outputs, module=module, reads=(read,), to=None)
    projector = "multi_modal_projector.linear_1"
    yield matmul("vision.projector", merged, wide, columns, module=projector, reads=("vision.merger.down",))


AUDIO = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120}


@model(
    *("qwen2_audio", "Qwen2AudioForConditionalGeneration"),
    kind="audio",
    causal=True,
    shapes=("seq", "audio-frames"),
    source=in_transformers("models/qwen2_audio; arXiv:2407.10759"),
)
def qwen2_audio(config: Config) -> Iterator[Work]:
    """Qwen2-Audio: each window of 3,000 frames through Whisper's encoder, 750 tokens of it through one product, and Qwen2.

    Frames are counted in whole windows of 2 × max_source_positions, to which the feature extractor pads; without frames the
    text is counted alone. The text's tokens are all of them, those of audio among them.
    """
    section = documented(config.section("audio_config", optional=True), **AUDIO)
    works = list(language(config, "qwen2"))
    base, wide, heads = "model.audio_tower.", section.integer("d_model"), section.integer("encoder_attention_heads")
    positions = section.integer("max_source_positions", default=1500)
    mels, stem = section.integer("num_mel_bins", default=128), f"{base}conv"
    seconds = _windows(positions, positions, "positions")
    yield convolution(
        "conv.first", _windows(positions, 2 * positions, "frames"), 3, mels, wide, module=f"{stem}1", reads=("data",), to=None
    )
    yield convolution("conv.second", seconds, 3, wide, wide, module=f"{stem}2", reads=("conv.first",), to="encoder")
    layers, inner = section.layers("encoder_layers"), section.integer("encoder_ffn_dim")
    side = Side("encoder", f"{base}layers", layers, wide, heads, wide // heads, inner)
    yield from encoder(side, seconds, _windows(positions, positions**2, "pairs"))
    pooled, place = _windows(positions, positions // 2, "pooled positions"), "model.multi_modal_projector.linear"
    yield matmul("encoder.merger", pooled, wide, width(works), module=place, reads=("encoder",))
    yield from works


def _windows(positions: int, each: int, what: str) -> Quantity:
    """Return `each` for every window of audio that a sample's frames begin."""

    def of(sample: Sample) -> int:
        return -(-sample.audio // (2 * positions)) * each

    return quantity(f"{what} of audio windows of {positions}", of)
