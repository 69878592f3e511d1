"""`ullage trace gemms`: the matrix products of a profile, and what tiles cost of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import Progress, check_out, give
from ullage.cli.trace import answer, reading
from ullage.errors import UllageError
from ullage.views.files import FORMS


@click.command(
    "gemms",
    epilog="""\b
Examples:
  ullage trace gemms trace.json.gz              every GEMM kernel, with its operator's shapes and its tile loss
  ullage trace gemms trace.json.gz --by layer   tile loss summed by module or named region
  ullage trace gemms trace.json.gz --ofu 0.41   OFU without the padding of tiles
  ullage trace gemms profiles/ --json           all ranks together, for programs
  ullage trace gemms trace.json --out gemms.json      for `ullage waterfall --gemms gemms.json`
""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@reading
@click.option("--by", type=click.Choice(("kernel", "product", "layer")), default="kernel", show_default=True, help="What a row is.")
@click.option("--ofu", type=float, metavar="X", help="The job's OFU, as measured, 0.41: adjusted OFU is printed.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Rows of the table.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE: .html, .md, .csv, .json or .txt.")
def command(files: tuple[str, ...], by: Any, ofu: float | None, as_json: bool, out: Path | None, top: int, **asked: Any) -> None:
    """Matrix products by kernel: name decoded, shapes as the operator gave them, padding, speed, share of the peak.

    Shapes are in PyTorch profiles recorded with record_shapes=True; without them, names still tell tiles and legacy kernels. Layers are
    modules (with_modules=True or with_stack=True) and regions that the program names (record_function, NVTX).
    """
    from ullage.render.gemms import record, view

    if ofu is not None and not 0 < ofu <= 1.2:
        raise UllageError(f"an OFU of {ofu:g} can't be", "give a value above 0 and at most 1.2")
    check_out(out, FORMS, files)
    report = answer(files, asked, Progress(quiet=as_json))
    found = report.gemms
    if found is None:
        raise UllageError("no kernel of this run is a matrix product that can be told by its name", "ullage trace FILE shows its kernels")
    give(view(found, top, by, ofu), lambda: record(found, ofu), as_json=as_json, out=out)
    end(partial=report.partial)
