"""`ullage flops --certify` and `--trace`: formulas proved by tracing the real model, and derived where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ullage.cli._exit_status import end
from ullage.cli.options import Progress
from ullage.errors import UllageError
from ullage.models.reading import read_config


def prove(config: str, asked: Mapping[str, Any], progress: Progress, *, trace: bool, as_json: bool) -> None:
    """Certify the formula of a configuration, or derive one from traces, and print what came of it."""
    (derive if trace else certify)(config, asked, progress, as_json)


def certify(config: str, asked: Mapping[str, Any], progress: Progress, as_json: bool) -> None:
    """Trace the model at small shapes, compare, and keep the certificate; a gate that trips when formula and model differ."""
    from ullage.models.tracing import certificate as certificates
    from ullage.models.tracing.shelf import store
    from ullage.views.document import document_text

    made = certificates.certify(read_config(config), asked["config_kind"], progress=progress)
    progress.done()
    file = store(made) if made.equal else None
    if as_json:
        data = {**certificates.record(made), "file": None if file is None else str(file)}
        click.echo(document_text("flops-certificate", data))
    else:
        click.echo(_told(made), nl=False)
        if file is not None:
            click.echo(f"the certificate is kept in {file}", err=True)
    end(gate=not made.equal)


def _row(compared: Any) -> list[str]:
    from ullage.views.numbers import flops as counted

    numbers = (compared.forward, compared.traced_forward, compared.backward, compared.traced_backward)
    return [", ".join(f"{k} {v}" for k, v in compared.trial.items()), *map(counted, numbers), str(compared.terms)]


def _told(made: Any) -> str:
    from ullage.views.table import table

    libraries = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    verdict = "certified" if made.equal else f"NOT certified: {len(made.differences)} differences"
    lines = [f"{verdict}: {made.architecture}, {libraries}", ""]
    rows = [_row(compared) for compared in made.compared]
    lines.append(table(["shape", "forward", "traced", "backward", "traced", "terms compared"], rows))
    lines += ["", *(f"  {difference}" for difference in made.differences[:20])] if made.differences else []
    return "\n".join(lines) + "\n"


def derive(config: str, asked: Mapping[str, Any], progress: Progress, as_json: bool) -> None:
    """Derive the FLOPs of an architecture from small traces, and evaluate them at the asked batch and lengths."""
    from ullage.models.tracing.derived import derive as derived
    from ullage.views.document import document_text

    found = derived(read_config(config), progress=progress)
    progress.done()
    given = {"batch": asked["batch"] or 1, "seq": asked["decoder_seq"] or asked["seq"], "encoder": asked["encoder_seq"] or asked["seq"]}
    values = [given[name] for name in found.variables]
    if any(value is None for value in values):
        raise UllageError("a derived count needs lengths", "give --seq, or --encoder-seq and --decoder-seq")
    forward, backward = found.flops(*values), 0 if asked["forward_only"] else found.backward(*values)
    data = {
        "architecture": found.architecture,
        "forward": forward,
        "backward": backward,
        "training": forward + backward,
        "executed": forward + backward,
        "convention": "full",
        "status": "traced",
        "terms": [
            {"name": "model", "group": "model", "pass": p, "flops": f} for p, f in (("forward", forward), ("backward", backward)) if f
        ],
        "polynomial": {"forward": str(found.forward), "training": str(found.training)},
        "versions": dict(found.versions),
    }
    click.echo(document_text("flops-traced", data) if as_json else _derived(data), nl=as_json)


def _derived(data: Mapping[str, Any]) -> str:
    from ullage.views.numbers import flops as counted

    total = f"{counted(data['training'])} a step: {counted(data['forward'])} forward, {counted(data['backward'])} backward"
    polynomial = f"forward = {data['polynomial']['forward']}"
    note = "traces know no causal half: attention is counted in full"
    return f"{total}; {data['architecture']}, full attention, traced\n\n{polynomial}\nnote: {note}\n"
