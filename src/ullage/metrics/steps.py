"""Steps of the waterfall: which factors each stands for, and how much of the peak is left before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.metrics.evidence import REST, Measured

TIME = {
    "load_balance": "load balance",
    "communication": "communication",
    "orchestration": "orchestration",
    "sm_fill": "SM fill",
    "tensor_issue": "tensor issue",
    "clock": "clock",
}
WORK = {"tile": "tile", "model": "model"}
FACTORS = {**TIME, **WORK}
LABELS = {**FACTORS, "unexplained": "unexplained"}
FASTEST = 1.2  # times the tensor clock: no SM clock is above


@dataclass(frozen=True)
class ChainStep:
    """One step of the chain: the factors that it stands for, their product, and how much of the peak is left before and after."""

    names: tuple[str, ...]
    factor: Measured
    before: Measured
    after: Measured

    @property
    def name(self) -> str:
        """The factors' names, joined by `_x_`."""
        return "_x_".join(self.names)

    @property
    def label(self) -> str:
        """The factors in words."""
        return " × ".join(LABELS[name] for name in self.names)

    @property
    def short(self) -> str:
        """The factors in few words: of four and more in a row the first and the last.

        >>> one = Measured.exact(1.0, "")
        >>> ChainStep(tuple(TIME), one, one, one).short
        'load balance … clock'
        """
        order = list(LABELS)
        places = [order.index(name) for name in self.names]
        if len(places) < 4 or places != list(range(places[0], places[-1] + 1)):
            return self.label
        return f"{LABELS[self.names[0]]} … {LABELS[self.names[-1]]}"

    @property
    def impossible(self) -> bool:
        """Whether this is what remains between numbers that can't all be right: it lies above what its factors may come to.

        >>> rest = Measured(1.3, 1.25, 1.35, "what remains")
        >>> ChainStep(("tile",), rest, rest, rest).impossible, ChainStep(("tile",), Measured.exact(0.9, ""), rest, rest).impossible
        (True, False)
        """
        if self.names == ("unexplained",):
            return True
        least = self.factor.value if self.factor.low is None else self.factor.low
        return self.factor.source == REST and least > (FASTEST if "clock" in self.names else 1.0) * (1 + 1e-9)

    @property
    def lost(self) -> float:
        """What the step takes of the peak; below 0 for a factor above 1."""
        return self.before.value - self.after.value

    @property
    def lost_between(self) -> tuple[float, float] | None:
        """The least and the most that it takes, None where an error is not known.

        What is left before it and after it bound that, and so do what is left before it and its factor: both hold.

        >>> before, after, factor = Measured(0.8, 0.6, 0.8, ""), Measured.exact(0.5, ""), Measured(0.625, 0.625, 0.9, "")
        >>> [round(lost, 6) for lost in ChainStep(("tensor_issue",), factor, before, after).lost_between]
        [0.1, 0.3]
        """
        edges = [(level.low, level.high) for level in (self.before, self.after, self.factor)]
        known = [(low, high) for low, high in edges if low is not None and high is not None]
        if len(known) < len(edges):
            return None
        (low, high), (after_low, after_high), (least, most) = known
        return (
            max(low - after_high, min(low * (1 - most), high * (1 - most))),
            min(high - after_low, max(low * (1 - least), high * (1 - least))),
        )


class Walk:
    """The chain while it is being put together."""

    def __init__(self) -> None:
        self.steps: list[ChainStep] = []
        self.level = Measured.exact(1.0, "the peak")

    @property
    def missing(self) -> list[str]:
        """The factors that no step stands for yet."""
        done = {name for step in self.steps for name in step.names}
        return [name for name in FACTORS if name not in done]

    def times(self, names: Sequence[str], factor: Measured, after: Measured | None = None) -> None:
        """Take a step of a factor that is known; `after` holds the bounds of what is left, where they are known better."""
        if self.level.value == 0:  # nothing is left to lose
            return
        product = self.level * factor
        left = product if after is None else replace(after, value=product.value)
        self.steps.append(ChainStep(tuple(names), factor, self.level, left))
        self.level = left

    def down_to(self, names: Sequence[str], after: Measured, factor: Measured | None = None) -> None:
        """Take a step to a level that is known; `factor` holds the bounds of the factor, where they are known better."""
        found = after.over(self.level, after.source)
        if found is None:
            return
        shown = found if factor is None else replace(factor, value=found.value)
        self.steps.append(ChainStep(tuple(names), shown, self.level, after))
        self.level = after
