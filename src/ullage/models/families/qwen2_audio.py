"""Qwen2-Audio: Whisper's encoder, pairs of its positions averaged, a linear projector, and Qwen2."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import documented
from ullage.models.families.bart import Side, encoder
from ullage.models.language import language, width
from ullage.models.model import model
from ullage.models.sample import Quantity, Sample, quantity
from ullage.models.work import Work, convolution, matmul

AUDIO = {"d_model": 1280, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120}


@model(
    *("qwen2_audio", "Qwen2AudioForConditionalGeneration"),
    kind="audio",
    causal=True,
    shapes=("seq", "audio-frames"),
    source="transformers 5.23, models/qwen2_audio; arXiv:2407.10759; verified to the integer against traces",
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
