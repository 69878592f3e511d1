"""What a check is: one function under `@check`, in a file `check_….py` of this folder.

A new check is such a file and a line in the table of `timetable.py`, which says what the check costs and what it is worth beside
the others.
"""

from __future__ import annotations

import importlib
import inspect
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu.machine import Machine

FOLDER = Path(__file__).parent
Plain = str | float | int | bool | None


class NotMeasured(Exception):  # noqa: N818 - it is no error: the machine lacks what the check needs
    """Raised by a check that this machine cannot answer; the text says what is missing."""


@dataclass
class Findings:
    """What a check found.

    `settings` say what was run; `answers` and each of `rows` have the keys that the check declares; `notes` are said
    with them; `wrong` says what contradicts what Ullage relies on, and refutes the claim; `recordings` are files by name;
    `unfinished` says what there was no time for, where the check can go on from here.
    """

    settings: dict[str, Plain] = field(default_factory=dict)
    answers: dict[str, Plain] = field(default_factory=dict)
    rows: list[dict[str, Plain]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    recordings: dict[str, bytes] = field(default_factory=dict)
    unfinished: str = ""

    def add_table(self, name: str, make: Callable[[], str]) -> None:
        """Add a recording for people to read; what can't be printed here can be from the other recordings, and is noted."""
        try:
            self.recordings[name] = make().encode()
        except Exception as error:
            self.notes.append(f"{name} can't be printed here ({type(error).__name__}: {error})")


Function = Callable[["Machine"], Findings]


@dataclass(frozen=True)
class Check:
    """A check: its name, whether it needs a load, what its answers and columns mean, and how its answers read in one line."""

    name: str
    loaded: bool
    answers: Mapping[str, str]
    columns: Mapping[str, str]
    function: Function
    headline: str = ""

    @property
    def page(self) -> str:
        """The whole docstring: what is asked, how it is measured."""
        return inspect.getdoc(self.function) or ""

    @property
    def question(self) -> str:
        """The first line of the docstring."""
        return self.page.split("\n", 1)[0]

    def result_line(self, answers: Mapping[str, Any]) -> str:
        """Return the answers in one line, by the check's headline; what was not measured reads "–".

        >>> check = Check("x", False, {}, {}, lambda machine: Findings(), "{error:.1%} off at {clock:.0f} MHz")
        >>> check.result_line({"error": 0.0123, "clock": None})
        '1.2% off at – MHz'
        """
        return _Headline().vformat(self.headline, (), answers)


class _Headline(string.Formatter):
    """Formats what is missing or not a number as it is, instead of raising."""

    def get_value(self, key: int | str, args: Any, kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - as string.Formatter has it
        return kwargs.get(str(key))

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None:
            return "–"
        try:
            return str(super().format_field(value, format_spec))
        except (TypeError, ValueError):
            return str(value)


CHECKS: dict[str, Check] = {}


def check(
    *, answers: Mapping[str, str], columns: Mapping[str, str] | None = None, loaded: bool = False, headline: str = ""
) -> Callable[[Function], Function]:
    """Register the decorated function as the check that its file is named for, and return it unchanged.

    `loaded`: there is nothing to measure without a load. `headline` is the line that the runner prints: a format string over the
    answers.
    """

    def register(function: Function) -> Function:
        name = function.__module__.rpartition(".")[2].removeprefix("check_")
        CHECKS[name] = Check(name, loaded, answers, columns or {}, function, headline)
        return function

    return register


def find_check(name: str) -> Check:
    """Return a check by name; raises ImportError where the machine lacks a library that its file imports."""
    importlib.import_module(f"gpu.check_{name}")
    return CHECKS[name]


def checks() -> list[Check]:
    """Return every check of the folder in the order of the timetable; imports all that any of them needs."""
    from gpu.timetable import TABLE

    return [find_check(entry.name) for entry in TABLE]
