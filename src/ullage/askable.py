"""What may be asked, said once: a question is a dataclass, and each of its fields knows its help and how a text becomes its value.

The options of a command, the arguments of a Python function and the fields of a web form are made from the same
dataclass, so that they can't differ.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
import os
import sys
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeVar

from ullage.errors import UllageError, did_you_mean, harmless
from ullage.written_values import moment, prices, seconds, share

Asked = TypeVar("Asked")
TextReader = Callable[[Any, str, float], Any]  # a text, or the texts of a repeated option; its flag; the time now in s → the value
_KEY = "askable"


class WrongQuestionError(UllageError):
    """Words that can't be asked together: a question's `__post_init__` raises it, and its command ends as for a wrong option."""


@dataclass(frozen=True)
class Askable:
    """A field of a question: `flag` is its option, `read` makes its value from text, `env` names a variable of the environment.

    An `argument` stands on the command line without a flag; it and what is `positional` stand first among a function's arguments. What is
    `required` has no default, what is `repeated` may be given several times, what is `minor` a help lists last, and what is `secret` no
    report repeats. What is for `display` changes what is shown of an answer, not the answer: a command has it, a function does not.
    What `acts` does more than read: it keeps something on the disk, or names code to load. What is `local` says what is read on this
    machine, or how: a file, a folder, a URL; who answers questions over a network gives it himself. A `signed` one may begin with "-"
    without being an option, as numbers do. `shown` is the default in words, `short` a short flag such as "-p". A value is one of
    `choices`, if there are any; it is at least `least` or more than `above`, and at most `most`. The type of the field says of which
    `kind` (str, int, float, bool) its values are. Where values have names, `suggested` is where a shell finds them, MODULE:NAME of an
    iterable or of a function that returns one; others are taken as well.
    """

    help: str
    name: str = ""
    flag: str = ""
    short: str = ""
    metavar: str | None = None
    read: TextReader | None = None
    env: str | None = None
    argument: bool = False
    positional: bool = False
    required: bool = False
    repeated: bool = False
    minor: bool = False
    secret: bool = False
    display: bool = False
    signed: bool = False
    acts: bool = False
    local: bool = False
    shown: str = ""
    choices: tuple[str, ...] = ()
    suggested: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    default: Any = None
    kind: type = str

    def value(self, given: Any, now: float) -> Any:
        """Return what was given as the field's value: texts are read, as are times and spans of `datetime`, anything else is taken as it
        is, and None is the default.

        Raises UllageError for a text that can't be read, and for a value that the field can't have.
        """
        if given is None:
            return self.default
        if not self.repeated:
            return self._one(given, now)
        if isinstance(given, Mapping):
            return given
        several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        texts = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in several]
        if self.read is not None and all(isinstance(text, str) for text in texts):
            return self.read(tuple(texts), self.flag, now)
        return tuple(self._one(one, now) for one in texts)

    def _one(self, given: Any, now: float) -> Any:
        if isinstance(given, os.PathLike):
            given = os.fspath(given)
        elif isinstance(given, datetime.datetime):
            given = given.isoformat()
        elif isinstance(given, datetime.timedelta):
            given = f"{given.total_seconds()}s"
        if isinstance(given, str):
            given = self._number(given) if self.read is None else self.read(given, self.flag, now)
        if isinstance(given, str) and self.choices and given not in self.choices:
            raise UllageError(f"{self.name} '{harmless(given, 60)}' is not one of {', '.join(self.choices)}")
        if isinstance(given, int | float) and not self._within(given):
            raise UllageError(f"{self.name} must be {self.bounds or 'a finite number'}, not {given:g}")
        return given

    def _number(self, text: str) -> Any:
        """Return a text as the field's kind of number, or as it is where the field's values are texts."""
        if self.kind is bool:
            raise UllageError(f"{self.name} is True or False, not '{harmless(text, 60)}'")
        try:
            return text if self.kind is str else self.kind(text)
        except ValueError:
            noun = "a whole number" if self.kind is int else "a number"
            raise UllageError(f"{self.name} must be {noun}, not '{harmless(text, 60)}'") from None

    def _within(self, number: float) -> bool:
        """Return whether a number is finite and lies in the field's bounds."""
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
        )

    @property
    def bounds(self) -> str:
        """The bounds of the field's numbers, in words."""
        low = [f"{self.least:g} or more"] if self.least is not None else [f"more than {self.above:g}"] if self.above is not None else []
        return " and ".join([*low, *([f"at most {self.most:g}"] if self.most is not None else [])])


