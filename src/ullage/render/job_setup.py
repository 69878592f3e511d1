"""The view of what a scheduler needs for job reports: files as they are written, labels, a query, commands."""

from __future__ import annotations

from typing import Any

from ullage.reports.job.setup import JobSetup
from ullage.views.declared import Document, plain_data
from ullage.views.view import Headline, Item, ItemList, Paragraph, Section, View

_NAMES = {"slurm": "Slurm", "kubernetes": "Kubernetes"}


def view(setup: JobSetup) -> View:
    """Return the files in the order in which they are needed, then what results."""
    files = [
        Section(f"file-{number}", f"{number}. {file.path}: {file.what}", [Paragraph(file.text.rstrip("\n"), kept=True)], headed=True)
        for number, file in enumerate(setup.files, 1)
    ]
    commands = [Item(f"{what}: {command}") for what, command in setup.commands]
    result = [
        Section("labels", "The labels", [Paragraph(setup.labels)], headed=True),
        Section("query", "The query that shows that they are there", [Paragraph(setup.query, kept=True)], headed=True),
        Section("commands", "Then", [ItemList(commands)], headed=True),
    ]
    return View(
        kind="job-setup",
        subject="Setup",
        headline=Headline(f"What {_NAMES[setup.scheduler]} needs for a report on every job"),
        sections=[*files, *result],
        notes=setup.notes,
    )


class SetupFileDocument(Document):
    """A file to write, or lines to add to one; a script is `executable`."""

    path: str
    what: str
    text: str
    executable: bool


class JobSetupDocument(Document):
    """The answer of `ullage job --setup`: files, the labels that result, a query for them (PromQL), commands by what they are for."""

    scheduler: str
    files: list[SetupFileDocument]
    labels: str
    query: str
    commands: dict[str, str]
    notes: list[str]


def record(setup: JobSetup) -> dict[str, Any]:
    """Return the setup as plain data, ready for JSON."""
    return plain_data(JobSetupDocument, setup, commands=dict(setup.commands), notes=[*setup.notes])
