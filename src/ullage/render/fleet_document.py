"""A fleet report as a document: stable keys, ratios in [0, 1], GPU-hours, ISO 8601 times in UTC, null for what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from ullage.reports.fleet.agreement import Comparison
from ullage.reports.fleet.comparison import FleetComparison
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group
from ullage.reports.fleet.roofs import RoofLevel
from ullage.views.declared import At, Document, Hours, Made, Moment, Ratio, filled, iso, plain_data
from ullage.views.findings import finding_record

DIVERGENT = 20  # jobs that are listed


class WindowDocument(Document):
    """The time that is reported on."""

    start: Moment
    end: Moment
    hours: float


class FactorDocument(Document):
    """A factor of a chain: null where it was not measured on its own."""

    name: str
    label: str
    value: Ratio | None


class TelemetryTreeDocument(Document):
    """OFU, each factor (null where it is merged with a neighbour), and `factors`, whose product is OFU."""

    ofu: Ratio | None
    not_allocated: Ratio | None
    held_idle: Ratio | None
    load_balance: Ratio | None
    activity: Ratio | None
    sm_fill: Ratio | None
    tensor_issue: Ratio | None
    clock: Ratio | None
    factors: list[FactorDocument]


TelemetryFactors = Annotated[TelemetryTreeDocument, Made(lambda tree: tree.as_dict())]


class LossDocument(Document):
    """What a factor takes of the counted GPU-hours, and whose work it is; all of them add up to the ullage."""

    name: str
    label: str
    gpu_hours: Hours
    owner: str


class UllageDocument(Document):
    """GPU-hours short of full, and money where there is a price."""

    gpu_hours: Annotated[Hours | None, At("ullage")]
    cost: Annotated[float | None, At("money.ullage_cost")]
    idle_cost: Annotated[float | None, At("money.idle_cost")]
    fleet_cost: Annotated[float | None, At("money.cost")]
    fleet_list_cost: Annotated[float | None, At("money.list_cost")]
    currency: Annotated[str | None, At("money.terms.currency"), Made(lambda name: name or None)]
    price: Annotated[str | None, At("money.terms.price")]


class PurchaseDocument(Document):
    """GPU-hours bought in one way (list, committed, spot): what they cost, and what at list price."""

    kind: str
    gpu_hours: Hours
    cost: float
    list_cost: float | None


class TeamBillDocument(Document):
    """What a team pays for: all its hours, those of them held and idle, those short of full, and the money of each."""

    team: str
    gpu_hours: Hours
    held_idle_gpu_hours: Annotated[Hours, At("held_idle_hours")]
    ullage_gpu_hours: Annotated[Hours, At("ullage")]
    cost: float | None
    held_idle_cost: float | None
    ullage_cost: float | None
    list_cost: float | None


class RoofLevelDocument(Document):
    """How high under one roof: the share of its stated peak, and of what was measured to be reachable where that is known."""

    name: str
    utilization: Ratio
    of_reachable: Annotated[Ratio, At("height")]
    measured: bool
    gpu_hours: Annotated[Hours, At("hours")]


def _known_levels(levels: Sequence[RoofLevel]) -> list[RoofLevelDocument]:
    return [filled(RoofLevelDocument, level) for level in levels if level.height is not None]


class RoofsDocument(Document):
    """Which roof is nearest, of which kind, whether it binds (half of it is reached), how far it is, and which roofs are not known."""

    nearest: Annotated[str | None, At("nearest.name")]
    kind: str | None
    bound: str | None
    distance: Ratio | None
    levels: Annotated[list[RoofLevelDocument], Made(_known_levels)]
    unknown: Annotated[list[str], Made(list)]


class EnergyDocument(Document):
    """kWh of the accelerators that meters saw (null: no meter), how far that may be off, mean power of a GPU (W), and FLOPs a joule."""

    kwh: float | None
    error_kwh: float | None
    counted_kwh: float | None
    held_idle_kwh: Annotated[float | None, At("idle_kwh")]
    power: float | None
    held_idle_power: Annotated[float | None, At("idle_power")]
    metered_gpu_hours: Annotated[Hours, At("metered_hours")]
    unmetered_gpu_hours: Annotated[Hours, At("dark_hours")]
    flops_per_joule: float | None
    best_flops_per_joule: Annotated[float | None, At("best")]


class EnergyAccountDocument(Document):
    """What all energy comes to by the intensity (g/kWh) and the price that were given, and what it is the energy of."""

    boundary: str
    carbon: float | None
    kwh_price: float | None
    co2_kg: float | None
    cost: float | None


class GroupDocument(Document):
    """A row: a job, a user, a host, an hour, a GPU model. `cost` is of all its GPU-hours, `ullage_cost` the part of it that falls short."""

    key: str
    ofu: Ratio | None
    method: str
    exact_share: Ratio
    gpus: float
    gpu_hours: Hours
    trusted_share: Ratio
    ullage_gpu_hours: Annotated[Hours | None, At("ullage")]
    cost: float | None
    ullage_cost: float | None
    list_cost: float | None
    tree: TelemetryFactors
    roofs: RoofsDocument
    energy: EnergyDocument
    ofu_bounds: Annotated[list[Ratio] | None, Made(lambda bounds: None if bounds is None else [*bounds])]


class CourseDocument(Document):
    """The fleet in one span of time."""

    time: Moment
    ofu: Ratio | None
    gpu_util: Ratio | None
    gpu_hours: Hours


class VerdictCountDocument(Document):
    """How many series a verdict is on, and how much time they cover."""

    series: int
    gpu_hours: Hours


class SpanDocument(Document):
    """From when to when something was wrong."""

    start: Moment
    end: Moment


def _spans(found: Iterable[tuple[int, int]]) -> list[SpanDocument]:
    return [SpanDocument(start=iso(start), end=iso(end)) for start, end in found if start]


class VerdictDocument(Document):
    """What is to be thought of the series of one device, and why."""

    gpu: str
    mig: str | None
    host: str | None
    index: int | None
    verdict: str
    trusted: bool
    evidence: str
    gpu_hours: Hours
    spans: Annotated[list[SpanDocument], Made(_spans)]


class TrustDocument(Document):
    """Series by verdict, and the findings."""

    verdicts: dict[str, VerdictCountDocument]
    findings: list[VerdictDocument]


class SizeDocument(Document):
    """The jobs of one size: means and deviations of their MFU and of |MFU − OFU|."""

    gpus: int
    jobs: int
    mfu: Ratio
    mfu_deviation: float | None
    absolute_error: Annotated[float, At("error")]
    absolute_error_deviation: Annotated[float | None, At("error_deviation")]


class ComparisonDocument(Document):
    """A job's reported MFU beside its OFU."""

    job: str
    gpus: int
    mfu: Ratio
    ofu: Ratio
    relative_error: float | None


