"""Granite 3 mixtures of experts: without a shared MLP, with one, and with windows."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Bands, Mixture, banded, choice, grouped_attention, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work

FUSED = ("input_linear", "output_linear")


@model(
    *family("GraniteMoe", LM, BARE, kind="granitemoe"),
    *family("GraniteMoeShared", LM, BARE, kind="granitemoeshared"),
    source="transformers 5.23, models/granitemoe, models/granitemoeshared; verified to the integer against traces",
)
def granitemoe(config: Config) -> Iterator[Work]:
    """Granite 3.0 and 3.1 MoE: t of E experts in every layer, and a shared MLP where `shared_intermediate_size` gives it a width."""
    yield from granite(config, [(None, config.layers())])


@model(
    *family("GraniteMoeSWA", LM, BARE, kind="granitemoe_swa"),
    source="transformers 5.23, models/granitemoe_swa; verified to the integer against traces",
)
def granitemoe_swa(config: Config) -> Iterator[Work]:
    """Granite MoE with windows: as Granite 3 MoE, and all layers but every fourth slide."""
    layers = config.layers()
    yield from granite(config, banded(config, layers, lambda i: i % 4 != 0, 128))


def granite(config: Config, bands: Bands) -> Iterator[Work]:
    """Yield a Granite decoder with the given windows."""
    layers = config.layers()
    mixture = Mixture(
        config.integer("intermediate_size"), *choice(config, ("num_local_experts",), ("num_experts_per_tok",)),
        shared=config.integer("shared_intermediate_size", default=0, least=0),
        router="block_sparse_moe.router.layer", experts="block_sparse_moe", modules=FUSED,
        shared_module="shared_mlp", shared_modules=FUSED,
    )  # fmt: skip
    yield from sparse_decoder(config, grouped_attention(config, bands), [], mixture.works(config.integer("hidden_size"), layers))
