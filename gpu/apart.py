"""Programs that run beside the session: each in a process of its own, with a time limit, telling what it finds as lines of JSON.

What may crash or hang (CUPTI, a profiled program) runs like this, and takes nothing with it: what it told before stands.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from gpu.machine import Machine

ROOT = Path(__file__).resolve().parents[1]
START = f"import sys; sys.path[:1] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]; from gpu.apart import begin; begin(*sys.argv[1:])"
LINES = 3  # of what a program said that are told when it failed
SILENT = ("{", "File ", "Traceback", "^", "~")  # how lines begin that are not told: facts, and places, which name the machine's folders


@dataclass
class Told:
    """What a program told: `facts`, the objects that it printed laid over one another; its exit `code` (None: it was ended because it
    took too long, below 0: the signal); the end of what it `said` otherwise."""

    code: int | None
    facts: dict[str, Any] = field(default_factory=dict)
    said: str = ""

    @property
    def problem(self) -> str:
        """Why it is not to be trusted to be whole, "" where it ended well."""
        if self.code == 0:
            return str(self.facts.get("problem", ""))
        how = "did not end in time" if self.code is None else f"ended with {f'signal {-self.code}' if self.code < 0 else self.code}"
        return f"the program {how}{f' ({self.said})' if self.said else ''}"


def tell(**facts: Any) -> None:
    """Print facts for whoever started this program."""
    print(json.dumps(facts, default=float), flush=True)


def begin(module: str, *arguments: str) -> None:
    """Run a program: `main` of a module of this folder; its arguments are words."""
    import importlib

    importlib.import_module(f"gpu.{module}").main(*arguments)


@dataclass(frozen=True)
class Asked:
    """A program that is asked for: a module of this folder, the words that its `main` takes, variables added to its environment;
    `under` is a command that runs it (a profiler, a checker)."""

    module: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    under: tuple[str, ...] = ()


def asked(module: str, *words: Any, environment: Mapping[str, str] | None = None, under: Sequence[str] = ()) -> Asked:
    """Return a program to run."""
    return Asked(module, tuple(map(str, words)), environment or {}, tuple(under))


def told(machine: Machine, program: Asked, limit: float) -> Told:
    """Run a program to its end, `limit` seconds at most, and return what it told."""
    return together(machine, [program], limit)[0]


def together(machine: Machine, programs: Sequence[Asked], limit: float) -> list[Told]:
    """Run programs at the same time and return what each told; the machine may run them in its own way, or start them in its own."""
    run: Callable[[Sequence[Asked], float], list[Told]] | None = getattr(machine, "programs", None)
    if run is not None:
        return run(programs, limit)
    start: list[str] = getattr(machine, "start", None) or [sys.executable, "-c", START]
    until = time.monotonic() + limit
    with contextlib.ExitStack() as stack:
        running = [_started(stack, [*one.under, *start, one.module, *one.words], one.environment) for one in programs]
        for process, _, _ in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
        return [_ended(*one) for one in running]


_Running = tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]


def _started(stack: contextlib.ExitStack, words: Sequence[str], more: Mapping[str, str]) -> _Running:
    """Files take what it prints: a pipe would be held open by whatever it leaves behind."""
    output = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
    errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **more}
    process = subprocess.Popen(list(words), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True)
    return process, output, errors


def _ended(process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes]) -> Told:
    code = process.poll()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # it, or what it left behind
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    facts: dict[str, Any] = {}
    lines = _lines(output)
    for line in lines:
        facts |= _object(line)
    said = [line.strip()[:200] for line in (*lines, *_lines(errors)) if line.strip() and not line.strip().startswith(SILENT)]
    return Told(code, facts, " | ".join(said[-LINES:]))


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode(errors="replace").splitlines()


def _object(line: str) -> dict[str, Any]:
    """Return the object that a line of JSON holds; {} for any other line.

    >>> _object('{"a": 1}'), _object("Traceback"), _object("[1]")
    ({'a': 1}, {}, {})
    """
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
