"""What a check is: one function under `@check`, in a file `check_….py` of this folder; a new check is a new file."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu.machine import Machine

FOLDER = Path(__file__).parent
Plain = str | float | int | bool | None


class NotMeasured(Exception):  # noqa: N818 - it is no error: the machine lacks what the check needs
    """Raised by a check that this machine cannot answer; the text says what is missing."""


@dataclass
class Findings:
    """What a check found.

    `settings` say what was run; `answers` and each of `rows` have the keys that the check declares; `notes` are said
    with them; `wrong` says what contradicts what Ullage relies on, and fails the check; `recordings` are files by name;
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


@dataclass(frozen=True)
class Check:
    """A check: its name, how many seconds it takes, whether it needs a load, what its answers and columns mean.

    A check that goes on where it ended is worth starting with `least` seconds; for the others that is all of them. Checks of a
    lower `rank` run first.
    """

    name: str
    seconds: float
    loaded: bool
    answers: Mapping[str, str]
    columns: Mapping[str, str]
    function: Callable[[Machine], Findings]
    least: float = 0.0
    rank: int = 0

    @property
    def page(self) -> str:
        """The whole docstring: what is asked, how it is measured."""
        return inspect.getdoc(self.function) or ""

    @property
    def question(self) -> str:
        """The first line of the docstring."""
        return self.page.split("\n", 1)[0]


CHECKS: dict[str, Check] = {}
Function = Callable[[Machine], Findings]


def check(
    *,
    seconds: float,
    answers: Mapping[str, str],
    columns: Mapping[str, str] | None = None,
    loaded: bool = False,
    least: float | None = None,
    rank: int = 5,
) -> Callable[[Function], Function]:
    """Register the decorated function as the check that its file is named for, and return it unchanged.

    `loaded`: there is nothing to measure without a load (PyTorch). `least`: the check goes on where it ended, within the seconds
    that `machine.room` gives it, and makes use of so few.
    """

    def register(function: Function) -> Function:
        name = function.__module__.rpartition(".")[2].removeprefix("check_")
        CHECKS[name] = Check(name, seconds, loaded, answers, columns or {}, function, seconds if least is None else least, rank)
        return function

    return register


def checks() -> list[Check]:
    """Return every check of the folder in the order in which they run: by rank, then the shortest first."""
    for path in sorted(FOLDER.glob("check_*.py")):
        importlib.import_module(f"gpu.{path.stem}")
    return sorted(CHECKS.values(), key=lambda c: (c.rank, c.seconds, c.name))
