"""Who holds which GPUs when: jobs drawn by size, family, user and duration, and placed on the hosts that are free first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.simulate.load import COMPUTE, PHASE, STEP, TENSOR, Array, idle_load, load
from ullage.simulate.specification import Specification, stream
from ullage.units import HOUR_MS

# family: step in s, share of compute, of communication, tensor activity while computing. Chosen so that the
# jobs' OFU spans what the OFU paper's Table III saw, about 12 to 40 %.
FAMILIES: dict[str, tuple[float, float, float, float]] = {
    "llama-8b-pretrain": (4.3, 0.80, 0.14, 0.62),
    "llama-70b-pretrain": (11.3, 0.76, 0.19, 0.66),
    "moe-16b-pretrain": (5.9, 0.62, 0.31, 0.47),
    "hybrid-8b-pretrain": (3.7, 0.70, 0.18, 0.44),
    "world-model-8b": (7.1, 0.79, 0.13, 0.57),
    "diffusion-12b": (1.9, 0.74, 0.12, 0.52),
    "speech-1b": (0.83, 0.58, 0.12, 0.41),
    "vision-robot": (0.57, 0.51, 0.10, 0.38),
    "reward-model": (2.3, 0.64, 0.16, 0.49),
    "evaluation": (0.37, 0.45, 0.05, 0.36),
}
USERS = ("ada", "alan", "barbara", "claude", "dorothy", "edsger", "frances", "grace", "john", "katherine", "kurt", "radia")
MEDIAN_HOURS, SPREAD_OF_HOURS, SHORTEST_HOURS = 5.0, 0.8, 0.4
WAIT_MS = 4 * 60_000  # the mean time that a host stands free between two jobs
STARTUP_MS = (30_000, 150_000)  # a job holds its GPUs this long before the first step


@dataclass(frozen=True, eq=False)
class ScheduledJob:
    """A job: who runs it, on which GPUs (`gpus`, numbers in the fleet), from when to when (ms), and each GPU's load vector.

    `startup` is how long it holds its GPUs before the first step; a `rider` holds them beside another job, whose load counts for
    both; `instance` is the MIG instance of its GPU that it holds (None: the whole GPU); `mfu` is what the job reports, `mistake` and
    `factor` what is wrong with it.
    """

    name: str
    family: str
    user: str
    start: int
    end: int
    gpus: npt.NDArray[np.int64]
    loads: Array
    startup: int = 0
    rider: bool = False
    instance: int | None = None
    mfu: float | None = None
    mistake: str | None = None
    factor: float = 1.0
    tile_efficiency: float = 1.0


@dataclass
class Draft:
    """Jobs in the making, with the hosts that the draw must leave alone (`reserved`)."""

    specification: Specification
    models: list[str]
    jobs: list[ScheduledJob]
    reserved: set[int]

    @property
    def free_hosts(self) -> list[int]:
        """The hosts that nothing was planted on."""
        return [host for host in range(self.specification.hosts) if host not in self.reserved]

    def next_name(self) -> str:
        """Return the id of the next job."""
        return f"{100_001 + len(self.jobs)}"


def draw_jobs(draft: Draft) -> None:
    """Fill the hosts that are not reserved with jobs; those of one job have one model."""
    draw = stream(draft.specification, 3)
    for model in dict.fromkeys(draft.models):
        hosts = np.array([h for h in draft.free_hosts if draft.models[h] == model], dtype=np.int64)
        if len(hosts):
            _fill(draft, hosts, draw)


def _fill(draft: Draft, hosts: npt.NDArray[np.int64], draw: np.random.Generator) -> None:
    """Give hosts to jobs until each is taken to the end of the window; a job takes those that are free first."""
    specification = draft.specification
    start, end = specification.window
    per_host = specification.gpus_per_host
    free = start - draw.integers(0, 6 * HOUR_MS, len(hosts))
    sizes = np.array([size for size, _ in specification.sizes])
    weights = np.array([weight for _, weight in specification.sizes], dtype=float)
    weights = np.where(sizes <= max(per_host, len(hosts) * per_host // 3), weights, 0)
    if not weights.sum() > 0:
        sizes, weights = np.array([per_host]), np.array([1.0])
    smallest = min(len(hosts), -(-int(sizes[weights > 0].min()) // per_host))
    while True:
        size = int(draw.choice(sizes, p=weights / weights.sum()))
        wanted = min(len(hosts), -(-size // per_host))
        chosen = np.argsort(free, kind="stable")[:wanted]
        begin = int(free[chosen].max() + 60_000 + draw.exponential(WAIT_MS)) // 1000 * 1000
        if begin >= end:
            if wanted <= smallest:
                return
            continue  # no room for so large a job; a smaller one may still fit
        hours = max(SHORTEST_HOURS, MEDIAN_HOURS * float(np.exp(SPREAD_OF_HOURS * draw.standard_normal())))
        finish = begin + round(hours * 3600) * 1000
        free[chosen] = finish
        gpus = np.array([gpu for host in sorted(hosts[chosen]) for gpu in specification.gpus_of(int(host))], dtype=np.int64)[:size]
        if finish > start:
            draft.jobs.append(draw_job(draft, gpus, begin, finish))


def draw_job(
    draft: Draft, gpus: npt.NDArray[np.int64], start: int, end: int, family: str | None = None, user: str | None = None
) -> ScheduledJob:
    """Return a job on given GPUs, its family, user and load drawn from the job's own stream."""
    draw = stream(draft.specification, 4, len(draft.jobs))
    drawn_family, drawn_user = list(FAMILIES)[int(draw.integers(len(FAMILIES)))], USERS[int(draw.integers(len(USERS)))]
    family, user = family or drawn_family, user or drawn_user
    loads = spread_load(family_load(family, draw), len(gpus), draw)
    startup = int(draw.integers(*STARTUP_MS))
    return ScheduledJob(
        draft.next_name(), family, user, start, end, gpus, loads, startup=startup, tile_efficiency=round(float(draw.uniform(0.94, 0.99)), 4)
    )


