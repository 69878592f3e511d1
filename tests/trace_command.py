"""`ullage trace` as its user meets it, without the cost of a process: exit code, what is printed, what is said."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kineto_events import BASE, call, kernel, on_host
from ullage.cli import main

EVENTS = (call(0, 10), kernel(20, 100), on_host(0, 200, "aten::mm", cat="cpu_op"))  # 100 of 200 us on the device


@dataclass(frozen=True)
class Said:
    """What a command gave: its exit code, stdout and stderr."""

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
    """Run `ullage trace` with some words; anything but an exit is a traceback, and fails the test."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["ullage", "trace", *map(str, words)]
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


def refused(*words: object) -> str:
    """What a command says when it refuses: one message with exit code 1, and nothing where a program would look."""
    said = ask(*words)
    assert (said.code, said.out) == (1, ""), said
    assert said.err.startswith("ullage: ") and 1 <= said.err.count("\n") <= 2, said.err
    return said.err


def profile(
    folder: Path, name: str = "trace.json", rank: int | None = None, base: int | None = BASE, events: tuple[Any, ...] = EVENTS
) -> Path:
    """Write a PyTorch profile of one process and one device."""
    whole: dict[str, Any] = {"schemaVersion": 1}
    if rank is not None:
        whole["distributedInfo"] = {"rank": rank}
    if base is not None:
        whole["baseTimeNanoseconds"] = base
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole | {"traceEvents": list(events)}))
    return path
