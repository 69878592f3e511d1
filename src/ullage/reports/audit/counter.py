"""What a FLOPs function counts wrongly, feature by feature: the answer of `ullage audit counter`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.audit.counter import ComparedCount, asked, compared
from ullage.audit.counter_cases import EXAMPLES, Example
from ullage.errors import UllageError
from ullage.views.shown import ShownByView

TIMEOUT = 20.0  # s a call


@dataclass(frozen=True)
class CounterReport(ShownByView, view="ullage.render.counter"):
    """The answers of one counter; `version` is its package's, if it is known."""

    target: str
    version: str | None
    rows: tuple[ComparedCount, ...]

    @property
    def right(self) -> int:
        """How many answers are right by one of the two conventions."""
        return sum(row.agrees for row in self.rows)

    @property
    def silent(self) -> int:
        """How many cases got no number above 0."""
        return sum(row.ratio is None for row in self.rows)


def audit_counter(target: str, *, timeout: float = TIMEOUT, examples: Sequence[Example] = EXAMPLES) -> CounterReport:
    """Return what a counter says to every case beside what is right.

    `target` is `module:function`, or `verl` or `hf`. The function runs in another process; what it raises, 0 and None are
    answers. Raises UllageError for a function that can't be loaded, and a limit that is none.
    """
    if not 0 < timeout <= 3600:
        raise UllageError(
            f"--timeout must be above 0 and at most 3600 s, not {timeout:g}", "give the seconds that one call may take: --timeout 60"
        )
    version, told = asked(target, examples, timeout)
    return CounterReport(target, version, tuple(compared(e, t) for e, t in zip(examples, told, strict=True)))
