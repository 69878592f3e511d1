"""Metrics to TensorBoard's event files: a SummaryWriter of PyTorch or tensorboardX, or a folder for a new one."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from ullage.adapters.loggers.logger import EXTRA, WriteMetrics, metric_logger
from ullage.adapters.optional import installed, library


@metric_logger("tensorboard", modules=("torch.utils.tensorboard", "tensorboardX"))
def opened(target: Any) -> WriteMetrics:
    """Return what adds scalars; without a step it is counted from 0. To a writer of its own each step is written at once."""
    own = not hasattr(target, "add_scalar")
    writer = _new_writer(target) if own else target
    steps = count()

    def write(metrics: Mapping[str, float], step: int | None) -> None:
        step = next(steps) if step is None else step
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)
        if own:
            writer.flush()

    return write


def _new_writer(folder: Any) -> Any:
    """Return a writer to a folder, of PyTorch where that can, else of tensorboardX."""
    module = installed("torch.utils.tensorboard") or library("tensorboardX", "logging to TensorBoard", EXTRA)
    return module.SummaryWriter(None if folder is None else str(folder))
