"""What changed from one run to another, factor by factor, and how much of the change in time each factor explains.

A run's devices are held for m × E = ΣK / (product of the factors), so the logarithm of the change is a sum: what the kernels'
own time contributes, and what each factor does. Each gets its part of the change by that sum (the logarithmic mean as scale), so
the parts add up to the change exactly, in whatever order. Hosts likewise: n × E = ΣU / (product of the factors).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ullage.errors import UllageError
from ullage.metrics.tree import Node
from ullage.recording import Mode
from ullage.reports.trace.part import RunPart, same_mode
from ullage.totals import RESOURCES, Resource
from ullage.views.shown import ShownByView

_COUNTS = ("devices", *(many.lower() for many in RESOURCES.values()))
WORK, SPLIT = ("kernel_time", "useful_time"), ("launches", "launch_time")
Trees = tuple[Node | None, Node | None]  # of A and of B


class ComparedRun(Protocol):
    """What is compared: a report on a run."""

    @property
    def mode(self) -> Mode: ...  # noqa: D102
    @property
    def whole(self) -> RunPart: ...  # noqa: D102
    @property
    def regions(self) -> tuple[RunPart, ...]: ...  # noqa: D102
    @property
    def partial(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True)
class BoundedNumber:
    """A number, and the bounds between which it surely lies."""

    value: float
    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether nothing is in doubt."""
        return self.low == self.high


@dataclass(frozen=True)
class ExplainedChange:
    """One row: a quantity in A and in B (None where a run lacks it), and what its change explains.

    `unit` is "1" for efficiencies and "" for counts, "ns" for times. `elapsed` and `resources` are the ns that it adds to
    (or takes from) the elapsed time and the time of all devices or processes; None where a value is not known well enough.
    """

    metric: str
    label: str
    depth: int
    unit: str
    a: BoundedNumber | None
    b: BoundedNumber | None
    elapsed: float | None = None
    resources: float | None = None

    @property
    def ratio(self) -> BoundedNumber | None:
        """B over A, with bounds."""
        if self.a is None or self.b is None or self.a.value <= 0:
            return None
        low = self.b.low / self.a.high if self.a.high > 0 else 0.0
        return BoundedNumber(self.b.value / self.a.value, low, self.b.high / self.a.low if self.a.low > 0 else math.inf)

    @property
    def settled(self) -> bool:
        """Whether it is a fact that the quantity rose, fell or stayed: the bounds of the ratio lie on one side of 1."""
        ratio = self.ratio
        return ratio is not None and (ratio.exact or ratio.low > 1 or ratio.high < 1)


@dataclass(frozen=True)
class ComparedSide:
    """The devices or the hosts of both runs: what they did (work), how many they were, and the factors of their tree.

    `resource` says what the hosts' resources are: processes, threads or CPUs."""

    name: str
    rows: tuple[ExplainedChange, ...]
    a_resources: int | None
    b_resources: int | None
    resource: Resource | None = None


@dataclass(frozen=True)
class ComparedPart:
    """The whole run, or a region of it, in both runs; elapsed times in ns. `cause` explains more of the change in elapsed time
    than any other row."""

    name: str
    a_elapsed: int
    b_elapsed: int
    sides: tuple[ComparedSide, ...]
    cause: ExplainedChange | None

    def find(self, metric: str) -> ExplainedChange | None:
        """Return the row of a metric."""
        return next((row for side in self.sides for row in side.rows if row.metric == metric), None)


@dataclass(frozen=True)
class ChangeReport(ShownByView, view="ullage.render.change"):
    """B against A: the whole first, then the regions that both have, the most changed first.

    `verdict` is that of a gate, where one was asked for; `complete` says whether all of both runs is there.
    """

    a: str
    b: str
    mode: Mode
    parts: tuple[ComparedPart, ...]
    notes: tuple[str, ...] = ()
    verdict: GateVerdict | None = None
    complete: bool = True

    @property
    def whole(self) -> ComparedPart:
        """The comparison of the whole runs."""
        return self.parts[0]


