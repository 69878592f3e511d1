"""MFU in Megatron-Bridge's loggers: `pretrain(config, forward_step, callbacks=[MfuCallback("config.json")])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.adapters import ranks
from ullage.adapters.loggers.logger import PREFIX
from ullage.adapters.notes import LOG, Notes
from ullage.adapters.optional import base
from ullage.adapters.torch import StepWindow, TorchMeter
from ullage.errors import UllageError


class MegatronBridgeMfuCallback(base("Callback", "megatron.bridge.training.callbacks")):  # type: ignore[misc]
    """Logs `ullage/mfu` and `ullage/tflops_per_gpu` every `log_interval` steps to the run's own TensorBoard, W&B and MLflow.

    `config` is that of the model at Hugging Face (a path, a mapping): Megatron's own says other things. A step's sequences
    are as many as samples were consumed, each `seq_length` tokens long; `lengths` tells those of packed ones: a function of
    the callback's context that returns the lengths of a step, of all ranks together. Time is that of training steps, without
    evaluations and checkpoints. What is unknown is said once, and the training goes on.
    """

    def __init__(self, config: Any, *, lengths: Callable[[Any], Any] | None = None, **options: Any) -> None:
        self.config, self.lengths, self.options = config, lengths, options
        self.window: StepWindow | None = None
        self._notes = Notes()
        self._step = self._samples = self._ended = 0

    def on_train_start(self, context: Any) -> None:
        """Compile the model's formula."""
        done = context.state.train_state
        self._step, self._samples, self._ended = done.step, done.consumed_train_samples, 0
        options = {"gpus": ranks.world(), **self.options, "gather": False}  # what is counted is the whole job's
        try:
            self.window = StepWindow(TorchMeter(self.config, **options))
        except UllageError as error:
            LOG.warning("ullage: this training has no MFU: %s", error)

    def on_train_step_start(self, context: Any) -> None:
        """Count the step before, which the training has now booked, and start the clock."""
        self._book(context.state)
        if self.window is not None:
            self.window.start()

    def on_train_step_end(self, context: Any) -> None:
        """Stop the clock."""
        if self.window is not None:
            self.window.pause()
            self._ended += 1
            if self.lengths is not None:
                self.window.count(self.lengths(context))

    def on_train_end(self, context: Any) -> None:
        """Count the last step, and stop."""
        self._book(context.state)
        self.window = None

    def _book(self, state: Any) -> None:
        """Count what was consumed since the last time, and log when the trainer does."""
        done, before = state.train_state, self._step
        samples = done.consumed_train_samples - self._samples
        skipped = done.step - before != self._ended
        self._step, self._samples, self._ended = done.step, done.consumed_train_samples, 0
        if self.window is None or done.step == before:
            return
        if self.lengths is None:
            self.window.count([int(state.cfg.model.seq_length)] * samples)
        if skipped:  # iterations_to_skip: samples are consumed that nobody trained on
            self.window = StepWindow(self.window.meter)
        elif done.step // state.cfg.logger.log_interval > before // state.cfg.logger.log_interval:
            self._log(state, {f"{PREFIX}{name}": value for name, value in self.window.end().named().items()}, done.step)

    def _log(self, state: Any, metrics: dict[str, float], step: int) -> None:
        """Write to the run's loggers: the rank that has one writes."""
        with self._notes.survive_logging_failures():
            if (writer := getattr(state, "tensorboard_logger", None)) is not None:
                for name, value in metrics.items():
                    writer.add_scalar(name, value, step)
            if (run := getattr(state, "wandb_logger", None)) is not None:
                run.log(metrics, step)
            if (mlflow := getattr(state, "mlflow_logger", None)) is not None:
                mlflow.log_metrics(metrics, step=step)


MfuCallback = MegatronBridgeMfuCallback
