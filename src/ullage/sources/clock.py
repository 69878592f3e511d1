"""Times as files write them, to integer milliseconds since 1970, UTC.

Numbers are seconds, milliseconds, microseconds or nanoseconds by their magnitude; text is ISO 8601 (or nvidia-smi's
`2024/01/02 03:04:05.678`), with or without a zone. A time without a zone is of the zone that the user names, else it is
taken as UTC, and a note says so.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ullage.errors import UllageError, harmless
from ullage.problems import Problems

Milliseconds = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

# 1e11 s is the year 5138 and 1e11 ms is March 1973, so for every time from 1973 on one unit is possible.
_SECONDS, _MILLISECONDS, _MICROSECONDS = 1e11, 1e14, 1e17
_LATEST = 253_402_300_800_000  # the year 10000, in ms: beyond it nothing is a time
_FRACTION = re.compile(r"([.,]\d{6})\d+")
# What job records and exporters write where there is not a time
NOTHING = {"", "unknown", "none", "n/a", "null", "nan", "nat", "-"}


def named_zone(name: str | None) -> ZoneInfo | None:
    """Return the zone of an IANA name, None without a name. Raises UllageError where there is no such zone.

    >>> named_zone("America/New_York").key
    'America/New_York'
    """
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # a name that is a folder, or not a name at all
        raise UllageError(
            f"no time zone is called '{harmless(name, 60)}'", "give a name such as America/New_York or Europe/Berlin"
        ) from error


def milliseconds(column: pa.Array, problems: Problems, where: str = "", zone: ZoneInfo | None = None) -> tuple[Milliseconds, Mask]:
    """Return the time of every row in ms since 1970 UTC, and where there is one; what can't be read is not valid.

    `zone` is that of times that say none; of an hour that a clock shows twice the first is meant.

    `column` is an Arrow array of timestamps, dates, numbers or text (plain or dictionary-encoded), any length.
    The caller counts what is not valid; a missing zone becomes one note that names `where`.

    >>> times, valid = milliseconds(pa.array(["1970-01-01T00:00:01Z", "1970-01-01 01:00:02+01:00", "soon"]), Problems())
    >>> times.tolist(), valid.tolist()
    ([1000, 2000, 0], [True, True, False])
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _by_word(column, problems, where, zone)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            _note_naive(problems, where, zone)
        return _stored(column, zone)
    if pa.types.is_date(kind):
        return _stored(column.cast(pa.timestamp("ms")), zone)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _epoch(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    return _by_word(column.dictionary_encode(), problems, where, zone)


def moment(text: str, problems: Problems, where: str = "", zone: ZoneInfo | None = None) -> int | None:
    """Return one written time in ms since 1970 UTC, or None where there is none ("", "Unknown", "None", unreadable).

    `zone` is that of a time that says none.

    >>> moment("2023-07-01 08:00:00+08:00", Problems()) == moment("1688169600", Problems()) == 1_688_169_600_000
    True
    """
    found = _moment(text, zone)
    if found is None:
        return None
    if found[1]:
        _note_naive(problems, where, zone)
    return found[0]


def _by_word(column: pa.DictionaryArray, problems: Problems, where: str, zone: ZoneInfo | None) -> tuple[Milliseconds, Mask]:
    """Read each different word once: in a fleet's file every time stands there once per device."""
    words = column.dictionary
    if not (pa.types.is_string(words.type) or pa.types.is_large_string(words.type) or pa.types.is_binary(words.type)):
        times, valid = milliseconds(words, problems, where, zone)
    else:
        times, valid = _written(words, problems, where, zone)
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    # one more entry at the end, so that code -1 (null) finds "no time"
    return np.append(times, 0)[codes], np.append(valid, False)[codes]


def _written(words: pa.Array, problems: Problems, where: str, zone: ZoneInfo | None) -> tuple[Milliseconds, Mask]:
    try:
        return _epoch(pc.cast(words.cast(pa.string()), pa.float64()).to_numpy(zero_copy_only=False))
    except pa.ArrowInvalid:
        pass
    for kind in (pa.timestamp("ns", "UTC"), pa.timestamp("ns")):
        try:  # Arrow's own reader is fast and accepts a column only whole: all with a zone, or all without
            read = pc.cast(words.cast(pa.string()), kind)
        except pa.ArrowInvalid:
            continue
        if kind.tz is None and len(words):
            _note_naive(problems, where, zone)
        return _stored(read, zone)
    found = [_moment(as_text(word), zone) for word in words.to_pylist()]
    if any(one is not None and one[1] for one in found):
        _note_naive(problems, where, zone)
    times = np.array([one[0] if one else 0 for one in found], np.int64)
    return times, np.array([one is not None for one in found], np.bool_)


def as_text(word: str | bytes | None) -> str:
    """Return a word as text; bytes that are not UTF-8 are replaced, a null is empty."""
    return "" if word is None else word.decode("utf-8", "replace") if isinstance(word, bytes) else word


def _moment(text: str, zone: ZoneInfo | None) -> tuple[int, bool] | None:
    """Return (ms, whether the zone was missing) of one written time."""
    text = text.strip().strip('"')
    if text.casefold() in NOTHING or len(text) > 64:
        return None
    try:
        times, valid = _epoch(np.array([float(text)]))
        return (int(times[0]), False) if valid[0] else None
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(_FRACTION.sub(r"\1", text.replace("/", "-").removesuffix(" UTC")))
        naive = read.tzinfo is None and not text.endswith(" UTC")
        if naive and zone is not None:
            return _localized(pa.scalar(read, pa.timestamp("us")), zone).cast(pa.timestamp("ms", "UTC"), safe=False).value, True
        read = read.replace(tzinfo=UTC) if read.tzinfo is None else read
        return round(read.timestamp() * 1000), naive
    except (ValueError, OverflowError):
        return None


def _localized(times: Any, zone: ZoneInfo) -> Any:
    """Return times without a zone as times of that zone: of two that its clock shows alike the first, for one that it skips the next."""
    return pc.assume_timezone(times, zone.key, ambiguous="earliest", nonexistent="latest")


def _stored(column: pa.Array, zone: ZoneInfo | None) -> tuple[Milliseconds, Mask]:
    if column.type.tz is None and zone is not None:
        column = _localized(column, zone)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    whole = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    times = whole.fill_null(0).to_numpy(zero_copy_only=False)
    sane = valid & (np.abs(times) < _LATEST)
    return np.where(sane, times, 0), sane


def _epoch(values: npt.NDArray[np.float64]) -> tuple[Milliseconds, Mask]:
    """Settle the unit of each number by its magnitude.

    >>> _epoch(np.array([1.7e9, 1.7e12, 1.7e15, 1.7e18, np.nan]))[0].tolist()
    [1700000000000, 1700000000000, 1700000000000, 1700000000000, 0]
    """
    size = np.abs(values)
    factor = np.select([size < _SECONDS, size < _MILLISECONDS, size < _MICROSECONDS], [1e3, 1.0, 1e-3], 1e-6)
    with np.errstate(invalid="ignore", over="ignore"):
        times = np.round(values * factor)
        valid = np.isfinite(times) & (np.abs(times) < _LATEST)
    return np.where(valid, times, 0).astype(np.int64), valid


def _note_naive(problems: Problems, where: str, zone: ZoneInfo | None) -> None:
    if zone is None:
        problems.note(f"times without a time zone were taken as UTC{f' ({where})' if where else ''}")
