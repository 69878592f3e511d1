"""A process with a time limit, its lines as they come, and nothing of it left behind: what a check that hangs or crashes runs in."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SHOWN = "| "  # how lines begin that are for the person who waits
LINES = 3  # of what a process printed last that are told when it failed
KEPT = 200  # of its last lines are looked through for those
SILENT = ("{", "File ", "Traceback", "^", "~", "Thread 0x", "Current thread", "Extension modules")  # of machines' folders and of nothing
REAPED = 20.0  # seconds that a killed process may take to end: the driver gives back what it held
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux' prctl


@dataclass(frozen=True)
class Ended:
    """How a process ended: its exit `code` (None: it was ended because it took too long; below 0: the signal), the lines it printed
    last, in seconds; `stuck`: even killed, it does not go away."""

    code: int | None
    last: tuple[str, ...]
    seconds: float
    stuck: bool = False

    @property
    def problem(self) -> str:
        """Why what it did is not whole, "" where it ended well."""
        if self.code == 0:
            return ""
        if self.code is None:
            how = f"it did not end within {self.seconds:.0f} s"
        else:
            how = f"it ended with {_signal_name(-self.code) if self.code < 0 else f'exit code {self.code}'}"
        return f"{how}{f' ({self.words})' if self.words else ''}"

    @property
    def words(self) -> str:
        """The last of its own words that say something."""
        said = [line.strip()[:200] for line in self.last if line.strip() and not line.strip().startswith(SILENT)]
        return " | ".join(said[-LINES:])


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def adopt_orphans() -> None:
    """Make this process the parent of what its children leave behind (Linux), so that `end_descendants` finds it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)


def run(
    command: Sequence[str],
    limit: float,
    line: Callable[[str], bool],
    environment: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Ended:
    """Run a command for `limit` seconds at most and return how it ended; its descendants are ended with it.

    `line` gets each line that it prints, as it comes, and returns whether it is dealt with; the last of the others are kept.
    """
    begin, others = now(), frozenset(descendants())
    process = subprocess.Popen(
        list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}, start_new_session=True,
    )  # fmt: skip
    last: deque[str] = deque(maxlen=KEPT)
    assert process.stdout is not None
    reader = threading.Thread(target=_listen, args=(process.stdout, line, last), daemon=True)
    reader.start()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, limit))
    finally:
        code = process.poll()
        stuck = not _end(process)
        end_descendants(others)
    reader.join(2)
    if not reader.is_alive():
        process.stdout.close()
    return Ended(code, tuple(last), now() - begin, stuck)


def _listen(pipe: IO[bytes], line: Callable[[str], bool], last: deque[str]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for data in pipe:
            words = data.decode(errors="replace").rstrip("\n")
            if not line(words):
                last.append(words)


def _end(process: subprocess.Popen[bytes]) -> bool:
    """End a process and its group; returns whether it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(REAPED)
        return True
    return False


def end_descendants(others: frozenset[int] = frozenset(), proc: Path = Path("/proc")) -> int:
    """End all processes that descend from this one, in whichever session they are, but for `others`; return how many there were."""
    count = 0
    for _ in range(5):  # what is ended may just have started another
        found = [pid for pid in descendants(proc) if pid not in others]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        count = max(count, len(found))
        if not found:
            break
        time.sleep(0.02)
    return count


def descendants(proc: Path = Path("/proc")) -> list[int]:
    """Return the processes that descend from this one, zombies left out; none where the system tells no processes."""
    parents: dict[int, int] = {}
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(path.parent.name)] = int(parent)
    found: list[int] = []
    wanted = {os.getpid()}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted}
        found += sorted(wanted)
    return found
