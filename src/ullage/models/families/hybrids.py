"""Hybrids: state spaces, delta rules and other recurrences, alone or by turns with attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from ullage.models.blocks import embedding, head, mlp, self_attention
from ullage.models.config import Config
from ullage.models.decoders import output
from ullage.models.mixture import Mixture, choice, grouped_attention, latent_attention, leading, parted, stepped
from ullage.models.model import transformers_model
from ullage.models.sample import TEXT, Quantity, pairs, quantity
from ullage.models.scans import (
    STEPS,
    block_pairs,
    delta_rule,
    expanded,
    scanned,
    selective_scan,
    short_convolution,
    state_reads,
    state_space,
    state_updates,
)
from ullage.models.work import Work, attention, contraction, matmul


@transformers_model(
    "models/mamba and models/falcon_mamba; arXiv:2312.00752", "MambaForCausalLM", "mamba",
    "FalconMambaForCausalLM", "falcon_mamba",
)  # fmt: skip
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


@transformers_model("models/mamba2; arXiv:2405.21060", "Mamba2ForCausalLM", "mamba2")
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


@transformers_model("models/bamba", "BambaForCausalLM", "bamba")
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


@transformers_model("models/falcon_h1", "FalconH1ForCausalLM", "falcon_h1")
def falcon_h1(config: Config) -> Iterator[Work]:
    """Falcon-H1: each layer sums a Mamba 2 mixer of width `mamba_d_ssm` and attention over the same input; then a gated MLP."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixer(config, layers, config.optional("mamba_d_ssm"))
    yield from grouped_attention(config, [(None, layers)])
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True, module="feed_forward")
    yield head(width, config.integer("vocab_size"))


_FUSED = ("input_linear", "output_linear")
_GRANITE_KINDS = {"linear_attention", "full_attention", "mamba", "attention"}


