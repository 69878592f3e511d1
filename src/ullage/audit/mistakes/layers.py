"""Mistakes about what a layer is: MLPs, experts, state spaces, the head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ullage.audit.mistakes.mistake import Case, is_below, mistake, scaled
from ullage.models.work import Work

_SHAPES = "the GEMM shapes of a trace, or the framework's FLOPs per token against `ullage flops`"
_EXPERTS = "moe.experts"


@mistake(
    "experts_at_full_width",
    about="expert width",
    says="experts that work at a latent width are counted at the model's width",
    decides=_SHAPES,
    weight=3,
)
def experts_at_full_width(case: Case) -> float | None:
    """The OFU paper's 288-GPU job: latent width 512 counted at 2048; the projections to it and back were left out."""
    down = [w.shape for w in case.named("moe.latent_down") if w.shape]
    if not down:
        return None
    width, latent = down[0]

    def change(work: Work) -> Iterable[Work]:
        if is_below(work.name, "moe.latent_down") or is_below(work.name, "moe.latent_up"):
            return []
        return [scaled(work, width / latent) if is_below(work.name, _EXPERTS) else work]

    return case.with_works(change)


@mistake(
    "latent_projections_forgotten",
    about="expert width",
    says="the projections to the experts' latent width and back are left out",
    decides=_SHAPES,
)
def latent_projections_forgotten(case: Case) -> float | None:
    """Experts at the right width, without the two products around them."""
    return case.without("moe.latent_down", "moe.latent_up")


@mistake("all_experts", about="experts", says="all experts are counted instead of those a token is routed to", decides=_SHAPES, weight=3)
def all_experts(case: Case) -> float | None:
    """prime-rl#778, the Transformers trainer (3.6 to 21 times)."""
    routed = {w.stack: w.shape[1] for w in case.named("moe.router") if w.shape}
    if not routed:
        return None

    def change(work: Work) -> Iterable[Work]:
        if not is_below(work.name, _EXPERTS) or not work.shape:
            return [work]
        active = work.flops / (2 * work.shape[0] * work.shape[1])
        return [scaled(work, routed.get(work.stack, active) / active)]

    return case.with_works(change)


@mistake(
    "dense_width_for_experts",
    about="expert width",
    says="experts are counted as wide as the dense MLP",
    decides=_SHAPES,
    weight=2,
)
def dense_width_for_experts(case: Case) -> float | None:
    """Pai-Megatron-Patch#485: intermediate_size where the experts have moe_intermediate_size."""
    config = case.formula.config
    if not config.has("moe_intermediate_size") or not isinstance(config.values.get("intermediate_size"), int) or not case.named(_EXPERTS):
        return None
    factor = config.integer("intermediate_size") / config.integer("moe_intermediate_size")
    return case.with_works(lambda w: [scaled(w, factor) if is_below(w.name, _EXPERTS) else w])


@mistake("router_forgotten", about="router", says="the router is left out", decides=_SHAPES, weight=2)
def router_forgotten(case: Case) -> float | None:
    """Megatron-LM and Automodel leave it out."""
    return case.without("moe.router")


@mistake("shared_expert_forgotten", about="shared expert", says="the shared expert is left out", decides=_SHAPES, weight=2)
def shared_expert_forgotten(case: Case) -> float | None:
    """verl on Qwen2-MoE: 0.79 of the truth."""
    return case.without("moe.shared", "moe.shared_gate")


@mistake("gate_forgotten", about="gate", says="a gated MLP is counted with two products instead of three", decides=_SHAPES, weight=2)
def gate_forgotten(case: Case) -> float | None:
    """Automodel's fallback on Mistral and Gemma: 0.76 to 0.77 of the truth."""

    def change(work: Work) -> Iterable[Work]:
        part = work.name.rpartition(".")[2]
        if part == "gate" and ("mlp" in work.group or "moe" in work.group):
            return []
        return [scaled(work, 0.5) if part == "gate_up" else work]

    return case.with_works(change)


@mistake(
    "gate_assumed", about="gate", says="an MLP without a gate is counted with three products instead of two", decides=_SHAPES, weight=2
)
def gate_assumed(case: Case) -> float | None:
    """Automodel on Nemotron-H: 1.2 to 1.27 of the truth."""
    parts = [w for w in case.formula.works if w.shape and w.name.endswith((".up", ".down")) and ("mlp" in w.group or "moe" in w.group)]
    gated = {w.group for w in case.formula.works if w.name.endswith((".gate", ".gate_up"))}
    ungated = [w for w in parts if w.group not in gated]
    return case.with_works(lambda w: [scaled(w, 1.5) if w in ungated else w]) if ungated else None


@mistake("hybrid_as_dense", about="layer kinds", says="every layer is counted as attention and a dense MLP", decides=_SHAPES, weight=3)
def hybrid_as_dense(case: Case) -> float | None:
    """The OFU paper's 8B hybrid: attention, Mamba, MLP and MoE layers in turn, all counted alike."""
    mixers = {w.stack for w in case.named("mamba", "linear_attention") if w.stack}
    works = [w for w in case.formula.works if w.stack in mixers]
    attention = {w.name: w for w in works if w.group == "attention"}
    dense = {w.name: w for w in works if w.group == "mlp"} or {w.name: w for w in works if is_below(w.name, _EXPERTS)}
    if not attention or not dense:
        return None
    layers = sorted({layer for w in works for layer in w.layers})
    everywhere = [replace(w, layers=layers) for w in [*attention.values(), *dense.values()]]
    return case.counted([*everywhere, *(w for w in case.formula.works if w.stack not in mixers)]) / case.truth


@mistake(
    "state_space_twice_hidden",
    about="state space width",
    says="the state space is taken as twice the hidden width",
    decides="mamba heads × head width in the config",
    weight=2,
)
def state_space_twice_hidden(case: Case) -> float | None:
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
    decides=_SHAPES,
    weight=3,
)
def embedding_counted(case: Case) -> float | None:
    """verl: 2Vh instead of Vh; +27 % on Qwen2.5-0.5B."""
    config = case.formula.config
    sizes = {values.get("vocab_size") for values in (config.values, config.values.get("text_config")) if isinstance(values, Mapping)}
    heads = [w for w in case.formula.works if w.name == "head" and w.shape and w.shape[1] in sizes]
    rows = {w.quantity for w in case.named("embedding")}
    if not heads or not rows:
        return None
    # a look-up for each token, also for those without logits
    return case.counted([*case.formula.works, *(replace(w, quantity=row) for w in heads[:1] for row in rows)]) / case.truth


@mistake("head_forgotten", about="vocabulary", says="the LM head is left out", decides=_SHAPES, weight=2)
def head_forgotten(case: Case) -> float | None:
    """A tied head is dropped by tools that count parameters without embeddings."""
    return case.without("head")


@mistake("vision_forgotten", about="vision", says="the vision tower is left out", decides=_SHAPES, weight=2)
def vision_forgotten(case: Case) -> float | None:
    """torchtitan#4057; most counters take the text alone."""
    return None if case.formula.model.kind == "vision" else case.without("vision")


@mistake("mtp_forgotten", about="multi-token prediction", says="the layers that predict further tokens are left out", decides=_SHAPES)
def mtp_forgotten(case: Case) -> float | None:
    """Multi-token prediction runs one layer and the head once more for each further token."""
    return case.without("mtp")


@mistake("indexer_forgotten", about="indexer", says="the indexer of sparse attention is left out", decides=_SHAPES)
def indexer_forgotten(case: Case) -> float | None:
    """DeepSeek V3.2's indexer scores every pair, if with few and narrow heads."""
    return case.without("indexer")
