"""What a question is: what may be asked, its answer, and what the answer says. One file a question, from which every door is made."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ullage.asking import Askable, askable, hints_of, question_of
from ullage.errors import public
from ullage.registry import Registry

if TYPE_CHECKING:
    from ullage.views.files import Form
    from ullage.views.view import View

Progress = Callable[[str], None]
Q = TypeVar("Q")
R = TypeVar("R")


class Keyboard(Protocol):
    """The keys of whoever looks at a screen: a letter, or a word ("up", "enter", "escape", …)."""

    def wait(self) -> str:
        """Return the next key; "" when somebody woke it, or the terminal has another size."""

    def wake(self) -> None:
        """End a `wait`; fit for another thread and for a signal handler."""


class Audience(Protocol):
    """Who follows an answer while it comes: somebody at a terminal, a pipe, or a program that wants JSON."""

    as_json: bool
    at_terminal: bool

    def line(self, words: str) -> None:
        """Print a line of the answer."""

    def remark(self, words: str) -> None:
        """Say something beside the answer."""

    def ended_by(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `stop` when they want it to end."""

    def screens(self, first: str) -> AbstractContextManager[Callable[[Any], None]]:
        """Return what shows a report in place of the one before; `first` are words that stand there until then."""

    def keyboard(self) -> AbstractContextManager[Keyboard]:
        """Return what tells which keys are pressed; they are not shown."""


@dataclass(frozen=True)
class Describer:
    """The functions that describe an answer: as a view, as plain data for JSON, and in `forms` that not every view has.

    `fitted` describes what fits a terminal of so many columns and lines (None: as many as it takes). An answer that is itself a text for
    other programs is `printed` as that in place of its view.
    """

    view: Callable[..., View]
    record: Callable[[Any], Any]
    forms: tuple[str, ...]
    more_forms: Callable[[Any, View], Mapping[str, Form]] = lambda *_: {}
    fitted: Callable[[Any, int, int | None], View] | None = None
    printed: Callable[[Any], str] | None = None


@dataclass(frozen=True)
class RegisteredQuestion(Generic[Q, R]):
    """A question: its `name` is its command's ("audit mfu"), and `asked` the dataclass of what may be asked, whose docstring is the help.

    `answer` makes the report, from what is asked, a word about progress, and the command line that asks the same.

    `shown_by` names the module that describes the report: its `view`, its `record` for JSON; where files can have other forms than those
    of every view, `FORMS` and `more_forms`; where a terminal is filled, `fitted_view`; and where the command prints a text for other
    programs, `printed`. "module:listing" names its `listing_view` and
    `listing_record`. Where it depends on what is asked, it is a function of that.

    `examples` end the help. `read_places` says which places are read, so that no answer takes their place. `listed_by` says what lists
    its words, where that is not the help of its command. `gate` is whether an answer to a question makes the command end with status 3
    for a script, and `status_3` says when it does so, by the gate or because the answer is partial. With a `status_4`, which says when, the
    gate is a limit that the user named, and has that status of its own. `straight_to_file` answers what is
    too long to print, and returns why it is partial (None: it is not asked for). With `to_folder` an answer can be a folder of pages:
    from what is asked, the folder, a word about progress and the command line it writes them, and returns why they are partial.
    One that `only_reads` runs nothing that a user named,
    measures nothing and writes nothing. `with_file` returns a question that knows in which file its answer will be: what takes long
    keeps parts of it there.

    What `goes_on` until Ctrl-C, or while somebody looks, a command does not ask for an `answer`: it has them `follow` it, and prints the
    report that comes of it, if one does.

    Of a report, `complete` and `partial_because` say whether it is of all that was asked for, `interrupted` that Ctrl-C ended it, and
    `remarks` what a person is told beside the answer, where it has them.
    """

    name: str
    asked: type[Q]
    noun: str
    answer: Callable[[Q, Progress, str], R]
    shown_by: str | Callable[[Q], str]
    examples: str
    read_places: Callable[[Q], Sequence[str]] = lambda _: ()
    gate: Callable[[Q, R], bool] = lambda *_: False
    straight_to_file: Callable[[Q, Path | None, Progress], str | None] = lambda *_: None
    to_folder: Callable[[Q, Path, Progress, str], str] | None = None
    listed_by: str = ""
    status_3: str = ""
    status_4: str = ""
    only_reads: bool = True
    with_file: Callable[[Q, Path | None], Q] = lambda question, _: question
    goes_on: Callable[[Q, Audience], bool] = lambda *_: False
    follow: Callable[[Q, Audience], R | None] = lambda *_: None

    def command_line(self, given: Mapping[str, Any]) -> str:
        """Return the command that asks what some words ask, texts by the names of fields; what is secret is left out."""
        words = ["ullage", *self.name.split(" ")]
        for field in self.fields:
            values = given.get(field.name)
            if values is None or field.secret:
                continue
            if field.kind is bool:
                words += [field.flag if values else f"--no-{field.flag.removeprefix('--')}"] if values != field.default else []
            else:
                each = values if isinstance(values, tuple) else (values,)
                words += [word for value in each for word in (() if field.argument else (field.flag,)) + (public(str(value)),)]
        return shlex.join(words)

    @property
    def function_name(self) -> str:
        """What its Python function is called."""
        return self.name.replace(" ", "_").replace("-", "_")

    @property
    def fields(self) -> list[Askable]:
        """What may be asked; its arguments, then its options."""
        return sorted(askable(self.asked), key=lambda field: not (field.argument or field.positional))

    def describer(self, question: Q) -> Describer:
        """Return what describes the answer to a question; its module is loaded when it is wanted."""
        named = self.shown_by if isinstance(self.shown_by, str) else self.shown_by(question)
        from ullage.views.files import FORMS

        module_name, _, part = named.partition(":")
        module: Any = importlib.import_module(module_name)
        if part:
            return Describer(getattr(module, f"{part}_view"), getattr(module, f"{part}_record"), FORMS)
        forms, more_forms = (module.FORMS, module.more_forms) if hasattr(module, "more_forms") else (FORMS, Describer.more_forms)
        fitted, printed = getattr(module, "fitted_view", None), getattr(module, "printed", None)
        return Describer(module.view, module.record, forms, more_forms, fitted, printed)

    def question(self, given: Mapping[str, Any], now: float | None = None) -> Q:
        """Return what some words ask; spans before now count back from `now` (s since 1970)."""
        return question_of(self.asked, given, noun=self.noun, command=self.listed_by or f"ullage {self.name} --help", now=now)


