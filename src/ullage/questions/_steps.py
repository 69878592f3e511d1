"""What a step of a model costs, and how its words become a question."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, did_you_mean

if TYPE_CHECKING:
    from ullage.models.passes import Backward
    from ullage.models.sample import Convention
    from ullage.models.shapes import Shapes
    from ullage.reports.flops import FlopsReport, ParallelLayout, StepQuestion


def flops(config: str | os.PathLike[str] | Mapping[str, Any], *, guidance_scale: float | None = None, **asked: Any) -> FlopsReport:
    """Return the FLOP ledger of a model step, and with `step_time` (s) MFU and HFU; the command `ullage flops` prints the same.

    `config` is a config.json, a folder with one, a diffusers folder, or a mapping. The step: batch, seq, seqlens, encoder_seq,
    decoder_seq, context, logits, image, image_tokens, grid, latent, latent_tokens, reference_tokens, prompt_tokens,
    audio_frames, timesteps, forward_passes or guidance_scale, accumulation, padded_seq (`ullage.models.shapes.Shapes`).
    Training: forward_only, backward, freeze, freeze_layers, lora_rank, lora_targets, recompute, reentrant
    (`ullage.models.passes.Training`). Counting: attention ("causal" or "full"), imitate (a framework), config_kind, mtp. Use:
    step_time, gpus, gpu, precision, peak_tflops, dp, tp, pp, cp, sp, ep (or a mapping of them, layout). Raises UllageError
    for what the user can fix.

    >>> tiny = dict(model_type="llama", hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=10)
    >>> flops(tiny, batch=1, seq=4, attention="full").forward
    11904
    """
    from ullage.models.reading import read_config
    from ullage.models.shapes import forward_passes
    from ullage.reports.flops import flops as answer

    found = read_config(config)
    if guidance_scale is not None:
        asked["forward_passes"] = forward_passes(found, asked.get("forward_passes"), guidance_scale)
    return answer(found, step_question(**asked))


def step_question(
    *,
    attention: Convention | None = None,
    forward_only: bool = False,
    backward: Backward = "twice",
    freeze: str | Sequence[str] = (),
    freeze_layers: int = 0,
    lora_rank: int | None = None,
    lora_targets: str | Sequence[str] = ("all-linear",),
    recompute: str | Sequence[str] = "none",
    reentrant: bool = False,
    config_kind: str | None = None,
    imitate: str | None = None,
    precision: str | Mapping[str, str] | None = None,
    step_time: float | None = None,
    gpus: int | None = None,
    gpu: str | None = None,
    peak_tflops: str | float | None = None,
    layout: Mapping[str, int] | None = None,
    tile_efficiency: float = 1.0,
    mtp: bool = False,
    **shapes: Any,
) -> StepQuestion:
    """Return the question about a step in the words of `flops`; raises UllageError for a word that no step has."""
    from ullage.models.passes import Training
    from ullage.reports.flops import StepQuestion

    described, laid = _described(layout or {}, shapes)
    training = Training(
        forward_only=forward_only,
        backward=backward,
        frozen=_words(freeze),
        frozen_layers=freeze_layers,
        lora_rank=lora_rank,
        lora_targets=_words(lora_targets),
        recompute=recompute if recompute in ("none", "full") else _words(recompute),
        reentrant=reentrant,
    )
    return StepQuestion(
        shapes=described,
        training=training,
        attention=attention,
        kind=config_kind,
        imitated=imitate,
        precisions={"*": precision} if isinstance(precision, str) else precision or {},
        step_time=step_time,
        gpus=gpus,
        gpu=gpu,
        peak_tflops=peak_tflops,
        layout=laid,
        tile_efficiency=tile_efficiency,
        mtp=mtp,
    )


def _described(layout: Mapping[str, int], shapes: Mapping[str, Any]) -> tuple[Shapes, ParallelLayout]:
    """Return a step's shapes and layout; the layout's sizes may stand among the shapes. Raises UllageError for other words."""
    from ullage.models.shapes import Shapes
    from ullage.reports.flops import ParallelLayout

    sizes = {f.name for f in dataclasses.fields(ParallelLayout)}
    known = {f.name for f in dataclasses.fields(Shapes)} | sizes
    for word in shapes:
        if word not in known:
            raise UllageError(f"a step has no '{word}'", did_you_mean(word, known, "ullage flops --help"))
    for word in layout:
        if word not in sizes:
            raise UllageError(f"a layout has no '{word}'", f"it has {', '.join(sorted(sizes))}")
    laid = ParallelLayout(**{**layout, **{word: size for word, size in shapes.items() if word in sizes}})
    return Shapes(**{"sp": laid.sp, **{word: shape for word, shape in shapes.items() if word not in sizes}}), laid


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a list, or of a text as the command takes it.

    >>> _words("q_proj,v_proj")
    ('q_proj', 'v_proj')
    """
    return tuple(word for word in given.split(",") if word) if isinstance(given, str) else tuple(given)
