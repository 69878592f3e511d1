"""What a trace format is, and how a file finds its reader.

A format is one module in this folder with one function under `@trace`. It is handed a `File` and yields record batches of
`ullage.tables.INTERVALS` (build them with `tables.intervals`), filling the `Recording` meanwhile. A format that holds sums
instead of intervals (TALP JSON) registers under `@sums` and returns `ullage.totals.Region`s. Neither knows a metric.

Rules for a reader:

- Times become int64 nanoseconds at once; an interval is never widened or shrunk. On the clock since 1970 where the source
  allows it (`recording.clock = "utc"`).
- What it must leave out it counts in `Problems` by reason. A *device* event that ran but whose time can't be believed is
  yielded as kind `lost` at the moment it began, or counted in `recording.untimed`: so that nobody takes it for idle time.
- A file that ends early gives what came before, and sets `recording.cut`. With `options.strict` it is an error.
- Nothing inside a file is ever run, unpickled, or followed as a path.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from ullage.compressed import head, opened
from ullage.errors import UllageError, harmless
from ullage.problems import Problems
from ullage.recording import Recording
from ullage.registry import Registry
from ullage.totals import Region


@dataclass(frozen=True)
class TraceOptions:
    """What the user may say about a trace file.

    `rank` is the rank of a file that doesn't tell; `strict` refuses damaged files; `limit` is the most decompressed bytes that
    a file may have (a guard against zip bombs); `workers` is how many processes may read one file; `progress` is called with a
    word about what was done so far.
    """

    rank: int | None = None
    strict: bool = False
    limit: int = 64 * 2**30
    workers: int = 1
    progress: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class File:
    """A trace file: its path, and its first bytes (decompressed)."""

    path: Path
    head: bytes = b""

    @property
    def name(self) -> str:
        """The file's name, harmless to print."""
        return harmless(str(self.path), 4096)

    def open(self) -> IO[bytes]:
        """Open for reading, decompressed. A compressed file that ends early raises UllageError where it ends."""
        return opened(self.path)


class TraceReader(Protocol):
    """A function that turns a trace file into record batches of intervals."""

    def __call__(self, file: File, recording: Recording, options: TraceOptions, problems: Problems) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `tables.INTERVALS`."""


class SumsReader(Protocol):
    """A function that turns a file of sums into regions."""

    def __call__(self, file: File, recording: Recording, options: TraceOptions, problems: Problems) -> list[Region]:
        """Return the regions, the whole run first."""


@dataclass(frozen=True)
class Trace:
    """A registered format. `recognise` sees a file and says how sure it is: 0 not mine, 1 perhaps, 2 certainly.

    `read` gives intervals, `sums` gives sums; one of them is None. `beside` are endings of files that belong to a trace
    and are no trace themselves (Paraver's .pcf and .row). `repeats` says of a file whether one of the others tells the same and more;
    `session`, in which folder one run of the tool writes.
    """

    name: str
    recognise: Callable[[File], int]
    reads: str
    read: TraceReader | None = None
    sums: SumsReader | None = None
    beside: tuple[str, ...] = field(default=())
    repeats: Callable[[Path, Collection[Path]], bool] | None = None
    session: Callable[[Path], Path | None] | None = None


TRACES: Registry[Trace] = Registry("trace format", package="ullage.traces", command="ullage trace --help")


def trace(name: str, *, recognise: Callable[[File], int], reads: str, **more: Any) -> Callable[[TraceReader], TraceReader]:
    """Register the decorated function as the reader of a format of intervals. `reads` is one line for the table of formats, `more`
    other fields of `Trace`."""

    def register(reader: TraceReader) -> TraceReader:
        TRACES.add(name, Trace(name, recognise, reads, read=reader, **more))
        return reader

    return register


def sums(name: str, *, recognise: Callable[[File], int], reads: str) -> Callable[[SumsReader], SumsReader]:
    """Register the decorated function as the reader of a format that holds sums."""

    def register(reader: SumsReader) -> SumsReader:
        TRACES.add(name, Trace(name, recognise, reads, sums=reader))
        return reader

    return register


class NoTraceError(UllageError):
    """A file that no format recognises: perhaps no trace at all, while one that can't be read may be one."""


def recognised(path: Path) -> tuple[Trace, File]:
    """Return the format of a file, by its content. Raises NoTraceError for one that no format recognises, UllageError for one
    that can't be read."""
    file = File(path, head(path))
    ranked = [(t.recognise(file), t) for t in TRACES.values()]
    sure = max((score for score, _ in ranked), default=0)
    if not sure:
        raise NoTraceError(f"{file.name} {_looks(file)}, not a trace that Ullage reads", _hint(file))
    return next(t for score, t in ranked if score == sure), file


_REPORT = b"NVIDIA Tegra Profiler"  # how an .nsys-rep begins


def _looks(file: File) -> str:
    start = file.head.lstrip()
    if not file.head:
        return "is empty"
    if file.path.suffix in (".nsys-rep", ".qdrep") or start.startswith(_REPORT):
        return "is an Nsight Systems report in NVIDIA's own form"
    if start[:15].lower().startswith((b"<!doctype", b"<html")):
        return "is an HTML page"
    if file.head.startswith(b"SQLite format 3\x00"):
        return "is a SQLite database without the tables of Nsight Systems or rocprofv3"
    first = harmless(start.split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
    return f"is of an unknown format (it begins with '{first}')"


def _hint(file: File) -> str:
    if file.path.suffix in (".nsys-rep", ".qdrep") or file.head.startswith(_REPORT):
        return f"export it where nsys is installed: nsys export --type sqlite {shlex.quote(file.name)}"
    return formats()


def formats() -> str:
    """Return one sentence that lists what can be read."""
    return "it reads: " + "; ".join(t.reads for t in TRACES.values())
