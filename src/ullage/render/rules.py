"""The view of rules for Prometheus: the file as it is read by databases, and a table of what it records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ullage.rules.rule_file import RuleFile
from ullage.views.declared import Document, plain
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Paragraph, Section, Table, View

FORMS = (".yml", ".yaml", *VIEW_FORMS)


def printed(report: RuleFile) -> str:
    """Return the rules as the command prints them: YAML."""
    return str(report)


def more_forms(report: RuleFile, view: View) -> Mapping[str, Form]:  # noqa: ARG001 - a describer's `more_forms`
    """Return the file as databases read it."""
    return dict.fromkeys((".yml", ".yaml"), lambda: str(report))


def view(report: RuleFile) -> View:
    """Return what is recorded, a row a series, and the file itself."""
    columns = [Column("series"), Column("unit"), Column("what it says", wraps=True), Column("labels", detail=True)]
    rows = [[one.name, one.unit, one.what, ", ".join(one.labels)] for one in report.distinct_series]
    return View(
        kind="rules",
        subject="Rules for Prometheus",
        headline=Headline(
            f"{len(rows)} series", f" are recorded by {counted(len(report.rules), 'rule')}, evaluated every {report.interval:g} s"
        ),
        sections=[
            Section("series", "What is recorded", [Table("series", columns, rows, brief=len(rows))]),
            Section("file", "The file", [Paragraph(str(report), kept=True)], detail=True),
        ],
        command=report.command,
    )


class RuleDocument(Document):
    """A rule: the series that it records or the alert that it raises, and its expression in PromQL."""

    name: str
    group: str
    alert: bool
    expr: str
    wait: str
    labels: dict[str, str]
    annotations: dict[str, str]


class RecordedSeriesDocument(Document):
    """A series that the rules record: what it says, its unit, and the labels that tell its values apart."""

    name: str
    what: str
    unit: str
    labels: list[str]


class RulesDocument(Document):
    """The answer of `ullage rules`: the rules in their order, what they record, and how often they are evaluated (s)."""

    interval: float
    rules: list[RuleDocument]
    series: list[RecordedSeriesDocument]


def record(report: RuleFile) -> dict[str, Any]:
    """Return the rules for JSON."""
    rules = [
        RuleDocument(
            name=rule.name,
            group=group.name,
            alert=rule.alert,
            expr=rule.expr,
            wait=rule.wait,
            labels=dict(rule.labels),
            annotations=dict(rule.annotations),
        )
        for group in report.groups
        for rule in group.rules
    ]
    series = [
        RecordedSeriesDocument(name=one.name, what=one.what, unit=one.unit, labels=list(one.labels)) for one in report.distinct_series
    ]
    return plain(RulesDocument(interval=report.interval, rules=rules, series=series))
