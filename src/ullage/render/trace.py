"""The trees of a run as text, in the form of the TALP paper's figures: the answer first, then trees, then what explains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ullage.errors import harmless
from ullage.metrics.instructions import host_instructions
from ullage.metrics.losses import Bill
from ullage.metrics.tree import Node
from ullage.render import trace_code as code
from ullage.render import trace_links as links
from ullage.render import trace_sequences as sequences
from ullage.render import trace_what_if as what_if
from ullage.render.trace_parts import SMALL, causes, collectives, families, gaps, gemms, lanes, names, nccl, restatement, views
from ullage.reports.trace import TraceReport
from ullage.reports.view import View
from ullage.totals import RESOURCES, HostTotals
from ullage.views.numbers import UNKNOWN, factor, money, percent
from ullage.views.table import table
from ullage.views.times import seconds

Paint = Callable[[str, float | None], str]  # a cell and the efficiency it shows, to the cell in colour
SHOWN = 12  # rows of a table before "… n more"


def plain(cell: str, value: float | None) -> str:  # noqa: ARG001 - another painter looks at it
    """Return a cell without colour."""
    return cell


def text(report: TraceReport, *, by: str | None = None, top: int = SHOWN, paint: Paint = plain) -> str:
    """Return the report as text; `by` adds a table of ranks, devices, regions or steps."""
    chosen = {"rank": report.ranks, "device": report.devices, "region": report.regions, "step": report.steps}
    parts = [
        headline(report),
        trees(report.whole, paint),
        instructions_line(report.whole),
        *_bills(report),
        what_if.text(report, top=top),
        causes(report),
        gaps(report, top=5),
        code.text(report, top=max(top // 2, 1)),
        collectives(report),
        nccl(report),
        sequences.text(report, top=top),
        links.text(report, top=top),
        families(report, top=top),
        gemms(report),
        names(report, top=6),
        lanes(report) if by is None else "",
        restatement(report),
        views(by or "region", chosen[by or "region"], top, by is None),
        "\n".join(f"note: {harmless(note, 1000)}" for note in report.notes),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def headline(report: TraceReport) -> str:
    """Return the answer in a line or two: the efficiencies, of what, over what."""
    whole = report.whole
    said = [f"{name} parallel efficiency {_stated(tree)}" for name, tree in (("device", whole.device), ("host", whole.host)) if tree]
    of = f" of region '{harmless(report.region, 60)}'" if report.region else ""
    count = [hosts(whole.host_totals, len(whole.host_parts))] if whole.host_totals else []
    count += [_count(whole.device_totals.devices, "device", "devices")] if whole.device_totals else []
    partial = "; partial" if report.partial else ""
    window = f", window {report.window}" if report.run is not None else ""
    answer = ", ".join(said) or "no efficiency can be computed"
    return (
        f"{answer}{of} over {elapsed(report)}: {', '.join(count)}\n"
        f"{_places(report.places)} ({report.source}); {report.mode} mode{window}{partial}"
    )


def elapsed(report: TraceReport) -> str:
    """Return how long a run was looked at, and of how long a time that is all that is known of all ranks."""
    said = seconds(report.whole.elapsed)
    if report.recorded is None or report.run is None:
        return said
    if report.run.common is None:
        return f"{said} (ranks were recorded for unequal times)"
    return f"{said} in which all ranks were recorded (of {seconds(report.recorded)} in which any was)"


def hosts(totals: HostTotals, processes: int) -> str:
    """Return what the hosts' time is of: processes; their threads, or CPUs, where these are counted.

    >>> hosts(HostTotals(8, 10, 60, 0, 8, resource="thread"), 1), hosts(HostTotals(2, 10, 15, 0, 8), 2)
    ('8 threads of 1 process', '2 processes')
    """
    said = _count(totals.processes, totals.resource, RESOURCES[totals.resource])
    return f"{said} of {_count(processes, 'process', 'processes')}" if totals.resource == "thread" else said


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _places(places: Sequence[str]) -> str:
    shown = harmless(places[0], 100)
    return shown if len(places) == 1 else f"{shown} and {len(places) - 1:,} more"


def _stated(node: Node) -> str:
    if node.value is None:
        return UNKNOWN
    return percent(node.value) if node.certain else f"unknown ({bounds(node)})"


def bounds(node: Node) -> str:
    """Return an efficiency's bounds as percent; empty when they are the value itself, to the digits shown.

    >>> bounds(Node("a", "A", 0.5, 0.4, 0.62)), bounds(Node("a", "A", 0.5, 0.499, 0.501))
    ('40 % to 62 %', '')
    """
    if node.low is None or node.high is None or node.high - node.low < 0.005:
        return ""
    return f"{percent(node.low)} to {percent(node.high)}"


def trees(view: View, paint: Paint = plain) -> str:
    """Return the host's and the device's tree, a line a node, with a bar for the eye."""
    return drawn([(title, tree) for title, tree in (("Host", view.host), ("Device", view.device)) if tree is not None], paint)


def instructions_line(view: View) -> str:
    """Return in a line what the hosts' processors made of useful time; "" where nobody counted."""
    found = host_instructions(view.host_totals)
    if found is None:
        return ""
    return f"useful time of the hosts: {found.instructions:,.4g} instructions, {found.per_cycle:.3g} a cycle, {found.clock / 1e9:.3g} GHz"


