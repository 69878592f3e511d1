"""Every question of the registry in every form: text, JSON, a page, Markdown and CSV exist, and say the same numbers."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask
from tests.render.forms import plain, unlike_csv, untold
from tests.test_exit_status import CASES, Case, no_gpu, world
from ullage.asking.question import QUESTIONS, Describer, RegisteredQuestion
from ullage.cli._exit_status import ANSWERED, GATE
from ullage.views.csv import table_csv
from ullage.views.files import FORMS, printed
from ullage.views.notation import GPU_HOURS, PERCENT
from ullage.views.text import text
from ullage.views.view import Column, Headline, Section, Table, View

__all__ = ["no_gpu", "world"]  # fixtures

# Where the first command that answers shows nothing of a report's own, another one.
OTHERS = {"audit counter": "audit counter trainer:flops", "cupti stalls": "cupti stalls --reasons", "bench": "bench --from results.json"}
DOUBLES = {"sass", "cupti check"}  # in place of whose report there a double stands
LEFT_OUT = r"…\s+[\d,]+ more"  # rows that a short form lacks
WHEN = r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?(?: to (?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)?)?"
COUNTED = {  # what forms count, divide or explain that the data leave to their readers
    "cupti diff": ("56", "20", "12", "6", "2"),  # metrics of a hardware unit
    "doctor": ("18",),  # checks
    "gpus": ("9", "16 %", "4.6", "1084", "1096"),  # the words on a clock that the driver tells, whose factors the data have
    "job": ("16.7 h",),  # from start to end
    "simulate": ("0.1 h",),
    "store info": ("717.8",),  # bytes a sample
    "top": ("29 s",),  # how long ago
    "trace stragglers": ("1.1", "3 %"),  # thresholds
    "watch": ("16.6 h",),
}
# What the tests of their rooms and the golden answers compare in the quick suite, too
LONGER = {"watch", "trace", "fleet", "job", "doctor", "dashboard", "store compact", "cupti chips", "audit counter", "top"}
SCALES = (100.0, 1e-12, 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9, 2**-10, 2**-20)  # the units of columns, from SI


@dataclasses.dataclass
class Shown:
    """What a command was about to show: its view and its data."""

    view: View
    data: Mapping[str, Any]


def shown_by(words: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Ask a command, and return what it shows before any form."""
    seen: list[tuple[Describer, Any]] = []
    describer = RegisteredQuestion.describer

    def noted(question: RegisteredQuestion[Any, Any], asked: Any) -> Describer:
        found = describer(question, asked)

        def record(report: Any) -> Any:
            seen.append((found, report))
            return found.record(report)

        def view(report: Any, **more: Any) -> View:
            seen.append((found, report))
            return found.view(report, **more)

        return dataclasses.replace(found, record=record, view=view, printed=None, fitted=None)

    monkeypatch.setattr(RegisteredQuestion, "describer", noted)
    said = ask(*words.split())
    assert seen, f"{name}: {said}"
    found, report = seen[-1]
    view = found.view(report)
    return Shown(view, found.record(report))


def words_of(name: str) -> tuple[str, Callable[[pytest.MonkeyPatch], None] | None]:
    """Return a command that a question answers, and what makes it possible here."""
    of_question = [case for case in CASES if case[0] == name]
    for case in of_question:
        if case[1] == (GATE if name in OTHERS and case[2] == OTHERS[name] else ANSWERED) and case[2] == OTHERS.get(name, case[2]):
            return case[2], _patch(case)
    return OTHERS[name], None


def _patch(case: Case) -> Callable[[pytest.MonkeyPatch], None] | None:
    return case[3] if len(case) > 3 else None


NAMES = [pytest.param(name, marks=pytest.mark.full) if name in LONGER else name for name in sorted(set(QUESTIONS) - DOUBLES)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("no_gpu")
def test_every_question_has_every_form_and_all_say_the_same_numbers(name: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, patch = words_of(name)
    monkeypatch.chdir(world)
    monkeypatch.syspath_prepend(str(world))
    monkeypatch.setenv("COLUMNS", "120")
    if patch is not None:
        patch(monkeypatch)
    shown = shown_by(words, name, monkeypatch)
    pages = {ending: printed(shown.view, lambda: shown.data, ending) for ending in (".html", ".md", ".txt", ".json")}
    forms = {ending: page if isinstance(page, str) else page.decode() for ending, page in pages.items()}
    assert forms[".html"].startswith("<!doctype html>") and "<h1" in forms[".html"] and "<script src" not in forms[".html"]
    assert forms[".md"].strip() and forms[".txt"].strip() and json.loads(forms[".json"])["schema"].startswith("ullage.")
    said_by = {
        "text": text(shown.view),
        "page": plain(forms[".html"]),
        "markdown": forms[".md"].replace("\\", ""),
        "whole text": forms[".txt"],
    }
    known = COUNTED.get(name, ())
    for form, said in said_by.items():
        assert untold(re.sub(f"{LEFT_OUT}|{WHEN}", "", said), shown.data, known, SCALES) == [], form
    for table in shown.view.tables.values():
        agrees_with_csv(table, shown.view)


def agrees_with_csv(table: Table, view: View) -> None:
    """Assert that a table as CSV has the rows, the columns and the values of the view."""
    made, page = (printed(view.alone(table.name), dict, form) for form in (".csv", ".html"))
    assert isinstance(made, str) and isinstance(page, str)
    rows = [*csv.reader(io.StringIO(made))]
    assert len(rows) == 1 + len(table.rows) and all(len(row) == len(rows[0]) for row in rows)
    assert unlike_csv(page, made, table) == [], table.name


def test_a_value_that_a_page_and_csv_say_otherwise_is_seen() -> None:
    columns = [Column("job"), Column("ullage", GPU_HOURS), Column("OFU", PERCENT)]
    tables = [Table("rows", columns, [["a", hours, 0.5], [name, None, known]]) for hours, name, known in (
        (1.5, "b", 0.25), (1.50002, "b", 0.25), (1.5, "c", 0.25), (1.5, "b", None),
    )]  # fmt: skip
    view = View(kind="fleet", subject="", headline=Headline(""), sections=[Section("rows", "", [tables[0]])])
    page = printed(view, dict, ".html")
    assert isinstance(page, str)
    assert [len(unlike_csv(page, table_csv(table), table)) for table in tables] == [0, 1, 1, 1]


def test_every_form_that_all_views_have_is_a_form_of_every_question() -> None:
    for question in QUESTIONS.values():
        if isinstance(question.shown_by, str):
            assert set(FORMS) <= set(question.describer(None).forms), question.name
