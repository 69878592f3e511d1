"""How full is the fleet, and where does the shortfall go: OFU by whatever key, the telemetry tree, the ledger, trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.audit.trust import VERDICTS, Verdict
from ullage.errors import NoSampleError, UllageError, harmless
from ullage.findings.fleet_evidence import FleetEvidence, QueueWaits
from ullage.findings.kind import fleet_findings
from ullage.job_names import separate_names
from ullage.metrics.clocks import SamplingNoise
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import LABELS, TelemetryTree
from ullage.reports.fleet.agreement import Agreement, MeasuredJob, agreement
from ullage.reports.fleet.bills import Purchase, TeamBill, chargeback, purchases, unpriced_note, with_teams
from ullage.reports.fleet.comparison import FleetComparison, FleetFigures, compared, figures_of
from ullage.reports.fleet.energy import Energy, energies_of, energy_ledger
from ullage.reports.fleet.existence import Existence, existence, notes_of, outside
from ullage.reports.fleet.fleet_evidence import fleet_evidence
from ullage.reports.fleet.goodput import FleetGoodput, JobKey, RowsOfSpans, fleet_goodput, queue_waits
from ullage.reports.fleet.groups import (
    JOB_SPANS,
    Array,
    Group,
    Mask,
    counted_hours,
    course_sums,
    exact_share,
    gauge,
    gpu_hours,
    groups_of,
    marked_sums,
    method_of,
    stacked,
    state_and_gauge_sums,
    state_sums,
    sums_of_job_spans,
)
from ullage.reports.fleet.health import sick_gpus
from ullage.reports.fleet.job_runs import EndedSpan, JobRun, JobRuns, runs_of
from ullage.reports.fleet.prices import RowPrices, row_prices
from ullage.reports.fleet.rated import Rated, chains, codes_of, losses, rate, weighted_mean, weighted_means
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.roofs import RoofHeights, roofs_of
from ullage.reports.fleet.series import gauge_evidence, noise
from ullage.reports.fleet.trusted import Device, bounds_note, clock_moves, judge, sampled_bounds
from ullage.reports.fleet.where import FILTER_FIELDS, Condition, rows_that_fit, samples_that_fit
from ullage.store.rollups import RolledSums
from ullage.sums.devices import KIND, within
from ullage.sums.grouping import collapse
from ullage.sums.ledger import CODES, OWNERS
from ullage.sums.spans import EVER, Span, Whose, gpus_of, samples_in_spans
from ullage.units import DAY_MS, HOUR_MS
from ullage.views.notation import AS_GIVEN, MoneyTerms
from ullage.views.numbers import percent
from ullage.views.shown import ShownByView
from ullage.views.view import Finding

Verdicts = Mapping[Device, Verdict]
BUCKETS = (60_000, 300_000, 900_000, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)


@dataclass(frozen=True)
class CoursePoint:
    """The fleet in one span of time: its start (ms), OFU, "GPU utilization", and GPU-hours observed."""

    time: int
    ofu: float | None
    gpu_util: float | None
    gpu_hours: float


@dataclass(frozen=True)
class FleetReport(ShownByView, view="ullage.render.fleet"):
    """The answer to `ullage fleet`. Ratios in [0, 1]; hours are GPU-hours; times are ms since 1970, UTC.

    `ofu`, `tree` and `ullage` are over trusted series whose OFU is known, `counted_hours` of them; `ofu_all` over all. `tree` says what is
    left after each step, and its losses of `counted_hours` add up to `ullage`. `ledger` has GPU-hours by owner, which add up to the time
    for which each GPU exists: from its first to its last sight in the window, or as an inventory says.
    `ofu_bounds` are the least and the most that OFU may be where clock and activity move together (None: not sampled).
    `findings` are what is worth doing, in order of what it is worth; `doubtful_series` are the verdicts on series that are not ok.
    `roofs` are over trusted series; `energy` is what all meters saw, `energy_ledger` the same by owner, `carbon` (g/kWh) and `kwh_price`
    what a kWh was asked to count as. `against` is another report beside it, where that is asked for, and `measured` what findings rest on.
    Amounts of money are in what the `terms` say: `cost` is of all hours, `ullage_cost` and `idle_cost` parts of it, `list_cost` what all
    hours cost at list price; `purchases` is `cost` by how hours were bought, `chargeback` the same by the team that pays.
    `goodput` is what of it went into work that was kept, `queue` how long jobs waited, where records say so.
    `next_command` reports on what is worst of it ("": nobody said how it was asked).
    `complete` says whether all that was asked for was read; if not, `read_until` is the time up to which it was, where that is known, and
    `partial_because` is why.
    """

    ofu: float | None
    ofu_all: float | None
    method: str
    exact_share: float
    gpus: float
    gpu_hours: float
    trusted_share: float
    window: tuple[int, int]
    gpu_util: float | None
    tensor_active: float | None
    power: float | None
    tree: TelemetryTree
    counted_hours: float
    ledger: dict[str, float]
    by: str
    groups: list[Group]
    models: list[Group]
    course: list[CoursePoint]
    verdicts: dict[str, tuple[int, float]]
    doubtful_series: list[Verdict]
    agreement: Agreement | None
    noise: list[SamplingNoise]
    ullage: float | None
    cost: float | None
    ullage_cost: float | None
    idle_cost: float | None
    list_cost: float | None = None
    terms: MoneyTerms = AS_GIVEN
    purchases: tuple[Purchase, ...] = ()
    chargeback: tuple[TeamBill, ...] = ()
    command: str = ""
    next_command: str = ""
    notes: list[str] = field(default_factory=list)
    ofu_bounds: tuple[float, float] | None = None
    complete: bool = True
    read_until: int | None = None
    partial_because: str = ""
    findings: list[Finding] = field(default_factory=list)
    roofs: RoofHeights = field(default_factory=RoofHeights)
    energy: Energy = field(default_factory=Energy)
    energy_ledger: dict[str, Energy] = field(default_factory=dict)
    carbon: float | None = None
    kwh_price: float | None = None
    against: FleetComparison | None = None
    goodput: FleetGoodput | None = None
    queue: QueueWaits | None = None
    measured: FleetEvidence | None = field(default=None, repr=False, compare=False)


def fleet(
    samples: Any,
    jobs: pa.Table | None,
    question: FleetRequest,
    notes: list[str] | None = None,
    rolled: RolledSums | None = None,
) -> FleetReport:
    """Return the fleet report over settled samples (an Ibis table of `tables.SETTLED`) and job records.

    `rolled` are sums kept of these samples (`store.Store.rolled` of the same window): the report is the same, and sooner made.
    Raises UllageError for an empty window, an unknown key, or a fleet of which no GPU is known.
    """
    notes = list(notes or [])
    whole = judged_fleet(samples, question, notes, rolled)
    condition = question.condition()
    asked = whole
    if condition is not None:
        asked = part_of_fleet(whole, condition)
        notes.insert(0, f"this is the part of the fleet that fits '{harmless(str(condition), 300)}'")
    return report_of(whole, asked, jobs, question, notes)


def report_of(whole: JudgedFleet, asked: JudgedFleet, jobs: pa.Table | None, question: FleetRequest, notes: list[str]) -> FleetReport:
    """Return the report on a judged fleet, or on the part of it that is asked about."""
    rated, good, trusted, lost, verdicts, devices = asked.rated, asked.good, asked.trusted, asked.lost, asked.verdicts, asked.devices
    by = question.by or _natural_key(whole.rated.sums)
    question.progress("grouping")
    tree = chains(good, lost, np.zeros(len(good), np.int64), 1)[0] if len(good) else TelemetryTree(None, ())
    compared = agreement(_by_job(rated, good, jobs), jobs, question.peak_tflops)
    mfus = {} if compared is None else {job.job: job.mfu for job in compared.jobs}
    runs = _runs_asked_about(jobs, asked, every=question.condition() is None and not question.one_job)
    made = fleet_goodput(good, JobRuns(runs, set(good.words("cluster")), asked.window), _rows_of_spans(asked, question))
    lost_by_job = None if made is None else made.lost_by_job
    table = question.price_table
    prices = row_prices(rated, table)
    measured = fleet_evidence(good, lost, prices.take(trusted).paid, jobs, asked.window, mfus, _doubtful(verdicts), lost_by_job)
    waits = queue_waits(runs, asked.window, _devices_by_job(rated))
    measured = replace(measured, sick=sick_gpus(asked.samples), queue=waits, terms=table.terms)
    named = with_teams(rated, table)
    moves = clock_moves(good, verdicts)
    return FleetReport(
        ofu=weighted_mean(good.ofu_part, good.ofu_time, good.weight),
        ofu_all=weighted_mean(rated.ofu_part, rated.ofu_time, rated.weight),
        method=method_of(exact_share(good)),
        exact_share=exact_share(good),
        gpus=float(rated.codes("gpu")[1]),
        gpu_hours=gpu_hours(rated),
        trusted_share=ratio(gpu_hours(good), gpu_hours(rated)) or 0.0,
        window=asked.window,
        gpu_util=gauge(rated, "gpu_util"),
        tensor_active=gauge(good, "tensor_active"),
        power=gauge(rated, "power"),
        tree=tree,
        counted_hours=counted_hours(good),
        ledger=_ledger(rated, asked.existence),
        by=by,
        groups=_hourly(whole.samples, question, whole.verdicts) if by == "hour" else groups_of(named, trusted, lost, by, prices, moves),
        models=groups_of(rated, trusted, lost, "model", prices, moves),
        course=_course(asked.samples, asked.window, verdicts, question, asked.rolled),
        verdicts=_tally(verdicts),
        doubtful_series=_doubtful(verdicts),
        agreement=compared,
        noise=noise(asked.samples, devices.sums, rated, wanted=question.noise),
        **_money(rated, good, prices, prices.take(trusted).paid),  # type: ignore[arg-type]
        terms=table.terms,
        purchases=purchases(rated, prices),
        chargeback=chargeback(named, trusted, prices) if table.teams else (),
        command=question.command,
        notes=[
            *notes,
            *unpriced_note(rated, prices, table),
            *_report_notes(rated, good, tree, compared, verdicts),
            *([] if question.one_job else _memory_unknown(rated)),
        ],
        ofu_bounds=sampled_bounds(good, verdicts),
        complete=True,  # whoever read the samples knows better: see `Intake.marked`
        read_until=None,
        findings=fleet_findings(measured),
        roofs=roofs_of(good, np.zeros(len(good), np.int64), 1)[0],
        energy=energies_of(rated, np.zeros(len(rated), np.int64), 1)[0],
        energy_ledger=energy_ledger(rated),
        carbon=question.carbon,
        kwh_price=question.kwh_price,
        measured=measured,
        goodput=made,
        queue=measured.queue,
    )


def _runs_asked_about(jobs: pa.Table | None, asked: JudgedFleet, *, every: bool) -> list[JobRun]:
    """Return the runs of jobs that records tell of: all of them, or those of jobs that stand in the part that is asked about."""
    runs = runs_of(jobs)
    if every:
        return runs
    seen = {name for word in set(asked.rated.words("job")) - {None} for name in separate_names(word or "")}
    return [one for one in runs if one.job in seen]


def _rows_of_spans(asked: JudgedFleet, question: FleetRequest) -> RowsOfSpans:
    """Return what gives the trusted rows of sums of some spans of jobs."""

    def rows(spans: Mapping[JobKey, Sequence[EndedSpan]]) -> dict[str, Rated]:
        told = [
            {"cluster": cluster, "job": job, "start": one.start, "end": one.end, "ending": one.ending}
            for (cluster, job), own in spans.items()
            for one in own
        ]
        names = pa.array(sorted({job for _, job in spans}), pa.string())
        rows_of_jobs = asked.rated.sums.filter(pc.is_in(asked.rated.sums["job"].cast(pa.string()), value_set=names))
        gpus = [gpu for gpu in pc.unique(rows_of_jobs["gpu"].cast(pa.string())).to_pylist() if gpu is not None]
        sums = sums_of_job_spans(asked.samples, pa.Table.from_pylist(told, JOB_SPANS), gpus, _faults(asked.verdicts))
        return {ending: _trusted_rows(table, question, asked.verdicts) for ending, table in sums.items() if len(table)}

    return rows


def _trusted_rows(sums: pa.Table, question: FleetRequest, verdicts: Verdicts) -> Rated:
    rated = rate(sums.append_column("faulty", pa.array(np.zeros(len(sums), np.bool_))), question.gpu)
    return rated.take(_believed(rated, verdicts))


def _devices_by_job(rated: Rated) -> dict[str, int]:
    """Return on how many devices samples saw each job."""
    _, firsts = rated.alike("job", "gpu", "mig")
    words = rated.sums["job"].take(pa.array(firsts)).to_pylist()
    return Counter(name for word in words if word is not None for name in separate_names(word))


def beside(report: FleetReport, other: FleetReport | FleetFigures, named: str) -> FleetReport:
    """Return a report with another one beside it, which is `named`; where that has its samples, jobs of one kind are compared as well."""
    earlier = None if isinstance(other, FleetFigures) else other.measured
    before = other if isinstance(other, FleetFigures) else figures_of(other)
    found = report.findings
    if report.measured is not None and earlier is not None:
        found = fleet_findings(replace(report.measured, earlier=earlier.jobs))
    made = compared(before, figures_of(report), named, list(LABELS))
    return replace(report, against=made, findings=found, notes=[*report.notes, *made.notes])


@dataclass(frozen=True)
class JudgedFleet:
    """What was measured and what of it can be believed: rows of sums by state, which of them are `trusted`, what each step `lost` there."""

    samples: Any
    rolled: RolledSums | None
    rated: Rated
    trusted: Mask
    lost: Mapping[str, Array]
    verdicts: Verdicts
    devices: Rated
    existence: Existence
    window: tuple[int, int]

    @property
    def good(self) -> Rated:
        """The rows that are trusted."""
        return self.rated.take(self.trusted)

    @property
    def believed_samples(self) -> Any:
        """The samples of trusted series, without the time in which their gauges were faulty."""
        return samples_in_spans(_of_trusted(self.samples, self.verdicts), _faults(self.verdicts), inside=False)


def judged_fleet(samples: Any, question: FleetRequest, notes: list[str], rolled: RolledSums | None) -> JudgedFleet:
    """Add up the samples of a window, and decide which series can be believed; notes say what lies beside."""
    samples = within(samples, question.since, question.until)
    question.progress("adding up")
    rolled = None if rolled is None else replace(rolled, rest=_cut(rolled.rest, question))
    samples, sums, gauges, found, rolled = _existing(samples, question, notes, rolled)
    if not len(sums):
        hint = "widen --since/--until, or check that the source holds the fields it needs: `ullage metrics --fields`"
        raise NoSampleError("there is no sample in the window", "; ".join([*notes[:3], hint]))
    rated = rate(sums, question.gpu)
    _note_unknown(rated, notes)
    question.progress("judging")
    # what was not sliced is no device that says anything
    devices = rate(collapse(sums.filter(pc.is_null(sums["share"])), ["gpu", "mig"]), question.gpu)
    verdicts = judge(devices, gauge_evidence(samples, gauges))
    faults = _faults(verdicts)
    marked = marked_sums(sums, samples, faults)
    rated = rate(marked, question.gpu) if faults else replace(rated, sums=marked)
    trusted = _believed(rated, verdicts)
    window = _window(sums, question)
    if edges := question.price_table.edges(window):
        rated = _cut_at_prices(samples, [window[0], *edges, window[1]], faults, question)
        trusted = _believed(rated, verdicts)
    good = rated.take(trusted)
    lost = losses(good, np.zeros(len(good), np.int64) if question.one_job else None)
    return JudgedFleet(samples, rolled, rated, trusted, lost, verdicts, devices, found, window)


def _cut_at_prices(samples: Any, edges: Sequence[int], faults: Mapping[Whose, tuple[Span, ...]], question: FleetRequest) -> Rated:
    """Return the rows of sums by state of each span between two edges at which prices change: no price changes inside a row."""
    parts = []
    for since, until in pairwise(edges):
        own = within(samples, since, until)
        parts.append(marked_sums(state_sums(own, []), own, faults))
    return rate(stacked([one for one in parts if len(one)]), question.gpu)


def part_of_fleet(whole: JudgedFleet, condition: Condition) -> JudgedFleet:
    """Return a part of a fleet, judged as the whole is: its rows are the whole's. Raises UllageError where there are none."""
    chosen = _chosen(whole.rated, condition)
    rated = whole.rated.take(chosen)
    return replace(
        whole,
        samples=samples_that_fit(condition, whole.samples, _names_of(whole.rated)),
        rolled=None,
        rated=rated,
        trusted=whole.trusted[chosen],
        lost={name: values[chosen[whole.trusted]] for name, values in whole.lost.items()},
        verdicts=_of_rows(whole.verdicts, rated),
        devices=whole.devices.take(_have_rows(whole.devices, rated)),
        existence=Existence({}),
    )


