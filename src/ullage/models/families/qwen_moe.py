"""Qwen's mixtures of experts: Qwen1.5/2-MoE with a gated shared expert, Qwen3-MoE without; and Mellum, which follows Qwen3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.config import Config
from ullage.models.decoders import BARE, CLASSIFIER, LM, TAGGER, family
from ullage.models.mixture import Bands, Mixture, banded, choice, grouped_attention, leading, parted, sparse_decoder
from ullage.models.model import model
from ullage.models.work import Work

ROUTED = ("num_experts", "num_local_experts")


@model(
    *family("Qwen2Moe", LM, CLASSIFIER, TAGGER, BARE, kind="qwen2_moe"),
    source="transformers 5.23, models/qwen2_moe; verified to the integer against traces",
)
def qwen2_moe(config: Config) -> Iterator[Work]:
    """Qwen1.5-MoE, Qwen2-MoE: t of E experts and a shared one, whose own gate is a product with one column.

    A sparse layer's feed-forward part is 2T(hE + 3the + 3hs + h) FLOPs. Layers of `mlp_only_layers`, and those that
    `decoder_sparse_step` passes over, are dense.
    """
    layers = config.layers()
    dense, sparse = stepped(config, layers)
    experts = choice(config, ROUTED, ("num_experts_per_tok",))
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *experts, shared=config.integer("shared_expert_intermediate_size"),
        shared_module="mlp.shared_expert", shared_gate="mlp.shared_expert_gate", shared_first=True,
    )  # fmt: skip
    attention = grouped_attention(config, alternating(config, layers))
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse))


@model(
    *family("Qwen3Moe", LM, CLASSIFIER, TAGGER, BARE, kind="qwen3_moe"),
    source="transformers 5.23, models/qwen3_moe; verified to the integer against traces",
)
def qwen3_moe(config: Config) -> Iterator[Work]:
    """Qwen3-MoE: t of E experts, no shared one; a window, where `use_sliding_window` says so, holds for all layers."""
    layers = config.layers()
    dense, sparse = stepped(config, layers)
    mixture = Mixture(config.integer("moe_intermediate_size"), *choice(config, ROUTED, ("num_experts_per_tok",)))
    bands = banded(config, layers, lambda _: True, 4096) if config.flag("use_sliding_window") else [(None, layers)]
    attention = grouped_attention(config, bands)
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse))


@model(
    *family("Mellum", LM, BARE, kind="mellum"),
    source="transformers 5.23, models/mellum; verified to the integer against traces",
)
def mellum(config: Config) -> Iterator[Work]:
    """Mellum 2: Qwen3's experts; `layer_types` and `mlp_layer_types` say which layers slide and which are dense (none by default)."""
    layers = config.layers()
    dense, sparse = leading(config, layers, dense=0)
    mixture = Mixture(config.integer("moe_intermediate_size"), *choice(config, ROUTED, ("num_experts_per_tok",)))
    attention = grouped_attention(config, banded(config, layers, lambda _: False, 1024))
    yield from sparse_decoder(config, attention, dense, mixture.works(config.integer("hidden_size"), sparse))


@model(
    *family("Flint", LM, BARE, kind="flint"),
    source="transformers 5.23, models/flint; verified to the integer against traces",
)
def flint(config: Config) -> Iterator[Work]:
    """Flint: Qwen2-MoE's layers, whose shared expert has no gate; the first two, every fourth and the last see all."""
    layers = config.layers()
    dense, sparse = stepped(config, layers, only=(0, 1))
    routed, active = choice(config, ROUTED, ("num_experts_per_tok",))
    shared = config.integer("shared_expert_intermediate_size")
    mixture = Mixture(config.integer("moe_intermediate_size"), routed, active, shared=shared, shared_module="mlp.shared_expert")
    bands = banded(config, layers, lambda i: i >= 2 and i % 4 != 1 and i != layers[-1], 513)
    yield from sparse_decoder(config, grouped_attention(config, bands), dense, mixture.works(config.integer("hidden_size"), sparse))


def stepped(config: Config, layers: Sequence[int], only: Sequence[int] = ()) -> tuple[list[int], list[int]]:
    """Return the dense and the sparse layers: every `decoder_sparse_step`-th is sparse, unless `mlp_only_layers` (or `only`) names it."""
    named, step = config.integers("mlp_only_layers"), config.integer("decoder_sparse_step", default=1)
    dense = set(only if named is None else named)
    return parted(layers, lambda i: i in dense or (i + 1) % step != 0)


def alternating(config: Config, layers: Sequence[int]) -> Bands:
    """Return Qwen2-MoE's windows: with `use_sliding_window`, every other layer below `max_window_layers`."""
    if not config.flag("use_sliding_window"):
        return [(None, layers)]
    limit = config.integer("max_window_layers", default=28, least=0)
    return banded(config, layers, lambda i: i % 2 == 0 and i < limit, 4096)
