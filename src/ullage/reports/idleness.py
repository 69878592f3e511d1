"""Why a run's devices idled: time by what the host did meanwhile, the longest gaps, and how the devices are fed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ullage.sums.lanes.idle import CAUSES, Gap, Rhythm
from ullage.sums.lanes.run import Run

LONGEST = 20


@dataclass(frozen=True)
class Idleness:
    """Idle time in ns by cause over all devices (in the order of `CAUSES`, each device's adding up to its idle time within its
    owners' windows), the longest gaps, and each device's rhythm by its key."""

    causes: dict[str, int]
    gaps: tuple[Gap, ...]
    rhythms: dict[str, Rhythm]

    @property
    def total(self) -> int:
        """All idle time, ns."""
        return sum(self.causes.values())


def idleness(run: Run) -> Idleness | None:
    """Return why the devices of a run idled, None without devices."""
    found = [(key, idle) for capture in run.captures for key, idle in capture.idle.items()]
    if not found:
        return None
    causes: Counter[str] = Counter()
    for _, idle in found:
        causes.update(idle.causes)
    gaps = sorted((gap for _, idle in found for gap in idle.gaps), key=lambda gap: (gap.start - gap.end, gap.device, gap.start))
    return Idleness({c: causes[c] for c in CAUSES}, tuple(gaps[:LONGEST]), {key: idle.rhythm for key, idle in found})
