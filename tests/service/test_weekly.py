"""The report on a week: due once it is over and read, written once, sent once, and the same as the command's."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask
from tests.fleet.servers import wait_for
from tests.service.running import T0, hour, service
from ullage.alerts.outlets import MailRoute, mail_route
from ullage.errors import NoSampleError, UllageError
from ullage.service.answers import Answer, answer_to
from ullage.service.logs import ServiceLog
from ullage.service.served import AskedQuestion, ReadPlace
from ullage.service.settings import ServiceSettings, read_settings
from ullage.service.weekly import HELD_MS, SETTLED_MS, WEEK_MS, CalendarWeek, WeeklyReports, due_week
from ullage.store.store import Store
from ullage.units import DAY_MS, HOUR_MS
from ullage.views.declared import iso

WEEK = CalendarWeek(T0)  # 2026-08-10 is a Monday
DAY_30_S = 2880  # readings of a day
DUE = WEEK.end + SETTLED_MS


def test_a_week_begins_on_monday_and_has_the_name_of_iso_8601() -> None:
    assert (WEEK.name, iso(WEEK.end)[:10], CalendarWeek(T0 - WEEK_MS).name) == ("2026-W33", "2026-08-17", "2026-W32")


@pytest.mark.parametrize(
    ("now", "read", "due"),
    [
        (DUE, (T0, WEEK.end), True),
        (DUE - 1, (T0, WEEK.end), False),  # a sample may still come
        (DUE, (T0, WEEK.end - 1), False),  # the source was not read to the week's end
        (WEEK.end + HELD_MS - 1, (T0, WEEK.end - 1), False),
        (WEEK.end + HELD_MS, (T0, WEEK.end - 1), True),  # and is waited for no longer
        (DUE, (WEEK.end - 1, WEEK.end), True),
        (DUE, (WEEK.end, WEEK.end), False),  # nothing is of that week
        (WEEK.end + HELD_MS, (T0 - DAY_MS, T0), False),
        (WEEK.end + HELD_MS, (T0 - DAY_MS, T0 + 1), True),
        (DUE, None, False),
    ],
)
def test_a_report_is_due_once_its_week_is_over_and_read(now: int, read: tuple[int, int] | None, due: bool) -> None:
    assert due_week(now, read) == (WEEK if due else None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of some hours of three weeks, and of a day after them."""
    store = Store.open(tmp_path_factory.mktemp("weeks") / "store", create=True)
    for day, tensor in ((-8, 0.3), (-6, 0.3), (1, 0.5), (8, 0.4)):
        store.append([hour(start=day * DAY_30_S, minutes=30, tensor_active=tensor)])
    return store.path


class Asked:
    """Answers of a store, and what was asked."""

    def __init__(self, place: Path) -> None:
        self.place, self.asked = place, list[tuple[str, bool]]()
        self.fails: UllageError | None = None

    def __call__(self, week: CalendarWeek, beside: bool) -> Answer:
        self.asked.append((week.name, beside))
        if self.fails is not None:
            raise self.fails
        words = {"since": iso(week.start), "until": iso(week.end)} | ({"against": "7d"} if beside else {})
        return answer_to(AskedQuestion("fleet", tuple(sorted(words.items()))), ReadPlace(str(self.place)), week.end, "")


def reports(folder: Path, asked: Asked, *routes: MailRoute) -> tuple[WeeklyReports, io.StringIO]:
    said = io.StringIO()
    return WeeklyReports(folder, routes, asked, ServiceLog("json", said)), said


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def test_it_is_written_and_sent_once_whatever_ends_the_service(tmp_path: Path, place: Path) -> None:
    asked, mails = Asked(place), list[Any]()
    routes = (MailRoute("ann@example.org", mails.append), MailRoute("bob@example.org", mails.append))
    for _ in range(2):  # another process each time
        weekly, said = reports(tmp_path / "weekly", asked, *routes)
        weekly.look(DUE - 1, (T0, WEEK.end))
        weekly.look(DUE, (T0, WEEK.end))
        weekly.look(DUE + HOUR_MS, (T0, WEEK.end))
        assert said.getvalue() == ""
    assert asked.asked == [("2026-W33", False)]
    assert names(tmp_path / "weekly") == {"2026-W33.html", "2026-W33.json", "2026-W33.sent"}
    assert [mail["To"] for mail in mails] == ["ann@example.org", "bob@example.org"]
    read = message_from_bytes(mails[0].as_bytes(), policy=default)
    assert str(read["Subject"]).startswith("[Ullage] 2026-W33: OFU 5") and "17 Aug 2026 02:00:00" in str(read["Date"])
    assert {part.get_content_type() for part in read.walk()} == {"multipart/alternative", "text/plain", "text/html"}


@pytest.mark.parametrize(("first", "beside"), [(T0 - WEEK_MS, True), (T0 - WEEK_MS + 1, False)])
def test_the_week_before_stands_beside_it_where_it_is_whole(tmp_path: Path, place: Path, first: int, beside: bool) -> None:
    asked = Asked(place)
    weekly, _ = reports(tmp_path / "weekly", asked)
    weekly.look(DUE, (first, WEEK.end))
    assert asked.asked == [("2026-W33", beside)]
    assert ("2026-08-0" in (tmp_path / "weekly" / "2026-W33.html").read_text()) == beside


