"""`ullage gpus`: the chips that Ullage knows, their peaks, and where the figures come from."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from typing import Any

import click

from ullage.errors import UllageError
from ullage.gpus import overrides
from ullage.gpus.chip import CHIPS, Chip, find
from ullage.gpus.links import MIB, Link, Pcie
from ullage.gpus.measured import Ceilings, ceilings_of
from ullage.gpus.precision import PRECISIONS, canonical

_EPILOG = """\b
Examples:
  ullage gpus                          every chip, with its dense peaks
  ullage gpus 'H100 SXM'               one chip in full, with its source
  ullage gpus --precision nvfp4        the chips that have FP4, fastest last
  ullage gpus H200 -p fp8              one figure
  ullage gpus --json | jq -r '.[].name'

\b
Environment:
  ULLAGE_PEAK_TFLOPS  a peak that goes before the tables: 989.4 or bf16=989.4,fp8=1978.9
  ULLAGE_GPU_ALIAS    what a relabelled board really is: 'L20X=H200 SXM'
  ULLAGE_CEILINGS     the folder where `ullage bench --save` keeps what a GPU was measured to do
"""

_COMPLETE_WIDTH = 150  # columns of a terminal that holds the whole table
_LEFT_OUT_WHEN_NARROW = ("architecture", "memory, GB", "TDP, W")


@click.command("gpus", epilog=_EPILOG)
@click.argument("name", required=False)
@click.option("--precision", "-p", help=f"Only this precision: {', '.join(PRECISIONS)}, or a name such as bfloat16, e4m3, nvfp4.")
@click.option("--json", "as_json", is_flag=True, help="A list of dictionaries in SI units (Hz, FLOP/s, B/s, B, W).")
def command(name: str | None, precision: str | None, as_json: bool) -> None:
    """The GPUs and their dense peaks, or one of them in full.

    NAME is as drivers, exporters, Kubernetes or people write it: 'NVIDIA H100 80GB HBM3', 'H100 SXM', 'A100-SXM-80GB'.
    """
    wanted = canonical(precision) if precision else None
    given = overrides.peaks(os.environ.get(overrides.PEAK, ""))
    chips = [find(name)] if name else in_order(CHIPS.values())
    if wanted and not name:
        chips = sorted((c for c in chips if wanted in c.precisions), key=lambda c: c.peak(wanted))
    if as_json:
        from ullage.render.ceilings import record as ceilings_record

        found = [{**record(c), "measured": ceilings_record(measured(c)[0])} for c in chips]
        click.echo(json.dumps(found, indent=2, ensure_ascii=False))
    elif name and wanted:
        click.echo(f"{tera(chips[0].peak(wanted))} TFLOP/s dense {wanted.upper()}, {chips[0].name}")
        click.echo(_notes(chips[0].warning, _overridden(given)), nl=False)
    elif name:
        click.echo(in_full(chips[0]))
        ceilings, damaged = measured(chips[0])
        if ceilings is not None:
            from ullage.render.ceilings import text

            click.echo(f"\n{text(ceilings, chips[0])}")
        click.echo(_notes(chips[0].note, chips[0].warning, _overridden(given), damaged), nl=False)
    else:
        click.echo(f"{len(chips)} GPUs{f' with {wanted.upper()}' if wanted else ''}; peaks are dense, in TFLOP/s\n")
        _print_table(chips, [wanted] if wanted else ["bf16", "fp8", "fp4"])
        asterisk = "" if wanted else "a chip without BF16 shows its FP16 peak, with an asterisk"
        click.echo(_notes(asterisk, _overridden(given)), nl=False)


def measured(chip: Chip) -> tuple[Ceilings | None, str]:
    """Return the ceilings that `ullage bench --save` kept of such a GPU, None without; and what is wrong where they can't be read."""
    try:
        return ceilings_of(chip.name), ""
    except UllageError as error:
        return None, f"{error.problem}: {error.hint}"


def in_order(chips: list[Chip]) -> list[Chip]:
    """Return the chips by maker (NVIDIA first), then by age of the architecture, then by speed."""
    return sorted(chips, key=lambda c: (c.vendor != "NVIDIA", _age(c.compute_capability), c.peak("fp16"), c.name))


def _age(compute_capability: str) -> list[int]:
    """ "9.0" is [9, 0]; "gfx90a" counts as hexadecimal, [2314]."""
    if compute_capability.startswith("gfx"):
        return [int(compute_capability[3:], 16)]
    return [int(digits) for digits in re.findall(r"\d+", compute_capability)]


def record(chip: Chip) -> dict[str, Any]:
    """Return a chip as a dictionary for JSON: every field of `Chip`, its derived peaks, and its warning (None without).

    A link is its fields, and `per_direction` in B/s; its `bandwidth` is of both directions together.
    """
    peaks = {precision: chip.peak(precision) for precision in chip.precisions}
    links = {name: _link_record(getattr(chip, name)) for name in ("link", "host_link", "pcie")}
    return {**asdict(chip), **links, "peak": peaks, "warning": chip.warning or None}


def _link_record(link: Link | Pcie | None) -> dict[str, Any] | None:
    return None if link is None else {**asdict(link), "bandwidth": link.bandwidth, "per_direction": link.per_direction}


