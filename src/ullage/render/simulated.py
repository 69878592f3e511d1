"""The views of what was simulated and written: which files, what a report must find in them, and the command that asks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.metrics.steps import LABELS
from ullage.simulate.job import SimulatedJob
from ullage.simulate.job_files import JobFiles
from ullage.simulate.write import WrittenFleet
from ullage.units import HOUR_MS
from ullage.views.declared import Document, Hours, Rate, Ratio, plain
from ullage.views.notation import FACTOR_3, PERCENT, PERCENT_1, TERAFLOPS, UNCUT
from ullage.views.numbers import counted
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Paragraph, Section, Table, View


@dataclass(frozen=True)
class SimulatedFleetFiles(ShownByView, view="ullage.render.simulated:fleet"):
    """A simulated fleet in files: in which `form` the samples are, its answer key, and what is to be said of it."""

    written: WrittenFleet
    form: str
    answers: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulatedJobFiles(ShownByView, view="ullage.render.simulated:job"):
    """A simulated job in files."""

    written: JobFiles
    job: SimulatedJob


@dataclass(frozen=True)
class SimulatedTraceFiles(ShownByView, view="ullage.render.simulated:trace"):
    """Simulated traces: the folder, the files in it, and in which `form` they are."""

    folder: Path
    files: tuple[Path, ...]
    form: str


class WrittenFileDocument(Document):
    """A file or a folder that was written, and what it holds."""

    file: str
    what: str


class SimulateDocument(Document):
    """The answer of `ullage simulate`: what was written, what a report must find, and the command that asks (`next`)."""

    gpus: int
    hours: float
    jobs: int
    ofu: Ratio
    form: str
    files: list[WrittenFileDocument]
    next: str
    notes: list[str]


class SimulateJobDocument(Document):
    """The answer of `ullage simulate job`: what was written, every planted factor, and the command that asks (`next`)."""

    gpus: int
    steps: int
    gpu_hours: Hours
    ofu: Ratio
    mfu: Ratio
    factors: dict[str, Ratio]
    peak: Rate
    other_precision: str | None
    other_share: Ratio | None
    files: list[WrittenFileDocument]
    next: str


class SimulateTraceDocument(Document):
    """The answer of `ullage simulate trace`: what was written, and the command that asks (`next`)."""

    folder: str
    form: str
    files: list[WrittenFileDocument]
    next: str


def fleet_view(report: SimulatedFleetFiles) -> View:
    """Return how large the fleet is, its OFU, and where its files are."""
    data = fleet_document(report)
    rest = f" for {data.hours:g} h: OFU is {PERCENT_1.words(data.ofu)}, by {counted(data.jobs, 'job')}"
    headline = Headline(f"simulated {data.gpus:,} GPUs", rest)
    return View("simulate", "Simulated fleet", headline, sections=_sections(data.files, data.next), notes=data.notes)


def fleet_document(report: SimulatedFleetFiles) -> SimulateDocument:
    """Return the same as a document."""
    written, key = report.written, report.answers
    files = [
        WrittenFileDocument(str(written.samples), f"the samples ({report.form}), as exporters give them"),
        WrittenFileDocument(str(written.jobs), "the job records"),
        WrittenFileDocument(str(written.answers), "what a report must find"),
        WrittenFileDocument(str(written.configs), "the models that the jobs train, for `ullage audit mfu`"),
    ]
    hours = (key["window"]["end"] - key["window"]["start"]) / HOUR_MS
    command = shlex.join(["ullage", "fleet", str(written.samples), "--jobs", str(written.jobs)])
    return SimulateDocument(
        key["gpus"],
        hours,
        len(key["jobs"]),
        key["fleet"]["ofu"],
        report.form,
        files,
        command,
        [*report.notes],
    )


def fleet_record(report: SimulatedFleetFiles) -> dict[str, Any]:
    """Return the same for JSON."""
    return plain(fleet_document(report))


def job_view(report: SimulatedJobFiles) -> View:
    """Return OFU, MFU and every planted factor of a job, and where its files are."""
    data = job_document(report)
    rest = f" on {data.gpus:,} GPUs: OFU {PERCENT_1.words(data.ofu)}, MFU {PERCENT_1.words(data.mfu)}"
    basis = ["planted: " + ", ".join(f"{LABELS[factor]} {FACTOR_3.words(value)}" for factor, value in data.factors.items())]
    if data.other_share is not None:
        share = f"{PERCENT.words(data.other_share)} of the products with weights in {data.other_precision}"
        basis.append(f"peak of its precisions: {TERAFLOPS.words(data.peak)} TFLOP/s, {share}")
    headline = Headline("simulated a job", rest)
    return View("simulate-job", "Simulated job", headline, basis=basis, sections=_sections(data.files, data.next))


def job_document(report: SimulatedJobFiles) -> SimulateJobDocument:
    """Return the same as a document."""
    written, truth, mixture, steps = (
        report.written,
        report.job.truth,
        report.job.mixture,
        report.job.plan.steps,
    )
    files = [
        WrittenFileDocument(str(written.telemetry), "an hour of telemetry"),
        WrittenFileDocument(str(written.traces), f"{steps:,} steps traced, a file a rank"),
        WrittenFileDocument(str(written.config), "the model and its step"),
        WrittenFileDocument(str(written.gemms), "its matrix products"),
        WrittenFileDocument(str(written.truth), "every factor, as a report must find it"),
    ]
    return SimulateJobDocument(
        gpus=truth["gpus"],
        steps=steps,
        gpu_hours=truth["gpu_hours"],
        ofu=truth["ofu"],
        mfu=truth["mfu"],
        factors=truth["factors"],
        peak=truth["peak"],
        other_precision=None if mixture is None else mixture.other.upper(),
        other_share=None if mixture is None else mixture.share,
        files=files,
        next=shlex.join(
            [
                "ullage",
                "waterfall",
                *map(str, (written.telemetry, written.traces, written.config, written.gemms)),
            ]
        ),
    )


def job_record(report: SimulatedJobFiles) -> dict[str, Any]:
    """Return the same for JSON."""
    return plain(job_document(report))


def trace_view(report: SimulatedTraceFiles) -> View:
    """Return how many files were written, and which."""
    data = trace_document(report)
    headline = Headline(f"wrote {counted(len(data.files), 'file')}", f" of simulated traces ({data.form})")
    return View("simulate-trace", "Simulated traces", headline, sections=_sections(data.files, data.next))


def trace_document(report: SimulatedTraceFiles) -> SimulateTraceDocument:
    """Return the same as a document."""
    operations = report.form == "operations"
    command = shlex.join(["ullage", "trace", *(["stragglers"] if operations else []), str(report.folder)])
    what = "the operations of every rank" if operations else f"a trace ({report.form})"
    files = [WrittenFileDocument(str(path), what) for path in report.files]
    return SimulateTraceDocument(str(report.folder), report.form, files, command)


def trace_record(report: SimulatedTraceFiles) -> dict[str, Any]:
    """Return the same for JSON."""
    return plain(trace_document(report))


def _sections(files: Sequence[WrittenFileDocument], command: str) -> list[Section]:
    """Return the files as a table, and the command that asks what they hold."""
    columns = [Column("file", UNCUT), Column("what", UNCUT)]
    table = Table("files", columns, [[one.file, one.what] for one in files], brief=len(files))
    return [Section("files", "Files", [table]), Section("next", "Next", [Paragraph(f"next: {command}")])]
