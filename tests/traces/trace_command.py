"""`ullage trace` as its user meets it, without the cost of a process: exit code, what is printed, what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests import command_line
from tests.command_line import Said
from tests.traces.kineto_events import BASE, call, kernel, on_host

EVENTS = (call(0, 10), kernel(20, 100), on_host(0, 200, "aten::mm", cat="cpu_op"))  # 100 of 200 us on the device


def ask(*words: object) -> Said:
    """Run `ullage trace` with some words."""
    return command_line.ask("trace", *words)


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
