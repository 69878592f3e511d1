"""MFU in NeMo's loggers: `trainer = nl.Trainer(callbacks=[MfuCallback("config.json")])`; NeMo trains by Lightning."""

from __future__ import annotations

from typing import Any

from ullage.adapters.lightning import LightningMfuCallback


class NemoMfuCallback(LightningMfuCallback):
    """Logs as `ullage.adapters.lightning.MfuCallback` does; `model` is the configuration at Hugging Face: Megatron's own says other things.

    With Megatron's strategy no callback sees a batch: a step's sequences are `global_batch_size` of `seq_length` tokens, as
    the data module says. Without these two the batches are read, `tokens` being their ids.
    """

    def __init__(self, model: Any = None, **options: Any) -> None:
        super().__init__(model, **options)
        self._whole: list[int] | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Compile the model's formula, and ask the data module what a step is."""
        data = getattr(trainer, "datamodule", None)
        length, samples = getattr(data, "seq_length", None), getattr(data, "global_batch_size", None)
        if isinstance(length, int) and isinstance(samples, int) and "lengths" not in self.options:
            self._whole = [length] * samples
            self.options = {**self.options, "gather": False}  # what is counted is the whole job's
        super().on_train_start(trainer, pl_module)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Let the clock go on, and count a batch that can be seen."""
        if self._whole is None:
            tokens = batch.get("tokens") if isinstance(batch, dict) else None
            seen = batch if tokens is None else {**batch, "input_ids": tokens}
            super().on_train_batch_start(trainer, pl_module, seen, batch_idx)
        elif self.window is not None and not self.window.running:
            self.window.start()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a whole step where no batch can be seen, and log when the trainer does."""
        if self.window is not None and self._whole is not None:
            for _ in range(trainer.global_step - self._steps):
                self.window.count(self._whole)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


MfuCallback = NemoMfuCallback
