"""What can be planted in a fleet: slow, idle and shared GPUs, jobs that miscount, and exporters that do not tell the truth.

Each name of `FAULTS` is planted once (miscounts: one job each), where it fits; what did not fit is listed. `before` plants
what needs hosts of its own, before jobs are drawn; `after` the rest.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from ullage.errors import UllageError, did_you_mean
from ullage.simulate.changes import Changed, Script, places_of
from ullage.simulate.load import (
    APPLICATION_CLOCK,
    COMMUNICATION,
    COMPUTE,
    HARDWARE_THERMAL,
    PHASE,
    POWER_CAP,
    SM,
    SOFTWARE_THERMAL,
    STEP,
    TENSOR,
    Array,
    expected_ofu,
    load,
)
from ullage.simulate.schedule import Draft, ScheduledJob, draw_job, resting, slowed, straggling
from ullage.simulate.specification import boundaries, device, host_name, uuid

OK = "ok"


@dataclass(frozen=True)
class Fault:
    """What a name plants, and the verdict that trust must give for the GPUs concerned."""

    name: str
    verdict: str
    what: str


FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Fault("straggler", OK, "one GPU of a job computes 1.6 times as long, and the others wait for it"),
        Fault("held_idle", OK, "a job holds GPUs and nothing runs on them"),
        Fault("free", OK, "nobody holds some GPUs for the whole window"),
        Fault("shared", "duplicated", "two jobs hold one GPU: the exporter gives every reading once for each"),
        Fault("throttled", OK, "a GPU that is too hot runs at about 900 MHz (H100)"),
        Fault("power_capped", OK, "a GPU has a lower power limit than the others of its job, and runs at seven tenths of their clock"),
        Fault("application_clock", OK, "somebody set the clocks of a job's GPUs to four fifths of what they would be"),
        Fault("regression", OK, "the middle one of three jobs of a family runs with a debug flag: OFU falls 2.5 times"),
        Fault("latent_moe", OK, "a job's MFU counts experts of latent width 512 at 2048: 2.94 times too high"),
        Fault("hybrid", OK, "a job's MFU counts hybrid layers as attention and dense MLP: 1.57 times too high"),
        Fault("recomputation", OK, "a job's MFU leaves out the recomputed forward pass: 3/4 of what it is"),
        Fault("memory_bound", OK, "a job serves a large model token by token: memory is near its peak, tensor pipes and most SMs rest"),
        Fault("stuck", "stuck at zero", "profiling gauges read 0 while the GPU works"),
        Fault("stale", "stale", "the exporter gives its last reading for ever"),
        Fault("sentinel", "sentinel", "the exporter writes 'no value' numbers, in every form"),
        Fault("duplicated", "duplicated", "every reading comes twice"),
        Fault("impossible", "impossible", "some activity readings are far above 1"),
        Fault("percent", "wrong unit", "a host's activity is in percent, under a name that says ratio"),
        Fault("hertz", "wrong unit", "a host's clock is in the wrong one of Hz and MHz for its name"),
        Fault("slow", "slow interval", "a host is scraped half as often"),
        Fault(
            "beating", OK, "a job's step nearly divides the scrape interval: the sampled clock walks through the step, and harms nothing"
        ),
        Fault("locked", "locked", "a job's step is exactly the scrape interval: every sample of clock and power meets the same phase"),
        Fault("zero_clock", "impossible", "the clock reads 0 while the GPU works"),
        Fault("gigahertz", "impossible", "the clock is in GHz under a name that says MHz"),
        Fault("idle_clock", "contradictory", "the clock reads 345 MHz while the GPU works at high power"),
        Fault("tensor_above_sm", "contradictory", "tensor activity reads above SM activity"),
        Fault("faint_percent", "contradictory", "an almost idle GPU's activity is in percent and stays below 1, as a ratio would"),
        Fault("frozen_gauge", "stale", "tensor activity alone gives its last reading for ever"),
        Fault("stale_part", "faulty in part", "the exporter gives its last reading for a twelfth of the window"),
        Fault("stuck_part", "faulty in part", "profiling gauges read 0 for nine minutes while the GPU works"),
        Fault("no_tensor", OK, "tensor activity alone reads 0: gauges can't tell it from work without tensor instructions"),
        Fault("constant_clock", OK, "the clock reads 1,200 MHz for ever: gauges can't tell it from a clock that was set so"),
        Fault("silent", OK, "a GPU says nothing for a while"),
        Fault("reordered", OK, "a host's rows come in the wrong order"),
        Fault("skewed", OK, "a host's clock runs ahead for a while and is then set back"),
        Fault("reset", OK, "a reboot sets a GPU's cumulative counters to zero"),
        Fault("failing_memory", OK, "ECC can't correct an error: a GPU's memory row is remapped, and the driver tells Xid 94"),
        Fault("failing_link", OK, "an NVLink of a GPU has to recover again and again, and the driver tells Xid 74"),
        Fault("application_xid", OK, "a program reads where it must not: the driver tells Xid 31, and the GPU is well"),
    )
}

# What single samples show, so that it can be told from when to when.
DATED = ("stuck", "stale", "zero_clock", "gigahertz", "tensor_above_sm", "frozen_gauge", "stale_part", "stuck_part")
FROZEN_AFTER = 5  # readings in a row

# Their readings are wrong and nothing shows it, so no report over them is right: they are planted only when they are named.
UNSEEN = ("no_tensor", "constant_clock")

# OFU paper, sections V-C and VI-C: 54.27 / 18.45; 24.51 / 15.56; 26 where 4/3 of it would be right.
MISTAKES = {"latent_moe": (2.94, "moe-16b-pretrain"), "hybrid": (1.57, "hybrid-8b-pretrain"), "recomputation": (0.75, "world-model-8b")}
SERVING = load(step=0.21, compute=0.86, communication=0.04, tensor=0.06, sm=0.42, communication_sm=0.15, dram=0.93, memory=0.95)
STRAGGLING, REGRESSION = 1.6, 2.5
# What lowers a clock: to which part of it, and which clock event reasons it shows.
LIMITED = {
    "throttled": (900 / 1352, POWER_CAP | SOFTWARE_THERMAL | HARDWARE_THERMAL),
    "power_capped": (0.7, POWER_CAP),
    "application_clock": (0.8, APPLICATION_CLOCK),
}
WRONG_UNIT_SHARE = 0.01  # of a GPU's readings: fewer are taken for slips of an exporter that starts
BEAT_SAMPLES = 20  # the sampled clock walks through the step once in so many samples


@dataclass(frozen=True)
class Planted:
    """What was planted: the fault's name, the GPUs concerned (numbers in the fleet), from when to when (ms), and the job."""

    fault: str
    gpus: tuple[int, ...]
    start: int
    end: int
    job: str | None = None


