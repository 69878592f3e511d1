"""What the rules record: one table of series, each with its name, what it says, its unit, its labels and its query.

Sums are recorded beside ratios, for a ratio can't be averaged: over a time range (and over any set of series) divide one sum by another,
`sum_over_time(job:ullage_ofu_gpus:sum[1d]) / sum_over_time(job:ullage_measured_gpus:sum[1d])`. Sums are in GPUs: a GPU whose OFU is
0.4 adds 0.4 of a GPU, an instance of a MIG GPU its share of that. GPUs x the interval of the rules are GPU-seconds.

The queries are made by calling the functions in `ullage.metrics`: each equation stands there, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ullage.field import CLOCK_LIMITS, IDLE
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import exact_ofu, sampled_ofu, ullage
from ullage.metrics.roofs import bandwidth_utilization, link_utilization, pipe_utilization
from ullage.metrics.telemetry import activity, chain_place, load_balance
from ullage.rules import chips
from ullage.rules.query import Labels, PromQuery, duration, recorded
from ullage.rules.readings import DEVICE, HOLDER, PLACE, SHARED, TelemetryNames, counter_rate, gauge, holders, impossible
from ullage.sums.devices import WORKS
from ullage.sums.gauges import BUSY, CLOCK_FLOOR, TOLERANCE
from ullage.sums.ratio_units import WORKING
from ullage.sums.windows import FROZEN_AFTER, STILL

OWNED = (*DEVICE, *HOLDER)
# what is added up, by the labels that stay: the first three over GPUs, the others over jobs
LEVELS: Mapping[str, Labels] = {
    "job": ("cluster", *HOLDER),
    "host": ("cluster", "host"),
    "model": ("model",),
    "user": ("cluster", "user"),
    "namespace": ("cluster", "namespace"),
    "cluster": ("cluster",),
    "fleet": (),
}
FROM_GPUS = ("job", "host", "model")
HIGHEST_OFU = 1.5  # no GPU's SMs run half as fast again as its tensor clock: more is a counter that was reset
SMS_ADDED_UP = 4e9  # Hz; see `ullage.field.SEVERAL_SMS`
PIPES = ("fp64", "fp32", "fp16")


@dataclass(frozen=True)
class RecordedSeries:
    """A series that a rule records; `fixed` labels are the rule's own, and those of one name are one series with that label."""

    name: str
    what: str
    unit: str
    query: PromQuery
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> Labels:
        """The labels that tell its values apart."""
        return (*self.query.labels, *(label for label in self.fixed if label not in self.query.labels))

    @property
    def level(self) -> str:
        """What a value is of: "gpu", "job", "host", …"""
        return self.name.partition(":")[0]

    @property
    def here(self) -> PromQuery:
        """The query of the recorded series."""
        return recorded(self.name, self.labels)


@dataclass(frozen=True)
class RecordingPlan:
    """What a fleet's telemetry is called, how often rules are evaluated (s), and which models of GPU they know (none: all).

    With `alerts` they warn, too; the commands that these show read from `server`.
    """

    names: TelemetryNames = field(default_factory=TelemetryNames)
    interval: float = 30.0
    models: tuple[str, ...] = ()
    alerts: bool = True
    server: str = "http://localhost:9090"

    @property
    def vendor(self) -> str:
        """Whose GPUs the exporters are of ("": any)."""
        return "AMD" if self.names.dialect == "amd" else ""


def recorded_series(plan: RecordingPlan) -> tuple[RecordedSeries, ...]:
    """Return everything that the rules record but the models' constants, each after what it reads."""
    gpus = [*_readings(plan), *_gpu_metrics(), *_owners(), *_roofs(plan.names), *_limits(), *_distrust(plan)]
    return (*gpus, *_sums())


# --- of each GPU ---

