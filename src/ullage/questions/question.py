"""What a question is: what may be asked, its answer, and what the answer says. One file a question, from which every door is made."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.asking import askable, question_of
from ullage.registry import Registry

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RegisteredQuestion:
    """A question: `asked` is the dataclass of what may be asked, whose docstring is the help; `places` names its arguments.

    `answer` makes the report, from what is asked, a word about progress, and the command line that asks the same.
    `shown_by` is the module that describes the report: its `view`, its `record` for JSON, and the `more_forms` that files can
    have beside those of every view (`FORMS` lists all). `examples` end the help. `read_places` says which places are read, so
    that no answer takes their place. `brief` is how many rows a terminal shows, which `--top` changes; None: it has no such
    tables. `straight_to_file` answers what is too long to print, and returns why it is partial (None: it is not asked for).
    """

    name: str
    asked: type
    places: str
    noun: str
    answer: Callable[[Any, Progress, str], Any]
    shown_by: str
    examples: str
    read_places: Callable[[Any], list[str]]
    brief: int | None = None
    straight_to_file: Callable[[Any, Path | None, Progress], str | None] = lambda *_: None

    @property
    def shown(self) -> Any:
        """The module that describes the report, loaded when it is wanted."""
        return importlib.import_module(self.shown_by)

    def question(self, places: tuple[str, ...], given: Mapping[str, Any]) -> Any:
        """Return what some words ask of some places."""
        return question_of(self.asked, {self.places: places, **given}, noun=self.noun)


QUESTIONS: Registry[RegisteredQuestion] = Registry("question", package="ullage.questions", command="ullage --help")


def register(question: RegisteredQuestion) -> RegisteredQuestion:
    """Register a question under its name, which is its command's and its function's."""
    QUESTIONS.add(question.name, question)
    return question


def python_function(question: RegisteredQuestion) -> Callable[..., Any]:
    """Return the function that asks a question from Python: its places first, then what may be asked by keyword.

    Values may be texts as a command takes them ("24h", "H100=2.50"), or what they mean (ms since 1970, a mapping). `progress` is called
    with a word about how far the work is.
    """

    def ask(*places: Any, progress: Progress | None = None, **given: Any) -> Any:
        named = tuple(places[0]) if len(places) == 1 and isinstance(places[0], list | tuple) else places
        return question.answer(question.question(tuple(map(str, named)), given), progress or (lambda _: None), "")

    parameters = [inspect.Parameter(question.places, inspect.Parameter.VAR_POSITIONAL)]
    lines = []
    for one in askable(question.asked):
        if one.name != question.places:
            parameters.append(inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default))
            lines.append(f"{one.name}: {one.help}")
    parameters.append(inspect.Parameter("progress", inspect.Parameter.KEYWORD_ONLY, default=None))
    lines.append("progress: Is called with a word about how far the work is.")
    ask.__name__ = ask.__qualname__ = question.name
    ask.__module__ = question.asked.__module__
    ask.__doc__ = "\n\n".join([inspect.getdoc(question.asked) or "", "\n".join(lines), "Raises UllageError for what the user can fix."])
    ask.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return ask
