"""NeMo's callback with Lightning's real Trainer: a data module that says what a step is, and batches of tokens."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'ullage[trainers]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ullage[trainers]'")

from tests.adapters.test_adapters_lightning import TRAINED, Kept, ticks  # noqa: E402
from ullage.adapters.nemo import MfuCallback  # noqa: E402

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 10,
}  # fmt: skip


class Module(lightning.LightningModule):
    """A model without a configuration of transformers, as Megatron's are, given NeMo's batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.layer(batch["tokens"].float()).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Data(lightning.LightningDataModule):
    """Data of NeMo: it may say what a global batch is."""

    def __init__(self, **says: int) -> None:
        super().__init__()
        for name, value in says.items():
            setattr(self, name, value)

    def train_dataloader(self) -> Any:
        rows = [{"tokens": torch.ones(4, dtype=torch.long)} for _ in range(16)]
        return torch.utils.data.DataLoader(rows, batch_size=2)


def fit(folder: Any, data: Data, **options: Any) -> list[tuple[int, float]]:
    kept = Kept()
    run = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=kept, callbacks=[MfuCallback(TINY, clock=ticks(), **options)], enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder, log_every_n_steps=2,
    )  # fmt: skip
    run.fit(Module(), datamodule=data)
    return [(step, line["tflops_per_gpu"] * 1e12) for step, line in kept.lines if "tflops_per_gpu" in line]


def test_a_step_is_what_the_data_module_says(tmp_path):
    # 2 steps of 6 sequences of 4 tokens a second by this clock, whatever the batches hold
    told = fit(tmp_path, Data(seq_length=4, global_batch_size=6))
    assert told == [(step, pytest.approx(12 * TRAINED)) for step in (1, 3, 5, 7)]


def test_without_that_the_batches_tokens_are_read(tmp_path):
    assert fit(tmp_path, Data()) == [(step, pytest.approx(4 * TRAINED)) for step in (1, 3, 5, 7)]


def test_a_function_goes_before_the_data_module(tmp_path):
    told = fit(tmp_path, Data(seq_length=4, global_batch_size=6), lengths=lambda batch: [4])
    assert told == [(step, pytest.approx(2 * TRAINED)) for step in (1, 3, 5, 7)]


def test_beside_nemos_own_lightning(tmp_path):
    pytest.importorskip("nemo.lightning", reason="NeMo is not installed: pip install nemo_toolkit")
    assert len(fit(tmp_path, Data(seq_length=4, global_batch_size=6))) == 4
