"""`ullage sass`: which tensor instructions a binary really issues, and what is emulated. No GPU is needed."""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli._exit_status import end
from ullage.cli.options import Progress, check_out, give, out_option
from ullage.views.files import FORMS

_EPILOG = """\b
Examples:
  ullage sass kernel.cubin                       what it issues, what is emulated, what is of an older generation
  ullage sass libkernels.so --kernel gemm        kernels whose name holds "gemm", for every architecture in the file
  ullage sass kernel.cubin kernel.ptx            what was asked beside what came of it: certain verdicts
  ullage sass kernel.ptx --arch sm_90a --strict  a gate: nothing may be emulated or legacy
  ullage sass --table --family mma               what every architecture makes of each instruction"""

_FAMILIES = ("mma", "wgmma", "tcgen05", "vector", "copy", "cluster")


@click.command("sass", epilog=_EPILOG)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]…")
@click.option("--kernel", default="", metavar="NAME", help="Only kernels whose name, as the binary writes it, holds NAME.")
@click.option("--arch", metavar="SM", help="Only this architecture (sm_90, sm_90a); PTX is compiled for it.")
@click.option("--strict", is_flag=True, help="A gate: nothing may be emulated or legacy.")
@click.option("--table", "tabled", is_flag=True, help="Compile every known instruction for every architecture, and show what comes of it.")
@click.option("--family", type=click.Choice(_FAMILIES), help="With --table: only these instructions.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@out_option
def command(
    files: tuple[Path, ...], kernel: str, arch: str | None, strict: bool, tabled: bool, family: str | None, as_json: bool, out: Path | None
) -> None:
    """Which tensor instructions a binary really issues, which are emulated, and which are of an older generation.

    FILE is a cubin, fat binary, object, library, executable or PTX, told by its content. Each finding shows the instruction that
    proves it, and the ceiling that follows where somebody measured it.
    """
    if tabled == bool(files):
        raise click.UsageError("give a FILE, or --table")
    if tabled and (kernel or strict):
        raise click.UsageError(f"--{'strict' if strict else 'kernel'} is about files, not about --table")
    if family and not tabled:
        raise click.UsageError("--family is a part of --table")
    check_out(out, FORMS, files)
    if tabled:
        _table(arch, family, as_json, out)
    else:
        _lint(files, kernel, arch, strict, as_json, out)


def _lint(files: tuple[Path, ...], kernel: str, arch: str | None, strict: bool, as_json: bool, out: Path | None) -> None:
    from ullage.render import sass as render
    from ullage.reports.sass import audit_sass

    progress = Progress(quiet=as_json)
    report = audit_sass(files, kernel=kernel, architecture=arch, progress=progress)
    progress.done()
    give(render.view(report), lambda: render.record(report), as_json=as_json, out=out)
    end(gate=strict and bool(report.bad))


def _table(arch: str | None, family: str | None, as_json: bool, out: Path | None) -> None:
    from ullage.kernels.compiling import ARCHITECTURES
    from ullage.kernels.sass.outcomes import table
    from ullage.kernels.sass.probe import PROBES
    from ullage.render import sass_tables as render

    progress = Progress(quiet=as_json)
    rows = table((arch,) if arch is not None else ARCHITECTURES, [one for one in PROBES.values() if family in (None, one.family)], progress)
    progress.done()
    give(render.view(rows), lambda: render.record(rows), as_json=as_json, out=out, more={".md": lambda: render.markdown(rows)})
