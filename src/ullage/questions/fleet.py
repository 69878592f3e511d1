"""How full is the fleet, and where does the shortfall go?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ullage.asking import asked, read_positive_span
from ullage.asking.question import Progress, RegisteredQuestion, python_function, register
from ullage.asking.telemetry import TelemetryReading
from ullage.errors import UllageError
from ullage.problems import Problems
from ullage.reports.fleet.request import FleetRequest

if TYPE_CHECKING:
    from ullage.intake import Intake
    from ullage.reports.fleet.fleet import FleetReport
    from ullage.sources.inventory import Listed


@dataclass(frozen=True, kw_only=True)
class FleetQuestion(FleetRequest, TelemetryReading):
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
        local=True,
    )
    store: str | None = asked("Keep what was read in this store.", metavar="FOLDER", acts=True)
    gap: float | None = asked(
        "Longest time one sample may stand for.", read=read_positive_span, minor=True, shown="60s, or twice the interval", local=True
    )
    top: int = asked("Rows of a table.", 20, least=0, display=True)

    def __post_init__(self) -> None:
        if self.by != "sample":  # which is no group, and is written to a file
            super().__post_init__()


def answer(question: FleetQuestion, progress: Progress, command: str = "") -> FleetReport:
    """Return the fleet report; raises UllageError for what the user can fix, and for partial input under `strict`."""
    from ullage.reports.fleet.fleet import fleet

    problems = Problems()
    request = replace(question, existing=_inventory(question, problems), command=command, progress=progress)
    with _read(question, progress) as taken:
        return taken.marked(fleet(taken.samples, taken.jobs, request, [*taken.problems.lines(), *problems.lines()], taken.rolled))


def write_samples(question: FleetQuestion, out: Path | None, progress: Progress) -> str | None:
    """Write OFU by sample, where that is asked for; "" for a whole table, else why it is partial. None: it is not asked for."""
    from ullage.reports.fleet.samples import write_with_ofu

    if question.by != "sample":
        return None
    if out is None or out.suffix.lower() != ".parquet":
        raise UllageError("OFU by sample is a table too long to print", "add --out FILE.parquet")
    if question.condition() is not None:
        raise UllageError("OFU by sample is written of a whole fleet", "leave out --where, --job, --user and --host")
    with _read(question, progress) as taken:
        write_with_ofu(taken.samples, out, since=question.since, until=question.until, model=question.gpu)
        return "" if taken.problems.complete else taken.problems.cuts[0].reason


def read_places(question: FleetQuestion) -> list[str]:
    """Return the places that are read for a question."""
    logs = [text.rpartition("=")[0] or text for text in question.reported]
    return [*question.sources, *filter(None, [question.inventory]), *question.jobs, *logs]


@contextmanager
def _read(question: FleetQuestion, progress: Progress) -> Iterator[Intake]:
    from ullage.intake import opened

    options = question.reading_options(progress)
    gap_ms = None if question.gap is None else round(question.gap * 1000)
    records = {"jobs": question.jobs, "reported": question.reported}
    with opened(question.sources, **records, options=options, gap_ms=gap_ms, store=question.store) as taken:
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
  ullage fleet dmon.log --gpu 'H100 SXM'                    nvidia-smi dmon --gpm-metrics 2,3,5
  ullage fleet local --watch 60s                            this machine's GPUs, no exporter needed
  ullage fleet store/ --price H100=2.50 --out fleet.html    the report as a page, with money
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
        status_3="only a part of the source could be read",
    )
)

fleet = python_function(QUESTION)
