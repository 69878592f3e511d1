"""Answers that are made once: by what is asked and what it is asked of, beside the loop that serves, and kept while they are true."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.errors import UllageError
from ullage.service.served import FORMS, AskedQuestion
from ullage.service.watched import WatchedStore
from ullage.views.files import Form, printed
from ullage.views.html import html
from ullage.views.page import PageFrame
from ullage.views.view import View

KEPT = 64  # answers
WAITING = 32  # questions that wait for their turn: with more, who asks is told to come again
PATIENCE = 2.0  # s; a page that was true a moment ago is better than one that takes longer than this
CLOCK_S = 60.0  # s for which an answer that changes with the time of day stands


class BusyError(Exception):
    """There is no answer yet: too many questions wait, or this one takes longer than it may."""


@dataclass(frozen=True)
class Answer:
    """An answer, and the version of what it was made of; its forms are made when they are wanted, once each."""

    view: View
    record: Callable[[], Any]
    more: Mapping[str, Form]
    complete: bool
    version: str
    made: float
    forms: dict[tuple[str, ...], bytes] = field(default_factory=dict, compare=False, repr=False)

    def written(self, form: str, only: str = "") -> bytes:
        """Return the answer in one of `FORMS` but HTML, or one table of it. Raises UllageError for a table that it has not."""
        return self._once((form, only), lambda: self._written(FORMS[form], only))

    def page(self, sections: tuple[str, ...], frame: PageFrame) -> bytes:
        """Return the answer, or some sections of it, as a page of a site."""
        return self._once(("html", *sections, frame.top), lambda: html(_part(self.view, sections), frame).encode("utf-8", "replace"))

    def data(self) -> Any:
        """Return the answer as plain data."""
        return self.record()

    def _written(self, ending: str, only: str) -> bytes:
        made = self.more[ending]() if ending in self.more and not only else printed(self._view(only), self.record, ending)
        return made if isinstance(made, bytes) else made.encode("utf-8", "replace")

    def _view(self, only: str) -> View:
        return self.view.alone(only) if only else self.view

    def _once(self, key: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
        if key not in self.forms:
            while len(self.forms) >= len(FORMS) * 2:
                self.forms.pop(next(iter(self.forms)))
            self.forms[key] = make()
        return self.forms[key]


def _part(view: View, sections: tuple[str, ...]) -> View:
    """Return a view with some of its sections; all of it where none are named."""
    if not sections:
        return view
    return replace(view, sections=[one for one in view.sections if one.name in sections], findings=(), facts=())


def answer_to(request: AskedQuestion, place: str, now_ms: int, version: str) -> Answer:
    """Ask a question of a place. Raises UllageError as its command does."""
    question = request.served.question
    asked = request.asked(place, now_ms)
    question.straight_to_file(asked, None, _no_progress)  # what is too long to print says so
    report = question.answer(asked, _no_progress, question.command_line(request.given(place, now_ms)))
    described = question.describer(asked)
    shown = {one.name: getattr(asked, one.name) for one in question.fields if one.display}
    view = described.view(report, **shown)
    complete = bool(getattr(report, "complete", True))
    return Answer(view, lambda: described.record(report), described.more_forms(report, view), complete, version, time.time())


def _no_progress(_: str) -> None:
    return None


class AnswerBook:
    """The answers to requests, of one store; `get` belongs to one event loop."""

    def __init__(self, store: WatchedStore, *, limit: float = 60.0, workers: int = 2, clock: Callable[[], float] = time.time) -> None:
        self.store, self.limit, self._clock = store, limit, clock
        self.answered = self.failed = self.stale = 0
        self._kept: OrderedDict[AskedQuestion, Answer] = OrderedDict()
        self._pending: dict[AskedQuestion, asyncio.Future[Answer]] = {}
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"answers-{number}", daemon=True) for number in range(workers)]
        for thread in self._threads:
            thread.start()

    async def get(self, request: AskedQuestion, limit: float | None = None) -> Answer:
        """Return the answer to a request: one that is kept while it is true, else a new one.

        One that is no longer true is given, too, where the new one takes more than `PATIENCE`. The smaller of `limit` (s)
        and the book's own counts. Raises UllageError as the question does, and BusyError where there is no answer within the limit.
        """
        version = self.store.version() if request.served.place else ""
        kept = self._kept.get(request)
        if kept is not None and kept.version == version and not (request.by_clock and self._clock() - kept.made > CLOCK_S):
            self._kept.move_to_end(request)
            self.answered += 1
            return kept
        made = self._pending.get(request) or self._begin(request, version)
        limit = self.limit if limit is None else min(limit, self.limit)
        done, _ = await asyncio.wait({made}, timeout=limit if kept is None else min(PATIENCE, limit))
        if done:
            return made.result()
        if kept is None:
            raise BusyError(f"this question takes longer than {limit:g} s; its answer is kept when it is made: ask again")
        self.stale += 1
        return kept

    def close(self, patience: float = 1.0) -> bool:
        """Begin nothing more, and return whether nothing is being answered any more."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(patience)
        return not any(thread.is_alive() for thread in self._threads)

    async def beside(self, work: Callable[[], Any]) -> Any:
        """Return what some work gives, done beside the loop."""
        return await asyncio.wrap_future(self._queued(work))

    def _begin(self, request: AskedQuestion, version: str) -> asyncio.Future[Answer]:
        if len(self._pending) >= WAITING:
            raise BusyError(f"{WAITING} questions wait for their turn; ask again")
        place, now = str(self.store.path), self.store.now_ms()
        made = asyncio.wrap_future(self._queued(lambda: answer_to(request, place, now, version)))
        self._pending[request] = made
        made.add_done_callback(lambda done: self._end(request, done))
        return made

    def _end(self, request: AskedQuestion, done: asyncio.Future[Answer]) -> None:
        del self._pending[request]
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.failed += not isinstance(error, UllageError)
            return
        self.answered += 1
        self._kept[request] = done.result()
        self._kept.move_to_end(request)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _queued(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((work, future))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:  # whatever it is, it belongs to whoever waits
                future.set_exception(error)
            del job, work, future  # an answer lives as long as it is kept, not until the next question