def _most_divergent(jobs: Sequence[Comparison]) -> list[ComparisonDocument]:
    return [filled(ComparisonDocument, one) for one in jobs[:DIVERGENT]]


class ContradictionDocument(Document):
    """A job that reported two MFUs: the one that counts, and the one furthest from it."""

    job: str
    counted: Ratio
    other: Ratio


class AgreementDocument(Document):
    """OFU beside the MFU that jobs report of themselves."""

    pearson: float | None
    jobs: Annotated[int, Made(len)]
    mfu: Ratio
    ofu: Ratio
    mean_absolute_error: Annotated[float, At("error")]
    within_10_points: Annotated[Ratio, At("within_10")]
    above_20_points: Annotated[Ratio, At("above_20")]
    by_gpus: Annotated[list[SizeDocument], At("rows")]
    most_divergent: Annotated[list[ComparisonDocument], At("jobs"), Made(_most_divergent)]
    contradictions: list[ContradictionDocument]


class FindingEvidenceDocument(Document):
    """A number that a finding rests on."""

    name: str
    value: str | float | None
    unit: str


class FindingDocument(Document):
    """What is worth doing: where, whose, what it costs in the window and in a week like it, how sure that is, and what to do.

    `next` is the command that says more of where it is.
    """

    kind: str
    where: dict[str, str | int]
    owner: str
    gpu_hours: Hours
    gpu_hours_a_week: Hours | None
    money: float | None
    money_a_week: float | None
    currency: str | None
    price: str | None
    confidence: str
    evidence: list[FindingEvidenceDocument]
    advice: str
    part: str
    next: str | None


