"""From peak to MFU: the chain of one job from whatever is known of it, with hours, money, and whose work each step is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.gpus.measured import ChosenCeiling
from ullage.gpus.precision import canonical
from ullage.metrics.evidence import GIVEN, Evidence, Measured, Telemetry, TraceEvidence
from ullage.metrics.metric import ratio
from ullage.metrics.steps import ChainStep
from ullage.metrics.waterfall import Waterfall
from ullage.metrics.waterfall import waterfall as chain_of
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.gemms.gemms import chip_of
from ullage.reports.waterfall import evidence as evidence_of
from ullage.reports.waterfall.kernel_roofs import KernelRoofs, RoofSources, kernel_roofs
from ullage.reports.waterfall.known import GivenByHand, SourceReports, gpu_name, products, untiled
from ullage.reports.waterfall.match import above_ceiling
from ullage.reports.waterfall.notes import notes, rests_on
from ullage.reports.waterfall.remedies import Remedy, apart, help_kernels, remedies, whose
from ullage.reports.waterfall.step import HINT, StepContradiction, contradiction
from ullage.views.notation import MoneyTerms
from ullage.views.shown import ShownByView

SECONDS = 3600  # in an hour
# A measured ceiling above this much of the stated peak is of something else; a clock above the tensor clock explains a little
HIGHEST_CEILING = 1.25


@dataclass(frozen=True)
class Cost:
    """One step of the chain with what it costs and whose work it is; hours and money are None where the job's time or price is not known.

    `points` are percentage points of the peak, walking from 100 %; below 0 for a factor above 1. `points_between` are the least and the
    most that they may be (None: not known). `apart` says what would tell apart the factors of a merged step, `by_kernels` whether the
    remedies are those that help the trace's kernels.
    """

    step: ChainStep
    points: float
    points_between: tuple[float, float] | None
    gpu_hours: float | None
    money: float | None
    whose: str
    remedies: tuple[Remedy, ...]
    apart: tuple[str, ...] = ()
    by_kernels: bool = False


@dataclass(frozen=True)
class WaterfallReport(ShownByView, view="ullage.render.waterfall"):
    """The answer to `ullage waterfall`: the `chain`, what each step costs, the measured `ceiling` (FLOP/s, and as a share of the peak).

    `rests_on` says what was read, a line a source; `complete` whether all of it was, and `read_until` (ms) how far telemetry was.
    A step that is a `contradiction` of the trace's products counts for nothing in the chain. `kernels` is what binds those of the trace,
    None without a trace or where nobody knows the GPU.
    """

    chain: Waterfall
    costs: tuple[Cost, ...]
    gpus: int | None
    gpu_hours: float | None
    price: float | None
    peak: float | None
    peak_source: str | None
    ceiling: float | None
    ceiling_share: float | None
    ceiling_source: str
    rests_on: tuple[str, ...]
    notes: tuple[str, ...]
    complete: bool = True
    read_until: int | None = None
    contradiction: StepContradiction | None = None
    kernels: KernelRoofs | None = None
    currency: str = ""

    @property
    def terms(self) -> MoneyTerms:
        """What its amounts of money are in."""
        return MoneyTerms(self.currency)

    @property
    def headline(self) -> Measured:
        """The number that the answer begins with: the measured MFU where there is one, else the end of the chain."""
        return self.chain.mfu or self.chain.end


def waterfall(found: SourceReports, given: GivenByHand | None = None) -> WaterfallReport:
    """Return the chain of a job from the reports on its sources and from what is said by hand.

    Raises UllageError where nothing at all is known, for a GPU that nobody knows, and for a ceiling that its peak does not allow.
    """
    given = given or GivenByHand()
    against = contradiction(found)
    if against is not None:
        found = replace(found, flops=None, notes=(*found.notes, f"{against.words}: {HINT}"))
    peak, source = _peak(found)
    _check_ceiling(given, peak, source)
    telemetry = None if found.telemetry is None else evidence_of.telemetry(found.telemetry, given.error)
    trace = None if found.trace is None else evidence_of.trace(found.trace, found.gpus)
    evidence = _evidence(found, given, telemetry, trace)
    chain = chain_of(evidence)
    if not chain.steps:
        raise UllageError("nothing that was given says how much of the peak is used", _needed(found))
    hours, share, kernels = _hours(found, given), ratio(given.ceiling, peak), _kernels(found, given, chain)
    evidence_of_kernels = None if kernels is None else kernels.evidence
    answer = (chain.mfu or chain.end).value
    return WaterfallReport(
        chain=chain,
        costs=tuple(_cost(step, hours, given.price, evidence_of_kernels) for step in chain.steps),
        gpus=found.gpus,
        gpu_hours=hours,
        price=given.price,
        currency=given.currency,
        peak=peak,
        peak_source=source,
        ceiling=given.ceiling,
        ceiling_share=share,
        ceiling_source=given.ceiling_source,
        rests_on=tuple(rests_on(found, given)),
        notes=(
            *found.notes,
            *notes(found, given, chain, telemetry, trace),
            *above_ceiling(answer, share),
            *(kernels.notes if kernels else ()),
        ),
        complete=(found.telemetry is None or found.telemetry.complete)
        and (found.trace is None or not found.trace.partial)
        and (found.log is None or found.log.complete),
        read_until=None if found.telemetry is None else found.telemetry.read_until,
        contradiction=against,
        kernels=kernels,
    )


def _kernels(found: SourceReports, given: GivenByHand, chain: Waterfall) -> KernelRoofs | None:
    """Return what binds each kernel of the trace, None without a trace, or where nobody knows its GPU."""
    chip = _chip(found)
    if found.trace is None or chip is None:
        return None
    clock = chain.step("clock")
    measured = given.memory or ChosenCeiling(chip.bandwidth, f"{chip.name}, as its maker states it")
    known = None if clock is None or clock.factor.value <= 0 else clock.factor.value
    return kernel_roofs(found.trace, RoofSources(chip, known, measured.value, measured.source), chain.steps)


def _chip(found: SourceReports) -> Chip | None:
    """Return what the job's GPUs are: as they are named, else as the trace's products take them to be."""
    name = gpu_name(found)
    if name is None:
        return None if found.trace is None or found.trace.run is None else chip_of(found.trace.run)
    try:
        return find(name)
    except UllageError:
        return None


def _evidence(found: SourceReports, given: GivenByHand, telemetry: Telemetry | None, trace: TraceEvidence | None) -> Evidence:
    flops = found.flops
    apart = {"kernels": untiled(found.trace)}  # of a list nobody knows what ran beside it
    tiles = [tile for source, loss in products(found) if (tile := evidence_of.tile(loss, source, apart.get(source, 0.0))) is not None]
    said = {
        name: () if value is None else (Measured.exact(value, GIVEN),)
        for name, value in (("ofu", given.ofu), ("tile", given.tile), ("model", given.model), ("mfu", given.mfu))
    }
    model = None if flops is None else evidence_of.model(flops)
    mfu = None if flops is None or flops.mfu is None else Measured.exact(flops.mfu, "step")
    logged = () if found.log is None or found.log.mfu is None else (Measured.exact(found.log.mfu, "log"),)
    return Evidence(
        telemetry=telemetry,
        trace=trace,
        ofu=said["ofu"],
        tile=(*tiles, *said["tile"]),
        model=(*(() if model is None else (model,)), *said["model"]),
        mfu=(*(() if mfu is None else (mfu,)), *logged, *said["mfu"]),
        error=given.error,
    )


def _needed(found: SourceReports) -> str:
    if found.telemetry is not None:
        return _untold(found.telemetry)
    if found.log is not None:
        return "the trainer's log reports no MFU; of FLOP/s it needs the GPU: --gpu 'H100 SXM'"
    if found.trace is not None:
        damaged = "what is left of the damaged trace" if found.trace.partial else "the trace"
        return f"{damaged} has no device that computes; give telemetry, or a model with --step-time, --gpus and --gpu"
    if found.flops is not None:
        return "with --step-time, --gpus and --gpu a model's step gives MFU; telemetry gives OFU, a trace the time in which GPUs compute"
    return "give telemetry, a trace, a model's config with --step-time, or numbers by hand: --ofu 34 --mfu 26"


def _untold(report: FleetReport) -> str:
    """Return why a job's telemetry tells no OFU: a series that can't be trusted, or a field that nobody measured."""
    doubtful = [verdict for verdict in report.doubtful_series if not verdict.trusted]
    if doubtful:
        worst = doubtful[0]
        more = f" and {len(doubtful) - 1} more" if len(doubtful) > 1 else ""
        return f"its series can't be trusted: {worst.verdict} ({worst.evidence}){more}; `ullage fleet SOURCE --by job` shows them"
    unmeasured = [note for note in report.notes if note.startswith("nobody measured")]
    return "; ".join(unmeasured) or "this telemetry tells no OFU: `ullage fleet SOURCE --by job` says why"


def _cost(step: ChainStep, hours: float | None, price: float | None, evidence: Mapping[tuple[str, bool], float] | None = None) -> Cost:
    lost = None if hours is None else hours * step.lost
    money = None if lost is None or price is None else lost * price
    between = None if step.lost_between is None else (step.lost_between[0] * 100, step.lost_between[1] * 100)
    found = remedies(step.names, evidence)
    return Cost(step, step.lost * 100, between, lost, money, whose(step.names), found, apart(step.names), help_kernels(found, evidence))


def _hours(found: SourceReports, given: GivenByHand) -> float | None:
    """Return the job's GPU-hours: as given, else steps times their time, else as observed."""
    if given.hours is not None:
        return given.hours * (found.gpus or 1)
    if given.steps is not None and found.flops is not None and found.flops.step_time is not None:
        return given.steps * found.flops.step_time * (found.gpus or 1) / SECONDS
    return None if found.telemetry is None else found.telemetry.gpu_hours


def _peak(found: SourceReports) -> tuple[float | None, str | None]:
    """Return one GPU's peak in FLOP/s: that of the step's precisions, else of the GPU that is said, or named by telemetry or a trace."""
    if found.flops is not None and found.flops.peak is not None:
        return found.flops.peak, found.flops.peak_source
    name = gpu_name(found)
    if name is None:
        return None, None
    try:
        chip = find(name)
        said = f" ({chip.warning})" if chip.warning else ""
        return chip.peak(found.precision), f"{chip.name}, dense {canonical(found.precision).upper()}{said}"
    except UllageError:
        if found.gpu is not None:  # somebody said it: a slip of the pen
            raise
        return None, None


def _check_ceiling(given: GivenByHand, peak: float | None, source: str | None) -> None:
    if given.ceiling is not None and peak is not None and given.ceiling > peak * HIGHEST_CEILING:
        raise UllageError(
            f"a measured ceiling of {given.ceiling / 1e12:,.1f} TFLOP/s can't be: the peak is {peak / 1e12:,.1f} ({source})",
            "give the dense ceiling of one GPU at this precision, in FLOP/s: 800e12; --gpu and --precision say what it is",
        )
