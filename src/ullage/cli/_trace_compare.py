"""`ullage trace compare`: what changed between two runs, factor by factor; a gate for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli._trace_scaling import named
from ullage.cli.options import Progress, check_out
from ullage.cli.trace import answer, reading
from ullage.errors import UllageError
from ullage.views.files import FORMS


@click.command(
    "compare",
    epilog="""\b
Examples:
  ullage trace compare before.json after.json            what changed, and what explains it
  ullage trace compare main=runs/main pr=runs/pr --window steps --fail-under 0.95
                                                         a gate: the efficiency may fall by 5 %
  ullage trace compare a/ b/ --fail-under orchestration_efficiency=0.9 --fail-under speed=0.95
""",
)
@click.argument("a", metavar="[NAME=]A")
@click.argument("b", metavar="[NAME=]B")
@reading
@click.option("--region", metavar="R", help="Only within this region.")
@click.option(
    "--fail-under",
    "limits",
    multiple=True,
    metavar="[METRIC=]X",
    help="A gate: B must keep X of A's device parallel efficiency (without devices: the host's) or METRIC; 'speed': A's time over B's.",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Regions shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE: .html, .md, .csv, .json or .txt.")
def command(a: str, b: str, limits: tuple[str, ...], top: int, as_json: bool, out: Path | None, **asked: Any) -> None:
    """What changed from run A to run B, and how much of the change in time each factor explains.

    A and B are trace files, or folders or globs of one run's traces.
    """
    from ullage.reports.trace.change import change, verdict

    (first, before), (second, after) = named(a), named(b)
    check_out(out, FORMS, (before, after))
    asked_limits = _limits(limits)
    progress = Progress(quiet=as_json)
    names = ("A", "B") if first == second else (first, second)
    runs = answer((before,), asked, progress), answer((after,), asked, progress)
    report = change(*runs, names)
    gate = None
    for limit in asked_limits:
        found = verdict(report, limit)
        gate = found if gate is None else type(gate)(gate.checks + found.checks)
    _give(report, gate, top, as_json, out)
    end(partial=any(run.partial for run in runs), gate=gate is not None and not gate.passed)


def _limits(texts: tuple[str, ...]) -> list[float | dict[str, float]]:
    """Return the gate's limits: a number for the efficiency as a whole, the others by metric.

    >>> _limits(("0.95", "speed=0.9"))
    [0.95, {'speed': 0.9}]
    """
    plain: list[float | dict[str, float]] = []
    by_metric: dict[str, float] = {}
    for text in texts:
        metric, _, number = text.rpartition("=")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not 0 < limit < 1e6:
            raise UllageError(f"'{text}' is no limit", "write --fail-under 0.95, or --fail-under orchestration_efficiency=0.9")
        if metric:
            by_metric[metric] = limit
        else:
            plain.append(limit)
    return [*plain, *([by_metric] if by_metric else [])]


def _give(report: Any, gate: Any, top: int, as_json: bool, out: Path | None) -> None:
    from ullage.cli.options import give
    from ullage.render.change import record, view

    give(view(report, gate, top=top), lambda: record(report, gate), as_json=as_json, out=out)
