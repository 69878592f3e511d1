"""MFU of Ray Train's workers in one log: `RunConfig(callbacks=[MfuCallback("mlflow")])`, and `ray.train.report` in the workers.

A worker measures its steps with `TorchMeter` and reports `step.measured.named()` beside its loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from ullage.adapters.loggers.logger import StepLog
from ullage.adapters.notes import LOG
from ullage.adapters.optional import base
from ullage.errors import UllageError

NAMES: Final = ("mfu", "hfu", "ofu", "tflops_per_gpu")


class RayTrainMfuCallback(base("UserCallback", "ray.train")):  # type: ignore[misc]
    """Logs what the workers reported, the mean over all of them, from the process that controls them.

    `to` and `target` are those of `StepLog`; a name is opened there when the first report comes. A step is the workers' own
    where they report `step` or `global_step`, else reports are counted.
    """

    def __init__(self, to: Any, target: Any = None) -> None:
        self.to, self.target = to, target
        self._log: StepLog | None = None
        self._reports = 0
        self._failed = False

    def after_report(self, run_context: Any, metrics: Sequence[Mapping[str, Any]], checkpoint: Any) -> None:
        """Log one report of all workers."""
        del run_context, checkpoint
        self._reports += 1
        found = means(metrics)
        if not found or self._failed:
            return
        try:
            self._log = self._log or StepLog(self.to, self.target)
        except UllageError as error:
            self._failed = True
            LOG.warning("ullage: the workers' MFU is not logged: %s", error)
            return
        steps = [told[name] for told in metrics for name in ("global_step", "step") if isinstance(told.get(name), int)]
        self._log(found, steps[0] if steps else self._reports)


def means(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means of what the workers reported of these names; a worker that has none is left out.

    >>> means([{"mfu": 0.5, "loss": 2.0}, {"mfu": 0.25}, {"loss": 2.0}])
    {'mfu': 0.375}
    """
    values = {name: [float(told[name]) for told in metrics if isinstance(told.get(name), int | float)] for name in NAMES}
    return {name: fmean(found) for name, found in values.items() if found}


MfuCallback = RayTrainMfuCallback
