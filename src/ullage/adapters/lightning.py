"""MFU in Lightning's loggers: `Trainer(callbacks=[MfuCallback(gpu="H100 SXM")])`."""

from __future__ import annotations

from typing import Any

from ullage.adapters.notes import LOG
from ullage.adapters.optional import EXTRA, base, installed
from ullage.adapters.torch import StepWindow, TorchMeter
from ullage.errors import UllageError, missing_extra

PACKAGES = ("lightning.pytorch", "pytorch_lightning")  # two distributions of one library


class LightningMfuCallback(base("Callback", *PACKAGES)):  # type: ignore[misc]
    """Logs `tflops_per_gpu` and `mfu` every `log_every_n_steps` optimiser steps, over all batches since; `hfu` where it differs.

    The model is `model` (a module with a config, or a configuration), else the first part of the LightningModule that has a
    config of transformers. The other `options` are those of `TorchMeter`: `lengths` reads batches that are no mappings of
    ids and masks. Validation, and checkpoints after it, are not timed. What is unknown is said once, and the training goes on.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        if not any(map(installed, PACKAGES)):
            raise missing_extra("lightning", EXTRA, "MFU in Lightning")
        self.model = model
        self.options = options
        self.window: StepWindow | None = None
        self._steps = self._logged = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Compile the model's formula."""
        model = configured(pl_module) if self.model is None else self.model
        self._steps = self._logged = trainer.global_step
        try:
            if model is None:
                raise UllageError("no part of this LightningModule has a config", "give the model: MfuCallback(model)")
            self.window = StepWindow(TorchMeter(model, **{"gpus": trainer.world_size, **self.options}))
        except UllageError as error:
            LOG.warning("ullage: this training has no MFU: %s", error)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Count a batch, and let the clock go on."""
        del trainer, pl_module, batch_idx
        if self.window is not None:
            self.window.count(batch)
            if not self.window.running:
                self.window.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log when the trainer does."""
        del outputs, batch, batch_idx
        if self.window is None or trainer.global_step == self._steps:
            return
        self._steps = trainer.global_step
        if self._steps // trainer.log_every_n_steps > self._logged // trainer.log_every_n_steps:
            self._logged = self._steps
            found = self.window.end().named()
            self.window.start()
            pl_module.log_dict(found, on_step=True, on_epoch=False, batch_size=1)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Stop the clock until the next batch of the training."""
        del trainer, pl_module
        if self.window is not None:
            self.window.pause()

    on_train_epoch_end = on_validation_start

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop counting."""
        del trainer, pl_module
        self.window = None


MfuCallback = LightningMfuCallback


def configured(module: Any) -> Any | None:
    """Return the first part of a module that has a config of transformers or diffusers: the outermost of them."""
    return next((part for part in module.modules() if hasattr(getattr(part, "config", None), "to_dict") or _diffusers(part)), None)


def _diffusers(part: Any) -> bool:
    return "_class_name" in (getattr(part, "config", None) or {})
