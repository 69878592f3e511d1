"""What a metrics logger is, and `StepLog`, which writes to one what a meter measured: `log = StepLog("wandb")`, `log(step.measured, 10)`.

A logger is one module of this folder with one function under `@metric_logger`: it takes what the user has of the library (an
open run, a writer, a folder, or nothing) and returns the function that writes metrics at a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ullage.adapters.meter import MeasuredStep
from ullage.adapters.notes import Notes
from ullage.adapters.ranks import distributed
from ullage.errors import UllageError
from ullage.registry import Registry

PREFIX: Final = "ullage/"
EXTRA: Final = "trackers"
WriteMetrics = Callable[[Mapping[str, float], int | None], None]


@dataclass(frozen=True)
class MetricLogger:
    """A registered logger. `modules` are those whose objects it takes; `opened` returns what writes to one, or to a new one."""

    name: str
    modules: tuple[str, ...]
    opened: Callable[[Any], WriteMetrics]


LOGGERS: Registry[MetricLogger] = Registry("metrics logger", package="ullage.adapters.loggers", command="docs/trainers.md")


def metric_logger(name: str, *, modules: tuple[str, ...]) -> Callable[[Callable[[Any], WriteMetrics]], Callable[[Any], WriteMetrics]]:
    """Register the decorated function as what opens a logger; an object of one of `modules` is told to be its own."""

    def register(opened: Callable[[Any], WriteMetrics]) -> Callable[[Any], WriteMetrics]:
        LOGGERS.add(name, MetricLogger(name, modules, opened))
        return opened

    return register


class StepLog:
    """Writes what was measured as `ullage/mfu`, `ullage/tflops_per_gpu`, `ullage/ofu` and, where it differs from the MFU, `ullage/hfu`.

    `to` is a logger's name (wandb, mlflow, tensorboard, trackio), or what the training has of one: a run, a SummaryWriter.
    `target` goes with a name: the folder of TensorBoard's files. Of several ranks the first one writes. A logger that fails
    is said once in the log, and the training goes on. Raises UllageError for a logger that is not known or not installed.
    """

    def __init__(self, to: Any, target: Any = None, *, prefix: str = PREFIX) -> None:
        self.prefix, self._notes = prefix, Notes()
        group = distributed()
        if group is not None and group.get_rank() != 0:
            self._write: WriteMetrics | None = None
        elif isinstance(to, str):
            self._write = LOGGERS[to].opened(target)
        else:
            self._write = _logger_of(to).opened(to)

    def __call__(self, measured: MeasuredStep | Mapping[str, float], step: int | None = None) -> None:
        """Write what is known of a step. Without `step` it joins the line that is open (Weights & Biases), or counts on."""
        metrics = measured.named() if isinstance(measured, MeasuredStep) else measured
        if self._write is None or not metrics:
            return
        with self._notes.survive_logging_failures():
            self._write({f"{self.prefix}{name}": value for name, value in metrics.items()}, step)


def _logger_of(target: Any) -> MetricLogger:
    """Return the logger that an object is of, by its classes' modules."""
    places = [f"{kind.__module__}." for kind in type(target).__mro__]
    for logger in LOGGERS.values():
        if any(place.startswith(f"{module}.") for place in places for module in logger.modules):
            return logger
    raise UllageError(
        f"nothing can be logged to a {type(target).__module__}.{type(target).__qualname__}",
        f"give a run, a SummaryWriter, or one of the names: {', '.join(LOGGERS)}",
    )
