"""A question's command: its options come from what may be asked, its answer goes to the terminal or to a file."""

from __future__ import annotations

import importlib
import inspect
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ullage.asking import Askable, WrongQuestionError
from ullage.cli._audience import UNSEEN, TerminalAudience
from ullage.cli._exit_status import end, in_words
from ullage.cli._names import is_group, question_module
from ullage.cli._suggested_values import complete_answer_file, completer
from ullage.cli.options import Finite, Progress, give, painter, say_written
from ullage.errors import harmless, public
from ullage.views.files import FORMS, check_out

if TYPE_CHECKING:
    from ullage.asking.question import Describer, RegisteredQuestion


def group_help(name: str) -> dict[str, Any]:
    """Return the help of a group that has no answer of its own, and the examples that end it."""
    package = importlib.import_module(question_module(name))
    return {"help": inspect.getdoc(package) or "", "epilog": f"\b\nExamples:{package.EXAMPLES}"}


def question_command(name: str, kind: type[click.Command] = click.Command) -> click.Command:
    """Load a question, and return its command, which is one of `kind`."""
    place = f"{question_module(name)}.{name}" if " " not in name and is_group(name) else question_module(name)
    question: RegisteredQuestion[Any, Any] = importlib.import_module(place).QUESTION
    fields = question.fields
    params = [_argument(field) if field.argument else option_of(field) for field in fields]

    def run(**words: Any) -> None:
        _answer(question, **words)

    minor = {field.name for field in fields if field.minor}
    command = type("QuestionCommand", (TwoLists, kind), {"minor": minor | {"only"} if minor else set()})
    made: click.Command = command(
        name.rpartition(" ")[2],
        params=[*params, *_output_options(fields, folder=question.to_folder is not None)],
        callback=run,
        help=inspect.getdoc(question.asked),
        epilog=f"\b\nExamples:{question.examples.rstrip()}\n\n{in_words(name, question.status_3, question.status_4)}",
        context_settings={"ignore_unknown_options": any(field.signed for field in fields)},
    )
    return made


