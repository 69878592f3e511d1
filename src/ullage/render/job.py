"""The view of one job's report: about fifteen lines in a terminal, a page with its GPUs and its course, and its document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from ullage.errors import harmless
from ullage.metrics.metric import ratio
from ullage.render.against import against_sections
from ullage.render.fleet_document import (
    ComparedFleet,
    ComparisonDocument,
    CourseDocument,
    EnergyAccountDocument,
    EnergyDocument,
    FindingDocument,
    LossDocument,
    RoofsDocument,
    TelemetryFactors,
    UllageDocument,
    WindowDocument,
    energy_account,
    finite,
    losses_document,
    window_document,
)
from ullage.render.roofs import roof_words
from ullage.render.svg.chain import waterfall
from ullage.render.svg.line import course
from ullage.reports.fleet.agreement import Comparison
from ullage.reports.fleet.energy import KWH
from ullage.reports.job.devices import places_in_words
from ullage.reports.job.job import JobReport
from ullage.reports.job.summary import summary_of
from ullage.sources.jobs.jobstats import JobstatsSummary, write_summary
from ullage.views.csv import table_csv
from ullage.views.declared import At, Document, Hours, Made, Moment, Ratio, filled, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.findings import finding_record
from ullage.views.mail import mail
from ullage.views.markup import known
from ullage.views.notation import BAR, BYTES, FACTOR, GPU_HOURS, PERCENT, PERCENT_1, WATTS
from ullage.views.numbers import hours, part_read, percent, span
from ullage.views.view import BRIEF, Cell, Column, FindingPlace, Headline, Picture, Section, Table, Value, View

MOST_STRAGGLERS = 3  # that a line names; the findings name all


def view(report: JobReport) -> View:
    """Return the answer as data: OFU with its error, who and where, the chain from peak, roof, stragglers, energy, findings."""
    fleet = report.fleet
    facts: list[list[Value | Cell]] = [[name, words] for name, words in _facts(report) if words]
    return View(
        kind="job",
        subject="Job report",
        window=span(report.window),
        headline=_headline(report),
        sections=[
            Section("job", "The job", [Table("job", [Column(""), Column("", wraps=True)], facts)]),
            Section(
                "chain",
                "Where it goes",
                [Picture(lambda w: waterfall(fleet.tree, fleet.counted_hours, width=w, standalone=False)), _chain(report)],
                _CHAIN,
                opens=True,
            ),
            *against_sections(report.against, top=BRIEF),
            Section("gpus", "Its GPUs", [_gpus(report)], _GPUS, detail=True),
            Section("course", "Over time", [Picture(lambda w: course(fleet.course, fleet.window, width=w, standalone=False))], detail=True),
        ],
        findings=report.findings,
        notes=report.notes,
        command=report.command,
        next_command=report.next_command,
        closing=_CLOSING,
    )


def _headline(report: JobReport) -> Headline:
    name = f" ({harmless(report.name, 80)})" if report.name else ""
    fleet, who = report.fleet, f"Job {harmless(report.asked, 80)}{name}"
    before, spent = part_read(report.complete, report.read_until), f" of {hours(known(fleet.gpu_hours))} GPU-hours"
    ofu = known(fleet.ofu)
    words = "OFU unknown" if ofu is None else f"OFU {percent(ofu, 1)}"
    return Headline(f"{who}: {words}", spent, before, _error_words(report))


def _error_words(report: JobReport) -> str:
    """Return how sure OFU is: bounds where clocks were sampled, exact where cycles were counted."""
    fleet = report.fleet
    if known(fleet.ofu) is None:
        return ""
    if fleet.method == "exact":
        return "exact, by cycle counters"
    if fleet.ofu_bounds is None:
        return f"{fleet.method}, without bounds"
    return f"by clock samples {percent(fleet.ofu_bounds[0], 1)} to {percent(fleet.ofu_bounds[1], 1)}"


def _facts(report: JobReport) -> Iterator[tuple[str, str]]:
    yield "who", _who(report)
    yield "where", f"{_models(report)}: {places_in_words(report.gpus)}"
    yield "hours", _hours(report)
    yield "GPUs", _spread(report)
    yield "reported", "; ".join(map(_reported, _comparisons(report)))
    yield "roof", _roof(report)
    yield "stragglers", _stragglers(report)
    yield "energy", _energy(report)
    yield "cost", _cost(report)
    yield "CPUs", _cpus(report.jobstats)


def _comparisons(report: JobReport) -> list[Comparison]:
    """Return what the job reported of itself, beside its OFU."""
    return [] if report.fleet.agreement is None else report.fleet.agreement.jobs


def _reported(found: Comparison) -> str:
    """Return in words how the MFU that a job reported stands to its OFU."""
    apart = known(found.relative_error)
    side = "" if apart is None else f", {percent(abs(apart))} {'above' if apart > 0 else 'below'} its OFU of {percent(found.ofu, 1)}"
    return f"MFU {percent(found.mfu, 1)}{side}"


def _who(report: JobReport) -> str:
    slurm = report.slurm[0] if report.slurm else None
    words = [report.user or "", f"namespace {report.namespace}" if report.namespace else ""]
    if slurm is not None:
        words += [f"account {slurm.account}" if slurm.account else "", f"partition {slurm.partition}" if slurm.partition else ""]
    code = f" (exit code {slurm.exit_code})" if slurm is not None and slurm.exit_code and len(report.jobs) == 1 else ""
    return ", ".join(filter(None, [*words, f"{report.state}{code}" if report.state else ""])) or "unknown"


def _models(report: JobReport) -> str:
    counts: dict[str, int] = {}
    for gpu in report.gpus:
        name = gpu.model or "unknown model"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{count:,} × {name}" for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _hours(report: JobReport) -> str:
    fleet, long = report.fleet, (report.window[1] - report.window[0]) / 3_600_000
    words = [f"{hours(fleet.gpu_hours)} GPU-hours in {hours(long)} h"]
    if report.recorded_hours:
        words.append(f"{percent(ratio(fleet.gpu_hours, report.recorded_hours))} of the {hours(report.recorded_hours)} in its records")
    if fleet.trusted_share < 1:
        words.append(f"{percent(fleet.trusted_share, 1)} trusted")
    waits = [one.start - one.submitted for one in report.slurm if one.start is not None and one.submitted is not None]
    if waits and max(waits) >= 60_000:
        words.append(f"waited {hours(max(waits) / 3_600_000)} h in the queue")
    if known(fleet.gpu_util) is not None:
        words.append(f"“GPU utilization” says {percent(fleet.gpu_util)}")
    return "; ".join(words)


def _spread(report: JobReport) -> str:
    """Return between what the GPUs of the job lie, and how much memory was in use at most."""
    words = []
    told = [gpu for gpu in report.gpus if gpu.ofu is not None]
    if len(told) > 1:
        low, high = min(told, key=lambda gpu: gpu.ofu or 0.0), max(told, key=lambda gpu: gpu.ofu or 0.0)
        words.append(f"OFU from {percent(low.ofu, 1)} ({low.place}) to {percent(high.ofu, 1)} ({high.place})")
    memory = [gpu for gpu in report.gpus if gpu.memory is not None]
    if memory:
        most = max(memory, key=lambda gpu: gpu.memory or 0.0)
        size = f" of {BYTES.words(most.memory_size)}" if most.memory_size else ""
        words.append(f"at most {BYTES.words(most.memory)}{size} of memory in use ({most.place})")
    return "; ".join(words)


def _roof(report: JobReport) -> str:
    roofs = report.fleet.roofs
    if roofs.at_rest:
        return "no roof is near, since hardly anything ran"
    if roofs.nearest is None or roofs.distance is None:
        needed = "memory activity and memory clock" if roofs.level("tensor") is not None else "tensor activity and SM clock"
        return f"not known, since {needed} were not measured together"
    bound = "bound by it" if roofs.bound else "far from every roof"
    return f"nearest: {roof_words(roofs)} of what is reachable, {percent(roofs.distance)} to go; {bound}"


def _stragglers(report: JobReport) -> str:
    found = report.stragglers
    if not found:
        return "none" if len(report.gpus) > 1 else ""
    named = [f"{_device(one.where)}, {GPU_HOURS.words(one.gpu_hours)} GPU-hours" for one in found[:MOST_STRAGGLERS]]
    return "; ".join([*named, *([f"{len(found) - MOST_STRAGGLERS:,} more"] if len(found) > MOST_STRAGGLERS else [])])


def _device(where: FindingPlace) -> str:
    number = "" if where.index is None else f"GPU {where.index}"
    return " ".join(filter(None, [where.host, number])) or where.gpu or "a host"


def _energy(report: JobReport) -> str:
    energy = report.fleet.energy
    if energy.kwh is None:
        return "not known, since no meter tells"
    words = [f"{hours(energy.kwh)} kWh ± {hours((energy.error or 0.0) / KWH)}", f"{WATTS.words(energy.power)} a GPU"]
    if energy.flops_per_joule is not None and energy.best is not None:
        words.append(f"{energy.flops_per_joule / 1e9:,.0f} GFLOP a joule of the chip's {energy.best / 1e9:,.0f}")
    if energy.idle_kwh:
        words.append(f"{hours(energy.idle_kwh)} kWh of it while held and idle")
    return "; ".join(words)


def _cost(report: JobReport) -> str:
    money = report.fleet.money
    if known(money.cost) is None:
        return ""
    return f"{money.terms.words(money.cost)}, {money.terms.notation.words(money.ullage_cost)} of it for what fell short of full"


def _cpus(told: JobstatsSummary | None) -> str:
    """Return what Jobstats says of the hosts: how busy their cores were, and their memory."""
    if told is None:
        return ""
    words = [f"{percent(told.cpu_efficiency)} of their time" if told.cpu_efficiency is not None else ""]
    used, total = ([getattr(node, name) for node in told.nodes] for name in ("used_memory", "total_memory"))
    if told.nodes and None not in (*used, *total):
        words.append(f"{BYTES.words(float(sum(used)))} of {BYTES.words(float(sum(total)))} of host memory")
    found = ", ".join(filter(None, words))
    return f"{found}, by Jobstats" if found else ""


def _chain(report: JobReport) -> Table:
    fleet = report.fleet
    losses = fleet.tree.losses(fleet.counted_hours)
    rows: list[list[Value | Cell]] = [[factor.label, factor.value, factor.value or 0.0, lost, factor.whose] for factor, lost in losses]
    columns = [Column("from peak"), Column("factor", FACTOR), Column("", BAR), Column("lost, GPU-hours", GPU_HOURS), Column("whose work")]
    total: list[Value | Cell] = ["= OFU", fleet.ofu, fleet.ofu or 0.0, sum(lost for _, lost in losses), ""]
    return Table("chain", columns, [*rows, total] if losses else [], drawn=True)


def _gpus(report: JobReport) -> Table:
    columns = [
        Column("where", key="where"),
        Column("GPU"),
        Column("GPU-hours", GPU_HOURS),
        Column("idle", GPU_HOURS),
        Column("OFU", PERCENT_1),
        Column("GPU utilization", PERCENT),
        Column("SM activity", PERCENT),
        Column("power", WATTS),
        Column("memory at most", BYTES),
        Column("series"),
    ]
    rows: list[list[Value | Cell]] = [
        [
            harmless(gpu.place),
            None if gpu.gpu is None else harmless(gpu.gpu),
            gpu.gpu_hours,
            gpu.idle_hours,
            gpu.ofu,
            gpu.gpu_util,
            gpu.sm_active,
            gpu.power,
            gpu.memory,
            Cell(gpu.verdict, look="" if gpu.verdict == "ok" else "doubt"),
        ]
        for gpu in report.gpus
    ]
    return Table("gpus", columns, rows)


_CHAIN = (
    "From the peak, at the left, each step takes its share of the job's GPU-hours; what is left at the right is OFU. A step that could "
    "not be measured alone stands with its neighbour."
)
_GPUS = "Each GPU in the time in which the job held it. OFU is over trusted time; a series that can't be trusted says why."
_CLOSING = (
    "OFU is the share of their peak at which the job's GPUs multiplied: tensor activity × SM clock / tensor clock. A dash means not known."
)


# --- other forms ---

FORMS = (*VIEW_FORMS, ".eml", ".js1")


def more_forms(report: JobReport, made: View) -> dict[str, Form]:
    """Return what else a job's report can be written as: .eml is an e-mail, .js1 a Jobstats summary; CSV has a row a GPU."""
    return {
        ".eml": lambda: mail(made, report.mail_to),
        ".js1": lambda: write_summary(summary_of(report)) + "\n",
        ".csv": lambda: table_csv(made.tables["gpus"]),
    }


