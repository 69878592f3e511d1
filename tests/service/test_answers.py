"""Answers are made once, beside the loop, within their time; what is slow or fails keeps nobody else waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ullage.errors import UllageError
from ullage.service import answers
from ullage.service.answers import Answer, AnswerBook, BusyError
from ullage.service.served import AskedQuestion
from ullage.service.watched import WatchedStore
from ullage.service.workers import check_interruption
from ullage.store.reading import asking, connection
from ullage.views.view import Headline, View

ASKED = AskedQuestion("fleet")


class Store(WatchedStore):
    """A store whose version is what a test says."""

    said = "1"

    def version(self) -> str:
        return self.said

    def now_ms(self) -> int:
        return 0


@contextmanager
def book(monkeypatch: pytest.MonkeyPatch, answer: Callable[[AskedQuestion, str], Any], **more: Any) -> Iterator[AnswerBook]:
    def made(request: AskedQuestion, place: str, now_ms: int, version: str) -> Answer:
        return Answer(View("fleet", "", Headline(str(answer(request, version)))), dict, {}, True, version, 0.0)

    monkeypatch.setattr(answers, "answer_to", made)
    found = AnswerBook(Store(Path("nowhere")), **more)
    yield found
    assert found.close(patience=30)


def said(answer: Answer) -> str:
    return answer.view.headline.strong


def test_many_who_ask_the_same_are_answered_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, go = [], threading.Event()

    def answer(request: AskedQuestion, version: str) -> str:
        calls.append(request)
        go.wait(30)
        return version

    async def ask(kept: AnswerBook) -> list[Answer]:
        waiting = [asyncio.create_task(kept.get(ASKED)) for _ in range(50)]
        await asyncio.sleep(0)
        go.set()
        return [*await asyncio.gather(*waiting), await kept.get(ASKED)]

    with book(monkeypatch, answer) as kept:
        assert {said(one) for one in asyncio.run(ask(kept))} == {"1"} and len(calls) == 1


def test_what_is_slow_is_shown_as_it_was_until_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    go.set()

    def answer(_: AskedQuestion, version: str) -> str:
        go.wait(30)
        return version

    async def ask(kept: AnswerBook) -> list[str]:
        first = said(await kept.get(ASKED))
        go.clear()
        kept.store.said = "2"  # type: ignore[attr-defined]
        second = said(await kept.get(ASKED))
        go.set()
        while said(await kept.get(ASKED)) != "2":
            pass
        return [first, second]

    monkeypatch.setattr(answers, "PATIENCE", 0.01)
    with book(monkeypatch, answer) as kept:
        assert asyncio.run(ask(kept)) == ["1", "1"] and kept.stale >= 1


def test_who_waits_too_long_is_told_to_come_again_and_the_answer_is_kept_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def answer(_: AskedQuestion, version: str) -> str:
        go.wait(30)
        return version

    async def ask(kept: AnswerBook) -> str:
        with pytest.raises(BusyError, match=r"no answer within 0\.01 s"):
            await kept.get(ASKED, 0.01)
        others = [AskedQuestion("fleet", (("by", f"{number}"),)) for number in range(answers.WAITING)]
        waiting = await asyncio.gather(*(kept.get(one, 0.01) for one in others), return_exceptions=True)
        assert all(isinstance(one, BusyError) for one in waiting)
        with pytest.raises(BusyError, match="wait for their turn") as full:
            await kept.get(AskedQuestion("gpus"))
        assert full.value.again > 0
        go.set()
        return said(await kept.get(ASKED, 30))

    with book(monkeypatch, answer) as kept:
        assert asyncio.run(ask(kept)) == "1" and kept.refused == answers.WAITING + 2


def test_a_question_that_takes_too_long_is_ended_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []

    def answer(request: AskedQuestion, _: str) -> str:
        calls.append(request)
        if not request.words:
            return "quick"
        con = connection()  # a query that would take hours
        with asking("a store"):
            con.raw_sql("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 8").fetchall()
        return "never"

    slow = [AskedQuestion("fleet", (("by", f"{number}"),)) for number in range(2)]

    async def refusal(kept: AnswerBook, one: AskedQuestion) -> str:
        with pytest.raises(BusyError) as refused:
            await kept.get(one)
        return refused.value.problem

    async def ask(kept: AnswerBook) -> str:
        ended = await asyncio.gather(*(kept.get(one) for one in slow), return_exceptions=True)
        assert all(isinstance(one, BusyError) for one in ended)
        # both threads are free again, and neither question takes one again so soon
        for one in slow:
            while "takes longer than 0.2 s: it was ended" not in await refusal(kept, one):
                pass
        quick = said(await kept.get(ASKED, 30))
        assert calls == [*slow, ASKED] or calls == [*reversed(slow), ASKED]
        now[0] += answers.REFUSED * 0.2 + 0.1
        with pytest.raises(BusyError):
            await kept.get(slow[0])
        await asyncio.sleep(0)
        return quick

    with book(monkeypatch, answer, limit=0.2, clock=lambda: now[0]) as kept:
        assert asyncio.run(ask(kept)) == "quick" and kept.failed == 0
        assert calls[-1] == slow[0]  # asked again once its time was up


def test_the_first_page_is_made_however_long_that_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def answer(_: AskedQuestion, version: str) -> str:
        while not go.wait(0.01):
            check_interruption()
        return version

    async def ask(kept: AnswerBook) -> str:
        with pytest.raises(BusyError):
            while True:
                await kept.get(ASKED)  # which is ended
        made = asyncio.create_task(kept.make(ASKED))
        await asyncio.sleep(0.3)
        go.set()
        await made
        return said(await kept.get(ASKED))  # and no longer refused

    with book(monkeypatch, answer, limit=0.1) as kept:
        assert asyncio.run(ask(kept)) == "1"


def test_what_says_how_far_it_is_is_ended_between_two_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: Any) -> str:
        while True:
            check_interruption("adding up")

    async def ask(kept: AnswerBook) -> None:
        with pytest.raises(BusyError):
            await kept.get(ASKED)

    with book(monkeypatch, answer, limit=0.1) as kept:
        asyncio.run(ask(kept))


def test_a_slow_question_keeps_no_page_that_is_there_and_no_counter_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    async def ask(kept: AnswerBook) -> list[str]:
        waiting = [asyncio.create_task(kept.get(AskedQuestion("fleet", (("by", f"{number}"),)))) for number in range(2)]
        await asyncio.sleep(0)
        found = [await kept.beside(lambda: "a form"), await kept.counting(lambda: "a counter")]
        go.set()
        await asyncio.gather(*waiting)
        return found

    with book(monkeypatch, lambda *_: go.wait(30)) as kept:
        assert asyncio.run(ask(kept)) == ["a form", "a counter"]


def test_the_end_of_the_service_ends_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def answer(*_: Any) -> str:
        begun.set()
        while True:
            check_interruption()

    async def ask(kept: AnswerBook) -> None:
        asyncio.get_running_loop().call_soon(lambda: None)
        task = asyncio.create_task(kept.get(ASKED))
        await asyncio.to_thread(begun.wait, 30)
        assert kept.close(patience=30)
        with pytest.raises(BusyError):
            await task

    with book(monkeypatch, answer, limit=600) as kept:
        asyncio.run(ask(kept))


def test_a_failure_is_told_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [UllageError("the store is damaged"), ZeroDivisionError("ours"), "well"]

    def answer(*_: Any) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def ask(kept: AnswerBook) -> str:
        with pytest.raises(UllageError, match="damaged"):
            await kept.get(ASKED)
        with pytest.raises(ZeroDivisionError):
            await kept.get(ASKED)
        return said(await kept.get(ASKED))

    with book(monkeypatch, answer) as kept:
        assert asyncio.run(ask(kept)) == "well" and kept.failed == 1


def test_only_so_many_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[AskedQuestion] = []

    def answer(request: AskedQuestion, _: str) -> str:
        calls.append(request)
        return "x"

    async def ask(kept: AnswerBook) -> None:
        for number in range(answers.KEPT + 1):
            await kept.get(AskedQuestion("fleet", (("by", str(number)),)))
        await kept.get(AskedQuestion("fleet", (("by", str(answers.KEPT)),)))  # the newest is there
        await kept.get(AskedQuestion("fleet", (("by", "0"),)))  # the oldest is made again

    with book(monkeypatch, answer) as kept:
        asyncio.run(ask(kept))
    assert len(calls) == answers.KEPT + 2


def test_what_counts_back_from_now_is_asked_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [0.0], []

    def answer(request: AskedQuestion, _: str) -> str:
        calls.append(request)
        return "x"

    recent = AskedQuestion("fleet", (("since", "1h"),))

    async def ask(kept: AnswerBook) -> list[int]:
        found = []
        for seconds in (0.0, answers.CLOCK_S, answers.CLOCK_S + 0.1):
            now[0] = seconds
            await kept.get(recent)
            await kept.get(ASKED)
            found.append(len(calls))
        return found

    with book(monkeypatch, answer, clock=lambda: now[0]) as kept:
        assert asyncio.run(ask(kept)) == [2, 2, 3]
