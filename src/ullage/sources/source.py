"""What a telemetry source is, and how a place that the user names finds its reader.

A source is one module in this folder with one function under `@source`. It is handed a `Place` (a file with its first
bytes, or a URL) and yields record batches of `ullage.tables.SAMPLES` (build them with `tables.samples`). It knows
nothing of metrics, GPUs or reports. What it must leave out it counts in `Problems`; what it can't read at all is a
`UllageError` that names the place.

Rows may be partial: several rows of one device and time with different fields are one sample, and are merged when
samples are settled. Rows may come in any order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, Self

import numpy as np
import numpy.typing as npt

from ullage.compressed import head, opened
from ullage.errors import UllageError, UnreadableError, harmless, public
from ullage.problems import Problems
from ullage.registry import Registry
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    import pyarrow as pa

LATEST = 4_102_444_800_000  # 2100-01-01 in ms
LONGER = "give a longer --deadline, or ask for less"


@dataclass(frozen=True)
class Deadline:
    """When reading ends, whatever has come: `end` by a `clock` in seconds that only runs forward. The default never comes."""

    end: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = time.monotonic) -> Self:
        """Return the deadline that comes so many seconds from now."""
        return cls(clock() + seconds, clock)

    @property
    def left(self) -> float:
        """The seconds until then, 0 once it has passed."""
        return max(0.0, self.end - self.clock()) if self.end < math.inf else math.inf


@dataclass(frozen=True)
class Options:
    """What the user may say about a source. Times are integer milliseconds since 1970, UTC.

    `since`, `until` limit what is asked of a server or kept of a file; `header` holds extra HTTP headers
    (authentication); `time_zone` is the IANA name of the zone of times in job records that say none; `timeout` (s) is
    how long a server may be silent, `deadline` when reading ends in all, and what has come is a part; `progress` is
    called with a word about what was done so far; `now` is the clock, in ms.
    """

    since: int | None = None
    until: int | None = None
    cluster: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    verify_tls: bool | str = True
    timeout: float = 30.0
    deadline: Deadline = Deadline()
    retries: int = 4
    watch: float = 0.0  # for a live place (an exporter, this machine): how many seconds to watch
    interval: float = 15.0  # seconds between two readings of a live place
    time_zone: str | None = None
    progress: Callable[[str], None] = lambda _: None
    now: Callable[[], int] | None = None


@dataclass(frozen=True)
class Place:
    """A file, or a URL, with the first bytes of what is there (decompressed; empty for a URL not yet asked).

    `unique` is what tells a file from the others that are read with it (see `file_names`): where nothing in the file says
    which host or GPU it is of, that is its name.
    """

    name: str
    path: Path | None = None
    head: bytes = b""
    unique: str = ""

    def __post_init__(self) -> None:
        if not self.unique:
            object.__setattr__(self, "unique", _stem(self.path) if self.path else self.name)

    @property
    def url(self) -> str | None:
        """The URL, when the place is one."""
        return None if self.path else self.name

    def open(self) -> IO[bytes]:
        """Open the file for reading, decompressed. A compressed file that ends early raises UllageError where it ends."""
        if self.path is None:
            raise UllageError(f"{self.name} is not a file")
        return opened(self.path)


class SampleReader(Protocol):
    """A function that turns a place into record batches of samples."""

    def __call__(self, place: Place, options: Options, problems: Problems) -> Iterator[pa.RecordBatch]:
        """Yield record batches of `tables.SAMPLES`."""


@dataclass(frozen=True)
class Source:
    """A registered format: its name, how its content is recognised, how it is read, and one line about it.

    `recognise` sees a place and says how sure it is: 0 not mine, 1 perhaps (a loose format such as CSV), 2 certainly.
    A source that reads a whole folder as one thing says so with `folder=True` and is asked first, with `Place.path`
    the folder. One whose server holds samples of the past, and can be asked for a time, says so with `history=True`.
    """

    name: str
    recognise: Callable[[Place], int]
    read: SampleReader
    reads: str
    folder: bool = False
    history: bool = False


@dataclass
class InOrder:
    """Up to when rows are whole that come in the order of time: up to the time before the last, of which some may be missing."""

    latest: int | None = None
    before: int | None = None
    ordered: bool = True

    def add(self, times: npt.NDArray[np.int64]) -> None:
        """Take note of the times (ms) of the next rows."""
        if not len(times):
            return
        self.ordered &= bool((np.diff(times) >= 0).all()) and (self.latest is None or int(times[0]) >= self.latest)
        passed = np.unique(times)[-2:].tolist()
        if self.latest is not None and passed[-1] > self.latest:
            self.before = passed[-2] if len(passed) > 1 else self.latest
        elif self.latest is None and len(passed) > 1:
            self.before = passed[-2]
        self.latest = max(passed[-1], self.latest or passed[-1])

    @property
    def read_until(self) -> int | None:
        """The time in ms; None where rows come in another order, and before the second time."""
        return self.before if self.ordered else None


SOURCES: Registry[Source] = Registry("telemetry source", package="ullage.sources", command="ullage fleet --help")


def source(
    name: str, *, recognise: Callable[[Place], int], reads: str, folder: bool = False, history: bool = False
) -> Callable[[SampleReader], SampleReader]:
    """Register the decorated function as the reader of a format. `reads` is one line for the table of formats."""

    def register(reader: SampleReader) -> SampleReader:
        SOURCES.add(name, Source(name, recognise, reader, reads, folder, history))
        return reader

    return register


def files_of(names: Iterable[str]) -> list[Path]:
    """Return the files that some places name: files, and those in folders (hidden ones aside)."""
    paths = [expanded_path(name) for name in names if name and "://" not in name]
    return [file for path in paths for file in (_files(path) if path.is_dir() else [path])]


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


def file_names(paths: Iterable[Path]) -> dict[Path, str]:
    """Return for each file the shortest path, without suffixes, that tells it from files of its name in other folders.

    >>> list(file_names([Path("/logs/a/gpu.dmon"), Path("/logs/b/gpu.dmon"), Path("/logs/b/n1.dmon.gz")]).values())
    ['a/gpu', 'b/gpu', 'n1']
    """
    folders: dict[str, set[Path]] = {}
    full = {path: path.absolute() for path in paths}
    for path in full.values():
        folders.setdefault(_stem(path), set()).add(path.parent)
    names = {}
    for path, absolute in full.items():
        others = [folder.parts for folder in folders[_stem(path)] if folder != absolute.parent]
        parts, depth = absolute.parent.parts, 0
        while any(_last(other, depth) == _last(parts, depth) for other in others):
            depth += 1
        names[path] = "/".join((*_last(parts, depth), _stem(path)))
    return names


def _stem(path: Path) -> str:
    return path.name.split(".", 1)[0]


def _last(parts: tuple[str, ...], count: int) -> tuple[str, ...]:
    return parts[len(parts) - count :] if count else ()


def is_url_or_live_source(name: str) -> bool:
    """Return whether a name is no file's or folder's: a URL, or a place that a source of its name reads live.

    >>> [is_url_or_live_source(name) for name in ("http://prometheus:9090", "local", "dmon")]
    [True, True, False]
    """
    return "://" in name or (name in SOURCES and SOURCES[name].recognise(Place(name)) > 0)


def has_history(url: str) -> bool:
    """Return whether what answers at a URL can be asked for samples of the past: an exporter's page tells only how things are now."""
    return _reader(Place(url)).history


