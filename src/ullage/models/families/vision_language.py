"""Models of images and language whose towers take pictures or tiles: a tower, a way into the text, and a known text model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.models.blocks import cross_attention, embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import documented, head_dim
from ullage.models.families.mixtures import IN_LLAMA4
from ullage.models.families.vision import pooled_tower, vision_tower
from ullage.models.images import FUSED, Grid, Images, Patches, Tower, pair, patching, unused
from ullage.models.language import STACK, language, projector, width
from ullage.models.model import MODELS, in_transformers, model, table, transformers_model
from ullage.models.sample import FULL, TEXT, Convention, Quantity, Sample, quantity
from ullage.models.work import Work, convolution, matmul

_PIXTRAL_QUERIES = ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj")
_FEED = ("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj")
PIXTRAL_VISION = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 16}


@transformers_model(
    "models/mistral3 and pixtral", "mistral3", "Mistral3ForConditionalGeneration", kind="vision-language",
    shapes=("seq", "image"),
)  # fmt: skip
def mistral3(config: Config) -> Iterator[Work]:
    """Mistral Small 3.1 and its like: Pixtral's tower, a merger of 2 × 2 patches, a projector of two products, and the text.

    Each image sees itself alone; its sides are filled up to whole merged patches. A trace of several images at once counts
    them as one sequence with a mask, which no kernel for packed images does.
    """
    yield from _merging(config, "mistral", "model.vision_tower.", "model.multi_modal_projector")


@transformers_model(
    "models/lighton_ocr and pixtral", "lighton_ocr", "LightOnOcrForConditionalGeneration",
    kind="vision-language", shapes=("seq", "image"),
)  # fmt: skip
def lighton_ocr(config: Config) -> Iterator[Work]:
    """LightOnOCR: Mistral 3's way with Qwen 3."""
    yield from _merging(config, "qwen3", "model.vision_encoder.", "model.vision_projection")


def _merging(config: Config, text: str, base: str, way: str) -> Iterator[Work]:
    """Yield Pixtral's tower at `base`, a merger of patches and a projector at `way`, and the text."""
    section = documented(config.section("vision_config"), **PIXTRAL_VISION)
    merge = config.integer("spatial_merge_size", default=2, most=64)
    images, layers = variable(section, merge), section.layers()
    read = features(config, -1, len(layers))
    works = list(language(config, text))
    yield from unused(pixtral_tower(section, base, images), layers[max(read) :])
    wide, outer = section.integer("hidden_size"), width(works)
    place = f"{way}.patch_merger.merging_layer"
    yield matmul("vision.merger.merge", images.merged, wide * merge**2 * len(read), wide, module=place, reads=("vision",), to=None)
    yield from projector(images.merged, (wide, outer, outer), way, ("linear_1", "linear_2"), reads="vision.merger.merge")
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


def features(config: Config, default: int | list[int], layers: int) -> list[int]:
    """Return how many layers lie below each feature that the language model sees (`vision_feature_layer`, one or a list).

    0 is what enters the first layer, -1 what leaves the last.
    """
    given = config.values.get("vision_feature_layer", default)
    given = default if given is None else given
    listed = given if isinstance(given, list | tuple) else [given]
    if not listed or any(isinstance(i, bool) or not isinstance(i, int) for i in listed):
        raise config.error(("vision_feature_layer",), "must be a whole number or a list of them")
    below = [i if i >= 0 else layers + 1 + i for i in listed]
    if not all(0 <= count <= layers for count in below):
        raise config.error(("vision_feature_layer",), f"is {given}, and the tower has {layers} layers")
    return below


_BASE = "model.multi_modal_projector"


