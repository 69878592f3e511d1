"""The tables of efficiencies: trees, the factors of each part of a run, and what processes and devices spent their time on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.metrics.tree import Node
from ullage.recording import Mode
from ullage.render.svg.tree import bounds
from ullage.reports.trace.lane_shares import device_shares, host_shares
from ullage.reports.trace.part import RunPart
from ullage.views.notation import BAR, COUNT, FACTOR, PERCENT_1, TIME
from ullage.views.numbers import factor
from ullage.views.view import Cell, Column, Table, Value

LANES, PARTS = 200, 40  # processes or devices, and parts of a run, that a page shows
BRIEF_LANES = 16  # and a terminal


def between(node: Node) -> str:
    """Return between what an efficiency lies; "" when that is the value itself, to the digits shown.

    >>> between(Node("a", "A", 0.5, 0.4, 0.62)), between(Node("a", "A", 0.5, 0.499, 0.501))
    ('40–62 %', '')
    """
    return "" if node.low is None or node.high is None or node.high - node.low < 0.005 else bounds(node)


def trees_table(trees: Sequence[tuple[str, Node]]) -> Table:
    """Return trees under their titles, a row a node, with a bar for the eye and what is in doubt."""
    columns = [Column("", key="tree"), Column("", key="efficiency"), Column("", FACTOR, key="value"), Column("", BAR), Column("")]
    rows = [_node(title, depth, node) for title, tree in trees for depth, node in tree.walk()]
    low_high = [Column("low", FACTOR, detail=True), Column("high", FACTOR, detail=True)]
    return Table("efficiencies", [*columns, *low_high], rows, brief=len(rows), drawn=True, grid=1)


def _node(title: str, depth: int, node: Node) -> list[Value | Cell]:
    label = Cell(node.label, depth=depth)
    if node.value is None:
        shown = [Cell(None), Cell(None, " ")]
    elif not node.certain:
        shown = [Cell(node.value, "?"), Cell(node.value, "cannot tell")]
    else:
        shown = [Cell(node.value, level=node.value)] * 2
    return [title, label, *shown, between(node), node.low, node.high]


# In a table of parts of a run: the efficiencies that it may have, in the words of its heading.
_FACTORS = {
    "host_parallel_efficiency": "host",
    "mpi_parallel_efficiency": "MPI",
    "hybrid_mpi_parallel_efficiency": "MPI",
    "openmp_parallel_efficiency": "OpenMP",
    "on_cpu_efficiency": "on CPU",
    "device_offload_efficiency": "offload",
    "device_parallel_efficiency": "device",
    "device_load_balance": "balance",
    "device_communication_efficiency": "communication",
    "orchestration_efficiency": "orchestration",
}


def efficiencies(by: str, found: Sequence[RunPart], top: int, *, detail: bool = False) -> Table:
    """Return a row of efficiencies for each rank, device, region or step."""
    present = {node.metric for part in found for tree in (part.host, part.device) if tree is not None for _, node in tree.walk()}
    metrics = [metric for metric in _FACTORS if metric in present]
    columns = [Column(by), Column("elapsed", TIME), *(Column(_FACTORS[metric], FACTOR) for metric in metrics)]
    rows: list[list[Value | Cell]] = [[part.name, part.elapsed, *(_factor(part, metric) for metric in metrics)] for part in found]
    return Table(
        f"by {by}", columns, rows, f"Efficiencies by {by}", brief=top, page=PARTS, elsewhere="--top shows them", detail=detail,
        note=_products(found[0], metrics),
    )  # fmt: skip


def _factor(part: RunPart, metric: str) -> Cell:
    node = next((node for tree in (part.host, part.device) if tree is not None and (node := tree.find(metric)) is not None), None)
    if node is None or node.value is None:
        return Cell(None)
    return Cell(node.value, level=node.value) if node.certain else Cell(node.value, f"{factor(node.low)}–{factor(node.high)}", "doubt")


def _products(part: RunPart, metrics: Sequence[str]) -> str:
    """Return which columns are the products of which."""
    trees = [tree for tree in (part.host, part.device) if tree is not None and tree.metric in metrics]
    parts = [(_FACTORS[tree.metric], [*_below(tree, metrics)]) for tree in trees]
    said = [f"{whole} = {' × '.join(factors)}" for whole, factors in parts if factors and "" not in factors]
    return f"{'; '.join(said)}." if said else ""


def _below(node: Node, metrics: Sequence[str]) -> Iterator[str]:
    """Yield the columns whose product a node is; "" for a factor that none of them has."""
    for child in node.children:
        if child.metric in metrics:
            yield _FACTORS[child.metric]
        elif child.children:
            yield from _below(child, metrics)
        else:
            yield ""


def processes(whole: RunPart, *, detail: bool) -> Table:
    """Return each process' times as shares of the run's elapsed time; what threads lose only where there are threads that do."""
    parts = whole.host_parts
    states = {name: name for name in ("useful", "offload", "communication")}
    states |= {"off": "off the CPU"} if any(part.process.off_known for part in parts) else {}
    states |= {"parallel": "waiting threads"} if any(part.parallel for part in parts) else {}
    states |= {"recorder": "the recorder"} if any(part.recorder for part in parts) else {}
    columns = [Column("process", room=40), Column("host", room=20, detail=True), Column("its own time", TIME, detail=True)]
    rows: list[list[Value | Cell]] = []
    for part in parts:
        shares = host_shares(part, whole.elapsed)
        rows.append([part.process.label, part.process.host, part.elapsed, *(shares.get(name) for name in states)])
    return _lanes("processes", "rank", "Processes: shares of the run's time", [*columns, *_shares(states)], rows, detail)


def devices(whole: RunPart, mode: Mode, *, detail: bool) -> Table:
    """Return each device's times as shares of the run's elapsed time."""
    parts = whole.device_parts
    states = {"kernel": "kernels", "collective": "collectives", "memory": "memory", "idle": "idle"}
    states |= {"unknown": "of it unknown"} if any(part.unknown for part in parts) else {}
    rows: list[list[Value | Cell]] = []
    for number, part in enumerate(parts):
        shares = device_shares(part, whole.elapsed, mode)
        name = f"GPU {number} {part.device.name}".strip()
        rows.append([name, *(shares.get(state) for state in states), part.device.launches])
    columns = [Column("device", room=40), *_shares(states), Column("launches", COUNT)]
    return _lanes("devices", "device", "Devices: shares of the run's time", columns, rows, detail)


def _shares(states: dict[str, str]) -> list[Column]:
    return [Column(head, PERCENT_1) for head in states.values()]


def _lanes(name: str, by: str, title: str, columns: Sequence[Column], rows: Sequence[Sequence[Value | Cell]], detail: bool) -> Table:
    return Table(
        name, columns, rows, title, brief=BRIEF_LANES, page=LANES, elsewhere=f"--by {by} shows them", detail=detail
    )  # fmt: skip
