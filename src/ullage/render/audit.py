"""The view of the audit of a reported MFU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from ullage.audit.mfu import Explanation, MfuFinding
from ullage.audit.mistakes.mistake import Mistake
from ullage.render.svg.audit import audit as picture
from ullage.reports.audit.audit import AuditReport, MistakeList
from ullage.views.declared import At, Document, Made, Ratio, filled, plain, plain_data
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
        basis=[*likeliest(found)],
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


def likeliest(found: MfuFinding) -> Iterator[str]:
    """Yield what explains a finding best, or what was tried in vain; nothing where there is nothing to explain."""
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
    return plain_data(MistakesDocument, report)


class FactorOfMistakeDocument(Document):
    """A mistake or a circumstance, and the factor that it puts on an MFU."""

    name: str
    says: str
    factor: float
    circumstance: bool
    decided_by: str


class ExplanationDocument(Document):
    """A set of mistakes that together explain a reported MFU."""

    mistakes: list[FactorOfMistakeDocument]
    factor: float
    corrected_mfu: Annotated[Ratio, At("corrected")]
    beside_ofu: Annotated[Ratio, At("comparable")]


class MfuFindingDocument(Document):
    """A reported MFU held against OFU."""

    reported: Ratio
    ofu: Ratio
    relative_error: Annotated[float, At("ratio"), Made(lambda ratio: ratio - 1)]
    expected: list[Ratio]
    agrees: bool
    flagged: bool
    explanations: Annotated[list[ExplanationDocument], Made(_explanation_documents)]
    far_fetched: int


class AuditDocument(MfuFindingDocument):
    """The answer of `ullage audit mfu`."""

    architecture: str
    convention: str
    considered: dict[str, float | list[float]]
    notes: list[str]


class MistakeDocument(Document):
    """A mistake or a circumstance that moves an MFU."""

    name: str
    about: str
    says: str
    decided_by: Annotated[str, At("decides")]


class MistakesDocument(Document):
    """The answer of `ullage audit mfu --list`."""

    mistakes: list[MistakeDocument]


def record(report: AuditReport) -> dict[str, Any]:
    """Return the finding as plain data: ratios in [0, 1], factors on the reported MFU."""
    return plain(declared(report))


def declared(report: AuditReport) -> AuditDocument:
    """Return the finding as its document."""
    considered = {e.mistake.name: e.low if e.low == e.high else [e.low, e.high] for e in report.finding.considered}
    about = {name: getattr(report, name) for name in ("architecture", "convention")}
    return filled(AuditDocument, report.finding, considered=considered, notes=list(report.notes), **about)


def _explanation_documents(found: Iterable[Explanation]) -> list[ExplanationDocument]:
    return [filled(ExplanationDocument, one, mistakes=[_mistake(*pair) for pair in one.mistakes]) for one in found]


def _mistake(mistake: Mistake, factor: float) -> FactorOfMistakeDocument:
    return filled(FactorOfMistakeDocument, mistake, factor=factor, decided_by=mistake.decides)


_FITS = "Sets of mistakes and circumstances that bring the report to where OFU allows it, the likeliest first."
_TRIED = "Everything in the list, with the factor that it would put on this job's MFU."