HELD = recorded("gpu:ullage_holder:info", OWNED)
TENSOR, SM, ENGINE, UTILIZATION, CLOCK = (
    recorded(f"gpu:ullage_{name}", DEVICE)
    for name in ("tensor_active:ratio", "sm_active:ratio", "engine_active:ratio", "utilization:ratio", "sm_clock:hertz")
)
TENSOR_CYCLES, SM_CYCLES = (recorded(f"gpu:ullage_{name}_cycles:rate", DEVICE) for name in ("tensor", "sm"))
POWER, EVENTS = recorded("gpu:ullage_power:watts", DEVICE), recorded("gpu:ullage_clock_events:mask", DEVICE)
SHARE, OFU = recorded("gpu:ullage_share:ratio", OWNED), recorded("gpu:ullage_ofu:ratio", DEVICE)
OWNER = recorded("gpu:ullage_owner:ratio", (*OWNED, "owner"))


def _readings(plan: RecordingPlan) -> Iterator[RecordedSeries]:
    """Yield what is read of each device, cleaned."""
    names = plan.names
    yield RecordedSeries(HELD.text, "who holds a GPU; `job_id` is empty where nobody does", "1", holders(names))
    cycles = [counter_rate(names, name, plan.interval) for name in ("tensor_cycles", "sm_cycles")]
    yield RecordedSeries(TENSOR_CYCLES.text, "cycles a second in which tensor pipes worked, where cycles are counted", "Hz", cycles[0])
    yield RecordedSeries(SM_CYCLES.text, "cycles a second of an SM, or of all SMs added up, where cycles are counted", "Hz", cycles[1])
    yield RecordedSeries(TENSOR.text, "share of cycles in which a tensor pipe worked", "1", gauge(names, "tensor_active"))
    yield RecordedSeries(SM.text, "share of cycles in which an SM held work", "1", gauge(names, "sm_active"))
    yield RecordedSeries(ENGINE.text, "share of time in which the engine was busy", "1", gauge(names, "gr_active"))
    yield RecordedSeries(UTILIZATION.text, "share of time in which a kernel ran ('GPU utilization')", "1", gauge(names, "gpu_util"))
    clock = gauge(names, "sm_clock")
    of_gpu = gauge(names, "sm_clock", 'GPU_I_ID=""').grouped("max", PLACE)
    instances = gauge(names, "tensor_active", 'GPU_I_ID!=""')
    clock = clock.otherwise(PromQuery(f"(({instances.text} * 0 + 1) * on ({', '.join(PLACE)}) group_left () {of_gpu.text})", DEVICE))
    yield RecordedSeries(CLOCK.text, "SM clock; an instance of a GPU has that of its GPU", "Hz", clock)
    power = counter_rate(names, "energy", plan.interval).otherwise(gauge(names, "power"))
    yield RecordedSeries(POWER.text, "power, from the energy counter where there is one", "W", power)
    yield RecordedSeries(EVENTS.text, "why the clock is held back, as NVML's bit mask", "1", gauge(names, "throttle"))


def _gpu_metrics() -> Iterator[RecordedSeries]:
    """Yield a device's share of a GPU, and its OFU."""
    instances, wholes = HELD.only('GPU_I_ID!=""'), HELD.only('GPU_I_ID=""')
    sliced = [_slices(count) for count in (1, 2, 3, 4, 7)]
    share_of_instance = ratio(PromQuery(f"({' or '.join(one.text for one in sliced)})", OWNED), chips.MIG_SLICES.query)
    left = PromQuery(
        f"(({wholes.text} - on ({', '.join(PLACE)}) group_left () {share_of_instance.grouped('sum', PLACE).text}) > 1e-6)", OWNED
    )
    share = share_of_instance.otherwise(left).otherwise(_unless_sliced(wholes, instances))
    yield RecordedSeries(
        SHARE.text,
        "which part of a GPU a series stands for: 1, an instance's slices, or what is not sliced of a GPU in MIG mode",
        "1",
        share,
    )
    tensor_clock = chips.TENSOR_CLOCK.query
    awake = CLOCK.unless(CLOCK.compared("==", 0).both(TENSOR.compared(">", WORKING)))
    units = SM_CYCLES.compared("> bool", SMS_ADDED_UP) * (chips.SMS.query - 1) + 1
    exact = exact_ofu(TENSOR_CYCLES, 1, tensor_clock, units).compared("<=", HIGHEST_OFU)
    found = exact.otherwise(sampled_ofu(TENSOR, awake, tensor_clock))
    rest = PromQuery(f"({wholes.text} and on ({', '.join(PLACE)}) {instances.text})", OWNED)
    nothing = (rest * (tensor_clock * 0)).grouped("max", DEVICE)
    ofu = nothing.otherwise(found)
    yield RecordedSeries(
        OFU.text, "share of the peak FLOP rate that the tensor pipes delivered (OFU); counted cycles where there are any", "1", ofu
    )


