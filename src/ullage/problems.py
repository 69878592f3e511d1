"""What was dropped, put right or not read on the way in: a partly bad input yields the good part and this."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ullage.errors import UllageError, harmless


@dataclass(frozen=True)
class Cut:
    """A place of which only a part was read: why, and the time (ms since 1970) up to which all of it was; None where nobody can tell."""

    reason: str
    read_until: int | None = None


@dataclass
class Problems:
    """A tally of what was left out and why, with the first place of each kind, plain notes, and what was read only in part.

    A thing that is dropped was read and is of no use; where a place was cut short, nobody knows what else it holds.

    >>> problems = Problems()
    >>> problems.drop("lines without a value", 2, where="a.prom line 7")
    >>> problems.drop("lines without a value")
    >>> problems.lines()
    ['3 lines without a value left out (first: a.prom line 7)']
    """

    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)

    def refuse_partial(self) -> None:
        """Raise UllageError where something was read only in part."""
        if self.cuts:
            others = f" (and {len(self.cuts) - 1:,} more)" if len(self.cuts) > 1 else ""
            raise UllageError(f"only a part could be read: {self.cuts[0].reason}{others}", "leave out --strict for a report on that part")

    @property
    def complete(self) -> bool:
        """Whether everything was read that was asked for."""
        return not self.cuts

    @property
    def read_until(self) -> int | None:
        """The time (ms since 1970) up to which everything was read; None when it is complete, and where nobody can tell."""
        times = [cut.read_until for cut in self.cuts if cut.read_until is not None]
        return min(times) if times and len(times) == len(self.cuts) else None

    def cut(self, reason: str, read_until: int | None = None) -> None:
        """Say that a place was read only in part. It is no line of its own: drop or note what is to be told."""
        if all(cut.reason != reason for cut in self.cuts):
            self.cuts.append(Cut(harmless(reason, 1000), read_until))

    def cut_short(self, what: str, where: str, read_until: int | None = None) -> None:
        """Count a place that was read only in part. `what` is a plural noun phrase: "ends of files that are damaged"."""
        self.drop(what, where=where)
        self.cut(f"{what}: {where}", read_until)

    def drop(self, what: str, count: int = 1, where: str = "") -> None:
        """Count things left out. `what` is a plural noun phrase: "lines without a value"."""
        self._count(self.dropped, what, count, where)

    def repair(self, what: str, count: int = 1, where: str = "") -> None:
        """Count things put right and kept. `what` reads after a number: "samples out of order, sorted"."""
        self._count(self.repaired, what, count, where)

    def note(self, text: str) -> None:
        """Add a sentence to the report's notes, once."""
        if text not in self.notes:
            self.notes.append(text)

    def lines(self) -> list[str]:
        """Return everything as sentences for the end of a report: what was dropped, what was repaired, the notes."""
        dropped = [f"{count:,} {what} left out{self._place(what)}" for what, count in self.dropped.most_common()]
        repaired = [f"{count:,} {what}{self._place(what)}" for what, count in self.repaired.most_common()]
        return dropped + repaired + self.notes

    def _count(self, tally: Counter[str], what: str, count: int, where: str) -> None:
        if count <= 0:
            return
        tally[what] += count
        if where:
            self.first.setdefault(what, harmless(where))

    def _place(self, what: str) -> str:
        return f" (first: {self.first[what]})" if what in self.first else ""
