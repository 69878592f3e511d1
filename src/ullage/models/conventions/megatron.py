"""Megatron-LM's count: `num_floating_point_operations`, with the arguments that a conversion of this configuration would set."""

from __future__ import annotations

from collections.abc import Iterator

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.conventions.convention import Row, convention
from ullage.models.conventions.outline import squares, text, tokens
from ullage.models.formula import Formula
from ullage.models.step import Step
from ullage.models.work import Work

_GROUPS = {"attention", "mlp", "moe", "moe.experts", "moe.shared", "head", "embedding"}
_LEFT_OUT = ("moe.router", "moe.shared_gate", "indexer.", "vision.")
_HEAD_WIDTH = 64  # of a state space whose heads are not given


@convention(
    "megatron",
    says="s²/2 pairs, windows and the sparse attention's indexer ignored; no router, shared expert's gate or vision tower; a state"
    " space is 2 × hidden_size wide, its scan 7 FLOPs an entry of the state; a delta network's state is as wide as its values",
    source="Megatron-LM, megatron/training/training.py (num_floating_point_operations)",
)
def megatron(formula: Formula, step: Step) -> Iterator[Row]:
    """Yield attention, MLPs and experts as they are, and mixers of other kinds by Megatron's own forms.

    Its vocabulary is padded by the user (`--make-vocab-size-divisible-by`); here it is the configuration's. Raises
    UllageError for what it has no form for: other mixers, encoders, diffusion.
    """
    if formula.model.kind not in ("decoder", "vision-language") or any(work.name == "mamba.x" for work in formula.works):
        raise _none(formula)  # a state space of the first kind has a product "mamba.x"
    config, all_tokens, pairs = text(formula.config), tokens(step), squares(step)
    for work in formula.works:
        if work.name.startswith(_LEFT_OUT):
            continue
        inner = work.name.removeprefix("mtp.")
        if inner.startswith(("mamba.", "linear_attention.")):
            yield from _mixer(formula, config, work, all_tokens)
        elif inner.rpartition(".")[0] not in _GROUPS and inner not in _GROUPS and inner != "proj":
            raise _none(formula)
        elif not inner.startswith(("moe.router", "moe.shared_gate")):
            yield work.name, _flops(work, all_tokens, pairs)
            yield from _norms(config, work, all_tokens)


def _flops(work: Work, rows: int, pairs: int) -> int:
    """Return a product's FLOPs over all tokens, or over half of all pairs where it has no weight."""
    return work.flops * len(work.layers) * rows if work.shape else work.flops * len(work.layers) * pairs // 2


def _norms(config: Config, work: Work, rows: int) -> Iterator[Row]:
    """Yield what Megatron adds for norms: of the low ranks of latent attention, and three of a layer that predicts a token ahead."""
    ranks = {"q_down": "q_lora_rank", "kv_down": "kv_lora_rank"}
    part = work.name.rpartition(".")[2]
    if part in ranks and config.has(ranks[part]):
        yield "attention.norms", 2 * rows * len(work.layers) * config.integer(ranks[part])
    elif work.name == "mtp.proj":
        yield "mtp.norms", 6 * rows * len(work.layers) * config.integer("hidden_size")


def _mixer(formula: Formula, config: Config, work: Work, rows: int) -> Iterator[Row]:
    """Yield a mixer's rows when its output projection is met; its other products are among them."""
    mixer, _, part = work.name.partition(".")
    if part != "out":
        return
    width, layers = config.integer("hidden_size"), len(work.layers)
    if mixer == "mamba":
        yield from _state_space(config, width, rows * layers)
    elif config.has("linear_num_value_heads"):
        yield from _delta_network(config, width, rows * layers)
    else:
        raise _none(formula)


def _state_space(config: Config, width: int, rows: int) -> Iterator[Row]:
    inner = 2 * width
    state = config.integer("ssm_state_size", "mamba_d_state", "mamba_state_dim", "state_size")
    groups = config.integer("n_groups", "mamba_n_groups", "mamba_ngroups", "mamba_num_groups", default=1)
    heads = config.integer("mamba_num_heads", "n_mamba_heads", "mamba_n_heads", "num_heads", default=inner // _HEAD_WIDTH)
    yield "mamba.in", 2 * rows * width * (2 * inner + 2 * groups * state + heads)
    yield "mamba.scan", 7 * rows * inner * state
    yield "mamba.out", 2 * rows * inner * width


def _delta_network(config: Config, width: int, rows: int) -> Iterator[Row]:
    heads, dim = config.integer("linear_num_value_heads"), config.integer("linear_value_head_dim")
    keys, values = config.integer("linear_num_key_heads") * config.integer("linear_key_head_dim"), heads * dim
    yield "linear_attention.in", 2 * rows * width * (2 * keys + 2 * values + 2 * heads)
    yield "linear_attention.conv", 2 * rows * config.integer("linear_conv_kernel_dim", default=4) * (2 * keys + values)
    yield "linear_attention.state", 8 * rows * heads * dim**2
    yield "linear_attention.out", 2 * rows * width * values


def _none(formula: Formula) -> UllageError:
    return UllageError(
        f"Megatron-LM's counter has no form for {formula.name}",
        "it knows decoders of attention, MLPs, experts, Mamba 2 and gated delta networks; leave --as out",
    )
