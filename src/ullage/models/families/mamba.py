"""Pure state-space decoders: Mamba 1, Falcon-Mamba, Mamba 2."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.models.blocks import embedding, head
from ullage.models.config import Config
from ullage.models.model import model
from ullage.models.scans import selective_scan, state_space
from ullage.models.work import Work


@model(
    *("MambaForCausalLM", "mamba", "FalconMambaForCausalLM", "falcon_mamba"),
    source="transformers 5.23, models/mamba and models/falcon_mamba; arXiv:2312.00752; verified to the integer against traces",
)
def mamba(config: Config) -> Iterator[Work]:
    """Mamba 1 and Falcon-Mamba: one selective scan a layer, no attention and no MLP.

    A step of T tokens in sequences of S costs 2T[L(3hD + D(r + 2N) + rD + DN) + Vh] FLOPs forward and 2·taps·D(S + taps - 1)
    a layer and sequence for the convolution. Of the scan only the output C·h counts: see `selective_scan`.
    """
    width = config.integer("hidden_size", "d_model")
    inner = config.integer("intermediate_size", "d_inner", default=int(config.number("expand", default=2) * width))
    rank = time_step_rank(config, width, "time_step_rank")
    layers = config.layers("num_hidden_layers", "n_layer")
    state, taps = config.integer("state_size", default=16), config.integer("conv_kernel", default=4)
    yield embedding(module="backbone.embeddings")
    yield from selective_scan(width, inner, state, rank, taps, layers, stack="backbone.layers")
    yield head(width, config.integer("vocab_size"))


@model(
    *("Mamba2ForCausalLM", "mamba2"),
    source="transformers 5.23, models/mamba2; arXiv:2405.21060; verified to the integer against traces",
)
def mamba2(config: Config) -> Iterator[Work]:
    """Mamba 2: one state-space-duality mixer a layer, no attention and no MLP.

    A step of T tokens costs 2T[L(h(2D + 2GN + H) + Dh) + Vh] FLOPs forward, the convolutions and the chunked scans: see
    `duality_scan`, also for the uncertainty (chunks against recurrence).
    """
    width = config.integer("hidden_size")
    heads, dim = config.integer("num_heads"), config.integer("head_dim")
    if heads * dim != (inner := int(config.number("expand", default=2) * width)):
        raise config.error(("num_heads",), f"times head_dim is {heads * dim:,}, and expand × hidden_size {inner:,}")
    state, groups = config.integer("state_size", default=128), config.integer("n_groups", default=8)
    taps, chunk = config.integer("conv_kernel", default=4), config.integer("chunk_size", default=256)
    yield embedding(module="backbone.embeddings")
    yield from state_space(width, heads, dim, state, groups, taps, chunk, config.layers(), stack="backbone.layers")
    yield head(width, config.integer("vocab_size"))


def time_step_rank(config: Config, width: int, name: str) -> int:
    """Return the rank of the time step's projection: "auto" means a sixteenth of the width, rounded up."""
    if config.values.get(name, "auto") == "auto":
        return -(-width // 16)
    return config.integer(name)
