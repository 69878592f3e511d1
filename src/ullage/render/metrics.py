"""The views of what is computed, by which equation, and of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ullage.metrics.metric import Metric
from ullage.tables import FIELDS
from ullage.views.numbers import counted
from ullage.views.view import Column, Headline, Paragraph, Part, Section, Table, View


def list_view(metrics: Sequence[Metric]) -> View:
    """Return metrics with their equations; a terminal has two lines each."""
    lines = "\n".join(f"{m.name}: {m.summary}\n  = {m.equation}    [{m.unit}]  {m.source}" for m in metrics)
    columns = [Column("metric"), Column("equation"), Column("unit"), Column("source"), Column("what it says")]
    table = Table("metrics", columns, [[m.name, m.equation, m.unit, m.source, m.summary] for m in metrics], detail=True)
    answer = Headline(counted(len(metrics), "metric"), ", each with its equation, unit and source")
    parts: list[Part] = [Paragraph(lines, kept=True, drawn=True), table]
    return View("metrics", "Metrics", answer, sections=[Section("metrics", "Metrics", parts)])


def view(metric: Metric) -> View:
    """Return one metric in full."""
    answer = Headline(metric.name, f" = {metric.equation}    [{metric.unit}]")
    page = Section("page", "What it says", [Paragraph(metric.page, kept=True)])
    return View("metrics", "Metric", answer, basis=[metric.source], sections=[page])


def fields_view() -> View:
    """Return the fields of the samples table, each with its unit."""
    columns = [Column("field"), Column("unit"), Column("kind"), Column("meaning")]
    rows = [[field.name, field.unit, field.kind, field.meaning] for field in FIELDS.values()]
    answer = Headline(counted(len(rows), "field"), " are read from telemetry")
    sections = [Section("fields", "Fields", [Table("fields", columns, rows, brief=len(rows))])]
    return View("fields", "Fields of the samples table", answer, sections=sections)


def record(metrics: Sequence[Metric]) -> dict[str, Any]:
    """Return metrics for JSON."""
    return {"metrics": [_metric_record(metric) for metric in metrics]}


def _metric_record(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "unit": metric.unit,
        "equation": metric.equation,
        "needs": list(metric.parameters),
        "source": metric.source,
        "summary": metric.summary,
        "page": metric.page,
    }


def fields_record() -> dict[str, Any]:
    """Return the fields of the samples table for JSON."""
    return {"fields": [{"name": f.name, "unit": f.unit, "kind": f.kind, "summary": f.meaning} for f in FIELDS.values()]}
