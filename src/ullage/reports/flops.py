"""What a step costs, and how much of the GPUs' peak went into it: the answer of `ullage flops`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ullage.errors import UllageError
from ullage.gpus import chip as gpus
from ullage.gpus.precision import canonical
from ullage.metrics.mfu import flops_per_gpu, hfu, mfu, model_efficiency
from ullage.metrics.peaks import effective_peak
from ullage.models.config import Config
from ullage.models.conventions import convention
from ullage.models.conventions.outline import BY_FIELDS, bare
from ullage.models.formula import Formula, compiled, precision_of
from ullage.models.ledger import Ledger, Status
from ullage.models.model import MODELS, names
from ullage.models.passes import Training
from ullage.models.sample import Convention
from ullage.models.shapes import Shapes, step
from ullage.models.step import Step
from ullage.models.tracing.shelf import stored
from ullage.views.numbers import percent
from ullage.views.shown import ShownByView

if TYPE_CHECKING:
    from ullage.reports.gemms.ledger import TilesReport


@dataclass(frozen=True)
class ParallelLayout:
    """How GPUs share a step: data, tensor, pipeline, context (Ulysses: `sp`) and expert parallel sizes.

    The world is dp × tp × pp × cp × sp; experts are spread over ranks that are there already. Megatron's sequence
    parallelism runs on the tensor-parallel ranks and adds none: leave `sp` at 1 for it.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    sp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        for name, size in asdict(self).items():
            if not 0 < size < 1e12:
                raise UllageError(f"--{name} {size} can't be", "give a number above 0")

    @property
    def world(self) -> int:
        """The number of GPUs.

        >>> ParallelLayout(dp=8, tp=4, pp=2, ep=8).world
        64
        """
        return self.dp * self.tp * self.pp * self.cp * self.sp


@dataclass(frozen=True)
class StepQuestion:
    """What is asked about a configuration: the step, how it trains, by which convention, and on what it ran.

    `attention` None is the convention that is right for the model. `imitated` names a framework whose count is to be
    given (`ullage.models.conventions`). `precisions` are patterns of work and their precision, the last match wins.
    `traced` are FLOPs of products with weights by precision, as a trace shows them: they say the peak where `precisions` are empty.
    `step_time` is in s, `gpus` the GPUs that worked on the step, `peak_tflops` a peak that goes before the tables,
    `tile_efficiency` the share of executed FLOPs that tiles did not pad, for the OFU to expect. `mtp` counts the layers that
    predict further tokens, which trainers build and the Transformers library does not.
    """

    shapes: Shapes = field(default_factory=Shapes)
    training: Training = field(default_factory=Training)
    attention: Convention | None = None
    kind: str | None = None
    imitated: str | None = None
    precisions: Mapping[str, str] = field(default_factory=dict)
    traced: Mapping[str, float] = field(default_factory=dict)
    step_time: float | None = None
    gpus: int | None = None
    gpu: str | None = None
    peak_tflops: str | float | None = None
    layout: ParallelLayout = field(default_factory=ParallelLayout)
    tile_efficiency: float = 1.0
    mtp: bool = False

    def __post_init__(self) -> None:
        if self.attention not in (None, "causal", "full"):
            raise UllageError(f"attention '{self.attention}' is not known", "say causal or full")
        for word, value in (("step-time", self.step_time), ("gpus", self.gpus)):
            if value is not None and not 0 < value < 1e12:
                raise UllageError(f"--{word} {value} can't be", "give a number above 0")
        if not 0 < self.tile_efficiency <= 1:
            raise UllageError(f"a tile efficiency of {self.tile_efficiency:g} can't be", "give a ratio above 0 and at most 1")


