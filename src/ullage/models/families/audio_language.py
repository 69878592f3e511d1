"""Models of speech and sound: Whisper, and its encoder before language models."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from ullage.models.blocks import head
from ullage.models.config import Config
from ullage.models.decoders import documented
from ullage.models.families.encoders import Side, decoder, encoder, sides
from ullage.models.language import language, projector, width
from ullage.models.model import transformers_model
from ullage.models.sample import TEXT, Quantity, Sample, quantity
from ullage.models.work import Work, convolution, lookup, matmul


@transformers_model(
    "models/whisper; Radford et al., arXiv:2212.04356", "whisper", "WhisperForConditionalGeneration",
    "WhisperModel", kind="audio", causal=True, shapes=("audio-frames", "decoder-seq"),
)  # fmt: skip
def whisper(config: Config) -> Iterator[Work]:
    """Whisper: two convolutions over frames of the spectrogram (the second halves them), an encoder, a decoder of text.

    The audio is a whole window of 2 × max_source_positions frames (3,000) unless its frames are given; shorter audio is padded
    to that by the feature extractor. With a context the encoder's work is in the cache, and costs nothing.
    """
    bare = config.architecture == "WhisperModel"
    base = "" if bare else "model."
    first, second = sides(config, base)
    window = 2 * config.integer("max_source_positions", default=1500)
    mels, width = config.integer("num_mel_bins", default=80), first.width
    stem = f"{base}encoder.conv"
    yield convolution("conv.first", audio_frames(window), 3, mels, width, module=f"{stem}1", reads=("data",), to=None)
    yield convolution("conv.second", audio_positions(window), 3, width, width, module=f"{stem}2", reads=("conv.first",), to="encoder")
    yield lookup("embedding", TEXT, f"{base}decoder.embed_tokens")
    yield from encoder(first, audio_positions(window), audio_pairs(window))
    yield from decoder(second, width, audio_positions(window), cross_pairs(window))
    if not bare:
        yield head(second.width, config.integer("vocab_size"), module="proj_out")


def _frames(sample: Sample, window: int) -> int:
    return sample.audio or window


def _positions(sample: Sample, window: int) -> int:
    return (_frames(sample, window) + 1) // 2


def audio_frames(window: int) -> Quantity:
    """Return the frames of the spectrogram that are not yet encoded."""
    return quantity(f"audio frames, {window} by default", lambda s: 0 if s.context else _frames(s, window))


def audio_positions(window: int) -> Quantity:
    """Return the encoder's positions: one for two frames."""
    return quantity(f"audio positions, {window} frames by default", lambda s: 0 if s.context else _positions(s, window))


def audio_pairs(window: int) -> Quantity:
    """Return the pairs of the encoder's attention."""
    return quantity(f"audio pairs, {window} frames by default", lambda s: 0 if s.context else _positions(s, window) ** 2)


def cross_pairs(window: int) -> Quantity:
    """Return the pairs of attention from text to audio, cached or not."""
    return quantity(f"text-audio pairs, {window} frames by default", lambda s: s.text * _positions(s, window))


AUDIO = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120}
HEARD: dict[str, Any] = {"kind": "audio", "causal": True, "shapes": ("seq", "audio-frames")}


@transformers_model("models/qwen2_audio; arXiv:2407.10759", "qwen2_audio", "Qwen2AudioForConditionalGeneration", **HEARD)
def qwen2_audio(config: Config) -> Iterator[Work]:
    """Qwen2-Audio: each window of 3,000 frames through Whisper's encoder, 750 tokens of it through one product, and Qwen2.

    Frames are counted in whole windows of 2 × max_source_positions, to which the feature extractor pads; without frames the
    text is counted alone. The text's tokens are all of them, those of audio among them.
    """
    works, section = list(language(config, "qwen2")), _audio(config)
    wide, pooled = yield from _listening(section)
    yield matmul("encoder.merger", pooled, wide, width(works), module=f"{WAY}.linear", reads=("encoder",))
    yield from works


