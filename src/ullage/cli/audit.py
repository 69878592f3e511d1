"""`ullage audit`: why a reported MFU and the counters disagree, and whether peaks and FLOP counters can be believed."""

from __future__ import annotations

import click

from ullage.cli._parts import Parts


class Audits(Parts):
    """The audits: each module `_audit_…` of this package is one, with its `command`."""

    called = "audit"


@click.group(
    "audit",
    cls=Audits,
    epilog="""\b
Examples:
  ullage audit mfu --config config.json --reported 54.27 --ofu 25.58 --seq 4096
  ullage audit peaks peaks.py                a framework's table of peaks
  ullage audit counter mytrainer:flops       somebody's FLOPs function over cases with known answers""",
)
def command() -> None:
    """Why a reported MFU and the counters disagree, and whether peaks and FLOP counters can be believed."""
