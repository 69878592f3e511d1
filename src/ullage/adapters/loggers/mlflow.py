"""Metrics to a run of MLflow: the one that is given, or the one that is active."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from ullage.adapters.loggers.logger import EXTRA, WriteMetrics, metric_logger
from ullage.adapters.optional import library


@metric_logger("mlflow", modules=("mlflow",))
def opened(target: Any) -> WriteMetrics:
    """Return what logs to a run; without a step it is counted from 0."""
    mlflow = library("mlflow", "logging to MLflow", EXTRA)
    run = None if target is None else target.info.run_id
    steps = count()

    def write(metrics: Mapping[str, float], step: int | None) -> None:
        mlflow.log_metrics(dict(metrics), step=next(steps) if step is None else step, run_id=run)

    return write
