"""Prometheus API answers, saved or fresh: JSON of instant and range queries, and VictoriaMetrics' export lines.

The text is cut into series as it streams by. Only labels are parsed as JSON; the numbers of some megabytes go through
one CSV conversion, so that no Python object is made for a number. What lies between the series is small, and must be
sound JSON by itself: that tells a whole answer from one that was cut off.

Why cutting by pattern is safe: inside a JSON string a quote is always written `\\"`, so `{"metric":` or `"values":[`
can't occur in a label, whatever its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ullage.errors import UllageError, UnreadableError, harmless
from ullage.problems import Problems
from ullage.sources.naming.fields import known
from ullage.sources.rows.readings import Readings, SeriesReadings
from ullage.sources.source import Options, Place, source

Floats = npt.NDArray[np.float64]

PIECE = 4 * 1024 * 1024  # bytes read, and bytes of numbers converted, at a time
LONGEST = 256 * 1024 * 1024  # bytes of one series; a month of one-second readings is about 70 MB
FLUSH = 4_000_000  # readings held before a saved file yields a batch

_START = re.compile(rb'\{\s*"metric"\s*:')
_ARRAY = re.compile(rb'"(values|value|timestamps)"\s*:\s*\[\s*')
_END = re.compile(rb"\s*\}")
_PAIRS_END = re.compile(rb"\]\s*\]")
_OPENING = re.compile(rb'\s*(\[\s*)?\{\s*"(status|data|resultType|result|metric)"\s*:')
_ENVELOPE = re.compile(rb'"resultType"\s*:\s*"(matrix|vector|scalar|string)"|"status"\s*:\s*"error"')
_BLANK = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class _Series:
    """One series as the text has it: labels (a JSON object), and its numbers without the outer brackets.

    Either `pairs` ([seconds, "value"], ...) or `values` (numbers) with `stamps` (milliseconds). `at` is its byte.
    """

    labels: bytes
    pairs: bytes = b""
    values: bytes = b""
    stamps: bytes = b""
    number: int = 0
    at: int = 0


@dataclass
class PrometheusAnswer:
    """What the text says besides its series: errors and warnings of the server, and whether it ends where it should."""

    series: int = 0
    whole: bool = True
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # of what the server could not read
    infos: list[str] = field(default_factory=list)
    damage: UllageError | None = None  # the file could not be read to its end


def blocks(read: Callable[[int], bytes], answer: PrometheusAnswer, problems: Problems, where: str) -> Iterator[SeriesReadings]:
    """Yield the readings of any number of API answers or export lines, some megabytes at a time.

    `read` gives up to so many bytes, and none at the end. `answer` is complete once the iterator is used up. Series
    whose numbers can't be read, or that are cut off, are dropped and counted with their byte position.
    """
    batch: list[_Series] = []
    size = 0
    for series in _series(read, answer, problems, where):
        batch.append(series)
        size += len(series.pairs) + len(series.values) + len(series.stamps)
        if size > PIECE:
            yield from _numbers(batch, problems, where)
            batch, size = [], 0
    yield from _numbers(batch, problems, where)


def _series(read: Callable[[int], bytes], answer: PrometheusAnswer, problems: Problems, where: str) -> Iterator[_Series]:
    """Yield each series of the text; what lies between them is judged at the end, into `answer`."""
    between: list[bytes] = []
    rest, at, more = b"", 0, b"-"
    while more:
        more = _more(read, answer)
        rest += more
        starts = [match.start() for match in _START.finditer(rest)]
        if starts or not more:
            between.append(rest[: starts[0]] if starts else rest)
        # the last series may go on in what is not read yet
        for start, end in zip(starts, starts[1:] if more else [*starts[1:], len(rest)], strict=False):
            answer.series += 1
            series, after = _cut(rest[start:end], answer.series, at + start)
            if series is None:
                place = f"{where}, series {answer.series:,}, byte {at + start:,}"
                answer.whole &= end < len(rest)
                if answer.whole:
                    problems.cut_short("series that are cut off or damaged", place)
                else:  # with it the answer ends early, which its reader refuses or says
                    problems.drop("series that are cut off or damaged", where=place)
            else:
                between.append(after)
                yield series
        kept = starts[-1] if starts else 0
        rest, at = rest[kept:], at + kept
        if len(rest) > LONGEST:
            raise UllageError(
                f"{where} has {LONGEST:,} bytes without the end of a series after byte {at:,}", "is it a Prometheus API answer?"
            )
    _judge(b"".join(b"" if text.strip(_BLANK) == b"," else text for text in between), answer)


def _more(read: Callable[[int], bytes], answer: PrometheusAnswer) -> bytes:
    """Return the next bytes; damage (a truncated gzip) ends the text, after what was read before it."""
    try:
        return read(PIECE)
    except UllageError as error:
        answer.damage = error
        return b""


def _cut(piece: bytes, number: int, at: int) -> tuple[_Series | None, bytes]:
    """Return the series that a piece of text begins with, and the text after it; None when it has no sound end."""
    head = _START.match(piece)
    array = _ARRAY.search(piece, head.end()) if head else None
    if head is None or array is None:
        return _parsed(piece, number, at)
    labels = piece[head.end() : array.start()].strip(_BLANK + b",")
    pairs, values, stamps, end = _arrays(piece, array)
    tail = _END.match(piece, end) if end > 0 else None
    if tail is None or not labels.endswith(b"}"):
        return _parsed(piece, number, at)
    return _Series(labels, pairs, values, stamps, number, at), piece[tail.end() :]


_NOWHERE = b"", b"", b"", 0


def _arrays(piece: bytes, array: re.Match[bytes]) -> tuple[bytes, bytes, bytes, int]:
    """Return (pairs, values, stamps, where the last one ends), those not there empty; 0 when there is no end."""
    begin = array.end()
    if array[1] == b"values" and piece[begin : begin + 1] == b"[":
        close = _PAIRS_END.search(piece, begin)
        return (piece[begin : close.start() + 1], b"", b"", close.end()) if close else _NOWHERE
    if array[1] == b"value":
        end = piece.find(b"]", begin) + 1
        return b"[" + piece[begin:end], b"", b"", end
    return _two_arrays(piece, array)


def _two_arrays(piece: bytes, first: re.Match[bytes]) -> tuple[bytes, bytes, bytes, int]:
    """Do what `_arrays` does for VictoriaMetrics' values and timestamps, in either order."""
    found: dict[str, bytes] = {}
    array: re.Match[bytes] | None = first
    end = 0
    while array is not None and len(found) < 2:
        end = piece.find(b"]", array.end())
        if end < 0:
            return _NOWHERE
        found["stamps" if array[1] == b"timestamps" else "values"] = piece[array.end() : end]
        array = _ARRAY.search(piece, end)
    if not any(text.strip(_BLANK) for text in found.values()):
        return b"", b"", b"", end + 1
    return (b"", found["values"], found["stamps"], end + 1) if len(found) == 2 else _NOWHERE