def _doubtful(verdicts: Verdicts) -> list[Verdict]:
    """Return the verdicts on series that are not ok, the worst first."""
    found = (one for one in verdicts.values() if one.verdict != "ok")
    return sorted(found, key=lambda one: (VERDICTS.index(one.verdict), one.gpu, one.mig or ""))


def _report_notes(rated: Rated, good: Rated, tree: TelemetryTree, compared: Agreement | None, verdicts: Verdicts) -> list[str]:
    """Return what must be said beside the numbers of a report."""
    bounds = bounds_note(sampled_bounds(good, verdicts))
    return [
        *_remarks(rated, good),
        *_told_clocks(good),
        *_strange_clocks(rated),
        *_contradictions(tree),
        *_two_opinions(compared),
        *([bounds] if bounds else []),
    ]


def _cut(rest: Any, question: FleetRequest) -> Any:
    return None if rest is None else within(rest, question.since, question.until)


def _existing(
    samples: Any, question: FleetRequest, notes: list[str], rolled: RolledSums | None
) -> tuple[Any, pa.Table, pa.Table, Existence, RolledSums | None]:
    """Return the samples of the time in which their GPUs existed, their sums by state and of their gauges, when each GPU existed, and
    what is kept of their sums.

    Notes say what lay outside.
    """
    sums, gauges = state_and_gauge_sums(samples, notes, rolled)
    found = existence(sums, question.existing, _window(sums, question)) if len(sums) else Existence({})
    not_existing = outside(sums, found)
    if not not_existing:
        notes += notes_of(found, 0.0, 0.0) if question.existing else []
        return samples, sums, gauges, found, rolled
    inside = samples_in_spans(samples, not_existing)
    left, gauges = state_and_gauge_sums(inside, [])
    notes += notes_of(found, _observed(sums), _observed(left))
    return inside, left, gauges, found, None