def asked(help_text: str, default: Any = None, **more: Any) -> Any:
    """Return a dataclass field that may be asked for; `more` is as in `Askable`. A bool is a switch, an int a whole number."""
    metadata = {_KEY: Askable(help_text, **more)}
    if more.get("required"):
        return dataclasses.field(metadata=metadata)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def askable(kind: type) -> list[Askable]:
    """Return the fields of a question that may be asked for, those of its own before those that it shares with other questions.

    Fields named in the question's `ALSO_MINOR` are minor to it, whatever they are to others.
    """
    return [*_askable(kind)]


@cache
def _askable(kind: type) -> tuple[Askable, ...]:
    order = {name: number for number, name in enumerate(_field_names(kind))}
    hints = hints_of(kind)
    fields = [_field(field, hints[field.name]) for field in dataclasses.fields(kind) if _KEY in field.metadata]
    also_minor = getattr(kind, "ALSO_MINOR", ())
    fields = [dataclasses.replace(field, minor=field.minor or field.name in also_minor) for field in fields]
    return tuple(sorted(fields, key=lambda one: order[one.name]))


def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields that may be asked for; other fields may name types that are known to a type checker alone."""
    found: dict[str, Any] = {}
    names = {field.name for field in dataclasses.fields(kind) if _KEY in field.metadata}
    for base in reversed(kind.__mro__):
        annotations = {name: hint for name, hint in inspect.get_annotations(base).items() if name in names}
        found |= typing.get_type_hints(types.SimpleNamespace(__annotations__=annotations), vars(sys.modules[base.__module__]))
    return found


def _field(field: dataclasses.Field[Any], hint: Any) -> Askable:
    """Return what a dataclass says of one of its fields."""
    written: Askable = field.metadata[_KEY]
    kind, choices = _kind_of(hint)
    return dataclasses.replace(
        written,
        name=field.name,
        flag=written.flag or f"--{field.name.replace('_', '-')}",
        default=None if written.required else {} if field.default_factory is not dataclasses.MISSING else field.default,
        choices=written.choices or choices,
        kind=kind,
    )


def _kind_of(hint: Any) -> tuple[type, tuple[str, ...]]:
    """Return the kind of a type's values, and those values that it names.

    >>> _kind_of(int | None), _kind_of(tuple[float, ...]), _kind_of(Literal["all", "last"])
    ((<class 'int'>, ()), (<class 'float'>, ()), (<class 'str'>, ('all', 'last')))
    """
    if typing.get_origin(hint) is Literal:
        return str, typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union, tuple):
        parts = [part for part in typing.get_args(hint) if part not in (type(None), ...)]
        return _kind_of(parts[0]) if len(parts) == 1 else (str, ())
    return (hint, ()) if hint in (bool, int, float) else (str, ())


def _field_names(kind: type) -> list[str]:
    return list(dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base)))


def question_of(
    kind: type[Asked], given: Mapping[str, Any], *, noun: str, command: str = "ullage --help", now: float | None = None
) -> Asked:
    """Return the question that some words ask: values by field name, as texts or as what they mean.

    Raises UllageError for a word that the question does not have, for one that it lacks, and for a text that cannot be read as its value.
    `command` lists all words; `now` is the time in s, which spans "before now" count back from.

    >>> @dataclass(frozen=True)
    ... class Sight:
    ...     since: int | None = asked("Start.", read=read_moment)
    >>> question_of(Sight, {"since": "1h"}, noun="a sight", now=7200)
    Sight(since=3600000)
    """
    fields = {field.name: field for field in askable(kind)}
    for word in given:
        if word not in fields:
            raise UllageError(f"{noun} has no '{harmless(word, 60)}'", did_you_mean(word, fields, command))
    for name, field in fields.items():
        if field.required and given.get(name) is None:
            raise UllageError(f"{noun} needs {name}: {field.help}", f"`{command}` lists all")
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


def read_share(text: str, flag: str, now: float) -> float:  # noqa: ARG001 - a TextReader
    """Read a ratio, which may be written as percent."""
    return share(text, flag)


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


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window of time, in ms since 1970; None: as far as the samples reach."""

    since: int | None = asked("Start of the window: a time, or a span before now (24h, 7d).", read=read_moment)
    until: int | None = asked("End of the window.", read=read_moment)
