"""What was dropped or put right on the way in, counted by reason: a partly bad input yields the good part and this."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ullage.errors import harmless


@dataclass
class Problems:
    """A tally of what was left out and why, with the first place of each kind, and plain notes.

    >>> problems = Problems()
    >>> problems.drop("lines without a value", 2, where="a.prom line 7")
    >>> problems.drop("lines without a value")
    >>> problems.lines()
    ['3 lines without a value left out (first: a.prom line 7)']
    """

    dropped: Counter[str] = field(default_factory=Counter)
    mended: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def drop(self, what: str, count: int = 1, where: str = "") -> None:
        """Count things left out. `what` is a plural noun phrase: "lines without a value"."""
        self._count(self.dropped, what, count, where)

    def mend(self, what: str, count: int = 1, where: str = "") -> None:
        """Count things put right and kept. `what` reads after a number: "samples out of order, sorted"."""
        self._count(self.mended, what, count, where)

    def note(self, text: str) -> None:
        """Add a sentence to the report's notes, once."""
        if text not in self.notes:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """Return everything as sentences for the end of a report: what was dropped, what was mended, the notes."""
        dropped = [f"{count:,} {what} left out{self._place(what)}" for what, count in self.dropped.most_common()]
        mended = [f"{count:,} {what}{self._place(what)}" for what, count in self.mended.most_common()]
        return dropped + mended + self.notes

    def _count(self, tally: Counter[str], what: str, count: int, where: str) -> None:
        if count <= 0:
            return
        tally[what] += count
        if where:
            self.first.setdefault(what, harmless(where))

    def _place(self, what: str) -> str:
        return f" (first: {self.first[what]})" if what in self.first else ""
