"""`ullage fleet`: how full is the fleet, and where does the shortfall go."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import Progress, check_out, dump, moment, output_options, prices, seconds
from ullage.errors import UllageError, public
from ullage.views.files import FORMS as VIEW_FORMS

if TYPE_CHECKING:
    from ullage.problems import Problems
    from ullage.reports.fleet import FleetReport, Question
    from ullage.sources.source import Options

FORMS = (*VIEW_FORMS, ".parquet", ".svg")


@click.command(
    "fleet",
    epilog="""\b
Examples:
  ullage fleet scrapes/                                     dcgm-exporter expositions, one file a scrape
  ullage fleet http://prometheus:9090 --since 24h           a Prometheus, Thanos, Mimir or VictoriaMetrics
  ullage fleet http://node-1:9400/metrics --watch 60s       an exporter, watched for a minute
  ullage fleet week.parquet --jobs sacct.txt --by user      a table, with Slurm's records of who held what
  ullage fleet scrapes/ --reported train.log=4711           the MFU that the trainer of job 4711 logged, beside its OFU
  ullage fleet dmon.log --gpu 'H100 SXM'                    nvidia-smi dmon --gpm-metrics 2,3,5
  ullage fleet local --watch 60s                            this machine's GPUs, no exporter needed
  ullage fleet store/ --price H100=2.50 --out fleet.html    the report as a page, with money""",
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@click.option(
    "--by",
    help="job, user, model, host, cluster, gpu, namespace or hour; sample, with --out FILE.parquet.  [default: job]",
)
@click.option("--since", help="Begin of the window: a time, or a span before now (24h, 7d).")
@click.option("--until", help="End of the window.")
@click.option("--jobs", "job_files", multiple=True, metavar="FILE", help="Job records: sacct output, a CSV, a mapping folder. Repeatable.")
@click.option(
    "--inventory",
    metavar="FILE",
    help="Which GPUs exist, from when until when: CSV or Parquet with gpu, or host and index, or host and gpus; start, end.",
)
@click.option(
    "--reported", multiple=True, metavar="LOG[=JOB]", help="A trainer's log: what a job reported of itself, beside its OFU. Repeatable."
)
@click.option(
    "--price",
    "price_texts",
    multiple=True,
    envvar="ULLAGE_PRICE",
    metavar="[GPU=]AMOUNT",
    help="Money per GPU-hour: 2.50, or H100=2.50,A100=1.20.",
)
@click.option("--gpu", "model", help="Which GPU it is, where the samples don't say.")
@click.option(
    "--peak-tflops",
    envvar="ULLAGE_PEAK_TFLOPS",
    metavar="TFLOPS",
    help="Peak of a relabelled board, for reported FLOP/s: 989.4, or bf16=989.4.",
)
@click.option("--gap", default=None, help="Longest time one sample may stand for.  [default: 60s, or twice the interval]")
@click.option("--top", type=click.IntRange(min=0), default=20, show_default=True, help="Rows of the table.")
@click.option("--noise", is_flag=True, help="Tell what sampling the clock costs (done by itself for fine series).")
@click.option("--store", "store_folder", metavar="FOLDER", help="Keep what was read in this store.")
@click.option("--cluster", help="Name of the cluster, where the samples don't say.")
@click.option("--time-zone", metavar="ZONE", help="Zone of times in job records that say none, such as Europe/Berlin.  [default: UTC]")
@click.option("--watch", default="0s", help="How long to watch a live place.")
@click.option("--every", default="15s", show_default=True, help="Time between two readings of a live place.")
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="HTTP header, such as 'Authorization: Bearer …'. Repeatable."
)
@click.option("--ca", metavar="FILE", help="Certificates to trust for TLS.")
@click.option("--insecure", is_flag=True, help="Do not check the server's certificate.")
@click.option("--timeout", default="30s", show_default=True, help="How long a server may be silent.")
@click.option("--deadline", help="How long reading may take in all; what has come by then is reported, as partial.")
@click.option("--strict", is_flag=True, help="Refuse what can be read only in part, in place of a partial report.")
@output_options
def command(sources: tuple[str, ...], as_json: bool, out: Path | None, **asked: object) -> None:
    """OFU of every GPU and job, and where the shortfall goes.

    SOURCE is a file, a folder, a store, or a URL; its format is recognised by content. OFU is the share of the peak FLOP
    rate that the tensor pipes delivered: tensor activity × SM clock / tensor clock.
    """
    from ullage.intake import opened
    from ullage.problems import Problems
    from ullage.reports.fleet import fleet
    from ullage.sources.clock import named_zone
    from ullage.sources.inventory import read_inventory

    progress = Progress(quiet=as_json)
    now = time.time()
    options, question = _options(asked, progress, now), _question(asked, progress, now)
    gap = None if asked["gap"] is None else round(_positive("--gap", asked["gap"]) * 1000)
    records = {"jobs": _words(asked["job_files"]), "reported": _words(asked["reported"])}
    check_out(
        out,
        FORMS,
        [*sources, _word(asked["inventory"]), *records["jobs"], *(text.rpartition("=")[0] or text for text in records["reported"])],
    )
    if asked["by"] == "sample" and (out is None or out.suffix.lower() != ".parquet"):
        raise UllageError("OFU by sample is a table too long to print", "add --out FILE.parquet")
    problems = Problems()
    if asked["inventory"] is not None:
        listed = read_inventory(str(asked["inventory"]), problems, named_zone(options.time_zone))
        question = replace(question, inventory=listed)
    with opened(sources, **records, options=options, gap_ms=gap, store=_word(asked["store_folder"])) as taken:
        if asked["strict"]:
            taken.refuse_partial()
        if asked["by"] == "sample" and out is not None:
            _write_samples(taken.samples, out, question)
            progress.done()
            click.echo(f"wrote {out}{_caveat(taken.problems)}", err=True)
            end(partial=not taken.problems.complete)
            return
        report = taken.marked(fleet(taken.samples, taken.jobs, question, [*taken.problems.lines(), *problems.lines()]))
    progress.done()
    if out is not None:
        _write(report, out)
        click.echo(f"wrote {out}{_caveat(taken.problems)}", err=True)
    if as_json:
        from ullage.render.json import fleet as as_data

        click.echo(dump(as_data(report)))
    elif out is None:
        from ullage.render.fleet import view
        from ullage.views.text import text

        click.echo(text(view(report, top=int(str(asked["top"])))), nl=False)
    end(partial=not report.complete)


def _caveat(problems: Problems) -> str:
    """Return what the word about a file adds when the file holds only a part."""
    return "" if problems.complete else f", which is partial: {problems.cuts[0].reason}"


def _options(asked: dict[str, object], progress: Progress, now: float) -> Options:
    from ullage.sources.source import Deadline, Options

    return Options(
        since=moment(_word(asked["since"]), now),
        until=moment(_word(asked["until"]), now),
        cluster=_word(asked["cluster"]),
        time_zone=_word(asked["time_zone"]),
        headers=dict(_header(text) for text in _words(asked["headers"])),
        verify_tls=False if asked["insecure"] else (_word(asked["ca"]) or True),
        timeout=_positive("--timeout", asked["timeout"]),
        deadline=Deadline() if asked["deadline"] is None else Deadline.after(_positive("--deadline", asked["deadline"])),
        watch=seconds(str(asked["watch"])),
        interval=_positive("--every", asked["every"]),
        progress=progress,
    )


def _positive(option: str, text: object) -> float:
    value = seconds(str(text))
    if value < 0.001:
        raise UllageError(f"{option} {text} is too short", "a millisecond is the least")
    return value


def _question(asked: dict[str, object], progress: Progress, now: float) -> Question:
    from ullage.reports.fleet import Question

    return Question(
        by=None if asked["by"] == "sample" else _word(asked["by"]),
        since=moment(_word(asked["since"]), now),
        until=moment(_word(asked["until"]), now),
        prices=prices(_words(asked["price_texts"])),
        model=_word(asked["model"]),
        peak_tflops=_word(asked["peak_tflops"]),
        noise=bool(asked["noise"]),
        command=shlex.join(["ullage", *_public(sys.argv[1:])]),
        progress=progress,
    )


def _public(arguments: list[str]) -> list[str]:
    """Return the command line without secrets: headers and passwords never reach a report."""
    shown: list[str] = []
    hidden = False
    for argument in arguments:
        if hidden:
            hidden = False
            shown.append("…")
        elif argument == "--header":
            hidden = True
            shown.append(argument)
        elif argument.startswith("--header="):
            shown.append("--header=…")
        else:
            shown.append(public(argument))
    return shown


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or any(c in text for c in "\r\n"):
        raise UllageError("a --header has no 'NAME: VALUE'", "write --header 'Authorization: Bearer …'")
    return name.strip(), value.strip()


def _write_samples(samples: Any, out: Path, question: Question) -> None:
    from ullage.checked_parquet import writer
    from ullage.reports.samples import with_ofu
    from ullage.store.reading import batches_of
    from ullage.sums.devices import within

    part = out.with_name(f".{out.name}.part")
    try:
        rows = batches_of(with_ofu(within(samples, question.since, question.until), question.model))
        with writer(part, rows.schema, compression="zstd") as file:
            for batch in rows:
                file.write_batch(batch)
        part.replace(out)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise UllageError(f"{out} can't be written: {error.strerror or error}") from error


def _word(value: object) -> str | None:
    return None if value is None else str(value)


def _words(values: object) -> tuple[str, ...]:
    return tuple(str(v) for v in values) if isinstance(values, tuple) else ()


def _write(report: FleetReport, out: Path) -> None:
    from ullage.render.fleet import write

    try:
        write(report, out)
    except OSError as error:
        raise UllageError(f"{out} can't be written: {error.strerror or error}") from error
