"""Threads beside the loop that serves: each kind of work has its own, so that what is slow keeps nothing else waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ullage.store.interruption import Interruption, current_interruption, interruptible

AGAIN = 0.1  # s between two calls for the end: a query that begins after one is ended by the next


class TooLongError(Exception):
    """Work that took longer than it may was ended."""


class BesideWorkers:
    """Some threads that do what is handed to them, in its order. Work that takes longer than `limit` s is ended; None: none is."""

    def __init__(self, name: str, count: int, limit: float | None = None) -> None:
        self.limit = limit
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._running: set[Interruption] = set()
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(count)]
        for thread in self._threads:
            thread.start()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Hand over work, and return what will hold its result: TooLongError where it was ended."""
        future: Future[Any] = Future()
        self._work.put((work, future))
        return future

    def close(self, patience: float) -> bool:
        """Begin nothing more, end what runs, and return whether no thread is at work any more after so many s."""
        for _ in self._threads:
            self._work.put(None)
        for interruption in [*self._running]:
            interruption.end()
        for thread in self._threads:
            thread.join(patience)
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            work, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._done(work))
            except BaseException as error:  # whatever it is, it belongs to whoever waits
                future.set_exception(error)
            del job, work, future  # an answer lives as long as it is kept, not until the next question

    def _done(self, work: Callable[[], Any]) -> Any:
        finished = threading.Event()
        with interruptible() as interruption:
            self._running.add(interruption)
            if self.limit is not None:
                watch = threading.Thread(target=_end_after, args=(self.limit, interruption, finished), daemon=True)
                watch.start()
            try:
                return work()
            except Exception as error:
                if interruption.ended:
                    raise TooLongError from error
                raise
            finally:
                finished.set()
                self._running.discard(interruption)


def _end_after(limit: float, interruption: Interruption, finished: threading.Event) -> None:
    wait = limit
    while not finished.wait(wait):
        interruption.end()
        wait = AGAIN


def check_interruption(_: str = "") -> None:
    """Raise where what this thread does was called to its end; fit for what a question says of its progress."""
    interruption = current_interruption()
    if interruption is not None:
        interruption.check()
