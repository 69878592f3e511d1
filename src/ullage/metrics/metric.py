"""What a metric is: an equation over sums and ceilings, defined once, used on numbers, NumPy arrays and Ibis columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ullage.registry import Registry

# A number, a NumPy array, or an Ibis column: a metric is only arithmetic, and does not ask which.
Value = Any
F = TypeVar("F", bound=Callable[..., Value])


@dataclass(frozen=True)
class Metric:
    """A registered equation with its unit and its source; `parameters` are what it needs, by name."""

    name: str
    unit: str
    source: str
    function: Callable[..., Value]
    parameters: tuple[str, ...]

    @property
    def equation(self) -> str:
        """The body of the function, which is the equation."""
        lines = inspect.getsource(self.function).rstrip().splitlines()
        return lines[-1].strip().removeprefix("return ")

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.page.split("\n", 1)[0]

    @property
    def page(self) -> str:
        """The whole docstring: what it tells, how to read it, what it leaves out, an example."""
        return inspect.getdoc(self.function) or ""


METRICS: Registry[Metric] = Registry("metric", package="ullage.metrics", command="ullage metrics")


def metric(*, unit: str, source: str) -> Callable[[F], F]:
    """Register the decorated function as a metric and return it unchanged."""

    def register(function: F) -> F:
        parameters = tuple(inspect.signature(function).parameters)
        METRICS.add(function.__name__, Metric(function.__name__, unit, source, function, parameters))
        return function

    return register


def ratio(part: Value, whole: Value) -> Value:
    """Return part / whole; without a denominator there is no value (None, NaN, or SQL NULL), never 0 or infinity.

    >>> ratio(1, 4), ratio(1, 0), ratio(None, 2)
    (0.25, None, None)
    """
    if part is None or whole is None:
        return None
    if hasattr(whole, "nullif"):  # an Ibis column
        return part / whole.nullif(0)
    if isinstance(whole, np.ndarray) or isinstance(part, np.ndarray):
        whole = np.asarray(whole, dtype=float)
        return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole != 0)
    return part / whole if whole else None
