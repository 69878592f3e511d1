"""MFU of plain PyTorch steps: `with meter.measure(batch) as step: …`, then `step.measured`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ullage.adapters import ranks, weights
from ullage.adapters.batches import Batch, read_batch
from ullage.adapters.device import finish, known_gpu
from ullage.adapters.gpu_ofu import GpuOfuSampler, TrainedSpans
from ullage.adapters.meter import Lengths, MeasuredStep, Meter
from ullage.adapters.notes import Notes
from ullage.errors import UllageError
from ullage.models.formula import Formula
from ullage.models.passes import Training
from ullage.models.sample import Convention

Clock = Callable[[], float]
LengthsOf = Callable[[Any], Lengths]
_PARTS = 10**9  # of OFU: ranks add up integers


class TorchMeter:
    """Measures the steps of one model on this rank, or on all of them.

    `model` is a module with a `config` (transformers, PEFT, diffusers: what is frozen, adapted or a checkpoint is seen), or a
    configuration. `gpu` is the device's own name where it is not given. Ranks of `group` hold different samples (data
    parallel; all ranks without it): their FLOPs are summed and divided by `gpus`, all ranks of the run where it is not given,
    since tensor, pipeline and sequence parallel ranks worked on them too. With `gather=False` no rank asks the others: this
    rank's samples are divided by the ranks that share them. `lengths` reads a batch where its fields don't tell.

    Beside MFU stands the OFU of the same GPUs (with `gather=False`, of this rank's) in the same time, where NVML's GPM can be read.
    """

    def __init__(
        self,
        model: Any,
        *,
        gpu: str | None = None,
        gpus: int | None = None,
        group: Any = None,
        gather: bool = True,
        precision: str = "bf16",
        peak_tflops: str | float | None = None,
        attention: Convention | None = None,
        kind: str | None = None,
        training: Training | Callable[[Formula], Training] | None = None,
        lengths: LengthsOf | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.notes = Notes()
        gpu = gpu or known_gpu(precision, peak_tflops, self.notes)
        module = weights.bare(model) if hasattr(model, "named_parameters") else None
        config = model if module is None else getattr(module, "config", None)
        if config is None:
            raise UllageError(f"a {type(module).__name__} has no config", "give the configuration in place of the model")
        kind = kind or (None if module is None else weights.architecture(module))
        if training is None and module is not None:
            training = partial(weights.training, module, notes=self.notes)
        self.meter = Meter(
            config,
            gpu=gpu,
            precision=precision,
            peak_tflops=peak_tflops,
            attention=attention,
            kind=kind,
            training=training,
            notes=self.notes,
        )
        self.gpus, self.group, self.gather, self.clock, self._lengths = gpus, group, gather, clock, lengths
        self.ofu = GpuOfuSampler(self.notes)

    @contextmanager
    def measure(self, *batches: Any, forward_only: bool = False) -> Iterator[StepWindow]:
        """Yield the window of a step; when it ends, its `measured` is there. More micro-batches: `count` them in it.

        The device is waited for at both ends. A step that raises is not measured, and its error goes on.
        """
        window = StepWindow(self)
        for batch in batches:
            window.count(batch, forward_only)
        window.start()
        yield window
        window.end()

    def read(self, batch: Any) -> Batch:
        """Return the lengths of a batch; raises UllageError where they can't be read."""
        if self._lengths is not None:
            return Batch(self._lengths(batch))
        return read_batch(batch, self.meter.formula.model.kind)

    def together(self, flops: int, executed: int, unread: int, seconds: float, ofu: float | None = None) -> MeasuredStep:
        """Return what the ranks did together, or no FLOPs where a rank could not read a batch; OFU is the mean of what is known."""
        gpus = self.gpus
        if self.gather:
            parts, known = round((ofu or 0.0) * _PARTS), int(ofu is not None)
            flops, executed, unread, parts, known = ranks.summed([flops, executed, unread, parts, known], self.group)
            gpus = gpus or ranks.world()
            ofu = parts / known / _PARTS if known else None
        else:
            gpus = gpus or max(1, ranks.world() // ranks.world(self.group))
        measured = MeasuredStep(None) if unread else self.meter.rate(flops, executed, seconds, gpus)
        return measured._replace(ofu=ofu)


class StepWindow:
    """The steps since a clock was started: their FLOPs, their seconds, and when it ends, what was `measured`."""

    def __init__(self, meter: TorchMeter) -> None:
        self.meter = meter
        self.measured = MeasuredStep(None)
        self._trained = TrainedSpans(meter.ofu)
        self._flops = self._executed = self._unread = 0
        self._seconds = 0.0
        self._since: float | None = None

    @property
    def running(self) -> bool:
        """Whether the clock runs."""
        return self._since is not None

    def start(self) -> None:
        """Start the clock, when the device has finished what came before."""
        finish()
        self._since = self.meter.clock()
        self._trained.start()

    def pause(self) -> None:
        """Stop the clock for what is no training (an evaluation, a checkpoint), until `start`."""
        if self._since is not None:
            finish()
            self._seconds += self.meter.clock() - self._since
            self._since = None
            self._trained.pause()

    def count(self, batch: Any, forward_only: bool = False) -> None:
        """Add a batch; one that can't be read leaves the window without a result, said once in the log."""
        try:
            read = self.meter.read(batch)
            self._flops += self.meter.meter.flops(read.lengths, forward_only)
            self._executed += self.meter.meter.executed(read.padded or read.lengths, forward_only)
        except Exception as error:  # whatever a batch may hold: a run of a thousand GPUs does not end for its MFU
            self.meter.notes.say("batch", f"the lengths of a batch can't be read, and its steps have no MFU: {error}")
            self._unread += 1

    def end(self) -> MeasuredStep:
        """Return what was measured since the first start, and begin anew; with several ranks every one of them must call this."""
        self.pause()
        counted = self._flops, self._executed, self._unread, self._seconds
        self._flops = self._executed = self._unread = 0
        self._seconds = 0.0
        self.measured = self.meter.together(*counted, self._trained.mean_ofu())
        return self.measured
