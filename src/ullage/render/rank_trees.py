"""A run's ranks while it goes on, as `ullage top --run` shows them: the trees of the last seconds and of the whole, a row a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ullage.errors import harmless
from ullage.live.all_ranks import Together, lateness
from ullage.metrics.tree import Node
from ullage.render.trace_json import TreeBoundsDocument
from ullage.totals import DeviceTotals, HostTotals
from ullage.views.declared import At, Document, Made, Nanoseconds, Ratio, plain_data
from ullage.views.notation import FACTOR, PERCENT_1, TIME
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.shown import ShownByView
from ullage.views.text import NOTE
from ullage.views.times import seconds
from ullage.views.view import Cell, Column, Headline, Section, Table, Value, View

WORTH_A_MARK = 0.01  # of the time looked at: what the latest rank has to be late by to be pointed at
BESIDE_RANKS = 22  # lines of a screen that trees and notes take
_SHARES = ("useful", "offload", "communication", "recorder", "off the CPU", "kernels")


@dataclass(frozen=True)
class WatchedRun(ShownByView, view="ullage.render.rank_trees"):
    """A run's ranks in `place`: of the `whole` time, and of the last seconds (`recent`)."""

    place: str
    whole: Together
    recent: Together

    @property
    def complete(self) -> bool:
        """Whether all ranks were seen."""
        return self.whole.complete


def view(run: WatchedRun, most: int | None = None) -> View:
    """Return the answer as data; of more than `most` ranks a terminal shows those that are latest."""
    tree = run.whole.tree
    return View(
        kind="top-run",
        subject="A run's ranks",
        headline=Headline(_answer(run.whole)),
        basis=[f"{harmless(run.place, NOTE)}; {tree.mode} mode"],
        sections=[Section("trees", "Efficiencies", [_trees(run)]), Section("ranks", "Ranks", [_ranks(run, most)])],
        notes=list(tree.notes),
    )


def fitted_view(run: WatchedRun, width: int, height: int | None) -> View:  # noqa: ARG001 - a describer's `fitted`
    """Return the answer as a terminal of this height shows it."""
    return view(run, None if height is None else max(height - BESIDE_RANKS, 1))


def _answer(found: Together) -> str:
    named = (("device", found.tree.device), ("host", found.tree.host))
    said = [f"{name} parallel efficiency {percent(t.value) if t.certain else UNKNOWN}" for name, t in named if t is not None]
    of = f"{found.seen:,} of {found.expected:,} ranks" if found.expected is not None else f"{found.seen:,} processes"
    over = f"{', '.join(said)} over {seconds(found.tree.elapsed)}" if said else "nothing is known yet"
    return f"{over}: {of}, {'over' if found.over else 'running'}"


def _trees(run: WatchedRun) -> Table:
    """Return the trees of the last seconds and of the whole, side by side."""
    rows: list[list[Value | Cell]] = []
    for title, whole, recent in (
        ("Host", run.whole.tree.host, run.recent.tree.host),
        ("Device", run.whole.tree.device, run.recent.tree.device),
    ):
        lately = {node.metric: node for _, node in recent.walk()} if recent is not None else {}
        for depth, node in whole.walk() if whole is not None else ():
            label = Cell(node.label, "  " * depth + node.label)
            rows.append([title if depth == 0 else "", label, _value(lately.get(node.metric)), _value(node)])
    columns = [
        Column("", key="tree"),
        Column("", key="efficiency"),
        Column(run.recent.tree.name, FACTOR),
        Column("since the start", FACTOR),
    ]
    return Table("trees", columns, rows, brief=len(rows))


def _value(node: Node | None) -> Cell:
    if node is None or node.value is None:
        return Cell(None)
    return Cell(node.value, level=node.value) if node.certain else Cell(node.value, f"{node.low:.2f} to {node.high:.2f}")


def _ranks(run: WatchedRun, most: int | None) -> Table:
    """Return a row for each rank: shares of the run's time, and how late it was, since the start and lately."""
    rows = _rows(run)
    latest = max(rows, key=lambda row: row["lately_late_ns"] or 0, default=None)
    marked = latest if latest and (latest["lately_late_ns"] or 0) > WORTH_A_MARK * run.recent.tree.elapsed else None
    absent = () if any("off" in row for row in rows) else ("off the CPU",)  # told only where it was recorded
    shares = [name for name in _SHARES if name not in absent]
    columns = [Column("rank"), Column("host", room=30), *(Column(name, PERCENT_1) for name in shares), Column("late", TIME)]
    columns += [Column("lately useful", PERCENT_1), Column("lately late", TIME), Column("", key="remark")]
    cells = [_cells(row, shares, "the others wait for it" if row is marked else "") for row in rows]
    by_lateness = sorted(range(len(rows)), key=lambda number: -rows[number]["late_ns"])
    chosen = by_lateness[:most] if most is not None and len(rows) > most else None
    return Table("ranks", columns, cells, brief=len(rows), chosen=chosen, elsewhere="less late")


def _cells(row: dict[str, Any], shares: Sequence[str], mark: str) -> list[Value | Cell]:
    who = f"process {row['process']}" if row["rank"] is None else str(row["rank"])
    times = [row.get("off" if name == "off the CPU" else name) for name in shares]
    return [who, harmless(row["host"], 30), *times, row["late_ns"], row["lately_useful"], row["lately_late_ns"], mark]


def _rows(run: WatchedRun) -> list[dict[str, Any]]:
    lately = {(rank.host, rank.process): (rank, late) for rank, late in zip(run.recent.ranks, lateness(run.recent), strict=True)}
    rows = []
    for rank, late in zip(run.whole.ranks, lateness(run.whole), strict=True):
        recent = lately.get((rank.host, rank.process))
        share, known = rank.share, recent is not None and recent[0].share.times.elapsed > 0
        rows.append(
            {
                "rank": rank.rank,
                "host": rank.host,
                "process": rank.process,
                "over": rank.over,
                "elapsed_ns": share.times.elapsed,
                "useful": _of(share.useful, run.whole),
                "offload": _of(share.offload, run.whole),
                "communication": _of(share.times.communication, run.whole),
                "recorder": _of(share.times.recorder, run.whole),
                **({"off": _of(share.off, run.whole)} if share.factors.off else {}),
                "kernels": None if share.kernels is None else _of(share.kernels, run.whole),
                "late_ns": late,
                "lately_useful": _of(recent[0].share.useful, run.recent) if known and recent is not None else None,
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


def record(run: WatchedRun) -> dict[str, Any]:
    """Return the ranks as plain data: ratios in [0, 1], times in ns, null for not known."""
    return plain_data(TopRunDocument, run, ranks=_rows(run))