@transformers_model("models/granitemoehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid")
def granitemoehybrid(config: Config) -> Iterator[Work]:
    """Granite 4: a mixer by `layer_types` (Mamba 2 or attention), then routed experts and a shared MLP, or the MLP alone.

    Without `layer_types` all layers are Mamba 2; with `num_local_experts` 0 there are no experts.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), _GRANITE_KINDS) or config.words("layers_block_type", len(layers), _GRANITE_KINDS)
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
        yield from mlp(width, shared, layers, gated=True, module="shared_mlp", modules=_FUSED)
    yield head(width, config.integer("vocab_size"))


@transformers_model("models/jamba", "JambaForCausalLM", "JambaForSequenceClassification", "jamba")
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


_STACK = "model.layers"
_ZAMBA2_KINDS = {"linear_attention", "hybrid", "mamba"}
_BESIDE = ("stream", "embedding")  # the shared block reads the stream beside the token embeddings


@transformers_model("models/zamba", "ZambaForCausalLM", "ZambaForSequenceClassification", "zamba")
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


@transformers_model("models/zamba2", "Zamba2ForCausalLM", "Zamba2ForSequenceClassification", "zamba2")
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
    kinds = config.words("layers_block_type", len(layers), _ZAMBA2_KINDS) or config.words("layer_types", len(layers), _ZAMBA2_KINDS)
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


_SYMBOLS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
_OLDER = {"mamba": "linear_attention", "attention": "full_attention"}


@transformers_model("models/nemotron_h", "NemotronHForCausalLM", "nemotron_h")
def nemotron_h(config: Config) -> Iterator[Work]:
    """Nemotron-H and Nemotron 3: each layer one mixer, by `layers_block_type` or the older `hybrid_override_pattern`.

    MLPs and experts are ungated (relu²). With `moe_latent_size` a token is projected to that width before its routed experts
    and back after them; router and shared expert see the full width. The inner width of Mamba is heads × head_dim, not
    expand × hidden_size. Multi-token-prediction layers are not built by transformers and left out.
    """
    width = config.integer("hidden_size")
    kinds = layer_kinds(config)
    members = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in ("linear_attention", "full_attention", "mlp", "moe")}
    yield embedding(module="model.embeddings")
    if layers := members["linear_attention"]:
        yield from _mamba(config, width, layers)
    if layers := members["full_attention"]:
        heads = config.integer("num_attention_heads")
        dim = config.integer("head_dim", "attention_head_dim", default=width // heads)
        yield from self_attention(width, heads, config.integer("num_key_value_heads", default=heads), dim, layers, module="mixer")
    if layers := members["mlp"]:
        yield from mlp(width, config.integer("intermediate_size"), layers, gated=False, module="mixer")
    if layers := members["moe"]:
        yield from _experts(config, width, layers)
    yield head(width, config.integer("vocab_size"))


def layer_kinds(config: Config) -> list[str]:
    """Return the kind of each layer; the list or pattern decides how many there are."""
    for name in ("layers_block_type", "layer_types"):
        words = config.words(name, known={*_SYMBOLS.values(), *_OLDER})
        if words is not None:
            return [_OLDER.get(word, word) for word in words]
    pattern = config.word("hybrid_override_pattern", "hybrid_pattern")
    if unknown := sorted(set(pattern) - set(_SYMBOLS)):
        raise config.error(("hybrid_override_pattern", "hybrid_pattern"), f"has {unknown[0]!r}, and its symbols are {' '.join(_SYMBOLS)}")
    return [_SYMBOLS[symbol] for symbol in pattern]


def _mamba(config: Config, width: int, layers: list[int]) -> Iterator[Work]:
    heads, dim = config.integer("mamba_num_heads"), config.integer("mamba_head_dim")
    state, groups = config.integer("ssm_state_size", default=128), config.integer("mamba_n_groups", "n_groups", default=8)
    taps, chunk = config.integer("mamba_d_conv", "conv_kernel", default=4), config.integer("mamba_chunk_size", "chunk_size", default=128)
    yield from state_space(width, heads, dim, state, groups, taps, chunk, layers, stack=_STACK)


def _experts(config: Config, width: int, layers: list[int]) -> Iterator[Work]:
    inner, active = config.integer("moe_intermediate_size"), config.integer("num_experts_per_tok")
    routed = config.integer("n_routed_experts", "num_local_experts", "num_experts")
    yield matmul("moe.router", TEXT, width, routed, layers, stack=_STACK, module="mixer.gate", to=None)
    latent = config.optional("moe_latent_size")
    if latent:
        yield matmul("moe.latent_down", TEXT, width, latent, layers, stack=_STACK, module="mixer.fc1_latent_proj", to=None)
    reads, out = (("moe.latent_down",), "moe.routed") if latent else (("stream",), "stream")
    place: dict[str, Any] = {"module": "mixer.experts", "reads": reads, "stream": out}
    yield from mlp(latent or width, inner, layers, gated=False, name="moe.experts", times=active, **place)
    if latent:
        yield matmul("moe.latent_up", TEXT, latent, width, layers, stack=_STACK, module="mixer.fc2_latent_proj", reads=(out,))
    shared = config.integer("moe_shared_expert_intermediate_size", default=0, least=0)
    if shared:
        yield from mlp(width, shared, layers, gated=False, name="moe.shared", module="mixer.shared_experts")


_CHUNK = 64  # the chunk of the delta rule in transformers and in flash-linear-attention; no config has it
_KINDS = {"full_attention", "linear_attention"}


@transformers_model("models/qwen3_next; arXiv:2412.06464", "Qwen3NextForCausalLM", "Qwen3NextForSequenceClassification", "qwen3_next")
def qwen3_next(config: Config) -> Iterator[Work]:
    """Qwen3-Next: three layers of Gated DeltaNet to one of attention with an output gate; experts and a gated shared one.

    The delta rule is counted by chunks of 64: see `delta_rule`, also for what is left out and the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    dense, sparse = stepped(config, layers)
    yield embedding()
    yield from mixers(config, layers, fused=True)
    if dense:
        yield from mlp(width, config.integer("intermediate_size"), dense, gated=True)
    yield from experts(config, sparse)
    yield from output(config, width, config.integer("vocab_size"))


