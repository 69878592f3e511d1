"""Sensible ticks for an axis of time, in UTC."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
STEPS = (
    *(SECOND * n for n in (1, 5, 15, 30)),
    *(MINUTE * n for n in (1, 5, 15, 30)),
    *(HOUR * n for n in (1, 2, 3, 6, 12)),
    *(DAY * n for n in (1, 2, 7, 14)),
)
MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200)


@dataclass(frozen=True)
class Tick:
    """A mark on the axis: its time in ms, its label, and a second label where the day (or year) begins anew, else empty."""

    time: int
    label: str
    below: str


def ticks(start: int, end: int, most: int) -> list[Tick]:
    """Return at most `most` + 1 ticks at round times from `start` to `end` (ms since 1970, UTC).

    >>> [(tick.label, tick.below) for tick in ticks(1_786_363_200_000, 1_786_363_200_000 + 24 * HOUR, 4)]
    [('12:00', '10 Aug 2026'), ('18:00', ''), ('00:00', '11 Aug'), ('06:00', ''), ('12:00', '')]
    >>> [(tick.label, tick.below) for tick in ticks(1_786_320_000_000, 1_786_320_000_000 + 3 * DAY, 4)]
    [('10 Aug', '2026'), ('11 Aug', ''), ('12 Aug', ''), ('13 Aug', '')]
    """
    if end <= start:
        end = start + 1
    step = next((step for step in STEPS if (end - start) / step <= most), None)
    times = _months(start, end, most) if step is None else list(range(-(-start // step) * step, end + 1, step))
    if not times:
        times = [start]
    return _labelled(times, step)


def _months(start: int, end: int, most: int) -> list[int]:
    first, last = _date(start), _date(end)
    months = (last.year - first.year) * 12 + last.month - first.month
    step = next((step for step in MONTH_STEPS if months / step <= most), MONTH_STEPS[-1])
    begin = -(-(first.year * 12 + first.month - 1) // step) * step
    found = (_milliseconds(month) for month in range(begin, last.year * 12 + last.month, step))
    return [time for time in found if start <= time <= end]


def _labelled(times: list[int], step: int | None) -> list[Tick]:
    labelled: list[Tick] = []
    before = None
    for time in times:
        date = _date(time)
        if step is not None and step < DAY:
            label = f"{date:%H:%M:%S}" if step < MINUTE else f"{date:%H:%M}"
            day = f"{date.day} {MONTHS[date.month - 1]}"
            now, below = day, f"{day} {date.year}" if before is None else day
        else:
            label = MONTHS[date.month - 1] if step is None else f"{date.day} {MONTHS[date.month - 1]}"
            now = below = str(date.year)
        labelled.append(Tick(time, label, below if now != before else ""))
        before = now
    return labelled


def _date(milliseconds: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)


def _milliseconds(month: int) -> int:
    return int(datetime.datetime(month // 12, month % 12 + 1, 1, tzinfo=datetime.UTC).timestamp()) * 1000