def tera(flops: float) -> str:
    """Return FLOP/s in TFLOP/s, with one decimal below 10,000 as makers print them.

    >>> tera(989.43e12), tera(1978.86e12), tera(10066.3e12), tera(1e12), tera(0.15e12)
    ('989.4', '1,978.9', '10,066', '1', '0.15')
    """
    value = flops / 1e12
    if value < 1:
        return f"{value:.2g}"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.1f}".removesuffix(".0")


def in_full(chip: Chip) -> str:
    """Return everything about one chip as text: the answer first, then a line per precision, then where it comes from."""
    sixteen = "bf16" if "bf16" in chip.precisions else "fp16"
    lines = [f"{chip.name}: {tera(chip.peak(sixteen))} TFLOP/s dense {sixteen.upper()} at {chip.clock(sixteen) / 1e6:,.0f} MHz", ""]
    boost = f"{chip.sm_clock / 1e6:,.0f} MHz" if chip.sm_clock else "not published"
    facts = [
        ("architecture", f"{chip.vendor} {chip.architecture}, {chip.compute_capability}"),
        ("SMs" if chip.vendor == "NVIDIA" else "compute units", str(chip.sms)),
        ("highest SM clock", boost),
        ("tensor clock", f"{chip.tensor_clock / 1e6:,.0f} MHz ({chip.tensor_clock_status})"),
        ("memory", f"{chip.memory / 1e9:,.0f} GB, {chip.bandwidth / 1e12:.2f} TB/s"),
        ("L2 cache", _cache(chip)),
        ("link to GPUs", _link(chip.link)),
        ("link to CPU", _link(chip.host_link)),
        ("PCIe", _pcie(chip.pcie)),
        ("power", f"{chip.power:,.0f} W"),
        ("MIG", f"{chip.mig_slices} slices" if chip.mig_slices else "none"),
        ("also called", ", ".join(chip.aliases + chip.shared_names) or "-"),
    ]
    lines += [f"{label:<17} {value}" for label, value in facts]
    lines += ["", f"{'precision':<9} {'FLOPs/cycle/SM':>15} {'MHz':>7} {'TFLOP/s':>9} {'stated':>9}"]
    lines += [_precision_line(chip, precision) for precision in chip.precisions]
    lines += ["", f"source: {chip.source}", f"checked: {chip.checked or 'no second source'}", f"confidence: {chip.confidence}"]
    lines += [f"links and caches: {chip.links_source}"] if chip.links_source else []
    return "\n".join(lines)


def _cache(chip: Chip) -> str:
    size = "" if chip.l2 is None else f"{chip.l2 / MIB:,g} MiB"
    rate = "" if chip.l2_bandwidth is None else f"{chip.l2_bandwidth / 1e12:.1f} TB/s"
    return ", ".join(part for part in (size, rate) if part) or "not known"


def _link(link: Link | None) -> str:
    if link is None:
        return "not known or none"
    return f"{link.name}, {link.bandwidth / 1e9:,g} GB/s both directions together, {link.per_direction / 1e9:,g} each"


def _pcie(pcie: Pcie | None) -> str:
    if pcie is None:
        return "not known or none"
    return f"{pcie.generation} x{pcie.lanes}, {pcie.per_direction / 1e9:.1f} GB/s each direction"


def _precision_line(chip: Chip, precision: str) -> str:
    rate = chip.flops_per_cycle.get(precision)
    clock = f"{chip.clock(precision) / 1e6:,.0f}" if rate else "-"
    stated = tera(chip.stated[precision]) if precision in chip.stated else "-"
    return f"{precision:<9} {f'{rate:,}' if rate else '-':>15} {clock:>7} {tera(chip.peak(precision)):>9} {stated:>9}"


def _notes(*notes: str) -> str:
    return "".join(f"note: {note}\n" for note in notes if note)


def _overridden(given: dict[str, float]) -> str:
    if not given:
        return ""
    listed = ", ".join(f"{precision} {tera(flops)}" for precision, flops in given.items())
    return f"{overrides.PEAK} is set: reports take {listed} TFLOP/s for every GPU, whatever stands here"


def _print_table(chips: list[Chip], precisions: list[str]) -> None:
    """Print the table: ruled and bold on a terminal, where a narrow one gets fewer columns; elsewhere plain and complete."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=200, color_system=None)
    complete = console.width >= _COMPLETE_WIDTH
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, show_edge=False, header_style="bold")
    table.add_column("name", no_wrap=complete)
    for heading in ("architecture", "SMs", "tensor MHz", *(p.upper() for p in precisions), "memory, GB", "TDP, W", "confidence"):
        if complete or heading not in _LEFT_OUT_WHEN_NARROW:
            table.add_column(heading, justify="left" if heading in ("architecture", "confidence") else "right", no_wrap=True)
    for member in chips:
        figures = [str(member.sms), f"{member.tensor_clock / 1e6:,.0f}", *(_cell(member, p) for p in precisions)]
        board = [f"{member.memory / 1e9:,.0f}", f"{member.power:,.0f}"]
        table.add_row(member.name, *([member.architecture, *figures, *board] if complete else figures), member.confidence)
    with console.capture() as printed:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def _cell(chip: Chip, precision: str) -> str:
    if precision in chip.precisions:
        return tera(chip.peak(precision))
    return f"{tera(chip.peak('fp16'))}*" if precision == "bf16" and "fp16" in chip.precisions else "-"
