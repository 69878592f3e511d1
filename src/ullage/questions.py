"""The questions as Python functions, with the same words as the commands."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ullage.errors import UllageError, did_you_mean
from ullage.units import HOUR_MS

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.models.passes import Backward
    from ullage.models.sample import Convention
    from ullage.models.shapes import Shapes
    from ullage.recording import Mode
    from ullage.reports.audit import AuditReport
    from ullage.reports.audit_fleet import FleetAudit
    from ullage.reports.fleet import FleetReport
    from ullage.reports.flops import FlopsReport, Layout, Question
    from ullage.reports.trace import TraceReport
    from ullage.sources.source import Options
    from ullage.sums.lanes.states import Host


def read_samples(
    source: str, *, hours: float | None = None, since: int | None = None, until: int | None = None, options: Options | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield what a place says as record batches of `ullage.tables.SAMPLES`: clean, in SI units, not yet settled.

    `source` is a file, a folder or a URL; `hours` looks back from now, `since` and `until` are ms since 1970. Raises
    UllageError for a place that does not exist or is no telemetry.
    """
    from ullage.sources.source import read_samples as read

    yield from read(source, _window(options, hours, since, until))


def fleet(
    source: str | Sequence[str],
    *,
    by: str | None = None,
    hours: float | None = None,
    since: int | None = None,
    until: int | None = None,
    jobs: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    gpu: str | None = None,
    options: Options | None = None,
) -> FleetReport:
    """Return how full a fleet is and where the shortfall goes; the command `ullage fleet` prints the same.

    `source` is a file, a folder, a store, a URL, or several; `by` one of `ullage.reports.fleet.KEYS`; `hours` looks back
    from now, `since` and `until` are ms since 1970; `prices` is money per GPU-hour by GPU name ("" for all); `gpu` names the
    GPU where the samples don't. Raises UllageError for what the user can mend.
    """
    from ullage.intake import opened
    from ullage.reports.fleet import Question
    from ullage.reports.fleet import fleet as answer

    options = _window(options, hours, since, until)
    question = Question(by=by, since=options.since, until=options.until, prices=dict(prices or {}), model=gpu)
    with opened([source] if isinstance(source, str) else source, jobs=jobs, options=options) as taken:
        return answer(taken.samples, taken.jobs, question, taken.problems.lines())


def _window(options: Options | None, hours: float | None, since: int | None, until: int | None) -> Options:
    from ullage.sources.source import Options

    if hours is not None:
        since = int(time.time() * 1000 - hours * HOUR_MS)
    return dataclasses.replace(options or Options(), since=since, until=until)