def change(a: ComparedRun, b: ComparedRun, names: tuple[str, str] = ("A", "B")) -> ChangeReport:
    """Return what changed from run A to run B, called `names`. Raises UllageError when the two are in different modes."""
    if a.mode != b.mode or not same_mode((a.whole, b.whole)):
        raise UllageError(f"'{names[0]}' is in {a.mode} mode, '{names[1]}' in {b.mode} mode", "pass one --mode for both")
    theirs = {v.name: v for v in b.regions}
    regions = [_part(mine, theirs[mine.name]) for mine in a.regions if mine.name in theirs]
    ranked = sorted(regions, key=lambda part: -abs(part.b_elapsed - part.a_elapsed))
    return ChangeReport(*names, a.mode, (_part(a.whole, b.whole), *ranked), tuple(_notes(a, b, names)))


@dataclass(frozen=True)
class Check:
    """Whether one metric of B is at least `limit` times A's; `passed` is None when its bounds do not tell, or a run lacks it."""

    metric: str
    label: str
    limit: float
    change: ExplainedChange
    passed: bool | None


@dataclass(frozen=True)
class GateVerdict:
    """The checks of a gate. A gate that cannot tell is not passed: silence is no proof."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check surely passes."""
        return all(check.passed is True for check in self.checks)


SPEED = "speed"  # A's elapsed time over B's
PARALLEL = ("device_parallel_efficiency", "host_parallel_efficiency")


def verdict(report: ChangeReport, fail_under: float | Mapping[str, float] = 0.95, region: str | None = None) -> GateVerdict:
    """Return whether B keeps at least `fail_under` of A's efficiency, in the whole run or a region.

    A number is for the devices' parallel efficiency, or the hosts' where neither run has a device: a host that leaves more to its
    devices has a lower efficiency, and nothing is wrong. A mapping is from metrics to limits, each B over A; `speed` is A's
    elapsed time over B's. With bounds, B's lowest must reach the limit on A's highest to pass, and B's highest miss it on A's
    lowest to fail. Raises UllageError for a metric or a region that the comparison lacks, and for a limit that is not above 0.
    """
    part = next((p for p in report.parts[1:] if p.name == region), None) if region is not None else report.whole
    if part is None:
        raise UllageError(f"no region of both runs is called '{region}'", _listed([p.name for p in report.parts[1:]]))
    known = {row.metric: row for side in part.sides for row in side.rows if row.unit == "1"} | _speed(part)
    if isinstance(fail_under, Mapping):
        limits = dict(fail_under)
    else:
        limits = {metric: fail_under for metric in PARALLEL[: 1 if PARALLEL[0] in known else 2] if metric in known}
        if not limits:
            raise UllageError("there is no efficiency to judge by in these runs", "name a metric: --fail-under speed=0.95")
    for metric, limit in limits.items():
        if metric not in known:
            raise UllageError(f"no metric of this comparison is called '{metric}'", _listed(list(known)))
        if not 0 < limit < math.inf:
            raise UllageError(f"the limit of '{metric}' is {limit:g}", "a limit is B over A: 0.95 allows a loss of 5 %")
    return GateVerdict(tuple(_check(metric, limit, known[metric]) for metric, limit in limits.items()))


def _speed(part: ComparedPart) -> dict[str, ExplainedChange]:
    if not part.a_elapsed or not part.b_elapsed:
        return {}
    fast = part.a_elapsed / part.b_elapsed
    return {SPEED: ExplainedChange(SPEED, "Speed", 0, "1", BoundedNumber(1.0, 1.0, 1.0), BoundedNumber(fast, fast, fast))}


def _check(metric: str, limit: float, row: ExplainedChange) -> Check:
    passed: bool | None = None
    if row.a is not None and row.b is not None:
        if row.b.low >= limit * row.a.high * (1 - 1e-12):  # a limit that is just met is met
            passed = True
        elif row.b.high < limit * row.a.low:
            passed = False
    return Check(metric, row.label, limit, row, passed)