def read_samples(
    name: str, options: Options | None = None, problems: Problems | None = None, names: Mapping[Path, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of `tables.SAMPLES` from a file, a folder, or a URL, its format recognised by content.

    `names` is what files are called where nothing in them says of which host they are (default: `file_names` of this place).

    Raises UllageError when the place does not exist or nothing recognises it. In a folder, files that nothing
    recognises are counted in `problems`; when there is no other file, that is an error.
    """
    options, problems = options or Options(), problems if problems is not None else Problems()
    if is_url_or_live_source(name):
        place = Place(name)
        yield from _in_time(sane_times(_reader(place).read(place, options, problems), problems), name, options)
        return
    path = expanded_path(name)
    names = file_names(files_of([name])) if names is None else names
    if not name or not path.exists():
        raise UllageError(f"there is no file or folder '{name}'", "give a file, a folder of files, or a URL such as http://prometheus:9090")
    if path.is_dir():
        yield from _in_time(sane_times(_read_folder(path, options, problems, names), problems), name, options)
    else:
        place = Place(str(path), path, head(path), names.get(path, ""))
        yield from _in_time(sane_times(_reader(place).read(place, options, problems), problems), name, options)


def _in_time(batches: Iterator[pa.RecordBatch], name: str, options: Options) -> Iterator[pa.RecordBatch]:
    """Yield the batches up to the first that comes after the deadline; raises UnreadableError when there are more."""
    late = False
    for batch in batches:
        if late:
            raise UnreadableError(f"the deadline passed before {harmless(public(name))} was read", LONGER)
        yield batch
        late = not options.deadline.left


def sane_times(batches: Iterator[pa.RecordBatch], problems: Problems) -> Iterator[pa.RecordBatch]:
    """Yield the batches without rows whose time is none: from them on, every time can be written as a date."""
    import pyarrow as pa

    for batch in batches:
        time = batch.column("time").cast(pa.int64()).to_numpy()
        sane = (time >= 0) & (time < LATEST)
        if sane.all():
            yield batch
        else:
            problems.drop("samples with a time before 1970 or after 2100", int(len(sane) - sane.sum()))
            yield batch.filter(pa.array(sane))


def _read_folder(folder: Path, options: Options, problems: Problems, names: Mapping[Path, str]) -> Iterator[pa.RecordBatch]:
    place = Place(str(folder), folder)
    whole = [s for s in SOURCES.values() if s.folder and s.recognise(place)]
    if whole:
        yield from whole[0].read(place, options, problems)
        return
    files = _files(folder)
    found = 0
    for number, path in enumerate(files, 1):
        try:
            place = Place(str(path), path, head(path), names.get(path, ""))
            reader = _reader(place)
        except UnreadableError as error:
            problems.cut_short("files that could not be read to the end", error.problem)
            continue
        except UllageError as error:
            problems.drop("files that are not telemetry", where=f"{path.name}: {error.problem}")
            continue
        found += 1
        options.progress(f"{number:,} of {len(files):,} files")
        try:
            yield from reader.read(place, options, problems)
        except UnreadableError as error:
            problems.cut_short("files that could not be read to the end", error.problem, error.read_until)
        except UllageError as error:  # whole, and of no use
            problems.drop("files that could not be read to the end", where=error.problem)
    if not found:
        raise UllageError(f"nothing in the folder '{folder}' is telemetry that Ullage reads ({len(files)} files)", formats())


def _reader(place: Place) -> Source:
    ranked = [(s.recognise(place), s) for s in SOURCES.values() if not s.folder]
    sure = max((score for score, _ in ranked), default=0)
    if not sure:
        raise UllageError(f"{harmless(public(place.name))} {_looks(place)}, not telemetry that Ullage reads", formats())
    return next(s for score, s in ranked if score == sure)


def _looks(place: Place) -> str:
    head = place.head.lstrip()
    if place.path is None:
        return "is a URL of a kind that is not known"
    if not place.head:
        return "is empty"
    if head[:15].lower().startswith((b"<!doctype", b"<html")):
        return "is an HTML page"
    first = harmless(head.split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
    return f"is of an unknown format (it begins with '{first}')"


def formats() -> str:
    """Return one sentence that lists what can be read."""
    return "it reads: " + "; ".join(s.reads for s in SOURCES.values())
