"""What is to be simulated, and the devices that follow from it: names, clocks, and when each host is scraped.

Everything random is drawn from a stream of its own (`stream`), keyed by the seed and by what it is for, so that a GPU's
readings do not depend on which others are generated with it, or in which order.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError, did_you_mean
from ullage.field import HEALTH
from ullage.gpus.chip import find
from ullage.tables import COUNTERS, FIELDS
from ullage.units import HOUR_MS

Milliseconds = npt.NDArray[np.int64]

GAUGES = (
    "gr_active",
    "sm_active",
    "tensor_active",
    "dram_active",
    "gpu_util",
    "sm_clock",
    "memory_clock",
    "power",
    "temperature",
    "memory_used",
    "throttle",
    "energy",
)
CYCLES = ("tensor_cycles", "sm_cycles", "sm_active_cycles")
SICK = ("failing_memory", "failing_link", "application_xid")  # the faults that readings of health show; without them nobody exports any
NEEDED = ("gr_active", "sm_active", "tensor_active", "gpu_util", "sm_clock")  # what the answer key is worked out from
NOT_READ = -(2**63)  # stands for a whole number that an exporter does not give; for others it is NaN
SIZES = ((8, 0.45), (16, 0.22), (32, 0.14), (64, 0.09), (128, 0.05), (256, 0.03), (512, 0.02))
MOST_SAMPLES = 5_000_000  # of one GPU: 58 days at one a second

# OFU paper, section IV-C: an H100 under a sustained BF16 GEMM, sampled at 1 kHz, MHz. Other chips in proportion to their
# tensor clock. The paper gives no correlation time; its Table I is met by samples that are nearly independent at 30 s.
H100_TENSOR_CLOCK = 1830e6
LOAD_CLOCK, LOAD_CLOCK_DEVIATION = 1352e6, 32e6
LOWEST_LOAD_CLOCK, HIGHEST_LOAD_CLOCK = 1201e6, 1558e6
CLOCK_MEMORY = 10.0  # seconds in which the clock forgets: e-folding time of its autocorrelation


@dataclass(frozen=True)
class Specification:
    """A fleet to simulate. Times in seconds, but `start` in integer milliseconds since 1970, UTC.

    `models` are driver names with their share of the hosts; `spread` is the time over which the hosts' scrapes are
    spread, `jitter` how early or late one scrape may be; `sizes` are GPUs a job with their weight; `reporting` is the share of
    jobs that report an MFU; `faults` are names of `faults.FAULTS`, `changes` of `changes.CHANGES`; `counters` adds cumulative
    cycle counters, `summed` over the SMs instead of per SM; with `outcomes` job records say how runs ended and how long they waited;
    `fields` are what the exporter exports (what the answer key needs is
    always simulated).
    """

    gpus: int = 64
    gpus_per_host: int = 8
    models: tuple[tuple[str, float], ...] = (("NVIDIA H100 80GB HBM3", 0.75), ("NVIDIA A100-SXM4-80GB", 0.25))
    hours: float = 24.0
    interval: float = 30.0
    seed: int = 0
    start: int = 1_786_320_000_000  # 2026-08-10T00:00:00Z, a Monday
    spread: float = 5.0
    jitter: float = 0.05
    sizes: tuple[tuple[int, float], ...] = SIZES
    reporting: float = 0.5
    faults: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    counters: bool = False
    summed: bool = False
    outcomes: bool = False
    fields: tuple[str, ...] = GAUGES
    cluster: str = "simulated"

    def __post_init__(self) -> None:
        limits = {"gpus": (1, 1_000_000), "gpus_per_host": (1, 64), "hours": (0, 1e5), "interval": (0.1, 3600), "seed": (0, 2**63)}
        for name, (lowest, highest) in limits.items():
            if not lowest <= getattr(self, name) <= highest:
                raise UllageError(
                    f"can't simulate a fleet with {name} = {getattr(self, name)}", f"{name} lies between {lowest:,} and {highest:,}"
                )
        if not 2 <= self.samples <= MOST_SAMPLES:
            raise UllageError(
                f"{self.hours:g} hours at {self.interval:g} s are {self.samples:,} samples of each GPU",
                f"between 2 and {MOST_SAMPLES:,} can be simulated",
            )
        if not 0 <= 2 * self.jitter < self.interval or self.spread < 0:
            raise UllageError(
                f"a jitter of {self.jitter} s does not fit an interval of {self.interval} s", "jitter is less than half the interval"
            )
        if any(size < 1 or weight < 0 for size, weight in self.sizes):
            raise UllageError(f"jobs of these sizes can't be drawn: {self.sizes}", "a size is at least 1 GPU, its weight at least 0")
        for name in self.fields:
            if name not in GAUGES:
                raise UllageError(f"the simulator has no field '{name}'", did_you_mean(name, GAUGES, "ullage metrics --fields"))

    @property
    def samples(self) -> int:
        """How many samples a GPU gives."""
        return math.floor(self.hours * HOUR_MS / self.interval_ms + 1e-9)

    @property
    def interval_ms(self) -> int:
        """The scrape interval in milliseconds."""
        return round(self.interval * 1000)

    @property
    def window(self) -> tuple[int, int]:
        """Start and end in milliseconds; each host's own window is later by its offset."""
        return self.start, self.start + self.samples * self.interval_ms

    @property
    def hosts(self) -> int:
        """How many hosts there are; the last may hold fewer GPUs."""
        return -(-self.gpus // self.gpus_per_host)

    @property
    def exported(self) -> tuple[str, ...]:
        """The columns that are written, in the order of the samples table."""
        counted = self.counters or self.changes_any("counters_appear", "counters_vanish")
        told = set(self.fields) | set(CYCLES if counted else ()) | set(HEALTH if {"all", *SICK} & set(self.faults) else ())
        return tuple(name for name in FIELDS if name in told)

    def changes_any(self, *names: str) -> bool:
        """Return whether one of these changes is wanted."""
        return bool({"all", *names} & set(self.changes))

    def gpus_of(self, host: int) -> range:
        """Return the numbers of the GPUs of a host."""
        return range(host * self.gpus_per_host, min(self.gpus, (host + 1) * self.gpus_per_host))


@dataclass(frozen=True)
class SimulatedChip:
    """What the simulation needs of a chip: SMs, clocks in Hz (of memory: NaN where nobody states it), power in W, memory in B."""

    model: str
    sms: int
    boost: float
    tensor_clock: float
    power: float
    memory: float
    memory_clock: float

    @property
    def load_clock(self) -> float:
        """The mean SM clock under sustained tensor load, in Hz."""
        return LOAD_CLOCK * self.tensor_clock / H100_TENSOR_CLOCK

    @property
    def idle_power(self) -> float:
        """Board power at rest, in W: a tenth of the limit, as 70 W of an H100's 700 W."""
        return 0.1 * self.power


@functools.cache
def device(model: str) -> SimulatedChip:
    """Return what is simulated of a model; raises UllageError for one that nobody knows.

    >>> device("NVIDIA H100 80GB HBM3").boost, round(device("NVIDIA A100-SXM4-80GB").load_clock / 1e6)
    (1980000000.0, 1042)
    """
    chip = find(model)
    memory_clock = math.nan if chip.memory_clock is None else chip.memory_clock
    return SimulatedChip(model, chip.sms, chip.sm_clock or chip.tensor_clock, chip.tensor_clock, chip.power, chip.memory, memory_clock)


def host_models(specification: Specification) -> list[str]:
    """Return the model of each host: blocks in the order of `models`, as near to their shares as whole hosts allow.

    >>> [m.split()[1] for m in host_models(Specification(gpus=32))]
    ['H100', 'H100', 'H100', 'A100-SXM4-80GB']
    """
    total = sum(share for _, share in specification.models)
    if not total > 0:
        raise UllageError("the models have no shares that add up to more than 0", "give each model a share, such as 0.75")
    models: list[str] = []
    reached = 0.0
    for name, share in specification.models:
        reached += share / total
        models += [name] * (round(reached * specification.hosts) - len(models))
    return models


def host_name(host: int) -> str:
    """Return the name of a host by its number.

    >>> host_name(0)
    'node0001'
    """
    return f"node{host + 1:04d}"


def uuid(specification: Specification, gpu: int) -> str:
    """Return the UUID of a GPU, the same for the same seed."""
    digest = hashlib.sha256(f"{specification.seed}/{specification.cluster}/{gpu}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def stream(specification: Specification, *key: int) -> np.random.Generator:
    """Return the random numbers of one purpose: (1, gpu) readings, (2, host) scrapes, (3,) jobs, (4, job) loads, (5,) faults,
    (6,) reports, (7,) changes, (8, gpu, instance) readings of an instance, (9,) how runs ended.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(specification.seed, spawn_key=key)))


def boundaries(specification: Specification, host: int, interval_ms: int) -> Milliseconds:
    """Return the host's scrape times in ms, n + 1 of them: sample k speaks for the time from boundary k to boundary k + 1.

    First and last have no jitter, so the spans add up to n intervals exactly.
    """
    draw = stream(specification, 2, host)
    offset = int(draw.integers(0, max(1, round(specification.spread * 1000))))
    count = specification.samples * specification.interval_ms // interval_ms
    jitter = round(specification.jitter * 1000)
    shifts = draw.integers(-jitter, jitter + 1, count + 1) if jitter else np.zeros(count + 1, np.int64)
    shifts[0] = shifts[-1] = 0
    return specification.start + offset + np.arange(count + 1, dtype=np.int64) * interval_ms + shifts


assert set(GAUGES) <= set(FIELDS) and set(CYCLES) <= set(COUNTERS)
