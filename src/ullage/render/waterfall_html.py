"""A waterfall as a page of its own: the picture, each step with its bounds and cost, what is usually done about it, the notes."""

from __future__ import annotations

from ullage.render import waterfall_kernels
from ullage.render.html_tables import Cell, listed, table
from ullage.render.svg.waterfall import waterfall
from ullage.render.waterfall import advice, bounds, ceiling, change, closure, factor, headline, points, signed
from ullage.reports.remedies import Remedy
from ullage.reports.waterfall import Cost, WaterfallReport
from ullage.views.markup import Markup, element
from ullage.views.numbers import hours, money, percent
from ullage.views.page import document, figure, section


def page(report: WaterfallReport) -> str:
    """Return the page as one self-contained HTML document."""
    said = [line for line in (closure(report), ceiling(report)) if line]
    return str(
        document(
            "waterfall",
            element("h1", headline(report)),
            element("p", "; ".join(report.rests_on), class_="how"),
            figure(lambda width: waterfall(report, width=width, standalone=False)),
            section("steps", "Step by step", "Walking from the peak: what each step leaves, and what it takes.", _steps(report)),
            section("closes", "Does it close", "", [element("p", line) for line in said]) if said else None,
            section("sources", "What two sources say", "", _compared(report)) if report.chain.disagreements else None,
            section(
                "kernels",
                "What binds the kernels",
                "Against their ceilings, the largest loss first.",
                waterfall_kernels.parts(report.kernels),
            )
            if report.kernels is not None
            else None,
            section("remedies", "What to do", "The largest steps first, with where it is documented.", _remedies(report)),
            section("notes", "Notes", "", listed(report.notes)) if report.notes else None,
        )
    )


def _steps(report: WaterfallReport) -> Markup:
    head = ["step", "by", "whose", "factor", "between", "left", "points", "GPU-hours", "money"]
    return table("steps", head, [_row(cost) for cost in report.costs], words=3)


def _row(cost: Cost) -> list[Cell]:
    step = cost.step
    return [
        Cell(step.label),
        Cell(step.factor.source),
        Cell(cost.whose),
        Cell(factor(step.factor.value), step.factor.value),
        Cell(bounds(step.factor)),
        Cell(percent(step.after.value, 1), step.after.value),
        Cell(change(cost.points), -cost.points),
        Cell(signed(cost.gpu_hours, hours), cost.gpu_hours),
        Cell(signed(cost.money, money), cost.money),
    ]


def _compared(report: WaterfallReport) -> Markup:
    rows = [
        [
            Cell(d.what),
            Cell(f"{d.used.source} {factor(d.used.value)}"),
            Cell(f"{d.other.source} {factor(d.other.value)}"),
            Cell("agree" if d.agree else "differ", None, None if d.agree else "loss"),
        ]
        for d in report.chain.disagreements
    ]
    return table("what two sources say", ["what", "used", "other", ""], rows, words=4)


def _remedies(report: WaterfallReport) -> list[Markup]:
    found: list[Markup] = []
    for cost in sorted(report.costs, key=lambda cost: -cost.points):
        if cost.points > 0.05 or cost.step.names == ("unexplained",):
            merged = len(cost.step.names) > 2
            items = list(cost.apart) if merged else [_remedy(remedy) for remedy in cost.remedies]
            said = "what would tell its factors apart" if merged else advice(cost)
            title = f"{cost.step.short} ({points(cost.points)} points): {said}"
            found += [element("h3", title), listed(items)]
    return found


def _remedy(remedy: Remedy) -> Markup:
    source = element("a", remedy.source, href=remedy.source) if remedy.source.startswith("https://") else remedy.source
    return element("span", remedy.what, ": ", source)
