"""The view of a formula held against traces of the real model."""

from __future__ import annotations

from typing import Any

from ullage.models.tracing.certificate import ComparedTrial, Difference
from ullage.reports.proofs import CertifiedFormula
from ullage.views.declared import Document, plain_data
from ullage.views.notation import COUNT, FLOPS
from ullage.views.view import Column, Headline, Item, ItemList, Section, Table, Value, View

SHOWN = 20  # differences


def view(report: CertifiedFormula) -> View:
    """Return the verdict, a row a shape, and where formula and model differ."""
    made = report.certificate
    verdict = "certified" if made.equal else f"NOT certified: {len(made.differences)} differences"
    libraries = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    columns = [Column("shape"), *(Column(name, FLOPS) for name in ("forward", "traced", "backward"))]
    columns += [Column("traced", FLOPS, key="traced backward"), Column("terms compared", COUNT)]
    return View(
        kind="flops-certificate",
        subject=f"Certificate of {made.architecture}",
        headline=Headline(verdict, f": {made.architecture}, {libraries}"),
        sections=[
            Section("shapes", "Shapes", [Table("shapes", columns, [_row(one) for one in made.compared])]),
            Section("differences", "Differences", [ItemList([Item(str(one)) for one in made.differences[:SHOWN]])]),
        ],
        notes=[] if report.file is None else [f"the certificate is kept in {report.file}"],
    )


def _row(one: ComparedTrial) -> list[Value]:
    shape = ", ".join(f"{name} {size}" for name, size in one.trial.items())
    return [shape, one.forward, one.traced_forward, one.backward, one.traced_backward, one.terms]


class FlopsCertificateDocument(Document):
    """The answer of `ullage flops --certify`: a formula beside a trace of the model, and the file in which that is kept."""

    architecture: str
    family: str
    config_hash: str
    formula_hash: str
    versions: dict[str, str]
    compared: list[ComparedTrial]
    differences: list[Difference]
    date: str
    equal: bool
    file: str | None


def record(report: CertifiedFormula) -> dict[str, Any]:
    """Return the certificate as plain data, with the file that keeps it."""
    return plain_data(FlopsCertificateDocument, report.certificate, file=None if report.file is None else str(report.file))
