"""The view of the audit of a fleet's reported MFUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ullage.errors import harmless
from ullage.render.audit import MfuFindingDocument
from ullage.reports.audit.fleet import Audited, FleetAudit
from ullage.views.declared import Document, Moment, filled, plain_data
from ullage.views.notation import COUNT, PERCENT_1
from ullage.views.numbers import UNKNOWN, counted, part_read
from ullage.views.view import Column, Headline, Item, ItemList, Section, Table, Value, View

_REASONS, _NAMED = 10, 3  # shown, of each
_UNEXPLAINED = "nothing in the list explains it"
NAME = 40  # characters of a job or its name


def view(audit: FleetAudit) -> View:
    """Return the answer as data: how many are wrong, a row for each job whose MFU and OFU disagree, what was left out, the notes.

    Jobs that agree have rows where there is room for all."""
    apart = [number for number, job in enumerate(audit.jobs) if job.verdict != "agrees"]
    columns = [Column("job"), Column("name", room=NAME), Column("cause"), Column("GPUs", COUNT)]
    columns += [Column(name, PERCENT_1) for name in ("reported", "OFU", "corrected", "beside OFU")]
    jobs = Table("jobs", columns, [_row(job) for job in audit.jobs], chosen=apart, elsewhere="they agree with OFU")
    return View(
        kind="audit-fleet",
        subject="Audit of a fleet's reported MFUs",
        headline=_headline(audit),
        sections=[
            Section("jobs", "Job by job", [jobs], "Those furthest apart first.", detail=not apart),
            Section("left-out", "Left out", [ItemList([Item(line) for line in _left_out(audit)], "left out")]),
        ],
        notes=audit.notes,
    )


class AuditedJobDocument(MfuFindingDocument):
    """A job whose reported MFU was audited."""

    job: str
    name: str | None
    gpus: int
    gpu: str
    verdict: str


class JobLeftOutDocument(Document):
    """A job that was not audited, and why."""

    job: str
    reason: str


class FleetAuditDocument(Document):
    """The answer of `ullage audit mfu --fleet`: a member for each audited job, those furthest apart first."""

    complete: bool
    read_until: Moment | None
    audited: int
    wrong: int
    unexplained: int
    explained: int
    jobs: list[AuditedJobDocument]
    left_out: list[JobLeftOutDocument]
    notes: list[str]


def record(audit: FleetAudit) -> dict[str, Any]:
    """Return the audit as plain data: ratios in [0, 1], a member for each audited job, those furthest apart first."""
    return plain_data(
        FleetAuditDocument,
        audit,
        audited=len(audit.jobs),
        **{verdict: len(audit.of(verdict)) for verdict in ("wrong", "unexplained", "explained")},
        jobs=[
            filled(AuditedJobDocument, one.finding, job=one.job, name=one.name, gpus=one.gpus, gpu=one.chip, verdict=one.verdict)
            for one in audit.jobs
        ],
        left_out=[JobLeftOutDocument(job=job, reason=reason) for job, reason in audit.left_out],
    )


def _headline(audit: FleetAudit) -> Headline:
    before = part_read(audit.complete, audit.read_until)
    if not audit.jobs:
        return Headline("no reported MFU", " could be audited", before)
    wrong, unexplained, explained = (len(audit.of(v)) for v in ("wrong", "unexplained", "explained"))
    agreed = len(audit.of("agrees"))
    rest = [f" of {len(audit.jobs):,} reported MFUs {'is' if wrong + unexplained == 1 else 'are'} wrong"]
    if unexplained:
        rest.append(f"{unexplained:,} of them for no cause in the list")
    if explained:
        rest.append(f"{explained:,} {'differs' if explained == 1 else 'differ'} from OFU for a reason that makes neither wrong")
    rest.append(f"{agreed:,} {'agrees' if agreed == 1 else 'agree'} with OFU")
    return Headline(f"{wrong + unexplained:,}", "; ".join(rest), before)


def _row(job: Audited) -> list[Value]:
    finding = job.finding
    best = finding.explanations[0] if finding.explanations else None
    cause = "agrees" if finding.agrees else " + ".join(best.names) if best else _UNEXPLAINED
    corrected = [None, None] if best is None else [best.corrected, best.comparable]
    return [job.job, job.name or UNKNOWN, cause, job.gpus, finding.reported, finding.ofu, *corrected]


def _left_out(audit: FleetAudit) -> Iterator[str]:
    """Yield what was left out, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for job, reason in audit.left_out:
        reasons.setdefault(reason, []).append(job)
    ranked = sorted(reasons.items(), key=lambda item: -len(item[1]))
    for reason, jobs in ranked[:_REASONS]:
        yield f"{counted(len(jobs), 'job')}: {harmless(reason, 200)} ({_listed(jobs)})"
    if ranked[_REASONS:]:
        rest = sum(len(jobs) for _, jobs in ranked[_REASONS:])
        yield f"{counted(rest, 'job')} for {len(ranked) - _REASONS:,} more reasons; the JSON form has them all"


def _listed(jobs: list[str]) -> str:
    """Return a few of the jobs by name."""
    return ", ".join(harmless(job, NAME) for job in jobs[:_NAMED]) + (", …" if jobs[_NAMED:] else "")
