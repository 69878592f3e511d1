"""Mixtral, Phi-3.5-MoE and MiniMax-M2: every layer has routed experts, none has a shared one."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, family
from ullage.models.mixture import Mixture, banded, choice, grouped_attention, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work

NAMES = ("w1", "w3", "w2")


@model(
    *family("Mixtral", LM, CLASSIFIER, TAGGER, BARE, kind="mixtral"),
    *family("MiniMaxM2", LM, BARE, kind="minimax_m2"),
    source="transformers 5.23, models/mixtral, models/minimax_m2; verified to the integer against traces",
)
def mixtral(config: Config) -> Iterator[Work]:
    """Mixtral, MiniMax-M2: grouped-query attention and, for each token, t of E gated experts of width e.

    A layer's feed-forward part is 2T(hE + 3the) FLOPs. A `sliding_window` holds for all layers.
    """
    yield from uniform(config, *choice(config, ("num_local_experts", "num_experts"), ("num_experts_per_tok",)))


@model(
    *family("Phimoe", LM, CLASSIFIER, BARE, kind="phimoe"),
    "PhiMoEForCausalLM",
    source="transformers 5.23, models/phimoe; verified to the integer against traces",
)
def phimoe(config: Config) -> Iterator[Work]:
    """Phi-3.5-MoE: Mixtral's plan, and a router that always draws two experts."""
    routed, active = choice(config, ("num_local_experts",), ("num_experts_per_tok",))
    if active != 2:
        raise config.error(["num_experts_per_tok"], f"is {active:,}, and must be 2: this router draws two experts")
    yield from uniform(config, routed, active)


def uniform(config: Config, routed: int, active: int) -> Iterator[Work]:
    """Yield a decoder whose layers all have the same experts and the same window."""
    layers = config.layers()
    mixture = Mixture(
        config.integer("intermediate_size"), routed, active,
        router="block_sparse_moe.gate", experts="block_sparse_moe.experts", modules=NAMES,
    )  # fmt: skip
    attention = grouped_attention(config, banded(config, layers, lambda _: True))
    yield from sparse_decoder(config, attention, [], mixture.works(config.integer("hidden_size"), layers))
