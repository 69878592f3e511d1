"""How full is the fleet, and where does the shortfall go: OFU by whatever key, the telemetry tree, the ledger, trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ullage.audit.trust import VERDICTS, Verdict
from ullage.errors import harmless
from ullage.findings.fleet_evidence import FleetEvidence, QueueWaits
from ullage.findings.kind import fleet_findings
from ullage.job_names import separate_names
from ullage.metrics.clocks import SamplingNoise
from ullage.metrics.metric import ratio
from ullage.metrics.telemetry import LABELS, TelemetryTree
from ullage.reports.fleet.agreement import Agreement, MeasuredJob, agreement
from ullage.reports.fleet.bills import FleetMoney, fleet_money, unpriced_note, with_teams
from ullage.reports.fleet.comparison import FleetComparison, FleetFigures, compared, figures_of
from ullage.reports.fleet.course import CoursePoint, course_of, hourly_groups
from ullage.reports.fleet.energy import Energy, energies_of, energy_ledger
from ullage.reports.fleet.existence import Existence
from ullage.reports.fleet.family_runs import family_runs
from ullage.reports.fleet.fleet_evidence import fleet_evidence
from ullage.reports.fleet.goodput import FleetGoodput, JobKey, RowsOfSpans, fleet_goodput, queue_waits
from ullage.reports.fleet.groups import (
    JOB_SPANS,
    Group,
    counted_hours,
    exact_share,
    gauge,
    gpu_hours,
    groups_of,
    method_of,
    sums_of_job_spans,
)
from ullage.reports.fleet.health import sick_gpus
from ullage.reports.fleet.job_runs import EndedSpan, JobRun, JobRuns, runs_of
from ullage.reports.fleet.judged import JudgedFleet, Verdicts, believed_rows, doubtful_series, faults_of, judged_fleet, part_of_fleet
from ullage.reports.fleet.prices import RowPrices, row_prices
from ullage.reports.fleet.rated import Rated, chains, rate, weighted_mean, weighted_means
from ullage.reports.fleet.report_notes import memory_unknown, names_any, report_notes
from ullage.reports.fleet.request import FleetRequest
from ullage.reports.fleet.roofs import RoofHeights, roofs_of
from ullage.reports.fleet.series import noise
from ullage.reports.fleet.trusted import clock_moves, sampled_bounds
from ullage.reports.stragglers.job_stragglers import with_stragglers
from ullage.store.rollups import RolledSums
from ullage.sums.ledger import CODES, OWNERS
from ullage.units import HOUR_MS
from ullage.views.shown import ShownByView
from ullage.views.view import Finding


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
    `money` is what all of it costs, `goodput` what of it went into work that was kept, `queue` how long jobs waited, where records say so.
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
    ullage: float | None
    ledger: dict[str, float]
    verdicts: dict[str, tuple[int, float]]
    doubtful_series: list[Verdict]
    course: list[CoursePoint]
    noise: list[SamplingNoise]
    ofu_bounds: tuple[float, float] | None = None
    by: str = ""
    groups: list[Group] = field(default_factory=list)
    models: list[Group] = field(default_factory=list)
    agreement: Agreement | None = None
    money: FleetMoney = field(default_factory=FleetMoney)
    command: str = ""
    next_command: str = ""
    notes: list[str] = field(default_factory=list)
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
    question.progress("grouping")
    prices = row_prices(asked.rated, question.price_table)
    report = _with_groups(_figures(asked, question), whole, asked, prices, question)
    report = _with_jobs(report, asked, jobs, prices, question)
    beside = [*unpriced_note(asked.rated, prices, question.price_table), *report_notes(asked, report.tree, report.agreement)]
    return replace(
        report,
        money=fleet_money(asked.rated, asked.trusted, prices, question.price_table),
        notes=[*notes, *beside, *([] if question.one_job else memory_unknown(asked.rated))],
    )


def _figures(asked: JudgedFleet, question: FleetRequest) -> FleetReport:
    """Return a report with what rests on samples alone, of all of them together."""
    rated, good, verdicts = asked.rated, asked.good, asked.verdicts
    one = np.zeros(len(good), np.int64)
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
        tree=chains(good, asked.lost, one, 1)[0] if len(good) else TelemetryTree(None, ()),
        counted_hours=counted_hours(good),
        ullage=float(good.ullage_hours.sum()) if (good.ofu_time > 0).any() else None,
        ledger=_ledger(rated, asked.existence),
        verdicts=_tally(verdicts),
        doubtful_series=doubtful_series(verdicts),
        course=course_of(asked.samples, asked.window, verdicts, question.gpu, asked.rolled),
        noise=noise(asked.samples, asked.devices.sums, rated, wanted=question.noise),
        ofu_bounds=sampled_bounds(good, verdicts),
        roofs=roofs_of(good, one, 1)[0],
        energy=energies_of(rated, np.zeros(len(rated), np.int64), 1)[0],
        energy_ledger=energy_ledger(rated),
        carbon=question.carbon,
        kwh_price=question.energy_price,
        command=question.command,
    )


def _with_groups(report: FleetReport, whole: JudgedFleet, asked: JudgedFleet, prices: RowPrices, question: FleetRequest) -> FleetReport:
    """Return a report with its rows: by the key that is asked for, and by model."""
    by = question.by or _natural_key(whole.rated)
    moves = clock_moves(asked.good, asked.verdicts)

    def rows(rated: Rated, key: str) -> list[Group]:
        return groups_of(rated, asked.trusted, asked.lost, key, prices, moves)

    groups = hourly_groups(whole, question) if by == "hour" else rows(with_teams(asked.rated, question.price_table), by)
    return replace(report, by=by, groups=groups, models=rows(asked.rated, "model"))


def _with_jobs(report: FleetReport, asked: JudgedFleet, jobs: pa.Table | None, prices: RowPrices, question: FleetRequest) -> FleetReport:
    """Return a report with what job records add to samples, and what findings make of both."""
    good, window = asked.good, asked.window
    reported = agreement(_by_job(asked.rated, good, jobs), jobs, question.peak_tflops)
    mfus = {} if reported is None else {job.job: job.mfu for job in reported.jobs}
    whole = question.condition() is None and not question.one_job
    runs = _runs_asked_about(jobs, asked, every=whole)
    goodput = fleet_goodput(good, JobRuns(runs, set(good.words("cluster")), window), _rows_of_spans(asked, question))
    lost_runs = None if goodput is None else goodput.lost_by_job
    paid = prices.paid[asked.trusted]
    found = fleet_evidence(good, asked.lost, paid, jobs, window, mfus, report.doubtful_series, lost_runs)
    waits = queue_waits(runs, window, _devices_by_job(asked.rated))
    found = replace(found, sick=sick_gpus(asked.samples), queue=waits, terms=question.price_table.terms)
    found = with_stragglers(replace(found, families=family_runs(runs, window) if whole else ()), asked)
    return replace(report, agreement=reported, goodput=goodput, queue=waits, measured=found, findings=fleet_findings(found))


def _natural_key(rated: Rated) -> str:
    if names_any(rated, "job"):
        return "job"
    return "gpu" if rated.codes("gpu")[1] <= 64 or not names_any(rated, "host") else "host"


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
        sums = sums_of_job_spans(asked.samples, pa.Table.from_pylist(told, JOB_SPANS), gpus, faults_of(asked.verdicts))
        return {ending: _trusted_rows(table, question, asked.verdicts) for ending, table in sums.items() if len(table)}

    return rows


def _trusted_rows(sums: pa.Table, question: FleetRequest, verdicts: Verdicts) -> Rated:
    rated = rate(sums.append_column("faulty", pa.array(np.zeros(len(sums), np.bool_))), question.gpu)
    return rated.take(believed_rows(rated, verdicts))


def _devices_by_job(rated: Rated) -> dict[str, int]:
    """Return on how many devices samples saw each job."""
    _, firsts = rated.alike("job", "gpu", "mig")
    words = rated.sums["job"].take(pa.array(firsts)).to_pylist()
    return Counter(name for word in words if word is not None for name in separate_names(word))


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


def _tally(verdicts: Verdicts) -> dict[str, tuple[int, float]]:
    tally = {}
    for name in VERDICTS:
        chosen = [v for v in verdicts.values() if v.verdict == name]
        if chosen:
            tally[name] = (len(chosen), sum(v.gpu_hours for v in chosen))
    return tally


def beside(report: FleetReport, other: FleetReport | FleetFigures, named: str) -> FleetReport:
    """Return a report with another one beside it, which is `named`; where that has its samples, jobs of one kind are compared as well."""
    earlier = None if isinstance(other, FleetFigures) else other.measured
    before = other if isinstance(other, FleetFigures) else figures_of(other)
    found = report.findings
    if report.measured is not None and earlier is not None:
        found = fleet_findings(replace(report.measured, earlier=earlier.jobs))
    made = compared(before, figures_of(report), named, list(LABELS))
    return replace(report, against=made, findings=found, notes=[*report.notes, *made.notes])
