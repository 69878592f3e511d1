"""Whether a table of peaks can be believed: the answer of `ullage audit peaks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.audit.peak_tables import rows
from ullage.audit.peaks import Judgement, judge
from ullage.gpus.precision import canonical
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class PeaksReport(ShownByView, view="ullage.render.peaks"):
    """The judgement of every row, the precision of rows that name none, and notes."""

    rows: tuple[Judgement, ...]
    precision: str
    notes: tuple[str, ...]

    @property
    def wrong(self) -> tuple[Judgement, ...]:
        """The rows that give a wrong peak to a GPU that is known."""
        return tuple(row for row in self.rows if row.wrong)


def audit_peaks(given: Sequence[str], precision: str = "bf16", *, exact: bool = False) -> PeaksReport:
    """Return what is wrong with the peaks of files and of `name=value` arguments.

    `precision` is that of rows that name none; `exact` says that names are compared whole, not searched for in a driver's
    name. Raises UllageError for what can't be read.
    """
    usual = canonical(precision)
    judged = judge(rows(given), usual, exact=exact)
    return PeaksReport(tuple(judged), usual, tuple(_notes(judged, usual)))


def _notes(judged: Sequence[Judgement], precision: str) -> list[str]:
    notes = []
    if any(j.row.precision is None and j.kind not in ("unknown", "fallback") for j in judged):
        notes.append(f"rows that name no precision are taken as dense {precision} (--precision)")
    if any(j.traps for j in judged):
        notes.append("names are taken to be searched for in the driver's name, as most tables are; --exact where they are compared whole")
    unknown = [j.row.name for j in judged if j.kind == "unknown"]
    if unknown:
        rows = "1 row is" if len(unknown) == 1 else f"{len(unknown):,} rows are"
        notes.append(f"{rows} of no GPU that Ullage knows, and not judged; `ullage gpus` lists all")
    for judgement in judged:
        if judgement.traps and any(trap.peak is None for trap in judgement.traps):
            notes.append("a GPU that the table gets by accident and Ullage does not know is listed without a peak")
            break
    return notes
