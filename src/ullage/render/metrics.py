"""The views of what is computed, by which equation, and of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ullage.metrics.metric import Metric
from ullage.tables import Field
from ullage.views.declared import At, Document, plain_data
from ullage.views.numbers import counted
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Paragraph, Part, Section, Table, View


@dataclass(frozen=True)
class MetricList(ShownByView, view="ullage.render.metrics"):
    """Metrics; `named` is whether a single one was asked for, by its name."""

    metrics: tuple[Metric, ...]
    named: bool = False


@dataclass(frozen=True)
class FieldList(ShownByView, view="ullage.render.metrics:fields"):
    """The fields of the samples table."""

    fields: tuple[Field, ...]


def view(report: MetricList) -> View:
    """Return metrics with their equations, or one in full."""
    return metric_view(report.metrics[0]) if report.named else list_view(report.metrics)


def list_view(metrics: Sequence[Metric]) -> View:
    """Return metrics with their equations; a terminal has two lines each."""
    lines = "\n".join(f"{m.name}: {m.summary}\n  = {m.equation}    [{m.unit}]  {m.source}" for m in metrics)
    columns = [Column("metric"), Column("equation"), Column("unit"), Column("source"), Column("what it says")]
    table = Table("metrics", columns, [[m.name, m.equation, m.unit, m.source, m.summary] for m in metrics], detail=True)
    answer = Headline(counted(len(metrics), "metric"), ", each with its equation, unit and source")
    parts: list[Part] = [Paragraph(lines, kept=True, drawn=True), table]
    return View("metrics", "Metrics", answer, sections=[Section("metrics", "Metrics", parts)])


def metric_view(metric: Metric) -> View:
    """Return one metric in full."""
    answer = Headline(metric.name, f" = {metric.equation}    [{metric.unit}]")
    page = Section("page", "What it says", [Paragraph(metric.page, kept=True)])
    return View("metrics", "Metric", answer, basis=[metric.source], sections=[page])


def fields_view(report: FieldList) -> View:
    """Return the fields of the samples table, each with its unit."""
    columns = [Column("field"), Column("unit"), Column("kind"), Column("meaning")]
    rows = [[field.name, field.unit, field.kind, field.meaning] for field in report.fields]
    answer = Headline(counted(len(rows), "field"), " are read from telemetry")
    sections = [Section("fields", "Fields", [Table("fields", columns, rows, brief=len(rows))])]
    return View("fields", "Fields of the samples table", answer, sections=sections)


class MetricDocument(Document):
    """A metric: its equation, its unit, its source and what it says."""

    name: str
    unit: str
    equation: str
    needs: Annotated[list[str], At("parameters")]
    source: str
    summary: str
    page: str


class MetricsDocument(Document):
    """The answer of `ullage metrics`."""

    metrics: list[MetricDocument]


class FieldDocument(Document):
    """A field of the samples table."""

    name: str
    unit: str
    kind: str
    summary: Annotated[str, At("meaning")]


class FieldsDocument(Document):
    """The answer of `ullage metrics --fields`."""

    fields: list[FieldDocument]


def record(report: MetricList) -> dict[str, Any]:
    """Return metrics for JSON."""
    return plain_data(MetricsDocument, report)


def fields_record(report: FieldList) -> dict[str, Any]:
    """Return the fields of the samples table for JSON."""
    return plain_data(FieldsDocument, report)
