"""What changes in time on a simulated host: how its GPUs are cut, where it is, whose it is, what its exporter says.

Each name of `CHANGES` is one function under `@change`, which writes what happens, and when, into the `Script` of a host that ordinary jobs
leave alone. Several changes may share a host. A state holds for the samples after its moment: one at t tells of the time before t.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ullage.errors import UllageError, did_you_mean
from ullage.simulate.load import STEP
from ullage.simulate.schedule import ScheduledJob, draw_job
from ullage.simulate.specification import Specification, host_name, stream, uuid

if TYPE_CHECKING:
    from ullage.simulate.faults import FaultPlan

SLICES = 7  # what an A100 or an H100 is cut into
CUTS = (("3g.40gb", "2g.20gb", "1g.10gb"), ("3g.40gb", "3g.40gb"), ("4g.40gb", "3g.40gb"), ("1g.10gb", "2g.20gb"), ("7g.80gb",))
OFF_BEAT = 0.382  # of a step, by which scrapes walk through it: the golden section meets all phases evenly
AWAY_MS = 600_000  # jobs that hold GPUs at an edge of the window reach beyond it by this


@dataclass(frozen=True)
class SimulatedDevice:
    """A device that gives readings: a GPU (its number in the fleet), or an instance of one from `start` to `end` (ms)."""

    gpu: int
    instance: int = 0
    profile: str | None = None
    start: int = 0
    end: int = 0

    @property
    def mig(self) -> str | None:
        """The instance as the samples table names it."""
        return None if self.profile is None else f"{self.profile}/{self.instance}"

    @property
    def share(self) -> float:
        """The share of its GPU."""
        return 1.0 if self.profile is None else int(self.profile[0]) / SLICES


@dataclass(frozen=True)
class Changed:
    """What was changed: the change's name, the GPUs concerned (numbers in the fleet), from when to when (ms)."""

    change: str
    gpus: tuple[int, ...]
    start: int
    end: int


@dataclass
class Script:
    """What changes on one host, and when (ms). Nothing is said of what stays as the specification has it."""

    host: int
    places: list[tuple[int, str, str]] = field(default_factory=list)  # since when, cluster, host name
    counted: tuple[int, int] | None = None  # when cycle counters are read
    percent: int | None = None  # since when activity is in percent
    lives: dict[int, tuple[int, int]] = field(default_factory=dict)  # of GPUs that exist for a part of the window
    slices: list[SimulatedDevice] = field(default_factory=list)
    follows: dict[int, int] = field(default_factory=dict)  # since when a GPU's clock follows its work


@dataclass(frozen=True)
class Ground:
    """What a change is planted on: a host's script, its random numbers, and its GPUs by what they are for."""

    plan: FaultPlan
    script: Script
    draw: np.random.Generator
    jobs: tuple[ScheduledJob, ...]  # that hold the host's first GPUs up to a moment within the window, and the next ones all the time
    spare: int | None  # a GPU that no job holds

    @property
    def specification(self) -> Specification:
        """The fleet's specification."""
        return self.plan.draft.specification

    @property
    def gpus(self) -> tuple[int, ...]:
        """The host's GPUs."""
        return tuple(self.specification.gpus_of(self.script.host))

    def moment(self, low: float, high: float) -> int:
        """Draw a moment between two shares of the window."""
        start, end = self.specification.window
        return start + int((end - start) * self.draw.uniform(low, high))


Plant = Callable[[Ground], tuple[tuple[int, ...], int, int] | None]


@dataclass(frozen=True)
class PlannedChange:
    """What a name changes, and the function that writes it into a script: the GPUs concerned, start and end; None finds no place."""

    name: str
    what: str
    plant: Plant


CHANGES: dict[str, PlannedChange] = {}


def change(name: str, what: str) -> Callable[[Plant], Plant]:
    """Register a change."""

    def register(plant: Plant) -> Plant:
        CHANGES[name] = PlannedChange(name, what, plant)
        return plant

    return register


