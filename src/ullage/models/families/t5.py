"""Encoder-decoders after T5: T5 and Flan-T5, mT5, UMT5; their encoders alone."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head
from ullage.models.config import Config
from ullage.models.families.bart import ENCODED, Side, decoder, encoder
from ullage.models.families.bert import TEXT_PAIRS
from ullage.models.model import model
from ullage.models.sample import TEXT
from ullage.models.work import Work, lookup

_SOURCE = "transformers 5.23, models/t5, mt5 and umt5; Raffel et al., arXiv:1910.10683; verified to the integer against traces"


@model(
    *("t5", "T5ForConditionalGeneration", "T5Model", "T5WithLMHeadModel"),
    *("mt5", "MT5ForConditionalGeneration", "MT5Model", "umt5", "UMT5ForConditionalGeneration", "UMT5Model"),
    kind="encoder-decoder",
    source=_SOURCE,
)
def t5(config: Config) -> Iterator[Work]:
    """T5, Flan-T5, mT5 and UMT5: attention n heads of d_kv wide (not h / n), MLPs gated or not, cross-attention.

    Keys and values of the cross-attention are made for the encoder's tokens, queries and output for the decoder's. The
    relative positions are looked up. With a context the encoder's work is in the cache, and costs nothing.
    """
    first = _side(config, "encoder", config.layers("num_layers"))
    second = _side(config, "decoder", config.layers("num_decoder_layers", default=len(first.layers)))
    yield lookup("embedding", ENCODED, "shared", to="encoder")
    yield lookup("embedding", TEXT, "shared")
    yield from encoder(first)
    yield from decoder(second, first.width)
    if not config.architecture.endswith("5Model"):
        yield head(second.width, config.integer("vocab_size"))


@model("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel", kind="encoder", source=_SOURCE)
def t5_encoder(config: Config) -> Iterator[Work]:
    """The encoder of T5, mT5 or UMT5 alone, as diffusion models use it: 2TL(4h·n·d + g·hf) + 4ndL × T², g = 3 gated, else 2."""
    side = _side(config, "encoder", config.layers("num_layers"))
    yield embedding(module="shared")
    yield from side.self_attention(TEXT, TEXT_PAIRS, "stream")
    yield from side.mlp(TEXT, "stream")


def _side(config: Config, name: str, layers: range) -> Side:
    gated = config.word("feed_forward_proj", default=_activation(config)).startswith("gated-")
    feed = "layer.1.DenseReluDense" if name == "encoder" else "layer.2.DenseReluDense"
    return Side(
        name, f"{name}.block", layers, config.integer("d_model"), config.integer("num_heads"), config.integer("d_kv", default=64),
        config.integer("d_ff"), gated, attention="layer.0.SelfAttention", cross="layer.1.EncDecAttention",
        projections=("q", "k", "v", "o"), feeds=(f"{feed}.wi_0", f"{feed}.wi_1" if gated else f"{feed}.wi", f"{feed}.wo"),
    )  # fmt: skip


def _activation(config: Config) -> str:
    """Return what the class takes when the configuration is silent: T5 is not gated, mT5 and UMT5 are."""
    kind = f"{config.values.get('model_type') or ''} {config.architecture}".casefold()
    return "gated-gelu" if "mt5" in kind else "relu"
