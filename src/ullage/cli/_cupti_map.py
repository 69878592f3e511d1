"""`ullage cupti map`: what stands today for a metric or event of CUPTI's old interfaces, or of nvprof."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from ullage.cli.options import check_out, give, output_options
from ullage.errors import UllageError, harmless
from ullage.views.files import FORMS

LARGEST = 64 << 20  # bytes of a file of values


@click.command(
    "map",
    epilog="""\b
Examples:
  ullage cupti map gld_efficiency                        the new metric, and what the old one was
  ullage cupti map 'l2_*' --chip B200                    all of L2, and what that chip has of it
  ullage cupti map flop_count_sp --values counters.json  the old figure, from new ones that were collected
  ullage cupti map cf_executed --values smsp__inst_executed_pipe_cbu.sum=3 --values smsp__inst_executed_pipe_adu.sum=4
  ullage cupti map --reverse sm__inst_executed.sum       the old ones that it stands for
  ullage cupti map --all --json                          every row
""",
)
@click.argument("names", nargs=-1, metavar="[NAME|PATTERN]...")
@click.option("--all", "everything", is_flag=True, help="Every old metric and event.")
@click.option("--reverse", metavar="METRIC", help="Look up a new metric: which old ones does it stand for?")
@click.option("--chip", metavar="CHIP", help="Say whether this chip has the new metrics: GH100, or a GPU that has it: H200.")
@click.option("--release", metavar="RELEASE", help="By this CUPTI (13.1); without it the newest that knows the chip.")
@click.option("--passes", is_flag=True, help="Count the passes in which --chip collects them; needs a libcupti.")
@click.option("--cupti", "path", metavar="PATH", help="The libcupti to ask for passes.  [default: the one that is found]")
@click.option("--values", "given", multiple=True, metavar="FILE|METRIC=VALUE", help="What was collected: a JSON object, or one value.")
@output_options
def command(
    names: tuple[str, ...], everything: bool, reverse: str | None, chip: str | None, release: str | None, passes: bool, path: str | None,
    given: tuple[str, ...], as_json: bool, out: Path | None,
) -> None:  # fmt: skip
    """Old CUPTI metrics and events by their new names, or the formula that gives them."""
    check_out(out, FORMS)
    if sum((bool(names), everything, reverse is not None)) != 1:
        raise click.UsageError("name metrics, or --all, or --reverse METRIC")
    if (release or passes) and not chip:
        raise click.UsageError("--release and --passes need --chip")
    from ullage.cupti.counters.catalogue import source
    from ullage.render import old_counters as render
    from ullage.reports.counters import old_counters as reports
    from ullage.reports.counters.counters import chip_code

    chip = chip and chip_code(chip)
    values = _values(given)
    found = [reports.translated(old, chip, release, values) for old in reports.asked(names, reverse)]
    counted = reports.passes(found, chip, source(path)) if passes and chip else None
    answer = {"chip": chip, "release": release, "found": [render.record(each, chip, bool(values)) for each in found]}
    record = {**answer, "passes": counted} if passes else answer
    give(render.view(found, reverse, chip, bool(values), counted), lambda: record, as_json=as_json, out=out)


def _values(given: tuple[str, ...]) -> dict[str, float]:
    """Return the values of new metrics: from JSON files and from METRIC=VALUE; later ones go before earlier ones.

    >>> _values(("sm__cycles_active.sum=1e6",))
    {'sm__cycles_active.sum': 1000000.0}
    """
    values: dict[str, float] = {}
    for text in given:
        name, mark, number = text.partition("=")
        values.update(_file(Path(text)) if not mark or "__" not in name else {name.strip(): _number(number, text)})
    return values


def _file(path: Path) -> dict[str, float]:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UllageError(f"{harmless(str(path))} is larger than any file of counters", "give a JSON object of metrics and numbers")
        found = json.loads(content)
    except OSError as error:
        raise UllageError(f"{harmless(str(path))} can't be read: {error.strerror}", "give a JSON file, or METRIC=VALUE") from error
    except (ValueError, RecursionError) as error:
        raise UllageError(f"{harmless(str(path))} is no JSON: {harmless(str(error))}", "write an object of metrics and numbers") from error
    if not isinstance(found, dict):
        raise UllageError(f"{harmless(str(path))} has no object of metrics and numbers", 'write {"sm__cycles_active.sum": 1000}')
    return {name: _number(value, f"{name} in {path}") for name, value in found.items() if value is not None}


def _number(value: Any, place: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UllageError(f"'{harmless(place, 120)}' is not a number", "leave out what was not collected")
    return number
