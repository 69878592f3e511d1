"""How full are this machine's GPUs while it is sampled, without any daemon?"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ullage.asking import asked, read_span
from ullage.asking.question import Audience, Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import LONGEST_INTERVAL, SHORTEST_INTERVAL, read_interval
from ullage.errors import UllageError, harmless

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.live.sampling.course import Course
    from ullage.live.sampling.exposition import Page
    from ullage.live.sampling.sampler import Sampler
    from ullage.live.sampling.watched_device import Watched
    from ullage.render.sample import SampledMachine

COMMIT = 60.0  # seconds of readings that a store is given at a time: what a power cut may cost
COMPACT = 60  # commits after which a store's small parts are merged


def read_address(text: str, flag: str, now: float) -> tuple[str, int]:  # noqa: ARG001 - a TextReader
    """Read host and port.

    >>> [read_address(text, "--serve", 0) for text in ("9400", "0.0.0.0:9400", "[::1]:9400")]
    [('127.0.0.1', 9400), ('0.0.0.0', 9400), ('::1', 9400)]
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise UllageError(f"{flag} '{harmless(text, 60)}' has no port", "write --serve 9400, or --serve 0.0.0.0:9400")
    return host.strip("[]") or "127.0.0.1", int(port)


@dataclass(frozen=True, kw_only=True)
class SampleQuestion:
    """Sample this machine's GPUs: OFU, activities, clocks, power. No exporter and no daemon needed, normally no root.

    The means of everything are printed at the end. `--json` prints an object a GPU and reading, and words go to stderr.
    """

    every: float = asked(
        "Time between two readings, at least 0.1s.",
        1.0,
        metavar="SPAN",
        read=read_interval,
        least=SHORTEST_INTERVAL,
        most=LONGEST_INTERVAL,
        shown="1s",
    )
    span: float | None = asked("How long: 60s, 15m, 24h.", flag="--for", metavar="SPAN", read=read_span, shown="until Ctrl-C")
    out: str | None = asked("Keep the samples in a Parquet file.", metavar="FILE.parquet", acts=True)
    store: str | None = asked("Keep the samples in a store; at most a minute is lost by a power cut.", metavar="FOLDER", acts=True)
    serve: tuple[str, int] | None = asked(
        "Serve them as an exporter does, at /metrics; on 127.0.0.1 unless told.", metavar="[HOST:]PORT", read=read_address, acts=True
    )
    gpus: tuple[str, ...] = asked("Only this GPU: its number or UUID. Repeatable.", (), flag="--gpu", metavar="I", repeated=True)
    pm: bool = asked("Read NVIDIA's counters by PM sampling: with privileges, from Ampere on; it may hold clocks still.", False)
    attach_jobs: bool = asked("Add the job and the user whose processes compute on each GPU.", False)
    cluster: str | None = asked("Name of the cluster, for the samples.")


def answer(question: SampleQuestion, progress: Progress, command: str = "") -> SampledMachine:  # noqa: ARG001 - a question's `answer`
    """Sample for as long as is asked, and return what it comes to. Raises UllageError where no GPU tells anything."""
    return _sampled(question, lambda _: contextlib.nullcontext(), lambda *_: None, progress)


def follow(question: SampleQuestion, audience: Audience) -> SampledMachine | None:
    """Print readings as they come, until they end or somebody ends them: JSON for programs, a table for whoever is at a terminal."""
    from ullage.render import sample
    from ullage.views.text import text

    lines_before = 0

    def show(readings: list[Watched], course: Course) -> None:
        nonlocal lines_before
        if audience.as_json:
            lines = sample.json_lines(readings)
        elif audience.at_terminal:
            lines = ([sample.heads()] if lines_before % 40 == 0 and readings else []) + sample.rows(readings, course)
        else:
            return
        lines_before += 1
        for line in lines:
            audience.line(line)

    report = _sampled(question, audience.ended_by, show, audience.remark)
    if audience.as_json:
        audience.remark(text(sample.view(report)).rstrip("\n"))
        return None
    if audience.at_terminal:
        audience.line("")
    return report


