"""Who holds a training job up, and the same as plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.reports.trace.stragglers import STRAGGLING, Cause, StragglerReport
from ullage.views.notation import COUNT, FIGURES, PERCENT, TIME, Notation
from ullage.views.numbers import counted, factor, percent
from ullage.views.times import seconds
from ullage.views.view import Column, Fact, Headline, Section, Table, Value, View

SLOWDOWN = Notation("ratio", lambda value: f"{value:.3f}")
_WHAT_IF = "Share of the loss that is gone once these take as long as their peers do."
_ALONE = "How many times as long a step takes as without stragglers, if only this one kept its own durations."
_RANK = "A rank's slowdown is the lower one of its replica's and its stage's."
_WITHIN = "Replayed: the recorded operations without gaps that no dependency explains. Ideal: each operation takes as long as its peers do."


def view(report: StragglerReport, top: int = 12) -> View:
    """Return the answer, what each suspect explains, and the slowdown by rank, replica, stage, operation and step.

    A slowdown below 1.1 is no straggler's.
    """
    gaps = ": gaps that nothing explains" if report.gaps >= 1.005 else ""
    return View(
        kind="trace-stragglers",
        subject="Stragglers of a training job",
        window=f"{counted(len(report.steps), 'step')}, {counted(len(report.workers), 'rank')}: {_size(report)}",
        headline=Headline(f"Slowdown {report.slowdown:.3f}", before="partial: " if report.partial else "", aside=verdict(report)),
        lede=[
            f"A step takes {_time(report.replayed)}, without stragglers {_time(report.ideal)}.",
            f"{_time(report.recorded)} a step were recorded, {factor(report.gaps)} times the replay{gaps}.",
        ],
        facts=[
            Fact("a step", report.replayed * 1e9, TIME, f"recorded {_time(report.recorded)}"),
            Fact("without stragglers", report.ideal * 1e9, TIME, f"peers: the same {report.peers}"),
            Fact("ranks", len(report.workers), COUNT, _size(report)),
        ],
        sections=[*_sections(report, top)],
        notes=[harmless(note, 400) for note in report.notes],
    )


def _size(report: StragglerReport) -> str:
    return f"{counted(len(report.replicas), 'replica')} × {counted(len(report.stages), 'stage')}"


def _time(value: float) -> str:
    return seconds(value * 1e9)


def verdict(report: StragglerReport) -> str:
    """Return what the cause is, in words."""
    if report.slowdown < STRAGGLING:
        return f"no stragglers to speak of (below {STRAGGLING})"
    if report.cause is None:
        return "no single cause explains half of it"
    return f"{_sentence(report.cause)}, {percent(report.cause.share)} of the loss"


def _sentence(cause: Cause) -> str:
    if cause.kind == "microbatches":
        return "microbatches are of unequal length"
    if cause.kind == "worker":
        return f"slow: {'ranks' if ',' in cause.name else 'rank'} {cause.name}"
    if cause.kind == "communication":
        return f"slow: {cause.name}"
    return f"slow: replica {cause.name}" if cause.kind == "replica" else f"long: stage {cause.name}"


def _named(cause: Cause, last: str) -> str:
    word = {
        "worker": f"slowest 3 % of ranks ({cause.name})",
        "stage": f"stage {cause.name}" + (" (the last)" if cause.name == last else ""),
        "microbatches": "unequal microbatches (sequence lengths)",
        "communication": cause.name,
        "replica": f"replica {cause.name}",
    }
    return word[cause.kind]


def _sections(report: StragglerReport, top: int) -> Iterator[Section]:
    last = report.stages[-1].name
    causes: list[list[Value]] = [[_named(cause, last), cause.share] for cause in report.causes]
    columns = [Column("what explains it", key="cause"), Column("share", PERCENT)]
    yield Section("causes", "What explains it", [_table("causes", columns, causes, len(causes))], _WHAT_IF)
    if len(report.workers) > 1:
        ranks: list[list[Value]] = [[f"{w.rank}", f"{w.dp_rank}", f"{w.stage}", w.slowdown] for w in report.workers]
        columns = [Column("rank"), Column("replica", FIGURES), Column("stage", FIGURES), Column("slowdown", SLOWDOWN)]
        yield Section("ranks", "Ranks", [_table("ranks", columns, ranks, top)], _RANK)
    for name, rows in (("stage", report.stages), ("replica", report.replicas), ("operation", report.operations)):
        if len(rows) > 1 or name == "operation":
            listed: list[list[Value]] = [[row.name, row.slowdown] for row in rows]
            yield Section(
                f"{name}s", f"{name.capitalize()}s", [_table(f"{name}s", [Column(name), Column("slowdown", SLOWDOWN)], listed, top)], _ALONE
            )
    slow = sorted(report.steps, key=lambda step: (-step.slowdown, step.step))
    steps: list[list[Value]] = [
        [f"{step.step}", *(time * 1e9 for time in (step.recorded, step.replayed, step.ideal)), step.slowdown] for step in slow
    ]
    columns = [Column("step"), *(Column(name, TIME) for name in ("recorded", "replayed", "ideal")), Column("slowdown", SLOWDOWN)]
    yield Section("steps", "Steps", [_table("steps", columns, steps, top)], _WITHIN)


def _table(name: str, columns: list[Column], rows: list[list[Value]], top: int) -> Table:
    return Table(name, columns, rows, brief=top, elsewhere="--top shows them")


def record(report: StragglerReport) -> dict[str, Any]:
    """Return the report for JSON; times in s, slowdowns and shares as plain ratios."""
    return asdict(report)
