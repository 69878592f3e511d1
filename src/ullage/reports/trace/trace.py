"""How full the devices of one run were, and why not fuller: host and device trees, of the whole and of its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.errors import UllageError, did_you_mean
from ullage.metrics.bounds import device_bounds, host_bounds
from ullage.metrics.losses import Bill, bill
from ullage.metrics.tree import Node, bounded, widened
from ullage.profiles import Profile
from ullage.recording import Mode
from ullage.reports.gemms.gemms import GemmSummary, gemm_summary
from ullage.reports.trace.code import CodeReport, code_report
from ullage.reports.trace.idleness import Idleness, idleness
from ullage.reports.trace.kernels import KernelSummary, kernel_summary
from ullage.reports.trace.late_ranks import Late, late, not_compared
from ullage.reports.trace.links import Bandwidth, bandwidths
from ullage.reports.trace.nccl import nccl_notes, nccl_report
from ullage.reports.trace.part import RunPart, view
from ullage.reports.trace.recorder_cost import events_until, recorder_cost
from ullage.reports.trace.restated import Restatement, restated
from ullage.reports.trace.sequences import Sequences, sequences
from ullage.reports.trace.what_if import WhatIf, what_if
from ullage.sums.lanes.bounds import device_ranges, host_ranges
from ullage.sums.lanes.collectives.matched import Matched, during
from ullage.sums.lanes.collectives.matching import match
from ullage.sums.lanes.collectives.transfer import transfer_notes, with_transfer
from ullage.sums.lanes.common import Rest, beyond, beyond_region, partly, recorded_notes, rest, with_common
from ullage.sums.lanes.reduce import MOST_REGIONS as MOST_NAMES
from ullage.sums.lanes.run import DevicePart, HostPart, Run, Windows, counted_share, device_parts, device_totals, host_parts, host_totals
from ullage.sums.lanes.series import Series, occurrences, steps
from ullage.sums.lanes.spans import NONE, spans
from ullage.sums.nccl_arrivals import NcclArrivals
from ullage.totals import Factors, Region
from ullage.views.notation import MoneyTerms
from ullage.views.shown import ShownByView

MOST_REGIONS = 100  # regions shown; the rest is counted
RECORDED, WHOLE_RUN, REGION_RECORDED = "all that was recorded", "the whole run", "the region in all that was recorded"


@dataclass(frozen=True)
class TraceRequest:
    """What is asked of a run: `mode` (None: what suits the source), a `region`, a `price` of a GPU-hour for the bill and its
    `currency`, and the rate of a GPU's `link` one way, in B/s, for collectives that are not within a host."""

    mode: Mode | None = None
    region: str | None = None
    price: float | None = None
    currency: str = ""
    link: float | None = None


@dataclass(frozen=True)
class TraceReport(ShownByView, view="ullage.render.trace"):
    """The trees of a run (`whole`), of its regions, ranks, devices and steps, and what explains the loss.

    `what_if` is there if it was asked for: the run replayed with other durations, and its critical path. `nccl` is who arrives last at
    collectives by what NCCL itself told, of all that was recorded.
    `recorded` is in how many ns any rank was recorded, None where all were for as long. `partial` says that something of the run is
    missing; `notes` say what, and what the numbers rest on.

    The trees, bills and lanes are of the window, and of the region if one is asked for. What explains them (idle time, kernels, matrix
    products, code, collectives, cost per token) is of the same time, unless `tables_of` says what else.
    """

    places: tuple[str, ...]
    source: str
    mode: Mode
    window: str
    region: str | None
    whole: RunPart
    regions: tuple[RunPart, ...]
    ranks: tuple[RunPart, ...]
    devices: tuple[RunPart, ...]
    steps: tuple[RunPart, ...]
    series: Series | None
    bill: Bill | None
    host_bill: Bill | None
    idle: Idleness | None
    kernels: KernelSummary | None
    gemms: GemmSummary | None
    late: Late | None
    restated: Restatement | None
    run: Run | None
    notes: tuple[str, ...]
    partial: bool
    recorded: int | None = None
    code: CodeReport | None = None
    bandwidths: tuple[Bandwidth, ...] = ()
    sequences: Sequences | None = None
    what_if: WhatIf | None = None
    nccl: NcclArrivals | None = None
    tables_of: str = ""
    currency: str = ""

    @property
    def terms(self) -> MoneyTerms:
        """What its amounts of money are in."""
        return MoneyTerms(self.currency)

    @property
    def complete(self) -> bool:
        """Whether all of the run is there."""
        return not self.partial