def _chosen(rated: Rated, where: Condition) -> Mask:
    """Return which rows are of the part that is asked about; raises UllageError where none is."""
    chosen = rows_that_fit(where, rated.sums)
    if not chosen.any():
        raise UllageError(
            f"no sample of this fleet fits --where '{harmless(str(where), 300)}'", "see the names with --by user, host, model"
        )
    return chosen


def _names_of(rated: Rated) -> dict[str, list[str | None]]:
    return {name: pc.unique(rated.sums[name].cast(pa.string()).combine_chunks()).to_pylist() for name in FILTER_FIELDS}


def _of_rows(verdicts: Verdicts, rated: Rated) -> dict[Device, Verdict]:
    """Return the verdicts on the devices of some rows."""
    seen = set(zip(rated.words("gpu"), rated.words("mig"), strict=True))
    return {device: verdict for device, verdict in verdicts.items() if device in seen}


def _have_rows(devices: Rated, rated: Rated) -> Mask:
    """Return which devices any of some rows is of."""
    seen = set(zip(rated.words("gpu"), rated.words("mig"), strict=True))
    return np.array([device in seen for device in zip(devices.words("gpu"), devices.words("mig"), strict=True)], dtype=np.bool_)


def _believed(rated: Rated, verdicts: Verdicts) -> Mask:
    """Return which rows count: those of trusted series, and what was not sliced of a GPU of which any series is trusted."""
    of_gpu: dict[str | None, bool] = {}
    for (gpu, _), verdict in verdicts.items():
        of_gpu[gpu] = of_gpu.get(gpu, False) or verdict.trusted
    devices, firsts = rated.alike("gpu", "mig")
    sound = []
    for gpu, mig in zip(*(rated.sums[name].take(pa.array(firsts)).to_pylist() for name in ("gpu", "mig")), strict=True):
        own = verdicts.get((gpu, mig))
        sound.append(gpu is not None and (of_gpu.get(gpu, False) if own is None else own.trusted))
    found: Mask = np.array(sound, dtype=np.bool_)[devices] & ~rated.sums["faulty"].to_numpy()
    return found