@dataclass(frozen=True)
class VisionLanguagePlan:
    """A class that joins a known tower, a way of two products into the text, and a known text: one row a class.

    `text` and `tower` are taken where their sections name none. `layer` of the tower is what the text sees, of its tokens
    `tokens`: "all", the "rest" without the first of each image (the class token), or as `vision_feature_select_strategy`
    says, by default "default" (the rest) or "full"; with a field `merge`, so many patches a side make one. `tiled` cuts each
    image into tiles. `middle` are the columns of the first product of the way and the inputs of the second.
    """

    names: tuple[str, ...]
    text: str
    tower: str
    layer: int | list[int] = -1
    tokens: str = "all"
    merge: str = ""
    tiled: bool = False
    middle: Callable[[Config, int], tuple[int, int]] = lambda _, outer: (outer, outer)
    prepared: Callable[[Config], Config] = lambda config: config
    base: str = "model.vision_tower."
    way: tuple[str, str] = tuple(f"model.multi_modal_projector.linear_{i}" for i in (1, 2))  # type: ignore[assignment]

    def works(self, config: Config) -> Iterator[Work]:
        """Yield the tower, the way into the text, and the text."""
        config = self.prepared(config)
        section = config.section("vision_config", optional=True)
        kind = section.word("model_type", default=self.tower)
        images, works = self._images(config, section, kind), list(language(config, self.text))
        seen = list(_sighted(section, kind, self.base, images))
        layers = max(len(work.layers) for work in seen if work.stack)
        read = features(config, self.layer, layers)
        yield from unused(iter(seen), range(max(read), layers))
        wide = section.integer("hidden_size", default=1024 if kind == "pixtral" else 768)
        inner, outer = wide * len(read) * images.merge**2, width(works)
        first, second = self.middle(config, outer)
        up, down = self.way
        yield matmul("vision.merger.up", self._rows(config, images), inner, first, module=up, reads=("vision",), to=None)
        yield matmul("vision.merger.down", self._rows(config, images), second, outer, module=down, reads=("vision.merger.up",))
        yield from works

    def _rows(self, config: Config, images: Images) -> Quantity:
        if self.merge:
            return images.merged
        told = {"all": "full", "rest": "default"}.get(self.tokens)
        strategy = told or config.word("vision_feature_select_strategy", default=self.tokens)
        return _without_first(images) if strategy == "default" else images.tokens

    def _images(self, config: Config, section: Config, kind: str) -> Images:
        if kind == "pixtral":
            return variable(section.replaced(patch_size=section.integer("patch_size", default=16)))
        if kind not in ("clip_vision_model", "siglip_vision_model"):
            raise UllageError(
                f"no formula for the tower '{harmless(kind, 80)}' in {section.path}model_type of {section.place}",
                "the towers known here: clip_vision_model, siglip_vision_model, pixtral",
            )
        rows, columns = pair(section, "patch_size", 32 if kind == "clip_vision_model" else 16)
        size, extra = pair(section, "image_size", 224), int(kind == "clip_vision_model")
        if self.tiled:
            return Tiled(rows, columns, extra, size=size, canvases=_canvases(config))
        merge = config.integer(self.merge, default=2, most=64) if self.merge else 1
        return Images(rows, columns, extra, merge, size=size)


def _sighted(section: Config, kind: str, base: str, images: Images) -> Iterator[Work]:
    if kind == "pixtral":
        yield from pixtral_tower(section, base, images)
    elif kind == "siglip_vision_model":
        yield from pooled_tower(section, base, images, used=False)
    else:
        yield from vision_tower(section, base, images)


def _swiglu(config: Config, outer: int) -> tuple[int, int]:
    """Return a middle that is halved by its own gate."""
    middle = config.integer("alignment_intermediate_size", default=outer)
    return middle, middle // 2


def _several_layers(config: Config) -> Config:
    """Return ViP-LLaVA's configuration in LLaVA's words."""
    layers = config.values.get("vision_feature_layers")
    return config.replaced(vision_feature_layer=[-2, -5, -8, -11, 6] if layers is None else layers)


