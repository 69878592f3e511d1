"""Mistakes about the step: backward, recomputation, adapters, lengths, latents, ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ullage.audit.mistakes.mistake import AuditedJob, is_softmax, mistake
from ullage.models.passes import Training
from ullage.models.step import Step

_MEMORY = "the trainer's checkpointing setting, or the number of forward GEMMs a layer in a trace"
_LAYOUT = "the number of ranks by which the framework divides"


def _executed(case: AuditedJob, **recompute: Any) -> float:
    """Return executed over model FLOPs for a way of recomputing, padding aside."""
    training = replace(case.training, **recompute)
    return sum(term.flops for term in case.formula.terms(replace(case.step, padded=None), training)) / case.truth


def _recomputed(case: AuditedJob) -> tuple[float, float]:
    """Return executed over model FLOPs with every layer a checkpoint: the least that is done again, and the whole forward pass (4/3).

    The least is PyTorch's non-reentrant kind, which stops before each layer's last product; its reentrant kind and other
    frameworks' lie between.
    """
    whole = 1 + case.counted(case.formula.works, training=Training(forward_only=True)) / case.truth
    return min(whole, _executed(case, recompute="full", reentrant=False)), whole


@mistake(
    "recomputation_runs",
    about="recomputation",
    says="activations are recomputed: OFU sees that work, a right MFU does not count it",
    decides=_MEMORY,
    weight=30,
    circumstance=True,
)
def recomputation_runs(case: AuditedJob) -> tuple[float, float] | None:
    """OFU paper, VI-C: 26 % reported beside 34 %. A Llama executes 1.23 to 1.33 of its model FLOPs."""
    if case.training.forward_only or case.training.recompute != "none":
        return None
    least, whole = _recomputed(case)
    return 1 / whole, 1 / least


@mistake(
    "attention_recomputed",
    about="recomputation",
    says="the products of attention are recomputed (fused attention does the scores again, selective checkpoints both)",
    decides=_MEMORY,
    weight=30,
    circumstance=True,
)
def attention_recomputed(case: AuditedJob) -> tuple[float, float] | None:
    """FlashAttention's backward pass computes the scores again; Megatron's selective recomputation does all of core attention."""
    if case.training.forward_only or case.training.recompute != "none":
        return None
    products = [w.name for w in case.formula.works if is_softmax(w.name)]
    scores = tuple(name for name in products if name.endswith(".scores"))
    if not scores:
        return None
    return 1 / _executed(case, recompute=tuple(products)), 1 / _executed(case, recompute=scores)


@mistake(
    "recomputation_counted",
    about="recomputation",
    says="recomputed work is counted as model work: HFU under the name of MFU",
    decides=_MEMORY,
    weight=2,
)
def recomputation_counted(case: AuditedJob) -> tuple[float, float] | None:
    """8 FLOPs per parameter and token where 6 are model work, or what is recomputed layer by layer."""
    return None if case.training.forward_only else _recomputed(case)


@mistake(
    "adapters_as_full",
    about="adapters",
    says="LoRA or frozen weights are counted as full training",
    decides="the number of weight-gradient GEMMs in a trace",
    weight=3,
)
def adapters_as_full(case: AuditedJob) -> float | None:
    """The diffusion MFU's stated caveat; calflops#30, LLaMA-Factory#3763."""
    if not case.training.partial:
        return None
    return case.counted(case.formula.works, training=Training(forward_only=case.training.forward_only)) / case.truth


@mistake(
    "inference_as_training",
    about="backward",
    says="a forward pass is counted as forward and backward",
    decides="whether the timed step has a backward pass",
)
def inference_as_training(case: AuditedJob) -> float | None:
    """Forward-only calls must be divided by 3 (verl's actor_infer)."""
    return 3.0 if case.training.forward_only else None


@mistake(
    "training_as_inference",
    about="backward",
    says="only the forward pass is counted",
    decides="the framework's formula: 2 or 6 FLOPs per parameter and token",
)
def training_as_inference(case: AuditedJob) -> float | None:
    """2N per token where 6N are done."""
    return None if case.training.forward_only else 1 / 3


@mistake(
    "longest_for_all",
    about="lengths",
    says="every sequence is counted at the longest one's length",
    decides="the lengths of the packed sequences",
    weight=2,
)
def longest_for_all(case: AuditedJob) -> float | None:
    """Fixed-length formulas on packed or padded batches."""
    samples = case.step.samples
    longest = max((s.text for s, _ in samples), default=0)
    if all(s.text == longest for s, _ in samples):
        return None
    stretched = tuple((replace(s, text=longest, encoder=max(s.encoder, longest if s.encoder else 0)), n) for s, n in samples)
    return case.at(replace(case.step, samples=stretched, padded=None))


