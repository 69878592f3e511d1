"""Labelled readings into samples: the labels of a series say which field and whose; the numbers are cleaned and pivoted.

Holds one piece at a time: add blocks, then take the batch. What a label set means is worked out once and remembered.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.problems import Problems
from ullage.sources.naming.fields import Alias, clean, known, possible
from ullage.sources.naming.labels import identity
from ullage.sources.rows.pivot import FieldReadings, Identities, batch, pivot
from ullage.sources.source import Options

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EARLIEST, LATEST = 946_684_800_000, 4_102_444_800_000  # 2000 and 2100: a time outside is not in milliseconds
REMEMBERED = 200_000  # label sets; pods come and go, and memory must not grow with them
_UNKNOWN, _BY_LABEL = -1, -2
_LEFT_OUT = (_UNKNOWN, -1)
# an unescaped quote can't occur inside a JSON string, so this is the name itself and never a part of a label's value
_NAME = re.compile(rb'"__name__"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,?')


@dataclass(frozen=True)
class SeriesReadings:
    """Readings of several series: the labels of each as JSON, how many readings it has, and all readings in that order.

    Times are ms since 1970; a value is NaN where the source wrote "NaN".
    """

    labels: list[bytes]
    counts: Ints
    times: Ints
    values: Floats


class Readings:
    """Readings of known fields, gathered until they are taken as a record batch.

    `where` names the place for counts. `unnamed` is the metric's name for series that carry none. Only readings in
    (since, until] of the options are kept: a reading speaks for the time before it.
    """

    def __init__(self, options: Options, problems: Problems, where: str, unnamed: str | None = None) -> None:
        self.size = 0
        self._options, self._problems, self._where, self._unnamed = options, problems, where, unnamed
        self._devices = Identities()
        self._aliases: list[Alias] = []
        self._fields: dict[bytes, int] = {}  # metric name -> number of its alias
        self._owners: dict[bytes, int] = {}  # the other labels -> number of the device: the same for all its fields
        self._parts: dict[int, list[tuple[Ints, Ints, Floats]]] = {}

    def add(self, block: SeriesReadings) -> None:
        """Take the readings whose metric is a known field and whose labels name a device; the rest is counted."""
        told = np.array([self._meaning(raw) for raw in block.labels], np.int64).reshape(-1, 2)
        kept = self._in_time(block.times)
        fields = set(told[:, 0].tolist()) - {-1}
        for number in fields:
            mine = told[:, 0] == number
            here = kept if mine.all() else kept & np.repeat(mine, block.counts)
            who = np.repeat(told[:, 1], block.counts)
            part = (who, block.times, block.values) if here.all() else (who[here], block.times[here], block.values[here])
            self._parts.setdefault(number, []).append(part)
            self.size += len(part[0])

    def batch(self) -> pa.RecordBatch:
        """Return everything added since the last call as a `tables.SAMPLES` record batch, and forget it."""
        columns = []
        for number in sorted(self._parts):
            alias = self._aliases[number]
            who, times, values = (np.concatenate(part) for part in zip(*self._parts[number], strict=True))
            nan = int(np.count_nonzero(np.isnan(values)))
            self._problems.drop("readings that are not a number (NaN)", nan, f"{self._where} {alias.name}".strip())
            cleaned, flags = clean(alias, cast(Floats, values), self._problems, self._where)
            columns.append(FieldReadings(alias.field, cast(Ints, who), cast(Ints, times), cleaned, flags, alias.parts))
        self.forget()
        return batch(pivot(columns), self._devices, self._problems, self._where)

    def forget(self) -> None:
        """Drop what was added since the last batch."""
        self._parts, self.size = {}, 0

    def _in_time(self, times: Ints) -> npt.NDArray[np.bool_]:
        sane = (times >= EARLIEST) & (times <= LATEST)
        self._problems.drop("readings with a time before 2000 or after 2100", int(len(sane) - sane.sum()), self._where)
        if self._options.since is not None:
            sane &= times > self._options.since
        if self._options.until is not None:
            sane &= times <= self._options.until
        return sane

    def _meaning(self, raw: bytes) -> tuple[int, int]:
        """Return (number of the alias, number of the device) of a label set; (-1, -1) for what is left out."""
        found = _NAME.search(raw)
        name, others = (found[1], raw[: found.start()] + raw[found.end() :]) if found else (b"", raw)
        alias = self._fields.get(name)
        if alias is None:
            alias = self._fields[name] = self._known(name.decode("utf-8", "replace") or self._unnamed or "")
        if alias == _BY_LABEL:
            alias = self._number(known(name.decode("utf-8", "replace"), label_set(raw)))
        if alias < 0:
            what = (
                "series of metrics that Ullage does not keep" if name else "series without a metric name (name the file after the metric)"
            )
            self._problems.drop(what, where=f"{self._where} {name.decode('utf-8', 'replace')}".strip())
            return _LEFT_OUT
        device = self._owners.get(others)
        if device is None:
            if len(self._owners) >= REMEMBERED:
                self._owners.clear()
            device = self._owners[others] = self._owner(raw)
        return (alias, device) if device >= 0 else _LEFT_OUT

    def _known(self, name: str) -> int:
        """Return the number of a metric's alias, -1 for one that is not kept, -2 where its labels decide."""
        alias = known(name)
        return _BY_LABEL if alias is None and possible(name) else self._number(alias)

    def _number(self, alias: Alias | None) -> int:
        if alias is None:
            return _UNKNOWN
        if alias not in self._aliases:
            self._aliases.append(alias)
        return self._aliases.index(alias)

    def _owner(self, raw: bytes) -> int:
        """Return the number of the device that a label set names, -1 when it names none."""
        labels = label_set(raw)
        if labels is None:
            self._problems.drop("series whose labels can't be read", where=self._where)
            return -1
        who = identity(labels, self._problems, self._options.cluster)
        if who["gpu"] is None:
            self._problems.drop("series that name no device", where=f"{self._where} {labels.get('__name__', '')}".strip())
            return -1
        if any(isinstance(value, str) and "\ufffd" in value for value in who.values()):
            self._problems.repair("label sets that are not UTF-8, their bad bytes replaced", where=self._where)
        return self._devices.code(who)


def label_set(raw: bytes) -> dict[str, str] | None:
    """Return a JSON object of strings as a dictionary, invalid UTF-8 replaced; None when it is something else.

    >>> label_set(b'{"gpu": "0"}'), label_set(b'{"gpu": 0}'), label_set(b'{"host": "\\xff"}')
    ({'gpu': '0'}, None, {'host': '\\ufffd'})
    """
    try:
        return msgspec.json.decode(raw, type=dict[str, str])
    except (msgspec.ValidationError, RecursionError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        labels = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    sound = isinstance(labels, dict) and all(isinstance(value, str) for value in labels.values())
    return labels if sound else None