@dataclass(frozen=True)
class FlopsReport(ShownByView, view="ullage.render.flops"):
    """The ledger of a step, and with a step time MFU and HFU; None is not known.

    Every number of the ledger is here under its own name: `forward`, `backward`, `training`, `executed`, `terms`,
    `convention`, `status`. `peak` is one GPU's in FLOP/s, effective over the precisions (eq. 12), `peak_source` whence. `tiles` are those
    to expect of its products, where that was asked for; `by` is what a row of its table is.
    """

    ledger: Ledger
    step: Step
    gpus: int = 1
    step_time: float | None = None
    peak: float | None = None
    peak_source: str | None = None
    notes: tuple[str, ...] = ()
    tile_efficiency: float = 1.0
    tiles: TilesReport | None = None
    by: Literal["group", "name"] = "group"

    def __getattr__(self, name: str) -> object:
        if name.startswith("_") or name == "ledger":
            raise AttributeError(name)
        return getattr(self.ledger, name)

    @property
    def tflops_per_gpu(self) -> float | None:
        """Model TFLOP/s per GPU."""
        rate: float | None = None if self.step_time is None else flops_per_gpu(self.ledger.training, self.step_time, self.gpus)
        return None if rate is None else rate / 1e12

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization (eq. 10)."""
        return self._utilization(mfu, self.ledger.training)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOPs utilization, by formula: also what OFU should show where no tile is partly empty."""
        return self._utilization(hfu, self.ledger.executed)

    @property
    def expected_ofu(self) -> float | None:
        """What the counters should show: HFU over the tile efficiency, for padding to tiles is executed too."""
        return None if self.hfu is None else self.hfu / self.tile_efficiency

    @property
    def model_efficiency(self) -> float | None:
        """Model FLOPs over executed FLOPs."""
        value: float | None = model_efficiency(self.ledger.training, self.ledger.executed)
        return value

    def _utilization(self, metric: object, flops: int) -> float | None:
        if self.step_time is None or self.peak is None:
            return None
        value: float = metric(flops, self.step_time, self.gpus, self.peak)  # type: ignore[operator]
        return value


def flops(config: Config, question: StepQuestion) -> FlopsReport:
    """Return the FLOPs of a step, and with a step time how much of the peak they are.

    Raises UllageError for an unknown architecture, wrong shapes, a GPU or precision that is not known, and for an MFU above 1.
    """
    formula = formula_of(config, question)
    attention = question.attention or formula.attention
    trained = training(question)
    described, notes = step(question.shapes, formula, attention)
    ledger = _ledger(formula, described, trained, question)
    peak, source = _peak(question, ledger)
    notes += _quantized(config, question, ledger) + _predicted(config, question)
    report = FlopsReport(ledger, described, world(question), question.step_time, peak, source, tuple(notes), question.tile_efficiency)
    _refuse_impossible(report, question, formula)
    return report


def formula_of(config: Config, question: StepQuestion) -> Formula:
    """Return the formula; a framework that reads fields alone is imitated for an architecture that only it knows, too."""
    if question.imitated in BY_FIELDS and not any(name in MODELS for name in names(config)):
        return bare(config)
    if not question.mtp:
        return compiled(config, question.kind)
    formula = compiled(replace(config, values={**config.values, "count_mtp": True}), question.kind)
    if not any(work.name.startswith("mtp.") for work in formula.works):
        raise UllageError(f"{config.place} has no layers that predict further tokens", "leave --mtp out; DeepSeek V3 and GLM-4.5 have them")
    return formula


def _predicted(config: Config, question: StepQuestion) -> list[str]:
    """Return a note where layers that predict further tokens are in the configuration and not asked for."""
    ahead = config.values.get("num_nextn_predict_layers")
    if question.mtp or question.training.forward_only or not isinstance(ahead, int) or ahead < 1:
        return []
    return [f"num_nextn_predict_layers is {ahead}, and what predicts further tokens is not counted: --mtp, where the trainer builds it"]


def _quantized(config: Config, question: StepQuestion, ledger: Ledger) -> list[str]:
    """Return a note where weights are kept in FP8 or FP4 and the peak is another's: products may run in what weights are kept in."""
    kept = config.section("quantization_config", optional=True).values.get("quant_method")
    names = {"fp8": "fp8", "mxfp4": "fp4", "nvfp4": "fp4"}
    if question.gpu is None or kept not in names or {"fp8", "fp4"} & set(ledger.by_precision):
        return []
    listed = " and ".join(p.upper() for p in ledger.by_precision)
    return [f"quantization_config says {kept}, and the peak is that of {listed}: --precision {names[str(kept)]} where products run in it"]


def _status(formula: Formula, question: StepQuestion) -> Status:
    """Return "certified" where a certificate of this very configuration and formula is kept."""
    kept = stored(formula.config, question.kind)
    return "certified" if kept is not None and kept.equal else "formula"


def training(question: StepQuestion) -> Training:
    """Return how the step trains; a step of generation has no backward pass."""
    if question.shapes.decodes and not question.training.forward_only:
        return Training(forward_only=True)
    return question.training


