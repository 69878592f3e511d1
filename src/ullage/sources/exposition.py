"""Text exposition, as dcgm-exporter and every other Prometheus exporter writes it: files, and live exporters by URL.

A line is a name, labels in braces, a value and perhaps a time. Times come from the text (a timestamp after the value,
or a comment `# time 1723280400` before the lines it speaks for), else from the file's name, else from when the file was
last written; a live exporter's are when it was asked. A last line without a line feed is cut off and is left out, since
the format demands one (Prometheus, "Exposition formats") and `0.9` may have been `0.95`.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

import pyarrow as pa

from ullage.compressed import head
from ullage.errors import UllageError, UnreadableError, harmless
from ullage.problems import Problems
from ullage.sources.http import Client, ServerError
from ullage.sources.rows.lines import ExpositionLines
from ullage.sources.source import Options, Place, source

CHUNK = 8 << 20  # bytes read and parsed at a time
HELD = 100_000  # lines of small files that are put into one batch
LONGEST_LINE = 32 << 20  # a longer line is no exposition; it is skipped without being held in memory
_ADVICE = "give a dcgm-exporter page (http://node:9400/metrics), a saved one, or a folder of them"
_SAMPLE = re.compile(rb"^[a-zA-Z_:][a-zA-Z0-9_:]* ?\{[^\n]*\}[ \t]*[-+0-9.eEnNaAiIfF]+(?:[ \t]+[0-9.]+)?[ \t]*\r?$", re.MULTILINE)
_HELP = re.compile(rb"^# (?:HELP|TYPE) [a-zA-Z_:]", re.MULTILINE)


def recognise(place: Place) -> int:
    """Return how sure it is that this is text exposition: by its lines, and for a URL by its path (0, 1 or 2)."""
    if place.url is not None:
        if not place.url.startswith(("http://", "https://")):
            return 0
        return 2 if place.url.split("?", 1)[0].rstrip("/").endswith(("/metrics", "/federate")) else 1
    if _HELP.search(place.head):
        return 2
    return 2 if _SAMPLE.search(place.head) else 0


@source("exposition", recognise=recognise, reads="text exposition of dcgm-exporter and other GPU exporters (file or URL)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield a batch for every 8 MB of text: a row for each device and time, with all fields that the text holds.

    A URL is asked once, or every `options.interval` seconds for `options.watch` seconds. Lines that can't be read,
    series that stand twice in one scrape, and devices without a name are left out and counted. Raises UllageError
    when nothing in the text is a field of a GPU, and for an HTML page.
    """
    if place.url is None:
        yield from read_file(place, options, problems)
    else:
        shown, fetch = _page(place.url, options)
        yield from watch(shown, fetch, options, problems)