@transformers_model("models/qwen3_5", "Qwen3_5ForCausalLM", "Qwen3_5TextForSequenceClassification", "qwen3_5_text")
def qwen3_5_text(config: Config) -> Iterator[Work]:
    """Qwen3.5, the text decoder: the mixers of Qwen3-Next with separate projections, and a gated MLP."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixers(config, layers)
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True)
    yield from output(config, width, config.integer("vocab_size"))


@transformers_model("models/qwen3_5_moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text")
def qwen3_5_moe_text(config: Config) -> Iterator[Work]:
    """Qwen3.5-MoE, the text decoder: the mixers of Qwen3-Next with separate projections; experts and a gated shared one."""
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from mixers(config, layers)
    yield from experts(config, layers)
    yield from output(config, width, config.integer("vocab_size"))


def mixers(config: Config, layers: range, *, fused: bool = False) -> Iterator[Work]:
    """Yield the mixers: gated attention every `full_attention_interval` layers, or as `layer_types` says, else Gated DeltaNet."""
    kinds = config.words("layer_types", len(layers), _KINDS)
    every = config.integer("full_attention_interval", default=4)
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % every == 0)
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    key_heads, dim = config.integer("num_key_value_heads", default=heads), config.integer("head_dim", default=256)
    yield from self_attention(width, heads, key_heads, dim, attending, output_gate=True)
    yield from delta_network(config, width, recurrent, fused=fused)


def delta_network(config: Config, width: int, layers: Sequence[int], *, fused: bool) -> Iterator[Work]:
    """Yield Gated DeltaNet: queries, keys, values and output gate z, a convolution over the first three, the delta rule, out.

    `fused` says that z lies in one matrix with queries, keys and values, and the gates a and b in another.
    """
    heads, value_dim = config.integer("linear_num_value_heads", default=32), config.integer("linear_value_head_dim", default=128)
    key_dim = config.integer("linear_key_head_dim", default=128)
    keys, values = config.integer("linear_num_key_heads", default=16) * key_dim, heads * value_dim
    name, module = "linear_attention", "linear_attn"
    columns = {"qkvz": 2 * keys + 2 * values, "ba": 2 * heads}
    if not fused:
        columns = {"qkv": 2 * keys + values, "z": values, "b": heads, "a": heads}
    for what, wide in columns.items():
        path = f"{module}.in_proj_{what}"
        yield matmul(f"{name}.{what}", TEXT, width, wide, layers, stack=_STACK, module=path, to=None)
    made = (f"{name}.{next(iter(columns))}",)
    taps = config.integer("linear_conv_kernel_dim", default=4)
    yield short_convolution(f"{name}.conv", taps, 2 * keys + values, layers, stack=_STACK, module=f"{module}.conv1d", reads=made)
    yield from delta_rule(heads, key_dim, value_dim, _CHUNK, layers, stack=_STACK)
    reads = (f"{name}.delta.values", *made)
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=_STACK, module=f"{module}.out_proj", reads=reads)


def experts(config: Config, layers: Sequence[int]) -> Iterator[Work]:
    """Yield the routed experts and the shared one with its gate."""
    taken = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *taken,
        shared=config.integer("shared_expert_intermediate_size", least=0),
        shared_module="mlp.shared_expert", shared_gate="mlp.shared_expert_gate", shared_first=True,
    )  # fmt: skip
    yield from mixture.works(config.integer("hidden_size"), layers)


@transformers_model("models/olmo_hybrid", "OlmoHybridForCausalLM", "olmo_hybrid")
def olmo_hybrid(config: Config) -> Iterator[Work]:
    """OLMo Hybrid: Gated DeltaNet with separate projections in most layers, attention in the others, a gated MLP in each.

    The delta rule is counted by chunks of 64: see `delta_rule`, also for what is left out and the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"full_attention", "linear_attention"})
    every = 4 if len(layers) >= 4 else len(layers)  # a stack of fewer layers ends with attention
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % every == 0)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    yield from _delta_network(config, width, recurrent)
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True)
    yield head(width, config.integer("vocab_size"))