_OUTPUT_OPTIONS = [
    click.Option(
        ["--out"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the report to FILE; the form follows its name.",
        shell_complete=complete_answer_file,
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON for programs."),
    click.Option(
        ["--only"],
        metavar="TABLE",
        help="Only one table of the report, with all its rows; with --out as CSV, Parquet, Arrow or Markdown. A wrong name lists them.",
    ),
]


_FILE_OR_FOLDER = click.Option(
    ["--out"],
    type=click.Path(path_type=Path),
    metavar="FILE|FOLDER",
    help="Write the report to FILE, whose form follows its name; or to FOLDER, as pages that are linked: an index, and one for each row.",
    shell_complete=complete_answer_file,
)


def _output_options(fields: Sequence[Askable], *, folder: bool = False) -> list[click.Option]:
    """Return where the answer goes. The answer of a question with an `out` of its own, for something else, is printed."""
    printed = any(field.flag == "--out" for field in fields)
    options = [option for option in _OUTPUT_OPTIONS if option.name == "as_json" or not printed]
    return [_FILE_OR_FOLDER if folder and option.name == "out" else option for option in options]


def _argument(field: Askable) -> click.Parameter:
    count = -1 if field.repeated else 1
    more: dict[str, Any] = {"required": field.required, "metavar": field.metavar, "envvar": field.env, "shell_complete": completer(field)}
    return click.Argument([field.name], nargs=count, type=_type(field), **more)


def option_of(field: Askable) -> click.Parameter:
    """Return a field as an option. What is not given is None, so that the question's own default holds."""
    names = [field.flag, *filter(None, [field.short]), field.name]
    if field.kind is bool and field.default is True:
        names = [f"{field.flag}/--no-{field.flag.removeprefix('--')}", field.name]
    told = field.default and field.kind is not bool and isinstance(field.default, str | int | float)
    shown = field.shown or (str(field.default) if told else "")
    help_text = f"{field.help}  [default: {shown}]" if shown else field.help
    if field.kind is bool:
        return click.Option(names, is_flag=True, default=None, help=help_text)
    more: dict[str, Any] = {"multiple": field.repeated, "required": field.required, "metavar": field.metavar, "envvar": field.env}
    return click.Option(names, type=_type(field), default=None, help=help_text, shell_complete=completer(field), **more)


def _type(field: Askable) -> click.ParamType[Any] | None:
    """Return what checks a value while the command line is read; what has a reader of its own is a text until then."""
    if field.read is not None:
        return None
    if field.choices:
        return click.Choice(field.choices)
    low, is_open = (field.above, True) if field.above is not None else (field.least, False)
    if field.kind is int and not field.bounds:
        return click.INT
    if field.kind is int:
        return click.IntRange(min=None if low is None else int(low), max=None if field.most is None else int(field.most), min_open=is_open)
    if field.kind is float:
        return Finite(min=low, max=field.most, min_open=is_open) if field.bounds else click.FLOAT
    return None


WHOLE_HELP = "ullage.whole_help"  # in the `meta` of a context: help lists all options


class TwoLists(click.Command):
    """A command whose help lists the options that matter first; with `--help-all` the rest stands in a list of its own."""

    minor: ClassVar[set[str]]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, among them `--help-all` where there are options that `--help` leaves out."""
        found = super().get_params(ctx)
        return [*found[:-1], _HELP_ALL, found[-1]] if self.minor and not ctx.meta.get(WHOLE_HELP) else found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options: those that matter, or all in two lists."""
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, minor in (("Options", False), *([("More options", True)] if ctx.meta.get(WHOLE_HELP) else [])):
            found = [option.get_help_record(ctx) for option in options if (option.name in self.minor) == minor]
            rows = [row for row in found if row is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _show_whole_help(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[WHOLE_HELP] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_whole_help, help="Show all options and exit."
)


def _answer(question: RegisteredQuestion[Any, Any], **words: Any) -> None:
    """Ask, and give the answer; a question that is put in a way that can't be read ends the command with the status of usage."""
    try:
        _give_answer(question, **words)
    except WrongQuestionError as error:
        raise click.UsageError("; ".join(filter(None, [error.problem, error.hint]))) from None


def _give_answer(question: RegisteredQuestion[Any, Any], **words: Any) -> None:
    """Ask, and give the answer: to a file, as JSON, or as text; the status says whether it is of a part only."""
    where = {str(option.name): words.pop(str(option.name)) for option in _output_options(question.fields)}
    out, as_json, only = where.get("out"), where["as_json"], where.get("only")
    if only and (as_json or (out is not None and out.suffix.lower() == ".json")):
        raise click.UsageError("JSON holds every table; leave out --only")
    progress = Progress(quiet=as_json)
    asked = question.with_file(question.question({name: value for name, value in words.items() if value not in (None, ())}), out)
    if out is not None and question.to_folder is not None and is_folder_name(out):
        _give_folder(question, asked, out, progress, alone=not (only or as_json))
        return
    described = question.describer(asked)
    check_out(out, described.forms, question.read_places(asked))
    shown, elsewhere = dict(_display(question, asked)), bool(out or only)
    audience = TerminalAudience(described, as_json=as_json, elsewhere=elsewhere)
    if question.goes_on(asked, audience):
        last = question.follow(asked, audience)
        if last is not None:
            _print(described, last, shown)
        return
    try:
        partial = question.straight_to_file(asked, out, progress)
        report = None if partial is not None else question.answer(asked, progress, _command_line(question))
    finally:
        progress.done()
    if report is None:
        say_written(out, partial or "")
        end(partial=bool(partial))
        return
    if as_json or elsewhere:
        view = described.view(report, **shown)
        because, more = getattr(report, "partial_because", ""), described.more_forms(report, view)
        give(view, lambda: described.record(report), as_json=as_json, out=out, more=more, partial_because=because, table=only or "")
    else:
        _print(described, report, shown)
    for remark in getattr(report, "remarks", ()):
        click.echo(remark, err=True)
    end(
        partial=not getattr(report, "complete", True),
        **{"under_limit" if question.status_4 else "gate": question.gate(asked, report)},
        interrupted=getattr(report, "interrupted", False),
    )


def is_folder_name(out: Path) -> bool:
    """Return whether a place is for a folder of pages: its name says no form, or it is a folder already and says none of a report's."""
    return not out.suffix or (out.is_dir() and out.suffix.lower() not in FORMS)


def _give_folder(question: RegisteredQuestion[Any, Any], asked: Any, out: Path, progress: Progress, *, alone: bool) -> None:
    """Give the answer as a folder of pages."""
    if not alone:
        raise click.UsageError("a folder of pages has every table: leave out --only and --json")
    from ullage.output_folder import clear_interrupted

    assert question.to_folder is not None
    if clear_interrupted(out):
        click.echo(
            f"an earlier run into '{harmless(str(out))}' was interrupted: its unfinished files are removed; starting again",
            err=True,
        )
    try:
        partial = question.to_folder(asked, out, progress, _command_line(question))
    finally:
        progress.done()
    say_written(out / "index.html", partial)
    end(partial=bool(partial))


def _print(described: Describer, report: Any, shown: Mapping[str, Any]) -> None:
    """Print a report as text that fits the terminal; where nobody looks, that fits a page. A text for programs is printed as it is."""
    from ullage.views.text import text

    if described.printed is not None:
        click.echo(described.printed(report), nl=False)
        return
    if described.fitted is None:
        click.echo(text(described.view(report, **shown), paint=painter()), nl=False)
        return
    width = shutil.get_terminal_size((UNSEEN, 24)).columns if sys.stdout.isatty() else UNSEEN
    click.echo(text(described.fitted(report, width, None), width=width, fill=True), nl=False)


def _display(question: RegisteredQuestion[Any, Any], asked: Any) -> Iterator[tuple[str, Any]]:
    for field in question.fields:
        if field.display:
            yield field.name, getattr(asked, field.name)


def _command_line(question: RegisteredQuestion[Any, Any]) -> str:
    """Return the command line without secrets: headers and passwords never reach a report."""
    secret = {field.flag for field in question.fields if field.secret}
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