def _faults(verdicts: Verdicts) -> Mapping[Whose, tuple[Span, ...]]:
    """Return when series that count were faulty, which does not count."""
    return {device: verdict.left_out for device, verdict in verdicts.items() if verdict.left_out}


def _of_trusted(samples: Any, verdicts: Verdicts) -> Any:
    """Return the samples of trusted series."""
    import ibis

    doubted: dict[str, list[str | None]] = {}
    for (gpu, mig), verdict in verdicts.items():
        if not verdict.trusted:
            doubted.setdefault(gpu, []).append(mig)
    sound = {gpu for (gpu, _), verdict in verdicts.items() if verdict.trusted}
    gone = [gpu for gpu in doubted if gpu not in sound]
    samples = samples.filter(~samples.gpu.isin(gone)) if gone else samples
    for gpu in sorted(doubted.keys() & sound):
        own = [samples.mig.isnull() if mig is None else (samples.mig == mig).fill_null(False) for mig in doubted[gpu]]
        samples = samples.filter(~((samples.gpu == gpu) & ibis.or_(*own)))
    return samples


def _hourly(samples: Any, question: FleetRequest, verdicts: Verdicts) -> list[Group]:
    rated = rate(_hourly_sums(samples, question, _faults(verdicts)), question.gpu)
    trusted = _believed(rated, verdicts)
    lost = losses(rated.take(trusted))
    condition = question.condition()
    if condition is not None:
        chosen = rows_that_fit(condition, rated.sums)
        lost = {name: values[chosen[trusted]] for name, values in lost.items()}
        rated, trusted = rated.take(chosen), trusted[chosen]
    moves = clock_moves(rated.take(trusted), verdicts)
    return groups_of(rated, trusted, lost, "bucket", row_prices(rated, question.price_table), moves)


