"""Mistakes about experts: how many, how wide, in which layers, and what stands beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.audit.mistakes.mistake import EXPERTS, SHAPES, AuditedJob, is_below, mistake, scaled
from ullage.models.work import Work


@mistake(
    "experts_at_full_width",
    about="expert width",
    says="experts that work at a latent width are counted at the model's width",
    decides=SHAPES,
    weight=3,
)
def experts_at_full_width(case: AuditedJob) -> float | None:
    """The OFU paper's 288-GPU job: latent width 512 counted at 2048; the projections to it and back were left out."""
    down = [w.shape for w in case.named("moe.latent_down") if w.shape]
    if not down:
        return None
    width, latent = down[0]

    def change(work: Work) -> Iterable[Work]:
        if is_below(work.name, "moe.latent_down") or is_below(work.name, "moe.latent_up"):
            return []
        return [scaled(work, width / latent) if is_below(work.name, EXPERTS) else work]

    return case.with_works(change)


@mistake(
    "latent_projections_forgotten",
    about="expert width",
    says="the projections to the experts' latent width and back are left out",
    decides=SHAPES,
)
def latent_projections_forgotten(case: AuditedJob) -> float | None:
    """Experts at the right width, without the two products around them."""
    return case.without("moe.latent_down", "moe.latent_up")


@mistake("all_experts", about="experts", says="all experts are counted instead of those a token is routed to", decides=SHAPES, weight=3)
def all_experts(case: AuditedJob) -> float | None:
    """prime-rl#778, the Transformers trainer (3.6 to 21 times)."""
    routed = {w.stack: w.shape[1] for w in case.named("moe.router") if w.shape}
    if not routed:
        return None

    def change(work: Work) -> Iterable[Work]:
        if not is_below(work.name, EXPERTS) or not work.shape:
            return [work]
        active = work.flops / (2 * work.shape[0] * work.shape[1])
        return [scaled(work, routed.get(work.stack, active) / active)]

    return case.with_works(change)


@mistake(
    "dense_width_for_experts",
    about="expert width",
    says="experts are counted as wide as the dense MLP",
    decides=SHAPES,
    weight=2,
)
def dense_width_for_experts(case: AuditedJob) -> float | None:
    """Pai-Megatron-Patch#485: intermediate_size where the experts have moe_intermediate_size."""
    config = case.formula.config
    if not config.has("moe_intermediate_size") or not isinstance(config.values.get("intermediate_size"), int) or not case.named(EXPERTS):
        return None
    factor = config.integer("intermediate_size") / config.integer("moe_intermediate_size")
    return case.with_works(lambda w: [scaled(w, factor) if is_below(w.name, EXPERTS) else w])


@mistake("router_forgotten", about="router", says="the router is left out", decides=SHAPES, weight=2)
def router_forgotten(case: AuditedJob) -> float | None:
    """Megatron-LM and Automodel leave it out."""
    return case.without("moe.router")


@mistake("shared_expert_forgotten", about="shared expert", says="the shared expert is left out", decides=SHAPES, weight=2)
def shared_expert_forgotten(case: AuditedJob) -> float | None:
    """verl on Qwen2-MoE: 0.79 of the truth."""
    return case.without("moe.shared", "moe.shared_gate")


@mistake(
    "experts_as_dense",
    about="expert layers",
    says="layers of experts are counted as one dense MLP of intermediate_size",
    decides=SHAPES,
)
def experts_as_dense(case: AuditedJob) -> float | None:
    """A dense formula that reads intermediate_size and knows of no experts."""
    config = case.formula.config
    width = {w.stack: w.shape[0] for w in case.named("moe.router") if w.shape}  # the model's, also where experts are latent
    routed = [w for w in case.named(EXPERTS) if w.shape and w.stack in width]
    if not routed or not isinstance(config.values.get("intermediate_size"), int):
        return None
    inner = config.integer("intermediate_size")

    def change(work: Work) -> Iterable[Work]:
        if not is_below(work.name, "moe"):
            return [work]
        products = 2 if work.name.endswith(".gate_up") else 1
        return [replace(work, flops=2 * products * width[work.stack] * inner)] if work in routed else []

    return case.with_works(change)


@mistake(
    "dense_layers_as_experts",
    about="expert layers",
    says="dense layers among those with experts (leading ones, every other one) are counted as experts too",
    decides=SHAPES,
)
def dense_layers_as_experts(case: AuditedJob) -> float | None:
    """verl on HY V3 overlooks the leading dense layers; frequencies and patterns are overlooked as well."""
    experts = [w for w in case.formula.works if w.name.startswith("moe.")]  # of the stack, not of layers behind it
    sparse = {w.stack: set(w.layers) for w in experts}
    mixing = {(w.stack, layer) for w in case.formula.works if w.group == "attention" for layer in w.layers}
    dense = {
        stack: {layer for w in case.formula.works if (w.stack, w.group) == (stack, "mlp") for layer in w.layers} - layers
        for stack, layers in sparse.items()
    }
    # a layer of attention and an MLP; in a hybrid an MLP may be a layer by itself
    dense = {stack: {layer for layer in layers if (stack, layer) in mixing} for stack, layers in dense.items()}
    if not any(dense.values()):
        return None

    def change(work: Work) -> Iterable[Work]:
        more = dense.get(work.stack, set())
        if work.group == "mlp" and more:
            kept = [layer for layer in work.layers if layer not in more]
            return [replace(work, layers=kept)] if kept else []
        return [replace(work, layers=sorted({*work.layers, *more}))] if work in experts else [work]

    return case.with_works(change)
