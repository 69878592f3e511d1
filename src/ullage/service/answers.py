"""Answers that are made once: by what is asked and what it is asked of, beside the loop that serves, and kept while they are true."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ullage.errors import UllageError
from ullage.service.served import FORMS, AskedQuestion, ReadPlace
from ullage.service.watched import WatchedStore
from ullage.service.workers import BesideWorkers, TooLongError, check_interruption
from ullage.views.files import Form, printed
from ullage.views.html import html
from ullage.views.markup import Markup
from ullage.views.page import PageFrame
from ullage.views.view import View

KEPT = 64  # answers
WAITING = 32  # questions that wait for their turn: with more, who asks is told to come again
SLOW = 0.5  # s; an answer that takes longer is made ahead, if it was asked for
PATIENCE = 2.0  # s; a page that was true a moment ago is better than one that takes longer than this
SOON = 2  # s after which to look whether an answer that is being made is there
REFUSED = 3.0  # times its limit for which a question that took too long is refused: it takes a quarter of a thread at most
ENDING = 1.0  # s that a question whose time is up has to end, so that who asked hears that it was
_TOP = Markup("<header></header>")  # in place of what stands above a page: foreign text is escaped, and can't say it
CLOCK_S = 60.0  # s for which an answer that changes with the time of day stands


class BusyError(Exception):
    """There is no answer now: too many questions wait, or this one takes longer than it may. `again` is when to ask again, in s."""

    def __init__(self, problem: str, again: int, hint: str = "") -> None:
        super().__init__(problem)
        self.problem, self.again, self.hint = problem, again, hint


class BeingMadeError(BusyError):
    """An answer is being made, and who asked need not wait for it."""


class NotReadyError(BusyError):
    """There is nothing yet of which an answer could be made."""


@dataclass(frozen=True)
class Answer:
    """An answer, and the version of what it was made of; its forms are made when they are wanted, once each.

    `took` is how long it took to make (s). One that is `restored` from before a start of the service has its headline and those forms
    alone that were kept.
    """

    view: View
    record: Callable[[], Any]
    more: Mapping[str, Form]
    complete: bool
    version: str
    made: float
    took: float = 0.0
    restored: bool = False
    forms: dict[tuple[Hashable, ...], bytes] = field(default_factory=dict, compare=False, repr=False)

    def written(self, form: str, only: str = "") -> bytes:
        """Return the answer in one of `FORMS` but HTML, or one table of it. Raises UllageError for a table that it has not."""
        return self._once((form, only), lambda: self._written(FORMS[form], only))

    def page(self, sections: tuple[str, ...], frame: PageFrame) -> bytes:
        """Return the answer, or some sections of it, as a page of a site; what stands above it is not kept, for it changes with time."""
        made = self.bare_page(sections, frame)
        return made.replace(_TOP.encode(), frame.top.encode("utf-8", "replace"), 1)

    def bare_page(self, sections: tuple[str, ...], frame: PageFrame) -> bytes:
        """Return the page but for what stands above it."""
        bare = replace(frame, top=_TOP)
        return self._once(_page_key(sections, frame), lambda: html(_part(self.view, sections), bare).encode("utf-8", "replace"))

    def take_page(self, sections: tuple[str, ...], frame: PageFrame, page: bytes) -> None:
        """Take over a page that was written before, as `bare_page` gives it."""
        self.forms[_page_key(sections, frame)] = page

    def data(self) -> Any:
        """Return the answer as plain data."""
        return self.record()

    def _written(self, ending: str, only: str) -> bytes:
        made = self.more[ending]() if ending in self.more and not only else printed(self._view(only), self.record, ending)
        return made if isinstance(made, bytes) else made.encode("utf-8", "replace")

    def _view(self, only: str) -> View:
        return self.view.alone(only) if only else self.view

    def _once(self, key: tuple[Hashable, ...], make: Callable[[], bytes]) -> bytes:
        if key not in self.forms:
            if self.restored:
                raise BeingMadeError("this answer is being made", SOON)
            while len(self.forms) >= len(FORMS) * 2:
                self.forms.pop(next(iter(self.forms)))
            self.forms[key] = make()
        return self.forms[key]


def _page_key(sections: tuple[str, ...], frame: PageFrame) -> tuple[Hashable, ...]:
    return ("html", *sections, frame.address_of)


def _part(view: View, sections: tuple[str, ...]) -> View:
    """Return a view with some of its sections; all of it where none are named."""
    if not sections:
        return view
    return replace(view, sections=[one for one in view.sections if one.name in sections], findings=(), facts=())


def answer_to(request: AskedQuestion, place: ReadPlace, now_ms: int, version: str) -> Answer:
    """Ask a question of a place. Raises UllageError as its command does, and ends where its thread is called to (`workers`)."""
    began = time.monotonic()
    question = request.served.question
    asked = request.asked(place, now_ms)
    question.straight_to_file(asked, None, check_interruption)  # what is too long to print says so
    report = question.answer(asked, check_interruption, question.command_line(request.given(place, now_ms)))
    check_interruption()
    described = question.describer(asked)
    shown = {one.name: getattr(asked, one.name) for one in question.fields if one.display}
    view = described.view(report, **shown)
    complete = bool(getattr(report, "complete", True))
    took = time.monotonic() - began
    return Answer(view, lambda: described.record(report), described.more_forms(report, view), complete, version, time.time(), took)


class AnswerBook:
    """The answers to requests, of one store; `get` belongs to one event loop.

    Questions have `workers` threads and `limit` s each: one that takes longer is ended, and refused for `REFUSED` such times. Forms of
    answers are written in threads of their own, and so is what nobody waits for: the first page made anew, counters.
    """

    def __init__(self, store: WatchedStore, *, limit: float = 60.0, workers: int = 2, clock: Callable[[], float] = time.time) -> None:
        self.store, self.limit, self._clock = store, limit, clock
        self.answered = self.failed = self.stale = self.refused = 0
        self._kept: OrderedDict[AskedQuestion, Answer] = OrderedDict()
        self._begun_at: dict[AskedQuestion, float] = {}  # when what is pending was begun, by a clock that only runs forward
        self._pending: dict[AskedQuestion, asyncio.Future[Answer]] = {}
        self._too_long: dict[AskedQuestion, float] = {}  # until when each is refused
        self._questions, self._forms = BesideWorkers("answers", workers, limit), BesideWorkers("forms", 2)
        self._upkeep = BesideWorkers("upkeep", 1)

    async def get(self, request: AskedQuestion, limit: float | None = None, patience: float | None = None) -> Answer:
        """Return the answer to a request: one that is kept while it is true, else a new one.

        One that is no longer true is given, too, where the new one takes more than `PATIENCE`, and at once where the one before did. The
        smaller of `limit` (s) and the book's own counts. Raises UllageError as the question does, BusyError where there is no answer within
        the limit, and BeingMadeError where there is none within `patience` (s), if that is given.
        """
        version = self.store.version() if request.served.place else ""
        kept = self._kept.get(request)
        if kept is not None and kept.version == version and not (request.by_clock and not 0 <= self._clock() - kept.made <= CLOCK_S):
            self._kept.move_to_end(request)
            self.answered += 1
            return kept
        try:
            return await self._new(request, version, kept, self.limit if limit is None else min(limit, self.limit), patience)
        except BusyError:
            if kept is None:
                self.refused += 1
                raise
        self.stale += 1
        return kept

    async def _new(self, request: AskedQuestion, version: str, kept: Answer | None, limit: float, patience: float | None) -> Answer:
        """Return a new answer; raises BusyError where there is none in time."""
        made = self._pending.get(request) or self._begin(request, version)
        waits = limit + ENDING if kept is None else min(PATIENCE, limit) if kept.took <= PATIENCE else 0.0
        done, _ = await asyncio.wait({made}, timeout=waits if patience is None else min(waits, patience))
        if not done and patience is not None and kept is None:
            raise BeingMadeError(f"this page is being computed, for {self.seconds_so_far(request):.0f} s so far", SOON)
        if not done:
            raise BusyError(f"there is no answer within {limit:g} s; it is kept when it is made: ask again", 10)
        try:
            return made.result()
        except TooLongError:
            raise self._too_long_error() from None

    def close(self, patience: float = 1.0) -> bool:
        """Begin nothing more, end what is asked, and return whether nothing is being answered any more."""
        closed = [workers.close(patience) for workers in (self._questions, self._forms, self._upkeep)]
        return all(closed)

    async def beside(self, work: Callable[[], Any]) -> Any:
        """Return what some short work gives, done beside the loop."""
        return await asyncio.wrap_future(self._forms.begin(work))

    async def counting(self, work: Callable[[], Any]) -> Any:
        """Return what counting gives, done beside the loop, and beside all questions."""
        return await asyncio.wrap_future(self._upkeep.begin(work))

    async def make(self, request: AskedQuestion) -> None:
        """Make the answer to a request that nobody waits for where there is no true one, however long it takes.

        Raises what the question does.
        """
        version, kept = self.store.version(), self._kept.get(request)
        if kept is None or kept.version != version or kept.restored:
            await (self._pending.get(request) or self._begun(request, version, self._upkeep))

    def slow_ones(self, limit: int) -> list[AskedQuestion]:
        """Return requests whose answers take long and are kept, those last that were asked last, so that they may be made ahead."""
        slow = [request for request, kept in self._kept.items() if kept.took > SLOW and request.served.place and not request.by_clock]
        return slow[-limit:]

    def kept(self, request: AskedQuestion) -> Answer | None:
        """Return the answer to a request that is kept, true or not; None where there is none."""
        return self._kept.get(request)

    def restore(self, request: AskedQuestion, answer: Answer) -> None:
        """Take over an answer that was made before this process began, until there is another one."""
        self._kept.setdefault(request, answer)

    def seconds_so_far(self, request: AskedQuestion) -> float:
        """Return for how long an answer has been in the making (s)."""
        return time.monotonic() - self._begun_at.get(request, time.monotonic())

    def _too_long_error(self) -> BusyError:
        hint = "ask for a shorter time (since=7d), or give the service a longer `answer_limit`"
        return BusyError(f"this question takes longer than {self.limit:g} s: it was ended", round(self.limit * REFUSED), hint)

    def _begin(self, request: AskedQuestion, version: str) -> asyncio.Future[Answer]:
        if 0 < self._too_long.get(request, 0.0) - self._clock() <= REFUSED * self.limit:  # more, where the clock was set back
            raise self._too_long_error()
        if len(self._pending) >= WAITING:
            raise BusyError(f"{WAITING} questions wait for their turn; ask again", 10)
        return self._begun(request, version, self._questions)

    def _begun(self, request: AskedQuestion, version: str, workers: BesideWorkers) -> asyncio.Future[Answer]:
        place, now = self.store.place, self.store.last_ms() if request.up_to_last_sample else self.store.now_ms()
        made = asyncio.wrap_future(workers.begin(lambda: answer_to(request, place, now, version)))
        self._pending[request] = made
        self._begun_at[request] = time.monotonic()
        made.add_done_callback(lambda done: self._end(request, done))
        return made

    def _end(self, request: AskedQuestion, done: asyncio.Future[Answer]) -> None:
        del self._pending[request], self._begun_at[request]
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, TooLongError):
            self._refuse(request)
        if error is not None:
            self.failed += not isinstance(error, UllageError | TooLongError)
            return
        self.answered += 1
        self._kept[request] = done.result()
        self._kept.move_to_end(request)
        self._too_long.pop(request, None)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _refuse(self, request: AskedQuestion) -> None:
        now = self._clock()
        self._too_long = {one: until for one, until in self._too_long.items() if until > now} | {request: now + REFUSED * self.limit}
