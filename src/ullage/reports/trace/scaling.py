"""Efficiencies and scalability over several runs of a program: the tables 1 to 3 of the TALP paper, and POP's scaling below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ullage.errors import UllageError
from ullage.metrics.metric import METRICS
from ullage.metrics.scaling import BYTES_SCALING, DEVICE_SCALING, EFFICIENCY, HOST_SCALING, SPEEDUP, Detected, Kind, detected
from ullage.metrics.tree import Branch, Node, evaluate
from ullage.reports.trace.part import RunPart, same_mode
from ullage.totals import DeviceTotals, HostTotals, Resource
from ullage.views.shown import ShownByView

Named = tuple[str, RunPart]


@dataclass(frozen=True)
class ScalingRun:
    """One run: what it is called, its devices and processes (None where not known; threads or CPUs where these are counted: `host`
    says it), and its elapsed time in ns (0: not known).

    `resources` are its devices; its processes where not every run has devices; None where not every run has either.
    """

    name: str
    devices: int | None
    processes: int | None
    elapsed: int
    resources: int | None
    host: Resource = "process"


@dataclass(frozen=True)
class ScalingRow:
    """One metric over the runs, at its depth in a tree; a run that doesn't have it has None."""

    metric: str
    label: str
    depth: int
    nodes: tuple[Node | None, ...]

    @property
    def values(self) -> tuple[float | None, ...]:
        """The values that may be stated."""
        return tuple(node.value if node is not None and node.certain else None for node in self.nodes)


@dataclass(frozen=True)
class TreeRows:
    """Rows of trees that belong together; parents first, so that a row's children follow it one deeper."""

    name: str
    label: str
    rows: tuple[ScalingRow, ...]


@dataclass(frozen=True)
class Fall:
    """The factor that loses most from the reference to the largest run, and the efficiency (`root`) that it is a factor of."""

    root: ScalingRow
    factor: ScalingRow


@dataclass(frozen=True)
class ScalingReport(ShownByView, view="ullage.render.scaling"):
    """Runs in the order of their resources; `reference` is the column that the scalings are relative to.

    `kind` is None where it does not matter: a single run, or runs whose totals are not known. `told` says how it was found out,
    None when it was stated. `complete` says whether all of each run is there.
    """

    columns: tuple[ScalingRun, ...]
    unit: str
    reference: int
    kind: Kind | None
    told: Detected | None
    blocks: tuple[TreeRows, ...]
    fall: Fall | None
    notes: tuple[str, ...]
    complete: bool = True


def scaling(
    views: Sequence[Named], *, reference: str | None = None, kind: Kind | None = None, unit: str = "run", notes: Sequence[str] = ()
) -> ScalingReport:
    """Return runs beside each other, from the smallest to the largest; `unit` says what their names are ("nodes").

    The reference is the smallest run unless named. Whether the work grows with the resources (weak scaling) is told from
    instructions, kernel time or useful time unless `kind` states it. Raises UllageError without runs, for a reference that is
    no run's name, and for runs of which some count collectives as useful work and others don't.
    """
    runs = _ordered(views)
    if not same_mode(v for _, v in runs):
        raise UllageError(
            "some of the runs count collectives as useful work (talp mode), others do not (ai mode)", "pass one --mode for all"
        )
    base = _reference(runs, reference)
    columns = _columns(runs)
    told = None if kind is not None else _detected([v for _, v in runs], columns, base)
    chosen = kind or (told.kind if told is not None else None)
    blocks = tuple(_blocks([v for _, v in runs], columns, base, chosen or "strong"))
    return ScalingReport(columns, unit, base, chosen, told, blocks, _fall(blocks, base), (*notes, *_notes(columns, told, base)))


def _ordered(views: Sequence[Named]) -> list[Named]:
    if not views:
        raise UllageError("there is no run to compare", "name at least two: ullage trace scaling RUN RUN…")
    if all(_count(v.device_totals) or _count(v.host_totals) for _, v in views):
        return sorted(views, key=lambda named: (_count(named[1].device_totals), _count(named[1].host_totals)))
    return list(views)


