"""A run's ranks while it goes on, as `ullage top --run` shows them: the trees of the last seconds and of the whole, a row a rank."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ullage.errors import harmless
from ullage.live.all_ranks import Together, lateness
from ullage.metrics.tree import Node
from ullage.render.trace_json import TreeBoundsDocument
from ullage.totals import DeviceTotals, HostTotals
from ullage.views.declared import At, Document, Made, Nanoseconds, Ratio, plain_data
from ullage.views.numbers import UNKNOWN, factor, percent
from ullage.views.table import table
from ullage.views.times import seconds

WORTH_A_MARK = 0.01  # of the time looked at: what the latest rank has to be late by to be pointed at
_SHARES = ("useful", "offload", "communication", "recorder", "off the CPU", "kernels")
_HEAD = ("rank", "host", *_SHARES, "late", "lately useful", "lately late", "")


@dataclass(frozen=True)
class RankTreesView:
    """A run's ranks in `place`: of the `whole` time, and of the last seconds (`recent`)."""

    place: str
    whole: Together
    recent: Together


def text(view: RankTreesView, width: int, most: int | None = None) -> str:
    """Return the view as text, the answer first; of more than `most` ranks those that are latest."""
    notes = "\n".join(textwrap.fill(f"note: {note}", width, subsequent_indent="  ") for note in view.whole.tree.notes)
    parts = [f"{_answer(view)}\n{harmless(view.place, width)}; {view.whole.tree.mode} mode", _trees(view), _ranks(view, most), notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def _answer(view: RankTreesView) -> str:
    found = view.whole
    named = (("device", found.tree.device), ("host", found.tree.host))
    said = [f"{name} parallel efficiency {percent(t.value) if t.certain else UNKNOWN}" for name, t in named if t is not None]
    of = f"{found.seen:,} of {found.expected:,} ranks" if found.expected is not None else f"{found.seen:,} processes"
    over = f"{', '.join(said)} over {seconds(found.tree.elapsed)}" if said else "nothing is known yet"
    return f"{over}: {of}, {'over' if found.over else 'running'}"


def _trees(view: RankTreesView) -> str:
    """Return the trees of the last seconds and of the whole, side by side."""
    rows = []
    for title, whole, recent in (
        ("Host", view.whole.tree.host, view.recent.tree.host),
        ("Device", view.whole.tree.device, view.recent.tree.device),
    ):
        lately = {node.metric: node for _, node in recent.walk()} if recent is not None else {}
        for depth, node in whole.walk() if whole is not None else ():
            rows.append((title if depth == 0 else "", "  " * depth + node.label, _value(lately.get(node.metric)), _value(node)))
    return table(("", "", view.recent.tree.name, "since the start"), rows, left=2) if rows else ""


def _value(node: Node | None) -> str:
    if node is None or node.value is None:
        return UNKNOWN
    return factor(node.value) if node.certain else f"{node.low:.2f} to {node.high:.2f}"


def _ranks(view: RankTreesView, most: int | None) -> str:
    """Return a row for each rank: shares of the run's time, and how late it was, since the start and lately."""
    rows = _rows(view)
    if not rows:
        return ""
    shown = sorted(rows, key=lambda row: -row["late_ns"])[:most] if most is not None and len(rows) > most else rows
    latest = max(rows, key=lambda row: row["lately_late_ns"] or 0)
    marked = latest if (latest["lately_late_ns"] or 0) > WORTH_A_MARK * view.recent.tree.elapsed else None
    cells = [_cells(row, "the others wait for it" if row is marked else "") for row in shown]
    absent = _HEAD.index("off the CPU")  # told only where it was recorded
    told = any("off" in row for row in rows)
    head, cells = (_HEAD, cells) if told else (_without(_HEAD, absent), [_without(row, absent) for row in cells])
    more = f"\nand {len(rows) - len(shown):,} more ranks, less late" if len(rows) > len(shown) else ""
    return table(head, cells, left=2) + more


def _without(row: tuple[str, ...], place: int) -> tuple[str, ...]:
    return (*row[:place], *row[place + 1 :])


def _cells(row: dict[str, Any], mark: str) -> tuple[str, ...]:
    shares = (percent(row.get(name), 1) for name in ("useful", "offload", "communication", "recorder", "off", "kernels"))
    who = f"process {row['process']}" if row["rank"] is None else str(row["rank"])
    lately = (UNKNOWN, UNKNOWN) if row["lately_late_ns"] is None else (percent(row["lately_useful"], 1), seconds(row["lately_late_ns"]))
    return (who, harmless(row["host"], 30), *shares, seconds(row["late_ns"]), *lately, mark)


def _rows(view: RankTreesView) -> list[dict[str, Any]]:
    lately = {(rank.host, rank.process): (rank, late) for rank, late in zip(view.recent.ranks, lateness(view.recent), strict=True)}
    rows = []
    for rank, late in zip(view.whole.ranks, lateness(view.whole), strict=True):
        recent = lately.get((rank.host, rank.process))
        share, known = rank.share, recent is not None and recent[0].share.times.elapsed > 0
        rows.append(
            {
                "rank": rank.rank,
                "host": rank.host,
                "process": rank.process,
                "over": rank.over,
                "elapsed_ns": share.times.elapsed,
                "useful": _of(share.useful, view.whole),
                "offload": _of(share.offload, view.whole),
                "communication": _of(share.times.communication, view.whole),
                "recorder": _of(share.times.recorder, view.whole),
                **({"off": _of(share.off, view.whole)} if share.factors.off else {}),
                "kernels": None if share.kernels is None else _of(share.kernels, view.whole),
                "late_ns": late,
                "lately_useful": _of(recent[0].share.useful, view.recent) if known and recent is not None else None,
                "lately_late_ns": recent[1] if known and recent is not None else None,
            }
        )
    return rows


def _of(time: float, found: Together) -> float | None:
    return time / found.tree.elapsed if found.tree.elapsed else None


class ProcessTreeDocument(Document):
    """What `tree().json()` returns in Python: a process or a region of it; efficiencies by their metrics' names, times in ns."""

    name: str
    mode: str
    elapsed_ns: Nanoseconds
    host: dict[str, Ratio | None] | None
    device: dict[str, Ratio | None] | None
    bounds: TreeBoundsDocument
    host_totals: HostTotals | None
    device_totals: DeviceTotals | None
    notes: list[str]


class RankDocument(Document, kw_only=True):
    """A rank: shares of the run's elapsed time, and how late it was, since the start and lately; `off` (the CPU) where it was recorded."""

    rank: int | None
    host: str
    process: int
    over: bool
    elapsed_ns: Nanoseconds
    useful: Ratio | None
    offload: Ratio | None
    communication: Ratio | None
    recorder: Ratio | None
    off: Ratio | UnsetType | None = UNSET
    kernels: Ratio | None
    late_ns: float
    lately_useful: Ratio | None
    lately_late_ns: float | None


class TopRunDocument(Document):
    """The answer of `ullage top --run`: the trees of the last seconds and of the whole, and the ranks."""

    place: str
    over: Annotated[bool, At("whole.over")]
    complete: Annotated[bool, At("whole.complete")]
    window_ns: Annotated[list[Nanoseconds] | None, At("whole.window")]
    ranks_seen: Annotated[int, At("whole.seen")]
    ranks_expected: Annotated[int | None, At("whole.expected")]
    whole: Annotated[ProcessTreeDocument, Made(_tree_record)]
    recent: Annotated[ProcessTreeDocument, Made(_tree_record)]
    ranks: list[RankDocument]
    notes: Annotated[list[str], At("whole.tree.notes")]


def _tree_record(found: Together) -> dict[str, Any]:
    return found.tree.as_data()


def as_data(view: RankTreesView) -> dict[str, Any]:
    """Return the view as plain data: ratios in [0, 1], times in ns, null for not known."""
    return plain_data(TopRunDocument, view, ranks=_rows(view))