def _listed(names: Sequence[str]) -> str:
    return "known are " + ", ".join(f"'{name}'" for name in names[:20]) if names else "there is none"


def _part(a: RunPart, b: RunPart) -> ComparedPart:
    sides = tuple(side for side in (_devices(a, b), _hosts(a, b)) if side is not None)
    return ComparedPart(a.name, a.elapsed, b.elapsed, sides, _cause(sides, b.elapsed - a.elapsed))


def _cause(sides: Sequence[ComparedSide], grew: int) -> ExplainedChange | None:
    """Return the row without parts that explains most of the change, in its direction: of the devices, without any of the hosts.

    Work is one row: more and shorter kernels for the same work are two large numbers that cancel. Where a row is not known well
    enough to explain anything, another is named only if it explains at least half.
    """
    rows = sides[0].rows if sides else ()
    parts = [row for row in rows if row.metric not in SPLIT and not _has_children(rows, row)]
    moved = [row for row in parts if (row.elapsed or 0) * grew > 0]
    most = max(moved, key=lambda row: abs(row.elapsed or 0), default=None)
    if most is None or all(row.elapsed is not None for row in parts):
        return most
    return most if abs(most.elapsed or 0) * 2 >= abs(grew) else None


def _has_children(rows: Sequence[ExplainedChange], row: ExplainedChange) -> bool:
    place = rows.index(row) + 1
    return row.metric not in WORK and place < len(rows) and rows[place].depth > row.depth


def _devices(a: RunPart, b: RunPart) -> ComparedSide | None:
    if a.device is None and b.device is None:
        return None
    first, second = a.device_totals, b.device_totals
    rows: list[ExplainedChange] = []
    if first is not None and second is not None:
        rows.append(_work("kernel_time", "Kernel work", (a.device, b.device), (first.kernel_time, second.kernel_time)))
        if first.launches and second.launches:
            rows.append(_count("launches", "Launches", 2, first.launches, second.launches))
            rows.append(_each(rows[0], (first.launches, second.launches)))
        rows.append(_count("devices", "Devices", 1, first.devices, second.devices))
    counts = (first.devices if first else None, second.devices if second else None)
    return _side("device", rows, (a.device, b.device), (a.elapsed, b.elapsed), counts)


def _hosts(a: RunPart, b: RunPart) -> ComparedSide | None:
    if a.host is None and b.host is None:
        return None
    first, second = a.host_totals, b.host_totals
    rows: list[ExplainedChange] = []
    if first is not None and second is not None:
        rows.append(_work("useful_time", "Useful work", (a.host, b.host), (first.useful_time, second.useful_time)))
        many = RESOURCES[second.resource]
        rows.append(_count(many.lower(), f"{many[:1].upper()}{many[1:]}", 1, first.processes, second.processes))
    counts = (first.processes if first else None, second.processes if second else None)
    resource = next(totals.resource for totals in (second, first) if totals is not None) if second or first else "process"
    return replace(_side("host", rows, (a.host, b.host), (a.elapsed, b.elapsed), counts), resource=resource)


def _work(metric: str, label: str, roots: Trees, times: tuple[int, int]) -> ExplainedChange:
    """Return the row of the work done; it is as uncertain as the tree's root, of which it is the numerator."""
    return ExplainedChange(metric, label, 1, "ns", _time(roots[0], times[0]), _time(roots[1], times[1]))


def _time(root: Node | None, time: int) -> BoundedNumber:
    if root is None or root.exact or not root.value or root.low is None or root.high is None:
        return BoundedNumber(time, time, time)
    return BoundedNumber(time, time * root.low / root.value, time * root.high / root.value)


def _count(metric: str, label: str, depth: int, a: int, b: int) -> ExplainedChange:
    return ExplainedChange(metric, label, depth, "", BoundedNumber(a, a, a), BoundedNumber(b, b, b))


def _each(work: ExplainedChange, launches: tuple[int, int]) -> ExplainedChange:
    a, b = (
        None if time is None else BoundedNumber(time.value / count, time.low / count, time.high / count)
        for time, count in zip((work.a, work.b), launches, strict=True)
    )
    return ExplainedChange("launch_time", "Time per launch", 2, "ns", a, b)