def _ledger(formula: Formula, described: Step, training: Training, question: StepQuestion) -> Ledger:
    counted = {
        "attention": described.attention,
        "backward": "none" if training.forward_only else training.counted,
        "recompute": training.recompute if isinstance(training.recompute, str) else list(training.recompute),
        "logits": question.shapes.logits,
    }
    precisions = {pattern: canonical(p) for pattern, p in question.precisions.items()}
    if question.imitated:
        terms, note = convention.terms(question.imitated, formula, described, training)
        terms = tuple(replace(term, precision=precision_of(term.name, precisions)) for term in terms)
        return Ledger(terms, formula.name, formula.model.family, question.imitated, counted, notes=(note,))
    terms = formula.terms(described, training, precisions)
    return Ledger(terms, formula.name, formula.model.family, described.attention, counted, _status(formula, question))


def world(question: StepQuestion) -> int:
    """Return how many GPUs worked on the step; raises UllageError when the layout and `gpus` disagree."""
    world = question.layout.world
    if question.gpus is None:
        return world
    if world not in (1, question.gpus):
        raise UllageError(
            f"--gpus {question.gpus:,} and a layout of {world:,} ranks (dp × tp × pp × cp × sp) disagree",
            "every rank is a GPU: correct one of them, or leave --gpus out",
        )
    return question.gpus


def _peak(question: StepQuestion, ledger: Ledger) -> tuple[float | None, str | None]:
    if question.gpu is None and question.peak_tflops is None:
        return None, None
    name, traced = question.gpu or "", bool(question.traced) and not question.precisions
    done = split_as_traced(ledger, question.traced) if traced else ledger.by_precision
    peaks = {p: gpus.peak(name, p, override=question.peak_tflops) for p in done}
    peak: float | None = effective_peak(done, peaks)
    listed = " and ".join(p.upper() for p in peaks) + (" as the trace shows" if traced else "")
    if question.peak_tflops is not None:
        return peak, f"given, for {listed}"
    chip = gpus.find(name)
    return peak, f"{chip.name}, dense {listed}" + (f" ({chip.warning})" if chip.warning else "")


_SCORES = (".scores", ".values")  # attention's own products, which no weight takes part in


def split_as_traced(ledger: Ledger, traced: Mapping[str, float]) -> dict[str, float]:
    """Return a step's executed FLOPs by precision, its products with weights split as those of a trace; attention's own stay as booked.

    >>> from ullage.models.ledger import Term
    >>> terms = Term("mlp.up", "mlp", "forward", 900), Term("attention.scores", "attention", "forward", 100)
    >>> split_as_traced(Ledger(terms, "A", "a", "causal"), {"fp8": 2.0, "bf16": 1.0})
    {'bf16': 400.0, 'fp8': 600.0}
    """
    found: dict[str, float] = {}
    weights = 0
    for term in ledger.terms:
        if term.name.endswith(_SCORES):
            found[term.precision] = found.get(term.precision, 0.0) + term.flops
        else:
            weights += term.flops
    whole = sum(traced.values())
    for precision, flops_ in traced.items():
        found[precision] = found.get(precision, 0.0) + weights * flops_ / whole
    return found


def _refuse_impossible(report: FlopsReport, question: StepQuestion, formula: Formula) -> None:
    value = report.mfu
    if value is None or value <= 1:
        return
    if not math.isfinite(value):
        raise UllageError("the MFU is not a number", "check --step-time")
    causes = list(_causes(value, report, question, formula))
    raise UllageError(
        f"an MFU of {percent(value)} can't be: {report.tflops_per_gpu:,.0f} TFLOP/s per GPU is above the peak"
        f" of {(report.peak or 0) / 1e12:,.0f} TFLOP/s",
        "likeliest: " + "; or ".join(causes),
    )


def _causes(value: float, report: FlopsReport, question: StepQuestion, formula: Formula) -> list[str]:
    """Return what may have gone wrong, the likeliest first: only mistakes that are large enough."""
    causes = []
    if report.gpus == 1:
        causes.append(f"more GPUs than one worked on the step (at least {math.ceil(value)}): give --gpus")
    if question.gpu and value <= 2 and list(report.ledger.by_precision) == ["bf16"] and "fp8" in gpus.find(question.gpu).precisions:
        causes.append("products were done in FP8: give --precision fp8")
    if formula.model.causal and report.step.attention == "full":
        causes.append("attention is causal: leave --attention full out")
    causes.append("--step-time is not that of the whole step (all micro-batches), --batch is more than it worked on, or it is another GPU")
    return causes
