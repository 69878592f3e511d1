"""A reported MFU beside OFU: what the counters allow, and what is left of the report under each explanation."""

from __future__ import annotations

from collections.abc import Iterable

from ullage.audit.mfu import Explanation, MfuFinding
from ullage.errors import harmless
from ullage.render.svg.kit import BAR, bar_parts, legend, square
from ullage.reports.audit.audit import AuditReport
from ullage.views.draw import WIDE, Scale, box, extent, fit, line, picture, text
from ullage.views.markup import Markup, element
from ullage.views.numbers import percent

MOST = 6  # explanations to draw
_TOP, _STEP = 46.0, 27.0
_Row = tuple[str, list[tuple[float, str]], str]  # name, ends of the bar's parts with their colour, words at its end


def audit(report: AuditReport, *, width: int = WIDE, standalone: bool = True) -> Markup:
    """Return the picture of an audit: bars for the reported MFU, for OFU, and for the corrected MFU by each explanation.

    The shaded band is what OFU allows. Where a circumstance sets OFU and a right MFU apart, the bar goes on in a paler colour
    to what is executed, which must end in the band.
    """
    found = report.finding
    title = f"{harmless(report.architecture, 60)}: reported MFU {percent(found.reported, 1)} beside OFU {percent(found.ofu, 1)}"
    rows = list(_rows(found))
    body = _body(rows, found, float(width))
    told = "; ".join(f"{name}: {words}" for name, _, words in rows)
    return picture("audit", title, f"{_verdict(found)}. {told}", (width, _TOP + _STEP * len(rows)), *body, standalone=standalone)


def _verdict(found: MfuFinding) -> str:
    if found.agrees:
        return "nothing to explain"
    return "the likeliest explanation first" if found.explanations else "nothing in the list explains it"


def _rows(found: MfuFinding) -> Iterable[_Row]:
    best = found.explanations[0].corrected if found.explanations else found.reported
    parts = [(min(best, found.reported), "ofu"), (found.reported, "loss")]
    yield "reported MFU", parts, percent(found.reported, 2)
    yield "OFU", [(found.ofu, "shared")], percent(found.ofu, 2)
    for explanation in found.explanations[:MOST]:
        yield _explained(explanation)


def _explained(explanation: Explanation) -> _Row:
    end = f"{percent(explanation.corrected, 2)}, factor {explanation.factor:.3f}"
    return (
        " + ".join(explanation.names),
        [(explanation.corrected, "ofu"), (max(explanation.comparable, explanation.corrected), "pale")],
        end,
    )


def _body(rows: list[_Row], found: MfuFinding, width: float) -> list[Markup]:
    names = width * 0.36
    room = max(extent(end) for *_, end in rows) + 10
    longest = max(max(end for end, _ in parts) for _, parts, _ in rows)
    length = Scale(0.0, max(longest, found.expected[1]), names + 12, max(width - room, names + 60))
    low, high = (length(edge) for edge in found.expected)
    bottom = _TOP + _STEP * len(rows) - _STEP + BAR + 3
    body = [*_legend(length(0.0), width, found), box(low, _TOP - 4, max(high - low, 2.0), bottom - _TOP + 4, "full")]
    for number, row in enumerate(rows):
        _, parts, words = row
        end = max(length(edge) for edge, _ in parts) + 8
        at = high + 8 if end < high + 2 and end + extent(words) > low else end  # words never lie on the band's edges
        body.append(_bar(_TOP + _STEP * number, row, fit(row[0], names), length, at))
    return [*body, line(low, _TOP - 4, low, bottom, "gain"), line(high, _TOP - 4, high, bottom, "gain")]


def _bar(top: float, row: _Row, label: str, length: Scale, end: float) -> Markup:
    name, parts, words = row
    told = element("title", f"{name}: {words}")
    return element("g", told, text(0, top + 13, label), *bar_parts(length, parts, top), text(end, top + 13, words))


def _legend(x: float, width: float, found: MfuFinding) -> list[Markup]:
    low, high = (percent(edge, 1) for edge in found.expected)
    best = found.explanations[:1]
    entries = [("ofu", "MFU, corrected" if best and best[0].wrong else "MFU as reported")]
    entries += [("loss", "too much")] if best and best[0].corrected < found.reported else []
    entries += [("pale", "executed beside it")] if any(e.comparable > e.corrected for e in found.explanations[:MOST]) else []
    entries += [("full", f"OFU allows {low} to {high}")]
    marks, _ = legend(((square(colour), words) for colour, words in entries), 8.0, width, left=x, indent=17.0, colour="muted")
    return marks