def _count(totals: HostTotals | DeviceTotals | None) -> int:
    if totals is None:
        return 0
    return totals.devices if isinstance(totals, DeviceTotals) else totals.processes


def _reference(runs: Sequence[Named], name: str | None) -> int:
    if name is None:
        return 0
    found = [number for number, (own, _) in enumerate(runs) if own == name]
    if len(found) != 1:
        what = "no run is" if not found else f"{len(found)} runs are"
        raise UllageError(f"{what} called '{name}'", "the runs are " + ", ".join(f"'{own}'" for own, _ in runs))
    return found[0]


def _columns(runs: Sequence[Named]) -> tuple[ScalingRun, ...]:
    counts = [(_count(v.device_totals), _count(v.host_totals)) for _, v in runs]
    by = next((place for place in (0, 1) if all(count[place] for count in counts)), None)
    return tuple(
        ScalingRun(name, devices or None, processes or None, v.elapsed, None if by is None else (devices, processes)[by], _host(v))
        for (name, v), (devices, processes) in zip(runs, counts, strict=True)
    )


def _host(found: RunPart) -> Resource:
    return "process" if found.host_totals is None else found.host_totals.resource


def _detected(views: Sequence[RunPart], columns: Sequence[ScalingRun], base: int) -> Detected | None:
    """Return whether the work grows with the resources; None where there is nothing to tell apart."""
    resources = [column.resources for column in columns]
    counts = [count for count in resources if count]
    if len(counts) < len(resources) or len(set(counts)) < 2:
        return None
    hosts, devices = [v.host_totals for v in views], [v.device_totals for v in views]
    work: dict[str, list[float | None]] = {
        "instructions": [None if t is None else t.instructions for t in hosts],
        "kernel_time": [None if t is None else t.kernel_time for t in devices],
        "launches": [None if t is None else t.launches for t in devices],
    }
    if not any(devices):
        work["useful_time"] = [None if t is None else t.useful_time for t in hosts]
    return detected(counts, work, base)


def _blocks(views: Sequence[RunPart], columns: Sequence[ScalingRun], base: int, kind: Kind) -> Iterator[TreeRows]:
    """Yield the trees of hosts and devices, then how both scale; blocks without any value are left out."""
    yield from _block("host", "Host", [[v.host for v in views]])
    yield from _block("device", "Device", [[v.device for v in views]])
    if len(views) < 2:
        return
    yield from _block("host_scaling", "Host scaling", [_scaled(HOST_SCALING, [_known(v.host_totals, v.host) for v in views], base, kind)])
    devices = [_known(v.device_totals, v.device) for v in views]
    trees = [_scaled(branch, devices, base, kind) for branch in (DEVICE_SCALING, BYTES_SCALING)]
    yield from _block("device_scaling", "Device scaling", trees)
    yield from _block("time", "Time", [_speeds(branch, columns, base, kind) for branch in (SPEEDUP, EFFICIENCY)])


Sums = dict[str, float] | None


def _known(totals: HostTotals | DeviceTotals | None, tree: Node | None) -> Sums:
    """Return a run's sums with its resources' count, None where they are too uncertain to be compared."""
    if totals is None or tree is None or not tree.certain:
        return None
    return totals.sums() | {"resources": _count(totals)}


def _scaled(branch: Branch, runs: Sequence[Sums], base: int, kind: Kind) -> list[Node | None]:
    """Return a scaling tree of each run, None where the run or the reference lacks a sum."""
    first = runs[base]
    if first is None or not first["resources"]:
        return [None] * len(runs)
    before = {f"reference_{name}": value for name, value in first.items()}
    trees: list[Node | None] = []
    for sums in runs:
        growth = sums["resources"] / first["resources"] if sums is not None and kind == "weak" else 1.0
        trees.append(None if sums is None else _evaluated(branch, sums | before | {"work_growth": growth}))
    return trees


