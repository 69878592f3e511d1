"""What is watched of every job: each measure with what people call it, how it is written, and what its fall asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.metrics.telemetry import LABELS
from ullage.views.notation import PERCENT_1, WATTS, Notation


@dataclass(frozen=True)
class WatchedMeasure:
    """A measure: its `label`, how values are written, the `least` change (in its unit) that is one, and what to do when it moved."""

    label: str
    notation: Notation
    least: float
    advice: str


_ADVICE = {
    "activity": "compare its input pipeline, its host and its debug settings with those of before: its GPUs wait for something",
    "sm_fill": "compare batch size and kernels with those of before: fewer SMs hold work",
    "tensor_issue": "compare precision, kernels and library versions with those of before: its SMs multiply less",
    "clock": "look at power limits and cooling of its hosts: their clocks moved",
}

# OFU first: what moves with it is told beside it
MEASURES: Final[dict[str, WatchedMeasure]] = {
    "ofu": WatchedMeasure("OFU", PERCENT_1, 0.0, "compare its settings and its hosts with what they were"),
    "at_work": WatchedMeasure("time at work", PERCENT_1, 0.05, "see whether it hangs: its GPUs are held and do nothing"),
    **{name: WatchedMeasure(LABELS[name], PERCENT_1, 0.03, advice) for name, advice in _ADVICE.items()},
    "memory": WatchedMeasure("memory roof", PERCENT_1, 0.05, "compare batch size, kernels and precision with what they were"),
    "power": WatchedMeasure("power", WATTS, 30.0, "compare power limits and cooling of its hosts with what they were"),
}
FACTORS: Final = ("at_work", "activity", "sm_fill", "tensor_issue", "clock")
