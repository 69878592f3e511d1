"""The use cases of the TALP paper as one GPU allows them: what each process is told to do, and what the trees must then say.

Each round a process launches a kernel, waits for it, computes, copies for a while and meets the other one in a barrier (PILS). Two
processes have one GPU between them: their kernels, begun together, are on it at the same time, for the kernel looks at the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ullage.totals import DeviceTotals, HostTotals

REGION = "rounds"


@dataclass(frozen=True)
class Work:
    """What a process does in a round, in ms: a kernel, computing on the host, copying."""

    kernel: int
    host: int
    copying: int = 0

    @property
    def words(self) -> str:
        """It as one word, for a command line.

        >>> Work(100, 10).words, read(Work(100, 10).words)
        ('100,10,0', Work(kernel=100, host=10, copying=0))
        """
        return f"{self.kernel},{self.host},{self.copying}"


def read(words: str) -> Work:
    """Return the work that a word tells."""
    return Work(*(int(word) for word in words.split(",")))


@dataclass(frozen=True)
class Load:
    """A use case: what it is like, the work of each process, whether the host computes while the kernel runs, how many rounds."""

    title: str
    works: tuple[Work, ...]
    overlapped: bool = False
    rounds: int = 3


LOADS = {
    "7": Load("host and device take turns", (Work(40, 40),)),
    "7 overlapped": Load("host and device compute at the same time", (Work(40, 40),), overlapped=True),
    "1 alone": Load("a loaded device", (Work(60, 6),)),
    "2 alone": Load("a loaded host", (Work(6, 60),)),
    "6 alone": Load("large movement of data", (Work(30, 6, 60),)),
    "1": Load("loaded devices, balanced hosts", (Work(100, 10), Work(100, 10))),
    "5": Load("imbalanced hosts", (Work(60, 120), Work(60, 12))),
    "6": Load("imbalanced movement of data", (Work(60, 6, 100), Work(60, 6, 10))),
}


def known_host(told: Sequence[dict[str, Any]]) -> HostTotals:
    """Return the host's sums from what each process told of itself by its own clock (ns): `begin`, `end`, `calls`, `barriers`.

    >>> known_host([{"begin": 0, "end": 100, "calls": 30, "barriers": 0}]).useful_time
    70
    """
    elapsed = max(one["end"] for one in told) - min(one["begin"] for one in told)
    busy = [one["end"] - one["begin"] - one["barriers"] for one in told]
    offload = sum(one["calls"] for one in told)
    return HostTotals(len(told), elapsed, sum(busy) - offload, offload, max(busy))


def known_device(load: Load, elapsed: int, memory: int) -> DeviceTotals:
    """Return the device's sums: kernels that begin together last as long as the longest; what was copied, and how long, is told.

    >>> known_device(LOADS["5"], 10**9, 0).kernel_time
    180000000
    """
    kernel = load.rounds * max(work.kernel for work in load.works) * 1_000_000
    return DeviceTotals(1, elapsed, kernel, 0, memory, kernel, kernel, kernel + memory)
