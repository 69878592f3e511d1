"""What a replay of a run says, and its critical path: as tables, and as plain data for JSON."""

from __future__ import annotations

from msgspec import field

from ullage.reports.trace.what_if import WhatIf
from ullage.views.declared import Document, Nanoseconds, Ratio, filled
from ullage.views.notation import COUNT, FACTOR, KERNEL, PERCENT_1, TIME
from ullage.views.numbers import UNKNOWN, percent
from ullage.views.times import seconds
from ullage.views.view import Column, Paragraph, Part, Table, Value

PAGE = 30  # rows of the critical path on a page
CHANGES = {
    "no_late_ranks": "no rank came late",
    "no_communication": "communication took no time",
    "launches_in_graphs": "launches were in graphs",
}
KINDS = {
    "kernel": "kernel",
    "collective": "collective",
    "copy": "copy",
    "launch": "call that launches",
    "wait": "call that waits, after it",
    "call": "other call",
    "host": "host between calls",
    "talk": "host in communication",
    "latency": "from launch to start",
    "unexplained": "not explained",
}


def what_if(found: WhatIf | None, top: int) -> list[Part]:
    """Return the answers, the critical path by name, and by rank where ranks wait for one another (it may lie on a single one, which
    then is the slow one); nothing where no replay was asked for."""
    if found is None:
        return []
    path, whole = found.path, found.path.time or 1
    columns = [
        Column("change"),
        Column("times as fast", FACTOR),
        Column("at least", FACTOR),
        Column("at most", FACTOR),
        Column("time", TIME),
    ]
    speedups = [[CHANGES[row.change], row.factor, row.low, row.high, row.time.likely] for row in found.speedups]
    by_name: list[list[Value]] = [[row.name or UNKNOWN, KINDS[row.kind], row.count, row.time, row.time / whole] for row in path.rows]
    by_rank: list[list[Value]] = [[row.label, row.time, row.time / whole, row.awaited, row.waited] for row in path.ranks]
    times = [Column("time", TIME), Column("share", PERCENT_1)]
    of_names = [Column("name", KERNEL, room=60), Column("kind"), Column("count", COUNT), *times]
    of_ranks = [Column("rank"), *times, Column("path came to it", COUNT), Column("others waited then", TIME)]
    several = len(by_rank) > 1 or found.collectives
    return [
        Table("what if", columns, speedups, "What if"),
        Paragraph(_replayed(found)),
        *(Paragraph(f"{note[:1].upper()}{note[1:]}.") for note in found.notes),
        Table("critical path", of_names, by_name, "Critical path", brief=top, page=PAGE, elsewhere="--top shows them"),
        *([Table("critical path by rank", of_ranks, by_rank, "Critical path by rank", brief=len(by_rank))] if several else []),
    ]


def _replayed(found: WhatIf) -> str:
    """Return in a sentence what was replayed, and how much of it no wait explains."""
    what = f"{found.operations:,} operations, {found.calls:,} calls, {found.collectives:,} collectives"
    off = f"without delays that no wait explains the replay is off by {percent(found.off, 1)}"
    said = [f"{number:,} {word}" for number, word in ((found.recorded, "recorded"), (found.inferred, "inferred")) if number]
    events = f"; {' and '.join(said)} waits for events" if found.recorded else ""
    inferred = f"; {found.inferred:,} waits for events are inferred" if found.inferred and not found.recorded else ""
    return f"Replayed {what} over {seconds(found.elapsed)}; {off}{events}{inferred}."


class ChangedTimeDocument(Document):
    """How long a run would take with one thing changed."""

    change: str
    least: Nanoseconds = field(name="least_ns")
    likely: Nanoseconds | None = field(name="likely_ns")
    most: Nanoseconds = field(name="most_ns")


class SpeedupDocument(Document):
    """How many times as fast a run were with one thing changed, and the bounds of that (null: not known, without bound)."""

    change: str
    factor: float | None
    low: float
    high: float | None
    time: ChangedTimeDocument


class PathRowDocument(Document):
    """Time on the critical path of one kind and name, in so many pieces."""

    kind: str
    name: str
    count: int
    time: Nanoseconds = field(name="time_ns")


class PathRankDocument(Document):
    """Time on the critical path on one rank, how often it was awaited, and for how long another had waited for it then."""

    label: str
    time: Nanoseconds = field(name="time_ns")
    awaited: int
    waited: Nanoseconds = field(name="waited_ns")


class PathKindDocument(Document):
    """Time on the critical path of one kind."""

    kind: str
    time_ns: Nanoseconds


class CriticalPathDocument(Document):
    """The chain that led to the end of a run: rows, kinds and ranks each add up to its time."""

    time: Nanoseconds = field(name="time_ns")
    rows: list[PathRowDocument]
    ranks: list[PathRankDocument]
    kinds: list[PathKindDocument]


class WhatIfDocument(Document):
    """What a replay of a run says: answers, the critical path, and how much to believe of them."""

    elapsed: Nanoseconds = field(name="elapsed_ns")
    off: Ratio
    operations: int
    calls: int
    collectives: int
    recorded: int
    inferred: int
    alone: int
    speedups: list[SpeedupDocument]
    path: CriticalPathDocument
    notes: list[str]


def declared(found: WhatIf) -> WhatIfDocument:
    """Return the answers and the path as a document."""
    kinds = [PathKindDocument(kind, time) for kind, time in found.path.kinds.items()]
    return filled(WhatIfDocument, found, path=filled(CriticalPathDocument, found.path, kinds=kinds))