SEEN: dict[str, Any] = {"kind": "vision-language", "shapes": ("seq", "image")}
table(
    "llava",
    """LLaVA 1.5, LLaVA-NeXT (and its Video) and Pixtral-12B: an image's tokens without the first, through two products.

    With v the tower's and h the text's width, a projected token costs 2(v·h + h²). Layers of the tower above the one that is
    read are run, and train nothing. LLaVA-NeXT cuts each image into tiles of the tower's size by its `image_grid_pinpoints`,
    and adds the whole image as one more; LLaVA's images come at the tower's size. Of LLaVA-NeXT-Video images are counted, no videos.
    """,
    in_transformers("models/llava, llava_next and llava_next_video; arXiv:2304.08485, 2310.03744"),
    VisionLanguagePlan(("llava", "LlavaForConditionalGeneration"), "llama", "clip_vision_model", -2, "default"),
    VisionLanguagePlan(("llava_next", "LlavaNextForConditionalGeneration"), "llama", "clip_vision_model", -2, "default", tiled=True),
    VisionLanguagePlan(
        *(("llava_next_video", "LlavaNextVideoForConditionalGeneration"), "llama", "clip_vision_model", -2, "default"), tiled=True
    ),
    **SEEN,
)
table(
    "llava_onevision",
    """LLaVA-OneVision: SigLIP's last layer, all of its tokens, LLaVA's projector, and Qwen 2; an image in tiles, and whole.

    More tiles than `vision_aspect_ratio` allows are scaled down behind the projector, which costs nothing here; the tokens of
    the text are those that are left. Videos, whose frames are pooled behind the projector, count as images of the tower's size.
    """,
    in_transformers("models/llava_onevision; arXiv:2408.03326"),
    VisionLanguagePlan(
        ("llava_onevision", "LlavaOnevisionForConditionalGeneration"), "qwen2", "siglip_vision_model", -1, "full", tiled=True
    ),
    **SEEN,
)
table(
    "vipllava",
    "ViP-LLaVA: LLaVA with several layers of CLIP side by side before the projector.",
    in_transformers("models/vipllava; arXiv:2312.00784"),
    VisionLanguagePlan(
        *(("vipllava", "VipLlavaForConditionalGeneration"), "llama", "clip_vision_model"),
        tokens="rest",
        prepared=_several_layers,
    ),
    **SEEN,
)
table(
    "aya_vision",
    """Aya Vision and Command A Vision: SigLIP, 2 × 2 patches merged, a gated projector of two products, and Cohere 2.

    With v the tower's and h the text's width and m that of the projector, a merged token costs 2(4v·m + m/2·h). Tiles of an
    image are images of their own.
    """,
    in_transformers("models/aya_vision and cohere2_vision"),
    VisionLanguagePlan(
        *(("aya_vision", "AyaVisionForConditionalGeneration"), "cohere2", "siglip_vision_model"),
        merge="downsample_factor",
        middle=_swiglu,
    ),
    VisionLanguagePlan(
        *(("cohere2_vision", "Cohere2VisionForConditionalGeneration"), "cohere2", "siglip_vision_model"),
        merge="downsample_factor",
        middle=_swiglu,
    ),
    **SEEN,
)
table(
    "deepseek_vl",
    "DeepSeek-VL 1.3B: SigLIP, a projector of two products, and Llama.",
    in_transformers("models/deepseek_vl; arXiv:2403.05525"),
    VisionLanguagePlan(
        *(("deepseek_vl", "DeepseekVLForConditionalGeneration"), "llama", "siglip_vision_model"),
        base="model.vision_model.",
        way=("model.aligner.linear1", "model.aligner.linear2"),
    ),
    **SEEN,
)


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
    *("qianfan_ocr", "QianfanOCRForConditionalGeneration"),
    kind="vision-language",
    shapes=("seq", "image"),
    source=in_transformers("models/internvl; arXiv:2404.16821") + " (internvl_chat read, not traced)",
)
def internvl(config: Config) -> Iterator[Work]:
    """InternVL 2, 2.5 and 3, Qianfan-OCR: ViT with a class token over each tile, a projector once per merged token, and a text model.

    A tile of P patches costs 2P·3p²v + 2(P + 1)L(4v² + 2vf) + 4vL(P + 1)² and, with a quarter of the patches left,
    2(P/4)(4v·h + h²). Each tile, the thumbnail too, is one image.
    """
    section = documented(config.section("vision_config"), **INTERNVL_VISION)
    original = config.architecture.startswith(("internvl_chat", "InternVLChat"))
    merge = _merge(config)
    rows, columns = pair(section, "patch_size", 14)
    images = Images(rows, columns, 1, merge, size=pair(section, "image_size", 448))
    wide, layers = section.integer("hidden_size"), section.layers()
    text = "qwen3" if config.architecture.casefold().startswith("qianfan") else "qwen2"
    works = list(language(config, text, "language_model.model.layers" if original else STACK))
    base, patches, stack, queries = _paths(original)
    yield patching(images, section.integer("num_channels", default=3), wide, f"{base}{patches}")
    heads, inner = section.integer("num_attention_heads"), section.integer("intermediate_size")
    tower = Tower(f"{base}{stack}", layers, wide, heads, inner, queries, dim=head_dim(section, wide, heads))
    read = features(config, config.integer("select_layer", default=-1, least=-len(layers)), len(layers))
    yield from unused(tower.works(images.tokens, [(images.pairs, layers)]), layers[max(read) :])
    way = ("mlp1", ("1", "3")) if original else ("model.multi_modal_projector", ("linear_1", "linear_2"))
    yield from projector(images.merged, (wide * merge**2, width(works), width(works)), *way)
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


