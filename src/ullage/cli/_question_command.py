"""A question's command: its options come from what may be asked, its answer goes to the terminal or to a file."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.asking import Askable, askable
from ullage.cli._exit_status import end
from ullage.cli.options import Progress, check_out, give, say_written
from ullage.errors import public

if TYPE_CHECKING:
    from ullage.questions.question import RegisteredQuestion

_MEMBERLESS = {"question", "telemetry"}  # what questions share


def question_names() -> list[str]:
    """Return the names of the questions that are commands, without loading them."""
    import ullage.questions

    names = {m.name for m in pkgutil.iter_modules(ullage.questions.__path__) if not m.name.startswith("_")}
    return sorted(names - _MEMBERLESS)


def question_command(name: str) -> click.Command:
    """Load a question, and return its command."""
    question: RegisteredQuestion = importlib.import_module(f"ullage.questions.{name}").QUESTION
    fields = askable(question.asked)
    places = next(field for field in fields if field.name == question.places)
    params: list[click.Parameter] = [click.Argument(["places"], nargs=-1, required=True, metavar=places.metavar)]
    params += [_option(field) for field in fields if field.name != question.places]
    if question.brief is not None:
        params.append(_rows_option(question.brief))
    params += _OUTPUT_OPTIONS

    def run(**words: Any) -> None:
        _answer(question, **words)

    minor = {field.name for field in fields if field.minor}
    return _QuestionCommand(
        name, params=params, callback=run, minor=minor, help=inspect.getdoc(question.asked), epilog=f"\b\nExamples:{question.examples}"
    )


_OUTPUT_OPTIONS = [
    click.Option(
        ["--out"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the report to FILE; the form follows its name.",
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs."),
]


def _rows_option(rows: int) -> click.Option:
    return click.Option(["--top"], type=click.IntRange(min=0), default=rows, show_default=True, help="Rows of a table.")


def _option(field: Askable) -> click.Option:
    """Return a field as an option. What is not given is None, so that the question's own default holds."""
    names = [field.flag, field.name]
    if isinstance(field.default, bool):
        return click.Option(names, is_flag=True, help=field.help)
    kind = click.IntRange(min=field.least) if isinstance(field.default, int) else None
    help_text = f"{field.help}  [default: {field.shown}]" if field.shown else field.help
    return click.Option(names, type=kind, multiple=field.repeated, metavar=field.metavar, envvar=field.env, default=None, help=help_text)


class _QuestionCommand(click.Command):
    """A command whose help lists what matters first, and then the rest."""

    def __init__(self, *args: Any, minor: set[str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._minor = minor

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two lists."""
        for title, minor in (("Options", False), ("More options", True)):
            options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
            found = [option.get_help_record(ctx) for option in options if (option.name in self._minor) == minor]
            rows = [row for row in found if row is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _answer(
    question: RegisteredQuestion, places: tuple[str, ...], as_json: bool, out: Path | None, top: int | None = None, **words: Any
) -> None:
    """Ask, and give the answer: to a file, as JSON, or as text; the status says whether it is of a part only."""
    progress = Progress(quiet=as_json)
    asked = question.question(places, {name: value for name, value in words.items() if value not in (None, ())})
    if out is not None:
        check_out(out, question.shown.FORMS, question.read_places(asked))
    try:
        partial = question.straight_to_file(asked, out, progress)
        report = None if partial is not None else question.answer(asked, progress, _command_line(question))
    finally:
        progress.done()
    if report is None:
        say_written(out, partial or "")
    else:
        shown, rows = question.shown, {} if top is None else {"top": top}
        view, because = shown.view(report, **rows), report.partial_because
        give(view, lambda: shown.record(report), as_json=as_json, out=out, more=shown.more_forms(report, view), partial_because=because)
    end(partial=bool(partial) if report is None else not report.complete)


def _command_line(question: RegisteredQuestion) -> str:
    """Return the command line without secrets: headers and passwords never reach a report."""
    secret = {field.flag for field in askable(question.asked) if field.secret}
    return shlex.join(["ullage", *_public(sys.argv[1:], secret)])


def _public(arguments: Sequence[str], secret: set[str]) -> list[str]:
    shown: list[str] = []
    hidden = False
    for argument in arguments:
        flag = argument.partition("=")[0]
        if hidden:
            shown.append("…")
        elif flag in secret and "=" in argument:
            shown.append(f"{flag}=…")
        else:
            shown.append(public(argument))
        hidden = not hidden and argument in secret
    return shown
