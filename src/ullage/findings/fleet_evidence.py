"""What findings of a fleet are made from: sums by job and device, as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ullage.audit.trust import Verdict
from ullage.metrics.metric import ratio
from ullage.views.notation import AS_GIVEN, MoneyTerms

WEEK_HOURS = 168.0
LEAST_WEEK_HOURS = 1.0  # of a window: what less shows is not made a week of


@dataclass(frozen=True)
class LimitedClock:
    """The time of a device under one of `field.CLOCK_LIMITS`, GPU-hours: `hours` of it, and of tensor activity and OFU-hours in it."""

    hours: float
    tensor: float
    kept: float


@dataclass(frozen=True)
class DeviceOfJob:
    """One device of a job: where it is, and what the job did with it. Times are GPU-hours: a slice counts as its share of the GPU.

    `held` is all time, `idle` that in which nothing ran, `worked` the rest; `counted` is the part of `worked` whose OFU is known, `kept`
    that time's OFU-hours (`counted` × OFU) and `tensor` its hours of tensor activity. `engine` and `sm` are mean activities while it
    worked; None: not measured. `lost` is what each step of the chain loses there, `cost` what the held time costs. `limits` is the time in
    which something lowered the clock, by what it was, and `power` the mean power (W) while it worked.
    """

    gpu: str
    host: str | None
    index: int | None
    mig: str | None
    model: str | None
    held: float
    idle: float
    counted: float
    kept: float
    tensor: float
    engine: float | None
    sm: float | None
    lost: Mapping[str, float] = field(default_factory=dict)
    cost: float | None = None
    limits: Mapping[str, LimitedClock] = field(default_factory=dict)
    power: float | None = None

    @property
    def worked(self) -> float:
        """GPU-hours in which something ran."""
        return self.held - self.idle

    @property
    def busy(self) -> float | None:
        """Mean SM activity while it worked; engine activity where that was not measured."""
        return self.engine if self.sm is None else self.sm

    @property
    def ofu(self) -> float | None:
        """OFU of the time in which it worked."""
        return _known(ratio(self.kept, self.counted))

    @property
    def clock(self) -> float | None:
        """The clock over the tensor clock, where tensor pipes worked."""
        return _known(ratio(self.kept, self.tensor))


# by what stragglers are seen, and the counter that shows it
SIGNS = {"clock": "lower clock", "busy": "computes for longer", "late": "comes late", "link": "NVLink sends again"}
SIGN_COUNTERS = {"clock": "SM clock", "busy": "SM activity", "late": "engine activity", "link": "NVLink replays"}
PlacedDevice = tuple[str | None, str, str | None]  # host, GPU, MIG instance


@dataclass(frozen=True)
class SeenStraggler:
    """Devices of a job that made it wait: from `start` on, known at `found`, to `end` (ms; None: to the last window).

    `sign` says by what they were seen: `clock`, `busy`, `late` or `link` (see `reports.stragglers.slow_devices`); `longer` is how many
    times as long as the others they needed for the same work, `waited` the share of the job's time at work in which it waited for them
    (of several at once each for what it was slower than the next).
    """

    cluster: str | None
    job: str
    devices: tuple[PlacedDevice, ...]
    start: int
    found: int
    sign: str
    longer: float
    end: int | None = None
    waited: float = 0.0


@dataclass(frozen=True)
class JobEvidence:
    """A job and its devices; `name`, `state` are those of its record, `user` and `namespace` of its samples.

    `bound` is the class of roof that binds it while it works ("memory", "tensor", …; None: far from every roof, or not known), `memory`
    how high it then is under the memory's roof, `memory_measured` whether that is over a measured ceiling. `lost_runs` are the
    GPU-hours of its runs that were lost, by what ended them; `stragglers` are the devices that made it wait.
    """

    job: str
    cluster: str | None
    user: str | None
    namespace: str | None
    name: str | None
    state: str | None
    devices: tuple[DeviceOfJob, ...]
    reported_mfu: float | None = None
    bound: str | None = None
    memory: float | None = None
    memory_measured: bool = False
    lost_runs: Mapping[str, float] = field(default_factory=dict)
    stragglers: tuple[SeenStraggler, ...] = ()

    @property
    def bound_by_memory(self) -> bool:
        """Whether memory binds it: its low OFU is then no fault of it."""
        return self.bound == "memory"

    @property
    def likeness(self) -> tuple[object, ...] | None:
        """What jobs of one kind have in common: cluster, user, name, number and models of GPUs; None for a job that has no name."""
        if not self.name:
            return None
        return self.cluster, self.user, self.name, len(self.devices), tuple(sorted({one.model or "" for one in self.devices}))

    @property
    def owner(self) -> str:
        """Whose the job is, as far as anybody says."""
        return self.user or self.namespace or "unknown"

    def total(self, amount: Callable[[DeviceOfJob], float]) -> float:
        """Return an amount of each device, added up."""
        return sum(map(amount, self.devices))

    @property
    def ofu_of_all(self) -> float | None:
        """OFU of the time for which the job held its devices: where it idled nothing was kept."""
        return _known(ratio(self.total(lambda one: one.kept), self.total(lambda one: one.counted + one.idle)))

    @property
    def ofu(self) -> float | None:
        """OFU of the time in which the job worked."""
        return _known(ratio(self.total(lambda one: one.kept), self.total(lambda one: one.counted)))


@dataclass(frozen=True)
class FreeHours:
    """GPU-hours of one host that nobody held: `free`, and `not_sliced` of GPUs in MIG mode; all those of the host, and their price."""

    cluster: str | None
    host: str | None
    observed: float
    free: float
    not_sliced: float
    cost: float | None = None


@dataclass(frozen=True)
class SickGpu:
    """A GPU that told of errors: `xids` the driver's codes, `errors` how many came to be by field, `hours` those since the first of them.

    `jobs` held it since then.
    """

    cluster: str | None
    host: str | None
    gpu: str
    index: int | None
    hours: float
    xids: tuple[int, ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True)
class LostRuns:
    """Some runs: how many, how many of them were lost, the GPU-hours that they held, and those of lost ones by what ended them."""

    runs: int
    lost: int
    gpu_hours: float
    lost_hours: Mapping[str, float]

    @property
    def lost_share(self) -> float:
        """The share of the GPU-hours that was lost: one less the runtime goodput."""
        return sum(self.lost_hours.values()) / self.gpu_hours if self.gpu_hours else 0.0


@dataclass(frozen=True)
class FamilyRuns:
    """The runs of one kind of job (cluster, user, name, number of GPUs) that ended within a window, and those that ended before it."""

    cluster: str | None
    user: str | None
    name: str
    gpus: int
    now: LostRuns
    before: LostRuns


@dataclass(frozen=True)
class QueueWaits:
    """How long the runs that started in a window had waited (s): their mean by GPUs, median, the longest and whose; GPU-hours waited.

    `runs` of `jobs` say how long they waited, `unknown` do not; `gpu_hours` is their GPUs × wait, `ran` their GPUs × time in the window.
    """

    runs: int
    unknown: int
    jobs: int
    mean: float
    median: float
    longest: float
    longest_job: str
    gpu_hours: float
    ran: float


@dataclass(frozen=True)
class FleetEvidence:
    """What was measured of a fleet: trusted series only, but for the `verdicts` on those that are not ok.

    `hours` is the length of the window, `gpu_hours` all that was observed. `earlier` are the jobs of the window that it is compared with,
    `families` how runs of each kind of job ended, `terms` what amounts of money are in.
    """

    hours: float
    gpu_hours: float
    jobs: tuple[JobEvidence, ...]
    free: tuple[FreeHours, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    sick: tuple[SickGpu, ...] = ()
    earlier: tuple[JobEvidence, ...] = ()
    queue: QueueWaits | None = None
    families: tuple[FamilyRuns, ...] = ()
    terms: MoneyTerms = AS_GIVEN

    @property
    def weeks(self) -> float | None:
        """How many weeks the window is long; None where it is too short to speak of weeks."""
        return self.hours / WEEK_HOURS if self.hours >= LEAST_WEEK_HOURS else None


def price(hours: float, devices: Iterable[DeviceOfJob]) -> float | None:
    """Return what some GPU-hours on these devices cost, at their mean price; None where a price is not known.

    >>> price(2.0, [])
    """
    chosen = [*devices]
    held, costs = sum(one.held for one in chosen), [one.cost for one in chosen]
    known = [cost for cost in costs if cost is not None]
    return hours * sum(known) / held if held > 0 and len(known) == len(costs) else None


def _known(value: float | None) -> float | None:
    return None if value is None else float(value)
