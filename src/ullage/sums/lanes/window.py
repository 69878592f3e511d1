"""From when to when a capture is looked at: the choice changes every efficiency, so it is always said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ullage.errors import UllageError
from ullage.sums.lanes.gather import KIND, Capture


@dataclass(frozen=True)
class Window:
    """`first-last`: from the first event to the last; `steps`: from the first profiler step to the end of the last one;
    `span`: from `begin` to `end` seconds after the capture's first event (None: open).
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

    def of(self, capture: Capture) -> tuple[int, int]:
        """Return the window in ns on the capture's clock. Raises UllageError when it holds nothing."""
        first, last = extent(capture)
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


def parse(text: str) -> Window:
    """Return the window that a word or a pair of seconds names.

    >>> parse("steps"), parse("1.5:4").words
    (Window(kind='steps', begin=None, end=None), '1.5:4')
    """
    if text in ("first-last", "steps"):
        return Window(text)
    begin, colon, end = text.partition(":")
    try:
        edges = [float(part) if part.strip() else None for part in (begin, end)]
    except ValueError:
        colon = ""
    if not colon or any(edge is not None and not 0 <= edge < 1e9 for edge in edges):
        raise UllageError(f"'{text}' is not a window", "write first-last, steps, or seconds as 1.5:4 (either may be left out)")
    return Window("span", *edges) if edges != [None, None] else Window()


def extent(capture: Capture) -> tuple[int, int]:
    """Return the first and last moment of a capture: of GPU activity, GPU API calls, CPU operators and MPI, whatever has a duration or not.

    What only frames these (regions, steps) or comes of recording (overhead) counts of processes that show nothing else. Raises
    UllageError for a capture that holds nothing, or nothing but one moment.
    """
    framed = set(np.unique(capture.host.process[np.isin(capture.host.kind, FRAMES)]).tolist())
    found = bounds([*lived(capture), *capture.recording.extent.values(), *(e for p in framed if (e := lifetime(capture, p)) is not None)])
    if found is None or found[0] >= found[1]:
        raise UllageError(
            f"{capture.recording.place} holds nothing that lasts of a GPU, of calls to it or of MPI",
            "record with CPU and GPU activities switched on",
        )
    return found


def lifetime(capture: Capture, process: int, frames: tuple[int, ...] = ()) -> tuple[int, int] | None:
    """Return the first and last moment of a process: of its calls, its operators, what it put on devices, and of `frames` if asked."""
    stated = [capture.recording.extent[process]] if process in capture.recording.extent else []
    framed = lived(capture, frames, process) if frames else []
    return bounds([*lived(capture, process=process), *stated, *framed]) or bounds(lived(capture, FRAMES, process))


def lived(capture: Capture, frames: tuple[int, ...] = (), process: int | None = None) -> list[tuple[int, int]]:
    """Return the first and last moment of each sort of row, of all processes or of one; `frames` are kinds of host rows to look at
    instead of what a program does."""
    seen = []
    for rows, kinds in ((capture.device, _RAN), (capture.calls, None), (capture.host, frames or _DID)):
        of = np.ones(len(rows), bool) if kinds is None else np.isin(rows.kind, kinds)
        if process is not None:
            of &= rows.process == process
        if of.any():
            seen.append((int(rows.start[of].min()), int(rows.end[of].max())))
    return seen


def bounds(seen: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the first and last of several pairs of moments, None without any."""
    return (min(s[0] for s in seen), max(s[1] for s in seen)) if seen else None


_RAN = tuple(KIND[k] for k in ("kernel", "collective", "memcpy", "memset", "graph"))
_DID = tuple(KIND[k] for k in ("mpi", "parallel", "operator"))
FRAMES = tuple(KIND[k] for k in ("region", "step"))
HOSTED = tuple(KIND[k] for k in ("mpi", "region", "step", "parallel"))
