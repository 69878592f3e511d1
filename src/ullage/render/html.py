"""A fleet report as one HTML file: the answer first, then the pictures, then the tables. It loads nothing from anywhere."""

from __future__ import annotations

from ullage.errors import harmless
from ullage.render import html_tables as tables
from ullage.render.markup import Child, Markup, element, known
from ullage.render.numbers import UNKNOWN, hours, money, part_read, percent, span
from ullage.render.page import document, figure, section
from ullage.render.svg.bars import groups as groups_picture
from ullage.render.svg.chain import waterfall
from ullage.render.svg.line import course
from ullage.render.svg.scatter import scatter
from ullage.render.svg.stacked import ledger, trust
from ullage.reports.fleet import FleetReport


def html(report: FleetReport) -> str:
    """Return the whole report as one self-contained HTML document, light or dark as the reader's screen asks.

    Every word of the report that is foreign (keys, evidence, notes, the command) is escaped. A security policy allows
    only our own style sheet and script, by their hashes, and no connection at all; without the script tables just don't
    sort. The same report gives the same bytes.
    """
    return document(_headline(report), _opening(report), _sections(report), _closing())


def _headline(report: FleetReport) -> str:
    spent = f"{hours(known(report.gpu_hours))} GPU-hours"
    ofu = known(report.ofu)
    return _partial(report) + (f"OFU unknown for {spent}" if ofu is None else f"OFU {percent(ofu, 1)} of {spent}")


def _partial(report: FleetReport) -> str:
    return part_read(report.complete, report.read_until)


def _trusted(report: FleetReport) -> str:
    return "all of them trusted" if report.trusted_share >= 1 else f"{percent(report.trusted_share, 1)} of them trusted"


def _opening(report: FleetReport) -> Markup:
    ofu, spent = known(report.ofu), f"{hours(known(report.gpu_hours))} GPU-hours"
    answer = (
        [element("strong", "OFU unknown"), " for ", spent] if ofu is None else [element("strong", f"OFU {percent(ofu, 1)}"), " of ", spent]
    )
    command = element("p", "The same report: ", element("code", report.command), class_="command") if report.command else None
    return element(
        "header",
        element("p", f"Fleet report, {span(report.window)}", class_="eyebrow"),
        element("h1", _partial(report) or None, answer, element("small", f" ({_trusted(report)})") if ofu is not None else None),
        element("p", _lede(report), class_="lede"),
        element(
            "dl",
            [
                element("div", element("dt", name), element("dd", value, element("small", note) if note else None))
                for name, value, note in _figures(report)
            ],
            class_="key",
        ),
        command,
    )


def _lede(report: FleetReport) -> str:
    told = []
    busy, short = known(report.gpu_util), known(report.ullage)
    if busy is not None:
        told.append(f"“GPU utilization” says {percent(busy)}.")
    if short is not None:
        worth = known(report.ullage_cost)
        told.append(f"{hours(short)} GPU-hours fall short of full" + (f", worth {money(worth)}." if worth is not None else "."))
    return " ".join(told) or "Nothing is known of what the GPUs did."


def _figures(report: FleetReport) -> list[tuple[str, str, str]]:
    power = known(report.power)
    by = {"exact": "cycle counters", "mixed": "cycle counters where they count, else activity × sampled clock"}
    method = by.get(report.method, "tensor activity × sampled clock")
    figures = [
        ("GPU utilization", percent(known(report.gpu_util), 1), "any kernel running"),
        ("Tensor activity", percent(known(report.tensor_active), 1), "any tensor pipe working"),
        ("Ullage", hours(known(report.ullage)), "GPU-hours short of full"),
        ("Trusted", percent(known(report.trusted_share), 1), f"OFU over all series: {percent(known(report.ofu_all), 1)}"),
        ("GPUs", f"{round(report.gpus, 2):,.10g}", f"{hours(known(report.gpu_hours))} GPU-hours observed"),
        ("Power", UNKNOWN if power is None else f"{power:,.0f} W", "mean per GPU"),
        ("Method", report.method, method),
    ]
    if known(report.cost) is not None:
        idle = known(report.idle_cost)
        figures.append(("Cost", money(report.cost), f"{money(known(report.ullage_cost))} of it for ullage, {money(idle)} while idle"))
    return figures


