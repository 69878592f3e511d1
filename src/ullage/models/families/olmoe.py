"""OLMoE and FlexOlmo: every layer has routed experts, attention sees all that came before."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Mixture, choice, grouped_attention, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *family("Olmoe", LM, BARE, kind="olmoe"),
    *family("FlexOlmo", LM, BARE, kind="flex_olmo"),
    source="transformers 5.23, models/olmoe, models/flex_olmo; verified to the integer against traces",
)
def olmoe(config: Config) -> Iterator[Work]:
    """OLMoE, FlexOlmo: grouped-query attention and t of E gated experts of width `intermediate_size`; no shared expert."""
    layers = config.layers()
    experts = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    mixture = Mixture(config.integer("intermediate_size"), *experts)
    attention = grouped_attention(config, [(None, layers)])
    yield from sparse_decoder(config, attention, [], mixture.works(config.integer("hidden_size"), layers))