def test_what_fails_is_said_and_tried_again(tmp_path: Path, place: Path) -> None:
    asked, mails, down = Asked(place), list[Any](), [True]

    def send(mail: Any) -> None:
        if down:
            raise UllageError("nobody listens")
        mails.append(mail)

    weekly, said = reports(tmp_path / "weekly", asked, MailRoute("ann@example.org", send), MailRoute("bob@example.org", mails.append))
    asked.fails = UllageError("a part is damaged")
    weekly.look(DUE, (T0, WEEK.end))
    assert names(tmp_path / "weekly") == set() and "a part is damaged" in said.getvalue()
    asked.fails = None
    weekly.look(DUE, (T0, WEEK.end))
    written = (tmp_path / "weekly" / "2026-W33.html").stat().st_mtime_ns
    assert [mail["To"] for mail in mails] == ["bob@example.org"] and "nobody listens" in said.getvalue()
    assert json.loads((tmp_path / "weekly" / "2026-W33.sent").read_text()) == ["bob@example.org"]
    down.clear()
    weekly.look(DUE, (T0, WEEK.end))
    assert [mail["To"] for mail in mails] == ["bob@example.org", "ann@example.org"]
    assert (tmp_path / "weekly" / "2026-W33.html").stat().st_mtime_ns == written


def test_no_email_is_sent_that_would_be_sent_again(tmp_path: Path, place: Path) -> None:
    mails = list[Any]()
    weekly, said = reports(tmp_path, Asked(place), MailRoute("ann@example.org", mails.append))
    (tmp_path / "2026-W33.sent").mkdir()  # who has it can neither be read nor written
    for hours in range(2):
        weekly.look(DUE + hours * HOUR_MS, (T0, WEEK.end))
    assert mails == [] and said.getvalue().count("no weekly report") == 2
    (tmp_path / "2026-W33.sent").rmdir()
    for hours in range(2):
        weekly.look(DUE + hours * HOUR_MS, (T0, WEEK.end))
    assert [mail["To"] for mail in mails] == ["ann@example.org"]


def test_who_has_the_report_is_kept_before_it_is_sent(tmp_path: Path, place: Path) -> None:
    asked, kept = Asked(place), list[list[str]]()

    def send(mail: Any) -> None:
        kept.append(json.loads((tmp_path / "2026-W33.sent").read_text()))

    weekly, said = reports(tmp_path, asked, MailRoute("ann@example.org", send), MailRoute("bob@example.org", send))
    weekly.look(DUE, (T0, WEEK.end))
    assert kept == [["ann@example.org"], ["ann@example.org", "bob@example.org"]] and said.getvalue() == ""


@pytest.mark.parametrize("damaged", [b"", b"[1]", b"\xff"])
def test_a_list_of_who_has_it_that_is_damaged_is_made_anew(tmp_path: Path, place: Path, damaged: bytes) -> None:
    mails = list[Any]()
    (tmp_path / "2026-W33.sent").write_bytes(damaged)
    weekly, _ = reports(tmp_path, Asked(place), MailRoute("ann@example.org", mails.append))
    weekly.look(DUE, (T0, WEEK.end))
    assert len(mails) == 1 and json.loads((tmp_path / "2026-W33.sent").read_text()) == ["ann@example.org"]


def test_a_week_without_a_sample_has_none(tmp_path: Path, place: Path) -> None:
    asked = Asked(place)
    asked.fails = NoSampleError("there is no sample")
    weekly, said = reports(tmp_path / "weekly", asked)
    weekly.look(DUE, (T0, WEEK.end))
    assert (names(tmp_path / "weekly"), said.getvalue()) == (set(), "")


@contextmanager
def mail_server(got: list[bytes]) -> Iterator[int]:
    """A mail server that takes one message; its port."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, connection.makefile("rwb") as line:
            line.write(b"220 here\r\n")
            line.flush()
            while (said := line.readline()) and not said.upper().startswith(b"QUIT"):
                if said.upper().startswith(b"DATA"):
                    line.write(b"354 go on\r\n")
                    line.flush()
                    body = b"".join(iter(line.readline, b".\r\n"))
                    got.append(body)
                line.write(b"250 good\r\n")
                line.flush()
            line.write(b"221 bye\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def test_a_service_writes_it_and_sends_it_over_a_mail_server(tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    got, folder = list[bytes](), tmp_path / "weekly"
    with mail_server(got) as port:
        routes = [f"ann@example.org via 127.0.0.1:{port}"]
        with service(ServiceSettings(source=str(place), weekly_folder=str(folder), weekly_mail=routes)):
            wait_for(lambda: "2026-W33.sent" in names(folder))
    told = ask("fleet", place, "--since", "2026-08-10T00:00:00Z", "--until", "2026-08-17T00:00:00Z", "--against", "7d", "--json")
    assert told.code == 0
    written = json.loads((folder / "2026-W33.json").read_text())
    assert written | {"command": ""} == told.json | {"command": ""}  # which names its words in another order
    read = message_from_bytes(got[0], policy=default)
    assert read["To"] == "ann@example.org" and "2026-W33" in str(read["Subject"])


def test_settings_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UllageError, match="names no mail server"):
        mail_route("ann@example.org")
    (tmp_path / "ullage.toml").write_text('weekly_folder = "/x"\nweekly_mail = ["ann@example.org via "]\n')
    with pytest.raises(UllageError, match=r"line 2: weekly_mail: it names no mail server"):
        read_settings(tmp_path / "ullage.toml")
    place = Store.open(tmp_path / "store", create=True).path
    lacks_folder = ServiceSettings(source=str(place), weekly_mail=["ann@example.org via smtp:25"])
    with pytest.raises(UllageError, match="needs a folder"), service(lacks_folder):
        pass
