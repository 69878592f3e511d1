"""gpt-oss: windows in every other layer, and experts whose gate and up projections lie in one matrix."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, family
from ullage.models.mixture import FUSED, Mixture, banded, choice, grouped_attention, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *family("GptOss", LM, CLASSIFIER, TAGGER, BARE, kind="gpt_oss"),
    source="transformers 5.23, models/gpt_oss; verified to the integer against traces",
)
def gpt_oss(config: Config) -> Iterator[Work]:
    """gpt-oss-20b and -120b: grouped-query attention, windows of 128 in every other layer, t of E experts of width e.

    Attention sinks add a number to each softmax and no product.
    """
    layers = config.layers()
    experts = choice(config, ("num_local_experts", "num_experts"), ("num_experts_per_tok", "experts_per_token"))
    mixture = Mixture(config.integer("intermediate_size"), *experts, router="mlp.router", modules=FUSED)
    attention = grouped_attention(config, banded(config, layers, lambda i: i % 2 == 0, 128))
    yield from sparse_decoder(config, attention, [], mixture.works(config.integer("hidden_size"), layers))
