"""A configuration compiled once: its work and passes, ready to be evaluated for any step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ullage.models.config import Config
from ullage.models.ledger import Term
from ullage.models.model import Model, find
from ullage.models.passes import Booked, Training, booked, unmatched
from ullage.models.sample import Convention, Quantity, Sample
from ullage.models.step import Step
from ullage.models.work import Work

Precisions = Mapping[str, str]  # patterns of names of work, the last match wins; "*" is all of it


@dataclass(frozen=True, eq=False)
class Formula:
    """One architecture at one configuration: `works` is one forward pass."""

    model: Model
    name: str
    config: Config
    works: tuple[Work, ...]

    def terms(self, step: Step, training: Training, precisions: Precisions | None = None) -> tuple[Term, ...]:
        """Return the ledger's terms for a step; work of one name and pass stands together."""
        rows = booked(self.works, replace(training, spares=self.model.kind != "diffusion"))
        _refuse_idle_precisions(rows, self.works, precisions or {})
        terms = _terms(rows, step, precisions or {})
        if step.padded is not None:
            padded = _terms(rows, Step(step.padded, step.attention, step.repeats), precisions or {})
            terms += _beyond(padded, terms)
        return tuple(terms)

    def forward(self, step: Step) -> int:
        """Return the forward FLOPs of a step."""
        return sum(work.flops * len(work.layers) * step.value(work.quantity) for work in self.works)

    def per_sample(self, training: Training, attention: Convention) -> Callable[[Sample], int]:
        """Return a function from a sample to its model FLOPs: for those who count every step."""
        sums: dict[Quantity, int] = defaultdict(int)
        for row in booked(self.works, training):
            if row.pass_ != "recompute":
                sums[row.quantity] += row.coefficient
        rows = [(q.of, coefficient) for q, coefficient in sums.items()]
        return lambda sample: sum(coefficient * of(sample, attention) for of, coefficient in rows)

    def per_lengths(self, training: Training | None = None, attention: Convention | None = None) -> Callable[[Sequence[int]], int]:
        """Return a function from the lengths of a step's sequences to its model FLOPs, in a few microseconds.

        Exact: where FLOPs are a polynomial of a sequence's length its coefficients are solved for once, and a step needs
        only Σ1, Σs and Σs²; what is not (windows, chunks) is kept by length.
        """
        of = self.per_sample(training or Training(), attention or self.attention)
        return _by_moments(lambda length: of(Sample(text=length, encoder=length)))

    @property
    def attention(self) -> Convention:
        """The convention that is right for this model: causal where its attention is."""
        return "causal" if self.model.causal else "full"


def compiled(config: Config, kind: str | None = None) -> Formula:
    """Return the formula of a configuration; `kind` names the architecture where the configuration can't tell.

    Raises UllageError for an unknown architecture, and for missing or contradictory fields.
    """
    model, name = find(config, kind)
    named = Config(config.values, config.place, config.path, name)
    return Formula(model, name, named, tuple(model.function(named)))


def _terms(rows: Sequence[Booked], step: Step, precisions: Precisions) -> list[Term]:
    values = {row.quantity: 0 for row in rows}
    for quantity in values:
        values[quantity] = step.value(quantity)
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        total = sums.setdefault((row.name, row.group, row.pass_), [0, 0])
        total[0] += row.coefficient * values[row.quantity]
        total[1] += row.least * values[row.quantity]
    return [
        Term(name, group, pass_, flops, precision_of(name, precisions), pass_ != "recompute", least)  # type: ignore[arg-type]
        for (name, group, pass_), (flops, least) in sums.items()
        if flops
    ]


def _beyond(padded: Sequence[Term], true: Sequence[Term]) -> list[Term]:
    """Return what padding adds, as terms that are only executed."""
    needed = {(t.name, t.pass_): t.flops for t in true}
    extra = [(t, t.flops - needed.get((t.name, t.pass_), 0)) for t in padded]
    return [Term(t.name, "padding", t.pass_, flops, t.precision, False) for t, flops in extra if flops]


def precision_of(name: str, precisions: Precisions) -> str:
    """Return the precision of a work: what the last pattern that means it says, bf16 where none does.

    >>> precision_of("mlp.up", {"*": "bf16", "mlp": "fp8"})
    'fp8'
    """
    found = "bf16"
    for pattern, precision in precisions.items():
        if _meant(pattern, name):
            found = precision
    return found


def _meant(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _refuse_idle_precisions(rows: Sequence[Booked], works: Sequence[Work], precisions: Precisions) -> None:
    for pattern in precisions:
        if pattern != "*" and not any(_meant(pattern, row.name) for row in rows):
            raise unmatched(pattern, works)


# Lengths at which a polynomial is tried: near, past every usual chunk and window, and beyond any
_TRIED = (4, 7, 129, 4097, 131_073, 1 << 34)


def _by_moments(flops: Callable[[int], int]) -> Callable[[Sequence[int]], int]:
    """Return the sum of `flops` over lengths, by Σ1, Σs, Σs² if it is a polynomial of degree 2 (twice its coefficients are integers)."""
    one, two, three = flops(1), flops(2), flops(3)
    square = three - 2 * two + one  # twice the leading coefficient
    line = 2 * (two - one) - 3 * square
    constant = 2 * one - line - square
    if all(2 * flops(s) == constant + line * s + square * s * s for s in _TRIED):
        return lambda lengths: (constant * len(lengths) + line * sum(lengths) + square * sum([s * s for s in lengths])) // 2
    kept: dict[int, int] = {}

    def kept_sum(lengths: Sequence[int]) -> int:
        try:
            return sum(map(kept.__getitem__, lengths))
        except KeyError:
            kept.update((length, flops(length)) for length in set(lengths) - kept.keys())
            return sum(map(kept.__getitem__, lengths))

    return kept_sum
