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


def test_what_takes_too_long_ends_the_waiting_and_is_kept_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()

    def answer(_: AskedQuestion, version: str) -> str:
        go.wait(30)
        return version

    async def ask(kept: AnswerBook) -> str:
        with pytest.raises(BusyError, match=r"takes longer than 0\.01 s"):
            await kept.get(ASKED)
        others = [AskedQuestion("fleet", (("by", f"{number}"),)) for number in range(answers.WAITING)]
        waiting = [asyncio.create_task(kept.get(one, 0.01)) for one in others]
        assert all(isinstance(one, BusyError) for one in await asyncio.gather(*waiting, return_exceptions=True))
        with pytest.raises(BusyError, match="wait for their turn"):
            await kept.get(AskedQuestion("gpus"))
        go.set()
        return said(await kept.get(ASKED, 30))

    with book(monkeypatch, answer, limit=0.01) as kept:
        kept.limit = 0.01
        monkeypatch.setattr(kept, "limit", 0.01)

        async def both() -> str:
            try:
                return await ask(kept)
            except BusyError:
                kept.limit = 30
                return said(await kept.get(ASKED))

        assert asyncio.run(both()) == "1"


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
