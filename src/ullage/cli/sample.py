"""`ullage sample`: this machine's GPUs, sampled without any daemon."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from ullage.errors import UllageError, harmless
from ullage.views.files import check_out
from ullage.written_values import seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from ullage.live.sampling.course import Course
    from ullage.live.sampling.exposition import Page
    from ullage.live.sampling.sampler import Sampler
    from ullage.live.sampling.watched_device import Watched

SHORTEST = 0.1  # seconds between two readings: below, Hopper's are not valid
LONGEST = 86_400.0
COMMIT = 60.0  # seconds of readings that a store is given at a time: what a power cut may cost
COMPACT = 60  # commits after which a store's small parts are merged


class Sink(Protocol):
    """Where readings are kept."""

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Take in rows."""

    def close(self) -> None:
        """Keep what was taken in."""


@click.command(
    "sample",
    epilog="""\b
Examples:
  ullage sample                                            until Ctrl-C, a line a GPU and second
  ullage sample --for 60s --out minute.parquet             a minute, for `ullage fleet minute.parquet`
  ullage sample --every 10s --store store/                 for days: `ullage fleet store/` at any time
  ullage sample --every 5s --serve 9400                    an exporter: Prometheus scrapes 127.0.0.1:9400
  ullage sample --serve 0.0.0.0:9400                       … from other machines too
  ullage sample --json --for 10s | jq .ofu
  ullage sample --gpu 0 --gpu 1 --attach-jobs --store store/

\b
Read with NVML (GPM and cycle counters: OFU on Hopper and later), or nvidia-smi where NVML can't be had, and amdsmi.
Names of metrics and labels are dcgm-exporter's; `ullage_ofu_ratio` is OFU itself.""",
)
@click.option("--every", default="1s", show_default=True, metavar="SPAN", help="Time between two readings, at least 0.1s.")
@click.option("--for", "span", metavar="SPAN", help="How long: 60s, 15m, 24h.  [default: until Ctrl-C]")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.parquet", help="Keep the samples in a Parquet file.")
@click.option("--store", "store_folder", metavar="FOLDER", help="Keep the samples in a store; at most a minute is lost by a power cut.")
@click.option("--serve", "serve_at", metavar="[HOST:]PORT", help="Serve them as an exporter does, at /metrics; on 127.0.0.1 unless told.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a GPU and reading; words go to stderr.")
@click.option("--gpu", "gpus", multiple=True, metavar="I", help="Only this GPU: its number or UUID. Repeatable.")
@click.option(
    "--pm", "by_pm", is_flag=True, help="Read NVIDIA's counters by PM sampling: with privileges, from Ampere on; it may hold clocks still."
)
@click.option("--attach-jobs", is_flag=True, help="Add the job and the user whose processes compute on each GPU.")
@click.option("--cluster", help="Name of the cluster, for the samples.")
def command(
    every: str, span: str | None, out: Path | None, as_json: bool, gpus: tuple[str, ...], attach_jobs: bool, by_pm: bool, **more: str | None
) -> None:
    """Sample this machine's GPUs: OFU, activities, clocks, power. No exporter and no daemon needed, normally no root.

    The means of everything are printed at the end.
    """
    from ullage.live.sampling.course import Course
    from ullage.live.sampling.kinds import KINDS, PM
    from ullage.live.sampling.sampler import Sampler
    from ullage.problems import Problems
    from ullage.sources.source import Options

    interval, wanted = every_seconds(every), tuple(part for text in gpus for part in text.split(","))
    check_out(out, (".parquet",))
    address = None if more["serve_at"] is None else _address(more["serve_at"])
    length = None if span is None else seconds(span)
    kinds, options = PM if by_pm else KINDS, Options(cluster=more["cluster"])
    sampler = Sampler(interval, Problems(), gpus=wanted, attach=attach_jobs, kinds=kinds, options=options)
    course = Course(interval)
    kept = _sample(sampler, course, length, out, more["store_folder"], address, _Printer(course, as_json))
    _sum_up(sampler, course, kept, as_json)