@change("mig", "a GPU is whole, then cut into instances with jobs of their own, then whole again")
def _mig(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    if ground.spare is None:
        return None
    draft, gpu = ground.plan.draft, ground.spare
    start, end = ground.specification.window
    cut, back = ground.moment(0.15, 0.4), ground.moment(0.6, 0.85)
    profiles = CUTS[int(ground.draw.integers(len(CUTS)))]
    ground.script.slices += [SimulatedDevice(gpu, number, profile, cut, back) for number, profile in enumerate(profiles, 1)]
    for begin, finish in ((start - AWAY_MS, cut), (back, end + AWAY_MS)):
        draft.jobs.append(replace(draw_job(draft, np.array([gpu]), begin, finish), startup=0))
    for number in range(1, len(profiles) + 1):
        if number == 1 or ground.draw.random() < 0.5:
            draft.jobs.append(replace(draw_job(draft, np.array([gpu]), cut, back), startup=0, instance=number))
    return (gpu,), cut, back


@change("elastic", "a GPU exists for a part of the window only")
def _elastic(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    if len(ground.jobs) < 2:
        return None
    gpu, life = int(ground.jobs[1].gpus[-1]), (ground.moment(0.1, 0.4), ground.moment(0.6, 0.9))
    ground.script.lives[gpu] = life
    return (gpu,), *life


@change("renamed", "a host has another name from a moment on")
def _renamed(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    since = ground.moment(0.2, 0.8)
    ground.script.places.append((since, "", f"{host_name(ground.script.host)}-new"))
    return ground.gpus, since, ground.specification.window[1]


@change("reclustered", "a host belongs to another cluster from a moment on")
def _reclustered(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    since = ground.moment(0.2, 0.8)
    ground.script.places.append((since, f"{ground.specification.cluster}-2", ""))
    return ground.gpus, since, ground.specification.window[1]


@change("handed_over", "a job takes GPUs over from another without a pause")
def _handed_over(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    draft, first = ground.plan.draft, ground.jobs[0]
    end = ground.specification.window[1]
    draft.jobs.append(replace(draw_job(draft, first.gpus, first.end, end + AWAY_MS), loads=first.loads, startup=0))
    return tuple(map(int, first.gpus)), first.end, end


@change("percent_later", "an exporter changes from ratios to percent under the same names")
def _percent_later(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    ground.script.percent = ground.moment(0.3, 0.7)
    return ground.gpus, ground.script.percent, ground.specification.window[1]


@change("counters_appear", "an exporter is upgraded and gives cycle counters from then on")
def _counters_appear(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    since, end = ground.moment(0.1, 0.5), ground.specification.window[1]
    ground.script.counted = (since, ground.script.counted[1] if ground.script.counted else end + AWAY_MS)
    return ground.gpus, since, end


@change("counters_vanish", "an exporter gives cycle counters up to a moment and none after it")
def _counters_vanish(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    start, until = ground.specification.window[0], ground.moment(0.6, 0.9)
    ground.script.counted = (ground.script.counted[0] if ground.script.counted else start - AWAY_MS, until)
    return ground.gpus, until, ground.specification.window[1]


@change("clock_follows", "from a moment on a job's clock is low while its pipes work and high between")
def _clock_follows(ground: Ground) -> tuple[tuple[int, ...], int, int] | None:
    jobs, job = ground.plan.draft.jobs, ground.jobs[-1]
    since, gpus = ground.moment(0.2, 0.8), tuple(map(int, job.gpus))
    # a step that nearly divides the interval would be `locked`: each scrape would meet one phase of it
    loads, interval = job.loads.copy(), ground.specification.interval
    loads[:, STEP] = interval / (np.maximum(1, np.round(interval / loads[:, STEP])) + OFF_BEAT)
    jobs[[other.name for other in jobs].index(job.name)] = replace(job, loads=loads)
    ground.script.follows |= dict.fromkeys(gpus, since)
    return gpus, since, ground.specification.window[1]


def resolve(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return known names of changes in their fixed order; `all` and `none` are understood.

    >>> resolve(("renamed", "mig")), resolve(("none",)), resolve(("all",)) == tuple(CHANGES)
    (('mig', 'renamed'), (), True)
    """
    for name in names:
        if name not in CHANGES and name not in ("all", "none"):
            raise UllageError(f"the simulator can't change '{name}'", did_you_mean(name, CHANGES, "ullage simulate --help"))
    return tuple(name for name in CHANGES if name in names or "all" in names)


def plant(plan: FaultPlan, names: tuple[str, ...]) -> None:
    """Write the changes into scripts of hosts of their own, as long as one is left for ordinary jobs; the rest is skipped."""
    specification = plan.draft.specification
    draw = stream(specification, 7)
    free = plan.draft.free_hosts
    chosen = free[: min(len(names), (len(free) + 1) // 2, len(free) - 1)]
    grounds = [_ground(plan, host, draw) for host in chosen]
    place = draw.permutation(len(names))
    for name, number in zip(names, place.tolist(), strict=True):
        made = CHANGES[name].plant(grounds[number % len(grounds)]) if grounds else None
        if made is None:
            plan.skipped.append(name)
        else:
            plan.changed.append(Changed(name, *made))
    plan.scripts |= {ground.script.host: ground.script for ground in grounds}


def _ground(plan: FaultPlan, host: int, draw: np.random.Generator) -> Ground:
    """Reserve a host and give it its jobs: one up to a moment within the window, one all the time, and a GPU that nobody holds."""
    draft = plan.draft
    draft.reserved.add(host)
    start, end = draft.specification.window
    gpus = list(draft.specification.gpus_of(host))
    spare = gpus.pop() if len(gpus) > 1 else None
    until = start + int((end - start) * draw.uniform(0.3, 0.7))
    jobs = []
    for held, finish in ((gpus[: (len(gpus) + 1) // 2], until), (gpus[(len(gpus) + 1) // 2 :], end + AWAY_MS)):
        if held:
            jobs.append(replace(draw_job(draft, np.array(held), start - AWAY_MS, finish), startup=0))
            draft.jobs.append(jobs[-1])
    return Ground(plan, Script(host), draw, tuple(jobs), spare)


def places_of(script: Script, cluster: str) -> list[tuple[int, str, str]]:
    """Return where a host is, in order: since when (ms), cluster, name; the first holds from the beginning.

    >>> places_of(Script(0, places=[(20, "", "node0001-new"), (10, "other", "")]), "mine")[1:]
    [(10, 'other', 'node0001'), (20, 'other', 'node0001-new')]
    """
    found = [(0, cluster, host_name(script.host))]
    for since, other, name in sorted(script.places):
        found.append((since, other or found[-1][1], name or found[-1][2]))
    return found


def describe(plan: FaultPlan) -> list[dict[str, object]]:
    """Return what was changed, for the answer key."""
    specification = plan.draft.specification
    return [
        {
            "change": made.change,
            "what": CHANGES[made.change].what,
            "gpus": [uuid(specification, gpu) for gpu in made.gpus],
            "hosts": sorted({host_name(gpu // specification.gpus_per_host) for gpu in made.gpus}),
            "start": made.start,
            "end": made.end,
        }
        for made in plan.changed
    ]