def drawn(titled: Sequence[tuple[str, Node]], paint: Paint = plain) -> str:
    """Return trees under their titles, a line a node."""
    rows: list[tuple[str, str, Node]] = []
    for title, tree in titled:
        rows += [(title if number == 0 else "", branch + node.label, node) for number, (branch, node) in enumerate(_branches(tree))]
    wide = max((len(label) for _, label, _ in rows), default=0)
    return "\n".join(f"{title:8}{label.ljust(wide)}  {_value(node, paint)}".rstrip() for title, label, node in rows)


def _value(node: Node, paint: Paint) -> str:
    if node.value is None:
        return UNKNOWN
    if not node.certain:
        return f"   ?  cannot tell: {bounds(node)}"
    return paint(f"{factor(node.value)}  {_bar(node.value)}", node.value) + f"  {bounds(node)}"


def _bar(value: float, cells: int = 20) -> str:
    full = max(0, min(cells, round(value * cells)))
    return "█" * full + "·" * (cells - full)


def _branches(tree: Node) -> list[tuple[str, Node]]:
    """Return the nodes, parents first, each with the lines that tie it to its parent.

    >>> leaf = Node("b", "B", 0.5, 0.5, 0.5)
    >>> [branch for branch, _ in _branches(Node("a", "A", 0.25, 0.25, 0.25, (leaf, leaf)))]
    ['', '├─ ', '└─ ']
    """
    rows = [("", tree)]
    for number, child in enumerate(tree.children):
        last = number == len(tree.children) - 1
        below = _branches(child)
        rows.append(("└─ " if last else "├─ ", child))
        rows += [(("   " if last else "│  ") + branch, node) for branch, node in below[1:]]
    return rows


def _bills(report: TraceReport) -> list[str]:
    """Return what the factors cost of the devices' time, and of the hosts'."""
    totals = report.whole.host_totals
    hosts_time = "" if totals is None else f"{totals.resource}-seconds"
    return [_bill(report.bill, "devices", "GPU-seconds"), _bill(report.host_bill, "hosts", hosts_time)]


def _bill(bill: Bill | None, whose: str, unit: str) -> str:
    """Return what each factor costs, in seconds of its resource and money; the shares add up to 100 %."""
    if bill is None or not bill.seconds:
        return ""
    priced = bill.money is not None
    head = [f"what the {whose}' loss is made of", "share", unit, *(["money"] if priced else [])]
    rows = [
        [loss.label, percent(loss.share, 1), f"{loss.seconds:,.4g}", *([money(loss.money)] if priced else [])]
        for loss in sorted(bill.losses, key=lambda loss: -(loss.share or 0))
        if loss.share and abs(loss.share) >= SMALL
    ]
    total = ["all", percent(1, 1), f"{bill.seconds:,.4g}", *([money(bill.money)] if priced else [])]
    return table(head, [*rows, total])
