"""What a scheduler needs so that every job has a report: its scripts and settings, the labels, the query that shows that they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ullage.reports.job import kubernetes_setup, slurm_setup
from ullage.views.shown import ShownByView

Scheduler = Literal["slurm", "kubernetes"]


@dataclass(frozen=True)
class SetupFile:
    """A file to write, or lines to add to one: where, what it does, and its text. A script is `executable`."""

    path: str
    what: str
    text: str
    executable: bool = False


@dataclass(frozen=True)
class JobSetup(ShownByView, view="ullage.render.job_setup"):
    """The answer to `ullage job --setup`: files in the order in which they are needed, the labels that result, commands, and cautions."""

    scheduler: Scheduler
    files: tuple[SetupFile, ...]
    labels: str
    query: str
    commands: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def job_setup(scheduler: Scheduler) -> JobSetup:
    """Return what a scheduler needs."""
    module = slurm_setup if scheduler == "slurm" else kubernetes_setup
    files = tuple(SetupFile(path, what, text.lstrip("\n"), path.endswith(".sh")) for path, what, text in module.FILES)
    return JobSetup(scheduler, files, module.LABELS, module.QUERY, module.COMMANDS, module.NOTES)
