"""The view of the architectures that have a formula."""

from __future__ import annotations

from typing import Annotated, Any

from ullage.reports.architectures import ArchitectureList
from ullage.views.declared import At, Document, plain_data
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


class ArchitectureFamilyDocument(Document):
    """A family of models whose FLOPs have a formula."""

    family: str
    kind: str
    names: list[str]
    source: str


class ArchitecturesDocument(Document):
    """The answer of `ullage flops --list`."""

    architectures: Annotated[list[ArchitectureFamilyDocument], At("families")]


def record(report: ArchitectureList) -> dict[str, Any]:
    """Return the families as plain data, with the names by which configurations call them."""
    return plain_data(ArchitecturesDocument, report)
