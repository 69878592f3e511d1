"""Which part of what was observed is looked at: the choice changes every efficiency, so it is always said."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.sums.lanes.gather import Capture


@dataclass(frozen=True)
class TraceWindow:
    """`first-last`: from the first event to the last; `steps`: from the first profiler step to the end of the last one;
    `span`: from `begin` to `end` seconds after the capture's first event (None: open). `auto`: steps where a capture has them, for its
    edges are not part of the work; else first-last.
    """

    kind: str = "first-last"
    begin: float | None = None
    end: float | None = None

    @property
    def words(self) -> str:
        """How the window is written on the command line."""
        if self.kind != "span":
            return self.kind
        return ":".join("" if edge is None else f"{edge:g}" for edge in (self.begin, self.end))

    def settled(self, capture: Capture) -> TraceWindow:
        """Return the window with `auto` decided."""
        if self.kind != "auto":
            return self
        steps = capture.host.of("step")
        return TraceWindow("steps") if len(steps) and steps.start.min() < steps.end.max() else TraceWindow()

    def of(self, capture: Capture, whole: tuple[int, int]) -> tuple[int, int]:
        """Return the window in ns on the capture's clock, of a capture that was observed for the `whole` of it.

        Raises UllageError when it holds nothing."""
        first, last = whole
        if self.kind == "steps":
            steps = capture.host.of("step")
            if not len(steps):
                raise UllageError(
                    f"{capture.recording.place} has no profiler steps", "call profiler.step() after each step, or use --window first-last"
                )
            return int(steps.start.min()), int(steps.end.max())
        low = first if self.begin is None else first + round(self.begin * 1e9)
        high = last if self.end is None else min(last, first + round(self.end * 1e9))
        if low >= high:
            raise UllageError(
                f"the window {self.words} holds nothing of {capture.recording.place}, which lasts {(last - first) / 1e9:.6g} s",
                "give the seconds after its first event at which it begins and, later, ends",
            )
        return low, high


def parse(text: str) -> TraceWindow:
    """Return the window that a word or a pair of seconds names.

    >>> parse("steps"), parse("1.5:4").words
    (TraceWindow(kind='steps', begin=None, end=None), '1.5:4')
    """
    if text in ("auto", "first-last", "steps"):
        return TraceWindow(text)
    begin, colon, end = text.partition(":")
    try:
        edges = [float(part) if part.strip() else None for part in (begin, end)]
    except ValueError:
        colon = ""
    if not colon or any(edge is not None and not 0 <= edge < 1e9 for edge in edges):
        raise UllageError(f"'{text}' is not a window", "write first-last, steps, auto, or seconds as 1.5:4 (either may be left out)")
    return TraceWindow("span", *edges) if edges != [None, None] else TraceWindow()