class NoiseDocument(Document):
    """What reading the clock every so often costs in certainty."""

    interval: float
    phases: int
    mean_deviation: float
    bound: float


class FigureChangeDocument(Document):
    """A figure before and now (null: not known), its change where it exceeds the stated errors of both, and what it lies between."""

    before: Annotated[float | None, At("before.value")]
    now: Annotated[float | None, At("now.value")]
    change: float | None
    bounds: Annotated[list[float] | None, Made(lambda bounds: None if bounds is None else [*bounds])]


class ChangedStepDocument(Document):
    """A step of the chain: GPU-hours lost, and their share of those whose OFU is known."""

    name: str
    label: str
    gpu_hours: Annotated[FigureChangeDocument, At("lost")]
    share: FigureChangeDocument


class ChangedGroupDocument(Document):
    """A job, user, host …: in "both", "new", or "gone"."""

    key: str
    presence: str
    gpu_hours: FigureChangeDocument
    ofu: FigureChangeDocument
    ullage_gpu_hours: Annotated[FigureChangeDocument, At("ullage")]


class ComparisonOfFleetsDocument(Document):
    """Another report beside this one: what it is of, its window, and what changed."""

    named: str
    window: WindowDocument
    ofu: FigureChangeDocument
    ullage_gpu_hours: Annotated[FigureChangeDocument, At("ullage")]
    gpu_hours: FigureChangeDocument
    gpus: FigureChangeDocument
    gpu_util: FigureChangeDocument
    kwh: FigureChangeDocument
    steps: list[ChangedStepDocument]
    by: str
    groups: list[ChangedGroupDocument]


class EndedRunsDocument(Document):
    """Runs that one thing ended before they completed: GPU-hours held, OFU-hours in them, and whether their work counts as lost."""

    ending: str
    runs: int
    gpu_hours: Hours
    ofu_hours: Hours
    lost: bool


class GoodputDocument(Document):
    """Goodput and its three factors, the GPU-hours that they are made of, and goodput if all work of the `ended` runs was lost or kept.

    `capacity` is the time whose owner is known, `allocated` what jobs held of it, `kept` what belongs to runs whose work was kept, `useful`
    what that comes to at the peak.
    """

    goodput: Ratio | None
    scheduling: Ratio | None
    runtime: Ratio | None
    program: Ratio | None
    bounds: Annotated[list[Ratio] | None, Made(lambda bounds: None if bounds is None else [*bounds])]
    capacity_gpu_hours: Annotated[Hours, At("capacity")]
    allocated_gpu_hours: Annotated[Hours, At("allocated")]
    kept_gpu_hours: Annotated[Hours, At("kept")]
    useful_gpu_hours: Annotated[Hours, At("useful")]
    ended: list[EndedRunsDocument]


class QueueWaitsDocument(Document):
    """How long (s) the runs that started in the window had waited: by GPUs, by runs, the longest; GPUs × wait, and GPUs × time held then.

    `unknown` runs do not say how long they waited.
    """

    runs: int
    unknown: int
    mean_seconds: Annotated[float, At("mean")]
    median_seconds: Annotated[float, At("median")]
    longest_seconds: Annotated[float, At("longest")]
    longest_job: str
    gpu_hours: Hours
    held_gpu_hours: Annotated[Hours, At("ran")]


