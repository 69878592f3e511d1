"""What questions about traces share: how the files of a run are read, and which part of it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ullage.asking import WrongQuestionError, asked
from ullage.asking.question import Progress
from ullage.errors import harmless

if TYPE_CHECKING:
    from ullage.profiles import ProfileRequest
    from ullage.reports.trace.trace import TraceReport, TraceRequest

GIB = 2**30


def read_gibibytes(text: str, flag: str, now: float) -> int:  # noqa: ARG001 - a TextReader
    """Read a size in GiB, in bytes."""
    return round(_above_zero(text, flag) * GIB)


def read_spark(text: str, flag: str, now: float) -> str:  # noqa: ARG001 - a TextReader
    """Read where a Spark is."""
    from ullage.store.spark_session import spark_address

    if spark_address(text) is None:
        raise WrongQuestionError(f"{flag} '{harmless(text, 60)}' is no address of a Spark", "write spark://HOST:PORT or sc://HOST:PORT")
    return text


def read_gigabytes_a_second(text: str, flag: str, now: float) -> float:  # noqa: ARG001 - a TextReader
    """Read a rate in GB/s, in B/s."""
    return _above_zero(text, flag) * 1e9


def _above_zero(text: str, flag: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise WrongQuestionError(f"{flag} must be a number above 0, not '{harmless(text, 60)}'")
    return number


@dataclass(frozen=True, kw_only=True)
class TreeScope:
    """Which part of a run its trees are of, and what they count as work."""

    region: str | None = asked("Only within this region, NVTX range or user annotation.", metavar="R")
    mode: Literal["talp", "ai"] | None = asked("Count collectives as work (talp) or apart (ai).", shown="by the source")


@dataclass(frozen=True, kw_only=True)
class TraceReading(TreeScope):
    """How the traces of a run are read, and which part of the run counts."""

    window: str = asked("first-last, steps, or A:B seconds.", "first-last", metavar="W")
    host: Literal["busiest", "union"] = asked("Threads of a process' host lane.", "busiest", minor=True)
    limit: int = asked("Most GiB a file may unpack to.", 64 * GIB, read=read_gibibytes, metavar="GIB", shown="64", minor=True)
    workers: int | None = asked("Read N files side by side.", metavar="N", least=1, shown="as many as CPUs", minor=True)
    engine: str | None = asked(
        "Read each file as a task of a Spark at spark://HOST:PORT, or sc://HOST:PORT for Spark Connect.",
        metavar="ENGINE",
        read=read_spark,
        shown="this machine",
        minor=True,
        local=True,
    )
    strict: bool = asked("Refuse damaged files instead of using their good part.", False, minor=True)

    def profile_request(self, progress: Progress, **more: Any) -> ProfileRequest:
        """Return how the files are to be read; `more` are other fields of the request."""
        from ullage.profiles import ProfileRequest
        from ullage.sums.lanes.window import parse
        from ullage.traces.trace import TraceOptions

        options = TraceOptions(strict=self.strict, limit=self.limit, progress=progress)
        request = ProfileRequest(
            parse(self.window), options=options, workers=self.workers, host=self.host, region=self.region, engine=self.engine
        )
        return replace(request, **more)

    def run_report(self, files: Sequence[str], progress: Progress, request: TraceRequest | None = None, **more: Any) -> TraceReport:
        """Return the report on one run from its files. Raises UllageError for what the user can fix."""
        from ullage.profiles import profile
        from ullage.reports.trace.trace import TraceRequest, trace

        read = profile(list(files), self.profile_request(progress, **more))
        return trace(read, read.window, replace(request or TraceRequest(), mode=self.mode, region=self.region))


def named_run(text: str) -> tuple[str, str]:
    """Return a run's name and its place; without a name it is called by its place.

    >>> named_run("one=a.json"), named_run("runs/nodes2/")
    (('one', 'a.json'), ('nodes2', 'runs/nodes2/'))
    """
    name, equals, place = text.partition("=")
    if equals and name and place and not Path(text).exists():
        return name, place
    return Path(text).name.removesuffix(".gz").rsplit(".", 1)[0] or text, text