# --- JSON ---


class GpuOfJobDocument(Document):
    """One GPU or MIG instance of the job: memory in B (the most in use, and the GPU's size), power in W, the verdict on its series."""

    host: str | None
    index: int | None
    gpu: str | None
    mig: str | None
    model: str | None
    gpu_hours: Hours
    idle_gpu_hours: Annotated[Hours, At("idle_hours")]
    ofu: Ratio | None
    gpu_util: Ratio | None
    sm_active: Ratio | None
    power: float | None
    memory_used: Annotated[float | None, At("memory")]
    memory_size: float | None
    verdict: str


class SchedulerRecordDocument(Document):
    """What Slurm's records say of the job, or of a task of it: its own number, and the id that people see."""

    job: str
    shown: str
    account: str | None
    partition: str | None
    submitted: Moment | None
    start: Moment | None
    end: Moment | None
    state: str | None
    exit_code: int | None


class JobstatsGpuDocument(Document):
    """A GPU as Jobstats' summary has it: the share of time in which a kernel ran, memory in B."""

    number: str
    utilization: Ratio | None
    used_memory: float | None
    total_memory: float | None


class JobstatsNodeDocument(Document):
    """A node as Jobstats' summary has it: cores, the CPU time that they spent (s), memory in B."""

    name: str
    cpus: float | None
    cpu_seconds: float | None
    used_memory: float | None
    total_memory: float | None
    gpus: list[JobstatsGpuDocument]


