"""`ullage bench gemm-ofu`: how well OFU tells the MFU of products whose FLOPs are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import INTERRUPTED, PARTIAL
from ullage.cli.options import Progress, check_out, give, output_options
from ullage.errors import UllageError
from ullage.views.files import FORMS, Form


@click.command(
    "gemm-ofu",
    epilog="""\b
Examples:
  ullage bench gemm-ofu                           60 random products in each precision; about 8 minutes
  ullage bench gemm-ofu --minutes 3               what fits; the same command goes on where this ended
  ullage bench gemm-ofu --count 500 --seconds 5 -p fp16,fp8
  ullage bench gemm-ofu --from gemm-ofu.jsonl --out table.html   what was recorded; needs no GPU
  ullage bench gemm-ofu --from gemm-ofu.jsonl --out figure3.svg --picture speedups
""",
)
@click.option("--count", type=click.IntRange(min=0), default=60, show_default=True, help="Random products in each precision.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="How long each is watched.")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M", help="Begin no product after so long.")
@click.option("--precision", "-p", "precisions", default="fp16,bf16,tf32,fp8,fp4", show_default=True, help="Which precisions.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Makes the shapes.")
@click.option("--largest", type=click.IntRange(min=16), default=8192, show_default=True, help="The largest dimension.")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True, help="The GPU's number, as CUDA counts.")
@click.option("--record", "path", type=click.Path(path_type=Path), default=Path("gemm-ofu.jsonl"), show_default=True, metavar="FILE",
              help="Where every product is kept at once; what it holds is not measured again.")  # fmt: skip
@click.option("--from", "recorded", type=click.Path(path_type=Path), metavar="FILE", help="Report what FILE holds; nothing is measured.")
@click.option("--picture", type=click.Choice(("errors", "overheads", "speedups")), default="errors", show_default=True, help="Which .svg.")
@output_options
def command(path: Path, recorded: Path | None, picture: str, as_json: bool, out: Path | None, **asked: Any) -> None:
    """OFU beside application MFU over random matrix products (OFU paper, table II).

    Each product runs without a pause while NVML tells tensor activity, cycle counters and clock over the very same span. OFU is
    held against the FLOPs done in it over the peak; adjusted OFU takes out the padding that the kernel's name tells.
    Needs PyTorch and a GPU from Hopper on, without MIG.
    """
    from ullage.benches.gemm_ofu_record import read
    from ullage.reports.gemms.ofu import gemm_ofu

    check_out(out, (*FORMS, ".svg"), (recorded or path,))
    stopped = _measure(path, as_json, asked) if recorded is None else None
    give_table(gemm_ofu(read(recorded or path)), picture, as_json, out)
    if stopped is not None:
        raise click.exceptions.Exit(stopped)


def _measure(path: Path, as_json: bool, asked: dict[str, Any]) -> int | None:
    """Measure into the file; what ended it early, Ctrl-C too, is said, and what was measured is reported.

    Return the exit status of what was stopped (None: it went to its end, or to that of the time that it was given).
    """
    from ullage.benches.gemm_ofu import TIME_UP, measure
    from ullage.benches.running.session import opened

    progress, stopped = Progress(quiet=as_json), None
    precisions = [word for word in str(asked.pop("precisions")).split(",") if word.strip()]
    with opened(asked.pop("device")) as session:
        try:
            early = measure(session, path, precisions=precisions, progress=progress, **asked)
            stopped = PARTIAL if early and not early.startswith(TIME_UP) else None
        except KeyboardInterrupt:
            early, stopped = "stopped; the same command goes on where this ended", INTERRUPTED
    progress.done()
    if early:
        click.echo(early, err=True)
    return stopped


def give_table(report: Any, picture: str, as_json: bool, out: Path | None) -> None:
    """Print or write the table."""
    from ullage.render.gemm_ofu import record, view

    more: dict[str, Form] = {".svg": lambda: drawn(report, picture)}
    give(view(report), lambda: record(report), as_json=as_json, out=out, more=more)


def drawn(report: Any, picture: str) -> str:
    """Return one of the pictures. Raises UllageError where there is nothing to draw."""
    from ullage.render.svg import gemm_ofu as pictures

    found = getattr(pictures, picture)(report)
    if found is None:
        raise UllageError(f"there is nothing to draw of {picture}", "measure more products, or choose another --picture")
    return str(found)
