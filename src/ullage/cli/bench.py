"""`ullage bench`: what this GPU can really do, beside the papers' figures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import INTERRUPTED, PARTIAL
from ullage.cli._parts import WithParts
from ullage.cli.options import Progress, check_out, give
from ullage.errors import UllageError, harmless
from ullage.views.files import FORMS as VIEW_FORMS

_EPILOG = """\b
Examples:
  ullage bench                              every microbenchmark that this GPU can run
  ullage bench --quick                      the few cases of each that matter most
  ullage bench wgmma memory-latency --json  two of them, for programs
  ullage bench --out report.html --save     a page with roofline and curves; ceilings kept for `ullage waterfall`
  ullage bench --from results.json --out report.html   a page from what was recorded
  ullage bench --list                       what there is, and how long it takes
  ullage bench wgmma --paper                the published figures; needs no GPU
  ullage bench gemm-ofu                     OFU beside application MFU over random products (OFU paper, table II)
  ullage bench drift --baseline node.json   does the GPU still do what it did?
"""
FORMS = (*VIEW_FORMS, ".svg")


@click.command("bench", cls=WithParts, epilog=_EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME…]")
@click.option("--quick", is_flag=True, help="Only the cases that matter most.")
@click.option("--minutes", type=click.FloatRange(min=0.1), metavar="M", help="Begin no case after so long.")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True, help="The GPU's number, as CUDA counts.")
@click.option(
    "--from",
    "recorded",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show recorded results (a file or a folder of them); run nothing.",
)
@click.option("--paper", is_flag=True, help="Show the published figures; run nothing.")
@click.option("--save", is_flag=True, help="Keep the measured ceilings for the waterfall and `ullage gpus` (see ULLAGE_CEILINGS).")
@click.option("--list", "listed", is_flag=True, help="List the microbenchmarks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write to FILE; the form follows its name: .html, .md, .csv, .json, .txt, or .svg (the roofline).",
)
def command(
    names: tuple[str, ...],
    quick: bool,
    minutes: float | None,
    device: int,
    recorded: tuple[Path, ...],
    paper: bool,
    save: bool,
    listed: bool,
    as_json: bool,
    out: Path | None,
) -> None:
    """Microbenchmarks of this GPU: caches, memory, tensor cores by instruction, copies, clusters, library calls.

    Kernels are compiled at run time; each is checked against a reference on the host before it is timed, and every number says the
    SM clock, power, throttling and data that it was measured under. Clocks, limits and modes of the card are left as they are.
    """
    from ullage.reports.bench.bench import bench_report

    if listed:
        from ullage.render.bench import list_record, list_view

        check_out(out, VIEW_FORMS)
        give(list_view(), list_record, as_json=as_json, out=out)
        return
    check_out(out, FORMS, recorded)
    if save:
        check_ceilings()
    chosen = known(names)
    stopped = None
    if recorded:
        results = [one for path in recorded for one in read_results(path) if not names or one.bench in chosen]
    elif paper:
        results = []
    else:
        results, stopped = measured(chosen, device, as_json, quick=quick, budget=None if minutes is None else minutes * 60, keep=out)
    report = bench_report(results, chosen if paper or names else ())
    _give(report, as_json, out)
    if save:
        click.echo(kept(results), err=True)
    if stopped is not None:
        raise click.exceptions.Exit(stopped)


def known(names: Sequence[str]) -> list[str]:
    """Return the names of the benches that are meant; raises UllageError for one that there isn't.

    Where none is named these are all, the quick ones of our own kernels first: a suite that ends early has those.
    """
    from ullage.benches.bench import BENCHES

    if names:
        return list(dict.fromkeys(BENCHES[name].name for name in names))
    return [member.name for member in sorted(BENCHES.values(), key=lambda one: (one.needs != "cuda", one.seconds, one.name))]


def measured(
    names: Sequence[str], device: int, quiet: bool, *, quick: bool, budget: float | None, drift: bool = False, keep: Path | None = None
) -> tuple[list[Any], int | None]:
    """Return what was measured, and the exit status of a suite that was stopped (None: it went to its end).

    After Ctrl-C, or when the GPU is lost, these are the benches that had ended. Each that ends is written to `keep` at once, if
    that is a .json file; beside one that is there already, whose results stay until the suite has ended. The kernels run in a
    process of their own: one that hangs costs its own row.
    """
    from ullage.benches.running.apart import suite_apart
    from ullage.benches.running.driver import bindings

    bindings()  # without a driver: said at once, before another process is begun
    results: list[Any] = []
    progress = Progress(quiet=quiet)
    part = keep if keep is None or not keep.exists() else keep.with_name(f"{keep.name}.part")
    try:
        for one in suite_apart(names, index=device, quick=quick, progress=progress, budget=budget, drift=drift):
            results.append(one)
            if keep is not None and part is not None and keep.suffix.lower() == ".json":
                write_results(results, part)
    except (KeyboardInterrupt, UllageError) as error:
        if not results:
            raise
        progress.done()
        why = f": {error.problem}" if isinstance(error, UllageError) else ""
        click.echo(f"stopped{why}; {len(results):,} of {len(names):,} microbenchmarks have ended", err=True)
        return _settled(results, part, keep), PARTIAL if why else INTERRUPTED
    finally:
        progress.done()
    return _settled(results, part, keep), None


def _settled(results: list[Any], part: Path | None, keep: Path | None) -> list[Any]:
    """Let the results take the place of those that were there before; return them."""
    if part is not None and keep is not None and part != keep and part.exists():
        part.replace(keep)
    return results


def write_results(results: Sequence[Any], path: Path) -> None:
    """Write results so that `read_results` reads them, in place of what the file holds."""
    from ullage.benches.result import record
    from ullage.views.document import document_text
    from ullage.views.files import replace

    replace(path, document_text("bench-results", {"results": [record(result) for result in results]}).encode())


def read_results(path: Path) -> Iterator[Any]:
    """Yield the results of a file that `ullage bench --json` (or --out) or `make gpu` wrote, or of all .json files of a folder."""
    from ullage.benches.result import restored

    if path.is_dir():
        for each in sorted(path.glob("*.json")):
            yield from read_results(each)
        return
    hint = "give what `ullage bench --out results.json` wrote"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UllageError(f"{path} can't be read ({error.strerror})", hint) from error
    except (ValueError, RecursionError) as error:
        raise UllageError(f"{path} is no JSON ({harmless(str(error), 100)})", hint) from error
    many = found.get("results", [found]) if isinstance(found, dict) else found
    if not isinstance(many, list) or not many:
        raise UllageError(f"{path} holds no results of microbenchmarks", hint)
    for one in many:
        yield restored(one, str(path))


def _give(report: Any, as_json: bool, out: Path | None) -> None:
    """Print or write the tables."""
    from ullage.render.bench import record, view, write

    if out is not None:
        write(report, out)
        click.echo(f"wrote {out}", err=True)
    if as_json or out is None:
        give(view(report), lambda: record(report), as_json=as_json)


def check_ceilings() -> None:
    """Refuse, before anything is measured for it, a folder in which no ceilings can be kept."""
    from ullage.gpus.measured import folder

    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return
    except OSError as error:
        problem = f"{harmless(str(place), 200)} can't be written: {error.strerror or error}"
        raise UllageError(problem, "name another folder with ULLAGE_CEILINGS") from error


def kept(results: Sequence[Any]) -> str:
    """Keep the measured ceilings of a device and say where."""
    from ullage.gpus.measured import MEASURE, folder, save
    from ullage.reports.bench.roofline import ceilings

    found = ceilings(results)
    if found is None:
        raise UllageError("there is no ceiling among these numbers", f"run `{MEASURE}`")
    kinds = (("bursts", found.flops, found.bandwidth), ("sustained", found.sustained_flops, found.sustained_bandwidth))
    said = [f"{kind}: {', '.join([*flops, *bandwidth])}" for kind, flops, bandwidth in kinds if flops or bandwidth]
    return f"kept the ceilings of {harmless(found.gpu, 80)} ({'; '.join(said)}) in {save(found, folder())}"