def trace(profile: Profile, window: str, question: TraceRequest | None = None) -> TraceReport:
    """Return the report of a run. Raises UllageError for a region that it doesn't have."""
    question = question or TraceRequest()
    mode = question.mode or profile.prefers
    if profile.run is None:
        return _stated(profile, mode, window, question)
    run, several = profile.run, len(profile.run.processes) > 1
    matched = match(run.captures)
    run = with_common(with_transfer(run, matched), matched.clocks)
    windows = _chosen(run, question.region)
    tables_of, explained = _explained(run, question.region, windows)
    summary = kernel_summary(run, explained) if run.devices else None
    looked = matched if tables_of in (RECORDED, WHOLE_RUN) else _during(run, matched, question.region)
    whole = part(run, mode, question.region or "run", windows)
    remaining = rest(run) if question.region is None else None
    whole = whole if remaining is None else _with_rest(whole, remaining, mode)
    nccl = nccl_report(profile.recordings)
    series = steps(run) if question.region is None else occurrences(run, question.region)
    code = code_report(run, explained)
    across = (*transfer_notes(run, matched), *not_compared(() if code is None else code.calls)) if several else ()
    return TraceReport(
        places=profile.places,
        source=profile.source,
        mode=mode,
        window=window,
        region=question.region,
        whole=whole,
        regions=_regions(run, mode, question.region),
        ranks=_ranks(run, mode, windows),
        devices=_devices(run, mode, windows),
        steps=_steps(series, mode, run.factors),
        series=series,
        bill=device_bill(whole, question.price),
        currency=question.currency,
        host_bill=host_bill(whole),
        idle=idleness(run, explained),
        kernels=summary,
        gemms=gemm_summary(run) if run.devices else None,
        late=late(looked),
        restated=None,
        run=run,
        notes=_notes(
            profile,
            run,
            summary,
            [*recorded_notes(run), *across, *_left_out(run, series), *nccl_notes(nccl)],
        ),
        partial=profile.partial,
        recorded=partly(run),
        code=code,
        bandwidths=bandwidths(run, looked, question.link),
        sequences=sequences(run),
        what_if=what_if(run, matched) if question.region is None else None,
        nccl=nccl,
        tables_of=tables_of,
    )


def _explained(run: Run, region: str | None, windows: Windows) -> tuple[str, Windows]:
    """Return what the tables are of, in words where that is more than the trees, and when they look at the processes: at all that was
    recorded of ranks that were recorded for unequal times, if that was asked for; at the whole run, if it was read without the region."""
    if region is None:
        return RECORDED if beyond(run) else "", windows
    if any(capture.tables.region != region for capture in run.captures):
        return WHOLE_RUN, run.whole()
    return ("", windows) if not beyond_region(run, region) else (REGION_RECORDED, replace(run, common=None).region(region))


def _during(run: Run, matched: Matched, region: str | None) -> Matched:
    """Return the collectives that run while all ranks were recorded, or while those whose they are are in the region."""
    if region is None:
        return during(matched, [spans(run.limits[lane.place]) for lane in matched.lanes]) if run.limits else matched
    found = []
    for lane in matched.lanes:
        capture = run.captures[lane.capture]
        time = capture.tables
        found.append(time.processes.get(lane.process, NONE) if lane.device < 0 else time.devices[capture.devices[lane.device].number])
    return during(matched, found)


def _stated(profile: Profile, mode: Mode, window: str, question: TraceRequest) -> TraceReport:
    """Return the report of files that hold sums of regions, the whole run first."""
    factors = _stated_factors(profile.regions)
    views = tuple(view(r.name, _elapsed(r), r.host, r.device, mode, factors=factors) for r in profile.regions)
    if question.region is not None:
        views = tuple(v for v in views if v.name == question.region)
        if not views:
            raise _no_region(question.region, [r.name for r in profile.regions])
    whole = views[0]
    return TraceReport(
        places=profile.places,
        source=profile.source,
        mode=mode,
        window=window,
        region=question.region,
        whole=whole,
        regions=views[1:],
        ranks=(),
        devices=(),
        steps=(),
        series=None,
        bill=device_bill(whole, question.price),
        currency=question.currency,
        host_bill=host_bill(whole),
        idle=None,
        kernels=None,
        gemms=None,
        late=None,
        restated=restated(profile.regions),
        run=None,
        notes=(*profile.problems.lines(), *(["the files hold sums, no events: nothing can be replayed"] if profile.replay else [])),
        partial=profile.partial,
    )


