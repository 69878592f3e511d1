"""What questions about telemetry share: how places are read; and reading them, which is a question of Python alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ullage.asking import Window, asked, read_headers, read_positive_span, read_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function
from ullage.errors import UllageError, harmless
from ullage.written_values import seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.sources.source import Options


SHORTEST_INTERVAL = 0.1  # seconds between two readings of this machine: below, Hopper's are not valid
LONGEST_INTERVAL = 86_400.0


def read_interval(text: str, flag: str, now: float) -> float:  # noqa: ARG001 - a TextReader
    """Read the time between two readings of this machine, in s.

    >>> read_interval("2s", "--every", 0)
    2.0
    """
    interval = seconds(text)
    if interval < SHORTEST_INTERVAL:
        raise UllageError(f"{flag} {harmless(text, 20)} is too short", "two readings closer than 0.1 s are not valid")
    if interval > LONGEST_INTERVAL:
        raise UllageError(f"{flag} {harmless(text, 20)} is too long", "read at least once a day")
    return interval


def asked_headers(*, minor: bool = True) -> Any:
    """Return the field of HTTP headers that servers are asked with."""
    return asked(
        "HTTP header, such as 'Authorization: Bearer …'. Repeatable.",
        {},
        flag="--header",
        metavar="'NAME: VALUE'",
        read=read_headers,
        repeated=True,
        minor=minor,
        secret=True,
    )


@dataclass(frozen=True, kw_only=True)
class TelemetryReading(Window):
    """How places of telemetry are read: servers, live places, what samples leave out."""

    cluster: str | None = asked("Name of the cluster, where the samples don't say.", minor=True, local=True)
    time_zone: str | None = asked(
        "Zone of times in job records that say none, such as Europe/Berlin.",
        metavar="ZONE",
        minor=True,
        shown="UTC",
        local=True,
        suggested="zoneinfo:available_timezones",
    )
    watch: float = asked("How long to watch a live place.", 0.0, read=read_span, minor=True, local=True)
    every: float = asked("Time between two readings of a live place.", 15.0, read=read_positive_span, minor=True, shown="15s", local=True)
    headers: dict[str, str] = asked_headers()
    ca: str | None = asked("Certificates to trust for TLS.", metavar="FILE", minor=True, local=True)
    insecure: bool = asked("Do not check the server's certificate.", False, minor=True, local=True)
    timeout: float = asked("How long a server may be silent.", 30.0, read=read_positive_span, minor=True, shown="30s", local=True)
    deadline: float | None = asked(
        "How long reading may take in all; what has come by then is reported, as partial.", read=read_positive_span, minor=True, local=True
    )
    strict: bool = asked("Refuse what can be read only in part, in place of a partial report.", False, minor=True)

    def reading_options(self, progress: Progress) -> Options:
        """Return the same as what a source takes."""
        from ullage.sources.source import Deadline, Options

        return Options(
            since=self.since,
            until=self.until,
            cluster=self.cluster,
            time_zone=self.time_zone,
            headers=self.headers,
            verify_tls=False if self.insecure else (self.ca or True),
            timeout=self.timeout,
            deadline=Deadline() if self.deadline is None else Deadline.after(self.deadline),
            watch=self.watch,
            interval=self.every,
            progress=progress,
        )


def read_engine(text: str, flag: str, now: float) -> str:  # noqa: ARG001 - a TextReader
    """Read what adds up the samples of a store: DuckDB, or where a Spark is.

    >>> read_engine("sc://spark:15002", "--engine", 0)
    'sc://spark:15002'
    """
    from ullage.store.spark_session import spark_address

    spark_address(text)
    return text


ENGINE_HELP = "What adds up the samples of a store: duckdb, spark://HOST:PORT, or sc://HOST:PORT for Spark Connect."


@dataclass(frozen=True, kw_only=True)
class StoredTelemetryReading(TelemetryReading):
    """How places of telemetry are read, of which one may be a store."""

    engine: str = asked(ENGINE_HELP, "duckdb", metavar="ENGINE", read=read_engine, minor=True, local=True)


@dataclass(frozen=True, kw_only=True)
class SamplesQuestion(TelemetryReading):
    """Yield what a place says as record batches of `ullage.tables.SAMPLES`: clean, in SI units, not yet settled."""

    source: str = asked("A file, a folder or a URL.", argument=True, required=True)


def batches(question: SamplesQuestion, progress: Progress, command: str = "") -> Iterator[pa.RecordBatch]:  # noqa: ARG001 - an `answer`
    """Yield record batches.

    Raises UllageError for a place that does not exist or is no telemetry, and under `strict` for a partial one.
    """
    from ullage.problems import Problems
    from ullage.sources.source import read_samples as read
    from ullage.sums.ratio_units import settled_batches

    problems = Problems()
    yield from settled_batches(read(question.source, question.reading_options(progress), problems))
    if question.strict:
        problems.refuse_partial()


read_samples = python_function(
    RegisteredQuestion(
        name="read samples",
        asked=SamplesQuestion,
        noun="reading samples",
        answer=batches,
        shown_by="",
        examples="",
        listed_by="help(ullage.read_samples)",
    )
)
