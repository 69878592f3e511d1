"""The view of the architectures that have a formula."""

from __future__ import annotations

from typing import Any

from ullage.reports.architectures import ArchitectureList
from ullage.views.view import Column, Headline, Section, Table, View


def view(report: ArchitectureList) -> View:
    """Return a row a family."""
    columns = [Column("family"), Column("kind"), Column("", key="names"), Column("what")]
    rows = [[family.family, family.kind, f"{len(family.names)} names", family.summary] for family in report.families]
    return View(
        kind="architectures",
        subject="Architectures",
        headline=Headline(f"{len(report.families)} families", f" under {report.names} names"),
        sections=[Section("families", "Families", [Table("families", columns, rows, brief=len(rows), page=len(rows))])],
    )


def record(report: ArchitectureList) -> dict[str, Any]:
    """Return the families as plain data, with the names by which configurations call them."""
    listed = [{"family": f.family, "kind": f.kind, "names": list(f.names), "source": f.source} for f in report.families]
    return {"architectures": listed}