def _stated_factors(regions: Sequence[Region]) -> Factors:
    """Return the factors of a run of which TALP tells sums: it is of MPI unless TALP counted no call of it, or no rank."""
    hosts = [r.host for r in regions if r.host is not None]
    calls, ranks = ([r.given.get(key) for r in regions] for key in ("numMpiCalls", "numMpiRanks"))
    counts = calls if None not in calls else ranks
    return Factors(
        mpi=None in counts or any(counts),
        processes=any(count is not None and count > 1 for count in ranks),
        openmp=any(host.openmp_imbalance_time is not None for host in hosts),
        devices=any(r.device is not None for r in regions) or any(host.offload_time for host in hosts),
    )


def _elapsed(region: Region) -> int:
    return max((t.elapsed for t in (region.host, region.device) if t is not None), default=0)


def _no_region(name: str, known: Sequence[str]) -> UllageError:
    hint = did_you_mean(name, known, "ullage trace FILE") if known else "regions are NVTX ranges and user annotations; there are none"
    return UllageError(f"no region is called '{name}'", hint)


def part(run: Run, mode: Mode, name: str, windows: Windows) -> RunPart:
    """Return the trees of what a run's processes did within `windows`."""
    elapsed = run.elapsed(windows)
    hosts, devices = host_parts(run, windows), device_parts(run, windows)
    sums = host_totals(hosts, elapsed), device_totals(devices, elapsed)
    return _sure(view(name, elapsed, *sums, mode, hosts, devices, run.factors), mode)


def _sure(found: RunPart, mode: Mode) -> RunPart:
    """Return a part of a run with the bounds of its efficiencies: what was not recorded, and the step of the clock."""
    return _within(found, mode, bounded, found.elapsed, found.device_parts, found.host_parts)


def _with_rest(found: RunPart, remaining: Rest, mode: Mode) -> RunPart:
    """Return the whole run's view with bounds that also hold for the time in which only some ranks were recorded."""
    return _within(found, mode, widened, remaining.elapsed, remaining.devices, remaining.hosts, remaining.unknown)


def _within(
    found: RunPart,
    mode: Mode,
    limit: Callable[[Node, Mapping[str, tuple[float, float]]], Node],
    elapsed: int,
    devices: Sequence[DevicePart],
    hosts: Sequence[HostPart],
    unknown: Iterable[int] | None = None,
) -> RunPart:
    """Return a view whose trees are limited by the bounds that some devices' and hosts' times, of so long a run, have."""
    host, device = found.host, found.device
    if device is not None:
        ranges = device_ranges(devices)
        ranges = ranges if mode == "ai" else ranges.counting_collectives()
        device = limit(device, device_bounds(**vars(ranges), elapsed=(elapsed, elapsed)))
    if host is not None and not found.factors.openmp:
        step = max((part.device.resolution for part in devices), default=1)
        host = limit(host, host_bounds(**vars(host_ranges(hosts, step, unknown)), elapsed=(elapsed, elapsed)))
    return replace(found, host=host, device=device)


def device_bill(found: RunPart, price: float | None = None) -> Bill | None:
    """Return what each factor costs of the devices' time; `price` is for a GPU-hour."""
    if found.device is None or found.device_totals is None:
        return None
    return bill(found.device, found.device_totals.devices * found.device_totals.elapsed, price)


def host_bill(found: RunPart) -> Bill | None:
    """Return what each factor costs of the processes' time."""
    if found.host is None or found.host_totals is None:
        return None
    return bill(found.host, found.host_totals.processes * found.host_totals.elapsed)


def _chosen(run: Run, region: str | None) -> Windows:
    if region is None:
        return run.whole()
    windows = run.region(region)
    if not windows:
        raise _no_region(region, sorted({name for p in run.processes for name in p.regions}))
    return windows