@transformers_model(
    "models/audioflamingo3 (musicflamingo is taken to be the same, untraced); arXiv:2507.08128", "audioflamingo3",
    "AudioFlamingo3ForConditionalGeneration", "musicflamingo", "MusicFlamingoForConditionalGeneration",
    **HEARD,
)  # fmt: skip
def audioflamingo3(config: Config) -> Iterator[Work]:
    """Audio Flamingo 3 and Music Flamingo: Qwen2-Audio's encoder, a projector of two products, and Qwen2.

    Audio Flamingo 3 was traced; Music Flamingo is taken to be the same.
    """
    works, section = list(language(config, "qwen2")), _audio(config)
    wide, pooled = yield from _listening(section)
    yield from projector(pooled, (wide, width(works), width(works)), **SPOKEN)
    yield from works


@transformers_model("models/voxtral; arXiv:2507.13264", "voxtral", "VoxtralForConditionalGeneration", **HEARD)
def voxtral(config: Config) -> Iterator[Work]:
    """Voxtral: Whisper's encoder, whose neighbouring positions (four as released) together make one token, and Llama."""
    text = {**VOXTRAL, **config.section("text_config", optional=True).values}
    works, section = list(language(config.replaced(text_config=text), "llama")), _audio(config)
    wide, _ = yield from _listening(section)
    inner, positions = section.integer("intermediate_size", default=5120), section.integer("max_source_positions", default=1500)
    if inner % wide or positions % (inner // wide):
        raise section.error(("intermediate_size",), f"is {inner:,}: no whole number of positions, {wide:,} wide, of {positions:,}")
    rows = _windows(positions, positions * wide // inner, "merged positions")
    yield from projector(rows, (inner, width(works), width(works)), **SPOKEN)
    yield from works


# What the class of Voxtral says where the section of its text is silent
VOXTRAL = {
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "vocab_size": 131_072,
    "head_dim": 128,
}
WAY = "model.multi_modal_projector"
SPOKEN: dict[str, Any] = {"module": WAY, "modules": ("linear_1", "linear_2"), "name": "encoder.merger", "reads": "encoder"}


def _audio(config: Config) -> Config:
    """Return the section of the encoder in Whisper's words, with the sizes of Whisper large."""
    section = config.section("audio_config", optional=True)
    words = zip(AUDIO, ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"), strict=True)
    known = {old: section.values[new] for old, new in words if old not in section.values and new in section.values}
    return documented(replace(section, values={**section.values, **known}), **AUDIO)  # a null stays missing


def _listening(section: Config) -> Generator[Work, None, tuple[int, Quantity]]:
    """Yield Whisper's encoder, and return its width and the pairs of its positions, which are averaged."""
    base, wide, heads = "model.audio_tower.", section.integer("d_model"), section.integer("encoder_attention_heads")
    positions = section.integer("max_source_positions", default=1500)
    mels, stem = section.integer("num_mel_bins", default=128), f"{base}conv"
    seconds, frames = _windows(positions, positions, "positions"), _windows(positions, 2 * positions, "frames")
    yield convolution("conv.first", frames, 3, mels, wide, module=f"{stem}1", reads=("data",), to=None)
    yield convolution("conv.second", seconds, 3, wide, wide, module=f"{stem}2", reads=("conv.first",), to="encoder")
    layers, inner = section.layers("encoder_layers"), section.integer("encoder_ffn_dim")
    side = Side("encoder", f"{base}layers", layers, wide, heads, wide // heads, inner)
    yield from encoder(side, seconds, _windows(positions, positions**2, "pairs"))
    return wide, _windows(positions, positions // 2, "pooled positions")


def _windows(positions: int, each: int, what: str) -> Quantity:
    """Return `each` for every window of audio that a sample's frames begin."""

    def of(sample: Sample) -> int:
        return -(-sample.audio // (2 * positions)) * each

    return quantity(f"{what} of audio windows of {positions}", of)