def read_file(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one file."""
    lines = ExpositionLines(place.name, options, problems)
    yield from _file(cast(Path, place.path), lines, problems, options)
    lines.require_fields(_ADVICE)


def recognise_folder(place: Place) -> int:
    """Return 2 for a folder in which every file (hidden ones aside) is text exposition, else 0."""
    files = _files(cast(Path, place.path))
    return 2 if files and all(_is_exposition(path) for path in files) else 0


def _is_exposition(path: Path) -> bool:
    try:
        return recognise(Place(path.name, path, head(path))) > 0
    except UllageError:
        return False


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


@source("expositions", recognise=recognise_folder, reads="a folder of scrapes, the time of each in its name", folder=True)
def read_folder(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a folder of scrapes, read as one text: many small pages make one batch.

    A file that can't be read to its end is counted, and what it gave is kept. Raises UllageError when no file holds a
    field of a GPU.
    """
    files, lines = _files(cast(Path, place.path)), ExpositionLines(place.name, options, problems)
    for number, path in enumerate(files, 1):
        lines.next_scrape()
        try:
            yield from _file(path, lines, problems, options, HELD)
        except UnreadableError as error:
            problems.cut_short("files that could not be read to the end", error.problem, lines.read_until)
        except UllageError as error:  # whole, and of no use
            problems.drop("files that could not be read to the end", where=error.problem)
        options.progress(f"{number:,} of {len(files):,} files")
    batch = lines.take()
    if batch is not None:
        yield batch
    lines.place = place.name
    lines.require_fields(_ADVICE)


def _file(path: Path, lines: ExpositionLines, problems: Problems, options: Options, held: int = 0) -> Iterator[pa.RecordBatch]:
    named = time_in_name(path.name)
    lines.place, lines.dated = path.name, False
    with Place(str(path), path).open() as file:
        yield from _batches(file, lines, round(path.stat().st_mtime * 1000) if named is None else named, problems, options, held)
    if named is None and not lines.dated:
        problems.note("neither the text nor the file name gives a time; the time at which the file was written is used")


Fetch = Callable[[], IO[bytes]]


def watch(
    name: str,
    fetch: Fetch,
    options: Options,
    problems: Problems,
    clock: Callable[[], int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an exporter's page, asked every `options.interval` seconds for `options.watch` seconds.

    `fetch` opens the page called `name` (its URL without credentials, which also names the host where the labels
    don't), `clock` gives ms since 1970. The first page must be there; a later one that is not is counted and left out,
    and when the last ones are not, or the deadline passes, the place was read only in part. `options.until` leaves no page out.
    """
    now = clock or options.now or (lambda: round(time.time() * 1000))
    options = replace(options, until=None)  # a page of now is later than the now of whoever began to ask
    lines = ExpositionLines(name, options, problems, instance=name)
    begin, turns = now(), 1 + (int(options.watch / options.interval) if options.watch > 0 else 0)
    latest, failure = begin, ""
    for turn in range(turns):
        if turn:
            sleep(max(0.0, min((begin + 1000 * turn * options.interval - now()) / 1000, options.deadline.left)))
            if not options.deadline.left:
                failure = f"the deadline passed after {turn:,} of {turns:,} scrapes of {name}"
                break
        try:
            with fetch() as page:
                latest, failure = now(), ""
                yield from _batches(page, lines, latest, problems, options)
        except UllageError as error:
            if not turn:
                raise
            failure = error.problem
            problems.drop("scrapes that failed", where=error.problem)
        lines.next_scrape()
        options.progress(f"{turn + 1:,} of {turns:,} scrapes")
    lines.require_fields(_ADVICE)
    if failure:  # a scrape that fails between others is a gap like any other; a last one may be the first of many
        problems.cut(failure, latest)


def _batches(
    file: IO[bytes], lines: ExpositionLines, moment: int, problems: Problems, options: Options, held: int = 0
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of one text; up to `held` lines may stay behind in `lines`, for a batch together with the next.

    A damaged end is counted once what came before it has been read.
    """
    lines.begin(moment)
    before = lines.fields
    try:
        for number, chunk in chunks(file, problems, lines.place, read_until=lambda: lines.read_until):
            if number == 1:
                refuse_html(chunk, lines.place)
                chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            lines.parse(chunk, number)
            batch = lines.take() if lines.pending > held else None
            if batch is not None:
                yield batch
            options.progress(f"{lines.read:,} lines")
    except UnreadableError as error:
        if lines.fields == before:
            raise
        problems.cut_short("ends of files that are damaged", error.problem, lines.read_until)


def chunks(
    file: IO[bytes],
    problems: Problems,
    place: str,
    size: int = CHUNK,
    longest: int = LONGEST_LINE,
    read_until: Callable[[], int | None] = lambda: None,
) -> Iterator[tuple[int, bytes]]:
    """Yield (number of its first line, text) in pieces of about `size` bytes that end at a line's end.

    A line longer than `longest` and a last line without a line feed, which a whole text doesn't have, are left out and
    counted. What was read before an error is yielded before the error is raised.

    >>> [*chunks(io.BytesIO(b"a 1\\nb 2\\nc"), Problems(), "x", size=5)]
    [(1, b'a 1\\n'), (2, b'b 2\\n')]
    """
    number, pending, skipping = 1, b"", False
    for piece, error in _pieces(file, size):
        if skipping:
            _, ended, piece = piece.partition(b"\n")
            if ended:
                problems.drop(f"lines longer than {longest >> 20} MB", where=f"{place} line {number}")
                number, skipping = number + 1, False
        whole, ended, rest = piece.rpartition(b"\n")
        if ended:
            text = pending + whole + ended
            yield number, text
            number, pending = number + text.count(b"\n"), b""
        pending += rest
        if len(pending) > longest:
            pending, skipping = b"", True
        if error is not None:
            raise error
    if skipping:
        problems.drop(f"lines longer than {longest >> 20} MB", where=f"{place} line {number}")
    elif pending.strip() and not pending.lstrip().startswith(b"#"):
        if number == 1:  # a page in one line
            refuse_html(pending, place)
        problems.cut_short("last lines without an end", f"{place} line {number}", read_until())


def _pieces(file: IO[bytes], size: int) -> Iterator[tuple[bytes, UllageError | None]]:
    """Yield what the file gives in pieces of about `size` bytes, the last one with the error that ended it."""
    take = getattr(file, "read1", file.read)  # read1 gives what there is before it raises
    parts: list[bytes] = []
    error = None
    while error is None:
        try:
            part = take(min(size, 1 << 20))
        except UllageError as problem:
            part, error = b"", problem
        parts.append(part)
        if not part or sum(map(len, parts)) >= size:
            if any(parts) or error:
                yield b"".join(parts), error
            parts = []
            if not part:
                return


def refuse_html(text: bytes, place: str) -> None:
    """Raise UllageError when the text is a web page: a login form or a proxy's error, saved in place of metrics."""
    if text.lstrip()[:15].lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        title = re.search(rb"<title>\s*([^<]{0,80})", text[:65536], re.IGNORECASE)
        named = f" ('{harmless(title[1].decode(errors='replace').strip())}')" if title else ""
        raise UllageError(
            f"{place} is an HTML page{named}, not metrics", "a proxy or a login page answered in place of the exporter; " + _ADVICE
        )


_IN_NAME = re.compile(
    r"(?<!\d)(?:(?P<year>20\d\d)-?(?P<month>[01]\d)-?(?P<day>[0-3]\d)[T_ .-]?"
    r"(?P<hour>[0-2]\d)[:._-]?(?P<minute>[0-5]\d)[:._-]?(?P<second>[0-5]\d)(?:[.,](?P<milli>\d{3}))?"
    r"|(?P<epoch>1\d{9})(?P<epoch_ms>\d{3})?)(?!\d)"
)


def time_in_name(name: str) -> int | None:
    """Return the time that a file name holds, in ms since 1970 (UTC), or None: ISO 8601 or seconds or ms since 1970.

    >>> time_in_name("1723280400.prom"), time_in_name("scrape-2024-08-10T09-00-00Z.prom.gz"), time_in_name("node-17.prom")
    (1723280400000, 1723280400000, None)
    """
    found = _IN_NAME.search(name)
    if found is None:
        return None
    if found["epoch"]:
        return int(found["epoch"]) * 1000 + int(found["epoch_ms"] or 0)
    parts = [int(found[part]) for part in ("year", "month", "day", "hour", "minute", "second")]
    try:
        return round(datetime(*parts, tzinfo=UTC).timestamp() * 1000) + int(found["milli"] or 0)  # type: ignore[misc,arg-type]
    except ValueError:
        return None


def _page(url: str, options: Options) -> tuple[str, Fetch]:
    """Return the URL without credentials, and a function that opens the page."""
    parts = urlsplit(url)
    client = Client(f"{parts.scheme}://{parts.netloc}", options)
    path = parts.path + (f"?{parts.query}" if parts.query else "")

    def fetch() -> IO[bytes]:
        try:
            return io.BytesIO(client.get(path))
        except ServerError as error:
            raise UllageError(
                error.problem, "exporters answer at /metrics: is the path complete?" if error.status == 404 else error.hint
            ) from error

    return client.shown + parts.path, fetch
