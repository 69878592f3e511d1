"""Models of images and language whose towers take grids of patches of any size: Qwen-VL, GLM-V, Kimi, HyperCLOVA X."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ullage.models.config import Config
from ullage.models.decoders import documented
from ullage.models.families.encoders import Side, encoder
from ullage.models.families.vision import pooled_tower
from ullage.models.images import FUSED, Images, Tower, pair, patching, scaled
from ullage.models.language import language, projector, width
from ullage.models.model import in_transformers, model, transformers_model
from ullage.models.sample import FULL, Quantity, Sample, quantity
from ullage.models.work import Work, convolution, lookup, matmul

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


@transformers_model(
    "models/exaone4_5", "exaone4_5", "Exaone4_5_ForConditionalGeneration", kind="vision-language",
)  # fmt: skip
def exaone4_5(config: Config) -> Iterator[Work]:
    """EXAONE 4.5: Qwen2.5-VL's tower with fewer heads of keys than of queries, and EXAONE 4."""
    section = config.section("vision_config")
    yield from _windowed(section, "model.visual.", to="stream", key_heads=section.integer("num_key_value_heads", default=8))
    yield from language(config, "exaone4")


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


KIMI_VISION = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16}


@transformers_model(
    "models/kimi_k25", "kimi_k25", "Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration",
    kind="vision-language",
)  # fmt: skip
def kimi_k25(config: Config) -> Iterator[Work]:
    """Kimi K2.5: MoonViT over all patches of an image or a few frames, their frames averaged, 2 × 2 merged, and DeepSeek V3.

    P patches of F frames cost 2P[3p²v + L(4v² + 2vf)] + 4vL·P² and 2(P/4F)(16v² + 4v·h). The files of Kimi K2.5 and K2.6 name a
    class of their own (KimiK25ForConditionalGeneration) and widths that begin with `vt_`. transformers loads their weights into
    its own class, matrix by matrix, and that one was traced; the files' own code was not.
    """
    section, works = _moonvit(config.section("vision_config")), list(language(config, "deepseek_v3"))
    wide, heads, layers = section.integer("hidden_size"), section.integer("num_attention_heads"), section.layers()
    side, merge = section.integer("patch_size", default=14, most=1024), pair(section, "merge_kernel_size", 2)[0]
    images, base = Images(side, side, merge=merge, fit="nearest"), "model.vision_tower."
    yield patching(images, 3, wide, f"{base}patch_embed.proj")
    queries = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.proj")
    tower = Tower(f"{base}layers", layers, wide, heads, section.integer("intermediate_size"), queries)
    yield from tower.works(images.patches, [(images.pairs, layers)])
    still = quantity(f"merged tokens of one frame, {images.name}", lambda s: sum(r * c for _, r, c in images.of(s).grids) // merge**2)
    inner = wide * merge**2
    yield from projector(still, (inner, inner, width(works)), "model.mm_projector", ("in_proj", "out_proj"))
    yield from works


def _moonvit(section: Config) -> Config:
    """Return Kimi's section in the library's words: as released, its widths begin with `vt_`."""
    released = {name: section.values[f"vt_{name}"] for name in KIMI_VISION if section.has(f"vt_{name}")}
    return documented(section.replaced(**released), **KIMI_VISION)


@transformers_model(
    "models/hyperclovax_vision_v2", "hyperclovax_vision_v2", "HyperCLOVAXVisionV2ForConditionalGeneration",
    kind="vision-language",
)  # fmt: skip
def hyperclovax_vision_v2(config: Config) -> Iterator[Work]:
    """HyperCLOVA X SEED Think with images: Qwen2.5-VL's tower, one product for each merged token, and HyperCLOVA X."""
    section, works = config.section("vision_config"), list(language(config, "hyperclovax"))
    yield from _windowed(section, "model.vision_model.", to="vision.merger")
    inner, images = section.integer("out_hidden_size", default=3584), patched(section, 14)
    yield matmul("vision.projector", images.merged, inner, width(works), module="model.projector", reads=("vision.merger",))
    yield from works


@transformers_model(
    "models/glm4v, glm4v_moe, glm46v and glm_ocr; arXiv:2507.01006", "glm4v", "Glm4vForConditionalGeneration",
    "glm46v", "Glm46VForConditionalGeneration", "glm4v_moe", "Glm4vMoeForConditionalGeneration", "glm_ocr",
    "GlmOcrForConditionalGeneration", kind="vision-language",
)  # fmt: skip
def glm4v(config: Config) -> Iterator[Work]:
    """GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: attention within a frame, a convolution to merged tokens, a gated MLP, and GLM.

    With e the tower's and h the text's width, f that of the merger, a merged token costs 2(4e·h + h² + 3h·f). The frames of a
    video are images of their own.
    """
    section, base = config.section("vision_config"), "model.visual."
    small = config.architecture.casefold().startswith(("glm_ocr", "glmocr"))
    wide, outer = section.integer("hidden_size", default=1536), section.integer("out_hidden_size", default=4096)
    inner, count = section.integer("intermediate_size", default=13696), section.integer("num_heads", default=12)
    images, layers, channels = patched(section, 14), section.layers("depth", default=24), section.integer("in_channels", default=3)
    tower = Tower(f"{base}blocks", layers, wide, count, inner if small else outer, FUSED, _GATED)
    yield embedded(section, images, wide, base)
    yield from tower.works(images.patches, [(images.frame_pairs, layers)])
    rows, merged, way = images.merged, "vision.merger", f"{base}merger."
    place = f"{base}downsample"
    yield convolution(f"{merged}.conv", rows, images.merge**2, wide, outer, module=place, reads=("vision",), to=merged)
    yield matmul(f"{merged}.proj", rows, outer, outer, module=f"{way}proj", reads=(merged,), to=None)
    columns, made = outer * channels if small else inner, (f"{merged}.gate", f"{merged}.up")
    for name, module in zip(made, ("gate_proj", "up_proj"), strict=True):
        yield matmul(name, rows, outer, columns, module=f"{way}{module}", reads=(f"{merged}.proj",), to=None)
    yield matmul(f"{merged}.down", rows, columns, outer, module=f"{way}down_proj", reads=made)
    yield from language(config, "glm_ocr_text" if small else "glm4v_moe_text" if "moe" in config.architecture.casefold() else "glm4v_text")


@transformers_model(
    "models/qwen2_5_omni; arXiv:2503.20215", "qwen2_5_omni_thinker", "Qwen2_5OmniThinkerForConditionalGeneration",
    "qwen2_5_omni", "Qwen2_5OmniForConditionalGeneration", "Qwen2_5OmniModel",
    kind="vision-language", shapes=("seq", "grid", "audio-frames"),
)  # fmt: skip
def qwen2_5_omni(config: Config) -> Iterator[Work]:
    """The thinker of Qwen2.5-Omni, which training trains: Qwen2.5-VL's tower, Whisper's encoder over chunks of sound, and Qwen2.

    Chunks of 2 × n_window frames (2 s) see themselves alone; two of their positions are averaged to a token, and projected.
    The talker and the model that makes waves of its tokens are not counted.
    """
    inside = config.section("thinker_config") if config.has("thinker_config") else config
    yield from _windowed(inside.section("vision_config"), "model.visual.", to="stream", queries=APART)
    yield from _chunked_sound(inside.section("audio_config"), "model.audio_tower.")
    yield from language(inside, "qwen2_5_omni_text")


APART = ("attn.q", "attn.k", "attn.v", "attn.proj")
HEARING = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "num_mel_bins": 128}


