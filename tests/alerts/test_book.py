"""What is told of problems, to whom and how often."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from tests.seeds import some
from ullage.alerts.book import CALM_S, GONE, MOST_TRIES, REMIND_S, AlertBook
from ullage.alerts.outlets import deliver
from ullage.alerts.problem import Problem
from ullage.errors import NoSuchNameError, UllageError

TO = ("hook",)
MINUTE = 60.0


def problem(job: str = "7", confidence: str = "high", **words: object) -> Problem:
    known = {"kind": "straggler", "title": "straggler", "owner": "ann", "gpu_hours": 2.0, "evidence": "", "advice": ""}
    return msgspec.convert({**known, "where": {"job": job}, "confidence": confidence, **words}, Problem)


@pytest.fixture
def book(tmp_path: Path) -> AlertBook:
    return AlertBook(tmp_path / "deep" / "alerts.sqlite")


def told(book: AlertBook) -> list[tuple[str, str]]:
    """What waits for the outlet: what happened, and to which job."""
    return [(notice.what, str(notice.problem.where["job"])) for notice in book.waiting("hook")]


def test_one_that_is_sure_is_told_at_once_and_once(book: AlertBook) -> None:
    for minute in range(5):
        book.look([problem()], minute * MINUTE, TO)
    assert told(book) == [("opened", "7")]
    (one,) = book.alerts("open")
    assert (one.opened, one.last_seen, one.resolved) == (0.0, 240.0, None)


def test_one_that_is_not_sure_is_told_when_it_is_seen_again(book: AlertBook) -> None:
    book.look([problem(confidence="medium")], 0, TO)
    assert (told(book), len(book.alerts("open")), len(book.alerts("pending"))) == ([], 0, 1)
    book.look([], MINUTE, TO)
    book.look([problem(confidence="medium")], 2 * MINUTE, TO)
    assert told(book) == []  # what went away in between begins anew
    book.look([problem(confidence="medium")], 3 * MINUTE, TO)
    assert told(book) == [("opened", "7")]


def test_it_is_over_when_it_was_not_seen_for_some_looks(book: AlertBook) -> None:
    book.look([problem()], 0, TO)
    for minute in range(1, GONE):
        book.look([], minute * MINUTE, TO)
    assert told(book) == [("opened", "7")]
    book.look([problem()], GONE * MINUTE, TO)  # it was there all the time
    for minute in range(GONE + 1, 2 * GONE + 1):
        book.look([], minute * MINUTE, TO)
    assert told(book) == [("opened", "7"), ("resolved", "7")]
    (one,) = book.alerts()
    assert (one.state, one.resolved) == ("resolved", 2 * GONE * MINUTE)


def test_one_that_goes_and_comes_is_told_once(book: AlertBook) -> None:
    at = 0.0
    for _ in range(4):
        book.look([problem()], at, TO)
        for _ in range(GONE):
            at += MINUTE
            book.look([], at, TO)
        at += MINUTE
    assert [what for what, _ in told(book)].count("opened") == 1
    book.look([problem()], at + CALM_S + 1, TO)
    assert [what for what, _ in told(book)].count("opened") == 2


def test_a_reminder_comes_after_a_day_unless_somebody_looks_after_it(book: AlertBook) -> None:
    book.look([problem("7"), problem("8")], 0, TO)
    book.acknowledge(problem("8").key, "bob", "mine")
    book.look([problem("7"), problem("8")], REMIND_S - 1, TO)
    assert told(book) == [("opened", "7"), ("opened", "8")]
    book.look([problem("7"), problem("8")], REMIND_S, TO)
    assert told(book)[2:] == [("reminder", "7")]
    assert {one.acknowledged_by for one in book.alerts("open")} == {"", "bob"}


def test_nobody_is_told_of_what_is_silenced_until_the_silence_ends(book: AlertBook) -> None:
    number = book.silence("ann", "", until=10 * MINUTE, by="bob")
    book.look([problem("7"), problem("8", owner="eve")], 0, TO)
    assert told(book) == [("opened", "8")]
    assert len(book.alerts("open")) == 2
    book.look([problem("7"), problem("8", owner="eve")], 11 * MINUTE, TO)
    assert told(book)[1:] == [("opened", "7")]
    assert book.silences(11 * MINUTE) == []
    book.unsilence(number)


def test_a_silence_may_be_of_a_kind(book: AlertBook) -> None:
    number = book.silence("", "straggler", until=1e9, by="bob")
    book.look([problem("7"), problem("8", kind="throttled")], 0, TO)
    assert told(book) == [("opened", "8")]
    assert [one.kind for one in book.silences(0)] == ["straggler"]
    book.unsilence(number)
    book.look([problem("7"), problem("8", kind="throttled")], MINUTE, TO)
    assert told(book)[1:] == [("opened", "7")]


def test_what_nobody_was_told_of_is_over_in_silence(book: AlertBook) -> None:
    book.silence("ann", "", until=1e9, by="bob")
    book.look([problem()], 0, TO)
    for minute in range(GONE):
        book.look([], minute + 1.0, TO)
    assert told(book) == []


def test_what_cannot_be_sent_is_tried_again_and_not_for_ever(book: AlertBook) -> None:
    book.look([problem()], 0, TO)

    def fails(_: object) -> None:
        raise UllageError("nobody listens")

    for _ in range(MOST_TRIES):
        assert deliver(book, "hook", fails, 1.0) == ["nobody listens"]
    assert deliver(book, "hook", fails, 1.0) == []


def test_each_outlet_hears_it_once_whatever_ends_the_process(tmp_path: Path) -> None:
    heard: list[str] = []
    AlertBook(tmp_path / "a.sqlite").look([problem()], 0, ("one", "two"))
    for _ in range(3):  # another process each time
        book = AlertBook(tmp_path / "a.sqlite")
        book.look([problem()], MINUTE, ("one", "two"))
        for outlet in ("one", "two"):
            deliver(book, outlet, lambda notice: heard.append(notice.outlet), MINUTE)
    assert sorted(heard) == ["one", "two"]


def test_what_is_not_there_cannot_be_acknowledged(book: AlertBook) -> None:
    with pytest.raises(NoSuchNameError, match="no alert 'x' is open"):
        book.acknowledge("x", "bob")
    with pytest.raises(UllageError, match="a silence is for"):
        book.silence("", "", 1.0, "bob")


def test_a_file_that_is_no_book_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"not a database, and long enough to be seen as none" * 40)
    with pytest.raises(UllageError, match=r"(?s)can't be kept: .*remove that file: alerts begin anew"):
        AlertBook(tmp_path / "a.sqlite")
    (tmp_path / "b.sqlite").mkdir()
    with pytest.raises(UllageError, match=r"(?s)can't be kept: .*see the disk and who may write"):
        AlertBook(tmp_path / "b.sqlite")


@pytest.mark.parametrize("seed", some(range(300), 4))
def test_opened_and_resolved_alternate_and_never_outrun_what_was_seen(seed: int, tmp_path: Path) -> None:
    draw, book, seen = random.Random(seed), AlertBook(tmp_path / "a.sqlite"), [0, 0]
    history: list[list[bool]] = [[], []]
    for look in range(40):
        for job in (0, 1):
            seen[job] = not seen[job] if draw.random() < 0.3 else seen[job]
            history[job].append(bool(seen[job]))
        confidence = draw.choice(["high", "medium"])
        book.look([problem(str(job), confidence) for job in (0, 1) if seen[job]], look * 2 * CALM_S, TO)
    for job in ("0", "1"):
        words = [what for what, whose in told(book) if whose == job and what != "reminder"]
        assert words == ["opened", "resolved"] * (len(words) // 2) + ["opened"] * (len(words) % 2)
        runs = sum(now and not before for now, before in zip(history[int(job)], [False, *history[int(job)]], strict=False))
        assert words.count("opened") <= runs
