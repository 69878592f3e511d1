"""`ullage audit mfu`: which known mistakes explain a reported MFU beside OFU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ullage.cli._exit_status import end
from ullage.cli._step import described
from ullage.cli.options import Progress, check_out, give, output_options
from ullage.views.files import FORMS, Form
from ullage.written_values import share

if TYPE_CHECKING:
    from ullage.reports.audit.audit import AuditReport
    from ullage.reports.audit.fleet import FleetAudit


_USELESS = ("step_time", "peak_tflops")


@click.command(
    "mfu",
    epilog="""\b
Examples:
  ullage audit mfu --config config.json --reported 54.27 --ofu 25.58 --seq 4096 --gpu 'H100 SXM'
  ullage audit mfu --config config.json --reported 26 --ofu 34 --seq 8192 --tile-efficiency 0.97
  ullage audit mfu --config Wan2.1/ --reported 3.1 --ofu 0.31 --latent 21,60,104 --prompt-tokens 512
  ullage audit mfu --config config.json --reported 54.27 --ofu 43.1 --seq 4096 --as verl --out audit.svg
  ullage audit mfu --fleet week.parquet --jobs jobs.csv --configs configs/
  ullage audit mfu --list

\b
With --fleet, configs/ holds NAME.json for each job or job name, its step in a section "step" in the words of
`ullage flops` ({"batch": 512, "seq": 4096}) or in NAME.step.json; GPUs and their number come from the samples.""",
)
@click.option("--config", metavar="CONFIG", help="config.json, a folder with one, or a diffusers folder.")
@click.option("--reported", metavar="MFU", help="The MFU that was reported: percent (54.27), or a ratio (0.5427).")
@click.option("--ofu", metavar="OFU", help="What the counters say, in the same way.")
@click.option(
    "--fleet", "fleet", multiple=True, metavar="SOURCE", help="Audit every job of a fleet instead, as `ullage fleet` reads it. Repeatable."
)
@click.option("--jobs", "jobs", multiple=True, metavar="FILE", help="With --fleet: job records with the reported MFU. Repeatable.")
@click.option("--configs", metavar="FOLDER", help="With --fleet: a configuration for each job or job name.")
@click.option("--tile-efficiency", metavar="RATIO", help="Share of the executed FLOPs that tiles did not pad (`ullage gemm`).")
@click.option("--error", type=float, help="Relative error of OFU.  [default: 0.03]")
@click.option("--node", type=int, default=8, show_default=True, help="GPUs in a machine.")
@described
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Explanations to show.")
@click.option("--list", "listed", is_flag=True, help="List the known mistakes.")
@output_options
def command(listed: bool, as_json: bool, out: Path | None, **asked: Any) -> None:
    """Which known mistakes explain a reported MFU beside OFU: the smallest sets that fit, the likeliest first.

    MFU = OFU × tile efficiency × model efficiency. Each mistake's factor is computed from this configuration and step,
    described with the options of `ullage flops`.
    """
    if listed:
        click.echo(_list(as_json))
        return
    names = ("config", "reported", "ofu", "tile_efficiency", "error", "node", "top", "fleet", "jobs", "configs")
    given = {name: asked.pop(name) for name in names}
    places = [given["config"], *given["fleet"], *given["jobs"], given["configs"]]
    check_out(out, FORMS if given["fleet"] else (*FORMS, ".svg"), places)
    if given["fleet"]:
        from ullage.render import audit_fleet as render_fleet

        allowed = {"gpu", *names, "listed", "as_json", "out"}
        _refuse(
            [word for word in click.get_current_context().params if word not in allowed], "is for one job: a fleet's stand in --configs"
        )
        audited = _fleet(given, asked["gpu"])
        give(render_fleet.view(audited), lambda: render_fleet.record(audited), as_json=as_json, out=out)
        end(partial=not audited.complete, gate=bool(audited.of("wrong", "unexplained")))
    else:
        from ullage.render import audit as render

        for name in ("config", "reported", "ofu"):
            if given[name] is None:
                raise click.UsageError(f"--{name} is missing")
        _refuse(_USELESS, "plays no part in an audit: what is compared are ratios")
        report = _answer(given, asked)
        more: dict[str, Form] = {".svg": lambda: _picture(report)}
        give(render.view(report), lambda: render.record(report), as_json=as_json, out=out, more=more)
        end(gate=report.finding.flagged)


def _answer(given: dict[str, Any], asked: dict[str, Any]) -> AuditReport:
    from ullage.questions._audits import audit_mfu

    return audit_mfu(
        given["config"],
        reported=share(given["reported"], "--reported"),
        ofu=share(given["ofu"], "--ofu"),
        tile_efficiency=_tile(given),
        error=given["error"],
        node=given["node"],
        most=given["top"],
        **{word: value for word, value in asked.items() if value not in (None, ())},
    )


def _fleet(given: dict[str, Any], gpu: str | None) -> FleetAudit:
    from ullage.questions._audits import audit_fleet
    from ullage.sources.source import Options

    for name in ("config", "reported", "ofu"):
        if given[name] is not None:
            raise click.UsageError(f"--{name} is for one job, and --fleet for all of a fleet's")
    if given["configs"] is None:
        raise click.UsageError("--configs is missing: the folder with the jobs' configurations")
    progress = Progress()
    audited = audit_fleet(
        given["fleet"],
        configs=given["configs"],
        jobs=given["jobs"],
        gpu=gpu,
        tile_efficiency=_tile(given),
        error=given["error"],
        node=given["node"],
        options=Options(progress=progress),
    )
    progress.done()
    return audited


def _tile(given: dict[str, Any]) -> float | None:
    tile = given["tile_efficiency"]
    return None if tile is None else share(tile, "--tile-efficiency")


def _picture(report: AuditReport) -> str:
    from ullage.render.svg.audit import audit

    return str(audit(report))


def _refuse(words: Iterable[str], why: str) -> None:
    """Refuse options that would be ignored; what the environment sets is no option."""
    context = click.get_current_context()
    for word in words:
        if context.get_parameter_source(word) is ParameterSource.COMMANDLINE:
            option = next(p.opts[0] for p in context.command.params if p.name == word)
            raise click.UsageError(f"{option} {why}")


def _list(as_json: bool) -> str:
    from ullage.audit.mistakes.mistake import MISTAKES
    from ullage.views.document import document_text
    from ullage.views.table import table

    members = sorted(MISTAKES.values(), key=lambda m: (m.about, m.name))
    if as_json:
        listed = [{"name": m.name, "about": m.about, "says": m.says, "decided_by": m.decides} for m in members]
        return document_text("audit-mistakes", {"mistakes": listed})
    return table(["mistake", "about", "what is done"], [[m.name, m.about, m.says] for m in members], left=3)