def family_load(family: str, draw: np.random.Generator) -> Array:
    """Return a load vector near that of a family."""
    step, compute, communication, tensor = FAMILIES[family]
    return load(
        step=step * float(draw.uniform(0.8, 1.25)),
        compute=min(0.88, compute * float(draw.uniform(0.85, 1.08))),
        communication=0.9 * communication * float(draw.uniform(0.6, 1.0)),
        tensor=min(0.8, tensor * float(draw.uniform(0.85, 1.2))),
        sm=float(draw.uniform(0.84, 0.96)),
        communication_sm=float(draw.uniform(0.12, 0.3)),
        dram=float(draw.uniform(0.25, 0.6)),
        memory=float(draw.uniform(0.5, 0.95)),
    )


def spread_load(one: Array, gpus: int, draw: np.random.Generator) -> Array:
    """Return a load vector per GPU: the most loaded computes as `one` says, the others up to 8 % less and wait for it."""
    loads = np.tile(one, (gpus, 1))
    loads[:, COMPUTE] *= 1 - 0.08 * draw.random(gpus) ** 2
    loads[:, PHASE] = draw.random()  # the GPUs of a job step together
    return loads


def slowed(loads: Array, factor: float) -> Array:
    """Return loads whose step takes `factor` times as long because the host makes them wait: OFU falls by the factor.

    >>> from ullage.simulate.load import COMMUNICATION
    >>> slow = slowed(load(step=2, compute=0.5, communication=0.25, tensor=0.5)[None], 2.5)[0]
    >>> float(slow[STEP]), float(slow[COMPUTE]), float(slow[COMMUNICATION])
    (5.0, 0.2, 0.1)
    """
    loads = loads.copy()
    loads[:, STEP] *= factor
    loads[:, COMPUTE : COMPUTE + 2] /= factor
    return loads


def straggling(loads: Array, slow: int, factor: float) -> Array:
    """Return loads in which GPU `slow` needs `factor` times as long to compute the same, and the others wait for it.

    Every step takes as much longer as the straggler's compute; tensor work a step stays what it was on every GPU.
    """
    loads = loads.copy()
    stretch = 1 + loads[slow, COMPUTE] * (factor - 1)
    loads[:, STEP] *= stretch
    loads[:, COMPUTE : COMPUTE + 2] /= stretch
    loads[slow, COMPUTE] *= factor
    loads[slow, TENSOR] /= factor
    return loads


def resting(loads: Array, which: int | slice) -> Array:
    """Return loads in which some GPUs are held and do nothing."""
    loads = loads.copy()
    loads[which] = idle_load(memory=0.3)
    return loads
