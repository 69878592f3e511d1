"""`ullage cupti diff`: which counter metrics came and went, from a release of CUPTI to another, or from a chip to another."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import click

from ullage.cli.options import check_out, give, output_options
from ullage.views.files import FORMS

SHOWN = 20  # names of a list that a person gets without --all


@click.command(
    "diff",
    epilog="""\b
Examples:
  ullage cupti diff GH100 12.0 13.5                      one chip, two releases
  ullage cupti diff H200 B200                            two chips, each by the newest release that knows it
  ullage cupti diff GH100 GB100 13.1 --match '*tensor*'  two chips in one release, only what concerns tensor cores
  ullage cupti diff GV100 12.9 GR100 13.5 --json         anything with anything
""",
)
@click.argument("what", nargs=-1, required=True, metavar="CHIP [RELEASE] [CHIP] [RELEASE]")
@click.option("--match", "pattern", metavar="PATTERN", help="Only metrics whose name has this in it; * and ? stand for anything.")
@click.option("--all", "everything", is_flag=True, help=f"List all names, not the first {SHOWN} of each kind.")
@output_options
def command(what: tuple[str, ...], pattern: str | None, everything: bool, as_json: bool, out: Path | None) -> None:
    """What came, went, was renamed or changed its unit, by the dictionary that comes with Ullage.

    CHIP is CUPTI's name (GH100) or a GPU's (H200).
    """
    from ullage.cupti.metric_names import changes, dictionary
    from ullage.render import counter_changes as render

    check_out(out, FORMS)
    before, after = ((chip, release or dictionary.releases(chip)[-1]) for chip, release in _sides(what))
    found = changes.between(dictionary.metrics(*before), dictionary.metrics(*after))
    if pattern is not None:
        found = changes.matching(found, re.compile(fnmatch.translate(f"*{pattern}*"), re.IGNORECASE))
    view = render.view(before, after, found, pattern, 0 if everything else SHOWN)
    give(view, lambda: render.record(before, after, found, pattern), as_json=as_json, out=out)


def _sides(what: tuple[str, ...]) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """Return the two sides: chips in the order given, releases after them or shared.

    >>> _sides(("gh100", "12.0", "13.5")), _sides(("H200", "GB100", "13.1"))
    ((('GH100', '12.0'), ('GH100', '13.5')), (('GH100', '13.1'), ('GB100', '13.1')))
    """
    from ullage.reports.counters.counters import chip_code

    releases = [word for word in what if re.fullmatch(r"\d+\.\d+", word)]
    chips = [chip_code(word) for word in what if word not in releases]
    if (len(chips), len(releases)) not in ((1, 2), (2, 0), (2, 1), (2, 2)):
        raise click.UsageError("name a chip and two releases, or two chips")
    if len(releases) < 2:
        releases = [*releases, *releases]
    return (chips[0], releases[0] if releases else None), (chips[-1], releases[-1] if releases else None)
