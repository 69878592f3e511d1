"""A program run with the recorder inside it: what its environment gets, and how it ended.

The driver itself loads the recorder when the program first calls CUDA (`CUDA_INJECTION64_PATH`, guide 2.2), so any program will do:
Python or not, started directly or by a shell or by mpirun. A program that never touches CUDA is not disturbed. `LD_PRELOAD` brings
the recorder's MPI functions in, and `PYTHONPATH` a hook that notes when PyTorch waits for other ranks. `NCCL_PROFILER_PLUGIN` has NCCL
tell the recorder of its collectives.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Literal, get_args

from ullage.cupti.kinds import enquiries
from ullage.errors import UllageError, harmless

USUAL_EVENTS = 16_000_000  # bytes; as in native/settings.c
ALL_EVENTS = 2**62  # bytes: more than any disk holds
NOT_FOUND, NOT_RUNNABLE = 127, 126  # as shells say it
HOOK = Path(__file__).with_name("hook")  # put in front of PYTHONPATH; holds nothing but sitecustomize.py
PLUGIN = "NCCL_PROFILER_PLUGIN"
Nccl = Literal["off", "calls", "gpu"]
NCCL: tuple[Nccl, ...] = get_args(Nccl)  # what NCCL is asked for, by the number that the recorder reads
LONGEST_PLUGIN = 254  # bytes of its path: NCCL cuts a longer one (MAX_STR_LEN in src/plugin/plugin_open.cc)
INCLUDE = Path(__file__).with_name("include")  # regions for C, C++ and Fortran: ullage.h, ullage.f90


@dataclass(frozen=True)
class RecorderSettings:
    """What a program is given: the recorder's `library`, the `folder` it writes to, CUPTI's library (None: there is none), and which
    activity `kinds` to ask for (numbers) with where their records hold texts (`names`, as `Layouts.name_offsets` writes it).

    The program's NVTX ranges are taken over. `nvtx_by_cupti`: by CUPTI, which is loaded with the first of them and records nothing without
    a driver; else by the recorder itself. Of `events` of its host a process records so many bytes (None: all), then it sums up.
    """

    library: Path
    folder: Path
    cupti: Path | None = None
    kinds: Sequence[int] = ()
    names: str = ""
    flush: int = 1000
    events: int | None = USUAL_EVENTS
    nvtx_by_cupti: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


def environment(
    recorder: RecorderSettings, base: Mapping[str, str], *, mpi: bool = True, python: bool = True, nccl: Nccl = "calls"
) -> dict[str, str]:
    """Return the environment in which a program records itself; what `base` had under the same names goes on working.

    `mpi` preloads the recorder so that calls of MPI are seen, `python` adds the hook for PyTorch's collectives, `nccl`
    makes the recorder a profiler plugin of NCCL ("off": not), unless there is one, or its path is too long for NCCL (`no_plugin` says why).
    """
    added = {
        "ULLAGE_RECORD": str(recorder.folder),
        "ULLAGE_RECORDER": str(recorder.library),
        "ULLAGE_FLUSH": str(recorder.flush),
        "ULLAGE_EVENTS": str(ALL_EVENTS if recorder.events is None else recorder.events),
        "ULLAGE_MAKE": "0",  # the folder is there; when it is gone, so is whoever would read what a daemon goes on recording
        **recorder.extra,
    }
    if recorder.cupti is not None:
        added |= {
            "ULLAGE_CUPTI": str(recorder.cupti),
            "ULLAGE_KINDS": ",".join(str(kind) for kind in recorder.kinds),
            "ULLAGE_NAMES": recorder.names,
            "ULLAGE_CALLS_LEFT_OUT": base.get("ULLAGE_CALLS_LEFT_OUT", enquiries()),
            "CUDA_INJECTION64_PATH": str(recorder.library),
        }
        if earlier := _other(base.get("CUDA_INJECTION64_PATH"), recorder):
            added["ULLAGE_NEXT_INJECTION"] = earlier
    if not _other(base.get("NVTX_INJECTION64_PATH"), recorder):
        added["NVTX_INJECTION64_PATH"] = str(recorder.library)
    if base.get("ULLAGE_NVTX") != "0":
        added["ULLAGE_NVTX"] = "1" if recorder.nvtx_by_cupti else "2"
    added["ULLAGE_NCCL"] = str(NCCL.index(nccl))
    if nccl != "off" and not no_plugin(recorder.library, base):
        added[PLUGIN] = str(recorder.library)
    if mpi:
        added["LD_PRELOAD"] = _before(str(recorder.library), base.get("LD_PRELOAD"))
    if python:
        added["PYTHONPATH"] = _before(str(HOOK), base.get("PYTHONPATH"))
    return {**base, **added}


def no_plugin(library: Path, base: Mapping[str, str]) -> str:
    """Return why NCCL can't be given this library as its profiler plugin; "" where it can.

    >>> no_plugin(Path("/r.so"), {}), no_plugin(Path("/r.so"), {"NCCL_PROFILER_PLUGIN": "inspector"})
    ('', 'NCCL_PROFILER_PLUGIN is set to inspector, which stays')
    """
    other = base.get(PLUGIN, "")
    if other not in ("", str(library)):
        return f"{PLUGIN} is set to {harmless(other)}, which stays"
    if len(os.fsencode(library)) > LONGEST_PLUGIN:
        return f"the recorder's path is longer than the {LONGEST_PLUGIN} bytes that NCCL takes; set XDG_CACHE_HOME to a shorter one"
    return ""


def _other(path: str | None, recorder: RecorderSettings) -> str | None:
    """Return the injection library that another tool asked for, if any."""
    return path if path and path not in ("none", str(recorder.library)) else None


def _before(first: str, rest: str | None) -> str:
    """Return a list of paths with one in front.

    >>> _before("/a.so", None), _before("/a.so", "/b.so")
    ('/a.so', '/a.so:/b.so')
    """
    return f"{first}:{rest}" if rest else first


def run(command: Sequence[str], environment: Mapping[str, str], started: Callable[[int], None] = lambda _: None) -> int:
    """Run a program to its end and return its exit code as a shell would say it: 128 + n for one that signal n ended.

    Signals to us are passed on; those of the terminal (Ctrl-C) reach the program by themselves. What else we were given, open files and
    ignored signals, it gets too. `started` is called with its process id. Raises NotRun for a program that can't be run.
    """
    path = _program(command[0], environment)
    with _passing_on() as passing:
        try:
            child = subprocess.Popen(list(command), executable=path, env=dict(environment), close_fds=False)
        except OSError as error:
            hint = "a script begins with a line such as #!/bin/sh" if error.errno == errno.ENOEXEC else "is it made for this machine?"
            raise NotRun(f"'{harmless(command[0])}' can't be run: {error.strerror}", hint, NOT_RUNNABLE) from error
        passing.to(child)
        started(child.pid)
        code = child.wait()
    return 128 - code if code < 0 else code


class NotRun(UllageError):  # noqa: N818 - what happened, not a class of mistakes
    """A program could not be started; `code` is what a shell would exit with."""

    def __init__(self, problem: str, hint: str, code: int) -> None:
        super().__init__(problem, hint)
        self.code = code


def _program(name: str, environment: Mapping[str, str]) -> str:
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found:
        return found
    path, shown = Path(name), harmless(name)
    if path.is_dir():
        raise NotRun(f"'{shown}' is a folder, no program", "name a program after --", NOT_RUNNABLE)
    if path.is_file() and os.access(path, os.X_OK):
        raise NotRun(f"there is no program '{shown}' in PATH", f"the one in this folder is ./{shown}", NOT_FOUND)
    if path.is_file():
        hint = f"try: ullage run -- python {shown}" if path.suffix == ".py" else f"if it is one: chmod +x {shown}"
        raise NotRun(f"'{shown}' is no program that can be run", hint, NOT_RUNNABLE)
    raise NotRun(f"there is no program '{shown}'", "write it as in a shell: ullage run -- python train.py", NOT_FOUND)


_OF_TERMINALS = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, *_OF_TERMINALS)


class _Passing:
    """Hands signals to a program; those that come before it is there wait for it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def to(self, child: subprocess.Popen[bytes]) -> None:
        """Begin to hand them to this program."""
        self._child = child
        while self._early:
            self._send(child, self._early.pop(0))

    def __call__(self, number: int, _: FrameType | None) -> None:
        if number in _OF_TERMINALS and _in_foreground():
            return
        if self._child is None:
            self._early.append(number)
        else:
            self._send(self._child, number)

    @staticmethod
    def _send(child: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(OSError):  # of another user (sudo), or gone
            child.send_signal(number)


@contextmanager
def _passing_on() -> Iterator[_Passing]:
    """Pass signals on, but for those that we were told to ignore: the program ignores them as well (nohup)."""
    passing = _Passing()
    heeded = [number for number in _PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, passing) for number in heeded}
    try:
        yield passing
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_foreground() -> bool:
    """Whether the terminal gives its signals to us, and so to the program as well."""
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