@mistake(
    "packed_as_one",
    about="lengths",
    says="packed sequences are counted as one sequence of their total length",
    decides="the lengths of the packed sequences",
    weight=2,
)
def packed_as_one(case: AuditedJob) -> float | None:
    """Formulas of batch and length, given the packed length (NeMo-RL#2790, Megatron-Bridge#3839)."""
    samples = [(s, n) for s, n in case.step.samples if s.text]
    if len(samples) < 2 or len(samples) < len(case.step.samples):
        return None  # a batch of equal lengths is no packing
    first = replace(samples[0][0], text=case.step.tokens, encoder=sum(s.encoder * n for s, n in samples))
    joined = replace(
        first, grids=tuple(g for s, n in samples for g in s.grids * n), pixels=tuple(p for s, n in samples for p in s.pixels * n)
    )
    return case.at(replace(case.step, samples=((joined, 1),), padded=None))


@mistake("padding_counted", about="lengths", says="padding is counted as tokens", decides="the share of padding in a batch", weight=2)
def padding_counted(case: AuditedJob) -> float | None:
    """Batches padded to one length, counted at it."""
    if case.step.padded is None:
        return None
    return case.at(Step(case.step.padded, case.step.attention, case.step.repeats))


@mistake(
    "latents_unpatched",
    about="latents",
    says="latents are counted before patching",
    decides="the number of latent tokens in a trace",
    weight=3,
)
def latents_unpatched(case: AuditedJob) -> float | None:
    """T·H·W tokens where the model patches 1 × 2 × 2: 10 to 12 times too high for Wan."""
    if not any(s.latent and s.latent_tokens is None for s, _ in case.step.samples):
        return None
    raw = tuple((replace(s, latent_tokens=math.prod(s.latent)) if s.latent else s, n) for s, n in case.step.samples)
    return case.at(replace(case.step, samples=raw))


@mistake(
    "guidance_doubled",
    about="guidance",
    says="two passes for guidance are counted where one runs",
    decides="the forward passes of a timestep",
)
def guidance_doubled(case: AuditedJob) -> float | None:
    """Distilled models embed the guidance and run once."""
    return 2.0 if case.formula.model.kind == "diffusion" and case.step.repeats % 2 else None


@mistake(
    "guidance_forgotten", about="guidance", says="one pass is counted where guidance runs two", decides="the forward passes of a timestep"
)
def guidance_forgotten(case: AuditedJob) -> float | None:
    """Classifier-free guidance runs the network twice a timestep."""
    return 0.5 if case.formula.model.kind == "diffusion" and case.step.repeats % 2 == 0 else None


@mistake(
    "data_parallel_for_world", about="ranks", says="FLOPs are divided by the data-parallel ranks instead of all", decides=_LAYOUT, weight=2
)
def data_parallel_for_world(case: AuditedJob) -> float | None:
    """With tensor, pipeline or sequence parallelism the samples of a data-parallel rank are computed by several GPUs."""
    return case.gpus / case.data_parallel if 1 < case.data_parallel < case.gpus else None


@mistake(
    "sequence_parallel_forgotten",
    about="ranks",
    says="FLOPs are divided by the ranks without sequence parallelism",
    decides=_LAYOUT,
    weight=2,
)
def sequence_parallel_forgotten(case: AuditedJob) -> float | None:
    """VeRL-Omni divides by the data-parallel size: with Ulysses the result is that many times too high."""
    return float(case.sequence_parallel) if case.sequence_parallel > 1 else None


@mistake("node_for_gpu", about="ranks", says="a node's FLOPs are divided by one GPU's peak", decides=_LAYOUT)
def node_for_gpu(case: AuditedJob) -> float | None:
    """prime-rl#20: 337 % MFU."""
    return float(case.node) if case.gpus >= case.node > 1 else None


@mistake("gpus_forgotten", about="ranks", says="the FLOPs of all GPUs are divided by one GPU's peak", decides=_LAYOUT)
def gpus_forgotten(case: AuditedJob) -> float | None:
    """A batch of the whole job beside one GPU's peak: far above 100 %."""
    return float(case.gpus) if case.gpus > 1 and case.gpus != case.node else None


@mistake("percent_as_ratio", about="unit", says="a number in percent is taken for a ratio", decides="the unit of the log")
def percent_as_ratio(case: AuditedJob) -> float | None:  # noqa: ARG001 - it can be made on every model
    """54.27 reported where 0.5427 is meant."""
    return 100.0


@mistake(
    "accumulation_forgotten",
    about="accumulation",
    says="one micro-batch is counted for the time of all",
    decides="gradient accumulation steps",
    weight=2,
)
def accumulation_forgotten(case: AuditedJob) -> float | None:
    """bionemo-recipes#1548: MFU low by the accumulation steps."""
    return 1 / case.accumulation if case.accumulation > 1 else None
