"""Metrics to a run of Weights & Biases: the one that is given, or the one that is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.adapters.loggers.logger import EXTRA, WriteMetrics, metric_logger
from ullage.adapters.optional import library
from ullage.errors import UllageError


@metric_logger("wandb", modules=("wandb",))
def opened(target: Any) -> WriteMetrics:
    """Return what logs to a run. Without a step the metrics join the line that is open."""
    run = target if target is not None else library("wandb", "logging to Weights & Biases", EXTRA).run
    if run is None:
        raise UllageError("no run of Weights & Biases is open", "call wandb.init before, or give the run")

    def write(metrics: Mapping[str, float], step: int | None) -> None:
        run.log(dict(metrics), step=step, commit=None if step is not None else False)

    return write
