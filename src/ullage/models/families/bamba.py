"""Bamba: Mamba 2 layers with a few of attention between them, each with a gated MLP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.models.blocks import embedding, head, mlp
from ullage.models.config import Config
from ullage.models.mixture import grouped_attention, parted
from ullage.models.model import model
from ullage.models.scans import expanded, state_space
from ullage.models.work import Work


@model(
    *("BambaForCausalLM", "bamba"),
    source="transformers 5.23, models/bamba; verified to the integer against traces",
)
def bamba(config: Config) -> Iterator[Work]:
    """Bamba: Mamba 2 in all layers but those of `attn_layer_indices`, which attend; a gated MLP in each."""
    layers, width = config.layers(), config.integer("hidden_size")
    chosen = set(config.integers("attn_layer_indices") or ())
    attending, recurrent = parted(layers, lambda i: i in chosen)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    yield from mixer(config, recurrent)
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True, module="feed_forward")
    yield head(width, config.integer("vocab_size"))


def mixer(config: Config, layers: Sequence[int], inner: int | None = None) -> Iterator[Work]:
    """Yield a Mamba 2 mixer as Bamba, Granite and Falcon-H1 describe it: `mamba_*` fields; a head's width may be "auto".

    `inner` is the width of all heads together, expand × hidden_size by default.
    """
    width, heads = config.integer("hidden_size"), config.integer("mamba_n_heads")
    inner = inner or expanded(config, width)
    auto = config.values.get("mamba_d_head", "auto") in ("auto", None)
    dim = inner // heads if auto else config.integer("mamba_d_head")
    if heads * dim != inner:
        raise config.error(("mamba_n_heads",), f"times the width of a head is {heads * dim:,}, and the mixer is {inner:,} wide")
    state, groups = config.integer("mamba_d_state", default=256), config.integer("mamba_n_groups", default=1)
    taps, chunk = config.integer("mamba_d_conv", default=4), config.integer("mamba_chunk_size", default=256)
    yield from state_space(width, heads, dim, state, groups, taps, chunk, layers, module="mamba")