def _chunked_sound(section: Config, base: str) -> Iterator[Work]:
    known = documented(section, **HEARING, n_window=100, output_dim=3584)
    wide, heads, size = known.integer("d_model"), known.integer("encoder_attention_heads"), 2 * known.integer("n_window")

    def heard(what: str, of: Callable[[int], int]) -> Quantity:
        """Return a sum over the chunks of a sample's frames, by their positions: one for two frames."""

        def count(sample: Sample) -> int:
            whole, rest = divmod(sample.audio, size)
            return whole * of((size + 1) // 2) + of((rest + 1) // 2)

        return quantity(f"{what} of chunks of {size} frames", count)

    frames, rows = quantity("frames of sound", lambda s: s.audio), heard("positions", lambda n: n)
    yield convolution("conv.first", frames, 3, known.integer("num_mel_bins"), wide, module=f"{base}conv1", reads=("data",), to=None)
    yield convolution("conv.second", rows, 3, wide, wide, module=f"{base}conv2", reads=("conv.first",), to="encoder")
    layers, inner = known.layers("encoder_layers"), known.integer("encoder_ffn_dim")
    yield from encoder(Side("encoder", f"{base}layers", layers, wide, heads, wide // heads, inner), rows, heard("pairs", lambda n: n * n))
    pooled = quantity(f"pairs of positions of chunks of {size} frames", lambda s: rows.of(s, FULL) // 2)
    yield matmul("encoder.merger", pooled, wide, known.integer("output_dim"), module=f"{base}proj", reads=("encoder",))


@transformers_model(
    "models/qwen3_omni_moe; arXiv:2509.17765", "qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration",
    "qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration",
    kind="vision-language", shapes=("seq", "grid", "audio-frames"),
)  # fmt: skip
def qwen3_omni_moe(config: Config) -> Iterator[Work]:
    """The thinker of Qwen3-Omni, which training trains: Qwen3-VL's tower, an encoder over windows of sound, and Qwen3-MoE.

    Three convolutions over time and pitch make 13 tokens of a second (100 frames); eight seconds see each other. A last second
    that is shorter counts as it is, without its padding. The talker and the model that makes waves of its tokens are not counted.
    """
    inside = config.section("thinker_config") if config.has("thinker_config") else config
    merging = ("mlp.0", "mlp.2", "merger_list")
    yield from _qwen3_vl_tower(inside.section("vision_config"), "model.visual.", to="stream", merging=merging)
    yield from _pitched_sound(inside.section("audio_config"), "model.audio_tower.")
    yield from language(inside, "qwen3_omni_moe_text")


def _halved(length: int, times: int) -> int:
    """Return what convolutions of stride 2 leave of a length.

    >>> _halved(100, 3)
    13
    """
    return -(-length // (1 << times))


def _pitched_sound(section: Config, base: str) -> Iterator[Work]:
    known = documented(section, **HEARING, n_window=50, n_window_infer=800, downsample_hidden_size=480, output_dim=3584)
    wide, heads, size = known.integer("d_model"), known.integer("encoder_attention_heads"), 2 * known.integer("n_window")
    mels, channels = known.integer("num_mel_bins"), known.integer("downsample_hidden_size")
    window = _halved(size, 3) * max(known.integer("n_window_infer") // size, 1)

    def left(times: int, each: int, what: str) -> Quantity:
        """Return `each` for what so many convolutions leave of a sample's frames, chunk by chunk."""

        def of(sample: Sample) -> int:
            whole, rest = divmod(sample.audio, size)
            return (whole * _halved(size, times) + _halved(rest, times)) * each

        return quantity(f"{what} of sound, chunks of {size} frames, {times} times halved, {each} each", of)

    made = "data"
    for times, (name, inputs) in enumerate((("conv.first", 1), ("conv.second", channels), ("conv.third", channels)), start=1):
        of = left(times, _halved(mels, times), "frames and pitches")
        yield convolution(name, of, 9, inputs, channels, module=f"{base}conv2d{times}", reads=(made,), to=None)
        made = name
    rows = left(3, 1, "tokens")

    def near(sample: Sample) -> int:
        whole, rest = divmod(rows.of(sample, FULL), window)
        return whole * window**2 + rest**2

    yield matmul("conv.out", rows, channels * _halved(mels, 3), wide, module=f"{base}conv_out", reads=(made,), to="encoder")
    layers, inner = known.layers("encoder_layers"), known.integer("encoder_ffn_dim")
    pairs = quantity(f"pairs within {window} {rows.name}", near)
    yield from encoder(Side("encoder", f"{base}layers", layers, wide, heads, wide // heads, inner), rows, pairs)
    widths, modules = (wide, wide, known.integer("output_dim")), ("proj1", "proj2")
    yield from projector(rows, widths, base.rstrip("."), modules, name="encoder.merger", reads="encoder")


@transformers_model(
    "models/lfm2_vl and siglip2; arXiv:2511.23404", "lfm2_vl", "Lfm2VlForConditionalGeneration", kind="vision-language",
    left_out=("*.vision_tower.embeddings",),  # positions fitted to an image's shape, which the library takes by a product
)  # fmt: skip
def lfm2_vl(config: Config) -> Iterator[Work]:
    """LFM2-VL: SigLIP 2 over images of any shape, 2 × 2 patches merged, a projector of two products, and LFM2."""
    section, works = config.section("vision_config", optional=True), list(language(config, "lfm2"))
    side, merge = section.integer("patch_size", default=16, most=1024), config.integer("downsample_factor", default=2, most=64)
    images = Images(side, side, merge=merge, fit="nearest")
    wide = yield from pooled_tower(section, "model.vision_tower.", images, used=False)
    widths = wide * merge**2, config.integer("projector_hidden_size", default=2560), width(works)
    yield from projector(images.merged, widths, "model.multi_modal_projector", ("linear_1", "linear_2"))
    yield from works


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


def _qwen2_vl_tower(config: Config, base: str, *, to: str | None = None, needed: bool = False) -> Iterator[Work]:
    width = config.integer("embed_dim", default=1280)
    inner = scaled(config, width)
    images, layers = patched(config, 14, needed), config.layers("depth", default=32)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, FUSED)
    yield from _works(config, base, images, tower, [(images.frame_pairs, layers)], config.integer("hidden_size", default=3584), to)


def _windowed(
    config: Config, base: str, *, to: str | None = None, needed: bool = False, queries: tuple[str, ...] = FUSED,
    key_heads: int | None = None,
) -> Iterator[Work]:  # fmt: skip
    width, inner = config.integer("hidden_size"), config.integer("intermediate_size", default=3420)
    images, layers = patched(config, 14, needed), config.layers("depth", default=32)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, queries, _GATED, key_heads=key_heads)
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
    inner = tower.width * images.merge**2
    yield from projector(images.merged, (inner, inner, outer), f"{base}merger.mlp", ("0", "2"), to=to)


_QWEN3_VL_SOURCE = in_transformers("models/qwen3_vl and qwen3_vl_moe; arXiv:2511.21631")
APART_MERGERS = ("linear_fc1", "linear_fc2", "deepstack_merger_list")
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


@transformers_model(
    "models/qwen3_5 and qwen3_5_moe", "qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_moe",
    "Qwen3_5MoeForConditionalGeneration", kind="vision-language",
)  # fmt: skip
def qwen3_5(config: Config) -> Iterator[Work]:
    """Qwen3.5 and Qwen3.5-MoE with images: Qwen3-VL's tower without deepstack, and the decoder of delta networks."""
    yield from _qwen3_vl_tower(config.section("vision_config").replaced(deepstack_visual_indexes=[]), "model.visual.", to="stream")
    yield from language(config, "qwen3_5_moe_text" if "moe" in config.architecture.casefold() else "qwen3_5_text")


@model(
    *("qwen3_vl_vision", "Qwen3VLVisionModel", "qwen3_vl_moe_vision", "Qwen3VLMoeVisionModel"),
    kind="vision",
    shapes=("grid",),
    source=_QWEN3_VL_SOURCE,
)
def qwen3_vl_vision(config: Config) -> Iterator[Work]:
    """The vision tower of Qwen3-VL alone, with its mergers."""
    yield from _qwen3_vl_tower(config, "", to=None, needed=True)


def _qwen3_vl_tower(
    config: Config, base: str, *, to: str | None, needed: bool = False, merging: tuple[str, str, str] = APART_MERGERS
) -> Iterator[Work]:
    """Yield the tower and its mergers: the latter's modules in `merging`, and the list of those behind earlier layers."""
    width, outer = config.integer("hidden_size", default=1152), config.integer("out_hidden_size", default=3584)
    images, layers = patched(config, 16, needed), config.layers("depth", default=27)
    inner = config.integer("intermediate_size", default=4304)
    tower = Tower(f"{base}blocks", layers, width, heads(config, width), inner, FUSED, ("mlp.linear_fc1", "mlp.linear_fc2"))
    yield embedded(config, images, width, base)
    yield lookup("vision.positions", images.patches, f"{base}pos_embed", to="vision")
    yield from tower.works(images.patches, [(images.frame_pairs, layers)])
    modules, merged = merging[:2], width * images.merge**2
    widths = merged, merged, outer
    yield from projector(images.merged, widths, f"{base}merger", modules, to=to)
    given = config.integers("deepstack_visual_indexes")
    reached = [i for i in (DEEPSTACK if given is None else given) if i < len(layers)]
    if reached:
        stack, members = f"{base}{merging[2]}", range(len(reached))
        place: dict[str, Any] = {"to": to, "name": "vision.deepstack", "layers": members, "stack": stack}
        yield from projector(images.merged, widths, "", modules, **place)
