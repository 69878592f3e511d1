"""Granite 4: Mamba 2 layers with a few of attention, experts and a shared MLP."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head
from ullage.models.config import Config
from ullage.models.families.bamba import mixer
from ullage.models.mixture import Mixture, choice, gated, grouped_attention, parted
from ullage.models.model import model
from ullage.models.work import Work

_FUSED = ("input_linear", "output_linear")
_KINDS = {"linear_attention", "full_attention", "mamba", "attention"}


@model(
    *("GraniteMoeHybridForCausalLM", "granitemoehybrid"),
    source="transformers 5.23, models/granitemoehybrid; verified to the integer against traces",
)
def granitemoehybrid(config: Config) -> Iterator[Work]:
    """Granite 4: a mixer by `layer_types` (Mamba 2 or attention), then routed experts and a shared MLP, or the MLP alone.

    Without `layer_types` all layers are Mamba 2; with `num_local_experts` 0 there are no experts.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), _KINDS) or config.words("layers_block_type", len(layers), _KINDS)
    attending, recurrent = parted(layers, lambda i: kinds[i] in ("full_attention", "attention") if kinds else False)
    shared = config.integer("shared_intermediate_size")
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    if recurrent:
        yield from mixer(config, recurrent)
    if config.integer("num_local_experts", least=0):
        taken = choice(config, ("num_local_experts",), ("num_experts_per_tok",))
        mixture = Mixture(
            config.integer("intermediate_size"), *taken, shared=shared,
            router="block_sparse_moe.router.layer", experts="block_sparse_moe", modules=_FUSED,
            shared_module="shared_mlp", shared_modules=_FUSED,
        )  # fmt: skip
        yield from mixture.works(width, layers)
    else:
        yield from gated("mlp", width, shared, layers, module="shared_mlp", modules=_FUSED)
    yield head(width, config.integer("vocab_size"))