def _hourly_sums(samples: Any, question: FleetRequest, faults: Mapping[Whose, tuple[Span, ...]]) -> pa.Table:
    """Return the sums by state and hour; where prices change inside the time of the samples, those of each span between two changes."""

    def sums_of(own: Any) -> pa.Table:
        return marked_sums(state_sums(own, [], bucket_ms=HOUR_MS), own, faults, bucket_ms=HOUR_MS)

    edges = question.price_table.edges((0, EVER))
    if not edges:
        return sums_of(samples)
    parts = [sums_of(within(samples, since, until)) for since, until in pairwise([None, *edges, None])]
    return stacked([one for one in parts if len(one)] or parts[:1])


def _natural_key(sums: pa.Table) -> str:
    if _names_any(sums["job"]):
        return "job"
    return "gpu" if codes_of(sums, "gpu")[1] <= 64 or not _names_any(sums["host"]) else "host"


def _names_any(words: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.not_equal(words.cast(pa.string()), "")).as_py())


def _window(sums: pa.Table, question: FleetRequest) -> tuple[int, int]:
    start, end = pc.min(sums["start_ms"]).as_py(), pc.max(sums["last_ms"]).as_py()
    return (int(start) if question.since is None else question.since, int(end) if question.until is None else question.until)


def _by_job(rated: Rated, good: Rated, jobs: pa.Table | None) -> dict[str, MeasuredJob]:
    """Return what trusted series say of each job; its size is how many GPUs its record says, else how many were seen in it."""
    seen = rated.sums.group_by("job").aggregate([("gpu", "count_distinct")])
    held: dict[str, int] = dict(zip(seen["job"].to_pylist(), seen["gpu_count_distinct"].to_pylist(), strict=True))
    records = [] if jobs is None else jobs.select(["job", "gpus"]).to_pylist()
    stated = {row["job"]: int(row["gpus"]) for row in records if row["gpus"]}
    named = good.take((good.chip >= 0) & good.sums["job"].is_valid().to_numpy())
    codes, count = named.codes("job")
    first = np.unique(codes, return_index=True)[1]
    jobs_seen = named.sums["job"].take(pa.array(first)).to_pylist()
    means = weighted_means(named.ofu_part, named.ofu_time, named.weight, codes, count)
    return {
        job: MeasuredJob(float(ofu), stated.get(job, held[job]), named.chips[named.chip[row]].name)
        for job, ofu, row in zip(jobs_seen, means, first, strict=True)
        if not np.isnan(ofu)
    }