def _evaluated(branch: Branch, sums: dict[str, float]) -> Node | None:
    known = all(name in sums for name in METRICS[branch.metric].parameters)
    return evaluate(branch, sums) if known else None


def _speeds(branch: Branch, columns: Sequence[ScalingRun], base: int, kind: Kind) -> list[Node | None]:
    first, least = columns[base].elapsed, columns[base].resources
    trees: list[Node | None] = []
    for column in columns:
        growth = column.resources / least if column.resources and least else None
        sums: dict[str, float] = {"reference_elapsed": first, "elapsed": column.elapsed}
        if growth is not None:
            sums |= {"resource_growth": growth, "work_growth": growth if kind == "weak" else 1.0}
        trees.append(_evaluated(branch, sums) if first and column.elapsed else None)
    return trees


def _block(name: str, label: str, trees: Sequence[Sequence[Node | None]]) -> Iterator[TreeRows]:
    rows = [row for nodes in trees for row in _rows(nodes, 0) if any(node is not None and node.value is not None for node in row.nodes)]
    if rows:
        yield TreeRows(name, label, tuple(rows))


def _rows(nodes: Sequence[Node | None], depth: int) -> Iterator[ScalingRow]:
    """Yield the rows of trees laid side by side; a branch that some runs lack is None there."""
    here = next((node for node in nodes if node is not None), None)
    if here is None:
        return
    yield ScalingRow(here.metric, here.label, depth, tuple(nodes))
    for metric in _order(nodes):
        below = [next((c for c in node.children if c.metric == metric), None) if node is not None else None for node in nodes]
        yield from _rows(below, depth + 1)


def _order(nodes: Sequence[Node | None]) -> list[str]:
    return list(dict.fromkeys(child.metric for node in nodes if node is not None for child in node.children))


def _fall(blocks: Sequence[TreeRows], base: int) -> Fall | None:
    """Return what falls most, of the devices if there are any, else of the hosts: a factor of the tree, or the scaling of the work."""
    by_name = {block.name: block for block in blocks}
    side = next((name for name in ("device", "host") if name in by_name), None)
    if side is None or base == len(by_name[side].rows[0].nodes) - 1:
        return None
    root, *rows = by_name[side].rows
    factors = [row for row, after in zip((root, *rows), (*rows, None), strict=True) if after is None or after.depth <= row.depth]
    scaled = by_name.get(f"{side}_scaling")
    if scaled is not None:  # global efficiency is the product of the tree's factors and this one
        root = scaled.rows[0]
        factors += [row for row in scaled.rows if row.metric in ("kernel_time_scaling", "computation_scalability")]
    falls = [(last / first, row) for row in factors if (first := row.values[base]) and (last := row.values[-1]) is not None]
    if not falls or root.values[-1] is None or root.values[base] is None:
        return None
    worst, row = min(falls, key=lambda fall: fall[0])
    return Fall(root, row) if worst < 1 else None


BASES = {
    "instructions": "instructions grow",
    "kernel_time": "kernel time grows",
    "launches": "kernel launches grow",
    "useful_time": "useful time grows",
}


def _notes(columns: Sequence[ScalingRun], told: Detected | None, base: int) -> Iterator[str]:
    if len(columns) == 1:
        yield "one run has nothing to scale against"
    elif len({c.resources for c in columns}) == 1 and columns[0].resources:
        yield "all runs have the same resources, and are taken to do the same work"
    elif told is not None and not told.basis:
        yield "nothing tells strong from weak scaling here; taken as strong; --weak says otherwise"
    elif told is not None and told.exponent is not None:
        doubt = "" if told.sure else ", which is neither clearly; --strong or --weak states it"
        of = columns[base].name
        yield f"taken as {told.kind} scaling: {BASES[told.basis]} like resources to the power {told.exponent:.2f} from '{of}' on{doubt}"