class JobstatsDocument(Document):
    """Jobstats' summary of the job, as its record has it."""

    seconds: float
    gpus: int | None
    nodes: list[JobstatsNodeDocument]
    cpu_efficiency: Ratio | None


class JobDocument(Document):
    """The answer of `ullage job`: one job, where it ran, how full its GPUs were, where the rest went, and what to do."""

    complete: bool
    read_until: Moment | None
    job: Annotated[str, At("asked")]
    jobs: list[str]
    cluster: str | None
    name: str | None
    user: str | None
    namespace: str | None
    state: str | None
    window: WindowDocument
    ofu: Annotated[Ratio | None, At("fleet.ofu")]
    ofu_bounds: list[Ratio] | None
    method: Annotated[str, At("fleet.method")]
    gpu_hours: Annotated[Hours, At("fleet.gpu_hours")]
    recorded_gpu_hours: Annotated[Hours | None, At("recorded_hours")]
    trusted_share: Annotated[Ratio, At("fleet.trusted_share")]
    gpu_util: Annotated[Ratio | None, At("fleet.gpu_util")]
    tree: Annotated[TelemetryFactors, At("fleet.tree")]
    losses: list[LossDocument]
    ullage: UllageDocument
    roofs: Annotated[RoofsDocument, At("fleet.roofs")]
    energy: Annotated[EnergyDocument, At("fleet.energy")]
    energy_account: EnergyAccountDocument
    gpus: list[GpuOfJobDocument]
    course: Annotated[list[CourseDocument], At("fleet.course")]
    scheduler: Annotated[list[SchedulerRecordDocument], At("slurm")]
    jobstats: JobstatsDocument | None
    against: ComparedFleet
    findings: list[Annotated[FindingDocument, Made(finding_record)]]
    command: str
    next: Annotated[str | None, At("next_command"), Made(lambda command: command or None)]
    notes: list[str]
    reported: list[ComparisonDocument]


def record(report: JobReport) -> dict[str, Any]:
    """Return a job's report as plain data, ready for JSON."""
    found: dict[str, Any] = finite(
        plain_data(
            JobDocument,
            report,
            reported=[filled(ComparisonDocument, one) for one in _comparisons(report)],
            jobs=[job.name for job in report.jobs],
            cluster=report.jobs[0].cluster,
            window=window_document(report.window),
            ofu_bounds=None if report.fleet.ofu_bounds is None else [*report.fleet.ofu_bounds],
            losses=losses_document(report.fleet),
            ullage=filled(UllageDocument, report.fleet),
            energy_account=energy_account(report.fleet),
        )
    )
    return found
