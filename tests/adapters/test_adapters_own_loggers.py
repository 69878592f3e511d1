"""The trainers' own loggers show our numbers: what they wrote is read again, and is what the trainer's own history says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")

from ullage.trainlogs.log import read_log

pytestmark = [pytest.mark.full, pytest.mark.own_process]  # trackers read their settings once in a process
TRACKERS = ["tensorboard", "wandb", "mlflow", "trackio"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to which every tracker writes."""
    settings = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": tmp_path, "TRACKIO_DIR": tmp_path / "trackio",
        "TENSORBOARD_LOGGING_DIR": tmp_path / "tensorboard", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path


def place(folder: Path, tracker: str) -> Path:
    return {"mlflow": folder / "mlflow.db", "trackio": folder / "trackio" / "p.db"}.get(tracker, folder / tracker)


def check(found: Path, history: list[dict[str, Any]]) -> None:
    rows = [row for row in read_log(str(found)).to_pylist() if row["mfu"] is not None]
    assert [(row["step"], row["mfu"], row["flops_per_gpu"]) for row in rows] == [
        (line["step"], pytest.approx(line["mfu"]), pytest.approx(line["tflops_per_gpu"] * 1e12)) for line in history
    ]
    assert len(rows) > 1


@pytest.mark.parametrize("tracker", TRACKERS)
def test_the_reporters_of_transformers(folder, tracker):
    pytest.importorskip(tracker, reason=f"{tracker} is not installed: pip install 'ullage[trackers]'")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'ullage[trainers]'")
    from tests.adapters.test_adapters_transformers import losses, trainer
    from ullage.adapters.transformers import MfuCallback

    run = trainer(folder / "out", report_to=[tracker], project="p", run_name="a")
    MfuCallback.attach(run, peak_tflops=1.0)
    run.train()
    if tracker == "wandb":
        pytest.importorskip("wandb").finish()  # what is logged reaches the file then
    check(place(folder, tracker), losses(run))


def lightning_logger(folder: Path, tracker: str) -> Any:
    loggers = pytest.importorskip("lightning.pytorch.loggers", reason="Lightning is not installed: pip install 'ullage[trainers]'")
    if tracker == "csv":
        return loggers.CSVLogger(folder, name="csv", version="")
    if tracker == "tensorboard":
        return loggers.TensorBoardLogger(folder, name="tensorboard", version="")
    if tracker == "wandb":
        return loggers.WandbLogger(save_dir=folder, offline=True, project="p")
    return loggers.MLFlowLogger(tracking_uri=f"sqlite:///{folder}/mlflow.db")


@pytest.mark.parametrize("tracker", ["csv", "tensorboard", "wandb", "mlflow"])
def test_the_loggers_of_lightning(folder, tracker):
    if tracker != "csv":
        pytest.importorskip(tracker, reason=f"{tracker} is not installed: pip install 'ullage[trackers]'")
    logger = lightning_logger(folder, tracker)
    from tests.adapters.test_adapters_lightning import TRAINED, Module, ticks
    from ullage.adapters.lightning import MfuCallback

    _fit(logger, MfuCallback(peak_tflops=1e-3, clock=ticks()), folder, Module())
    # 2 batches of 2 sequences each second of this clock; a line every 2 steps, numbered from 0
    flops = 2 * 2 * TRAINED
    history = [{"step": step, "mfu": flops / 1e9, "tflops_per_gpu": flops / 1e12} for step in (1, 3, 5, 7)]
    found = folder / "csv" / "metrics.csv" if tracker == "csv" else place(folder, tracker)
    check(found, history)


def _fit(logger: Any, callback: Any, folder: Path, module: Any) -> None:
    import lightning
    import torch

    rows = [{"input_ids": torch.ones(4, dtype=torch.long)} for _ in range(16)]
    run = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=logger, callbacks=[callback], enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False, default_root_dir=folder, log_every_n_steps=2, num_sanity_val_steps=0, limit_val_batches=0,
    )  # fmt: skip
    run.fit(module, torch.utils.data.DataLoader(rows, batch_size=2))
    if hasattr(logger.experiment, "finish"):
        logger.experiment.finish()