def _slices(count: int) -> PromQuery:
    pattern = f"{count}c[.].*|{count}g[.].*"
    return HELD.only(f'GPU_I_PROFILE=~"{pattern}"') * count


def _unless_sliced(wholes: PromQuery, instances: PromQuery) -> PromQuery:
    return PromQuery(f"({wholes.text} unless on ({', '.join(PLACE)}) {instances.text})", wholes.labels)


def busiest() -> PromQuery:
    """Return the highest gauge of activity of each device."""
    gauges = (TENSOR, SM, ENGINE, UTILIZATION)
    chosen = "|".join(one.text for one in gauges)
    return PromQuery(f'max by ({", ".join(DEVICE)}) ({{__name__=~"{chosen}"}})', DEVICE)


def _owners() -> Iterator[RecordedSeries]:
    """Yield the ledger: each device's share under the name of its one owner (see `sums.ledger`)."""
    quiet = busiest().compared("<", IDLE)
    rest = PromQuery(f'({SHARE.text}{{GPU_I_ID=""}} and on ({", ".join(PLACE)}) {SHARE.text}{{GPU_I_ID!=""}})', OWNED)
    one, nobody, several = (SHARE.only(f"job_id{test}") for test in (f'!~"|{SHARED}"', '=""', f'="{SHARED}"'))
    owned = {
        "job": one.unless(quiet).unless(rest),
        "shared": several.unless(rest),
        "held_idle": one.both(quiet).unless(rest),
        "free": nobody.both(quiet).unless(rest),
        "not_sliced": rest,
        "unknown": nobody.unless(quiet).unless(rest),
    }
    for name, query in owned.items():
        yield RecordedSeries(OWNER.text, "the ledger: a GPU's share, under its one owner", "1", query, {"owner": name})


ROOF = recorded("gpu:ullage_roof:ratio", (*DEVICE, "roof"))


def _roofs(names: TelemetryNames) -> Iterator[RecordedSeries]:
    """Yield how high a device is under each roof but the tensor pipes', whose height is OFU."""
    memory = bandwidth_utilization(gauge(names, "dram_active"), gauge(names, "memory_clock"), chips.MEMORY_CLOCK.query)
    pipes = {name: pipe_utilization(gauge(names, f"{name}_active"), CLOCK, chips.SM_CLOCK.query) for name in PIPES}
    links = {
        f"{link}_{way}": link_utilization(gauge(names, f"{link}_{way}"), peak.query)
        for link, peak in (("nvlink", chips.NVLINK), ("pcie", chips.PCIE))
        for way in ("tx", "rx")
    }
    for name, query in ({"memory": memory} | pipes | links).items():
        yield RecordedSeries(ROOF.text, "share of a peak beside the tensor pipes': memory, other pipes, links", "1", query, {"roof": name})


LIMITED = recorded("gpu:ullage_limited:info", (*DEVICE, "limit"))


def _limits() -> Iterator[RecordedSeries]:
    """Yield what lowers a device's clock: of several the first of `CLOCK_LIMITS`."""
    before: PromQuery | None = None
    for name, mask in CLOCK_LIMITS.items():
        bits = [1 << bit for bit in range(63) if mask >> bit & 1]
        told = PromQuery(" or ".join(f"floor({EVENTS.text} / {bit}) % 2 == 1" for bit in bits), DEVICE)
        told = PromQuery(f"({told.text})", DEVICE)
        query = told if before is None else told.unless(before)
        yield RecordedSeries(LIMITED.text, "1 where a clock is held back, by what", "1", query, {"limit": name})
        before = told if before is None else before.otherwise(told)


DISTRUSTED = recorded("gpu:ullage_distrusted:info", (*DEVICE, "reason"))