def _delta_network(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    attending = config.integer("num_attention_heads")
    heads = config.integer("linear_num_value_heads", default=attending)
    key_heads = config.integer("linear_num_key_heads", default=attending)
    key_dim = config.integer("linear_key_head_dim", default=3 * width // (4 * key_heads))
    value_dim = config.integer("linear_value_head_dim", default=2 * key_dim)
    keys, values, name = key_heads * key_dim, heads * value_dim, "linear_attention"
    for what, columns in (("q", keys), ("k", keys), ("v", values), ("b", heads), ("a", heads), ("g", values)):
        yield matmul(f"{name}.{what}", TEXT, width, columns, layers, stack=_STACK, module=f"linear_attn.{what}_proj", to=None)
    made, taps = (f"{name}.q", f"{name}.k", f"{name}.v"), config.integer("linear_conv_kernel_dim", default=4)
    yield short_convolution(f"{name}.conv", taps, 2 * keys + values, layers, stack=_STACK, module="linear_attn.conv1d", reads=made)
    yield from delta_rule(heads, key_dim, value_dim, _CHUNK, layers, stack=_STACK)
    reads = (f"{name}.delta.values", f"{name}.g")
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=_STACK, module="linear_attn.o_proj", reads=reads)


_ROUTED = ("num_experts", "num_local_experts")
_ACTIVE = ("num_experts_per_token", "num_experts_per_tok")


@transformers_model("models/kimi_linear; arXiv:2510.26692", "KimiLinearForCausalLM", "kimi_linear")
def kimi_linear(config: Config) -> Iterator[Work]:
    """Kimi Linear: Kimi Delta Attention, and latent attention without positions in every fourth layer; experts but in the first.

    The delta rule with a decay for each channel is counted by chunks of 64: see `delta_rule`, also for what is left out and
    the uncertainty. The gates (forgetting, and of the output) are low-rank products.
    """
    layers = config.layers()
    linear = config.section("linear_attn_config", optional=True)
    dim = linear.integer("head_dim", default=config.integer("linear_head_dim", default=128))
    heads = linear.integer("num_heads", default=config.integer("linear_num_heads", default=32))
    taps = linear.integer("short_conv_kernel_size", default=config.integer("linear_conv_kernel_dim", default=4))
    attending, recurrent = _kinds(config, linear, layers)
    yield embedding()
    yield from latent_attention(_ranked(config), attending)
    yield from _delta_attention(config.integer("hidden_size"), heads, dim, taps, recurrent, low_rank=True)
    yield from _feed_forward(config, layers, 1)


@transformers_model("models/bailing_hybrid", "BailingHybridForCausalLM", "bailing_hybrid")
def bailing_hybrid(config: Config) -> Iterator[Work]:
    """Ling's hybrid: Kimi Delta Attention with full-rank gates, and every `layer_group_size` layers gated latent attention.

    Multi-token-prediction layers are not built by transformers and left out.
    """
    layers, width, heads = config.layers(), config.integer("hidden_size"), config.integer("num_attention_heads")
    kinds, group = config.words("layer_types", len(layers), _KINDS), config.integer("layer_group_size", default=6)
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else (i + 1) % group == 0)
    dim = config.integer("linear_head_dim", "head_dim", default=128)
    taps = config.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4)
    yield embedding()
    yield matmul("attention.gate", TEXT, width, heads, attending, stack=_STACK, module="self_attn.g_proj", to=None)
    yield from latent_attention(_ranked(config), attending)
    yield from _delta_attention(width, config.integer("linear_num_heads", default=heads), dim, taps, recurrent, low_rank=False)
    yield from _feed_forward(config, layers, 2)


def _kinds(config: Config, linear: Config, layers: range) -> tuple[list[int], list[int]]:
    """Return the layers of latent and of delta attention; `linear_attn_config` counts them from one."""
    if kinds := config.words("layer_types", len(layers), _KINDS):
        return parted(layers, lambda i: kinds[i] == "full_attention")
    full, delta = linear.integers("full_attn_layers", least=1), linear.integers("kda_layers", least=1)
    if full is None or delta is None:
        return parted(layers, lambda i: i > 0 and i % 4 == 0)
    if sorted([*full, *delta]) != [i + 1 for i in layers]:
        raise linear.error(("full_attn_layers",), f"and kda_layers must name each of the {len(layers)} layers once")
    return parted(layers, lambda i: i + 1 in full)


def _ranked(config: Config) -> Config:
    """Return the configuration with the class's default: queries without a latent."""
    return replace(config, values={"q_lora_rank": None, **config.values})


def _delta_attention(width: int, heads: int, dim: int, taps: int, layers: Sequence[int], *, low_rank: bool) -> Iterator[Work]:
    inner, name = heads * dim, "linear_attention"
    for what in ("q", "k", "v"):
        yield matmul(f"{name}.{what}", TEXT, width, inner, layers, stack=_STACK, module=f"self_attn.{what}_proj", to=None)
    made = (f"{name}.q", f"{name}.k", f"{name}.v")
    yield short_convolution(f"{name}.conv", taps, 3 * inner, layers, stack=_STACK, module="self_attn.conv1d", reads=made)
    yield from _gate("forget", width, dim, inner, layers, "self_attn.forget_gate.f", low_rank)
    yield matmul(f"{name}.b", TEXT, width, heads, layers, stack=_STACK, module="self_attn.b_proj", to=None)
    yield from delta_rule(heads, dim, dim, _CHUNK, layers, stack=_STACK, by_channel=True)
    yield from _gate("gate", width, dim, inner, layers, "self_attn.g", low_rank)
    reads = (f"{name}.delta.values", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, layers, stack=_STACK, module="self_attn.o_proj", reads=reads)