def _parsed(piece: bytes, number: int, at: int) -> tuple[_Series | None, bytes]:
    """Do what `_cut` does for an uncommon order of keys (or native histograms), by a whole JSON parser."""
    text = piece.decode("utf-8", "replace")
    try:
        thing, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, b""
    labels = json.dumps(thing["metric"]).encode()
    values, stamps = thing.get("values", []), thing.get("timestamps")
    pairs = [thing["value"]] if "value" in thing else values if stamps is None else []
    pairs_text, values_text, stamps_text = (
        json.dumps(array)[1:-1].encode() for array in (pairs, [] if stamps is None else values, stamps or [])
    )
    return _Series(labels, pairs_text, values_text, stamps_text, number, at), text[end:].encode()


def _judge(between: bytes, answer: PrometheusAnswer) -> None:
    """Read the text between the series as JSON: the server's words, and whether every bracket was closed."""
    text = between.decode("utf-8", "replace").strip()
    decoder = json.JSONDecoder()
    while text and answer.whole:
        try:
            document, end = decoder.raw_decode(text)
        except (ValueError, RecursionError):
            answer.whole = False
            return
        text = text[end:].lstrip()
        for part in document if isinstance(document, list) else [document]:
            if isinstance(part, dict):
                _listen(part, answer)


def _listen(envelope: dict[str, Any], answer: PrometheusAnswer) -> None:
    if envelope.get("status") == "error":
        answer.errors.append(harmless(f"{envelope.get('errorType', 'error')}: {envelope.get('error', 'no reason given')}"))
    for key, heard in (("warnings", answer.warnings), ("infos", answer.infos)):
        said = envelope.get(key)
        heard += [harmless(str(line)) for line in said] if isinstance(said, list) else []
    if envelope.get("isPartial") is True:
        answer.warnings.append("the server marked its answer as partial")


def _numbers(batch: list[_Series], problems: Problems, where: str) -> Iterator[SeriesReadings]:
    """Yield the numbers of several series; those that can't be converted are found by halving, dropped and counted."""
    for group in ([s for s in batch if s.pairs], [s for s in batch if s.values]):
        if not group:
            continue
        try:
            yield _paired(group) if group[0].pairs else _flat(group)
        except ValueError:  # pa.ArrowInvalid is one
            if len(group) == 1:
                place = f"{where}, series {group[0].number:,}, byte {group[0].at:,}"
                problems.drop("series whose numbers can't be read", where=place)
                continue
            half = len(group) // 2
            yield from _numbers(group[:half], problems, where)
            yield from _numbers(group[half:], problems, where)