def _distrust(plan: RecordingPlan) -> Iterator[RecordedSeries]:
    """Yield the devices whose readings can't be right, with the reason: what can be seen without looking back for long."""
    gauges = (ENGINE, SM, TENSOR)
    chosen = "|".join(one.text for one in gauges)
    engine = PromQuery(f'max by ({", ".join(DEVICE)}) ({{__name__=~"{chosen}"}})', DEVICE)
    outside = [impossible(plan.names, name) for name in ("tensor_active", "sm_active", "gr_active", "gpu_util", "sm_clock")]
    above = [inner.compared(">", outer + TOLERANCE) for inner, outer in ((TENSOR, SM), (SM, ENGINE), (TENSOR, ENGINE))]
    window = f"[{duration((FROZEN_AFTER + 0.5) * plan.interval)}]"
    still = f"changes({TENSOR.text}{window}) == 0 and count_over_time({TENSOR.text}{window}) > {FROZEN_AFTER}"
    fine = f"{TENSOR.text} >= {STILL} and abs({TENSOR.text} * 100 - round({TENSOR.text} * 100)) > 1e-3"
    reasons = {
        "impossible": _any_of(outside),
        "no_clock": CLOCK.compared("<", CLOCK_FLOOR).both(engine.compared(">=", BUSY)),
        "disorder": _any_of(above),
        "stuck": engine.compared("==", 0).both(UTILIZATION.compared(">=", WORKS)),
        "gauge_frozen": PromQuery(f"({still} and {fine})", DEVICE),
    }
    for name, query in reasons.items():
        text = query.text if name == "impossible" else f"{query.text} * 0 + 1"
        yield RecordedSeries(
            DISTRUSTED.text, "1 where a GPU's readings can't be right, and why", "1", PromQuery(text, DEVICE), {"reason": name}
        )


def _any_of(queries: Sequence[PromQuery]) -> PromQuery:
    found = queries[0]
    for other in queries[1:]:
        found = found.otherwise(other)
    return found


# --- of jobs, hosts, models, users, fleets ---


def _sums() -> Iterator[RecordedSeries]:
    for level in FROM_GPUS:
        yield from _added_over_gpus(level)
    for level in LEVELS:
        if level not in FROM_GPUS:
            yield from _added_over_jobs(level)
    for level in LEVELS:
        yield from _ratios(level)
    yield from _factors()


_WHAT = {
    "owned_gpus": ("GPUs, by their owner in the ledger; all owners add up to the GPUs that report", ("owner",)),
    "measured_gpus": ("GPUs whose OFU is known", ()),
    "ofu_gpus": ("OFU added up over GPUs", ()),
    "loss_gpus": ("GPUs that a step of the chain loses; all steps add up to measured GPUs less `ofu_gpus`", ("step",)),
    "roof_gpus": ("heights under a roof added up over GPUs", ("roof",)),
    "roof_measured_gpus": ("GPUs whose height under a roof is known", ("roof",)),
    "power_watts": ("power of all GPUs", ()),
    "limited_gpus": ("GPUs whose clock is held back", ("limit",)),
    "distrusted_gpus": ("GPUs whose readings can't be right", ("reason",)),
}


def _sum(level: str, what: str) -> PromQuery:
    return recorded(f"{level}:ullage_{what}:sum", (*LEVELS[level], *_WHAT[what][1]))


def _added_over_gpus(level: str) -> Iterator[RecordedSeries]:
    by = LEVELS[level]
    measured = OWNER.both(OFU)
    counted = OWNER.only('owner!="not_sliced"')
    added = {
        "owned_gpus": OWNER.grouped("sum", (*by, "owner")),
        "measured_gpus": measured.grouped("sum", by),
        "ofu_gpus": (OWNER * OFU).grouped("sum", by),
        "roof_gpus": ROOF.carrying(counted, HOLDER).grouped("sum", (*by, "roof")),
        "roof_measured_gpus": ROOF.ones().carrying(counted, HOLDER).grouped("sum", (*by, "roof")),
        "power_watts": (HELD * POWER).grouped("sum", by),
        "limited_gpus": LIMITED.carrying(counted, HOLDER).grouped("sum", (*by, "limit")),
        "distrusted_gpus": DISTRUSTED.carrying(counted, HOLDER).grouped("sum", (*by, "reason")),
    }
    for what, query in added.items():
        yield _recorded_sum(level, what, query)
    for step, query in _losses().items():
        yield _recorded_sum(level, "loss_gpus", query.grouped("sum", by), {"step": step})