def _gate(what: str, width: int, rank: int, inner: int, layers: Sequence[int], module: str, low_rank: bool) -> Iterator[Work]:
    name = f"linear_attention.{what}"
    if not low_rank:
        yield matmul(name, TEXT, width, inner, layers, stack=_STACK, module=f"{module}_proj", to=None)
        return
    yield matmul(f"{name}_down", TEXT, width, rank, layers, stack=_STACK, module=f"{module}_a_proj", to=None)
    yield matmul(name, TEXT, rank, inner, layers, stack=_STACK, module=f"{module}_b_proj", reads=(f"{name}_down",), to=None)


def _feed_forward(config: Config, layers: range, dense: int) -> Iterator[Work]:
    width, inner = config.integer("hidden_size"), config.integer("moe_intermediate_size")
    first, sparse = leading(config, layers, dense)
    if first:
        yield from mlp(width, config.integer("intermediate_size"), first, gated=True)
    shared = inner * config.integer("num_shared_experts", "n_shared_experts", default=1, least=0)
    yield from Mixture(inner, *choice(config, _ROUTED, _ACTIVE), shared=shared).works(width, sparse)
    yield head(width, config.integer("vocab_size"))


@transformers_model(
    "models/minimax; arXiv:2501.08313", "MiniMaxForCausalLM", "MiniMaxForSequenceClassification", "minimax",
    "MiniMaxText01ForCausalLM", "minimax_text_01", "MiniMaxM1ForCausalLM", "minimax_m1",
)  # fmt: skip
def minimax(config: Config) -> Iterator[Work]:
    """MiniMax-Text-01: lightning attention in layers of `layer_types` "linear_attention", softmax attention in the others.

    Lightning attention works by blocks of Q: 4·n·d FLOPs for each of the Q² pairs within a block, 4·n·d² a token with the
    state, which is all that the recurrence needs; the former are the uncertainty.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"full_attention", "linear_attention"})
    older = config.integers("attn_type_list", len(layers))
    if kinds is None and older is not None:
        kinds = ["full_attention" if kind else "linear_attention" for kind in older]
    attending, recurrent = parted(layers, lambda i: kinds[i] == "full_attention" if kinds else i % 2 == 0)
    taken = choice(config, ("num_local_experts", "num_experts"), ("num_experts_per_tok",))
    mixture = Mixture(config.integer("intermediate_size"), *taken)
    yield embedding()
    yield from grouped_attention(config, [(None, attending)])
    yield from lightning(config, width, recurrent)
    yield from mixture.works(width, layers)
    yield from output(config, width, config.integer("vocab_size"))


def lightning(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    """Yield lightning attention: one projection to queries, keys and values, the scan by blocks, an output gate."""
    heads = config.integer("num_attention_heads")
    dim, block = config.integer("head_dim", default=width // heads), config.integer("block_size", default=256)
    inner, name, qkv = heads * dim, "linear_attention", "linear_attention.qkv"
    place: dict[str, Any] = {"layers": layers, "stack": _STACK}
    yield matmul(qkv, TEXT, width, 3 * inner, module="self_attn.qkv_proj", to=None, **place)
    scores = f"{name}.scores"
    yield contraction(scores, block_pairs(block), 2 * inner, reads=(qkv, qkv), least=0, **place)
    yield contraction(f"{name}.values", block_pairs(block), 2 * inner, reads=(scores, qkv), least=0, **place)
    yield contraction(f"{name}.step", STEPS, 4 * inner * dim, reads=(qkv, qkv), **place)
    yield from state_reads(f"{name}.output", 2 * inner * dim, block, layers, source=qkv, state=qkv, stack=_STACK)
    yield from state_updates(f"{name}.update", 2 * inner * dim, block, layers, reads=(qkv, qkv), stack=_STACK)
    yield matmul(f"{name}.gate", TEXT, width, inner, module="self_attn.output_gate", to=None, **place)
    reads = (f"{name}.values", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, module="self_attn.out_proj", reads=reads, **place)


_PATTERN = ["recurrent", "recurrent", "attention"]


@transformers_model("models/recurrent_gemma; arXiv:2402.19427", "RecurrentGemmaForCausalLM", "recurrent_gemma")
def recurrent_gemma(config: Config) -> Iterator[Work]:
    """RecurrentGemma: `block_types` by turns, recurrent (RG-LRU) or attention over a window; a gated MLP of half the configured width.

    A recurrent mixer of width w costs 2T(3hw + 2w²/n) FLOPs and 2·taps·w at each position: three projections, two gates in n
    diagonal blocks, a convolution. The recurrence is element-wise, one number a channel, and counts 0.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    pattern = config.words("block_types", None, set(_PATTERN)) or _PATTERN
    attending, recurrent = parted(layers, lambda i: pattern[i % len(pattern)] == "attention")
    window = config.integer("attention_window_size", "sliding_window", default=2048)
    yield embedding()
    heads = config.integer("num_attention_heads")
    key_heads = config.integer("num_key_value_heads", default=heads)
    yield from self_attention(
        width, heads, key_heads, config.integer("head_dim", default=width // heads), attending, of=pairs(window), module="temporal_block"
    )
    yield from _recurrence(config, width, recurrent)
    yield from mlp(width, config.integer("intermediate_size", least=2) // 2, layers, gated=True, module="mlp_block")
    yield head(width, config.integer("vocab_size"))


def _recurrence(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    inner, blocks = config.integer("lru_width", default=width), config.integer("num_attention_heads")
    taps, name, module = config.integer("conv1d_width", default=4), "linear_attention", "temporal_block"
    yield matmul(f"{name}.gate", TEXT, width, inner, layers, stack=_STACK, module=f"{module}.linear_y", to=None)
    yield matmul(f"{name}.in", TEXT, width, inner, layers, stack=_STACK, module=f"{module}.linear_x", to=None)
    yield short_convolution(f"{name}.conv", taps, inner, layers, stack=_STACK, module=f"{module}.conv_1d", reads=(f"{name}.in",))
    for what in ("input_gate", "recurrent_gate"):
        place, reads = f"{module}.rg_lru.{what}_weight", (f"{name}.conv",)
        yield matmul(f"{name}.{what}", TEXT, inner // blocks, inner, layers, stack=_STACK, module=place, reads=reads, to=None)
    made = (f"{name}.input_gate", f"{name}.recurrent_gate", f"{name}.gate")
    yield matmul(f"{name}.out", TEXT, inner, width, layers, stack=_STACK, module=f"{module}.linear_out", reads=made)


@transformers_model("models/rwkv; arXiv:2305.13048", "RwkvForCausalLM", "rwkv")
def rwkv(config: Config) -> Iterator[Work]:
    """RWKV 4: projections to keys, values and receptance, the WKV recurrence, and a gated MLP; T tokens cost no T².

    A step of T tokens costs 2T[L(4hA + 2hf + h²) + Vh] FLOPs forward. The recurrence is element-wise, a few operations for
    each of the A channels and tokens, and counts 0: the state of a channel is one number.
    """
    width, layers = config.integer("hidden_size"), config.layers()
    inner, hidden = config.integer("attention_hidden_size", default=width), config.integer("intermediate_size", default=4 * width)
    place: dict[str, Any] = {"layers": layers, "stack": "rwkv.blocks"}
    name = "linear_attention"
    yield embedding(module="rwkv.embeddings")
    for what, module in (("k", "key"), ("v", "value"), ("receptance", "receptance")):
        yield matmul(f"{name}.{what}", TEXT, width, inner, module=f"attention.{module}", to=None, **place)
    made = (f"{name}.k", f"{name}.v", f"{name}.receptance")
    yield matmul(f"{name}.out", TEXT, inner, width, module="attention.output", reads=made, **place)
    yield matmul("mlp.up", TEXT, width, hidden, module="feed_forward.key", to=None, **place)
    yield matmul("mlp.down", TEXT, hidden, width, module="feed_forward.value", reads=("mlp.up",), **place)
    yield matmul("mlp.receptance", TEXT, width, width, module="feed_forward.receptance", **place)
    yield head(width, config.integer("vocab_size"), module="head")


_XLSTM_STACK = "backbone.blocks"


@transformers_model("models/xlstm; arXiv:2503.13427", "xLSTMForCausalLM", "xlstm")
def xlstm(config: Config) -> Iterator[Work]:
    """xLSTM-7B: mLSTM layers with heads of a matrix memory K × V, and a gated MLP of `ffn_proj_factor` times the width.

    A token costs 4KV + 2K FLOPs a head with the memory and its normaliser, which is all that the recurrence needs; within
    whole chunks of Q, 2(K + V) more for each of Q² pairs: the uncertainty. Tokens after the last whole chunk are recurrent.
    """
    layers, width = config.layers("num_hidden_layers", "num_blocks"), config.integer("hidden_size", "embedding_dim")
    yield embedding(module="backbone.embeddings")
    yield from _memory(config, width, layers)
    multiple = config.integer("ffn_round_up_to_multiple_of", default=64)
    inner = multiple * -(-int(width * config.number("ffn_proj_factor", default=2.667)) // multiple)
    modules = ("proj_up_gate", "proj_up", "proj_down")
    if config.word("weight_mode", default="single") == "fused":
        yield matmul("mlp.gate_up", TEXT, width, 2 * inner, layers, stack=_XLSTM_STACK, module="ffn.proj_up_gate_z", to=None)
        yield matmul("mlp.down", TEXT, inner, width, layers, stack=_XLSTM_STACK, module="ffn.proj_down", reads=("mlp.gate_up",))
    else:
        yield from mlp(width, inner, layers, gated=True, stack=_XLSTM_STACK, module="ffn", modules=modules)
    yield head(width, config.integer("vocab_size"))


def whole_chunk_pairs(size: int) -> Quantity:
    """Return the pairs of positions within whole chunks."""
    return quantity(f"pairs within whole chunks of {size}", lambda s: scanned(s) // size * size**2)


def _memory(config: Config, width: int, layers: Sequence[int]) -> Iterator[Work]:
    heads, name, module = config.integer("num_heads"), "linear_attention", "mlstm_layer"
    keys = int(width * config.number("qk_dim_factor", default=0.5))
    values = int(width * config.number("v_dim_factor", default=1.0))
    if config.word("weight_mode", default="single") == "fused":
        parts = {"qkv_opreact": ("qkvo", 2 * keys + 2 * values), "ifgate_preact": ("gates", 2 * heads)}
    else:
        gates = {f"{gate}gate_preact": (f"{gate}_gate", heads) for gate in "if"}
        parts = {"q": ("q", keys), "k": ("k", keys), "v": ("v", values), "ogate_preact": ("gate", values), **gates}
    for path, (what, columns) in parts.items():
        yield matmul(f"{name}.{what}", TEXT, width, columns, layers, stack=_XLSTM_STACK, module=f"{module}.{path}", to=None)
    made = f"{name}.{next(iter(parts.values()))[0]}"
    chunk = whole_chunk_pairs(config.integer("chunk_size", default=64))
    yield contraction(f"{name}.scores", chunk, 2 * keys, layers, stack=_XLSTM_STACK, reads=(made, made), least=0)
    yield contraction(f"{name}.values", chunk, 2 * values, layers, stack=_XLSTM_STACK, reads=(f"{name}.scores", made), least=0)
    yield contraction(f"{name}.state", TEXT, 4 * keys * (values // heads), layers, stack=_XLSTM_STACK, reads=(made, made))
    yield contraction(f"{name}.normaliser", TEXT, 2 * keys, layers, stack=_XLSTM_STACK, reads=(made, made))
    reads = (f"{name}.values", made)
    yield matmul(f"{name}.out", TEXT, values, width, layers, stack=_XLSTM_STACK, module=f"{module}.out_proj", reads=reads)


_MODULES = ("w1", "w3", "w2")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "out_proj")


@transformers_model("models/lfm2", "Lfm2ForCausalLM", "lfm2")
def lfm2(config: Config) -> Iterator[Work]:
    """LFM2: short convolutions in layers of `layer_types` "conv" (or those not in `full_attn_idxs`), attention in the others.

    A convolution layer costs 2T(3h² + h²) FLOPs and 2·taps·h at each position, before its gated MLP. The MLP's width is two
    thirds of the configured one, rounded up to a multiple, unless `block_auto_adjust_ff_dim` says no.
    """
    layers, width = config.layers(), config.integer("hidden_size")
    yield embedding()
    yield from _mixers(config, width, layers)
    yield from mlp(width, _inner(config), layers, gated=True, module="feed_forward", modules=_MODULES)
    yield head(width, config.integer("vocab_size"))


@transformers_model("models/lfm2_moe", "Lfm2MoeForCausalLM", "lfm2_moe")
def lfm2_moe(config: Config) -> Iterator[Work]:
    """LFM2-MoE: the mixers of LFM2; experts in all layers but the first `num_dense_layers`."""
    layers, width = config.layers(), config.integer("hidden_size")
    first = config.integer("num_dense_layers", default=2, least=0)
    dense, sparse = parted(layers, lambda i: i < first)
    taken = choice(config, ("num_experts", "num_local_experts"), ("num_experts_per_tok",))
    yield embedding()
    yield from _mixers(config, width, layers)
    yield from mlp(width, config.integer("intermediate_size"), dense, gated=True, module="feed_forward", modules=_MODULES)
    mixture = Mixture(
        config.integer("moe_intermediate_size"), *taken,
        router="feed_forward.gate", experts="feed_forward.experts", modules=_MODULES,
    )  # fmt: skip
    yield from mixture.works(width, sparse)
    yield head(width, config.integer("vocab_size"))


@transformers_model("models/lfm3", "Lfm3ForCausalLM", "lfm3")
def lfm3(config: Config) -> Iterator[Work]:
    """LFM3: as LFM2, with windows in some attention layers and an output gate for each of their heads."""
    layers, width = config.layers(), config.integer("hidden_size")
    kinds = config.words("layer_types", len(layers), {"conv", "full_attention", "sliding_attention"})
    kinds = kinds or ["full_attention" if i % 4 == 2 else "sliding_attention" if i % 4 == 0 and i else "conv" for i in layers]
    heads, dim = config.integer("num_attention_heads"), config.integer("head_dim", default=128)
    key_heads = config.integer("num_key_value_heads", default=heads)
    attending, convolving = parted(layers, lambda i: kinds[i] != "conv")
    yield embedding()
    yield from _convolution(width, config.integer("conv_L_cache", default=7), convolving)
    if config.flag("use_attention_gate", True):
        yield matmul("attention.gate", TEXT, width, heads, attending, stack=_STACK, module="self_attn.g_proj", to=None)
    for window, kind in ((None, "full_attention"), (config.optional("sliding_window"), "sliding_attention")):
        members = [i for i in layers if kinds[i] == kind]
        yield from self_attention(width, heads, key_heads, dim, members, of=pairs(window))
    yield from mlp(width, config.integer("intermediate_size"), layers, gated=True, module="feed_forward", modules=_MODULES)
    yield head(width, config.integer("vocab_size"))


def _mixers(config: Config, width: int, layers: range) -> Iterator[Work]:
    kinds = config.words("layer_types", len(layers), {"conv", "full_attention"})
    chosen = config.integers("full_attn_idxs")
    if kinds is None and chosen is None:
        raise config.missing("layer_types", "full_attn_idxs")
    attending, convolving = parted(layers, lambda i: kinds[i] != "conv" if kinds else i in (chosen or ()))
    heads = config.integer("num_attention_heads", "num_heads")
    key_heads, dim = config.integer("num_key_value_heads", default=heads), config.integer("head_dim", default=width // heads)
    yield from _convolution(width, config.integer("conv_L_cache", default=3), convolving)
    yield from self_attention(width, heads, key_heads, dim, attending, modules=_ATTENTION)


def _convolution(width: int, taps: int, layers: Sequence[int]) -> Iterator[Work]:
    yield matmul("conv.in", TEXT, width, 3 * width, layers, stack=_STACK, module="conv.in_proj", to=None)
    yield short_convolution("conv.taps", taps, width, layers, stack=_STACK, module="conv.conv", reads=("conv.in",))
    yield matmul("conv.out", TEXT, width, width, layers, stack=_STACK, module="conv.out_proj", reads=("conv.taps", "conv.in"))


def _inner(config: Config) -> int:
    inner = config.integer("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = 2 * inner // 3
    if "block_ffn_dim_multiplier" in config.values and config.values["block_ffn_dim_multiplier"] is None:
        return inner  # null means: no multiplier and no rounding
    multiple = config.integer("block_multiple_of", default=256)
    return multiple * ceil(int(config.number("block_ffn_dim_multiplier", default=1.0) * inner) / multiple)
