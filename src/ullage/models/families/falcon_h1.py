"""Falcon-H1: Mamba 2 and attention side by side in every layer."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head, mlp
from ullage.models.config import Config
from ullage.models.families.bamba import mixer
from ullage.models.mixture import grouped_attention
from ullage.models.model import model
from ullage.models.work import Work


@model(
    *("FalconH1ForCausalLM", "falcon_h1"),
    source="transformers 5.23, models/falcon_h1; verified to the integer against traces",
)
def falcon_h1(config: Config) -> Iterator[Work]:
    """Falcon-H1: each layer sums a Mamba 2 mixer of width `mamba_d_ssm` and attention over the same input; then a gated MLP."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixer(config, layers, config.optional("mamba_d_ssm"))
    yield from grouped_attention(config, [(None, layers)])
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True, module="feed_forward")
    yield head(width, config.integer("vocab_size"))
