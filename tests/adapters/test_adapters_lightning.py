"""Lightning's Trainer, for real: a tiny model on the CPU, and what its logger is told."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
lightning = pytest.importorskip("lightning", reason="Lightning is not installed: pip install 'ullage[trainers]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ullage[trainers]'")

from lightning.pytorch.loggers.logger import Logger  # noqa: E402

from ullage.adapters.lightning import MfuCallback  # noqa: E402

TRAINED = 34560  # FLOPs of training on a sequence of 4 tokens, as in the meter's own tests


class Kept(Logger):
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, dict[str, float]]] = []

    @property
    def name(self) -> str:
        return "kept"

    @property
    def version(self) -> str:
        return "0"

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))

    def log_hyperparams(self, *given, **more):
        pass


class Module(lightning.LightningModule):
    def __init__(self, known: bool = True) -> None:
        super().__init__()
        fields = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 16}
        config = transformers.LlamaConfig(vocab_size=10, max_position_embeddings=64, **fields)
        self.model = transformers.LlamaForCausalLM(config) if known else torch.nn.Linear(4, 1)
        self.known = known

    def training_step(self, batch, batch_idx):
        ids = batch["input_ids"] if isinstance(batch, dict) else batch
        return self.model(input_ids=ids, labels=ids).loss if self.known else self.model(ids.float()).mean()

    def validation_step(self, batch, batch_idx):
        self.training_step(batch, batch_idx)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(callback: MfuCallback, folder: Any, module: Any = None, rows: Any = None, **settings: Any) -> list[tuple[int, dict[str, float]]]:
    rows = rows or [{"input_ids": torch.ones(4, dtype=torch.long)} for _ in range(16)]
    data = torch.utils.data.DataLoader(rows, batch_size=2)
    kept = Kept()
    run = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=kept, callbacks=[callback], enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=folder, log_every_n_steps=2, num_sanity_val_steps=1, **settings,
    )  # fmt: skip
    run.fit(module or Module(), data, data)
    return [line for line in kept.lines if "tflops_per_gpu" in line[1]]


def ticks() -> Any:
    seconds = iter(range(1, 10_000))
    return lambda: float(next(seconds))


def test_the_logger_is_told_on_its_cadence(tmp_path):
    lines = fit(MfuCallback(peak_tflops=1e-3, clock=ticks()), tmp_path)
    # 8 batches of 2 sequences; every 2 steps a line, its window 1 s long by this clock
    assert [step for step, _ in lines] == [1, 3, 5, 7]
    assert [line["tflops_per_gpu"] * 1e12 for _, line in lines] == [pytest.approx(2 * 2 * TRAINED)] * 4
    assert [line["mfu"] for _, line in lines] == [pytest.approx(4 * TRAINED / 1e9, rel=1e-5)] * 4


def test_micro_batches_belong_to_their_step(tmp_path):
    lines = fit(MfuCallback(peak_tflops=1e-3, clock=ticks()), tmp_path, accumulate_grad_batches=2)
    assert [line["tflops_per_gpu"] * 1e12 for _, line in lines] == [pytest.approx(4 * 2 * TRAINED)] * 2


def test_a_function_reads_batches_that_are_no_mappings(tmp_path):
    callback = MfuCallback(lengths=lambda batch: [4] * len(batch), clock=ticks())
    lines = fit(callback, tmp_path, rows=[torch.ones(4, dtype=torch.long)] * 8)
    assert [line["tflops_per_gpu"] * 1e12 for _, line in lines] == [pytest.approx(4 * TRAINED)] * 2
    assert "mfu" not in lines[0][1]  # no GPU, no peak


def test_validation_is_not_counted(tmp_path):
    lines = fit(MfuCallback(clock=ticks()), tmp_path, val_check_interval=1)
    # 1 s around each of two batches, and from the second line on 1 s between a line and the validation behind it
    assert [2 * 2 * TRAINED / (line["tflops_per_gpu"] * 1e12) for _, line in lines] == [pytest.approx(n) for n in (2, 3, 3, 3)]


def test_an_unknown_model_is_said_and_the_training_goes_on(tmp_path, caplog):
    assert fit(MfuCallback(), tmp_path, Module(known=False)) == []
    assert "no part of this LightningModule has a config" in caplog.text


def test_a_configuration_may_be_given(tmp_path):
    lines = fit(MfuCallback(Module().model.config, clock=ticks()), tmp_path, Module(known=False))
    assert len(lines) == 4
