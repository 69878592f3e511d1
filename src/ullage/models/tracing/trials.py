"""The small odd shapes at which a model is traced, by the kind of model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ullage.models.config import Config
from ullage.models.model import Model, names
from ullage.models.sample import Sample

CHUNKS = ("chunk_size", "mamba_chunk_size", "mamba2_chunk_size", "block_size", "chunk_length", "linear_chunk_size")
POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "max_sequence_length")
SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")
LONGEST_CHUNK = 1024
UNTOLD = 64  # the chunk of models with a gated delta rule, which do not say theirs
DELTA = ("linear_num_value_heads", "linear_num_heads", "linear_attn_config", "linear_head_dim")
# How classes of denoisers take their latents, by the start of their names; the others take images
_LAYOUTS = {
    **dict.fromkeys(("Flux", "QwenImage", "LTX", "Chroma"), "packed"),
    **dict.fromkeys(("Wan", "SkyReels", "HunyuanVideo", "SanaVideo", "Mochi", "Allegro", "Latte", "Cosmos"), "video"),
    "CogVideoX": "frames first",
    "StableAudio": "sound",
}


@dataclass(frozen=True)
class Trial:
    """So many samples, all alike."""

    batch: int
    sample: Sample

    def record(self) -> dict[str, Any]:
        """Return the trial for JSON: what differs from an empty sample."""
        empty = Sample()
        fields = {name: value for name, value in vars(self.sample).items() if value != getattr(empty, name)}
        return {"batch": self.batch, **fields}


def lengths(config: Config) -> tuple[int, int, int]:
    """Return three lengths of text: short, middling, and one longer than two chunks of a model that works by chunks.

    None is longer than the positions that the model has.

    >>> lengths(Config({})), lengths(Config({"chunk_size": 256})), lengths(Config({"n_positions": 64}))
    ((9, 37, 67), (9, 37, 515), (9, 37, 64))
    """
    most = longest(config)
    return min(9, most), min(37, most), min(max(67, 2 * chunk(config) + 3), most)


def chunk(config: Config) -> int:
    """Return the longest chunk that a configuration names or implies, 0 without."""
    named = [c for name in CHUNKS for c in _everywhere(config, name) if c <= LONGEST_CHUNK]
    return max([*named, *(UNTOLD for name in DELTA if config.has(name) or any(_everywhere(config, name)))], default=0)


def longest(config: Config) -> int:
    """Return the most tokens that the model has positions for."""
    return min((p for name in POSITIONS for p in _everywhere(config, name)), default=1 << 20)


def trials(model: Model, config: Config) -> list[Trial]:
    """Return the trials for a certificate: two or three, of different batches and sizes."""
    alone = model.kind == "vision-language" and "image" in model.shapes  # a step compares all its texts with all its images
    batches = (1, 1, 1) if alone else (1, 2, 3, 1)
    return [Trial(batch, sample) for batch, sample in zip(batches, _samples(model, config), strict=False)]


def _samples(model: Model, config: Config) -> Iterator[Sample]:
    short, middle, long = lengths(config)
    if model.kind in ("decoder", "encoder"):
        yield from (Sample(text=n, encoder=n) for n in (short, middle, long))
    elif model.kind == "encoder-decoder":
        yield from (Sample(text=min(t, long), encoder=e) for e, t in ((short, 5), (middle, 11), (long, 67)))
    elif model.kind == "audio":
        yield from _sounds(config)
    elif model.kind == "vision" and "latent" in model.shapes:
        yield from (Sample(latent=size) for size in ((1, 4, 6), (3, 5, 2)))
    elif "grid" in model.shapes:
        yield from _grids(config, words=11 if "seq" in model.shapes else 0)
        if "audio-frames" in model.shapes:
            yield from _sounds(config)
    elif model.kind in ("vision", "vision-language"):
        vision = config.section("vision_config") if config.has("vision_config") else config
        words = (middle, long) if "seq" in model.shapes else (0, 0)
        yield from (Sample(text=text, pixels=(size,)) for text, size in zip(words, sizes(vision), strict=True))
    elif model.kind == "diffusion":
        yield from _latents(config)


def sizes(config: Config) -> list[tuple[int, int]]:
    """Return sizes of images: the one that the model is made for, twice, or two odd ones where it takes any."""
    for name in ("image_size", "sample_size", "input_size", "img_size"):
        given = config.values.get(name)
        if isinstance(given, int):
            return [(given, given)] * 2
        if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(side, int) for side in given):
            return [(given[0], given[1])] * 2
    return [(64, 96), (97, 131)]


def _sounds(config: Config) -> Iterator[Sample]:
    """Whole windows, two mel frames a position of the encoder; a text that hears holds a token for two positions, and words."""
    section = config.section("audio_config") if config.has("audio_config") else config
    positions = next(_everywhere(section, "max_source_positions"), 1500)
    heard = positions // 2 if section is not config else 0
    yield from (Sample(text=heard + words, audio=2 * positions) for words in (7, 13))


def _grids(config: Config, words: int) -> Iterator[Sample]:
    """Grids of patches that merge evenly, one image and two; the text holds a token for each merged patch and a few words."""
    vision = config.section("vision_config") if config.has("vision_config") else config
    patch, size = (next(_everywhere(vision, name), 0) for name in ("patch_size", "image_size"))
    if size and patch and not vision.has("temporal_patch_size"):  # tiles of one size
        merge, tiles = 2, [[(1, size // patch // 2, size // patch // 2)] * n for n in (1, 2)]
    else:
        frames = 1 if config.architecture.casefold().startswith("glm") else 3  # GLM takes the frames of a video for images
        merge, tiles = next(_everywhere(vision, "spatial_merge_size"), 2), [[(1, 3, 5)], [(1, 4, 6), (frames, 2, 7)]]
        still = "" if config is vision else str(vision.values.get("model_type"))
        if pooled := next(_everywhere(vision, "pooling_kernel_size"), 2 * still.startswith("siglip2")):  # images of as many patches
            merge, tiles = pooled, [[(1, 2, 4)], [(1, 2, 3), (1, 3, 2)]]
    for grids in tiles:
        real = tuple((t, h * merge, w * merge) for t, h, w in grids)
        yield Sample(text=sum(t * h * w for t, h, w in grids) + words if words else 0, grids=real)


def _latents(config: Config) -> Iterator[Sample]:
    """Grids of latents that every usual patch and stride divides: images, a few frames, or a line of sound; prompts of two lengths."""
    known = next((n for n in (config.architecture, *names(config)) if n and not n.endswith("Pipeline")), "")
    base = Sample(prompt=13, image_tokens=5)
    if layout(known) == "sound":
        yield from (replace(base, latent=(1, 1, length), prompt=length // 2) for length in (26, 44))
        return
    if known.startswith("DiT"):  # whose images are square
        yield from (Sample(latent=(1, side, side)) for side in (16, 24))
        return
    frames = 5 if films(known) else 1
    yield replace(base, latent=(1, 16, 24))
    yield replace(base, latent=(frames, 32, 16), prompt=22, image_tokens=7)


def layout(kind: str) -> str:
    """Return how a class of denoisers takes its latents: "packed" in tokens, "image", "video", "frames first" or "sound".

    >>> layout("WanTransformer3DModel"), layout("DiTTransformer2DModel")
    ('video', 'image')
    """
    return next((arrangement for start, arrangement in _LAYOUTS.items() if kind.startswith(start)), "image")


def films(kind: str) -> bool:
    """Return whether a class of denoisers takes several frames."""
    return layout(kind) in ("video", "frames first") or kind.startswith("LTX")


def _everywhere(config: Config, name: str) -> Iterator[int]:
    """Yield the whole positive numbers of this name, in the configuration and its sections for text."""
    for section in (config, *(config.section(s) for s in SECTIONS if isinstance(config.values.get(s), dict))):
        value = section.values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            yield value
