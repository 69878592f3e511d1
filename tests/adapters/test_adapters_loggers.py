"""`StepLog` writes under its own names, on the first rank, and never ends a training; each logger with the real library."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ullage.adapters.loggers import logger
from ullage.adapters.loggers.logger import LOGGERS, StepLog
from ullage.adapters.meter import MeasuredStep
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.trainlogs.log import read_log

WITHOUT = "is not installed: pip install 'ullage[trackers]'"
STEPS = {step: MeasuredStep(10, tflops_per_gpu=400.0 + step, mfu=(400 + step) / 1000, hfu=0.5) for step in (10, 20, 30)}
NAMED = {"ullage/tflops_per_gpu": 410.0, "ullage/mfu": 0.41, "ullage/hfu": 0.5}


def run_of(library: str, **members: Any) -> Any:
    """Return an object as if a library had made it."""
    return type("Run", (SimpleNamespace,), {"__module__": f"{library}.sdk"})(**members)


def kept() -> tuple[Any, list[Any]]:
    """Return a run as Weights & Biases has, and what it is told."""
    told: list[Any] = []
    return run_of("wandb", log=lambda metrics, **more: told.append((metrics, more))), told


def test_names_begin_with_ullage_and_what_is_not_known_is_left_out():
    run, told = kept()
    log = StepLog(run)
    log(STEPS[10], 10)
    log(MeasuredStep(None), 20)
    log(MeasuredStep(10, tflops_per_gpu=400.0, mfu=0.4, hfu=0.4))
    assert told == [
        (NAMED, {"step": 10, "commit": None}),
        ({"ullage/tflops_per_gpu": 400.0, "ullage/mfu": 0.4}, {"step": None, "commit": False}),
    ]


def test_another_prefix_and_other_metrics_are_written_too():
    run, told = kept()
    StepLog(run, prefix="perf/")({"mfu": 0.4}, 1)
    assert told[0][0] == {"perf/mfu": 0.4}


def test_a_writer_without_steps_counts():
    told: list[Any] = []
    log = StepLog(run_of("tensorboardX", add_scalar=lambda *scalar: told.append(scalar)))
    for step in (None, None, 7):
        log({"mfu": 0.4}, step)
    assert told == [("ullage/mfu", 0.4, 0), ("ullage/mfu", 0.4, 1), ("ullage/mfu", 0.4, 7)]


def test_a_logger_that_fails_is_said_once(caplog):
    def fails(metrics: Any, **more: Any) -> None:
        raise ConnectionError("no route")

    log = StepLog(run_of("wandb", log=fails))
    log(STEPS[10], 10)
    log(STEPS[20], 20)
    assert caplog.text.count("metrics could not be logged: ConnectionError: no route") == 1


def test_only_the_first_rank_writes(monkeypatch):
    run, told = kept()
    for rank in (0, 1):
        monkeypatch.setattr(logger, "distributed", lambda rank=rank: SimpleNamespace(get_rank=lambda: rank))
        StepLog(run)({"mfu": rank}, 1)
    assert [metrics for metrics, _ in told] == [{"ullage/mfu": 0}]


def test_an_unknown_logger_or_object_is_refused_with_the_names_known():
    with pytest.raises(UllageError, match="no metrics logger is called 'wandbb'") as error:
        StepLog("wandbb")
    assert "did you mean 'wandb'" in error.value.hint
    with pytest.raises(UllageError, match=r"nothing can be logged to a builtins\.int") as error:
        StepLog(3)
    assert all(name in error.value.hint for name in LOGGERS)


@pytest.mark.parametrize(("name", "library"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("trackio", "trackio")])
def test_a_library_that_is_not_installed_is_named_with_its_extra(name, library, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(UllageError, match=f"needs the library '{library}'") as error:
        StepLog(name)
    assert "ullage[trackers]" in error.value.hint


# --- the real ones, read again ---


def write(log: StepLog) -> None:
    for step, measured in STEPS.items():
        log(measured, step)


def check(place: Path) -> None:
    problems = Problems()
    rows = read_log(str(place), problems).to_pylist()
    assert [(row["step"], row["mfu"], row["flops_per_gpu"]) for row in rows] == [
        (step, pytest.approx(measured.mfu), pytest.approx(measured.tflops_per_gpu * 1e12)) for step, measured in STEPS.items()
    ]
    assert problems.complete


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason=f"tensorboard {WITHOUT}")
    writers = pytest.importorskip("torch.utils.tensorboard", reason="PyTorch is not installed: pip install 'ullage[trainers]'")
    with writers.SummaryWriter(tmp_path / "given") as writer:
        write(StepLog(writer))
    check(tmp_path / "given")
    write(StepLog("tensorboard", tmp_path / "named"))
    check(tmp_path / "named")


def test_tensorboard_x(tmp_path):
    writers = pytest.importorskip("tensorboardX", reason=f"tensorboardX {WITHOUT}")
    with writers.SummaryWriter(str(tmp_path)) as writer:
        write(StepLog(writer))
    check(tmp_path)


@pytest.mark.full
def test_wandb_without_a_network(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb = pytest.importorskip("wandb", reason=f"wandb {WITHOUT}")
    with pytest.raises(UllageError, match="no run of Weights & Biases is open"):
        StepLog("wandb")
    with wandb.init(project="p", mode="offline", dir=str(tmp_path)) as run:
        log = StepLog("wandb")
        log(STEPS[10], 10)
        log(STEPS[20], 20)
        run.log({"loss": 2.0}, step=30)
        log(STEPS[30])  # joins the line that the training began
    check(tmp_path / "wandb")


@pytest.mark.full
def test_mlflow(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason=f"mlflow {WITHOUT}")
    pytest.importorskip("sqlalchemy", reason=f"sqlalchemy {WITHOUT}")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run(run_name="named"):
        write(StepLog("mlflow"))
    with mlflow.start_run(run_name="given") as run:
        write(StepLog(run))
    for name in ("named", "given"):
        rows = read_log(str(tmp_path / "mlflow.db"), run=name).to_pylist()
        assert [row["mfu"] for row in rows] == [measured.mfu for measured in STEPS.values()]


@pytest.mark.full
def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio", reason=f"trackio {WITHOUT}")
    run = trackio.init(project="p", name="a")
    write(StepLog("trackio"))
    StepLog(run)({"mfu": math.pi / 10}, 40)
    trackio.finish()
    rows = read_log(str(tmp_path / "p.db")).to_pylist()
    assert [row["step"] for row in rows] == [10, 20, 30, 40] and rows[-1]["mfu"] == pytest.approx(math.pi / 10)
