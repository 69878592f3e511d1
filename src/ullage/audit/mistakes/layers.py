"""Mistakes about what a layer is: MLPs, state spaces, the head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ullage.audit.mistakes.mistake import EXPERTS, SHAPES, AuditedJob, mistake, scaled
from ullage.models.work import Work


@mistake("gate_forgotten", about="gate", says="a gated MLP is counted with two products instead of three", decides=SHAPES, weight=2)
def gate_forgotten(case: AuditedJob) -> float | None:
    """Automodel's fallback on Mistral and Gemma: 0.76 to 0.77 of the truth."""

    def change(work: Work) -> Iterable[Work]:
        part = work.name.rpartition(".")[2]
        if part == "gate" and ("mlp" in work.group or "moe" in work.group):
            return []
        return [scaled(work, 0.5) if part == "gate_up" else work]

    return case.with_works(change)


@mistake("gate_assumed", about="gate", says="an MLP without a gate is counted with three products instead of two", decides=SHAPES, weight=2)
def gate_assumed(case: AuditedJob) -> float | None:
    """Automodel on Nemotron-H: 1.2 to 1.27 of the truth."""
    parts = [w for w in case.formula.works if w.shape and w.name.endswith((".up", ".down")) and ("mlp" in w.group or "moe" in w.group)]
    gated = {w.group for w in case.formula.works if w.name.endswith((".gate", ".gate_up"))}
    ungated = [w for w in parts if w.group not in gated]
    return case.with_works(lambda w: [scaled(w, 1.5) if w in ungated else w]) if ungated else None


@mistake(
    "mlp_of_four_widths",
    about="mlp width",
    says="the MLP is taken as 4 × hidden_size wide",
    decides=SHAPES,
)
def mlp_of_four_widths(case: AuditedJob) -> float | None:
    """The 24h² of GPT-3's layers, used for a model with another MLP (Megatron-LM#682)."""
    if case.named("moe"):
        return None

    def change(work: Work) -> Iterable[Work]:
        if work.group != "mlp" or not work.shape or work.name.rpartition(".")[2] not in ("gate", "up", "gate_up", "down"):
            return [work]
        inner, width = work.shape if work.name.endswith(".down") else work.shape[::-1]
        return [scaled(work, 4 * width / (inner / 2 if work.name.endswith("gate_up") else inner))]

    return case.with_works(change)


@mistake("hybrid_as_dense", about="layer kinds", says="every layer is counted as attention and a dense MLP", decides=SHAPES, weight=3)
def hybrid_as_dense(case: AuditedJob) -> float | None:
    """The OFU paper's 8B hybrid: attention, Mamba, MLP and MoE layers in turn, all counted alike."""
    stacks = _mixed(case)
    dense = [w for w in case.formula.works if w.stack in stacks and w.group == "mlp"]
    return _alike(case, dense or [w for w in case.named(EXPERTS) if w.stack in stacks])


@mistake("hybrid_as_experts", about="layer kinds", says="every layer is counted as attention and experts", decides=SHAPES)
def hybrid_as_experts(case: AuditedJob) -> float | None:
    """The same for a model with experts: all its layers are charged for them."""
    stacks = _mixed(case)
    if not any(w.stack in stacks and w.group == "mlp" for w in case.formula.works):
        return None  # the dense MLP of `hybrid_as_dense` is the experts already
    return _alike(case, [w for w in case.named("moe") if w.stack in stacks])


def _mixed(case: AuditedJob) -> set[str]:
    """Return the stacks of layers with something else than attention to mix tokens."""
    return {w.stack for w in case.named("mamba", "linear_attention") if w.stack}


def _alike(case: AuditedJob, second: Iterable[Work]) -> float | None:
    """Return the factor when all layers of mixed stacks are counted as attention and `second`."""
    mixed = _mixed(case)
    works = [w for w in case.formula.works if w.stack in mixed]
    attention = {w.name: w for w in works if w.group == "attention"}
    block = {w.name: w for w in second}
    if not attention or not block:
        return None
    layers = sorted({layer for w in works for layer in w.layers})
    everywhere = [replace(w, layers=layers) for w in [*attention.values(), *block.values()]]
    return case.counted([*everywhere, *(w for w in case.formula.works if w.stack not in mixed)]) / case.truth


@mistake(
    "state_space_twice_hidden",
    about="state space width",
    says="the state space is taken as twice the hidden width",
    decides="mamba heads × head width in the config",
    weight=2,
)
def state_space_twice_hidden(case: AuditedJob) -> float | None:
    """Megatron-LM: 0.938 on Nemotron-Nano-9B-v2, 1.067 on Nemotron-3-Nano."""
    outs = [w.shape for w in case.named("mamba.out") if w.shape]
    if not outs:
        return None
    inner, width = outs[0]
    grown = 2 * width - inner

    def change(work: Work) -> Iterable[Work]:
        part = work.name.removeprefix("mamba.")
        if part == work.name or part == "ssd.scores":  # scores within a chunk are as wide as the state
            return [work]
        if part in ("in", "conv") and work.shape:  # of their columns only those of the inner width grow: x and its gate
            columns = work.shape[1]
            return [scaled(work, (columns + (2 if part == "in" else 1) * grown) / columns)]
        return [scaled(work, 2 * width / inner)]

    return case.with_works(change) if grown else None


@mistake(
    "embedding_counted",
    about="vocabulary",
    says="the embedding's look-up is counted as a product, or the LM head twice",
    decides=SHAPES,
    weight=3,
)
def embedding_counted(case: AuditedJob) -> float | None:
    """verl: 2Vh instead of Vh; +27 % on Qwen2.5-0.5B."""
    config = case.formula.config
    sizes = {values.get("vocab_size") for values in (config.values, config.values.get("text_config")) if isinstance(values, Mapping)}
    heads = [w for w in case.formula.works if w.name == "head" and w.shape and w.shape[1] in sizes]
    rows = {w.quantity for w in case.named("embedding")}
    if not heads or not rows:
        return None
    # a look-up for each token, also for those without logits
    return case.with_works(lambda w: [w, *(replace(w, quantity=row) for row in rows)] if w is heads[0] else [w])


@mistake("head_forgotten", about="vocabulary", says="the LM head is left out", decides=SHAPES, weight=2)
def head_forgotten(case: AuditedJob) -> float | None:
    """A tied head is dropped by tools that count parameters without embeddings."""
    return case.without("head")
