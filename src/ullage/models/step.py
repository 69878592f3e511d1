"""What one step does: which samples, how often, under which convention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ullage.models.sample import CAUSAL, Convention, Quantity, Sample


@dataclass(frozen=True)
class Step:
    """The samples of one optimiser step (or one inference call), each with its count; equal samples stand together.

    `repeats` is how often the network runs over them: timesteps × forward passes of a diffusion model, else 1. `padded`
    are the samples as the hardware sees them, where they were padded.
    """

    samples: tuple[tuple[Sample, int], ...]
    attention: Convention = CAUSAL
    repeats: int = 1
    padded: tuple[tuple[Sample, int], ...] | None = None

    def value(self, quantity: Quantity) -> int:
        """Return how often work of this quantity is done in the step."""
        if quantity.whole is not None:
            return self.repeats * quantity.whole(self.samples)
        return self.repeats * sum(count * quantity.of(sample, self.attention) for sample, count in self.samples)

    @property
    def tokens(self) -> int:
        """Text tokens of the step: new ones, of all samples."""
        return sum(count * sample.text for sample, count in self.samples)


def together(samples: Iterable[Sample]) -> tuple[tuple[Sample, int], ...]:
    """Return the samples with equal ones counted.

    >>> together([Sample(text=5), Sample(text=7), Sample(text=5)])[0][1]
    2
    """
    return tuple(Counter(samples).items())
