"""MFU of a step from the lengths of its sequences and the seconds it took: compiled once for a configuration, no library needed."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ullage.adapters.notes import Notes
from ullage.errors import UllageError
from ullage.gpus import chip, overrides
from ullage.gpus.precision import canonical
from ullage.metrics.mfu import flops_per_gpu, hfu, mfu
from ullage.models.config import Config
from ullage.models.formula import Formula, compiled
from ullage.models.passes import Training, booked
from ullage.models.reading import read_config
from ullage.models.sample import Convention, Sample
from ullage.models.work import Work
from ullage.views.numbers import percent

Lengths = Sequence[int] | Sequence[Sample]  # of sequences; Samples where a model works on more than text
Count = Callable[[list[Any]], int]


class MeasuredStep(NamedTuple):
    """What a step did; None is not known, which is never 0.

    `flops` are the model's, all GPUs together; `tflops_per_gpu` is model TFLOP/s of one of them. `hfu` counts recomputation
    and padding too. `ofu` is what the GPUs' own counters say, where somebody reads them.
    """

    flops: int | None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    ofu: float | None = None

    def named(self) -> dict[str, float]:
        """Return what a log shows: what is known, and the HFU where it is not the MFU.

        >>> MeasuredStep(10, tflops_per_gpu=400.0, mfu=0.4, hfu=0.4).named()
        {'tflops_per_gpu': 400.0, 'mfu': 0.4}
        """
        hfu = None if self.hfu == self.mfu else self.hfu
        shown = {"tflops_per_gpu": self.tflops_per_gpu, "mfu": self.mfu, "hfu": hfu, "ofu": self.ofu}
        return {name: value for name, value in shown.items() if value is not None}


class Meter:
    """Counts the steps of one model, and divides by what `gpus` GPUs could have done.

    `config` is a path, a mapping, or what has `to_dict`. Without `gpu`, `peak_tflops` and ULLAGE_PEAK_TFLOPS no peak is known:
    then there are TFLOP/s, and no MFU. `training` says what is frozen, adapted or recomputed, or finds it in the formula.
    Raises UllageError for an unknown architecture, GPU or precision: before the first step, never at one.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Any,
        *,
        gpu: str | None = None,
        gpus: int = 1,
        precision: str = "bf16",
        peak_tflops: str | float | None = None,
        attention: Convention | None = None,
        kind: str | None = None,
        training: Training | Callable[[Formula], Training] | None = None,
        notes: Notes | None = None,
    ) -> None:
        if gpus < 1:
            raise UllageError(f"{gpus} GPUs can't work on a step", "give gpus from 1 on")
        self.formula = compiled(read(config), kind)
        self.gpu, self.gpus, self.precision = gpu, gpus, canonical(precision)
        self.peak = peak(gpu, precision, peak_tflops)
        self.notes = notes or Notes()
        training = training(self.formula) if callable(training) else training
        chosen = replace(training or Training(), spares=self.formula.model.kind != "diffusion")
        convention = attention or self.formula.attention
        self._trained = _count(self.formula, replace(chosen, forward_only=False), convention)
        self._forward = _count(self.formula, Training(forward_only=True), convention)
        again = _again(self.formula, chosen)
        self._again = _count(again, Training(forward_only=True), convention) if again.works else None

    def flops(self, lengths: Lengths, forward_only: bool = False) -> int:
        """Return the model FLOPs of a step; raises UllageError for lengths that no step has."""
        return (self._forward if forward_only else self._trained)(_whole(lengths))

    def executed(self, lengths: Lengths, forward_only: bool = False) -> int:
        """Return the FLOPs of a step with what is recomputed; for padding, give the lengths that the hardware saw."""
        return self._both(_whole(lengths), None, forward_only)[1]

    def step(self, seqlens: Lengths, seconds: float, forward_only: bool = False, *, padded: Lengths | None = None) -> MeasuredStep:
        """Return what a step of these sequences did, `gpus` GPUs together; `padded` are the lengths that the hardware saw.

        Raises nothing that a step may cause: lengths that can't be counted are said once in the log.

        >>> tiny = dict(model_type="llama", hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16, vocab_size=10)
        >>> Meter(tiny, peak_tflops=1e-6).step([4], seconds=0.05)
        MeasuredStep(flops=34560, tflops_per_gpu=6.912e-07, mfu=0.6912, hfu=0.6912, ofu=None)
        """
        try:
            flops, executed = self._both(_whole(seqlens), None if padded is None else _whole(padded), forward_only)
        except UllageError as error:
            self.notes.say("lengths", error)
            return MeasuredStep(None)
        return self.rate(flops, executed, seconds)

    def rate(self, flops: int, executed: int, seconds: float, gpus: int | None = None) -> MeasuredStep:
        """Return what FLOPs of `gpus` GPUs together are a second, and of their peak.

        An MFU above 1 can't be: it is None, and the log says once what is likeliest wrong; so is a HFU above 1.
        """
        gpus = self.gpus if gpus is None else gpus
        if not 0 < seconds < math.inf:
            self.notes.say("seconds", f"a step can't take {seconds!r} s; it has no MFU")
            return MeasuredStep(flops)
        each: float = flops_per_gpu(flops, seconds, gpus)
        if self.peak is None:
            return MeasuredStep(flops, each / 1e12)
        useful: float | None = mfu(flops, seconds, gpus, self.peak)
        whole: float | None = useful if executed == flops else hfu(executed, seconds, gpus, self.peak)
        if useful is not None and useful > 1:
            self.notes.say("mfu", self._impossible(useful, gpus))
            useful = whole = None
        elif whole is not None and whole > 1:
            self.notes.say("hfu", f"a HFU of {percent(whole)} can't be: less is recomputed than was said, or padding is not computed")
            whole = None
        return MeasuredStep(flops, each / 1e12, useful, whole)

    def _both(self, lengths: list[Any], padded: list[Any] | None, forward_only: bool) -> tuple[int, int]:
        """Return the model FLOPs and the executed ones."""
        count = self._forward if forward_only else self._trained
        flops = count(lengths)
        seen = lengths if padded is None else padded
        executed = flops if padded is None else count(seen)
        return flops, executed if forward_only or self._again is None else executed + self._again(seen)

    def _impossible(self, value: float, gpus: int) -> str:
        causes = [f"more GPUs than one worked on the step (at least {math.ceil(value)}): give gpus"] if gpus == 1 else []
        causes.append("the clock stopped before the device had finished: synchronise it first")
        if value <= 2 and self.precision in ("bf16", "fp16") and self.gpu and "fp8" in chip.find(self.gpu).precisions:
            causes.append('products were done in FP8: give precision="fp8"')
        causes.append(f"it is another GPU than {self.gpu or 'the peak given'}: give gpu, or peak_tflops")
        return f"an MFU of {percent(value)} can't be, and is left out; likeliest: {'; or '.join(causes)}"


