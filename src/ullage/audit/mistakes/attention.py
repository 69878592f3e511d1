"""Mistakes about attention: causality, windows, heads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ullage.audit.mistakes.mistake import AuditedJob, is_softmax, mistake, scaled
from ullage.models.sample import pairs
from ullage.models.work import Work

_SEEN = "the framework's FLOPs per token at two sequence lengths: only attention grows with the length"
_NARROWED = ("causal pairs, window", "causal pairs, chunk")


def _outputs(case: AuditedJob) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the shape (heads × width, hidden width) of each attention's output projection, by group and stack."""
    return {(w.group, w.stack): w.shape for w in case.formula.works if w.name.endswith("attention.out") and w.shape}


@mistake(
    "attention_full", about="attention", says="causal attention is counted in full: every query with every key", decides=_SEEN, weight=3
)
def attention_full(case: AuditedJob) -> float | None:
    """PaLM and torch's counter do so by convention (Megatron-LM#831, maxtext#1972)."""
    if case.step.attention != "causal":
        return None
    return case.at(replace(case.step, attention="full"))


@mistake("attention_halved", about="attention", says="attention that sees everything is counted as causal, half", decides=_SEEN)
def attention_halved(case: AuditedJob) -> float | None:
    """A decoder's formula applied to an encoder or a diffusion transformer."""
    if case.formula.model.causal:
        return None
    return case.with_works(lambda w: [scaled(w, 0.5) if is_softmax(w.name) else w])


@mistake("attention_forgotten", about="attention", says="the products of attention are left out (6N per token)", decides=_SEEN, weight=2)
def attention_forgotten(case: AuditedJob) -> float | None:
    """The Transformers trainer's floating_point_ops; Kaplan et al., arXiv:2001.08361, section 2.1."""
    return case.with_works(lambda w: [] if is_softmax(w.name) else [w])


@mistake(
    "window_ignored",
    about="attention",
    says="windows (sliding ones, chunks, the top-k of sparse attention) are ignored: every layer is counted as seeing all before",
    decides=_SEEN,
    weight=2,
)
def window_ignored(case: AuditedJob) -> float | None:
    """Megatron-LM charges gpt-oss so, and sparse attention as dense (Megatron-LM#7043)."""
    if not any(w.quantity.name.startswith(_NARROWED) for w in case.formula.works):
        return None
    return case.with_works(lambda w: [replace(w, quantity=pairs()) if w.quantity.name.startswith(_NARROWED) else w])


@mistake("window_halved", about="attention", says="windows are applied and halved again as if causal", decides=_SEEN)
def window_halved(case: AuditedJob) -> float | None:
    """A sequence long against its window costs length × window, not half of that (verl)."""
    return case.with_works(lambda w: [scaled(w, 0.5) if w.quantity.name.startswith("causal pairs, window") else w])


@mistake(
    "grouped_queries_ignored",
    about="key heads",
    says="keys and values are counted with as many heads as queries",
    decides="the shapes of the k and v products in a trace",
    weight=2,
)
def grouped_queries_ignored(case: AuditedJob) -> float | None:
    """Multi-head attention's 8h² per layer, used for a model with fewer key heads."""
    outputs = _outputs(case)

    def change(work: Work) -> Iterable[Work]:
        queries = outputs.get((work.group, work.stack), (0, 0))[0]
        copies = {"k": 1, "v": 1, "kv": 2, "qkv": 3}.get(work.name.rpartition(".")[2], 0)
        return [scaled(work, copies * queries / work.shape[1]) if work.shape and queries and copies else work]

    return case.with_works(change) if outputs else None


@mistake(
    "head_width_assumed",
    about="head width",
    says="heads are taken as hidden_size / heads wide",
    decides="head_dim in the config against the framework's formula",
)
def head_width_assumed(case: AuditedJob) -> float | None:
    """NeMo-RL#2736: 1.84 times too low for Qwen3-235B; Automodel assumes it."""
    outputs = {place: shape for place, shape in _outputs(case).items() if shape[0] != shape[1]}
    if not outputs or case.named("attention.kv_down"):  # multi-head latent attention has no such width
        return None
    parts = ("q", "k", "v", "kv", "qkv", "out", "scores", "values")

    def change(work: Work) -> Iterable[Work]:
        inner, width = outputs.get((work.group, work.stack), (1, 1))
        return [scaled(work, width / inner) if work.name.rpartition(".")[2] in parts else work]

    return case.with_works(change)


@mistake(
    "latent_attention_as_plain",
    about="latent attention",
    says="latent attention (MLA) is counted as multi-head attention: queries, keys and values straight from the hidden width",
    decides="the shapes of the q, k and v products in a trace",
)
def latent_attention_as_plain(case: AuditedJob) -> float | None:
    """Megatron-LM#1475 had no latent projections; the cores of both are alike."""
    outputs = _outputs(case)
    narrow = [w for w in case.named("attention.kv_down") if w.shape and (w.group, w.stack) in outputs]
    if not narrow:
        return None
    queries = {w.stack: w.shape[1] for w in case.named("attention.q_up", "attention.q") if w.shape}

    def change(work: Work) -> Iterable[Work]:
        part = work.name.rpartition(".")[2]
        if part in ("q", "q_down", "q_up", "kv_up") and (work.group, work.stack) in outputs:
            return []
        if work not in narrow or not work.shape:
            return [work]
        values, width = outputs[work.group, work.stack]
        return [replace(work, flops=2 * width * (2 * queries[work.stack] + values))]

    return case.with_works(change)
