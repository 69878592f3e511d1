"""MFU in the log of transformers' Trainer: `MfuCallback.attach(trainer)`, or as one of its callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ullage.adapters.notes import LOG
from ullage.adapters.optional import base, library
from ullage.adapters.torch import StepWindow, TorchMeter
from ullage.errors import UllageError


class TransformersMfuCallback(base("TrainerCallback", "transformers")):  # type: ignore[misc]
    """Logs `tflops_per_gpu` and `mfu` as often as the Trainer logs its loss, over all steps since; `hfu` where it differs.

    What is counted is what the model is given: its lengths, true and padded, at each forward pass with a gradient. The time
    runs from log to log without evaluations and checkpoints, and with the wait for data. `options` are those of `TorchMeter`;
    an unknown model or GPU is said once in the log, and the training goes on.
    """

    def __init__(self, **options: Any) -> None:
        library("transformers", "MFU in the Trainer")
        self.options = options
        self.window: StepWindow | None = None
        self._hook: Any = None

    @classmethod
    def attach(cls, trainer: Any, **options: Any) -> TransformersMfuCallback:
        """Return a callback added to a trainer before those that report, so that TensorBoard and the like show its numbers too."""
        callback = cls(**options)
        trainer.callback_handler.callbacks.insert(1, callback)  # behind the one that decides when to log
        return callback

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **other: Any) -> None:
        """Compile the model's formula, and begin to count."""
        del state, control, other
        options = {"gpus": args.world_size * max(1, args.n_gpu), **self.options}
        try:
            self.window = StepWindow(TorchMeter(model, **options))
        except UllageError as error:
            LOG.warning("ullage: this training has no MFU: %s", error)
            return
        names = tuple(inspect.signature(model.forward).parameters)
        self._hook = model.register_forward_pre_hook(counting(self.window, names), with_kwargs=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, **other: Any) -> None:
        """Start the clock, or let it go on after an evaluation or a checkpoint."""
        del args, state, control, other
        if self.window is not None and not self.window.running:
            self.window.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **other: Any) -> None:
        """Stop the clock where an evaluation or a checkpoint comes next."""
        del args, state, other
        if self.window is not None and (control.should_evaluate or control.should_save):
            self.window.pause()

    on_epoch_end = on_step_end

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **other: Any) -> None:
        """Put the numbers beside the loss."""
        del args, control, other
        if self.window is None or logs is None or "loss" not in logs:
            return
        running = self.window.running
        found = self.window.end().named()
        if running:
            self.window.start()
        logs.update(found)
        if state.log_history:
            state.log_history[-1].update(found)

    def on_train_end(self, args: Any, state: Any, control: Any, **other: Any) -> None:
        """Stop counting."""
        del args, state, control, other
        if self._hook is not None:
            self._hook.remove()
        self._hook = self.window = None


MfuCallback = TransformersMfuCallback


def counting(window: StepWindow, names: Sequence[str]) -> Callable[[Any, tuple[Any, ...], dict[str, Any]], None]:
    """Return a hook that counts what a model is given while it trains; `names` are those of its arguments."""
    torch = library("torch", "MFU in the Trainer")

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def count(module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if module.training:
            window.count({**dict(zip(names, arguments, strict=False)), **named}, forward_only=not torch.is_grad_enabled())

    hook: Callable[[Any, tuple[Any, ...], dict[str, Any]], None] = count
    return hook