def _sections(report: FleetReport) -> list[Child]:
    by = harmless(report.by, 40)
    first = "The first 20, in" if len(report.groups) > 20 else "In"
    ranked = f"{first} order of time." if report.by == "hour" else f"{first} order of ullage."
    return [
        section("over-time", "Over time", _OVER_TIME, figure(lambda w: course(report.course, report.window, width=w, standalone=False))),
        section(
            "by-group",
            f"By {by}",
            f"{_BY_GROUP} {ranked}",
            figure(lambda w: groups_picture(report.groups, by, width=w, standalone=False)),
        ),
        section(
            "where",
            "Where it goes",
            _WHERE,
            figure(lambda w: waterfall(report.tree, report.counted_hours, width=w, standalone=False)),
        ),
        section("ledger", "Whose hours", _LEDGER, figure(lambda w: ledger(report.ledger, width=w, standalone=False))),
        _agreement(report),
        _trust(report),
        section("every-group", f"Every {by}", "", tables.groups(report, report.groups, by)) if report.groups else None,
        section("models", "GPU models", "", tables.groups(report, report.models, "model")) if report.models else None,
        section("noise", "Sampling noise", _NOISE, tables.noise(report)) if report.noise else None,
        section("notes", "Notes", "", tables.listed(report.notes)) if report.notes else None,
    ]


def _agreement(report: FleetReport) -> Markup | None:
    found = report.agreement
    if found is None:
        return None
    error = known(found.error)
    together = "" if known(found.pearson) is None else f", Pearson r {found.pearson:.2f}"
    summary = (
        f"{len(found.jobs):,} jobs reported an MFU: {percent(known(found.mfu), 1)} on average, "
        f"where OFU was {percent(known(found.ofu), 1)}. "
        f"They differ by {UNKNOWN if error is None else f'{error * 100:.1f}'} points on average{together}; "
        f"{percent(known(found.within_10), 1)} are within 10 points, "
        f"{percent(known(found.above_20), 1)} are more than 20 apart."
    )
    return section(
        "agreement",
        "What jobs report",
        _AGREEMENT,
        element("p", summary),
        figure(lambda w: scatter(found, width=w, standalone=False)),
        element("h3", "By number of GPUs"),
        tables.sizes(found),
        element("h3", "Jobs furthest apart"),
        tables.furthest(found),
    )


def _trust(report: FleetReport) -> Markup:
    series = sum(count for count, _ in report.verdicts.values())
    fine = element("p", f"{series:,} series, all ok.") if series and not report.findings and set(report.verdicts) <= {"ok"} else None
    return section(
        "trust",
        "Can it be believed",
        _TRUST,
        fine,
        figure(lambda w: trust(report.verdicts, width=w, standalone=False)),
        tables.findings(report),
    )


def _closing() -> Markup:
    return element("footer", _CLOSING)


_OVER_TIME = (
    "“GPU utilization” says that some kernel ran; OFU says how much of the GPU's peak it used. The space between the two lines is "
    "what looks busy and is not. Where nothing was measured, the line stops. The grey strip is the GPU-hours behind each mean."
)
_BY_GROUP = "The first bar is how full each is. The second is its GPU-hours: what was used, and in orange what falls short."
_WHERE = (
    "From full, at the left, each factor takes its share; OFU is their product. Above each step stand the factor and the GPU-hours "
    "that it costs. A factor that could not be measured alone stands with its neighbour."
)
_LEDGER = "Every GPU-hour of the window has one owner: all GPUs, from the start of the window to its end."
_AGREEMENT = (
    "A circle is a job, its area the number of GPUs. On the line, what it reported is what was measured; inside the band, to within "
    "10 points. Far above the line, suspect the FLOPs that the job counts, or the peak it divides by."
)
_TRUST = "A verdict for every GPU's series. Those that can't be trusted (hatched) are left out of OFU and of the factors."
_CLOSING = (
    "OFU is tensor-pipe activity times the SM clock over the tensor clock: the share of its peak at which a GPU's tensor cores work. "
    "A dash means not known."
)
_NOISE = "How far OFU would stray if the clock were sampled only so often: the deviation from the mean of all samples, over every phase."
