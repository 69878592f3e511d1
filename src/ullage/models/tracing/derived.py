"""Formulas for architectures that have none: a polynomial in batch and lengths, solved from small traces and tried at others."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.models.config import Config
from ullage.models.model import names
from ullage.models.sample import Sample
from ullage.models.tracing.libraries import versions
from ullage.models.tracing.polynomial import Point, Polynomial, grid, through
from ullage.models.tracing.runs import Progress, Tracer
from ullage.models.tracing.trials import Trial, chunk, longest

BATCHES = (1, 2)  # linear
LENGTHS = (5, 11, 18)  # of degree 2
HELD_OUT = (37, 1031)  # near, and past every usual chunk, where padding to chunks would show


@dataclass(frozen=True)
class Derived:
    """FLOPs of an architecture from its traces: exact for every shape, if they are a polynomial, which was tried up to `tried`.

    `variables` are "batch" and "seq" or, with an encoder, "batch", "encoder" and "seq". Attention is counted in full: traces
    know no causal half.
    """

    architecture: str
    forward: Polynomial
    training: Polynomial
    tried: int
    versions: Mapping[str, str]

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the numbers that `flops` takes."""
        return self.forward.variables

    def flops(self, *values: int) -> int:
        """Return the forward FLOPs at a shape."""
        return self.forward(*values)

    def backward(self, *values: int) -> int:
        """Return the FLOPs of the backward pass at a shape, all weights trained."""
        return self.training(*values) - self.forward(*values)


def derive(config: Config, *, progress: Progress = lambda _: None) -> Derived:
    """Return the polynomial of a model of text, from as many small traces as its degree asks for.

    Raises UllageError when a shape that was not used to solve it comes out otherwise: when the model pads to chunks, looks at
    its data, or grows faster than the square of the length.
    """
    tracer = Tracer(config, progress)
    variables = _variables(tracer, config)
    axes = [BATCHES, *[tuple(min(n, longest(config)) for n in LENGTHS)] * (len(variables) - 1)]
    if len(set(axes[1])) < len(LENGTHS):
        raise UllageError(f"{config.place} has positions for {longest(config)} tokens only", "too few to derive a formula from")
    points = {point: _traced(tracer, point) for point in grid(axes)}
    forward = through(variables, axes, {point: one for point, (one, _) in points.items()})
    training = through(variables, axes, {point: both for point, (_, both) in points.items()})
    held_out = _held_out(config, len(variables))
    for point in held_out:
        _try(tracer, point, forward, training)
    name = next((n for n in (config.architecture, *names(config)) if n), type(tracer.model).__name__)
    return Derived(name, forward, training, max(held_out[-1]), versions("torch", "transformers"))


def _variables(tracer: Tracer, config: Config) -> tuple[str, ...]:
    takes = inspect.signature(tracer.model.forward).parameters
    if "input_ids" not in takes:
        raise UllageError(
            f"{type(tracer.model).__name__} of {config.place} takes no tokens, and a formula is derived for models of text only",
            "docs/adding-a-model.md adds a formula by hand",
        )
    return ("batch", "encoder", "seq") if "decoder_input_ids" in takes else ("batch", "seq")


def _held_out(config: Config, variables: int) -> list[Point]:
    """Return shapes that take no part in solving: one near, one past the longest chunk that the configuration names."""
    most = longest(config)
    near, far = min(HELD_OUT[0], most), min(max(HELD_OUT[1], 2 * chunk(config) + 3), most)
    if variables == 3:
        return [(3, near, near - 6), (2, far, near)]
    return [(3, near), (2, far)]


def _traced(tracer: Tracer, point: Point) -> tuple[int, int]:
    batch, *lengths = point
    trial = Trial(batch, Sample(text=lengths[-1], encoder=lengths[0]))
    return tracer.forward(trial).total, tracer.training(trial).total


def _try(tracer: Tracer, point: Point, forward: Polynomial, training: Polynomial) -> None:
    traced = _traced(tracer, point)
    for polynomial, counted in zip((forward, training), traced, strict=True):
        try:
            expected = polynomial(*point)
        except ValueError:
            expected = -1
        if expected != counted:
            where = ", ".join(f"{variable} {value}" for variable, value in zip(forward.variables, point, strict=True))
            name = type(tracer.model).__name__
            raise UllageError(
                f"the FLOPs of {name} are not a polynomial of batch and length: at {where} the trace counts {counted:,}",
                "it pads to chunks or looks at its data; docs/adding-a-model.md adds a formula by hand",
            )