def every_seconds(text: str) -> float:
    """Return the seconds between two readings that `--every` asks for. Raises UllageError for what no reading can be."""
    interval = seconds(text)
    if interval < SHORTEST:
        raise UllageError(f"--every {harmless(text, 20)} is too short", "two readings closer than 0.1 s are not valid")
    if interval > LONGEST:
        raise UllageError(f"--every {harmless(text, 20)} is too long", "read at least once a day")
    return interval


def _address(text: str) -> tuple[str, int]:
    """Return host and port.

    >>> _address("9400"), _address("0.0.0.0:9400"), _address("[::1]:9400")
    (('127.0.0.1', 9400), ('0.0.0.0', 9400), ('::1', 9400))
    """
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise UllageError(f"--serve '{harmless(text, 60)}' has no port", "write --serve 9400, or --serve 0.0.0.0:9400")
    return host.strip("[]") or "127.0.0.1", int(port)


def _sample(
    sampler: Sampler,
    course: Course,
    length: float | None,
    out: Path | None,
    store: str | None,
    address: tuple[str, int] | None,
    printer: _Printer,
) -> list[str]:
    """Read until the end, and return what was made of it, in words."""
    from ullage.cli._ending import ended_by

    with ExitStack() as stack:
        stack.enter_context(ended_by(sampler.stop))
        stack.enter_context(sampler)
        course.limits = sampler.limits
        sinks: list[Sink] = _sinks(out, store)
        for sink in sinks:
            stack.callback(sink.close)
        page = None if address is None else _served(stack, *address, 3000 * max(course.interval, 1.0))
        for batches in sampler.readings(length):
            told = course.add(batches)
            for sink in sinks:
                sink.add(batches)
            if page is not None:
                page.show(told)
            printer(told)
    return [f"the samples are in {place}" for place in (out, store) if place and len(course)]


def _sinks(out: Path | None, store: str | None) -> list[Sink]:
    from ullage.live.sampling.readings_file import ParquetFile

    return [*([ParquetFile(out)] if out else []), *([_Stored(store)] if store else [])]


class _Stored:
    """A store that is given what came in, a minute's worth at a time."""

    def __init__(self, folder: str) -> None:
        from ullage.store.store import Store

        self._store = Store.open(folder, create=True, say=lambda words: click.echo(words, err=True))
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


def _served(stack: ExitStack, host: str, port: int, fresh_ms: float) -> Page:
    from ullage.live.sampling.exposition import Page, serve

    page = Page(fresh_ms)
    server = serve(page, host, port)
    stack.callback(server.stop)
    shown = f"[{host}]" if ":" in host else host
    open_ = "" if server.local else ", to every machine that reaches this one: there is no password"
    click.echo(f"serving http://{shown}:{server.port}/metrics{open_}", err=True)
    return page


class _Printer:
    """Prints readings as they come: JSON for programs; a table for whoever looks at a terminal; otherwise nothing."""

    def __init__(self, course: Course, as_json: bool) -> None:
        self._course, self._as_json, self._lines = course, as_json, 0

    def __call__(self, told: list[Watched]) -> None:
        from ullage.render import sample

        if self._as_json:
            lines = sample.json_lines(told)
        elif sys.stdout.isatty():
            lines = ([sample.heads()] if self._lines % 40 == 0 and told else []) + sample.rows(told, self._course)
        else:
            return
        self._lines += 1
        for line in lines:
            click.echo(line)


def _sum_up(sampler: Sampler, course: Course, kept: list[str], as_json: bool) -> None:
    from ullage.render.sample import view
    from ullage.views.text import text

    if not len(course):
        raise UllageError(
            f"no GPU told anything ({', '.join(sampler.kinds)})", "; ".join(sampler.problems.lines()) or "was it stopped at once?"
        )
    if sys.stdout.isatty() and not as_json:
        click.echo()
    click.echo(text(view(course, [*sampler.problems.lines(), *kept])), nl=False, err=as_json)
