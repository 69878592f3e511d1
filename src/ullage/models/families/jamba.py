"""Jamba: Mamba 1 and attention by turns, with experts in every other layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ullage.models.blocks import embedding, mlp
from ullage.models.config import Config
from ullage.models.decoders import output
from ullage.models.families.mamba import time_step_rank
from ullage.models.mixture import Mixture, choice, grouped_attention, parted
from ullage.models.model import model
from ullage.models.scans import expanded, selective_scan
from ullage.models.work import Work


@model(
    *("JambaForCausalLM", "JambaForSequenceClassification", "jamba"),
    source="transformers 5.23, models/jamba; verified to the integer against traces",
)
def jamba(config: Config) -> Iterator[Work]:
    """Jamba: a mixer (attention every `attn_layer_period` layers, else Mamba 1) and a gated MLP or experts in each layer."""
    layers, width = config.layers(), config.integer("hidden_size")
    attending, recurrent = parted(layers, _periodic(config, "attn_layer", 8, 4))
    sparse, dense = parted(layers, _periodic(config, "expert_layer", 2, 1))
    if config.integer("num_experts", "num_local_experts") == 1:
        sparse, dense = [], list(layers)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    inner = expanded(config, width)
    rank, state = time_step_rank(config, width, "mamba_dt_rank"), config.integer("mamba_d_state", default=16)
    yield from selective_scan(width, inner, state, rank, config.integer("mamba_d_conv", default=4), recurrent, module="mamba")
    hidden = config.integer("intermediate_size")
    yield from mlp(width, hidden, dense, gated=True, module="feed_forward")
    if sparse:
        taken = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
        mixture = Mixture(hidden, *taken, router="feed_forward.router", experts="feed_forward.experts")
        yield from mixture.works(width, sparse)
    yield from output(config, width, config.integer("vocab_size"))


def _periodic(config: Config, what: str, period: int, offset: int) -> Callable[[int], bool]:
    every, first = config.integer(f"{what}_period", default=period), config.integer(f"{what}_offset", default=offset, least=0)
    if first >= every:
        raise config.error((f"{what}_offset",), f"is {first}, and must be smaller than {what}_period, {every}")
    return lambda i: i % every == first