# `[1,"a"],[2,"b"]` with a comma before it becomes the lines `,1,a` and `,2,b`: three columns, the first empty.
_LINES = bytes(ord("\n") if byte == ord("]") else byte for byte in range(256))
_LIST = bytes(ord("\n") if byte == ord(",") else byte for byte in range(256))


def _paired(group: list[_Series]) -> SeriesReadings:
    counts = np.array([series.pairs.count(b"[") for series in group])
    text = b"," + b",".join([series.pairs for series in group])
    seconds, values = _csv(text.translate(_LINES, b'["' + _BLANK), ["", "seconds", "value"], int(counts.sum()))
    return SeriesReadings([series.labels for series in group], counts, _milliseconds(seconds * 1000), values)


def _flat(group: list[_Series]) -> SeriesReadings:
    counts = np.array([series.values.count(b",") + 1 for series in group])
    if counts.tolist() != [series.stamps.count(b",") + 1 for series in group]:
        raise ValueError("as many timestamps as values are expected")
    columns = []
    for texts in ([series.values for series in group], [series.stamps for series in group]):
        columns += _csv(b",".join(texts).translate(_LIST, b'"' + _BLANK), ["number"], int(counts.sum()))
    return SeriesReadings([series.labels for series in group], counts, _milliseconds(columns[1]), columns[0])


def _csv(text: bytes, names: list[str], rows: int) -> list[Floats]:
    """Return the named columns as numbers, null and NaN as NaN; raises ValueError unless there are `rows` sound rows."""
    from pyarrow import csv

    wanted = [name for name in names if name]
    table = csv.read_csv(
        pa.py_buffer(text),
        read_options=csv.ReadOptions(column_names=names),
        parse_options=csv.ParseOptions(quote_char=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.float64()), include_columns=wanted, null_values=["NaN", "null"]
        ),
    )
    if table.num_rows != rows:
        raise ValueError(f"{rows} numbers are expected, not {table.num_rows}")
    return [cast(Floats, table[name].to_numpy()) for name in wanted]


def _milliseconds(times: Floats) -> npt.NDArray[np.int64]:
    if not bool(np.all(np.abs(times) < 2.0**53)):
        raise ValueError("a time is missing or beyond counting")
    return np.rint(times).astype(np.int64)


def recognise(place: Place) -> int:
    """Return 2 for a saved API answer (matrix, vector or error) or VictoriaMetrics export lines, by content."""
    head = place.head.removeprefix(b"\xef\xbb\xbf")
    if place.path is None or not _OPENING.match(head):
        return 0
    return 2 if _START.search(head) or _ENVELOPE.search(head) else 0


@source("prometheus-json", recognise=recognise, reads="saved Prometheus API answers and VictoriaMetrics export lines (JSON)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield record batches from a saved answer: `query`, `query_range` (several in one file too), or `/api/v1/export`.

    A series without `__name__` (the result of an expression) takes the file's name where that is a known field, as in
    `DCGM_FI_PROF_SM_ACTIVE.json`. A file that ends early yields what is whole, and a note says so. Raises UllageError
    for an error answer, and when there is no whole series.
    """
    answer = PrometheusAnswer()
    stem = Path(place.name).name.split(".")[0]
    readings = Readings(options, problems, place.name, stem if known(stem) else None)
    with place.open() as file:
        for block in blocks(getattr(file, "read1", file.read), answer, problems, place.name):
            readings.add(block)
            if readings.size > FLUSH:
                yield readings.batch()
    if readings.size:
        yield readings.batch()
    _finish(place.name, answer, problems)


def _finish(name: str, answer: PrometheusAnswer, problems: Problems) -> None:
    heed(answer, problems, name)
    if answer.damage:
        raise answer.damage
    if answer.errors:
        raise UllageError(
            f"{name} holds an error of the server ({answer.errors[0]})", "ask again and save the answer; what else was in the file is kept"
        )
    if not answer.whole and not answer.series:
        raise UnreadableError(f"{name} is a Prometheus API answer cut off before its first series", "save the answer again")
    if not answer.whole:
        told = f"{name} ends early or is damaged: {answer.series:,} series were begun"
        problems.note(told)
        problems.cut(told)


def heed(answer: PrometheusAnswer, problems: Problems, name: str) -> None:
    """Note what the server says beside its answer; a warning about a plain selection says that a part of the data is missing."""
    for words in (*answer.warnings, *answer.infos):
        problems.note(f"{name}: {words}")
    for warning in answer.warnings:
        problems.cut(f"{name}: {warning}")