def _ledger(rated: Rated, found: Existence) -> dict[str, float]:
    """Return GPU-hours by owner: what was observed, and as unknown what nobody told while a GPU existed."""
    time, whose = rated.column("span_ms") * rated.weight, rated.column("owner")
    parts = {owner: float(time[whose == code].sum()) for owner, code in CODES.items()}
    parts["unknown"] += max(0.0, found.total - sum(parts.values()))
    return {owner: parts[owner] / HOUR_MS for owner in OWNERS} | {"total": sum(parts.values()) / HOUR_MS}


def _observed(sums: pa.Table) -> float:
    """Return the GPU-hours that sums speak of, before anything is known of the GPUs."""
    return gpu_hours(rate(sums))


def _course(
    samples: Any, window: tuple[int, int], verdicts: Verdicts, question: FleetRequest, rolled: RolledSums | None = None
) -> list[CoursePoint]:
    bucket_ms = next((b for b in BUCKETS if (window[1] - window[0]) / b <= 400), BUCKETS[-1])
    faults = _faults(verdicts)

    def believed(table: Any) -> Any:
        return samples_in_spans(_of_trusted(table, verdicts), faults, inside=False)

    doubted = {gpu for (gpu, _), verdict in verdicts.items() if not verdict.trusted} | set(gpus_of(faults))
    sums = course_sums(samples, believed, doubted, bucket_ms, rolled)
    if not len(sums):
        return []
    rated = rate(collapse(sums, ["bucket", *KIND]), question.gpu)
    starts, codes = np.unique(rated.column("bucket"), return_inverse=True)
    ofu = weighted_means(rated.ofu_part, rated.ofu_time, rated.weight, codes, len(starts))
    util = weighted_means(rated.column("gpu_util_sum"), rated.column("gpu_util_ms"), rated.weight, codes, len(starts))
    hours = np.bincount(codes, rated.column("span_ms") * rated.weight, len(starts)) / HOUR_MS
    known = ([None if np.isnan(value) else value for value in values.tolist()] for values in (ofu, util))
    return [CoursePoint(int(start), *values) for start, *values in zip(starts.tolist(), *known, hours.tolist(), strict=True)]