QUESTIONS: Registry[RegisteredQuestion[Any, Any]] = Registry("question", package="ullage.questions", command="ullage --help", folders=True)


def register(question: RegisteredQuestion[Q, R]) -> RegisteredQuestion[Q, R]:
    """Register a question under its name, which is its command's."""
    QUESTIONS.add(question.name, question)
    return question


def python_function(question: RegisteredQuestion[Q, R]) -> Callable[..., R]:
    """Return the function that asks a question from Python: what a command takes without a flag first, then what may be asked by keyword.

    Values may be texts as a command takes them ("24h", "H100=2.50"), or what they mean (ms since 1970, a mapping). `progress` is called
    with a word about how far the work is.
    """

    def ask(*arguments: Any, progress: Progress | None = None, **given: Any) -> R:
        return question.answer(question.question({**_by_name(question, arguments), **given}), progress or (lambda _: None), "")

    parameters, lines = [], []
    hints = hints_of(question.asked)
    for one in question.fields:
        if not one.display:
            default = inspect.Parameter.empty if one.required or (one.argument and one.repeated) else one.default
            parameters.append(inspect.Parameter(one.name, _parameter_kind(one), default=default, annotation=hints[one.name]))
            lines.append(f"{one.name}: {one.help}")
    parameters.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=None))
    lines.append("progress: Is called with a word about how far the work is.")
    ask.__name__ = ask.__qualname__ = question.function_name
    ask.__module__ = question.asked.__module__
    ask.__doc__ = "\n\n".join([inspect.getdoc(question.asked) or "", "\n".join(lines), "Raises UllageError for what the user can fix."])
    ask.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return ask


def _parameter_kind(field: Askable) -> Any:
    if not field.argument and not field.positional:
        return inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter.VAR_POSITIONAL if field.repeated else inspect.Parameter.POSITIONAL_OR_KEYWORD


def _by_name(question: RegisteredQuestion[Any, Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return a function's positional arguments by the names of the fields; several places may come as one list."""
    fields = [field for field in question.fields if field.argument or field.positional]
    single = [field for field in fields if not field.repeated]
    rest = arguments[len(single) :]
    given: dict[str, Any] = {field.name: value for field, value in zip(single, arguments, strict=False)}
    if rest and len(single) == len(fields):
        raise TypeError(f"{question.function_name}() takes {len(single)} arguments before its words, not {len(arguments)}")
    if rest:
        given[fields[-1].name] = tuple(rest[0]) if len(rest) == 1 and isinstance(rest[0], list | tuple) else rest
    return given
