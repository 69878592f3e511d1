"""`ullage waterfall`: the chain from peak to MFU for one job, from whatever is known of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ullage.cli._exit_status import end
from ullage.cli._step import LAYOUT, described
from ullage.cli.options import Finite, Progress, check_out, give, output_options
from ullage.views.files import FORMS, Form
from ullage.written_values import seconds, share

_EPILOG = """\b
Examples:
  ullage waterfall job                                         a folder with all of it
  ullage waterfall job/telemetry.parquet job/traces job/config.json job/gemms.json
  ullage waterfall week.parquet --job 4711 --config config.json --batch 512 --seq 4096 --step-time 21
  ullage waterfall --trace profiles/ --config Llama-3-8B/ --batch 64 --seq 8192 --gpu 'H100 SXM'
  ullage waterfall http://prometheus:9090 --job 4711 --tile-efficiency 0.97 --price 2.50 --out waterfall.svg
  ullage waterfall --ofu 34 --mfu 26 --tile-efficiency 97% --model-efficiency 75%

\b
SOURCE is told by content: telemetry (as `ullage fleet` reads it), traces (as `ullage trace`), a model's config.json, a list of
matrix products. A configuration may hold its step in a section "step": {"batch": 512, "seq": 4096, "step_time": 21.0}.
What is not known is merged with its neighbour, and says so. To try it: `ullage simulate job` writes a job with a known answer.
"""


@click.command("waterfall", epilog=_EPILOG)
@click.argument("sources", nargs=-1, metavar="[SOURCE…]")
@click.option("--telemetry", multiple=True, metavar="PLACE", help="Telemetry: a file, a folder, a store or a URL. Repeatable.")
@click.option("--job", metavar="ID", help="Whose samples count, where there are several jobs.")
@click.option("--jobs", "jobs", multiple=True, metavar="FILE", help="Job records, where the samples name no jobs. Repeatable.")
@click.option("--trace", multiple=True, metavar="FILE", help="Traces: files, a folder or a glob, a file a rank. Repeatable.")
@click.option(
    "--window", default="auto", metavar="W", help="Of the trace: steps, first-last, or A:B seconds.  [default: steps, if it has any]"
)
@click.option("--since", metavar="SPAN", help="Of telemetry: only the last 24h, 7d.")
@click.option("--config", metavar="CONFIG", help="config.json, a folder with one, or a diffusers folder.")
@click.option("--gemms", type=click.Path(path_type=Path), metavar="FILE", help="Matrix products with kernels or tiles: JSON.")
@click.option("--tile-efficiency", metavar="RATIO", help="Share of the executed FLOPs that tiles did not pad (`ullage gemm`).")
@click.option("--model-efficiency", metavar="RATIO", help="Share of the executed FLOPs that the model needs (`ullage flops`).")
@click.option("--ofu", metavar="OFU", help="OFU, where there is no telemetry: 34%, 34 or 0.34.")
@click.option("--mfu", metavar="MFU", help="A reported MFU, in the same way; below 2 % with its sign.")
@click.option(
    "--ceiling",
    metavar="FLOPS",
    help="Measured ceiling: FLOP/s (800e12), a file of `ullage bench --save`, or 'measured': what that kept of this GPU.",
)
@click.option("--price", type=Finite(min=0), metavar="P", help="Money per GPU-hour.")
@click.option("--hours", type=Finite(min=0, min_open=True), metavar="H", help="Hours that the job ran, where telemetry doesn't hold all.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Steps that it took, instead of its hours.")
@click.option("--error", type=Finite(min=0, max=0.99), help="Relative error of OFU as a measure of executed FLOPs.  [default: 0.03]")
@described
@output_options
def command(sources: tuple[str, ...], as_json: bool, out: Path | None, **asked: Any) -> None:
    """One multiplicative chain from peak to MFU, and whose work each step is.

    MFU = load balance × communication × orchestration × SM fill × tensor issue × clock × tile × model. Each step in points, in
    GPU-hours and in money, from telemetry, traces, a model's step, matrix products, or numbers by hand: whatever there is.
    """
    from ullage.render import waterfall as render

    check_out(out, (*FORMS, ".svg"), [*sources, *asked["telemetry"], *asked["trace"], *asked["jobs"], asked["config"], asked["gemms"]])
    own = {name: asked.pop(name) for name in _OWN}
    if not (sources or own["telemetry"] or own["trace"] or own["config"] or own["ofu"] or own["mfu"]):
        raise click.UsageError(
            "nothing is known of the job: name its telemetry, its traces or its config.json, or give --ofu or --mfu; "
            "`ullage simulate job` makes one to try"
        )
    progress = Progress(quiet=as_json)
    try:
        report = _answer(sources, own, asked, progress)
    finally:
        progress.done()
    more: dict[str, Form] = {".svg": lambda: _picture(report)}
    give(render.view(report), lambda: render.record(report), as_json=as_json, out=out, more=more)
    end(partial=not report.complete or report.contradiction is not None)


_RATIOS = ("tile_efficiency", "model_efficiency", "ofu", "mfu")
_PLAIN = ("telemetry", "job", "jobs", "trace", "window", "config", "gemms", "ceiling", "price", "hours", "steps", "error")
_OWN = (*_PLAIN, *_RATIOS, "since")


def _answer(sources: tuple[str, ...], own: dict[str, Any], asked: dict[str, Any], progress: Progress) -> Any:
    from ullage.questions import waterfall

    ratios = {name: None if own[name] is None else share(own[name], f"--{name.replace('_', '-')}") for name in _RATIOS}
    plain: dict[str, Any] = {name: own[name] for name in _PLAIN}
    plain |= ratios
    hours_back = None if own["since"] is None else seconds(own["since"]) / 3600
    return waterfall(*sources, **plain, hours_back=hours_back, progress=progress, **_step(own["config"], asked))


def _step(config: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a step that were given, in the words of the Python call: the configuration's own section says the rest."""
    from ullage.cli.flops import words

    context = click.get_current_context()
    given = {name for name in asked if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    scale = asked["guidance_scale"]
    found = words(config or "", {**asked, "guidance_scale": None}) | {"guidance_scale": scale}
    if given & set(LAYOUT):
        given.add("layout")
    return {name: value for name, value in found.items() if name in given}


def _picture(report: Any) -> str:
    from ullage.render.svg.waterfall import waterfall

    return str(waterfall(report))
