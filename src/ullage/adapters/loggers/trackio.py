"""Metrics to a run of Trackio: the one that is given, or the one that was begun by `trackio.init`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.adapters.loggers.logger import EXTRA, WriteMetrics, metric_logger
from ullage.adapters.optional import library


@metric_logger("trackio", modules=("trackio",))
def opened(target: Any) -> WriteMetrics:
    """Return what logs to a run; without a step Trackio counts."""
    run = target if target is not None else library("trackio", "logging to Trackio", EXTRA)

    def write(metrics: Mapping[str, float], step: int | None) -> None:
        run.log(dict(metrics), step=step)

    return write
