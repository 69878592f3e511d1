"""Exposition lines to sample rows: the fast inner part of `ullage.sources.exposition`.

A line costs three dictionary look-ups and a `float`: names and label texts are understood once and remembered as bytes.
The pivot from lines to rows, and the cleaning of the values, are done in NumPy for a whole chunk at a time.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.sources.naming.fields import Alias, clean, known, possible
from ullage.sources.naming.labels import LONGEST, identity, label_values
from ullage.sources.rows.pivot import mean_by_row
from ullage.sources.source import Options
from ullage.tables import IDENTITY, Flag, samples

_UNKNOWN, _BY_LABEL = -1, -2  # what a name can be, besides the number of an alias
_REMEMBERED = 200_000  # names, label texts and identities that are remembered before starting afresh
_LONG = 64 << 10  # a label text longer than this is understood anew each time
_MOMENT = re.compile(rb"#\s*(?:time|timestamp)\b[:=\s]*([0-9.]+)\s*$", re.IGNORECASE)
_EXEMPLAR = re.compile(rb"\}\s*(\S+(?:\s+[0-9.]+)?)\s+#\s*\{")
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_Integers = npt.NDArray[np.int64]


class ExpositionLines:
    """Turns exposition text into batches, and remembers what names and label texts mean.

    `place` names the text in messages; `instance` is its address when it came from a server.
    """

    def __init__(self, place: str, options: Options, problems: Problems, instance: str | None = None) -> None:
        self.place, self.dated = place, False
        self.read, self.fields, self.found, self.nameless = 0, 0, 0, 0  # lines: all, fields, of a named device, of none
        self._options, self._problems, self._instance = options, problems, instance
        self._other: dict[str, None] = {}  # names that are no field, for the message when nothing is
        self._moment, self._scrape = 0, 0
        self._passed: int | None = None  # the last moment of field lines before this one
        self._ordered = True
        self._values: list[float] = []
        self._taken, self._counted = 0, 0  # field lines: in batches, before this moment
        self._forget()
        self._empty()

    @property
    def pending(self) -> int:
        """How many field lines are parsed and not yet taken."""
        return len(self._values)

    def begin(self, moment: int) -> None:
        """Start a text whose lines, unless they say otherwise, are of `moment` (ms since 1970)."""
        self._advance(moment)
        self._marks.append((len(self._values), moment, self._scrape))

    @property
    def read_until(self) -> int | None:
        """The time (ms) up to which all that came by is whole: that of the scrape before this one, where they come in order."""
        return self._passed if self._ordered and (self._passed or 0) < self._moment else None

    def _advance(self, moment: int) -> None:
        if moment == self._moment:
            return
        if (count := self._taken + len(self._values)) > self._counted:
            self._ordered &= self._moment >= (self._passed or 0)
            self._passed, self._counted = self._moment, count
        self._moment = moment

    def next_scrape(self) -> None:
        """Say that what follows is a new reading, in which every series may stand again."""
        self._scrape += 1

    def require_fields(self, advice: str) -> None:
        """Raise UllageError when no line so far was a field of a GPU."""
        if self.found:
            return
        if self.read and self._other:
            names = ", ".join(harmless(name, 60) for name in list(self._other)[:5])
            more = f" and {len(self._other) - 5:,} more" if len(self._other) > 5 else ""
            raise UllageError(f"{self.place} holds no field of a GPU; it holds {names}{more}", advice)
        if self.nameless:
            raise UllageError(f"{self.place} names no device in any of its lines", "the labels need a UUID, or a host and a GPU number")
        raise UllageError(f"{self.place} holds no metrics", advice)

    def batch(self, chunk: bytes, number: int) -> pa.RecordBatch | None:
        """Return the rows of a chunk of whole lines, the first of which is line `number`; None when there are none."""
        self.parse(chunk, number)
        return self.take()

    def take(self) -> pa.RecordBatch | None:
        """Return the rows of all that was parsed since the last time; None when there are none."""
        batch = self._pivot() if self._values else None
        if max(len(self._names), len(self._sets), len(self._identities)) > _REMEMBERED:
            self._forget()
        self._empty()
        return batch if batch is not None and batch.num_rows else None

    def _empty(self) -> None:
        self._taken += len(self._values)
        self._aliases_seen: list[int] = []
        self._sets_seen: list[int] = []
        self._values = []
        self._times: list[tuple[int, int]] = []  # (position, time) of lines with a time of their own
        self._marks = [(0, self._moment, self._scrape)]  # (position, time, scrape) of what follows

    def _forget(self) -> None:
        self._names: dict[bytes, int] = {}
        self._aliases: list[Alias] = []
        self._alias_numbers: dict[Alias, int] = {}
        self._sets: dict[bytes, int] = {}
        self._set_rows: list[int] = []  # label text -> identity; -1: names no device
        self._labelled: dict[tuple[bytes, bytes], int] = {}
        self._identities: dict[tuple[Any, ...], int] = {}
        self._seen: _Integers = np.zeros(0, np.int64)

    def parse(self, chunk: bytes, number: int) -> None:
        """Read a chunk of whole lines, the first of which is line `number`. A name that is no field costs one look-up."""
        names, sets = self._names, self._sets
        aliases_seen, sets_seen, values = self._aliases_seen, self._sets_seen, self._values
        before, lines = len(values), chunk.split(b"\n")
        lines.pop()
        for position, line in enumerate(lines, number):
            name, brace, rest = line.partition(b"{")
            alias = names.get(name)
            if alias is None:
                alias = self._learn(name, brace, position)
            if alias == _UNKNOWN:
                continue
            text, _, value = rest.rpartition(b"}")
            label_set = sets.get(text)
            parts = value.split()
            if label_set is None or alias == _BY_LABEL or len(parts) != 1:
                self._slowly(name, rest, position)
                continue
            try:
                values.append(float(parts[0]))
            except ValueError:
                self._bad(position)
                continue
            aliases_seen.append(alias)
            sets_seen.append(label_set)
        self.read += len(lines)
        self.fields += len(values) - before

    def _learn(self, name: bytes, brace: bytes, position: int) -> int:
        """Return what a name that is not remembered means; comments and blank lines mean nothing."""
        bare = name.strip()
        if not brace or bare.startswith(b"#"):
            if bare.startswith(b"#"):
                self._comment(bare)
            elif bare:
                self._bare(bare, position)
            return _UNKNOWN
        if not bare:  # {__name__="…"}: the name is a label
            return _BY_LABEL
        if not _NAME.fullmatch(bare):
            self._bad(position)
            return _UNKNOWN
        text = bare.decode()
        alias = known(text)
        number = self._alias(alias) if alias else _BY_LABEL if possible(text) else _UNKNOWN
        if number == _UNKNOWN and len(self._other) < 1000:
            self._other[text] = None
        self._names[name] = number
        return number

    def _bare(self, line: bytes, position: int) -> None:
        """A line without labels: it can't say of which device it speaks."""
        name, *numbers = line.split()
        try:
            sample = bool(_NAME.fullmatch(name)) and 1 <= len([float(number) for number in numbers]) <= 2
        except ValueError:
            sample = False
        if not sample:
            self._bad(position)
        elif possible(name.decode()):
            self.nameless += 1
            self._problems.drop("lines that name no device", where=f"{self.place} line {position}")
        elif len(self._other) < 1000:
            self._other[name.decode()] = None

    def _comment(self, line: bytes) -> None:
        moment = _MOMENT.match(line)
        if moment is None:
            return
        try:
            self._advance(_milliseconds(float(moment[1])))
        except ValueError:
            return
        self.dated = True
        self._scrape += 1
        self._marks.append((len(self._values), self._moment, self._scrape))

    def _slowly(self, name: bytes, rest: bytes, position: int) -> None:
        """Read a line that the inner loop can't: a new label text, a time after the value, an exemplar, a label's name."""
        text, brace, tail = rest.rpartition(b"}")
        exemplar = _EXEMPLAR.search(rest)
        if exemplar and label_values(rest[: exemplar.start()]) is not None:
            text, tail = rest[: exemplar.start()], exemplar[1]
        parts = tail.split()
        try:
            value, moment = float(parts[0]), _milliseconds(float(parts[1])) if len(parts) > 1 else None
        except (ValueError, IndexError, OverflowError):
            return self._bad(position)
        if not brace or len(parts) > 2:
            return self._bad(position)
        label_set = self._set(text, position)
        alias = self._names.get(name, _BY_LABEL)
        if alias == _BY_LABEL:
            alias = self._alias_by_label(name.strip(), text)
        if label_set is None or alias == _UNKNOWN:
            return None
        if moment is not None:
            self.dated, self._ordered = True, False  # of these lines nobody knows what is still to come
            self._times.append((len(self._values), moment))
        self._values.append(value)
        self._aliases_seen.append(alias)
        self._sets_seen.append(label_set)
        return None

    def _bad(self, position: int) -> None:
        self._problems.drop("lines that can't be read", where=f"{self.place} line {position}")

    def _alias(self, alias: Alias) -> int:
        if alias not in self._alias_numbers:
            self._alias_numbers[alias] = len(self._aliases)
            self._aliases.append(alias)
        return self._alias_numbers[alias]

    def _alias_by_label(self, name: bytes, text: bytes) -> int:
        if (name, text) not in self._labelled:
            labels = label_values(text) or {}
            alias = known(name.decode() or labels.get("__name__", ""), labels)
            if len(self._labelled) > _REMEMBERED or len(text) > _LONG:
                return self._alias(alias) if alias else _UNKNOWN
            self._labelled[name, text] = self._alias(alias) if alias else _UNKNOWN
        return self._labelled[name, text]

    def _set(self, text: bytes, position: int) -> int | None:
        """Return the number of a label text, understood once; None when it can't be read."""
        if text in self._sets:
            return self._sets[text]
        where = f"{self.place} line {position}"
        who = _who(text, self._instance, self._options.cluster) if len(text) <= LONGEST else self._understood(text)
        if who is None:
            self._bad(position)
            return None
        named = who[_GPU] is not None
        if any(isinstance(value, str) and "\ufffd" in value for value in who):
            self._problems.repair("label sets that are not UTF-8, their bad bytes replaced", where=where)
        if not named:
            self._problems.drop("label sets that name no device", where=where)
        number = len(self._set_rows)
        self._set_rows.append(self._identities.setdefault(who, len(self._identities)) if named else -1)
        if len(text) <= _LONG:
            self._sets[text] = number
        return number

    def _understood(self, text: bytes) -> tuple[Any, ...] | None:
        return _identified(text, self._instance, self._options.cluster, self._problems)

    def _pivot(self) -> pa.RecordBatch | None:
        """Return a row for each device and time of the chunk, all its fields side by side."""
        aliases, sets = np.array(self._aliases_seen, np.int64), np.array(self._sets_seen, np.int64)
        values, rows = np.array(self._values), np.array(self._set_rows, np.int64)[sets]
        times, scrapes = self._when(len(values))
        keep = self._once(aliases, sets, scrapes) & (rows >= 0) & self._wanted(times)
        self.found += int(np.count_nonzero(rows >= 0))
        self.nameless += int(np.count_nonzero(rows < 0))
        aliases, values, rows, times = aliases[keep], values[keep], rows[keep], times[keep]
        if not len(values):
            return None
        moments, moment = np.unique(times, return_inverse=True)
        keys, row = np.unique(moment * len(self._identities) + rows, return_inverse=True)
        columns: dict[str, Any] = {"time": moments[keys // len(self._identities)]}
        columns |= self._identity_columns(keys % len(self._identities))
        return samples(columns | self._field_columns(aliases, values, row, len(keys)))

    def _when(self, length: int) -> tuple[_Integers, _Integers]:
        """Return each line's time and the number of its scrape; -1 where the line has a time of its own."""
        starts, moments, scrapes = (np.array(part, np.int64) for part in zip(*self._marks, strict=True))
        counts = np.diff(np.append(starts, length))
        times, numbers = np.repeat(moments, counts), np.repeat(scrapes, counts)
        if self._times:
            positions, own = (np.array(part, np.int64) for part in zip(*self._times, strict=True))
            times[positions], numbers[positions] = own, -1
        return times, numbers

    def _once(self, aliases: _Integers, sets: _Integers, scrapes: _Integers) -> npt.NDArray[np.bool_]:
        """Return where a series stands for the first time in its scrape; again, without a time, says nothing new."""
        keep = np.ones(len(aliases), np.bool_)
        undated = np.flatnonzero(scrapes >= 0)
        if not len(undated):
            return keep
        codes = (sets[undated] << 12 | aliases[undated]) << 20 | (scrapes[undated] & 0xFFFFF)
        unique, first = np.unique(codes, return_index=True)
        fresh = np.zeros(len(codes), np.bool_)
        fresh[first] = True
        if len(self._seen):
            fresh &= ~np.isin(codes, self._seen)
        keep[undated] = fresh
        latest = unique[(unique & 0xFFFFF) == (self._scrape & 0xFFFFF)]
        earlier = self._seen[(self._seen & 0xFFFFF) == (self._scrape & 0xFFFFF)]
        self._seen = np.concatenate([earlier, latest])
        self._problems.drop("repeated series without a time", int(np.count_nonzero(~fresh)), self.place)
        return keep

    def _wanted(self, times: _Integers) -> npt.NDArray[np.bool_]:
        since, until = self._options.since, self._options.until
        wanted = np.ones(len(times), np.bool_)
        if since is not None:
            wanted &= times > since
        if until is not None:
            wanted &= times <= until  # a sample speaks for the time before it
        return wanted

    def _identity_columns(self, rows: _Integers) -> dict[str, Any]:
        who = list(self._identities)
        chosen = [who[row] for row in rows.tolist()]
        columns: dict[str, Any] = {}
        for position, field in enumerate(IDENTITY):
            values = [one[position] for one in chosen]
            if any(value is not None for value in values):
                columns[field.name] = pa.array(values, field.type)
        return columns

    def _field_columns(self, aliases: _Integers, values: npt.NDArray[np.float64], row: _Integers, length: int) -> dict[str, Any]:
        """Clean each metric; of two that mean one field the first wins."""
        columns: dict[str, npt.NDArray[np.float64]] = {}
        flags = np.zeros(length, np.uint16)
        order = np.argsort(aliases, kind="stable")
        numbers, starts = np.unique(aliases[order], return_index=True)
        for number, lines in zip(numbers, np.split(order, starts[1:]), strict=True):
            alias = self._aliases[number]
            nan = int(np.count_nonzero(np.isnan(values[lines])))
            self._problems.drop("readings that are not a number (NaN)", nan, f"{self.place} {alias.name}")
            cleaned, marks = clean(alias, values[lines], self._problems, self.place)
            column = columns.setdefault(alias.field, np.full(length, np.nan))
            if alias.parts:
                cleaned = mean_by_row(cleaned, row[lines], length)[row[lines]]
            else:
                flags |= _copied(row[lines], cleaned, length)
            lines, cleaned, marks = lines[::-1], cleaned[::-1], marks[::-1]  # written backwards, the first of equals stays
            free = np.isnan(column[row[lines]]) & ~np.isnan(cleaned)
            column[row[lines][free]] = cleaned[free]
            if marks.any():
                np.bitwise_or.at(flags, row[lines], marks)
        return {**columns, "flags": flags}


def _copied(rows: _Integers, values: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.uint16]:
    """Return for each row whether one metric stands there several times, and whether the values differ."""
    flags = np.zeros(length, np.uint16)
    if len(rows) <= 1 or len(np.unique(rows)) == len(rows):
        return flags
    known = ~np.isnan(values)
    lowest, highest = np.full(length, np.inf), np.full(length, -np.inf)
    np.minimum.at(lowest, rows[known], values[known])
    np.maximum.at(highest, rows[known], values[known])
    flags[np.bincount(rows, minlength=length) > 1] = np.uint16(Flag.COPIED)
    flags[lowest < highest] |= np.uint16(Flag.CONFLICT)
    return flags


_NEVER = 2.0**60  # ms; fits 64 bits, and is not a time of any calendar
_GPU = IDENTITY.get_field_index("gpu")


def _milliseconds(moment: float) -> int:
    """Return a time in ms since 1970. Prometheus text has ms, OpenMetrics seconds: no reading is from before 1973.

    >>> _milliseconds(1723280400), _milliseconds(1723280400000)
    (1723280400000, 1723280400000)
    """
    return round(moment * 1000 if abs(moment) < 1e11 else max(-_NEVER, min(moment, _NEVER)))


@functools.lru_cache(maxsize=16384)
def _who(text: bytes, instance: str | None, cluster: str | None) -> tuple[Any, ...] | None:
    return _identified(text, instance, cluster, None)


def _identified(text: bytes, instance: str | None, cluster: str | None, problems: Problems | None) -> tuple[Any, ...] | None:
    labels = label_values(text)
    if labels is None:
        return None
    if instance is not None:
        labels.setdefault("instance", instance)
    who = identity(labels, problems, cluster)
    return tuple(who[field.name] for field in IDENTITY)