def _side(
    name: str, work: Sequence[ExplainedChange], trees: Trees, elapsed: tuple[int, int], counts: tuple[int | None, int | None]
) -> ComparedSide:
    """Return the rows of one side: the elapsed time, and below it the work, the resources and the tree, whose parts add up to it."""
    a, b = counts
    held = None if a is None or b is None else (a * elapsed[0], b * elapsed[1])
    first, second = (BoundedNumber(time, time, time) if time else None for time in elapsed)
    known = held is not None and first is not None and second is not None
    head = ExplainedChange("elapsed", "Elapsed time", 0, "ns", first, second)
    if known and held is not None:
        head = replace(head, elapsed=float(elapsed[1] - elapsed[0]), resources=float(held[1] - held[0]))
    rows = [*work, *_tree(trees[0], trees[1], 1)]
    return ComparedSide(name, (head, *(_explained(row, elapsed, held if known else None) for row in rows)), *counts)


def _tree(a: Node | None, b: Node | None, depth: int) -> Iterator[ExplainedChange]:
    here = a or b
    if here is None:
        return
    yield ExplainedChange(here.metric, here.label, depth, "1", _efficiency(a), _efficiency(b))
    below = dict.fromkeys(child.metric for node in (a, b) if node is not None for child in node.children)
    for metric in below:
        yield from _tree(_child(a, metric), _child(b, metric), depth + 1)


def _child(node: Node | None, metric: str) -> Node | None:
    return None if node is None else next((child for child in node.children if child.metric == metric), None)


def _efficiency(node: Node | None) -> BoundedNumber | None:
    if node is None or node.value is None or node.low is None or node.high is None:
        return None
    return BoundedNumber(node.value, node.low, node.high)


def _explained(row: ExplainedChange, elapsed: tuple[int, int], held: tuple[int, int] | None) -> ExplainedChange:
    """Return a row with what it explains of the change in elapsed time, and in the time of all devices or processes.

    More work takes longer; a higher efficiency and more devices take less; the number of devices doesn't change how long all of
    them together are held.
    """
    ratio = row.ratio
    if held is None or ratio is None or ratio.value <= 0 or not row.settled:
        return row
    power = math.log(ratio.value) * (1 if row.unit == "ns" or row.metric == "launches" else -1)
    resources = 0.0 if row.metric in _COUNTS else power * _mean(*held)
    return replace(row, elapsed=power * _mean(*elapsed), resources=resources)


def _mean(a: float, b: float) -> float:
    """Return the logarithmic mean: the change from a to b over the change of its logarithm.

    >>> round(_mean(1, 2.718281828), 6), _mean(3, 3), _mean(0, 3)
    (1.718282, 3, 0.0)
    """
    if a <= 0 or b <= 0:
        return 0.0
    return (b - a) / math.log(b / a) if a != b else a


def _notes(a: ComparedRun, b: ComparedRun, names: tuple[str, str]) -> Iterator[str]:
    for name, one, other in ((names[0], a, b), (names[1], b, a)):
        only = sorted({v.name for v in one.regions} - {v.name for v in other.regions})
        if only:
            more = f" and {len(only) - 3} more" if len(only) > 3 else ""
            yield f"only '{name}' has the region{'s' if len(only) > 1 else ''} {', '.join(only[:3])}{more}"
    for name, one in zip(names, (a, b), strict=True):
        if one.partial:
            yield f"something of '{name}' is missing: its own report says what"
    if not _same_shape(a.whole, b.whole):
        yield "the runs have different numbers of devices or processes: `ullage trace scaling` shows how a program scales"


def _same_shape(a: RunPart, b: RunPart) -> bool:
    devices = [None if v.device_totals is None else v.device_totals.devices for v in (a, b)]
    processes = [None if v.host_totals is None else v.host_totals.processes for v in (a, b)]
    return devices[0] == devices[1] and processes[0] == processes[1]
