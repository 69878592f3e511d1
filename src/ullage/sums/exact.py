"""Sums that do not depend on the order in which they are added: whole numbers of a small step.

An engine adds in the order in which its threads come to the rows, and doubles added in another order differ in their last digits. Whole
numbers do not. So what is added up over samples is counted in steps, far below what any exporter resolves, and the sum is a double
only in the end: asked twice, in whatever order files come, a question has the same answer to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# A sample speaks for a day at most (2^26.4 ms; see `sums.windows`), and what it adds must fit into 63 bits: the steps leave room for
# activities of 300, clocks of 100 GHz and a power of 400 kW, and are a 1e-10 part of a second of 1 %.
ACTIVITY_STEP = 2.0**-28  # ms
POWER_STEP = 2.0**-18  # W ms
POWER_SQUARE_STEP = 2.0**-6  # W^2 ms
CLOCK_STEP = 1.0  # Hz ms
CYCLE_STEP = 2.0**-8


@dataclass(frozen=True)
class Steps:
    """A quantity per sample (an Ibis expression, or None where no sample has it) that is added up in whole steps."""

    value: Any
    step: float


def added(value: Any) -> Any:
    """Return the sum of whole numbers, or of `Steps` as a number of steps."""
    if not isinstance(value, Steps):
        return value.sum()
    steps = value.value if value.step == 1 else value.value * (1 / value.step)
    if value.value.get_backend().name == "pyspark":
        return steps.cast("int64").cast("decimal(38, 0)").sum()  # DuckDB adds 64 bits up in 128, Spark does not, but for decimals
    return steps.try_cast("int64").sum()  # what fits no 63 bits is no reading, and must not refuse the whole question


def from_steps(table: Any, sums: Mapping[str, Any]) -> Any:
    """Return a table of sums with those of `Steps` as doubles in their unit."""
    return table.mutate(**{name: table[name].cast("float64") * value.step for name, value in sums.items() if isinstance(value, Steps)})