def flops(config: str | os.PathLike[str] | Mapping[str, Any], *, guidance_scale: float | None = None, **asked: Any) -> FlopsReport:
    """Return the FLOP ledger of a model step, and with `step_time` (s) MFU and HFU; the command `ullage flops` prints the same.

    `config` is a config.json, a folder with one, a diffusers folder, or a mapping. The step: batch, seq, seqlens, encoder_seq,
    decoder_seq, context, logits, image, image_tokens, grid, latent, latent_tokens, reference_tokens, prompt_tokens,
    audio_frames, timesteps, forward_passes or guidance_scale, accumulation, padded_seq (`ullage.models.shapes.Shapes`).
    Training: forward_only, backward, freeze, freeze_layers, lora_rank, lora_targets, recompute, reentrant
    (`ullage.models.passes.Training`). Counting: attention ("causal" or "full"), imitate (a framework), config_kind, mtp. Use:
    step_time, gpus, gpu, precision, peak_tflops, dp, tp, pp, cp, sp, ep (or a mapping of them, layout). Raises UllageError
    for what the user can mend.

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


def audit_mfu(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    reported: float,
    ofu: float,
    tile_efficiency: float | None = None,
    error: float | None = None,
    node: int = 8,
    most: int = 10,
    **asked: Any,
) -> AuditReport:
    """Return which known mistakes explain a reported MFU beside OFU; the command `ullage audit mfu` prints the same.

    `reported`, `ofu` and `tile_efficiency` are ratios, `error` is OFU's relative error, `node` the GPUs of a machine; the job
    is described as for `flops`. Raises UllageError for what the user can mend.
    """
    from ullage.audit.mfu import OFU_ERROR
    from ullage.models.reading import read_config
    from ullage.reports.audit import Reported
    from ullage.reports.audit import audit_mfu as answer

    said = Reported(reported, ofu, tile_efficiency, OFU_ERROR if error is None else error, node)
    return answer(read_config(config), step_question(**asked), said, most=most)


def audit_fleet(
    source: str | Sequence[str],
    *,
    configs: str | os.PathLike[str],
    jobs: Sequence[str] = (),
    gpu: str | None = None,
    tile_efficiency: float | None = None,
    error: float | None = None,
    node: int = 8,
    options: Options | None = None,
) -> FleetAudit:
    """Return the audit of every MFU that the jobs of a fleet report; `ullage audit mfu --fleet` prints the same.

    `source`, `jobs` and `gpu` are as for `fleet`; `configs` is a folder with a configuration for each job or job name
    (`ullage.audit.configs.Folder`). Raises UllageError for what the user can mend; jobs that can't be audited are left out.
    """
    from pathlib import Path

    from ullage.audit.configs import Folder
    from ullage.audit.mfu import OFU_ERROR
    from ullage.intake import opened
    from ullage.models.config import Config
    from ullage.reports.audit_fleet import Measure
    from ullage.reports.audit_fleet import audit_fleet as answer
    from ullage.reports.fleet import Question as FleetQuestion
    from ullage.reports.fleet import fleet as measured
    from ullage.reports.flops import Question as StepQuestion

    folder = Folder(Path(configs).expanduser())

    def describe(job: str, name: str | None) -> tuple[Config, StepQuestion] | None:
        found = folder.get(job, name)
        return None if found is None else (found.config, step_question(**found.step))

    question = FleetQuestion(by="job", model=gpu)
    with opened([source] if isinstance(source, str) else source, jobs=jobs, options=options) as taken:
        report = measured(taken.samples, taken.jobs, question, taken.problems.lines())
        return answer(report, taken.jobs, describe, Measure(tile_efficiency, OFU_ERROR if error is None else error, node))


def trace(
    files: str | Sequence[str],
    *,
    mode: Mode | None = None,
    region: str | None = None,
    window: str = "first-last",
    ranks: Mapping[str, int] | None = None,
    price: float | None = None,
    strict: bool = False,
    limit: int = 64 * 2**30,
    workers: int | None = None,
    host: Host = "busiest",
    progress: Callable[[str], None] | None = None,
) -> TraceReport:
    """Return the host and device trees of one run; the command `ullage trace` prints the same.

    `files` is a trace, a folder or a glob of them (a file a rank), or several. `mode` counts collectives as work ("talp") or
    apart ("ai"); None takes what suits the source. `window` is "first-last", "steps" or "A:B" seconds; `ranks` gives ranks by
    file name to files that don't tell; `price` is money per GPU-hour; `strict` refuses damaged files; `limit` is the most
    bytes that a file may unpack to; `workers` how many files are read side by side; `host` makes a
    process' host lane its busiest thread in the GPU's interface, or the "union" of all. Raises UllageError for what the user can mend.
    """
    from ullage.profiles import Asked, profile
    from ullage.reports.trace import Question
    from ullage.reports.trace import trace as answer
    from ullage.sums.lanes.window import parse
    from ullage.traces.trace import Options

    chosen = parse(window)
    options = Options(strict=strict, limit=limit, progress=progress or (lambda _: None))
    read = profile(files if isinstance(files, str) else list(files), Asked(chosen, dict(ranks or {}), options, workers, host))
    return answer(read, chosen.words, Question(mode, region, price))


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
    precision: str | Mapping[str, str] = "bf16",
    step_time: float | None = None,
    gpus: int | None = None,
    gpu: str | None = None,
    peak_tflops: str | float | None = None,
    layout: Mapping[str, int] | None = None,
    tile_efficiency: float = 1.0,
    mtp: bool = False,
    **shapes: Any,
) -> Question:
    """Return the question about a step in the words of `flops`; raises UllageError for a word that no step has."""
    from ullage.models.passes import Training
    from ullage.reports.flops import Question

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
    return Question(
        shapes=described,
        training=training,
        attention=attention,
        kind=config_kind,
        imitated=imitate,
        precisions={"*": precision} if isinstance(precision, str) else precision,
        step_time=step_time,
        gpus=gpus,
        gpu=gpu,
        peak_tflops=peak_tflops,
        layout=laid,
        tile_efficiency=tile_efficiency,
        mtp=mtp,
    )


def _described(layout: Mapping[str, int], shapes: Mapping[str, Any]) -> tuple[Shapes, Layout]:
    """Return a step's shapes and layout; the layout's sizes may stand among the shapes. Raises UllageError for other words."""
    from ullage.models.shapes import Shapes
    from ullage.reports.flops import Layout

    sizes = {f.name for f in dataclasses.fields(Layout)}
    known = {f.name for f in dataclasses.fields(Shapes)} | sizes
    for word in shapes:
        if word not in known:
            raise UllageError(f"a step has no '{word}'", did_you_mean(word, known, "ullage flops --help"))
    for word in layout:
        if word not in sizes:
            raise UllageError(f"a layout has no '{word}'", f"it has {', '.join(sorted(sizes))}")
    laid = Layout(**{**layout, **{word: size for word, size in shapes.items() if word in sizes}})
    return Shapes(**{"sp": laid.sp, **{word: shape for word, shape in shapes.items() if word not in sizes}}), laid


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of a list, or of a text as the command takes it.

    >>> _words("q_proj,v_proj")
    ('q_proj', 'v_proj')
    """
    return tuple(word for word in given.split(",") if word) if isinstance(given, str) else tuple(given)