@dataclass
class FaultPlan:
    """What has been planted so far in a draft, and the names that found no place; what changes in time, and its script by host."""

    draft: Draft
    planted: list[Planted]
    skipped: list[str]
    changed: list[Changed] = field(default_factory=list)
    scripts: dict[int, Script] = field(default_factory=dict)

    @functools.cached_property
    def names_of_places(self) -> list[tuple[str, str]]:
        """Every (cluster, host) of the fleet by number: first each host's own, then where hosts come to be."""
        specification = self.draft.specification
        own = [(specification.cluster, host_name(host)) for host in range(specification.hosts)]
        return own + [place[1:] for script in self.scripts.values() for place in places_of(script, specification.cluster)[1:]]

    @functools.cached_property
    def clusters(self) -> npt.NDArray[np.str_]:
        """The cluster of each of these places."""
        return np.array([cluster for cluster, _ in self.names_of_places])

    @functools.cached_property
    def places(self) -> dict[int, list[tuple[int, int]]]:
        """For each host that comes to be elsewhere: the number of the place, and since when (ms), in order."""
        found: dict[int, list[tuple[int, int]]] = {}
        number = self.draft.specification.hosts
        for host, script in self.scripts.items():
            for since, _, _ in places_of(script, self.draft.specification.cluster)[1:]:
                found.setdefault(host, []).append((number, since))
                number += 1
        return found

    @property
    def marked(self) -> set[int]:
        """The GPUs on which something is planted that would disturb another fault."""
        return {gpu for planted in self.planted if _PLANTERS.get(planted.fault) is not _anywhere for gpu in planted.gpus}

    def of(self, *faults: str) -> list[Planted]:
        """Return what was planted under some names."""
        return [planted for planted in self.planted if planted.fault in faults]


