"""The keys of a terminal, one at a time, without an Enter and without an echo."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

# what terminals send for keys that have no letter
SEQUENCES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"\x1b[B": "down", b"\x1bOB": "down", b"\x1b[5~": "pageup", b"\x1b[6~": "pagedown", b"\x1b[H": "home",
    b"\x1bOH": "home", b"\x1b[1~": "home", b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end", b"\r": "enter", b"\n": "enter",
    b"\x7f": "backspace", b"\x08": "backspace", b"\x1b": "escape",
}  # fmt: skip
FOLLOWS = 0.05  # seconds within which the rest of a key comes: an Esc alone is one


class TerminalKeyboard:
    """A terminal whose keys come at once, a context manager; after it the terminal is as it was. Where stdin is no terminal none come."""

    def __init__(self, source: int | None = None) -> None:
        self._source, self._before = source, None
        self._pending = b""
        self._resized: Any = None

    def __enter__(self) -> Self:
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._awake, False)
        if self._source is None:
            with suppress(AttributeError, OSError, ValueError):
                self._source = sys.stdin.fileno() if sys.stdin.isatty() else None
        if self._source is not None:
            self._read_keys_at_once()
        if threading.current_thread() is threading.main_thread():
            self._resized = signal.signal(signal.SIGWINCH, self._wake_for_signal)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        if self._resized is not None:
            signal.signal(signal.SIGWINCH, self._resized)
        if self._before is not None and self._source is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._source, termios.TCSADRAIN, self._before)
        os.close(self._awake)
        os.close(self._waker)
        self._waker = -1

    def wake(self) -> None:
        """End a `wait`; fit for another thread and for a signal handler."""
        with suppress(OSError):  # it is full of wakes, or closed
            os.write(self._waker, b"\0")

    def wait(self) -> str:
        """Return the next key; "" when somebody woke it, or the terminal has another size."""
        if self._pending:
            return self._next()
        watched = [self._awake] if self._source is None else [self._awake, self._source]
        ready = select.select(watched, [], [])[0]
        if self._awake in ready:
            with suppress(BlockingIOError):
                os.read(self._awake, 4096)
        if self._source in ready:
            self._read()
            return self._next() if self._pending else ""
        return ""

    def _read_keys_at_once(self) -> None:
        """Let keys come at once and unseen; Ctrl-C and Ctrl-Z stay what they are."""
        import termios
        import tty

        try:
            self._before = termios.tcgetattr(self._source)  # type: ignore[arg-type, assignment]
            tty.setcbreak(self._source, termios.TCSADRAIN)  # type: ignore[arg-type]
        except termios.error:
            self._source = None

    def _read(self) -> None:
        try:
            self._pending = os.read(self._source or 0, 1024)
        except OSError:
            self._pending = b""
        if not self._pending:  # the terminal is gone
            self._source = None
        while self._pending.endswith((b"\x1b", b"\x1b[", b"\x1bO")) and select.select([self._source or 0], [], [], FOLLOWS)[0]:
            more = os.read(self._source or 0, 1024)
            if not more:
                return
            self._pending += more

    def _next(self) -> str:
        """Take the first key of what has come; an unknown sequence is no key."""
        for sequence in sorted(SEQUENCES, key=len, reverse=True):
            if self._pending.startswith(sequence) and not (sequence == b"\x1b" and self._pending[1:2] in (b"[", b"O")):
                self._pending = self._pending[len(sequence) :]
                return SEQUENCES[sequence]
        if self._pending.startswith(b"\x1b"):
            rest = self._pending[2:].lstrip(b"0123456789;?<")
            self._pending = rest[1:]
            return ""
        length = 1 + sum(self._pending[0] >= least for least in (0xC0, 0xE0, 0xF0))  # the bytes of a letter in UTF-8
        letter, self._pending = self._pending[:length], self._pending[length:]
        return letter.decode(errors="ignore")

    def _wake_for_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signal module's signature
        self.wake()
