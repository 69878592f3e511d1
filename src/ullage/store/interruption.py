"""Ending what a thread asks of DuckDB, from another thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class InterruptedQuestionError(Exception):
    """What was asked was ended from outside."""


class Interruption:
    """Ends what is asked in the body of `interruptible`; `end` may be called from any thread, and again."""

    def __init__(self) -> None:
        self.ended = False
        self._connections: list[Any] = []
        self._lock = threading.Lock()

    def end(self) -> None:
        """End the query that runs, and let nothing begin that asks `check` first. A query that begins later runs until the next call."""
        with self._lock:
            self.ended = True
            connections = [*self._connections]
        for connection in connections:
            connection.con.interrupt()

    def watch(self, connection: Any) -> None:
        """Take note of an Ibis connection to DuckDB whose queries are to be ended."""
        self.check()
        with self._lock:
            self._connections.append(connection)

    def check(self) -> None:
        """Raise InterruptedQuestionError once the end has been called for."""
        if self.ended:
            raise InterruptedQuestionError


_current: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Yield what ends the questions of this thread in the body."""
    interruption = Interruption()
    token = _current.set(interruption)
    try:
        yield interruption
    finally:
        _current.reset(token)


def current_interruption() -> Interruption | None:
    """Return what can end the questions of this thread; None where nobody would."""
    return _current.get()