def resolve(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return known fault names in their fixed order; `none` is understood, and `all`, which leaves out what no gauge shows.

    >>> resolve(("stale", "shared")), resolve(("none",)), set(FAULTS) - set(resolve(("all",))) == set(UNSEEN)
    (('shared', 'stale'), (), True)
    """
    for name in names:
        if name not in FAULTS and name not in ("all", "none"):
            raise UllageError(f"the simulator can't plant '{name}'", did_you_mean(name, FAULTS, "ullage simulate --help"))
    return tuple(name for name in FAULTS if name in names or ("all" in names and name not in UNSEEN))


def before(plan: FaultPlan, faults: tuple[str, ...]) -> None:
    """Plant what needs hosts of its own, as long as one host is left for ordinary jobs."""
    groups: tuple[tuple[tuple[str, ...], Callable[[FaultPlan, int, set[str]], None]], ...] = (
        (("beating", "locked"), _alternating),
        (("held_idle", "free"), _idle),
        (("regression",), _regression),
    )
    for names, plant in groups:
        wanted = {name for name in names if name in faults}
        if not wanted:
            continue
        if len(plan.draft.free_hosts) < 2:
            plan.skipped += sorted(wanted)
            continue
        host = plan.draft.free_hosts[0]
        plan.draft.reserved.add(host)
        plant(plan, host, wanted)


def _gpus(plan: FaultPlan, host: int) -> list[int]:
    return list(plan.draft.specification.gpus_of(host))


def _alternating(plan: FaultPlan, host: int, wanted: set[str]) -> None:
    """Plant jobs whose clock and power follow their step, one kind on each half of a host where both are wanted.

    Beating: three steps an interval, and a twentieth of a step less; locked: exactly three.
    """
    draft, specification, gpus = plan.draft, plan.draft.specification, _gpus(plan, host)
    start, end = specification.window
    half = (len(gpus) + 1) // 2 if len(wanted) > 1 else len(gpus)
    for name, chosen in zip(sorted(wanted), (gpus[:half], gpus[half:]), strict=False):
        if not chosen:
            plan.skipped.append(name)
            continue
        turns = max(1.0, round(specification.interval / 10)) - (1 / BEAT_SAMPLES if name == "beating" else 0)
        one = load(step=specification.interval / turns, compute=0.42, communication=0.08, tensor=0.6, alternates=True)
        job = draw_job(draft, np.array(chosen), start - 600_000, end + 600_000, family="evaluation")
        loads = np.tile(one, (len(chosen), 1))
        if name == "locked":  # each scrape meets the middle of the time in which the GPU waits for its host
            scraped = boundaries(specification, host, specification.interval_ms)[-1] - start
            loads[:, PHASE] = (0.75 - scraped / 1000 / one[STEP]) % 1
        draft.jobs.append(replace(job, loads=loads, startup=0))
        plan.planted.append(Planted(name, tuple(chosen), start, end, job.name))


def _idle(plan: FaultPlan, host: int, wanted: set[str]) -> None:
    draft, gpus = plan.draft, _gpus(plan, host)
    start, end = draft.specification.window
    held = len(gpus) if "free" not in wanted else 0 if "held_idle" not in wanted else (len(gpus) + 1) // 2
    if held:
        job = draw_job(draft, np.array(gpus[:held]), start - 600_000, end + 600_000, family="evaluation")
        draft.jobs.append(replace(job, loads=resting(job.loads, slice(None)), startup=0))
        plan.planted.append(Planted("held_idle", tuple(gpus[:held]), start, end, job.name))
    if "free" in wanted and held < len(gpus):
        plan.planted.append(Planted("free", tuple(gpus[held:]), start, end))
    plan.skipped += ["free"] if "free" in wanted and held == len(gpus) else []


def _regression(plan: FaultPlan, host: int, _: set[str]) -> None:
    draft, specification = plan.draft, plan.draft.specification
    start, end = specification.window
    gpus, length = np.array(_gpus(plan, host)), end - start
    loads: Array | None = None
    for number, (begin, finish) in enumerate(((-0.05, 0.38), (0.39, 0.69), (0.70, 1.05))):
        times = (start + int(begin * length) // 1000 * 1000, start + int(finish * length) // 1000 * 1000)
        job = draw_job(draft, gpus, *times, family="vision-robot", user="grace")
        loads = job.loads if loads is None else loads
        job = replace(job, loads=slowed(loads, REGRESSION) if number == 1 else loads, startup=min(job.startup, length // 50))
        draft.jobs.append(job)
        if number == 1:
            plan.planted.append(Planted("regression", tuple(map(int, gpus)), *times, job.name))


def after(plan: FaultPlan, faults: tuple[str, ...]) -> None:
    """Plant the rest on hosts that ordinary jobs keep busy, whole hosts first; a name that finds no place goes to `skipped`."""
    early = {"beating", "locked", "held_idle", "free", "regression"}
    for name in sorted((n for n in faults if n not in early), key=lambda n: _PLANTERS.get(n) is not _on_host):
        planted = _PLANTERS.get(name, _on_gpu)(plan, name)
        if planted is None:
            plan.skipped.append(name)
        else:
            plan.planted.append(planted)


def _ordinary(plan: FaultPlan, *, untouched: bool = False) -> list[tuple[int, ScheduledJob, int, int]]:
    """Return (index, job, start, end) of ordinary jobs; start and end of their steps within the window. The longest come first,
    and after them those whose load or MFU is planted, or none of these when they must be `untouched`.
    """
    start, end = plan.draft.specification.window
    reserved = {gpu for host in plan.draft.reserved for gpu in _gpus(plan, host)}
    touched = {planted.job for planted in plan.of("straggler", "memory_bound", "application_clock", *MISTAKES)}
    found = []
    for index, job in enumerate(plan.draft.jobs):
        begin, finish = max(start, job.start + job.startup), min(end, job.end)
        ordinary = not job.rider and not set(map(int, job.gpus)) & reserved
        if ordinary and finish - begin > 0.1 * (end - start) and not (untouched and job.name in touched):
            found.append((index, job, begin, finish))
    return sorted(found, key=lambda item: (item[1].name in touched, item[2] - item[3], item[0]))


def _straggler(plan: FaultPlan, name: str) -> Planted | None:
    for index, job, start, end in _ordinary(plan, untouched=True):
        slow = next((i for i, gpu in enumerate(job.gpus) if int(gpu) not in plan.marked), None)
        if slow is not None and len(job.gpus) > 1:
            plan.draft.jobs[index] = replace(job, loads=straggling(job.loads, slow, STRAGGLING))
            return Planted(name, (int(job.gpus[slow]),), start, end, job.name)
    return None


def _shared(plan: FaultPlan, name: str) -> Planted | None:
    for _, job, start, end in _ordinary(plan):
        gpus = [int(gpu) for gpu in job.gpus if int(gpu) not in plan.marked][:2]
        if gpus and not _has_verdict(plan, gpus[0]):
            quarter = (end - start) // 4 // 1000 * 1000
            rider = draw_job(plan.draft, np.array(gpus), start + quarter, end - quarter)
            plan.draft.jobs.append(replace(rider, rider=True, startup=0))
            return Planted(name, tuple(gpus), start + quarter, end - quarter, rider.name)
    return None


def _on_gpu(plan: FaultPlan, name: str) -> Planted | None:
    """Plant on the unmarked GPU of an ordinary host that works longest in one go."""
    start, end = plan.draft.specification.window
    for _, job, begin, finish in _ordinary(plan):
        for which, gpu in enumerate(map(int, job.gpus)):
            if gpu not in plan.marked and not _has_verdict(plan, gpu) and _shows(name, job.loads[which], finish - begin, end - start):
                return Planted(name, (gpu,), *_period(name, begin, finish, start, end), job.name)
    return None


def _shows(name: str, one: Array, length: int, window: int) -> bool:
    """Return whether a fault can be seen on a GPU of this load that works for `length` of the window."""
    busy = one[COMPUTE] + one[COMMUNICATION]
    long = name in ("zero_clock", "gigahertz", "idle_clock", "tensor_above_sm", "faint_percent", "frozen_gauge")
    if long and (length < window / 5 or busy < 0.6 or one[COMPUTE] * one[TENSOR] < 0.1):
        return False
    if name == "idle_clock":  # more than half of its power: see `load`
        return bool(0.35 * busy + one[COMPUTE] * (0.25 * one[SM] + 0.8 * one[TENSOR]) > 0.65)
    return name not in ("stale_part", "stuck_part") or length > window / 4


def _period(name: str, begin: int, finish: int, start: int, end: int) -> tuple[int, int]:
    """Return from when to when a fault lasts on a GPU that works from `begin` to `finish`."""
    length = finish - begin
    if name in ("duplicated", "impossible"):
        return start, end
    if name == "sentinel":  # more than half of the readings
        return start + (end - start) // 4, end
    if name in ("stale_part", "stuck_part"):
        return begin + length // 3, begin + length // 3 + ((end - start) // 12 if name == "stale_part" else 540_000)
    if name == "silent":
        return begin + length // 3, begin + length // 3 + min(length // 3, 2_400_000)
    if name == "reset":
        return begin + length // 2, begin + length // 2
    return begin + length // 5, finish


def _on_host(plan: FaultPlan, name: str) -> Planted | None:
    """Plant on a whole host, from the last one backwards, and leave half of the ordinary hosts alone."""
    start, end = plan.draft.specification.window
    free = plan.draft.free_hosts
    for host in reversed(free[len(free) // 2 :]):
        gpus = _gpus(plan, host)
        if len(free) > 1 and not any(_has_verdict(plan, gpu) for gpu in gpus) and not set(gpus) & plan.marked:
            third = (end - start) // 3
            return Planted(name, tuple(gpus), *((start + third, end - third) if name == "skewed" else (start, end)))
    return None


def _anywhere(plan: FaultPlan, name: str) -> Planted | None:
    """Plant on a host whatever else is there: the order of rows and a wandering clock disturb nothing else."""
    specification = plan.draft.specification
    start, end = specification.window
    slow = {gpu // specification.gpus_per_host for planted in plan.of("slow") for gpu in planted.gpus}
    hosts = [host for host in plan.draft.free_hosts or range(specification.hosts) if host not in slow]
    middle = (start + end) // 2
    period = (start, end) if name == "reordered" else (middle, middle + 10 * specification.interval_ms)
    # stamps that run ahead must not run out of the window
    if not hosts or period[1] > end or (name == "skewed" and specification.samples < 30):
        return None
    return Planted(name, tuple(_gpus(plan, hosts[0 if name == "reordered" else -1])), *period)


def _mistake(plan: FaultPlan, name: str) -> Planted | None:
    factor, family = MISTAKES[name]
    start, end = plan.draft.specification.window
    for index, job, _, _ in sorted(_ordinary(plan, untouched=True), key=lambda item: item[1].family != family):
        chip = device(plan.draft.models[int(job.gpus[0]) // plan.draft.specification.gpus_per_host])
        if float(expected_ofu(job.loads, chip).mean()) * factor < 0.95:  # an MFU that nobody would believe is not reported
            plan.draft.jobs[index] = replace(job, family=family, mistake=name, factor=factor)
            return Planted(name, (), max(start, job.start), min(end, job.end), job.name)
    return None


def _memory_bound(plan: FaultPlan, name: str) -> Planted | None:
    """Let a job serve."""
    for index, job, start, end in _unmarked(plan):
        gpus = tuple(map(int, job.gpus))
        plan.draft.jobs[index] = replace(job, family="llm-serving", loads=np.tile(SERVING, (len(gpus), 1)), mfu=None)
        return Planted(name, gpus, start, end, job.name)
    return None


def _on_job(plan: FaultPlan, name: str) -> Planted | None:
    """Plant on all GPUs of a job."""
    return next((Planted(name, tuple(map(int, job.gpus)), start, end, job.name) for _, job, start, end in _unmarked(plan)), None)


def _unmarked(plan: FaultPlan) -> list[tuple[int, ScheduledJob, int, int]]:
    """Return the ordinary jobs of which no GPU is marked, those on a single host first: other faults need room, too."""
    per_host, marked = plan.draft.specification.gpus_per_host, plan.marked
    found = [item for item in _ordinary(plan, untouched=True) if not marked & set(map(int, item[1].gpus))]
    return sorted(found, key=lambda item: len(item[1].gpus) > per_host)


def _has_verdict(plan: FaultPlan, gpu: int) -> bool:
    return any(gpu in planted.gpus and FAULTS[planted.fault].verdict != OK for planted in plan.planted)


_PLANTERS: dict[str, Callable[[FaultPlan, str], Planted | None]] = {
    "straggler": _straggler,
    "shared": _shared,
    "memory_bound": _memory_bound,
    "application_clock": _on_job,
    **dict.fromkeys(MISTAKES, _mistake),
    **dict.fromkeys(("percent", "hertz", "slow"), _on_host),
    **dict.fromkeys(("reordered", "skewed"), _anywhere),
}


def describe(plan: FaultPlan) -> list[dict[str, object]]:
    """Return what was planted, for the answer key."""
    specification = plan.draft.specification
    return [
        {
            "fault": planted.fault,
            "verdict": FAULTS[planted.fault].verdict,
            "what": FAULTS[planted.fault].what,
            "gpus": [uuid(specification, gpu) for gpu in planted.gpus],
            "hosts": sorted({host_name(gpu // specification.gpus_per_host) for gpu in planted.gpus}),
            "job": planted.job,
            "start": planted.start,
            "end": planted.end,
        }
        for planted in plan.planted
    ]


def dated(plan: FaultPlan) -> dict[int, tuple[int, int]]:
    """Return from when to when (ms) the gauges of GPUs, by number, show a fault that can be dated."""
    late = (FROZEN_AFTER - 1) * plan.draft.specification.interval_ms  # a reading is known to repeat itself only then
    return {
        gpu: (planted.start + (late if "stale" in planted.fault or "frozen" in planted.fault else 0), planted.end)
        for planted in plan.planted
        if planted.fault in DATED
        for gpu in planted.gpus
    }


def verdicts(plan: FaultPlan) -> list[str]:
    """Return the verdict that trust must give each GPU, by number."""
    words = [OK] * plan.draft.specification.gpus
    for planted in plan.planted:
        if FAULTS[planted.fault].verdict != OK:
            for gpu in planted.gpus:
                words[gpu] = FAULTS[planted.fault].verdict
    window = plan.draft.specification.window
    for script in plan.scripts.values():
        for gpu in plan.draft.specification.gpus_of(script.host) if script.percent is not None else ():
            begin, end = script.lives.get(gpu, window)
            if end - max(begin, script.percent or 0) > WRONG_UNIT_SHARE * (end - begin):
                words[gpu] = "wrong unit"
    return words
