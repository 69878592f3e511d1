"""The report on each week that is over: a page and a JSON document in a folder, and an e-mail to whom it concerns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from ullage.alerts.outlets import MailRoute
from ullage.errors import NoSampleError, UllageError
from ullage.service.answers import Answer
from ullage.service.logs import ServiceLog
from ullage.store.durable import write_whole
from ullage.units import DAY_MS, HOUR_MS
from ullage.views.files import content
from ullage.views.mail import mail

WEEK_MS = 7 * DAY_MS
MONDAY_MS = 4 * DAY_MS  # 1970-01-05, a Monday
SETTLED_MS = 2 * HOUR_MS  # after a week's end: a sample may come an hour late, and is then read within an hour
HELD_MS = DAY_MS  # after it, for which a source that was not read to the week's end is waited for
FORMS = (".json", ".html")  # a week whose last one is there is reported


@dataclass(frozen=True)
class CalendarWeek:
    """A week from Monday to Monday, UTC: its `start` (ms)."""

    start: int

    @property
    def end(self) -> int:
        """When the next one begins (ms)."""
        return self.start + WEEK_MS

    @property
    def name(self) -> str:
        """Return what ISO 8601 calls it.

        >>> CalendarWeek(MONDAY_MS).name, CalendarWeek(MONDAY_MS - WEEK_MS).name
        ('1970-W02', '1970-W01')
        """
        year, week, _ = datetime.fromtimestamp(self.start / 1000, UTC).isocalendar()
        return f"{year}-W{week:02}"


def last_week(now: int) -> CalendarWeek:
    """Return the last week that is over at a time (ms).

    >>> last_week(MONDAY_MS + WEEK_MS).name, last_week(MONDAY_MS + WEEK_MS - 1).name
    ('1970-W02', '1970-W01')
    """
    return CalendarWeek((now - MONDAY_MS) // WEEK_MS * WEEK_MS + MONDAY_MS - WEEK_MS)


def due_week(now: int, read: tuple[int, int] | None) -> CalendarWeek | None:
    """Return the week whose report is due at a time (ms), of samples that were read in a window (ms); None where there is none.

    It is over for two hours, and was read to its end; a source that was not is waited for, for a day.
    """
    week = last_week(now - SETTLED_MS)
    if read is None or read[0] >= week.end or read[1] <= week.start:
        return None
    return week if read[1] >= week.end or now - week.end >= HELD_MS else None


class WeeklyReports:
    """Writes the report on a week once it is due, and sends it: each once. What ends the service may lose an e-mail that is on its way.

    `answer` gives the fleet's answer on a week, beside that of the week before where the second word says so.
    """

    def __init__(self, folder: Path, routes: Sequence[MailRoute], answer: Callable[[CalendarWeek, bool], Answer], log: ServiceLog) -> None:
        self.folder, self._routes, self._answer, self._log = folder, routes, answer, log

    def look(self, now: int, read: tuple[int, int] | None) -> None:
        """Write and send the report that is due at a time (ms), if it is not yet; what fails is logged, and tried again."""
        week = due_week(now, read)
        if week is None or read is None:
            return
        try:
            if not (self._unwritten(week) or self._unsent(week)):
                return
            answer = self._answer(week, read[0] <= week.start - WEEK_MS)
            if not answer.complete:
                raise UllageError("the week can't be read to its end")
            self._write(week, answer)
            for route in self._unsent(week):
                self._send(week, answer, route, now)
        except NoSampleError:
            return  # nothing was on that week
        except UllageError as error:
            self._log("no weekly report", {"week": week.name, "problem": error.problem})

    def _unwritten(self, week: CalendarWeek) -> bool:
        return not self._file(week, FORMS[-1]).exists()

    def _unsent(self, week: CalendarWeek) -> list[MailRoute]:
        sent = self._sent(week)
        return [route for route in self._routes if route.recipient not in sent]

    def _sent(self, week: CalendarWeek) -> list[str]:
        """Return who has a week's report. Raises UllageError where that can't be known: nobody gets it twice."""
        try:
            return msgspec.json.decode(self._file(week, ".sent").read_bytes(), type=list[str])
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return []
        except OSError as error:
            raise UllageError(f"{self._file(week, '.sent')} can't be read: {error.strerror}") from error

    def _write(self, week: CalendarWeek, answer: Answer) -> None:
        for form in FORMS if self._unwritten(week) else ():
            self._keep(week, form, content(self._file(week, form), answer.view, answer.record, answer.more))

    def _send(self, week: CalendarWeek, answer: Answer, route: MailRoute, now: int) -> None:
        sent = self._sent(week)
        self._keep_sent(week, [*sent, route.recipient])  # first: where it can't be kept, the e-mail would be sent each hour
        try:
            route.send(weekly_mail(answer, week, route.recipient, now))
        except UllageError as error:
            self._keep_sent(week, sent)
            self._log("weekly report not sent", {"week": week.name, "problem": error.problem})

    def _keep_sent(self, week: CalendarWeek, recipients: list[str]) -> None:
        self._keep(week, ".sent", msgspec.json.encode(recipients))

    def _file(self, week: CalendarWeek, ending: str) -> Path:
        return self.folder / f"{week.name}{ending}"

    def _keep(self, week: CalendarWeek, ending: str, data: bytes) -> None:
        def write(into: IO[bytes]) -> Any:
            return into.write(data)

        write_whole(self.folder, f"{week.name}{ending}", write)


def weekly_mail(answer: Answer, week: CalendarWeek, recipient: str, now: int) -> EmailMessage:
    """Return the report on a week as an e-mail of a time (ms)."""
    message = message_from_bytes(mail(answer.view, [recipient]), policy=SMTP)
    subject = message["Subject"]
    del message["Subject"]
    message["Subject"] = f"[Ullage] {week.name}: {subject}"
    message["From"], message["Date"] = recipient, format_datetime(datetime.fromtimestamp(now / 1000, UTC))
    return message