def _regions(run: Run, mode: Mode, only: str | None) -> tuple[RunPart, ...]:
    """Return the trees of the regions, the longest first."""
    if only is not None:
        return ()
    length: dict[str, int] = {}
    for process in run.processes:
        for name, inside in process.regions.items():
            length[name] = max(length.get(name, 0), inside.total)
    ranked = sorted((name for name in length if length[name]), key=lambda name: (-length[name], name))
    return tuple(part(run, mode, name, run.region(name)) for name in ranked[:MOST_REGIONS])


def _ranks(run: Run, mode: Mode, windows: Windows) -> tuple[RunPart, ...]:
    mine = [p for p in run.processes if p.key in windows]
    return tuple(part(_only(run, p.key), mode, p.label, {p.key: windows[p.key]}) for p in mine)


def _only(run: Run, key: tuple[str, int]) -> Run:
    return replace(
        run,
        processes=tuple(p for p in run.processes if p.key == key),
        devices=tuple(replace(d, owners=(key,)) for d in run.devices if key in d.owners),
    )


def _devices(run: Run, mode: Mode, windows: Windows) -> tuple[RunPart, ...]:
    """Return each device's tree over the run's elapsed time."""
    elapsed = run.elapsed(windows)
    return tuple(
        _sure(view(label(p.device.key, p.device.name, number), elapsed, None, device_totals([p], elapsed), mode, (), (p,)), mode)
        for number, p in enumerate(device_parts(run, windows))
    )


def label(key: str, name: str, number: int) -> str:
    """Return how a device is called: its number in the run, and its model."""
    return f"GPU {number}" + (f" ({name})" if name else "") if key else name


def _steps(series: Series | None, mode: Mode, factors: Factors) -> tuple[RunPart, ...]:
    if series is None:
        return ()
    device = series.device or (None,) * len(series.names)
    return tuple(
        view(name, host.elapsed, host, on_device, mode, factors=factors)
        for name, host, on_device in zip(series.names, series.host, device, strict=True)
    )


def _left_out(run: Run, series: Series | None) -> list[str]:
    """Return what there was too much of to look at all of it."""
    found = (
        [f"there are {series.more:,} more steps; the first {len(series.names):,} are looked at one by one"]
        if series and series.more
        else []
    )
    if any(len(p.regions) >= MOST_NAMES for p in run.processes):
        found.append(f"of the regions those {MOST_NAMES:,} names are looked at that ran longest")
    return found


COUNTED = 0.99  # of useful time: with less, it is said that hardware counters were sampled


def _sampled_counters(run: Run) -> list[str]:
    share = counted_share(host_parts(run))
    if share is None or share >= COUNTED:
        return []
    return [f"instructions and cycles were counted in {100 * share:.2g} % of useful time, and are scaled to all of it"]


def _notes(profile: Profile, run: Run, summary: KernelSummary | None, transfers: Sequence[str]) -> tuple[str, ...]:
    """Return what the numbers rest on: what is in doubt first, then what was left out, then how things were told."""
    doubts = Counter(reason for device in run.devices for reason in device.doubts)
    found = [f"{reason} ({count:,} devices)" if count > 1 else reason for reason, count in doubts.items()]
    said = profile.problems.lines()
    found += [f"{r.place} ends early: {r.cut}" for r in profile.recordings if r.cut and not any(r.cut in line for line in said)]
    found += said
    found += recorder_cost(profile.recordings)
    found += events_until(profile.recordings)
    found += _sampled_counters(run)
    found += [note for capture in run.captures for note in capture.notes]
    found += transfers
    if (outside := sum(capture.left_out for capture in run.captures)) > 0:
        found.append(f"devices worked for {outside / 1e9:.3g} s before MPI_Init returned or after MPI_Finalize was called: not of the run")
    if profile.replay and not run.devices:
        found.append("no operation of a device was recorded: nothing can be replayed")
    if not run.devices and any(p.calls for p in run.processes):
        found.append("the hosts call the GPU's interface, but nothing that ran on a device was recorded: there is no device tree")
    if any(r.resolution > 1 for r in profile.recordings):
        step = max(r.resolution for r in profile.recordings)
        found.append(f"the source counts time in steps of {step:,} ns; the bounds say what that leaves open")
    if any(p.callers > len(p.threads) for p in run.processes):
        found.append("a process' host lane is its busiest thread in the GPU's interface; others call it too: --host union counts all")
    elif any(len(p.threads) > 1 for p in run.processes):
        found.append("a process is in the GPU's interface while any of its threads is")
    return tuple(dict.fromkeys((*found, *(summary.notes if summary else ()))))
