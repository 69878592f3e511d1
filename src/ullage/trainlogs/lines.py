"""The lines of a trainer's log, made harmless: no colours, no endless lines, a time where one is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import IO, Any

from ullage.problems import Problems

LONGEST = 1 << 20  # bytes of one line; progress bars and configurations printed on a line stay below
_SECONDS, _MILLISECONDS = 1e8, 1e11  # a number of seconds since 1970 is above the first, one of ms above the second
_STAMPED = 300  # characters in which a line's time is looked for
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_ISO = re.compile(
    r"(?<!\d)(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d(?!\d))?", re.ASCII
)  # 2026-08-10 12:00:03,123
_AMERICAN = re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?!\d)", re.ASCII)  # 08/10/2026 12:00:03


@dataclass(frozen=True)
class LogLine:
    """A line's number in its file (from 1), its text without colours, and the clock that reads a time in it."""

    number: int
    text: str
    clock: Callable[[str], int | None]

    @property
    def time(self) -> int | None:
        """The time written at the line's start, in ms since 1970; None where there is none."""
        return self.clock(self.text)


@dataclass
class LogLines:
    """The lines of a file, one at a time; `assumed` says whether a time without a zone was taken to be in `zone`.

    A carriage return begins a line of its own with the same number, as a progress bar does. A line longer than `LONGEST`
    is left out and counted.
    """

    file: IO[bytes]
    where: str
    problems: Problems
    zone: tzinfo = UTC
    assumed: bool = field(default=False, init=False)

    def __iter__(self) -> Iterator[LogLine]:
        number = 0
        while raw := self.file.readline(LONGEST):
            number += 1
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                self.problems.drop(f"lines longer than {LONGEST >> 20} MiB", where=f"{self.where} line {number:,}")
                while len(raw) == LONGEST and not raw.endswith(b"\n"):
                    raw = self.file.readline(LONGEST)
                continue
            for part in plain(raw.decode("utf-8", "replace")).split("\r"):
                if part := part.strip():
                    yield LogLine(number, part, self.clock)

    def clock(self, text: str) -> int | None:
        """Return the time written in the first characters of a line, in ms since 1970."""
        found = moment(text, self.zone)
        if found is None:
            return None
        self.assumed |= not found[1]
        return found[0]


def plain(text: str) -> str:
    r"""Return text without terminal escapes and control characters; tabs and line ends stay.

    >>> plain("\x1b[31mstep: 10\x1b[0m\x00")
    'step: 10'
    """
    return _CONTROL.sub("", _ESCAPE.sub("", text)) if not text.isprintable() else text


def moment(text: str, zone: tzinfo = UTC) -> tuple[int, bool] | None:
    """Return the first time written in a text, in ms since 1970, and whether it names its zone; None where there is none.

    >>> moment("[2026-08-10 12:00:03,250] iteration 1"), moment("2026-08-10T14:00:03.25+02:00 step"), moment("step: 1")
    ((1786363203250, False), (1786363203250, True), None)
    """
    head = text[:_STAMPED]
    if found := _ISO.search(head):
        year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
        fraction, written = found[7] or "", found[8]
    elif found := _AMERICAN.search(head):
        month, day, year, hour, minute, second = (int(part) for part in found.groups())
        fraction, written = "", None
    else:
        return None
    try:
        when = datetime(year, month, day, hour, minute, second, int(fraction[:6].ljust(6, "0")), _zone(written) or zone)
        return round(when.timestamp() * 1000), written is not None
    except (ValueError, OverflowError, OSError):
        return None


def time_of(value: Any) -> int | None:
    """Return a time in ms since 1970 from a number or a text; a time since the start of the run is none.

    >>> time_of(1786363203), time_of("2026-08-10T12:00:03Z"), time_of(12.5)
    (1786363203000, 1786363203000, None)
    """
    if isinstance(value, int | float):
        if not _SECONDS < value < 1e15:
            return None
        return round(value if value > _MILLISECONDS else value * 1000)
    found = moment(str(value))
    return found[0] if found else None


def _zone(written: str | None) -> tzinfo | None:
    if written in (None, "Z"):
        return UTC if written else None
    digits = (written or "").replace(":", "")
    span = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:5]))
    return timezone(-span if digits[0] == "-" else span)
