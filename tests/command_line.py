"""A command as its user meets it, without the cost of a process: exit status, what is printed, what is said."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from typing import Any

from ullage.cli import main


@dataclass(frozen=True)
class Said:
    """What a command gave: its exit status, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as strict JSON."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def ask(*words: object) -> Said:
    """Run `ullage` with some words; anything but an exit is a traceback, and fails the test."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["ullage", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())
