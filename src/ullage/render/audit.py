"""The view of the audit of a reported MFU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ullage.audit.mfu import Explanation, MfuFinding
from ullage.render.svg.audit import audit as picture
from ullage.reports.audit.audit import AuditReport, MistakeList
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.notation import FACTOR_3, PERCENT_2, UNCUT, Notation
from ullage.views.numbers import counted, percent
from ullage.views.view import Column, Fact, Headline, Item, ItemList, Picture, Section, Table, Value, View

FORMS = (*VIEW_FORMS, ".svg")
_EXACT_FACTOR = Notation(FACTOR_3.unit, lambda value: f"{value:.3f}")


def view(report: AuditReport) -> View:
    """Return the answer as data: the verdict first, then the explanations, the likeliest first, then what would decide."""
    found = report.finding
    drawn = Picture(lambda width: picture(report, width=width, standalone=False))
    return View(
        kind="audit-mfu",
        subject=f"Audit of a reported MFU, {report.architecture}",
        headline=Headline(_verdict(found), f": {_compared(found)}"),
        basis=[*_likeliest(found)],
        facts=[*_facts(found)],
        sections=[
            Section("explanations", "What fits", [drawn, _explanations(found), _deciding(found)], _FITS),
            Section("considered", "What was tried", [_considered(found)], _TRIED, detail=True, long=True),
        ],
        notes=report.notes,
    )


def _verdict(found: MfuFinding) -> str:
    if found.agrees:
        return "nothing to explain"
    if not found.explanations:
        return "nothing in the list explains it"
    return "the reported MFU is wrong" if found.explanations[0].wrong else "both may be right"


def _compared(found: MfuFinding) -> str:
    low, high = found.expected
    return (
        f"reported MFU {percent(found.reported, 2)}, OFU {percent(found.ofu, 2)}: {percent(found.ratio - 1, 1)} apart; "
        f"OFU allows {percent(low, 1)} to {percent(high, 1)}"
    )


def _likeliest(found: MfuFinding) -> Iterator[str]:
    if found.agrees:
        return
    if not found.explanations:
        yield _tried(found)
        return
    best = found.explanations[0]
    yield f"likeliest: {'; and '.join(mistake.says for mistake, _ in best.mistakes)}"
    yield _stands(best)


def _tried(found: MfuFinding) -> str:
    tried = f"{len(found.considered)} mistakes and circumstances were tried, alone, in pairs and in threes"
    if not found.far_fetched:
        return tried
    sets = "set fits" if found.far_fetched == 1 else "sets fit"
    return f"{tried}; {found.far_fetched} {sets}, but a mistake that is not in the list is likelier"


def _stands(best: Explanation) -> str:
    """Say which MFU stands, and what lies beside OFU where a circumstance sets them apart."""
    stands = f"corrected MFU {percent(best.corrected, 2)}" if best.wrong else f"MFU {percent(best.corrected, 2)} stands"
    if math.isclose(best.corrected, best.comparable):
        return stands
    return f"{stands}; what is executed, which OFU sees, comes to {percent(best.comparable, 2)}"


def _facts(found: MfuFinding) -> Iterator[Fact]:
    low, high = found.expected
    yield Fact("Reported MFU", found.reported, PERCENT_2)
    yield Fact("OFU", found.ofu, PERCENT_2, f"allows {percent(low, 1)} to {percent(high, 1)}")
    if found.explanations:
        best = found.explanations[0]
        yield Fact("Corrected MFU" if best.wrong else "MFU", best.corrected, PERCENT_2, "by the likeliest explanation")


def _explanations(found: MfuFinding) -> Table:
    columns = [Column("what fits, with its factor", UNCUT, "mistakes"), Column("together", _EXACT_FACTOR, "factor")]
    rows: list[list[Value]] = [
        [" + ".join(f"{m.name} ({factor:.3f})" for m, factor in one.mistakes), one.factor, one.corrected, one.comparable]
        for one in found.explanations
    ]
    return Table("explanations", [*columns, Column("corrected MFU", PERCENT_2), Column("beside OFU", PERCENT_2)], rows)


def _deciding(found: MfuFinding) -> ItemList:
    several = found.explanations if len(found.explanations) > 1 else ()
    asked = dict.fromkeys(mistake.decides for one in several for mistake, _ in one.mistakes)
    return ItemList([Item(what) for what in asked], "what would tell them apart")


def _considered(found: MfuFinding) -> Table:
    columns = [Column("mistake or circumstance"), Column("what is done"), Column("factor from", _EXACT_FACTOR), Column("to", _EXACT_FACTOR)]
    return Table("considered", columns, [[one.mistake.name, one.mistake.says, one.low, one.high] for one in found.considered])


def more_forms(report: AuditReport, *_: View) -> dict[str, Form]:
    """Return the form that this report alone has: the picture."""
    return {".svg": lambda: str(picture(report))}


def mistakes_view(report: MistakeList) -> View:
    """Return the known mistakes, a row each."""
    rows = [[one.name, one.about, one.says] for one in report.mistakes]
    table = Table("mistakes", [Column("mistake"), Column("about"), Column("what is done")], rows, brief=len(rows), page=len(rows))
    answer = Headline(counted(len(rows), "mistake"), " that an MFU is tried against")
    return View("audit-mistakes", "Known mistakes", answer, sections=[Section("mistakes", "Mistakes", [table])])


def mistakes_record(report: MistakeList) -> dict[str, Any]:
    """Return the known mistakes for JSON."""
    return {"mistakes": [{"name": m.name, "about": m.about, "says": m.says, "decided_by": m.decides} for m in report.mistakes]}


def record(report: AuditReport) -> dict[str, Any]:
    """Return the finding as plain data: ratios in [0, 1], factors on the reported MFU."""
    return {
        "architecture": report.architecture,
        "convention": report.convention,
        **finding(report.finding),
        "considered": {e.mistake.name: e.low if e.low == e.high else [e.low, e.high] for e in report.finding.considered},
        "notes": list(report.notes),
    }


def finding(found: MfuFinding) -> dict[str, Any]:
    """Return one finding as plain data."""
    return {
        "reported": found.reported,
        "ofu": found.ofu,
        "relative_error": found.ratio - 1,
        "expected": list(found.expected),
        "agrees": found.agrees,
        "flagged": found.flagged,
        "explanations": [_explained(e) for e in found.explanations],
        "far_fetched": found.far_fetched,
    }


def _explained(explanation: Explanation) -> dict[str, Any]:
    return {
        "mistakes": [
            {"name": m.name, "says": m.says, "factor": factor, "circumstance": m.circumstance, "decided_by": m.decides}
            for m, factor in explanation.mistakes
        ],
        "factor": explanation.factor,
        "corrected_mfu": explanation.corrected,
        "beside_ofu": explanation.comparable,
    }


_FITS = "Sets of mistakes and circumstances that bring the report to where OFU allows it, the likeliest first."
_TRIED = "Everything in the list, with the factor that it would put on this job's MFU."