class SampleSink(Protocol):
    """Where readings are kept."""

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Take in rows."""

    def close(self) -> None:
        """Keep what was taken in."""


def _sampled(
    question: SampleQuestion,
    ended_by: Callable[[Callable[[], None]], AbstractContextManager[None]],
    show: Callable[[list[Watched], Course], None],
    remark: Callable[[str], None],
) -> SampledMachine:
    """Read until the end, and return what it comes to, with where the samples are."""
    from ullage.live.sampling.course import Course, one_reading_each
    from ullage.render.sample import SampledMachine
    from ullage.views.files import check_out

    out = None if question.out is None else Path(question.out)
    check_out(out, (".parquet",))
    sampler, course = _sampler(question), Course(question.every)
    with ExitStack() as stack:
        stack.enter_context(ended_by(sampler.stop))
        stack.enter_context(sampler)
        course.limits = sampler.limits
        sinks = _sinks(out, question.store, remark)
        for sink in sinks:
            stack.callback(sink.close)
        page = None if question.serve is None else _served(stack, *question.serve, 3000 * max(question.every, 1.0), remark)
        for batches in sampler.readings(question.span):
            for sink in sinks:
                sink.add(batches)
            for together in one_reading_each(batches):
                readings = course.add(together)
                if page is not None:
                    page.show(readings)
                show(readings, course)
    if not len(course):
        why = "; ".join(sampler.problems.lines()) or "was it stopped at once?"
        raise UllageError(f"no GPU told anything ({', '.join(sampler.kinds)})", why)
    kept = [f"the samples are in {place}" for place in (question.out, question.store) if place]
    return SampledMachine(course, (*sampler.problems.lines(), *kept))


def _sampler(question: SampleQuestion) -> Sampler:
    from ullage.live.sampling.kinds import KINDS, PM
    from ullage.live.sampling.sampler import Sampler
    from ullage.problems import Problems
    from ullage.sources.source import Options

    wanted = tuple(part for text in question.gpus for part in text.split(","))
    kinds, options = PM if question.pm else KINDS, Options(cluster=question.cluster)
    return Sampler(question.every, Problems(), gpus=wanted, attach=question.attach_jobs, kinds=kinds, options=options)


def _sinks(out: Path | None, store: str | None, remark: Callable[[str], None]) -> list[SampleSink]:
    from ullage.live.sampling.readings_file import ParquetFile

    return [*([ParquetFile(out)] if out else []), *([_Stored(store, remark)] if store else [])]


class _Stored:
    """A store that is given what came in, a minute's worth at a time."""

    def __init__(self, folder: str, remark: Callable[[str], None]) -> None:
        from ullage.store.store import Store

        self._store = Store.open(folder, create=True, say=remark)
        self._held: list[pa.RecordBatch] = []
        self._since, self._commits = time.monotonic(), 0

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._held += batches
        if time.monotonic() - self._since >= COMMIT:
            self.close()
            self._commits += 1
            if self._commits % COMPACT == 0:
                self._store.compact()

    def close(self) -> None:
        held, self._held, self._since = self._held, [], time.monotonic()
        if held:
            self._store.append(held)


def _served(stack: ExitStack, host: str, port: int, fresh_ms: float, remark: Callable[[str], None]) -> Page:
    from ullage.live.sampling.exposition import Page, serve

    page = Page(fresh_ms)
    server = serve(page, host, port)
    stack.callback(server.stop)
    shown = f"[{host}]" if ":" in host else host
    reachable = "" if server.local else ", to every machine that reaches this one: there is no password"
    remark(f"serving http://{shown}:{server.port}/metrics{reachable}")
    return page


_EXAMPLES = """
  ullage sample                                            until Ctrl-C, a line a GPU and second
  ullage sample --for 60s --out minute.parquet             a minute, for `ullage fleet minute.parquet`
  ullage sample --every 10s --store store/                 for days: `ullage fleet store/` at any time
  ullage sample --every 5s --serve 9400                    an exporter: Prometheus scrapes 127.0.0.1:9400
  ullage sample --serve 0.0.0.0:9400                       … from other machines too
  ullage sample --json --for 10s | jq .ofu
  ullage sample --gpu 0 --gpu 1 --attach-jobs --store store/

\b
Read with NVML (GPM and cycle counters: OFU on Hopper and later), or nvidia-smi where NVML can't be had, and amdsmi.
Names of metrics and labels are dcgm-exporter's; `ullage_ofu_ratio` is OFU itself.
"""

QUESTION: RegisteredQuestion[SampleQuestion, Any] = register(
    RegisteredQuestion(
        name="sample",
        asked=SampleQuestion,
        noun="sampling this machine",
        answer=answer,
        shown_by="ullage.render.sample",
        examples=_EXAMPLES,
        goes_on=lambda *_: True,
        follow=follow,
        only_reads=False,
    )
)

sample = python_function(QUESTION)
