"""`ullage bench drift`: does this GPU still do what it did?"""

from __future__ import annotations

from pathlib import Path

import click

from ullage.cli._exit_status import end
from ullage.cli.bench import measured, read_results, write_results
from ullage.cli.options import check_out, give

SECONDS = 60.0  # after which no case begins


@click.command(
    "drift",
    epilog="""\b
Examples:
  ullage bench drift --out node17.json                   measure, and keep it as the baseline
  ullage bench drift --baseline node17.json              a minute: did something move?
  ullage bench drift --baseline node17.json --limit 5 --json
""",
)
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE", help="What the GPU did before.")
@click.option("--against", type=click.Path(path_type=Path), metavar="FILE", help="Compare this file in place of measuring.")
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=3.0, show_default=True, help="A change that counts, percent.")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True, help="The GPU's number, as CUDA counts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Keep what was measured: .json.")
def command(baseline: Path | None, against: Path | None, limit: float, device: int, as_json: bool, out: Path | None) -> None:
    """A minute of microbenchmarks beside a stored baseline: did something move?

    Latencies are compared in SM cycles: when they move, memory, caches or firmware did. Rates that moved as the clock did
    speak of power or heat.
    """
    from ullage.benches.bench import BENCHES
    from ullage.render.drift import record, view
    from ullage.reports.bench.drift import drift_report

    check_out(out, (".json",), (baseline, against))
    if baseline is None and out is None:
        raise click.UsageError("name a --baseline to compare with, or --out FILE to make one")
    before = [] if baseline is None else list(read_results(baseline))
    names = [name for name, member in BENCHES.items() if member.drift]
    stopped, moved = None, False
    if against is not None:
        now = list(read_results(against))
    else:
        now, stopped = measured(names, device, as_json, quick=True, budget=SECONDS, drift=True, keep=out)
    if out is not None:
        write_results(now, out)
        click.echo(f"wrote {out}", err=True)
    if baseline is not None:
        report = drift_report(now, before, limit / 100)
        give(view(report), lambda: record(report), as_json=as_json)
        moved = bool(report.moved)
    if stopped:
        raise click.exceptions.Exit(stopped)
    end(gate=moved)
