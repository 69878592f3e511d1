"""Who holds a training job up: as text, as plain data for JSON, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ullage.errors import harmless
from ullage.render.html_tables import Cell, listed
from ullage.render.html_tables import table as html_table
from ullage.reports.stragglers import STRAGGLING, Cause, Step, StragglerReport
from ullage.views.markup import element
from ullage.views.numbers import factor, percent
from ullage.views.page import document, figures, section
from ullage.views.table import table
from ullage.views.times import seconds

PAGE = 500  # rows of a table on a page
_WHAT_IF = "Share of the loss that is gone once these take as long as their peers do."
_ALONE = "How many times as long a step takes as without stragglers, if only this one kept its own durations."
_WITHIN = "Replayed: the recorded operations without gaps that no dependency explains. Ideal: each operation takes as long as its peers do."


def headline(report: StragglerReport) -> str:
    """Return the answer: the slowdown, and its cause.

    A slowdown below 1.1 is no straggler's.
    """
    times = f"a step takes {seconds(report.replayed * 1e9)}, without stragglers {seconds(report.ideal * 1e9)}"
    return f"slowdown {report.slowdown:.3f}: {times}; {verdict(report)}"


def verdict(report: StragglerReport) -> str:
    """Return what the cause is, in words."""
    if report.slowdown < STRAGGLING:
        return f"no stragglers to speak of (below {STRAGGLING})"
    if report.cause is None:
        return "no single cause explains half of it"
    return f"{_sentence(report.cause)} ({percent(report.cause.share)} of the loss)"


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


def text(report: StragglerReport, top: int = 12) -> str:
    """Return the answer, what each suspect explains, the slowdown by rank, replica, stage, operation and step, and the notes."""
    parts = [
        headline(report),
        _facts(report),
        *(_cut(head, rows, top if number else len(rows)) for number, (head, rows) in enumerate(_tables(report)) if rows),
        "\n".join(f"note: {harmless(note, 400)}" for note in report.notes),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(report: StragglerReport) -> str:
    size = f"{len(report.steps):,} steps, {len(report.workers):,} ranks: {len(report.replicas):,} replicas × {len(report.stages):,} stages"
    gaps = ": gaps that nothing explains" if report.gaps >= 1.005 else ""
    return f"{size}\nrecorded {seconds(report.recorded * 1e9)} a step, {factor(report.gaps)} times the replay{gaps}"


def _cut(head: Sequence[str], rows: Sequence[Sequence[str]], top: int) -> str:
    more = len(rows) - top
    return table(head, rows[:top]) + (f"\n… and {more:,} more; --top shows them" if more > 0 else "")


def _tables(report: StragglerReport) -> list[tuple[list[str], list[list[str]]]]:
    last = report.stages[-1].name
    slow = sorted(report.steps, key=lambda step: (-step.slowdown, step.step))
    several = len(report.workers) > 1
    return [
        (["what explains it", "share"], [[_named(cause, last), percent(cause.share)] for cause in report.causes]),
        (
            ["rank", "replica", "stage", "slowdown"],
            [[str(w.rank), str(w.dp_rank), str(w.stage), f"{w.slowdown:.3f}"] for w in report.workers if several],
        ),
        (["stage", "slowdown"], [[row.name, f"{row.slowdown:.3f}"] for row in report.stages if len(report.stages) > 1]),
        (["replica", "slowdown"], [[row.name, f"{row.slowdown:.3f}"] for row in report.replicas if len(report.replicas) > 1]),
        (["operation", "slowdown"], [[row.name, f"{row.slowdown:.3f}"] for row in report.operations]),
        (["step", "recorded", "replayed", "ideal", "slowdown"], [_step(step) for step in slow]),
    ]


def _step(step: Step) -> list[str]:
    return [f"{step.step:,}", *(seconds(time * 1e9) for time in (step.recorded, step.replayed, step.ideal)), f"{step.slowdown:.3f}"]


def record(report: StragglerReport) -> dict[str, Any]:
    """Return the report for JSON; times in s, slowdowns and shares as plain ratios."""
    return asdict(report)


def page(report: StragglerReport) -> str:
    """Return the report as one self-contained HTML document."""
    names = ("causes", "ranks", "stages", "replicas", "operations", "steps")
    titles = ("What explains it", "Ranks", "Stages", "Replicas", "Operations", "Steps")
    how = (_WHAT_IF, "A rank's slowdown is the lower one of its replica's and its stage's.", _ALONE, _ALONE, _ALONE, _WITHIN)
    return str(
        document(
            "stragglers",
            element(
                "header",
                element("p", "Stragglers of a training job", class_="eyebrow"),
                element("h1", f"Slowdown {report.slowdown:.3f}", element("small", verdict(report))),
            ),
            figures(
                [
                    ("a step", seconds(report.replayed * 1e9), f"recorded {seconds(report.recorded * 1e9)}"),
                    ("without stragglers", seconds(report.ideal * 1e9), f"peers: the same {report.peers}"),
                    ("ranks", f"{len(report.workers):,}", f"{len(report.replicas):,} replicas × {len(report.stages):,} stages"),
                ]
            ),
            [
                section(name, title, said, html_table(title, head, [_cells(row) for row in rows[:PAGE]], sorts=True))
                for name, title, said, (head, rows) in zip(names, titles, how, _tables(report), strict=True)
                if rows
            ],
            section("notes", "Notes", "", listed(report.notes)),
        )
    )


def _cells(row: Sequence[str]) -> list[Cell]:
    return [Cell(row[0]), *(Cell(shown, _plain(shown)) for shown in row[1:])]


_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3}  # s


def _plain(shown: str) -> float | None:
    """Return the number to sort a cell by, times in s."""
    number, _, unit = shown.replace(",", "").partition(" ")
    try:
        return float(number) * _UNITS.get(unit, 1.0)
    except ValueError:
        return None
