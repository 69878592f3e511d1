"""GLM-4.5 and its like: some dense layers first, then routed experts beside shared ones, with grouped-query attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import BARE, LM, family
from ullage.models.mixture import Bands, Mixture, banded, choice, grouped_attention, leading, predictors, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work

ROUTED = ("n_routed_experts", "num_experts", "num_local_experts")


def shared_experts(config: Config, *names: str) -> Mixture:
    """Return the routed experts and as many shared ones, of the same width, as the field says."""
    inner = config.integer("moe_intermediate_size")
    return Mixture(inner, *choice(config, ROUTED, ("num_experts_per_tok",)), shared=inner * config.integer(*names, least=0))


@model(
    *family("Glm4Moe", LM, BARE, kind="glm4_moe"),
    source="transformers 5.23, models/glm4_moe; verified to the integer against traces",
)
def glm4_moe(config: Config) -> Iterator[Work]:
    """GLM-4.5, 4.6, 4.7: leading dense layers, then t of E experts and shared ones; multi-token prediction only when asked.

    A sparse layer's feed-forward part is 2T(hE + 3the + 3hs) FLOPs.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    dense, sparse = leading(config, layers, dense=1)
    mixture = shared_experts(config, "n_shared_experts")
    yield from sparse_decoder(config, grouped_attention(config, [(None, layers)]), dense, mixture.works(width, sparse))
    yield from predictors(config, layers, lambda ahead: [*grouped_attention(config, [(None, ahead)]), *mixture.works(width, ahead)])


@model(
    *family("Dots1", LM, BARE, kind="dots1"),
    source="transformers 5.23, models/dots1; verified to the integer against traces",
)
def dots1(config: Config) -> Iterator[Work]:
    """dots.llm1: leading dense layers, then t of E experts and shared ones; layers from `max_window_layers` on slide."""
    layers = config.layers()
    dense, sparse = leading(config, layers, dense=0)
    first = config.integer("max_window_layers", default=62, least=0)
    attention = grouped_attention(config, banded(config, layers, lambda i: i >= first, 4096))
    experts = shared_experts(config, "n_shared_experts").works(config.integer("hidden_size"), sparse)
    yield from sparse_decoder(config, attention, dense, experts)


@model(
    *family("SolarOpen", LM, BARE, kind="solar_open"),
    source="transformers 5.23, models/solar_open; verified to the integer against traces",
)
def solar_open(config: Config) -> Iterator[Work]:
    """Solar Open: t of E experts and shared ones in every layer."""
    layers = config.layers()
    experts = shared_experts(config, "n_shared_experts").works(config.integer("hidden_size"), layers)
    yield from sparse_decoder(config, grouped_attention(config, [(None, layers)]), [], experts)


@model(
    *family("ExaoneMoe", LM, BARE, kind="exaone_moe"),
    "ExaoneMoEForCausalLM",
    source="transformers 5.23, models/exaone_moe; verified to the integer against traces",
)
def exaone_moe(config: Config) -> Iterator[Work]:
    """K-EXAONE: leading dense layers, then t of E experts and shared ones; all but every fourth layer slide."""
    layers = config.layers()
    dense, sparse = leading(config, layers, dense=1)
    attention = grouped_attention(config, pattern(config, layers))
    experts = shared_experts(config, "num_shared_experts").works(config.integer("hidden_size"), sparse)
    yield from sparse_decoder(config, attention, dense, experts)


@model(
    *family("HYV3", LM, BARE, kind="hy_v3"),
    source="transformers 5.23, models/hy_v3; verified to the integer against traces",
)
def hy_v3(config: Config) -> Iterator[Work]:
    """Hunyuan 3: one leading dense layer, then t of E experts and shared ones."""
    layers = config.layers()
    dense, sparse = leading(config, layers, dense=1)
    experts = shared_experts(config, "num_shared_experts").works(config.integer("hidden_size"), sparse)
    yield from sparse_decoder(config, grouped_attention(config, [(None, layers)]), dense, experts)


@model(
    *family("Kolibri1", LM, BARE, kind="kolibri1"),
    source="transformers 5.23, models/kolibri1; verified to the integer against traces",
)
def kolibri1(config: Config) -> Iterator[Work]:
    """Kolibri 1: t of E experts and a shared one of its own width in every layer; all but every fifth layer slide."""
    layers, width = config.layers(), config.integer("hidden_size")
    routed, active = choice(config, ROUTED, ("num_experts_per_tok",))
    shared = config.integer("shared_expert_intermediate_size")
    experts = Mixture(config.integer("moe_intermediate_size"), routed, active, shared=shared).works(width, layers)
    attention = grouped_attention(config, banded(config, layers, lambda i: (i + 1) % 5 != 0, 513))
    yield from sparse_decoder(config, attention, [], experts)


def pattern(config: Config, layers: Sequence[int]) -> Bands:
    """Return windows by a `sliding_window_pattern`: a number n (every n-th layer is full, 4 by default) or letters "LLLG", repeated."""
    value = config.values.get("sliding_window_pattern")
    if isinstance(value, str) and value:
        return banded(config, layers, lambda i: value[i % len(value)] == "L", 4096)
    every = config.integer("sliding_window_pattern", default=4)
    return banded(config, layers, lambda i: (i + 1) % every != 0, 4096)
