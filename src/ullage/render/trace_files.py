"""The report on a run as a file; the form follows the file's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ullage.errors import UllageError
from ullage.named import found
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.render.trace import view
from ullage.render.trace_json import record
from ullage.reports.trace.trace import TraceReport
from ullage.traces.trace import TraceOptions, recognised
from ullage.views.csv import chosen_table, table_csv
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form, replace, write_answer
from ullage.views.view import View

FORMS = (*VIEW_FORMS, ".svg", ".pftrace")
TREE_ONLY = "the files hold sums, no events: there is no timeline to draw"


def write(
    report: TraceReport,
    path: Path,
    *,
    files: Sequence[str] = (),
    made: View | None = None,
    data: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Write a report, or the view that was `made` of it with its `data`; an old file stays until the new is whole.

    `files` are read again for a .pftrace, which holds every event. Raises UllageError for a form that the report can't take.
    """
    if path.suffix.lower() == ".pftrace":
        replace(path, _perfetto(report, files))
        return
    shown = view(report) if made is None else made
    write_answer(path, shown, data or (lambda: record(report)), more_forms(report, shown))


def more_forms(report: TraceReport, made: View) -> dict[str, Form]:
    """Return what makes the forms of files that other reports do not have, and CSV: of the table that `--by` asks for."""
    asked_for = next((section.name.replace("-", " ") for section in made.sections if section.name.startswith("by-")), "")
    return {
        ".csv": lambda: table_csv(chosen_table(made, asked_for)),
        ".svg": lambda: _svg(report),
        ".parquet": lambda: _parquet(report),
    }


def timeline_of(report: TraceReport) -> str:
    """Return the timeline as a picture. Raises UllageError for a run of which only sums are known."""
    from ullage.render.svg.timeline import timeline

    if report.run is None:
        raise UllageError(TREE_ONLY, "name the file .html or .json, or draw the tree: ullage.read_trace(file).tree().svg()")
    return str(timeline(report.run, mode=report.mode))


def _svg(report: TraceReport) -> str:
    from ullage.render.svg.tree import tree

    if report.run is None:
        return str(tree(report.whole.host, report.whole.device, title=report.whole.name))
    return timeline_of(report)


def _parquet(report: TraceReport) -> bytes:
    from ullage.render.trace_parquet import parquet

    return parquet(report)


def _perfetto(report: TraceReport, files: Sequence[str]) -> Iterator[bytes]:
    """Yield every event of the files, read again one after the other; of a run that came without files its states."""
    from ullage.render.perfetto import events, perfetto

    if report.run is None:
        raise UllageError(TREE_ONLY, "name the file .html or .json")
    if not files:
        yield from perfetto(report.run)
    for number, path in enumerate(found(files)):
        try:
            format_, file = recognised(path)
        except UllageError:
            continue  # the report has counted it
        recording = Recording(file.name, source=format_.name)
        if format_.read is not None:
            yield from events(format_.read(file, recording, TraceOptions(), Problems()), recording, number=number)
