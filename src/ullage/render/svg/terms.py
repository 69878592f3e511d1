"""Where a step's FLOPs go: a bar a group, by pass."""

from __future__ import annotations

import math
from itertools import accumulate

from ullage.errors import harmless
from ullage.render.svg.kit import bar_parts, legend, square
from ullage.reports.flops import FlopsReport
from ullage.views.draw import WIDE, Scale, extent, fit, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import flops as counted
from ullage.views.numbers import percent

# passes as they follow one another in a bar, with their colour
PASSES = (("forward", "forward", "ofu"), ("dgrad", "gradient of inputs", "shared"), ("wgrad", "gradient of weights", "pale"))
AGAIN = ("again", "only executed", "loss")


def terms(report: FlopsReport, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of the ledger: a bar for each group of work, the largest first, in the colours of the passes.

    What is executed but no model work (recomputation, padding) ends the bar in its own colour.
    """
    sums: dict[str, dict[str, int]] = {}
    for term in report.ledger.terms:
        row = sums.setdefault(term.group, {})
        key = term.pass_ if term.model else AGAIN[0]
        row[key] = row.get(key, 0) + term.flops
    ranked = sorted(sums.items(), key=lambda item: -sum(item[1].values()))
    title = f"{harmless(report.ledger.architecture, 60)}: {counted(report.ledger.executed)} a step"
    body, height = _rows(ranked, report.ledger.executed, float(width))
    told = "; ".join(f"{harmless(name, 40)} {percent(sum(row.values()) / (report.ledger.executed or 1), 1)}" for name, row in ranked)
    return picture("terms", title, f"FLOPs by group: {told}", (width, height), *body, standalone=standalone)


def _rows(ranked: list[tuple[str, dict[str, int]]], total: int, width: float) -> tuple[list[Markup], float]:
    names = width * 0.26
    ends = [f"{counted(sum(row.values()))}, {percent(sum(row.values()) / (total or 1), 1)}" for _, row in ranked]
    most = max((sum(row.values()) for _, row in ranked), default=1)
    room = max((extent(end) for end in ends), default=0.0) + 10
    length = Scale(0.0, float(most), names + 12, width - room)
    body = _legend({key for _, row in ranked for key in row}, names + 12, math.inf)
    for number, ((name, row), end) in enumerate(zip(ranked, ends, strict=True)):
        top = 30.0 + 27 * number
        ends_of = accumulate(row.get(key, 0) for key, *_ in (*PASSES, AGAIN))
        parts = [(at, colour) for at, (*_, colour) in zip(ends_of, (*PASSES, AGAIN), strict=True)]
        body.append(
            element(
                "g",
                element("title", f"{harmless(name)}: {end}"),
                text(0, top + 13, fit(name, names)),
                *bar_parts(length, parts, top),
                text(length(sum(row.values())) + 8, top + 13, end),
            )
        )
    return body, 30.0 + 27 * len(ranked)


def _legend(used: set[str], x: float, width: float) -> list[Markup]:
    entries = ((square(colour), words) for key, words, colour in (*PASSES, AGAIN) if key in used)
    return legend(entries, 8.0, width, left=x, indent=17.0, gap=23.0, colour="muted")[0]
