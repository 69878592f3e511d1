"""Why a run's devices idled: time by what the host did meanwhile, the longest gaps, and how the devices are fed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ullage.sums.lanes.idle import CAUSES, Gap, Rhythm
from ullage.sums.lanes.run import Run, Windows, device_parts

LONGEST = 20


@dataclass(frozen=True)
class Idleness:
    """Idle time in ns by cause over all devices (in the order of `CAUSES`, adding up to that of the trees: while nobody who uses a device
    lives or is recorded, the cause is not known), the longest gaps, and each device's rhythm by its key. `origin` is the first moment of
    the run (ns), from which the gaps are counted."""

    causes: dict[str, int]
    gaps: tuple[Gap, ...]
    rhythms: dict[str, Rhythm]
    origin: int = 0

    @property
    def total(self) -> int:
        """All idle time, ns."""
        return sum(self.causes.values())

    @property
    def rhythm(self) -> Rhythm | None:
        """How the devices are fed: all of their gaps, and the rhythm of the device with the most idle time in short ones."""
        found = [rhythm for rhythm in self.rhythms.values() if rhythm.gaps]
        if not found:
            return None
        return replace(max(found, key=lambda rhythm: rhythm.short or 0), gaps=sum(rhythm.gaps for rhythm in found))


def idleness(run: Run, windows: Windows | None = None) -> Idleness | None:
    """Return why the devices of a run idled, None without devices; `windows` are when the tables look at its processes, as the trees
    unless said otherwise."""
    found = [(key, idle) for capture in run.captures for key, idle in capture.idle.items()]
    if not found:
        return None
    causes: Counter[str] = Counter()
    for _, idle in found:
        causes.update(idle.causes)
    idle_time = sum(part.idle for part in device_parts(run, windows))
    causes["unknown"] += max(idle_time - causes.total(), 0)
    origin = min(capture.window[0] for capture in run.captures)
    gaps = sorted((gap for _, idle in found for gap in idle.gaps), key=lambda gap: (gap.start - gap.end, gap.device, gap.start))
    return Idleness({c: causes[c] for c in CAUSES}, tuple(gaps[:LONGEST]), {key: idle.rhythm for key, idle in found}, origin)
