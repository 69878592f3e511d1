"""Speech to text with an encoder-decoder: Whisper."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import head
from ullage.models.config import Config
from ullage.models.families.bart import decoder, encoder, sides
from ullage.models.model import model
from ullage.models.sample import TEXT, Quantity, Sample, quantity
from ullage.models.work import Work, convolution, lookup


@model(
    *("whisper", "WhisperForConditionalGeneration", "WhisperModel"),
    kind="audio",
    causal=True,
    shapes=("audio-frames", "decoder-seq"),
    source="transformers 5.23, models/whisper; Radford et al., arXiv:2212.04356; verified to the integer against traces",
)
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
    yield convolution("conv.first", frames(window), 3, mels, width, module=f"{stem}1", reads=("data",), to=None)
    yield convolution("conv.second", positions(window), 3, width, width, module=f"{stem}2", reads=("conv.first",), to="encoder")
    yield lookup("embedding", TEXT, f"{base}decoder.embed_tokens")
    yield from encoder(first, positions(window), pairs(window))
    yield from decoder(second, width, positions(window), cross_pairs(window))
    if not bare:
        yield head(second.width, config.integer("vocab_size"), module="proj_out")


def _frames(sample: Sample, window: int) -> int:
    return sample.audio or window


def _positions(sample: Sample, window: int) -> int:
    return (_frames(sample, window) + 1) // 2


def frames(window: int) -> Quantity:
    """Return the frames of the spectrogram that are not yet encoded."""
    return quantity(f"audio frames, {window} by default", lambda s: 0 if s.context else _frames(s, window))


def positions(window: int) -> Quantity:
    """Return the encoder's positions: one for two frames."""
    return quantity(f"audio positions, {window} frames by default", lambda s: 0 if s.context else _positions(s, window))


def pairs(window: int) -> Quantity:
    """Return the pairs of the encoder's attention."""
    return quantity(f"audio pairs, {window} frames by default", lambda s: 0 if s.context else _positions(s, window) ** 2)


def cross_pairs(window: int) -> Quantity:
    """Return the pairs of attention from text to audio, cached or not."""
    return quantity(f"text-audio pairs, {window} frames by default", lambda s: s.text * _positions(s, window))