def _beside(found: FleetComparison | None) -> ComparisonOfFleetsDocument | None:
    return None if found is None else filled(ComparisonOfFleetsDocument, found, window=window_document(found.before.window))


ComparedFleet = Annotated[ComparisonOfFleetsDocument | None, Made(_beside)]


class FleetDocument(Document):
    """The answer of `ullage fleet`: how full the GPUs were, where the shortfall goes, whose it is, and what can be believed.

    `command` asks again; `next` is the command that reports on the worst job, or on the worst user's or host's jobs.
    """

    complete: bool
    read_until: Moment | None
    ofu: Ratio | None
    ofu_all: Ratio | None
    method: str
    ofu_bounds: list[Ratio] | None
    exact_share: Ratio
    gpus: float
    gpu_hours: Hours
    trusted_share: Ratio
    window: WindowDocument
    gpu_util: Ratio | None
    tensor_active: Ratio | None
    power: float | None
    tree: TelemetryFactors
    losses: list[LossDocument]
    ledger: dict[str, Hours]
    ledger_shares: dict[str, Ratio | None]
    ullage: UllageDocument
    purchases: Annotated[list[PurchaseDocument], At("money.purchases")]
    chargeback: Annotated[list[TeamBillDocument], At("money.chargeback")]
    by: str
    groups: list[GroupDocument]
    models: list[GroupDocument]
    roofs: RoofsDocument
    energy: EnergyDocument
    energy_ledger: dict[str, EnergyDocument]
    energy_account: EnergyAccountDocument
    course: list[CourseDocument]
    trust: TrustDocument
    findings: list[Annotated[FindingDocument, Made(finding_record)]]
    agreement: AgreementDocument | None
    noise: list[NoiseDocument]
    against: ComparedFleet
    goodput: GoodputDocument | None
    queue: QueueWaitsDocument | None
    command: str
    next: Annotated[str | None, At("next_command"), Made(lambda command: command or None)]
    notes: list[str]


def record(report: FleetReport) -> dict[str, Any]:
    """Return a fleet report as plain data, ready for JSON."""
    total = report.ledger["total"]
    counts = {name: VerdictCountDocument(series=count, gpu_hours=hours) for name, (count, hours) in report.verdicts.items()}
    found: dict[str, Any] = finite(
        plain_data(
            FleetDocument,
            report,
            window=window_document(report.window),
            losses=losses_document(report),
            ledger_shares={owner: hours / total if total else None for owner, hours in report.ledger.items()},
            ullage=filled(UllageDocument, report),
            energy_account=energy_account(report),
            trust=TrustDocument(verdicts=counts, findings=[filled(VerdictDocument, one) for one in report.doubtful_series]),
        )
    )
    return found


def window_document(window: tuple[int, int]) -> WindowDocument:
    """Return a window (ms since 1970) as a document."""
    return WindowDocument(start=iso(window[0]), end=iso(window[1]), hours=(window[1] - window[0]) / 3_600_000)


def losses_document(report: FleetReport) -> list[LossDocument]:
    """Return what each factor takes of the counted GPU-hours."""
    return [LossDocument(name=f.name, label=f.label, gpu_hours=lost, owner=f.whose) for f, lost in report.tree.losses(report.counted_hours)]


def energy_account(report: FleetReport) -> EnergyAccountDocument:
    """Return what all energy comes to by the intensity and the price that were given."""
    spent = report.energy.kwh
    kilograms = None if spent is None or report.carbon is None else spent * report.carbon / 1000
    cost = None if spent is None or report.kwh_price is None else spent * report.kwh_price
    return EnergyAccountDocument(boundary="accelerator", carbon=report.carbon, kwh_price=report.kwh_price, co2_kg=kilograms, cost=cost)


def group_record(row: Group) -> dict[str, Any]:
    """Return one group as plain data."""
    return plain_data(GroupDocument, row)


def finite(value: Any) -> Any:
    """Return plain data without NaN, which JSON has not: what is not known is null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
