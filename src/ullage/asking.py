"""What may be asked, said once: a question is a dataclass, and each of its fields knows its help and how a text becomes its value.

The options of a command, the arguments of a Python function and the fields of a web form are made from the same
dataclass, so that they can't differ.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.written_values import moment, prices, seconds

Asked = TypeVar("Asked")
TextReader = Callable[[Any, str, float], Any]  # a text, or the texts of a repeated option; its flag; the time now in s → the value
_KEY = "askable"


@dataclass(frozen=True)
class Askable:
    """A field of a question: `flag` is its option, `read` makes its value from text, `env` names a variable of the environment.

    What is `repeated` may be given several times, what is `minor` a help lists last, and what is `secret` no report repeats.
    `shown` is the default in words, `least` the least whole number that may be given.
    """

    help: str
    name: str = ""
    flag: str = ""
    metavar: str | None = None
    read: TextReader | None = None
    env: str | None = None
    repeated: bool = False
    minor: bool = False
    secret: bool = False
    shown: str = ""
    least: int | None = None
    default: Any = None

    def value(self, given: Any, now: float) -> Any:
        """Return what was given as the field's value: texts are read, anything else is taken as it is, None is the default."""
        if given is None:
            return self.default
        if self.repeated and isinstance(given, str):
            given = (given,)
        text = isinstance(given, str) or (self.repeated and isinstance(given, tuple | list) and all(isinstance(g, str) for g in given))
        return self.read(given, self.flag, now) if self.read is not None and text else tuple(given) if isinstance(given, list) else given


def asked(help_text: str, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field that may be asked for; `more` is as in `Askable`. A bool is a switch, an int a whole number."""
    metadata = {_KEY: Askable(help_text, **more)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def askable(kind: type) -> list[Askable]:
    """Return the fields of a question that may be asked for, those of its own before those that it shares with other questions."""
    order = {name: number for number, name in enumerate(_field_names(kind))}
    found = []
    for field in dataclasses.fields(kind):
        if (told := field.metadata.get(_KEY)) is not None:
            default = {} if field.default_factory is not dataclasses.MISSING else field.default
            flag = told.flag or f"--{field.name.replace('_', '-')}"
            found.append(dataclasses.replace(told, name=field.name, flag=flag, default=default))
    return sorted(found, key=lambda one: order[one.name])


def _field_names(kind: type) -> list[str]:
    return list(dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base)))


def question_of(kind: type[Asked], given: Mapping[str, Any], *, noun: str, now: float | None = None) -> Asked:
    """Return the question that some words ask: values by field name, as texts or as what they mean.

    Raises UllageError for a word that the question does not have and for a text that cannot be read as its value. `now` is the time in s,
    which spans "before now" count back from.

    >>> @dataclass(frozen=True)
    ... class Sight:
    ...     since: int | None = asked("Start.", read=read_moment)
    >>> question_of(Sight, {"since": "1h"}, noun="a sight", now=7200)
    Sight(since=3600000)
    """
    fields = {field.name: field for field in askable(kind)}
    for word in given:
        if word not in fields:
            raise UllageError(f"{noun} has no '{harmless(word, 60)}'", did_you_mean(word, fields, ", ".join(fields)))
    moment_now = time.time() if now is None else now
    return kind(**{name: fields[name].value(value, moment_now) for name, value in given.items()})


def read_moment(text: str, flag: str, now: float) -> int | None:  # noqa: ARG001 - a TextReader
    """Read a time, in ms since 1970."""
    return moment(text, now)


def read_span(text: str, flag: str, now: float) -> float:  # noqa: ARG001 - a TextReader
    """Read a span of time, in s."""
    return seconds(text)


def read_positive_span(text: str, flag: str, now: float) -> float:  # noqa: ARG001 - a TextReader
    """Read a span of time of a millisecond or more, in s."""
    value = seconds(text)
    if value < 0.001:
        raise UllageError(f"{flag} {text} is too short", "a millisecond is the least")
    return value


def read_prices(texts: tuple[str, ...], flag: str, now: float) -> dict[str, float]:  # noqa: ARG001 - a TextReader
    """Read prices per GPU-hour, by GPU name."""
    return prices(texts)


def read_headers(texts: tuple[str, ...], flag: str, now: float) -> dict[str, str]:  # noqa: ARG001 - a TextReader
    """Read HTTP headers, by name."""
    return dict(_header(text) for text in texts)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n"):
        raise UllageError("a --header has no 'NAME: VALUE'", "write --header 'Authorization: Bearer …'")
    return name.strip(), value.strip()
