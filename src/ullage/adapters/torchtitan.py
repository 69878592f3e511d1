"""MFU in torchtitan's metrics: `MfuCallback.attach(trainer, "config.json")` between making a Trainer and `trainer.train()`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from ullage.adapters.loggers.logger import PREFIX
from ullage.adapters.notes import LOG
from ullage.adapters.torch import StepWindow, TorchMeter
from ullage.errors import UllageError


class TorchtitanMfuCallback:
    """Adds `ullage/mfu` and `ullage/tflops_per_gpu` to what torchtitan logs, to its own TensorBoard and W&B, beside its `mfu(%)`.

    `config` is that of the model at Hugging Face (a path, a mapping): torchtitan's own says other things. The documents that
    are packed into a sequence do not see each other, which torchtitan's formula does not know. Each rank speaks of its own
    samples, divided by the ranks that share them (tensor, pipeline, context parallel), as torchtitan's own figures do.
    """

    def __init__(self, config: Any, **options: Any) -> None:
        self.config, self.options = config, options
        self.window: StepWindow | None = None

    @classmethod
    def attach(cls, trainer: Any, config: Any, **options: Any) -> TorchtitanMfuCallback:
        """Return a callback that counts what a trainer's steps are given; an unknown model is said, and nothing is attached."""
        callback = cls(config, **options)
        given = {"gpus": int(trainer.parallel_dims.non_data_parallel_size), **options, "gather": False}
        try:
            callback.window = StepWindow(TorchMeter(config, **given))
        except UllageError as error:
            LOG.warning("ullage: this training has no MFU: %s", error)
            return callback
        trainer.forward_backward_step = callback._counting(trainer.forward_backward_step)
        trainer.metrics_processor.log = callback._logging(trainer.metrics_processor.log)
        if getattr(trainer, "validator", None) is not None:
            trainer.validator.validate = callback._pausing(trainer.validator.validate)
        return callback

    def _counting(self, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step that counts its micro-batches first."""

        @wraps(step)
        def counted(*given: Any, input_dict: Any, **named: Any) -> Any:
            if self.window is not None:
                if not self.window.running:
                    self.window.start()
                for batch in input_dict if isinstance(input_dict, list) else [input_dict]:
                    self.window.count(_as_batch(batch))
            return step(*given, input_dict=input_dict, **named)

        return counted

    def _logging(self, log: Callable[..., Any]) -> Callable[..., Any]:
        """Return a log that shows our numbers, too."""
        signature = inspect.signature(log)

        @wraps(log)
        def logged(*given: Any, **named: Any) -> Any:
            bound = signature.bind(*given, **named)
            if self.window is not None and self.window.running:
                found = {f"{PREFIX}{name}": value for name, value in self.window.end().named().items()}
                self.window.start()
                bound.arguments["extra_metrics"] = {**(bound.arguments.get("extra_metrics") or {}), **found}
            return log(*bound.args, **bound.kwargs)

        return logged

    def _pausing(self, validate: Callable[..., Any]) -> Callable[..., Any]:
        """Return a validation that is not timed."""

        @wraps(validate)
        def paused(*given: Any, **named: Any) -> Any:
            if self.window is not None:
                self.window.pause()
            return validate(*given, **named)

        return paused


def _as_batch(input_dict: Any) -> dict[str, Any]:
    """Return torchtitan's inputs under the names that batches have elsewhere."""
    return {"input_ids": input_dict["input"], "position_ids": input_dict.get("positions")}


MfuCallback = TorchtitanMfuCallback