@transformers_model(
    "models/idefics3 and smolvlm; arXiv:2408.12637, 2504.05299", "idefics3",
    "Idefics3ForConditionalGeneration", "smolvlm", "SmolVLMForConditionalGeneration", kind="vision-language",
    shapes=("seq", "image"),
)  # fmt: skip
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


@transformers_model(
    "models/paligemma; Beyer et al., arXiv:2407.07726", "paligemma", "PaliGemmaForConditionalGeneration",
    kind="vision-language", causal=False, shapes=("seq", "image"),
)  # fmt: skip
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


@transformers_model(
    "models/gemma3; arXiv:2503.19786", "gemma3", "Gemma3ForConditionalGeneration", kind="vision-language",
    shapes=("seq", "image"),
)  # fmt: skip
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
    """Return causal pairs, and those that the tokens of each image add by seeing each other both ways; 0 tokens: the merged ones."""

    def of(sample: Sample, convention: Convention) -> int:
        grids = () if convention == FULL else images.of(sample).grids
        counts = [tokens or frames * rows * columns // images.merge**2 for frames, rows, columns in grids]
        return pairs.of(sample, convention) + sum(count * (count - 1) // 2 for count in counts)

    return Quantity(f"{pairs.name}, images of {tokens or 'merged'} tokens both ways, {images.name}", of)


GEMMA4_VISION = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12, "head_dim": 64}


@transformers_model("models/gemma4", "gemma4", "Gemma4ForConditionalGeneration", kind="vision-language", left_out=("*.pooler",))
def gemma4_vision(config: Config) -> Iterator[Work]:
    """Gemma 4 with images: a tower with gated MLPs, averages of 3 × 3 patches, one product for each of them, and Gemma 4.

    An image of P patches costs 2P·3p²v + 2PL(4v² + 3vf) + 4vL·P² and 2(P/9)v·h. In the larger models the tokens of an image
    see each other both ways. The frames of a video are images. The tower for sound is not counted, and frames of it are refused.
    """
    section, works = documented(config.section("vision_config"), **GEMMA4_VISION), list(language(config, "gemma4_text"))
    wide, heads, layers = section.integer("hidden_size"), section.integer("num_attention_heads"), section.layers()
    if section.integer("num_key_value_heads", default=heads) != heads:
        raise section.error(("num_key_value_heads",), f"must be that of the {heads:,} heads: no formula covers fewer")
    side, merge = section.integer("patch_size", default=16, most=1024), section.integer("pooling_kernel_size", default=3, most=64)
    images, base = Images(side, side, merge=merge, fit="nearest"), "model.vision_tower."
    place, seen = f"{base}patch_embedder.input_proj", quantity(f"{images.patches.name}, and no sound", lambda s: _silent(images, s))
    yield matmul("vision.patch", seen, 3 * side**2, wide, module=place, reads=("data",), to="vision")
    queries = tuple(f"self_attn.{name}_proj.linear" for name in ("q", "k", "v", "o"))
    feed = tuple(f"mlp.{name}_proj.linear" for name in ("gate", "up", "down"))
    inner, dim = section.integer("intermediate_size"), section.integer("head_dim")
    tower = Tower(f"{base}encoder.layers", layers, wide, heads, inner, queries, feed, dim)
    yield from tower.works(images.patches, [(images.frame_pairs, layers)])
    way = "model.embed_vision.embedding_projection"
    yield matmul("vision.merger", images.merged, wide, width(works), module=way, reads=("vision",))
    blind = config.section("text_config").values.get("use_bidirectional_attention") != "vision"
    for work in works:
        sees = not blind and work.quantity.name.startswith("causal pairs")
        yield replace(work, quantity=both_ways(work.quantity, images, 0)) if sees else work


def _silent(images: Images, sample: Sample) -> int:
    """Return the patches of a sample; raises UllageError for one with sound, whose tower no formula covers."""
    if sample.audio:
        raise UllageError(
            "there is no formula for the tower that hears in Gemma 4", "leave --audio-frames out: images and text are counted"
        )
    return images.of(sample).patches


def _tokens(config: Config, images: Images) -> int:
    """Return the tokens of an image: the patches of a side, divided by a whole pooling window."""
    side = (images.size or (0, 0))[0] // images.rows
    wanted = config.integer("mm_tokens_per_image", default=256)
    window = side // int(wanted**0.5)
    if window < 1:
        raise config.error(("mm_tokens_per_image",), f"is {wanted:,}, and an image has {side**2:,} patches")
    return (side // window) ** 2


MLLAMA_VISION = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_global_layers": 8}
TEXTUAL = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8}
OWN_QUERIES = ("q_proj", "k_proj", "v_proj", "o_proj")
CROSS_LAYERS = [3, 8, 13, 18, 23, 28, 33, 38]


@transformers_model(
    "models/mllama; arXiv:2407.21783", "mllama", "MllamaForConditionalGeneration", kind="vision-language",
    shapes=("seq", "image"),
)  # fmt: skip
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
    queries = tuple(f"self_attn.{name}" for name in OWN_QUERIES)
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
    yield from cross_attention(
        width, heads, dim, crossed, rows=tiles.text, source=tiles.tokens, of=tiles.crossed, source_width=width,
        source_stream="images", key_heads=keys, stack=STACK, module="cross_attn", modules=OWN_QUERIES,
    )  # fmt: skip
    yield from mlp(width, inner, plain, gated=True, stack=STACK)
    yield from mlp(width, inner, crossed, gated=True, stack=STACK, rows=tiles.text)


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


@model("Llama4ForConditionalGeneration", "llama4", kind="vision-language", source=IN_LLAMA4)
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
    queries = tuple(f"self_attn.{name}" for name in OWN_QUERIES)
    yield from Tower("vision_model.model.layers", layers, width, heads, inner, queries, dim=dim).works(tokens, [(square, layers)])
    narrow, wide = config.integer("projector_input_dim", default=4096), config.integer("projector_output_dim", default=4096)
    shuffled = [
        ("vision.merger.up", inner, narrow, "vision_model.vision_adapter.mlp.fc1", "vision"),
        ("vision.merger.down", wide, wide, "vision_model.vision_adapter.mlp.fc2", "vision.merger.up"),
    ]
    for name, inputs, outputs, module, read in shuffled:
        yield matmul(name, merged, inputs, outputs, module=module, reads=(read,), to=None)
    projector = "multi_modal_projector.linear_1"
    yield matmul("vision.projector", merged, wide, columns, module=projector, reads=("vision.merger.down",))
