"""How full is the fleet, and where does the shortfall go?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.asking import WrongQuestionError, asked, read_positive_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import StoredTelemetryReading
from ullage.errors import UllageError, harmless, public
from ullage.problems import Problems
from ullage.reports.fleet.request import FleetRequest
from ullage.written_values import expanded_path

if TYPE_CHECKING:
    from ullage.intake import Intake
    from ullage.reports.fleet.fleet import FleetReport
    from ullage.sources.inventory import Listed
    from ullage.views.view import Finding


OVERLAP = 0.01  # of a window: a scrape that comes a little after its last whole hour


@dataclass(frozen=True, kw_only=True)
class FleetQuestion(FleetRequest, StoredTelemetryReading):
    """OFU of every GPU and job, and where the shortfall goes.

    SOURCE is a file, a folder, a store, or a URL; its format is recognised by content. OFU is the share of the peak FLOP
    rate that the tensor pipes delivered: tensor activity × SM clock / tensor clock.
    """

    sources: tuple[str, ...] = asked(
        "Files, folders, stores or URLs.", metavar="SOURCE…", argument=True, required=True, repeated=True, local=True
    )
    jobs: tuple[str, ...] = asked(
        "Job records: sacct output, a CSV, a mapping folder. Repeatable.", (), metavar="FILE", repeated=True, local=True
    )
    reported: tuple[str, ...] = asked(
        "A trainer's log: what a job reported of itself, beside its OFU. Repeatable.", (), metavar="LOG[=JOB]", repeated=True, local=True
    )
    inventory: str | None = asked(
        "Which GPUs exist, from when until when: CSV or Parquet with gpu, or host and index, or host and gpus; start, end.",
        metavar="FILE",
        minor=True,
        local=True,
    )
    store: str | None = asked("Keep what was read in this store.", metavar="FOLDER", acts=True)
    gap: float | None = asked(
        "Longest time one sample may stand for.", read=read_positive_span, minor=True, shown="60s, or twice the interval", local=True
    )
    against: str | None = asked(
        "What to stand beside it: the window so long before (7d), one from a time on, another source, or a report kept as JSON.",
        metavar="SPAN|TIME|SOURCE|FILE",
        local=True,
    )
    top: int = asked("Rows of a table; with --out FOLDER, pages of each kind.", 20, least=0, display=True)

    def __post_init__(self) -> None:
        if self.by != "sample":  # which is no group, and is written to a file
            super().__post_init__()
        if self.against is not None:
            other_report(self.against)


def answer(question: FleetQuestion, progress: Progress, command: str = "") -> FleetReport:
    """Return the fleet report; raises UllageError for what the user can fix, and for partial input under `strict`."""
    from ullage.reports.fleet.fleet import fleet

    problems = Problems()
    request = replace(question, existing=_inventory(question, problems), command=command, progress=progress)
    with _read(question, progress) as taken:
        report = taken.marked(fleet(taken.samples, taken.jobs, request, [*taken.problems.lines(), *problems.lines()], taken.rolled))
    return with_next_commands(report if question.against is None else _beside(report, other_report(question.against), request), question)


def with_next_commands(report: FleetReport, question: FleetQuestion) -> FleetReport:
    """Return a report whose findings name the command that says more of each, and which itself names that of what is worst in it."""
    from ullage.asking.next_commands import job_command, part_command
    from ullage.views.findings import leads_to

    def command_on(by: str, name: str) -> str:
        if by == "job":
            return job_command(question, name)
        return part_command(question, by, name) if by in ("user", "host") else ""

    def of_finding(finding: Finding) -> str:
        led = leads_to(finding.where)
        return command_on(*led) if led else ""

    findings = [replace(finding, next_command=of_finding(finding)) for finding in report.findings]
    commands = (command_on(report.by, group.key) for group in report.groups if group.ullage)
    return replace(report, findings=findings, next_command=next(filter(None, commands), ""))


@dataclass(frozen=True)
class OtherReport:
    """What a report is put beside: the window `earlier_ms` before its own, the one that starts at `start`, another `place`, or a `file`."""

    earlier_ms: int | None = None
    start: int | None = None
    place: str | None = None
    file: Path | None = None

    @property
    def of_another_time(self) -> bool:
        """Whether it is of the same places, at another time."""
        return self.place is None and self.file is None


def other_report(text: str) -> OtherReport:
    """Return what `--against` names: a span, a time, a file that a report was kept in, or a place of telemetry; raises UllageError.

    What can be read as a span or a time is one, also where a file is called so: `./7d` is that file.

    >>> other_report("7d").earlier_ms, other_report("2026-08-10").start, other_report("http://prometheus:9090").place
    (604800000, 1786320000000, 'http://prometheus:9090')
    """
    from ullage.reports.fleet.comparison import is_kept_report

    if (at_another_time := other_time(text)) is not None:
        return at_another_time
    path = expanded_path(text)
    if "://" in text or (text.strip() and path.exists()):
        kept = path.is_file() and is_kept_report(_head(path))
        return OtherReport(file=path) if kept else OtherReport(place=text)
    raise UllageError(
        f"--against '{harmless(text, 80)}' is not a span, a time, a file or an address",
        "write 7d for the same hours a week before, a time such as 2026-08-10, another source, or a file of `ullage fleet --json`",
    )


def other_time(text: str) -> OtherReport | None:
    """Return the earlier window that a span or a time names; None for every other text. No file is looked for.

    >>> other_time("7d") == OtherReport(earlier_ms=604_800_000), other_time("store"), other_time("0d"), other_time("1960-01-01")
    (True, None, None, None)
    """
    from ullage.written_values import moment, seconds

    with suppress(UllageError):  # a number alone is seconds since 1970
        if text.strip()[-1:].isalpha() and (earlier := round(seconds(text) * 1000)):
            return OtherReport(earlier_ms=earlier)
    with suppress(UllageError):
        if (start := moment(text, 0) or 0) > 0:
            return OtherReport(start=start)
    return None


def _other_window(window: tuple[int, int], other: OtherReport) -> tuple[int, int]:
    """Return the window to compare with, as long as the report's. Where a last scrape alone would make both overlap, they meet.

    >>> _other_window((7_200_000, 14_403_000), OtherReport(earlier_ms=7_200_000)), _other_window((7, 9), OtherReport(start=3))
    ((0, 7200000), (3, 5))
    """
    length = window[1] - window[0]
    start = window[0] - other.earlier_ms if other.earlier_ms is not None else other.start or 0
    end = start + length
    return start, window[0] if 0 < end - window[0] < OVERLAP * length and start < window[0] else end


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(200)


def _beside(report: FleetReport, other: OtherReport, question: FleetQuestion) -> FleetReport:
    """Return a report with the other one beside it that is asked for."""
    from ullage.reports.fleet.comparison import read_figures
    from ullage.reports.fleet.fleet import beside, fleet
    from ullage.views.numbers import span
    from ullage.written_values import moment

    if other.file is not None:
        return beside(report, read_figures(other.file, lambda text: moment(text, 0) or 0), harmless(public(other.file.name), 80))
    if other.place is not None:
        asked_of = replace(question, sources=(other.place,), since=None, until=None, store=None, by=report.by)
        named = harmless(public(other.place), 80)
    else:
        start, end = _other_window(report.window, other)
        asked_of = replace(question, since=start, until=end, store=None, by=report.by)
        named = span((start, end))
    with _read(asked_of, question.progress) as taken:
        try:
            compared = fleet(taken.samples, taken.jobs, asked_of, taken.problems.lines(), taken.rolled)
        except UllageError as error:
            raise type(error)(f"there is nothing to compare with in {named}: {error.problem}", error.hint) from error
        made = beside(report, compared, named)
        if taken.problems.complete:
            return made
        return replace(made, complete=False, partial_because=made.partial_because or f"{named}: {taken.problems.cuts[0].reason}")


def write_samples(question: FleetQuestion, out: Path | None, progress: Progress) -> str | None:
    """Write OFU by sample, where that is asked for; "" for a whole table, else why it is partial. None: it is not asked for."""
    from ullage.reports.fleet.samples import write_with_ofu

    if question.by != "sample":
        return None
    if out is None or out.suffix.lower() != ".parquet":
        raise UllageError("--by sample makes a table that is too long to print", "add --out FILE.parquet")
    if question.condition() is not None:
        raise UllageError("--by sample writes all samples of a fleet", "leave out --where, --job, --user and --host")
    with _read(question, progress) as taken:
        write_with_ofu(taken.samples, out, since=question.since, until=question.until, model=question.gpu)
        return "" if taken.problems.complete else taken.problems.cuts[0].reason


def write_site(question: FleetQuestion, out: Path, progress: Progress, command: str) -> str:
    """Write the report as a folder of pages, those of the `top` worst jobs, users and hosts; returns why it is partial."""
    from ullage.asking.fleet_site import SiteReport, refuse_what_is_read, write_pages
    from ullage.asking.next_commands import job_command, part_command, waterfall_command
    from ullage.reports.fleet.judged import judged_fleet, part_of_fleet

    if question.by is not None or question.against is not None:
        raise WrongQuestionError("a folder has pages by job, by user and by host, of one window: leave out --by and --against")
    refuse_what_is_read(out, read_places(question))
    problems = Problems()
    request = replace(question, existing=_inventory(question, problems), command=command, progress=progress)
    with _read(question, progress) as taken:
        notes = [*taken.problems.lines(), *problems.lines()]
        whole = judged_fleet(taken.samples, request, notes, taken.rolled)
        condition = request.condition()

        def command_on(by: str, name: str) -> str:
            named = {"job": job_command, "waterfall": waterfall_command}
            return named[by](question, name) if by in named else part_command(question, by, name)

        site = SiteReport(
            whole=whole,
            asked=whole if condition is None else part_of_fleet(whole, condition),
            jobs=taken.jobs,
            request=request,
            notes=notes,
            marked=taken.marked,
            finished=lambda report: with_next_commands(report, question),
            command_on=command_on,
        )
        write_pages(site, out, question.top)
        return "" if taken.problems.complete else taken.problems.cuts[0].reason


def read_places(question: FleetQuestion) -> list[str]:
    """Return the places that are read for a question."""
    from ullage.trainlogs.reported import named_log

    logs = [named_log(text)[0] for text in question.reported]
    other = None if question.against is None else other_report(question.against)
    compared = [] if other is None or other.of_another_time else [str(other.file or other.place)]
    return [*question.sources, *filter(None, [question.inventory]), *question.jobs, *logs, *compared]


@contextmanager
def _read(question: FleetQuestion, progress: Progress) -> Iterator[Intake]:
    from ullage.intake import opened

    options = question.reading_options(progress)
    gap_ms = None if question.gap is None else round(question.gap * 1000)
    records = {"jobs": question.jobs, "reported": question.reported}
    with opened(question.sources, **records, options=options, gap_ms=gap_ms, store=question.store, engine=question.engine) as taken:
        if question.strict:
            taken.problems.refuse_partial()
        yield taken


def _inventory(question: FleetQuestion, problems: Problems) -> tuple[Listed, ...]:
    if question.inventory is None:
        return ()
    from ullage.sources.clock import named_zone
    from ullage.sources.inventory import read_inventory

    return read_inventory(question.inventory, problems, named_zone(question.time_zone))


_EXAMPLES = """
  ullage fleet scrapes/                                     dcgm-exporter expositions, one file a scrape
  ullage fleet http://prometheus:9090 --since 24h           a Prometheus, Thanos, Mimir or VictoriaMetrics
  ullage fleet http://node-1:9400/metrics --watch 60s       an exporter, watched for a minute
  ullage fleet week.parquet --jobs sacct.txt --by user      a table, with Slurm's records of who held what
  ullage fleet scrapes/ --reported train.log=4711           the MFU that the trainer of job 4711 logged, beside its OFU
  ullage fleet store/ --where 'user=ann and model=H100'     a part of the fleet
  ullage fleet store/ --since 7d --against 7d               this week beside the last one
  ullage fleet dmon.log --gpu 'H100 SXM'                    nvidia-smi dmon --gpm-metrics 2,3,5
  ullage fleet local --watch 60s                            this machine's GPUs, no exporter needed
  ullage fleet store/ --price H100=2.50 --out fleet.html    the report as a page, with money
  ullage fleet store/ --out site/ --top 100                 pages that are linked: an index, the 100 worst jobs, users, hosts
"""

QUESTION = register(
    RegisteredQuestion(
        name="fleet",
        asked=FleetQuestion,
        noun="a fleet's report",
        answer=answer,
        shown_by="ullage.render.fleet",
        examples=_EXAMPLES,
        read_places=read_places,
        straight_to_file=write_samples,
        to_folder=write_site,
        status_3="only a part of the source could be read",
    )
)

fleet = python_function(QUESTION)
