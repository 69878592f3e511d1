"""Zamba and Zamba 2: Mamba layers, and one attention block with shared weights that some of them run first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ullage.models.blocks import embedding, mlp
from ullage.models.config import Config
from ullage.models.decoders import output
from ullage.models.families.mamba import time_step_rank
from ullage.models.mixture import parted
from ullage.models.model import model
from ullage.models.sample import TEXT, pairs
from ullage.models.scans import expanded, selective_scan, state_space
from ullage.models.work import Work, attention, matmul

_STACK = "model.layers"
_KINDS = {"linear_attention", "hybrid", "mamba"}
_BESIDE = ("stream", "embedding")  # the shared block reads the stream beside the token embeddings


@model(
    *("ZambaForCausalLM", "ZambaForSequenceClassification", "zamba"),
    source="transformers 5.23, models/zamba; verified to the integer against traces",
)
def zamba(config: Config) -> Iterator[Work]:
    """Zamba: Mamba 1 layers; hybrid ones first run the shared attention and MLP over stream and embeddings (2h wide).

    The mixer has heads, which split its products x and dt into equal parts: the FLOPs are those without heads.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    hybrid, plain = _parts(config, layers)
    inner = expanded(config, width)
    rank, state = time_step_rank(config, width, "mamba_dt_rank"), config.integer("mamba_d_state", default=16)
    taps = config.integer("mamba_d_conv", default=4)
    yield embedding()
    yield from _attention(config, width, hybrid, "shared_transf.self_attn")
    hidden, block = config.integer("intermediate_size"), "shared_transf.feed_forward"
    yield from mlp(width, hidden, hybrid, gated=True, module=block, stream="shared")
    yield _linear(width, hybrid)
    for members, module in ((hybrid, "mamba_decoder.mamba"), (plain, "mamba")):
        for work in selective_scan(width, inner, state, rank, taps, members, module=module):
            stacked = work.name in ("mamba.x", "mamba.dt")  # one parameter for all heads, not a module
            yield replace(work, module=f"{work.module}_weight") if stacked else work
    yield from output(config, width, config.integer("vocab_size"))


@model(
    *("Zamba2ForCausalLM", "Zamba2ForSequenceClassification", "zamba2"),
    source="transformers 5.23, models/zamba2; verified to the integer against traces",
)
def zamba2(config: Config) -> Iterator[Work]:
    """Zamba 2: Mamba 2 layers; hybrid ones first run a shared attention and MLP, told apart by adapters of their own.

    Each use of a shared block costs its full FLOPs; its gate and up projections have a low-rank adapter per use, and with
    `use_shared_attention_adapter` also its queries, keys and values.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    hybrid, plain = _parts(config, layers)
    heads = config.integer("n_mamba_heads")
    inner = expanded(config, width)
    state, groups = config.integer("mamba_d_state", default=64), config.integer("mamba_ngroups", default=1)
    taps, chunk = config.integer("mamba_d_conv", default=4), config.integer("chunk_size", default=256)
    if inner % heads:
        raise config.error(("n_mamba_heads",), f"is {heads:,}, which does not divide the mixer's width, {inner:,}")
    yield embedding()
    rank = config.integer("adapter_rank", default=128)
    yield from _attention(config, width, hybrid, "shared_transformer.self_attn", rank)
    yield from _adapted_mlp(config, width, rank, hybrid)
    yield _linear(width, hybrid)
    for members, module in ((hybrid, "mamba_decoder.mamba"), (plain, "mamba")):
        yield from state_space(width, heads, inner // heads, state, groups, taps, chunk, members, module=module)
    yield from output(config, width, config.integer("vocab_size"))


def _parts(config: Config, layers: range) -> tuple[list[int], list[int]]:
    kinds = config.words("layers_block_type", len(layers), _KINDS) or config.words("layer_types", len(layers), _KINDS)
    if kinds:
        return parted(layers, lambda i: kinds[i] == "hybrid")
    chosen = config.integers("hybrid_layer_ids")
    if chosen is None:
        raise config.missing("layers_block_type", "hybrid_layer_ids")
    return parted(layers, lambda i: i in chosen)


def _attention(config: Config, width: int, layers: Sequence[int], module: str, rank: int = 0) -> Iterator[Work]:
    heads = config.integer("num_attention_heads")
    key_heads = config.integer("num_key_value_heads", default=heads)
    wide = config.integer("attention_hidden_size", default=2 * width)
    dim = config.integer("attention_head_dim", default=2 * width // heads)
    adapted = bool(rank) and config.flag("use_shared_attention_adapter")
    for name, columns in (("q", heads * dim), ("k", key_heads * dim), ("v", key_heads * dim)):
        place = f"{module}.{name}_proj"
        yield matmul(f"attention.{name}", TEXT, wide, columns, layers, stack=_STACK, module=place, reads=_BESIDE, to=None)
        if adapted:
            yield from _adapter(f"attention.{name}", wide, rank, wide, layers, f"{module}.linear_{name}_adapter_list", _BESIDE)
    yield from attention(pairs(), heads, dim, layers, stack=_STACK)
    out = f"{module}.o_proj"
    yield matmul("attention.out", TEXT, heads * dim, width, layers, stack=_STACK, module=out, reads=("attention.values",), to="shared")


def _adapter(name: str, inner: int, rank: int, columns: int, layers: Sequence[int], module: str, reads: tuple[str, ...]) -> Iterator[Work]:
    down = f"{name}_adapter_down"
    yield matmul(down, TEXT, inner, rank, layers, stack=_STACK, module=f"{module}.0", reads=reads, to=None)
    yield matmul(f"{name}_adapter_up", TEXT, rank, columns, layers, stack=_STACK, module=f"{module}.1", reads=(down,), to=None)


def _adapted_mlp(config: Config, width: int, rank: int, layers: Sequence[int]) -> Iterator[Work]:
    inner, module = config.integer("intermediate_size", default=4 * width), "shared_transformer.feed_forward"
    both, reads = f"{module}.gate_up_proj", ("shared",)
    yield matmul("mlp.gate_up", TEXT, width, 2 * inner, layers, stack=_STACK, module=both, reads=reads, to=None)
    yield from _adapter("mlp.gate_up", width, rank, 2 * inner, layers, f"{both}_adapter_list", reads)
    made, down = ("mlp.gate_up", "mlp.gate_up_adapter_up"), f"{module}.down_proj"
    yield matmul("mlp.down", TEXT, inner, width, layers, stack=_STACK, module=down, reads=made, to="shared")


def _linear(width: int, layers: Sequence[int]) -> Work:
    return matmul("shared.out", TEXT, width, width, layers, stack=_STACK, module="linear", reads=("shared",))