def _tally(verdicts: Verdicts) -> dict[str, tuple[int, float]]:
    tally = {}
    for name in VERDICTS:
        chosen = [v for v in verdicts.values() if v.verdict == name]
        if chosen:
            tally[name] = (len(chosen), sum(v.gpu_hours for v in chosen))
    return tally


def _money(rated: Rated, good: Rated, prices: RowPrices, good_prices: Array) -> dict[str, float | None]:
    hours, idle = (rated.column(name) * rated.weight / HOUR_MS for name in ("span_ms", "idle_ms"))
    short = np.nan_to_num((good.ofu_time - good.ofu_part) * good.weight) / HOUR_MS
    known = bool((good.ofu_time > 0).any())
    priced, listed = (len(each) > 0 and not np.isnan(each).any() for each in (prices.paid, prices.listed))
    return {
        "ullage": float(short.sum()) if known else None,
        "cost": float((hours * prices.paid).sum()) if priced else None,
        "list_cost": float((hours * prices.listed).sum()) if listed else None,
        "ullage_cost": float((short * good_prices).sum()) if priced and known else None,
        "idle_cost": float((idle * prices.paid).sum()) if priced else None,
    }


def _note_unknown(rated: Rated, notes: list[str]) -> None:
    if not rated.unknown_models:
        return
    listed = ", ".join(f"'{harmless(name, 60)}'" if name else "no name" for name in list(rated.unknown_models)[:5])
    hint = 'name it with --gpu, or map it with ULLAGE_GPU_ALIAS="their name=our name"; `ullage gpus` lists all'
    if not rated.chips:
        raise UllageError(f"no GPU of this fleet is known: {listed}", hint)
    notes.append(f"{sum(rated.unknown_models.values()):,.1f} GPU-hours are of GPUs that are not known ({listed}) and have no OFU; {hint}")


_TENSOR = (
    "nobody measured tensor_active, without which there is no OFU: dcgm-exporter has DCGM_FI_PROF_PIPE_TENSOR_ACTIVE in its default list, "
    "nvidia-smi dmon needs --gpm-metrics 2,3,5 (Hopper and later)"
)


def _remarks(rated: Rated, good: Rated) -> list[str]:
    remarks = [chip.warning for chip in rated.chips if chip.warning]
    if not (rated.column("tensor_active_ms") + rated.column("cycles_ms")).any():
        remarks.append(_TENSOR)
    elif not (rated.column("ofu_ms") + rated.column("cycles_ms")).any():
        remarks.append(_bound(good))
    if not _names_any(rated.sums["job"]):
        remarks.append("no sample names a job, so nobody knows whose the busy hours were; --jobs takes Slurm's records, a CSV and others")
    covered = _covered(good)
    if 0 < covered < 0.95:
        remarks.append(f"OFU is known for {percent(covered)} of the trusted GPU-hours; for the rest tensor_active or sm_clock is missing")
    if not rated.column("sm_active_ms").any():
        remarks.append(
            "nobody measured sm_active: DCGM_FI_PROF_SM_ACTIVE is off in the exporter's default list; 'SM fill' joins its neighbour"
        )
    doubted = gpu_hours(rated) - gpu_hours(good)
    if doubted > 0:
        remarks.append(f"{doubted:,.1f} GPU-hours of series that can't be trusted are left out of OFU and the tree; see trust")
    share = exact_share(good)
    if method_of(share) == "mixed":
        remarks.append(f"{percent(share)} of the time OFU comes from cycle counters (exact), the rest from clock samples")
    return remarks


