"""`ullage cupti stalls`: where the warps of each kernel were, and what they waited for, from sampled program counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ullage.cli.options import check_out, give
from ullage.views.files import FORMS as VIEW_FORMS

if TYPE_CHECKING:
    from ullage.cupti.pc_sampling.samples import PcSamples
    from ullage.reports.stalls.shares import StallReport

FORMS = (*VIEW_FORMS, ".svg", ".folded")


@click.command(
    "stalls",
    epilog="""\b
Examples:
  ullage cupti stalls step.parquet                              each kernel: what its warps waited for, and where
  ullage cupti stalls step.parquet --kernel attention --top 30  more instructions of the kernels whose name holds "attention"
  ullage cupti stalls step.parquet --cubin libkernels.so        with machine code that the recording lacks
  ullage cupti stalls step.parquet --out step.svg               the flame graph; .html with tables, .folded for other viewers
  ullage cupti stalls recordings/                               what `ullage run --stalls --keep recordings/` sampled
  ullage cupti stalls --reasons                                 every stall reason, what it means, its old name

\b
FILE is a recording of `ullage run --stalls`, or what this wrote in the program (never in production: sampling costs memory and time):
  from ullage.cupti.library import find
  from ullage.cupti.pc_sampling.pc_sampling import PcSampling, current_context
  with PcSampling(find(), [current_context()]) as sampling:
      with sampling.range():
          step()
  sampling.result().write(Path("step.parquet"))
""",
)
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option("--kernel", default="", metavar="NAME", help="Only kernels whose name holds NAME.")
@click.option("--cubin", "binaries", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Machine code: cubin, library.")
@click.option("--cupti", metavar="PATH", help="The libcupti that tells cubins by their CRC; without it the one that is found.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Kernels, and instructions of each.")
@click.option("--reasons", "listed", is_flag=True, help="List the stall reasons.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE; the form follows its name: also .svg and .folded."
)
def command(
    file: Path | None, kernel: str, binaries: tuple[Path, ...], cupti: str | None, top: int, listed: bool, as_json: bool, out: Path | None
) -> None:
    """What the warps of each kernel waited for, by stall reason, instruction and line of source.

    Instructions are shown where the machine code is known and nvdisasm is here; lines where it was compiled with -lineinfo.
    """
    if listed == (file is not None):
        raise click.UsageError("give a FILE, or --reasons")
    check_out(out, VIEW_FORMS if listed else FORMS, [file, *binaries])
    from ullage.render import stalls as render

    if file is None:
        give(render.reasons_view(), render.reasons_record, as_json=as_json, out=out)
        return
    from ullage.cupti.pc_sampling.recorded import is_recorded, recorded
    from ullage.cupti.pc_sampling.samples import read

    report = _report(recorded(file) if is_recorded(file) else read(file), kernel, binaries, cupti)
    more = render.forms(report)
    give(render.view(report, top=top), lambda: render.record(report), as_json=as_json, out=out, more=more)


def _report(samples: PcSamples, kernel: str, binaries: tuple[Path, ...], cupti: str | None) -> StallReport:
    from ullage.kernels.sass.binary import open_binary
    from ullage.reports.stalls.stalls import stall_report

    cubins = [image.cubin for path in binaries for image in open_binary(path).images]
    return stall_report(samples, kernel=kernel, cubins=cubins, crc=_named(cupti) if cubins else None)


def _named(cupti: str | None) -> Callable[[bytes], int] | None:
    """Return what tells a cubin's CRC; None without a libcupti, unless one was named."""
    from ullage.cupti.library import find
    from ullage.cupti.modules import crc
    from ullage.errors import UllageError

    try:
        library = find(cupti)
    except UllageError:
        if cupti is not None:
            raise
        return None
    return lambda cubin: crc(library, cubin)
