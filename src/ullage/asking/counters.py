"""What questions about hardware counters share: which of NVIDIA's libraries is asked."""

from __future__ import annotations

from dataclasses import dataclass

from ullage.asking import asked


@dataclass(frozen=True, kw_only=True)
class CounterLibrary:
    """The library that knows a chip's counters."""

    cupti: str | None = asked("The libcupti to ask.", metavar="PATH", acts=True, shown="the one that is found")
