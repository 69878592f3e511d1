"""Findings as every form shows them: a section of their own, which stands before all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.errors import harmless
from ullage.views.notation import COUNT, GPU_HOURS, WORDS
from ullage.views.view import Column, Fact, Finding, FindingPlace, Item, ItemList, Paragraph, Part, Section, Table, Value, View

MOST = 7  # that an answer shows; the others are counted


def sections_of(view: View) -> Sequence[Section]:
    """Return the sections of a view as they are shown: its findings come before all others, where it has any."""
    return [_section(view.findings), *view.sections] if view.findings else view.sections


def page_order(view: View) -> tuple[Sequence[Section], Sequence[Section]]:
    """Return the sections of a page's first screen, the findings last of them, and the others, the long ones last."""
    findings = [_section(view.findings)] if view.findings else []
    others = sorted((section for section in view.sections if not section.opens), key=lambda section: section.long)
    return [*(section for section in view.sections if section.opens), *findings], others


def _section(findings: Sequence[Finding]) -> Section:
    parts: list[Part] = [ItemList([_item(finding) for finding in findings[:MOST]], ranked=True, folded=True)]
    if (more := len(findings) - MOST) > 0:
        parts.append(Paragraph(f"… {more:,} more", elsewhere="--json has them all"))
    return Section("findings", "What to do first", parts, _HOW, headed=True)


def _item(finding: Finding) -> Item:
    where = harmless(str(finding.where), 300)
    words = [*([where] if where else []), _worth(finding), f"owner: {harmless(finding.owner)}"]
    evidence = f"evidence ({finding.confidence} confidence): " + ", ".join(map(_evidence, finding.evidence))
    remarks = [evidence, f"do: {harmless(finding.advice, 1000)}"]
    remarks += [f"see: {finding.next_command}"] if finding.next_command else []
    return Item("; ".join(words), remarks=remarks, lead=finding.title, leads_to=leads_to(finding.where))


def leads_to(where: FindingPlace) -> tuple[str, str] | None:
    """Return of what there may be a page: the job of a finding, else its user, else its host."""
    if where.job:
        return "job", where.job if where.cluster is None else f"{where.cluster}/{where.job}"
    named = [(kind, name) for kind, name in (("user", where.user), ("host", where.host)) if name]
    return named[0] if named else None


def _worth(finding: Finding) -> str:
    money = "" if finding.money is None else f", worth {finding.terms.words(finding.money)}"
    if finding.weekly_gpu_hours is None:
        return f"{GPU_HOURS.words(finding.gpu_hours)} GPU-hours{money}"
    weekly = "" if finding.weekly_money is None else f", worth {finding.terms.notation.words(finding.weekly_money)}"
    return f"{GPU_HOURS.words(finding.gpu_hours)} GPU-hours{money} ({GPU_HOURS.words(finding.weekly_gpu_hours)} a week{weekly})"


def _evidence(fact: Fact) -> str:
    return " ".join(filter(None, [fact.name, fact.notation.words(fact.value), fact.note]))


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return findings as a table, a row each, for whatever reads tables; it has the parts of a place that any of them names."""
    terms = findings[0].terms
    places = [name for name in vars(FindingPlace()) if any(getattr(one.where, name) is not None for one in findings)]
    columns = [
        Column("kind"),
        *(Column(name, COUNT if name in ("index", "gpus") else WORDS) for name in places),
        Column("owner"),
        Column("GPU-hours", GPU_HOURS),
        Column("a week, GPU-hours", GPU_HOURS),
        Column(terms.heading_with_price("worth"), terms.amounts, key="money"),
        Column("confidence"),
        Column("evidence"),
        Column("advice", wraps=True),
    ]
    rows = [[one.kind, *(getattr(one.where, name) for name in places), *_table_facts(one)] for one in findings]
    return Table("findings", columns, rows, "What to do first")


def _table_facts(finding: Finding) -> list[Value]:
    evidence = ", ".join(map(_evidence, finding.evidence))
    return [finding.owner, finding.gpu_hours, finding.weekly_gpu_hours, finding.money, finding.confidence, evidence, finding.advice]


_HOW = (
    "The most GPU-hours first. A GPU-hour counts for one finding only; each kind says in the guide which part of the ullage it speaks of. "
    "“A week” is what it would cost in a week like this window."
)


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain data, ready for JSON."""
    return {
        "kind": finding.kind,
        "where": {name: _harmless(value) for name, value in vars(finding.where).items() if value is not None},
        "owner": harmless(finding.owner),
        "gpu_hours": finding.gpu_hours,
        "gpu_hours_a_week": finding.weekly_gpu_hours,
        "money": finding.money,
        "money_a_week": finding.weekly_money,
        "currency": finding.terms.currency or None,
        "price": None if finding.money is None else finding.terms.price,
        "confidence": finding.confidence,
        "evidence": [{"name": fact.name, "value": fact.value, "unit": fact.notation.unit} for fact in finding.evidence],
        "advice": finding.advice,
        "part": finding.part,
        "next": finding.next_command or None,
    }


def _harmless(value: str | int) -> str | int:
    return harmless(value) if isinstance(value, str) else value
