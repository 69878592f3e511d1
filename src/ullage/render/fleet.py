"""The view of a fleet report, and the forms that it alone has."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ullage.metrics.telemetry import LABELS, TelemetryTree
from ullage.render.against import against_sections
from ullage.render.bills import bill_sections, money_columns
from ullage.render.fleet_document import group_record
from ullage.render.fleet_document import record as record
from ullage.render.goodput import goodput_sections
from ullage.render.roofs import energy_facts, energy_sections, group_cells, group_columns, roof_sections
from ullage.render.svg.bars import groups as groups_picture
from ullage.render.svg.chain import of_fleet, waterfall
from ullage.render.svg.line import course
from ullage.render.svg.scatter import scatter
from ullage.render.svg.stacked import ledger as ledger_picture
from ullage.render.svg.stacked import trust as trust_picture
from ullage.reports.fleet.agreement import Agreement, Comparison
from ullage.reports.fleet.fleet import FleetReport
from ullage.reports.fleet.groups import Group
from ullage.views import notation
from ullage.views.csv import table_csv
from ullage.views.declared import iso
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form, write_answer
from ullage.views.markup import known
from ullage.views.notation import BAR, COUNT, FACTOR, FINE_POINTS, GPU_HOURS, GPUS, PERCENT, PERCENT_1, SECONDS, WATTS
from ullage.views.numbers import hours, part_read, percent, span
from ullage.views.view import BRIEF, Cell, Column, Fact, Headline, Paragraph, Part, Picture, Section, Table, Value, View

FINDINGS = 50  # that a page shows
FURTHEST = 20  # jobs whose MFU lies furthest from their OFU
EACH_VERDICT = 2  # findings of a kind that a terminal shows


def view(report: FleetReport, *, top: int = BRIEF) -> View:
    """Return the answer as data: OFU and what it is of, the chain, the groups (the first `top` of them in short forms),
    the ledger, trust, and what jobs reported."""
    by = report.by
    ranked = "order of time" if by == "hour" else "order of ullage"
    first = f"The first 20, in {ranked}." if len(report.groups) > 20 else f"In {ranked}."
    return View(
        kind="fleet",
        subject="Fleet report",
        window=span(report.window),
        headline=_headline(report),
        lede=[*_lede(report)],
        facts=[*_facts(report)],
        sections=[
            Section("where", "Where it goes", _chain(report), _WHERE, opens=True),
            *against_sections(report.against, top=top),
            Section(
                "over-time", "Over time", [Picture(lambda w: course(report.course, report.window, width=w, standalone=False))], _OVER_TIME
            ),
            Section(
                "by-group",
                f"By {by}",
                [Picture(lambda w: groups_picture(report.groups, by, width=w, standalone=False))],
                f"{_BY_GROUP} {first}",
            ),
            Section("every-group", f"Every {by}", _groups(report, "groups", report.groups, by, top), long=True),
            Section("ledger", "Whose hours", _ledger(report), _LEDGER),
            *bill_sections(report),
            *goodput_sections(report),
            *roof_sections(report),
            *energy_sections(report),
            *_agreement(report.agreement),
            Section("trust", "Can it be believed", _trust(report), _TRUST),
            Section("models", "GPU models", _groups(report, "models", report.models, "model", top), detail=True, long=True),
            Section("noise", "Sampling noise", _noise(report), _NOISE, long=True),
        ],
        findings=report.findings,
        notes=report.notes,
        command=report.command,
        next_command=report.next_command,
        closing=_CLOSING,
    )


def _headline(report: FleetReport) -> Headline:
    spent, before = f"{hours(known(report.gpu_hours))} GPU-hours", part_read(report.complete, report.read_until)
    ofu = known(report.ofu)
    if ofu is None:
        return Headline("OFU unknown", f" for {spent}", before)
    trusted = "all" if report.trusted_share >= 1 else percent(report.trusted_share, 1)
    return Headline(f"OFU {percent(ofu, 1)}", f" of {spent}", before, f"{trusted} of them trusted")


def _lede(report: FleetReport) -> Iterator[str]:
    yield f"{GPUS.words(report.gpus)} GPU{'' if report.gpus == 1 else 's'}, {report.method} OFU."
    if (busy := known(report.gpu_util)) is not None:
        yield f"“GPU utilization” says {percent(busy)}."
    if (short := known(report.ullage)) is not None:
        worth = known(report.money.ullage_cost)
        yield f"{hours(short)} GPU-hours fall short of full" + (f", worth {report.money.terms.words(worth)}." if worth is not None else ".")


_METHODS = {"exact": "cycle counters", "mixed": "cycle counters where they count, else activity × sampled clock"}


def _facts(report: FleetReport) -> Iterator[Fact]:
    yield Fact("GPU utilization", report.gpu_util, PERCENT_1, "any kernel running")
    yield Fact("Tensor activity", report.tensor_active, PERCENT_1, "any tensor pipe working")
    yield Fact("Ullage", report.ullage, GPU_HOURS, "GPU-hours short of full")
    over_all = f"OFU over all series: {PERCENT_1.words(report.ofu_all)}"
    yield Fact("Trusted", report.trusted_share, PERCENT_1, over_all)
    yield Fact("GPUs", report.gpus, GPUS, f"{GPU_HOURS.words(report.gpu_hours)} GPU-hours observed")
    yield Fact("Power", report.power, WATTS, "mean per GPU")
    yield from energy_facts(report)
    yield Fact("Method", report.method, note=_METHODS.get(report.method, "tensor activity × sampled clock"))
    if known(report.money.cost) is not None:
        written = report.money.terms.notation
        parts = f"{written.words(report.money.ullage_cost)} of it for ullage, {written.words(report.money.idle_cost)} while idle"
        note = f"{report.money.terms.at_which_price}; {parts}"
        yield Fact("Cost of all hours", report.money.cost, written, note)
    if known(report.money.list_cost) is not None and report.money.terms.price == "paid":
        yield Fact("At list price", report.money.list_cost, report.money.terms.notation, "what all hours would cost")


def _chain(report: FleetReport) -> list[Part]:
    losses = report.tree.losses(report.counted_hours)
    rows: list[list[Value]] = [[factor.label, factor.value, factor.value or 0.0, lost, factor.whose] for factor, lost in losses]
    rows.append(["= OFU", report.ofu, report.ofu or 0.0, sum(lost for _, lost in losses), ""])
    columns = [
        Column("where it goes"),
        Column("factor", FACTOR),
        Column("", BAR),
        Column("ullage, GPU-hours", GPU_HOURS),
        Column("whose work"),
    ]
    picture = Picture(lambda w: waterfall(report.tree, report.counted_hours, width=w, standalone=False))
    return [picture, Table("chain", columns, rows if losses else [], drawn=True)]


def _groups(report: FleetReport, name: str, rows: Sequence[Group], by: str, top: int) -> list[Part]:
    """Return the table of groups: a column for each factor of the tree that any of them has."""
    factors = _factors(rows)
    doubted = any(group.trusted_share < 1 for group in rows)
    priced = any(group.cost is not None for group in rows)
    more = group_columns(rows)
    columns = [
        Column(by, names_of=by),
        Column("GPUs", COUNT),
        Column("GPU-hours", GPU_HOURS),
        *([Column("trusted", PERCENT_1)] if doubted else []),
        *(Column(label, FACTOR) for _, label in factors),
        Column("OFU", PERCENT_1),
        Column("ullage, GPU-hours", GPU_HOURS),
        *more,
        *(money_columns(report.money.terms) if priced else []),
    ]
    at_list = report.money.terms.price == "paid"
    body = [_group(group, [key for key, _ in factors], doubted, more, priced, at_list) for group in rows]
    mixed = len({group.method for group in rows}) > 1 or (rows and rows[0].method != report.method)
    exact = "OFU marked * is exact: it comes from cycle counters, not from clock samples." if mixed else ""
    return [Table(name, columns, body, brief=top, elsewhere="--top shows them", note=exact)]


def _factors(rows: Sequence[Group]) -> list[tuple[str, str]]:
    """Return (name, label) of the factors that at least one group has, merged ones too, in the order of the chain."""
    seen = {f.name: (f.label, f.stands_for) for row in rows for f in row.tree.factors if known(f.value) is not None}
    order = list(LABELS)
    place = {name: (order.index(stands_for[0]), len(stands_for)) for name, (_, stands_for) in seen.items()}
    return [(name, seen[name][0]) for name in sorted(seen, key=place.__getitem__)]


def _group(group: Group, factors: Sequence[str], doubted: bool, more: Sequence[Column], priced: bool, at_list: bool) -> list[Value | Cell]:
    marked = PERCENT_1.words(group.ofu) + ("*" if group.method != "sampled" else "")
    return [
        group.key,
        group.gpus,
        group.gpu_hours,
        *([Cell(group.trusted_share, look="doubt" if group.trusted_share < 1 else "")] if doubted else []),
        *(_factor(group.tree, name) for name in factors),
        Cell(group.ofu, marked, "strong"),
        group.ullage,
        *group_cells(group, more),
        *([group.cost, group.ullage_cost] if priced else []),
        *([group.list_cost] if priced and at_list else []),
    ]


def _factor(tree: TelemetryTree, name: str) -> float | None:
    return next((factor.value for factor in tree.factors if factor.name == name), None)


_OWNERS = {"held_idle": "held but idle", "not_sliced": "not sliced"}


def _ledger(report: FleetReport) -> list[Part]:
    total = report.ledger["total"]
    # few fleets slice their GPUs
    shown = [(owner, time) for owner, time in report.ledger.items() if time or owner != "not_sliced"]
    rows: list[list[Value]] = [[_OWNERS.get(owner, owner), time, time / total if total else None] for owner, time in shown]
    columns = [Column("whose GPU-hours"), Column("GPU-hours", GPU_HOURS), Column("share", PERCENT_1)]
    picture = Picture(lambda w: ledger_picture(report.ledger, width=w, standalone=False))
    return [picture, Table("ledger", columns, rows, drawn=True)]


def _trust(report: FleetReport) -> list[Part]:
    picture = Picture(lambda w: trust_picture(report.verdicts, width=w, standalone=False))
    if set(report.verdicts) <= {"ok"} and not report.doubtful_series:
        series = sum(count for count, _ in report.verdicts.values())
        fine = "The one series is ok." if series == 1 else f"All {series:,} series are ok."
        return [Paragraph(fine if series else ""), picture]
    verdicts: list[list[Value]] = [[name, count, time] for name, (count, time) in report.verdicts.items()]
    columns = [Column("trust"), Column("series", COUNT), Column("GPU-hours", GPU_HOURS)]
    return [picture, Table("verdicts", columns, verdicts, drawn=True), *_findings(report)]


def _findings(report: FleetReport) -> Iterator[Table]:
    if not report.doubtful_series:
        return
    seen: dict[str, int] = {}
    chosen = []
    for number, finding in enumerate(report.doubtful_series):
        seen[finding.verdict] = seen.get(finding.verdict, 0) + 1
        if seen[finding.verdict] <= EACH_VERDICT:
            chosen.append(number)
    rows: list[list[Value | Cell]] = [
        [
            finding.gpu,
            finding.place,
            Cell(finding.verdict, look="" if finding.trusted else "doubt"),
            "counted" if finding.trusted else "left out",
            finding.gpu_hours,
            finding.evidence,
        ]
        for finding in report.doubtful_series
    ]
    columns = [Column("GPU"), Column("host"), Column("verdict"), Column("in OFU"), Column("GPU-hours", GPU_HOURS), Column("evidence")]
    yield Table("doubtful_series", columns, rows, chosen=chosen, page=FINDINGS, elsewhere="--json has them all")


def _agreement(found: Agreement | None) -> Iterator[Section]:
    if found is None:
        return
    together = "" if known(found.pearson) is None else f", Pearson r {found.pearson:.2f}"
    several = len(found.jobs) != 1
    summary = (
        f"{len(found.jobs):,} job{'s' if several else ''} reported an MFU: {PERCENT_1.words(found.mfu)} on average, "
        f"where OFU was {PERCENT_1.words(found.ofu)}. "
        f"They differ by {notation.POINTS.words(found.error)} points on average{together}"
    )
    if several:
        summary += f"; {PERCENT_1.words(found.within_10)} are within 10 points, {PERCENT_1.words(found.above_20)} are more than 20 apart"
    sizes: list[list[Value | Cell]] = [
        [row.gpus, row.jobs, _spread(row.mfu, row.mfu_deviation), _spread(row.error, row.error_deviation)] for row in found.rows
    ]
    columns = [Column("GPUs", COUNT), Column("jobs", COUNT)]
    columns += [Column("MFU, %", notation.POINTS), Column("|MFU − OFU|, points", notation.POINTS)]
    parts: list[Part] = [
        Paragraph(f"{summary}."),
        Picture(lambda w: scatter(found, width=w, standalone=False)),
        Table("sizes", columns, sizes, title="By number of GPUs"),
        _furthest(found),
    ]
    yield Section("agreement", "What jobs report", parts, _AGREEMENT)


def _spread(mean: float, deviation: float | None) -> Cell:
    known_deviation = f" ± {deviation * 100:.1f}" if deviation is not None else ""  # one job has no spread
    return Cell(mean, f"{mean * 100:.1f}{known_deviation}" if known(mean) is not None else "")


def _furthest(found: Agreement) -> Table:
    columns = [Column("job"), Column("GPUs", COUNT), Column("MFU", PERCENT_1), Column("OFU", PERCENT_1)]
    rows = [_comparison(job) for job in found.jobs[:FURTHEST]]
    return Table(
        "furthest", [*columns, Column("(MFU − OFU) / OFU", PERCENT)], rows, title="Furthest apart", brief=5,
        elsewhere="--out FILE.html shows them",
    )  # fmt: skip


def _comparison(job: Comparison) -> list[Value | Cell]:
    apart = known(job.relative_error)
    sign = "" if apart is None else "+" if apart > 0 else "−" if apart < 0 else ""
    return [job.job, job.gpus, job.mfu, job.ofu, Cell(apart, "" if apart is None else f"{sign}{percent(abs(apart))}")]


def _noise(report: FleetReport) -> list[Part]:
    """Return table I of the OFU paper for this fleet: what sampling the clock at longer intervals does to OFU."""
    columns = [Column("clock sampled every", SECONDS), Column("phases", COUNT)]
    columns += [Column("mean deviation, points", FINE_POINTS), Column("95 % stay below, points", FINE_POINTS)]
    rows: list[list[Value]] = [[row.interval, row.phases, row.mean_deviation, row.bound] for row in report.noise]
    return [Table("noise", columns, rows)] if rows else []


FORMS = (*VIEW_FORMS, ".svg")


def more_forms(report: FleetReport, made: View) -> dict[str, Form]:
    """Return what else a fleet report can be written as: Parquet and CSV have a row a group, SVG is the chain."""
    return {
        ".parquet": lambda: _parquet(report),
        ".svg": lambda: of_fleet(report),
        ".csv": lambda: table_csv(made.tables["groups"]),
    }


def write(report: FleetReport, path: Path) -> None:
    """Write a fleet report in the form that the ending of the name says."""
    made = view(report)
    write_answer(path, made, lambda: record(report), more_forms(report, made))


def _parquet(report: FleetReport) -> bytes:
    import pyarrow as pa

    from ullage.checked_parquet import write_table

    buffer = io.BytesIO()
    rows = [_flat(group_record(group)) | _roof_and_energy(group) for group in report.groups]
    columns = list(rows[0]) if rows else ["key"]
    words = {"key", "method", "nearest_roof"}
    table = pa.table({name: pa.array([row[name] for row in rows], pa.string() if name in words else pa.float64()) for name in columns})
    facts = {"by": report.by, "window": f"{report.window[0]}/{report.window[1]}", "complete": str(report.complete).lower()}
    if report.read_until is not None:
        facts["read_until"] = iso(report.read_until)
    write_table(table.replace_schema_metadata(facts), buffer)
    return buffer.getvalue()


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = row.pop("tree")
    least, most = row.pop("ofu_bounds") or (None, None)
    row = {name: value for name, value in row.items() if name not in ("roofs", "energy")}
    merged = {factor["name"]: factor["value"] for factor in tree.pop("factors")}
    return tree | merged | row | {"ofu_least": least, "ofu_most": most}


def _roof_and_energy(group: Group) -> dict[str, Any]:
    levels = {f"{level.name}_utilization": level.utilization for level in group.roofs.levels if level.name != "tensor"}
    return levels | {"nearest_roof": group.roofs.kind, "roof_distance": group.roofs.distance, "kwh": group.energy.kwh}


_OVER_TIME = (
    "“GPU utilization” says that some kernel ran; OFU says how much of the GPU's peak it used. The space between the "
    "two lines is what looks busy and is not. Where nothing was measured, the line stops. The grey strip is the "
    "GPU-hours behind each mean."
)
_BY_GROUP = "The first bar is how full each is. The second is its GPU-hours: what was used, and in orange what falls short."
_WHERE = (
    "From full, at the left, each factor takes its share; OFU is their product. Above each step stand the factor and "
    "the GPU-hours that it costs. A factor that could not be measured alone stands with its neighbour."
)
_LEDGER = "Every GPU-hour of the window has one owner: all GPUs, from the start of the window to its end."
_AGREEMENT = (
    "A circle is a job, its area the number of GPUs. On the line, what it reported is what was measured; inside the "
    "band, to within 10 points. Far above the line, suspect the FLOPs that the job counts, or the peak it divides by."
)
_TRUST = "A verdict for every GPU's series. Those that can't be trusted (hatched) are left out of OFU and of the factors."
_CLOSING = (
    "OFU is tensor-pipe activity times the SM clock over the tensor clock: the share of its peak at which a GPU's "
    "tensor cores work. A dash means not known."
)
_NOISE = "How far OFU would stray if the clock were sampled only so often: the deviation from the mean of all samples, over every phase."