def _memory_unknown(rated: Rated) -> list[str]:
    """Say why it is not known which jobs memory bounds, where nothing tells it."""
    known = rated.take(np.array([chip.memory_clock is not None for chip in rated.chips] + [False])[rated.chip])
    if known.column("memory_ms").any():
        return []
    if rated.column("memory_ms").any():
        return [f"it is not known which jobs memory bounds: nobody states the highest memory clock of {rated.chips[0].name}"]
    return [
        "it is not known which jobs memory bounds: nobody measured dram_active and memory_clock together (DCGM_FI_PROF_DRAM_ACTIVE and "
        "DCGM_FI_DEV_MEM_CLOCK, both in dcgm-exporter's default list)"
    ]


def _told_clocks(good: Rated) -> list[str]:
    """Say whose clocks the driver tells wrong, of the GPUs whose OFU rests on them."""
    sampled = set(good.chip[(good.ofu_time > 0) & ~good.exact & (good.chip >= 0)].tolist())
    return [one.clock_warning for number, one in enumerate(good.chips) if number in sampled and one.clock_warning]


def _strange_clocks(rated: Rated) -> list[str]:
    """Name the hosts whose samples reach more than a day beyond those of every other host, on either side: clocks that are set wrong."""
    seen = rated.sums.group_by(["cluster", "host"], use_threads=False).aggregate([("start_ms", "min"), ("last_ms", "max")])
    found: list[str] = []
    if len(seen) < 2:
        return found
    for ends, side in ((seen["last_ms_max"].to_numpy(), "later"), (-seen["start_ms_min"].to_numpy(), "earlier")):
        order = np.argsort(ends)
        beyond = ends[order[-1]] - ends[order[-2]]
        if beyond > DAY_MS:
            cluster, host = (seen[name][int(order[-1])].as_py() for name in ("cluster", "host"))
            name = harmless("/".join(part for part in (cluster, host or "no name") if part))
            found.append(
                f"host {name} has samples up to {beyond / DAY_MS:,.1f} days {side} than every other host: "
                "if its clock is wrong, its hours are too; leave them out with --since or --until"
            )
    return found


def _two_opinions(compared: Agreement | None) -> list[str]:
    """Name the jobs whose reported MFU depends on whom one asks; what was named in the question counts."""
    told = [] if compared is None else compared.contradictions
    lines = [
        f"job {harmless(c.job, 60)} reported an MFU of {percent(c.counted, 1)}, which counts, "
        f"and {percent(c.other, 1)} elsewhere in its records"
        for c in told
    ]
    return lines if len(lines) <= 3 else [*lines[:3], f"{len(lines) - 3:,} more jobs reported two MFUs; `--json` lists them"]


def _contradictions(tree: TelemetryTree) -> list[str]:
    """A clock may pass the tensor clock; of any other factor nothing passes 1 but gauges that disagree."""
    over = [f for f in tree.factors if f.name != "clock" and f.value is not None and f.value > 1.05]
    return [f"{f.label} comes to {f.value:.2f}, above 1: the gauges that it is made of contradict each other" for f in over]


def _covered(good: Rated) -> float:
    """The share of the time of GPUs that are known for which there is an OFU."""
    named = good.take(good.chip >= 0)
    return float(ratio(float((named.ofu_time * named.weight).sum()) / HOUR_MS, gpu_hours(named)) or 0.0)


def _bound(good: Rated) -> str:
    over = max(((chip.sm_clock or chip.tensor_clock) / chip.tensor_clock for chip in good.chips), default=1.0)
    activity = gauge(good, "tensor_active")
    bound = "" if activity is None else f": OFU is at most {percent(activity * over, 1)} (tensor activity at the highest clock)"
    return f"nobody measured sm_clock, so OFU can't be computed{bound}"
