"""Cohere 2 MoE: attention and experts side by side, windows, leading dense layers of their own width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Bands, Mixture, banded, choice, grouped_attention, leading, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *family("Cohere2Moe", LM, BARE, kind="cohere2_moe"),
    source="transformers 5.23, models/cohere2_moe; verified to the integer against traces",
)
def cohere2_moe(config: Config) -> Iterator[Work]:
    """Cohere 2 MoE: t of E experts of width `intermediate_size`, shared ones where there are, three of four layers slide."""
    layers = config.layers()
    dense, sparse = leading(config, layers, dense=0)
    inner = config.integer("intermediate_size")
    mixture = Mixture(
        inner, *choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",)),
        shared=inner * config.integer("num_shared_experts", default=0, least=0),
    )  # fmt: skip
    width = config.integer("prefix_dense_intermediate_size", default=inner)
    attention = grouped_attention(config, _windows(config, layers))
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse), inner=width)


def _windows(config: Config, layers: Sequence[int]) -> Bands:
    """Return the layers by window; the pattern begins anew behind the leading dense layers, which have one of their own."""
    first = config.integer("first_k_dense_replace", default=0, least=0)
    lead = config.integer("prefix_dense_sliding_window_pattern", default=1)
    rest = config.integer("sliding_window_pattern", default=4)
    return banded(config, layers, lambda i: (i + 1) % lead != 0 if i < first else (i - first + 1) % rest != 0, 4096)
