"""What the trackers themselves write, read here: each skips without its package."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.trainlogs.log import read_log
from ullage.trainlogs.tensorboard import read

LOGGED = {step: {"train/mfu": 0.39 + step / 100, "train/tflops_per_gpu": 390 + 10.0 * step, "train/loss": 2.0} for step in range(1, 6)}
WITHOUT = "is not installed: pip install 'ullage[trackers]'"


def check(place: Path) -> None:
    problems = Problems()
    rows = read_log(str(place), problems).to_pylist()
    assert [(row["step"], row["mfu"], row["flops_per_gpu"]) for row in rows] == [
        (step, pytest.approx(metrics["train/mfu"]), pytest.approx(metrics["train/tflops_per_gpu"] * 1e12))
        for step, metrics in LOGGED.items()
    ]
    assert all(row["time"] is not None for row in rows)
    assert problems.lines() == [] and problems.complete


@pytest.mark.parametrize("new_style", [False, True])
def test_tensorboard_of_pytorch(tmp_path, new_style):
    pytest.importorskip("tensorboard", reason=f"tensorboard {WITHOUT}")
    writer = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
    with writer.SummaryWriter(tmp_path) as log:
        for step, metrics in LOGGED.items():
            for name, value in metrics.items():
                log.add_scalar(name, value, step, new_style=new_style)
        log.add_text("notes", "hello", 1)
    check(tmp_path)


def test_tensorboard_x(tmp_path):
    writer = pytest.importorskip("tensorboardX", reason=f"tensorboardX {WITHOUT}")
    with writer.SummaryWriter(str(tmp_path)) as log:
        for step, metrics in LOGGED.items():
            for name, value in metrics.items():
                log.add_scalar(name, value, step)
    check(tmp_path)


def _as_tensorboard_reads(folder: Path) -> set[tuple[str, int, float]]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    found = set()
    for file in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                array = tensor_util.make_ndarray(value.tensor)
                if array.shape == () and array.dtype.kind == "f":
                    found.add((value.tag, event.step, float(array)))
    return found


@pytest.mark.full
def test_scalars_are_those_that_tensorboard_reads(tmp_path):
    """Random tags, steps and values of both forms, texts and histograms between them; every tenth file is cut."""
    pytest.importorskip("tensorboard", reason=f"tensorboard {WITHOUT}")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
    from torch.utils.tensorboard import SummaryWriter

    for seed in range(150):
        draw = random.Random(seed)
        folder = tmp_path / str(seed)
        with SummaryWriter(folder) as log:
            for _ in range(draw.randrange(1, 40)):
                tag = draw.choice(["a", "train/mfu", "train/δ loss", "x" * 300])
                kind = draw.randrange(8)
                if kind == 0:
                    log.add_histogram(tag, torch.randn(50), draw.randrange(99))
                elif kind == 1:
                    log.add_text(tag, "hello" * draw.randrange(90), draw.randrange(99))
                else:
                    value = draw.choice([draw.gauss(0, 1), draw.uniform(-1e30, 1e30), 0.0, 1e-40])
                    log.add_scalar(tag, value, draw.randrange(2**40), new_style=kind > 4)
        (file,) = folder.glob("*tfevents*")
        if seed % 10 == 9:
            raw = file.read_bytes()
            file.write_bytes(raw[: draw.randrange(len(raw) // 2, len(raw))])
        ours = {(point.metric, point.step, point.value) for point in read(folder, Problems())}
        assert ours == _as_tensorboard_reads(folder), seed


@pytest.mark.full
@pytest.mark.own_process
def test_wandb_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = pytest.importorskip("wandb", reason=f"wandb {WITHOUT}")
    with wandb.init(project="p", name="run-a", mode="offline", dir=str(tmp_path)) as run:
        for step, metrics in LOGGED.items():
            run.log(metrics, step=step)
    check(tmp_path / "wandb")
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    check(file)


def _log_to_mlflow(mlflow: Any, uri: str) -> None:
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run(run_name="run-a"):
        for step, metrics in LOGGED.items():
            mlflow.log_metrics(metrics, step=step)


@pytest.mark.full
@pytest.mark.own_process
def test_mlflows_files(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason=f"mlflow {WITHOUT}")
    _log_to_mlflow(mlflow, f"file:{tmp_path}/mlruns")
    check(tmp_path / "mlruns")


@pytest.mark.full
@pytest.mark.own_process
def test_mlflows_database(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason=f"mlflow {WITHOUT}")
    pytest.importorskip("sqlalchemy", reason=f"sqlalchemy, which MLflow's database needs, {WITHOUT}")
    _log_to_mlflow(mlflow, f"sqlite:///{tmp_path}/mlflow.db")
    check(tmp_path / "mlflow.db")


@pytest.mark.full
@pytest.mark.own_process
def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason=f"trackio {WITHOUT}")
    trackio.init(project="p", name="run-a")
    for step, metrics in LOGGED.items():
        trackio.log(metrics, step=step)
    trackio.log({"train/mfu": math.nan}, step=9)
    trackio.finish()
    problems = Problems()
    rows = read_log(str(tmp_path / "p.db"), problems).to_pylist()
    assert [row["step"] for row in rows] == list(LOGGED) and problems.dropped["impossible values of mfu"] == 1
    with pytest.raises(UllageError, match="there is no trainer log"):
        read_log(str(tmp_path / "q.db"))