def _losses() -> Mapping[str, PromQuery]:
    """Return what each step of the chain loses of each device: the linear forms of `metrics.telemetry.step_losses`."""
    idle = {"not_allocated": 'owner=~"free|not_sliced"', "held_idle": 'owner="held_idle"'}
    lost = {step: OWNER.only(owner) * ullage(OFU) for step, owner in idle.items()}
    work, shared_work, alone = (OWNER.only(f'owner=~"{owners}"').both(OFU) for owners in ("job|shared|unknown", "job|shared", "unknown"))
    job = ("cluster", *HOLDER)
    own = shared_work.ones() * ENGINE
    most = own.grouped("max", job)
    even = load_balance(own, most).otherwise(own.ones())  # no engine of the job does anything: all do so alike
    tensor = ratio(TENSOR_CYCLES, SM_CYCLES).otherwise(TENSOR)
    no_engine = work.unless(ENGINE)
    return {
        **lost,
        "load_balance": shared_work * ullage(even),
        "activity": (shared_work * even * ullage(activity(most))).otherwise(alone * ullage(ENGINE)),
        "sm_fill": work * (ENGINE - SM),
        "sm_fill_x_tensor_issue": work.unless(SM) * (ENGINE - tensor),
        "tensor_issue": work * (SM - tensor),
        "load_balance_x_activity_x_sm_fill": no_engine * ullage(SM),
        "load_balance_x_activity_x_sm_fill_x_tensor_issue": no_engine.unless(SM) * ullage(tensor),
        "clock": work * (tensor - OFU),
    }


def _added_over_jobs(level: str) -> Iterator[RecordedSeries]:
    for what, (_, more) in _WHAT.items():
        yield _recorded_sum(level, what, _sum("job", what).grouped("sum", (*LEVELS[level], *more)))


def _recorded_sum(level: str, what: str, query: PromQuery, fixed: Mapping[str, str] | None = None) -> RecordedSeries:
    return RecordedSeries(_sum(level, what).text, _WHAT[what][0], "W" if what == "power_watts" else "GPUs", query, fixed or {})


def _ratios(level: str) -> Iterator[RecordedSeries]:
    ofu = ratio(_sum(level, "ofu_gpus"), _sum(level, "measured_gpus"))
    yield RecordedSeries(f"{level}:ullage_ofu:ratio", "OFU: the mean over GPUs of what each delivered of its peak", "1", ofu)
    roof = ratio(_sum(level, "roof_gpus"), _sum(level, "roof_measured_gpus"))
    yield RecordedSeries(f"{level}:ullage_roof:ratio", "share of a peak beside the tensor pipes', mean over GPUs", "1", roof)


def _factors() -> Iterator[RecordedSeries]:
    """Yield the chain of each job: what is left after a step over what was before it (see `metrics.telemetry.chain`)."""
    by, losses = LEVELS["job"], _sum("job", "loss_gpus")
    measured = _sum("job", "measured_gpus")
    steps = sorted(_losses(), key=chain_place)
    for place, step in enumerate(steps):
        before = measured
        if place:
            taken = losses.only(f'step=~"{"|".join(steps[:place])}"').grouped("sum", by)
            before = measured - taken.otherwise(measured * 0)
        after = before - losses.only(f'step="{step}"').grouped("sum", by)
        yield RecordedSeries(
            "job:ullage_factor:ratio",
            "a step of a job's chain: what is left after it over what was before; the product of all is OFU",
            "1",
            ratio(after, before),
            {"step": step},
        )


def ofu_over(level: str, time: str) -> str:
    """Return the query of OFU over a span of time: of sums, for a mean of ratios is none.

    >>> ofu_over("fleet", "1d")
    'sum_over_time(fleet:ullage_ofu_gpus:sum[1d]) / sum_over_time(fleet:ullage_measured_gpus:sum[1d])'
    """
    return f"sum_over_time({level}:ullage_ofu_gpus:sum[{time}]) / sum_over_time({level}:ullage_measured_gpus:sum[{time}])"
