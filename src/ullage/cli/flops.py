"""`ullage flops`: what a model step costs, and how much of the GPUs' peak went into it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ullage.cli._step import LAYOUT, TILES, described
from ullage.cli.options import Progress, check_out, give, output_options
from ullage.errors import UllageError
from ullage.views.files import FORMS, Form

_EPILOG = """\b
Examples:
  ullage flops config.json --batch 8 --seq 4096                     FLOPs of a training step, by group
  ullage flops Llama-3-8B/ --batch 1024 --seq 8192 --step-time 21 --gpus 256 --gpu 'H100 SXM'
                                                                    MFU and HFU
  ullage flops config.json --seqlens 512,1024,2048                  packed sequences: Σs and Σs²
  ullage flops config.json --context 4096 --batch 32                one step of generation
  ullage flops config.json --lora-rank 16 --lora-targets q_proj,v_proj --seq 2048
  ullage flops config.json --recompute full --seq 4096              executed FLOPs, for HFU
  ullage flops Wan2.1/ --latent 21,60,104 --prompt-tokens 512 --timesteps 50 --forward-passes 2 --forward-only
  ullage flops Qwen2.5-VL/ --seq 1024 --grid 1,32,32 --grid 1,64,64
  ullage flops config.json --seq 4096 --as verl                     what that framework would print
  ullage flops config.json --seq 4096 --gpu 'H100 SXM' --tiles       what tiles will pad, product by product
  ullage flops config.json --certify                                prove the formula by tracing (needs torch)
  ullage flops --list                                               the architectures
"""


def _pairs(text: tuple[str, ...]) -> dict[str, str]:
    """Return precisions by pattern of work.

    >>> _pairs(("bf16", "mlp=fp8"))
    {'*': 'bf16', 'mlp': 'fp8'}
    """
    found = {}
    for part in text:
        pattern, _, precision = part.rpartition("=")
        found[pattern or "*"] = precision
    return found


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(w for w in (text or "").split(",") if w)


@click.command("flops", epilog=_EPILOG)
@click.argument("config", required=False)
@described
@TILES
@click.option("--tiles", is_flag=True, help="The tile efficiency to expect of each matrix product, by predicted tiles (docs/gemm.md).")
@click.option("--by", type=click.Choice(["group", "name"]), default="group", show_default=True, help="Rows of the table.")
@click.option("--certify", is_flag=True, help="Trace the model at small shapes and demand integer equality; stores a certificate.")
@click.option("--trace", is_flag=True, help="Derive FLOPs from traces, for an architecture without a formula.")
@click.option("--list", "listed", is_flag=True, help="List the architectures that have a formula.")
@output_options
def command(
    config: str | None, listed: bool, as_json: bool, out: Path | None, by: str, certify: bool, trace: bool, tiles: bool, **asked: Any
) -> None:
    """FLOPs of a model step, term by term; with its time, MFU and HFU.

    CONFIG is a Hugging Face config.json, a folder with one, or a diffusers folder. FLOPs are exact integers; attention is
    counted causally where it is (windows too), backward as twice the forward pass.
    """
    if listed:
        click.echo(_architectures(as_json), nl=False)
        return
    if config is None:
        raise click.UsageError("name a config.json or a folder, or say --list")
    check_out(out, (*FORMS, ".svg"), [config])
    progress = Progress(quiet=as_json)
    if certify or trace:
        from ullage.cli._proofs import prove

        prove(config, asked, progress, trace=trace, as_json=as_json)
        return
    from ullage.render import flops as render

    report = answer(config, asked)
    found = _tiles(config, asked, report) if tiles else None
    more: dict[str, Form] = {".svg": lambda: _picture(report)}
    give(render.view(report, by=by, tiles=found), lambda: render.record(report, found), as_json=as_json, out=out, more=more)


def _picture(report: Any) -> str:
    from ullage.render.svg.terms import terms

    return str(terms(report))


def _tiles(config: str, asked: Mapping[str, Any], report: Any) -> Any:
    from ullage.models.reading import read_config
    from ullage.questions import step_question
    from ullage.reports.gemms.ledger import expected

    question = words(config, asked)
    question.pop("guidance_scale", None)
    return expected(read_config(config), step_question(**question), report)


def answer(config: str, asked: Mapping[str, Any]) -> Any:
    """Return the report for what the command line asks."""
    from ullage.questions import flops

    return flops(config, **words(config, asked))


def words(config: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a step in the words of the Python call."""
    from ullage.models.reading import read_config
    from ullage.models.shapes import forward_passes

    given = dict(asked)
    given["layout"] = {name: given.pop(name) for name in LAYOUT}
    passes, scale = given.pop("forward_passes"), given.pop("guidance_scale")
    given["forward_passes"] = forward_passes(read_config(config), passes, scale) if scale is not None else passes or 1
    for word in ("latent_tokens", "prompt_tokens"):
        value = given[word]
        given[word] = value[0] if value is not None and len(value) == 1 else value
    given["freeze"] = _words(given["freeze"])
    given["lora_targets"] = _words(given["lora_targets"])
    given["recompute"] = given["recompute"] if given["recompute"] in ("none", "full") else _words(given["recompute"])
    given["precision"] = _pairs(given["precision"])
    for word, value in {**given["layout"], **{w: given[w] for w in ("step_time", "gpus", "lora_rank")}}.items():
        if value is not None and not 0 < value < 1e12:
            raise UllageError(f"--{word.replace('_', '-')} {value} can't be", "give a number above 0")
    return given


def _architectures(as_json: bool) -> str:
    from ullage.models.model import MODELS
    from ullage.views.document import document_text
    from ullage.views.table import table

    members = sorted({id(m): m for m in MODELS.values()}.values(), key=lambda m: (m.kind, m.family))
    if as_json:
        listed = [{"family": m.family, "kind": m.kind, "names": list(m.names), "source": m.source} for m in members]
        return document_text("architectures", {"architectures": listed}) + "\n"
    rows = [[m.family, m.kind, f"{len(m.names)} names", m.summary] for m in members]
    names = sum(len(m.names) for m in members)
    return f"{len(members)} families under {names} names\n\n" + table(["family", "kind", "", "what"], rows, left=4) + "\n"