def read(config: Any) -> Config:
    """Return the configuration in a path, a mapping, or an object with `to_dict`."""
    return read_config(config.to_dict() if hasattr(config, "to_dict") else config)


def peak(gpu: str | None, precision: str, override: str | float | None = None) -> float | None:
    """Return a GPU's dense peak in FLOP/s, or None where nothing says it; raises UllageError as `ullage.peak` does.

    >>> peak(None, "bf16", 989.4)
    989400000000000.0
    """
    given = overrides.peaks(os.environ.get(overrides.PEAK, "") if override is None else override)
    if gpu is None and canonical(precision) not in given:
        return None
    return chip.peak(gpu or "", precision, override=override)


def _whole(lengths: Lengths) -> list[Any]:
    """Return Samples as they are, and lengths as Python's integers: NumPy's overflow when squared."""
    items: list[Any] = list(lengths)
    if not items or isinstance(items[0], Sample):
        return items
    whole = list(map(int, items))
    if min(whole) < 0:
        raise UllageError(f"a sequence can't have {min(whole)} tokens", "give lengths from 0 on")
    return whole


def _count(formula: Formula, training: Training, attention: Convention) -> Count:
    """Return the function from lengths or Samples to FLOPs; lengths, as a trainer gives them every step, take microseconds."""
    lengths_of, sample_of = formula.per_lengths(training, attention), formula.per_sample(training, attention)
    return lambda items: sum(map(sample_of, items)) if items and isinstance(items[0], Sample) else lengths_of(items)


def _again(formula: Formula, training: Training) -> Formula:
    """Return what is recomputed, as a formula of its own."""
    rows = [row for row in booked(formula.works, replace(training, forward_only=False)) if row.pass_ == "recompute"]
    return Formula(formula.model, formula.name, formula.config, tuple(Work(row.name, row.quantity, row.coefficient) for row in rows))
