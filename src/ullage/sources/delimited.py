"""CSV and TSV: wide, long, or a column per series, read in blocks.

The delimiter (comma, semicolon, tab or bar) is found in the head of the file; the first line holds the columns' names.
A line with a wrong number of columns is left out and counted; a word where a number should be is a missing value.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from ullage.errors import UllageError, UnreadableError, harmless
from ullage.problems import Problems
from ullage.sources.naming.columns import ColumnLayout, layout
from ullage.sources.rows.tabular import TableReading, batches, nothing_known
from ullage.sources.source import Options, Place, source

BLOCK = 8 << 20  # bytes of text at a time
_LONGEST_LINE = 32 << 20
_MOST_COMMENTS = 1000
_DELIMITERS = ",;\t|"
# Words that mean "no value" in what exporters, nvidia-smi and spreadsheets write
MISSING = ["", "-", "–", "N/A", "[N/A]", "n/a", "NA", "null", "NULL", "None", "[Not Supported]", "undefined"]
_OTHER = re.compile(rb"\s*([{\[<]|#\s*(HELP|TYPE|gpu|Idx)|[A-Za-z_:][A-Za-z0-9_:]*\{)")  # JSON, HTML, exposition, dmon


@dataclass(frozen=True)
class Head:
    """The first line of a table: its delimiter, the names of its columns, and how many lines come before the rows."""

    delimiter: str
    names: tuple[str, ...]
    lines: int


def recognise(place: Place) -> int:
    """Return 1 where the file begins with a line of at least two columns: every loose table, so that a poor one is explained."""
    if place.path is None or b"\0" in place.head or _OTHER.match(place.head):
        return 0
    first = head(place.head)
    if first is None or len(first.names) < 2 or all(_is_number(name) for name in first.names):
        return 0
    return 1


@source("csv", recognise=recognise, reads="CSV and TSV (wide: a column per field; long: metric and value; a column per series)")
def read(place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield record batches of samples, a block of the file at a time.

    Raises UllageError that names the columns when there is not a time or nothing that Ullage knows, and where a
    compressed file ends early (after what came before was yielded).
    """
    where = place.path.name if place.path else place.name
    first = head(first_lines(place))
    if first is None:
        raise UllageError(f"{where} has no line of column names", "the first line must name the columns")
    meaning = layout(first.names, where)
    reading = TableReading(where, place.unique, options, problems, first.lines)
    with place.open() as file:
        yield from _read(file, first, meaning, reading)
    if meaning.metric is not None and reading.metrics and not any(reading.metrics.values()):
        raise nothing_known(reading)


def _read(file: IO[bytes], first: Head, meaning: ColumnLayout, reading: TableReading) -> Iterator[pa.RecordBatch]:
    rows = 0
    for block in blocks(file, first, meaning.needed, reading, texts=(meaning.time, *meaning.texts)):
        yield from batches({at: block[str(at)] for at in meaning.needed}, meaning, reading)
        rows += block.num_rows
        reading.line += block.num_rows
        reading.options.progress(f"{reading.where}: {rows:,} rows")


def blocks(
    file: IO[bytes], first: Head, needed: tuple[int, ...], reading: TableReading, texts: tuple[int, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the needed columns of a delimited file in blocks; a column is named by its position ("0", "1", …).

    `texts` come dictionary-encoded, the others as they were written. Lines with a wrong number of columns
    are counted with the first one's line.
    """
    import pyarrow.csv

    def skip(row: Any) -> str:
        reading.skipped.append(row.number or 0)
        reading.problems.drop(
            "lines with a wrong number of columns", 1, f"{reading.where} line {row.number:,}" if row.number else reading.where
        )
        return "skip"

    whole = _Whole(file, (first.delimiter * len(first.names) + "\n").encode())
    word = pa.dictionary(pa.int32(), pa.string())
    names = [str(at) for at in range(len(first.names))]
    try:
        stream = pyarrow.csv.open_csv(
            whole,
            pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names, skip_rows=first.lines),
            pyarrow.csv.ParseOptions(delimiter=first.delimiter, invalid_row_handler=skip),
            pyarrow.csv.ConvertOptions(
                check_utf8=False,
                column_types={str(at): word if at in texts else pa.string() for at in needed},
                include_columns=[str(at) for at in needed],
                null_values=MISSING,
                strings_can_be_null=True,
            ),
        )
        yield from stream
        if whole.error is not None:
            raise UnreadableError(whole.error.problem, whole.error.hint, reading.order.read_until)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        if "Empty CSV" in str(error):
            return
        raise UnreadableError(
            f"{reading.where} can't be read beyond line {reading.line:,}: {harmless(str(error))}",
            "export it again",
            reading.order.read_until,
        ) from error


def head(data: bytes) -> Head | None:
    """Return the first line of a table, or None when there is none.

    Empty lines, comments (#) and a spreadsheet's `sep=;` before it are passed over.

    >>> head(b"# made by hand\\ntime;gpu;power\\n1;0;300\\n")
    Head(delimiter=';', names=('time', 'gpu', 'power'), lines=2)
    """
    lines = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#") or text.lower().startswith("sep="):
            continue
        following = next((other for other in lines[number:] if other.strip()), "")
        delimiter = _delimiter(line, following)
        return Head(delimiter, tuple(name.strip() for name in split(line, delimiter)), number) if delimiter else None
    return None


def split(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line, without their quotes.

    >>> split('Time,"up{a=""1"", b=""2""}"', ",")
    ['Time', 'up{a="1", b="2"}']
    """
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return line.split(delimiter)


def _delimiter(line: str, following: str) -> str:
    """Return the delimiter that splits the first two lines into as many columns, the most there are; "" for none."""
    counts = {mark: len(split(line, mark)) for mark in _DELIMITERS}
    likely = [mark for mark, count in counts.items() if count > 1]
    agree = [mark for mark in likely if len(split(following, mark)) == counts[mark]]
    return max(agree or likely, key=lambda mark: counts[mark], default="")


def first_lines(place: Place) -> bytes:
    """Return the lines up to the one after the columns' names, also when that is longer than what a recogniser sees."""
    data = b""
    with place.open() as file:
        for _ in range(_MOST_COMMENTS):
            line = file.readline(_LONGEST_LINE)
            data += line
            if len(data) >= _LONGEST_LINE:
                raise UllageError(f"the first lines of {place.name} are longer than {_LONGEST_LINE >> 20} MiB", "this is no table")
            first = head(data)
            if not line or (first is not None and data.count(b"\n") > first.lines):
                break
    return data


class _Whole(io.RawIOBase):
    """A file as valid UTF-8, whose damage is kept in `error` until what came before it was read.

    The line that the damage cuts is given too many columns, so that half a number is not taken for a whole one.
    """

    def __init__(self, file: IO[bytes], end: bytes) -> None:
        self._file, self._end = file, end
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ready = b""
        self.error: UllageError | None = None

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._ready and (data := self._raw(size)) is not None:
            plain = data.isascii() and self._decoder.getstate()[0] == b""
            self._ready = data if plain else self._decoder.decode(data).encode()
        given, self._ready = (self._ready, b"") if size < 0 else (self._ready[:size], self._ready[size:])
        return given

    def _raw(self, size: int) -> bytes | None:
        """Return the next bytes, or None at the end."""
        if self.error is not None:
            return None
        read = getattr(self._file, "read1", self._file.read)  # a damaged file's `read` forgets what came before the damage
        try:
            return read(size) or None
        except UllageError as error:
            self.error = error
            return self._end


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
