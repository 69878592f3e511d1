"""A report on a run's traces as one HTML file: the answer first, then the pictures, then the tables. It loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.errors import harmless
from ullage.metrics.instructions import host_instructions
from ullage.metrics.losses import Bill
from ullage.metrics.tree import Node
from ullage.render import trace_html_tables as tables
from ullage.render.html_tables import listed
from ullage.render.svg.causes import causes
from ullage.render.svg.steps import steps
from ullage.render.svg.timeline import timeline
from ullage.render.svg.tree import bounds, stated, tree
from ullage.render.trace import elapsed, hosts
from ullage.render.trace_parts import CAUSES, compared, hidden, matched, reasons, rhythm, told_by_nccl
from ullage.reports.trace import TraceReport
from ullage.reports.view import View
from ullage.views.markup import Child, Markup, element
from ullage.views.numbers import money, percent
from ullage.views.page import document, figure, figures, section
from ullage.views.times import seconds


def html(report: TraceReport) -> Markup:
    """Return the whole report as one self-contained HTML document, light or dark as the reader's screen asks.

    Names of files, regions, kernels and devices are foreign: they are escaped. The same report gives the same bytes.
    """
    return document(_headline(report), _opening(report), _sections(report), element("footer", _CLOSING))


def _main(report: TraceReport) -> tuple[str, Node | None]:
    """Return the efficiency that the report is about: the devices', or the hosts' without devices."""
    whole = report.whole
    if whole.device is not None:
        return "Device parallel efficiency", whole.device
    return "Parallel efficiency", whole.host


def _headline(report: TraceReport) -> str:
    name, node = _main(report)
    return f"{name} {_said(node)}"


def _said(node: Node | None) -> str:
    if node is None or node.value is None:
        return "not known"
    return stated(node) if node.certain else f"{stated(node)} ({bounds(node)})"


def _opening(report: TraceReport) -> Markup:
    name, node = _main(report)
    what = f"region {harmless(report.region, 60)}" if report.region else "run"
    return element(
        "header",
        element("p", f"Trace report, {_files(report)}", class_="eyebrow"),
        element("h1", element("strong", f"{name} {_said(node)}"), element("small", f"of the {what}, over {elapsed(report)}")),
        element("p", _lede(report), class_="lede"),
        figures(_figures(report)),
    )


def _files(report: TraceReport) -> str:
    shown = harmless(report.places[0], 100) if report.places else "no file"
    return shown if len(report.places) < 2 else f"{shown} and {len(report.places) - 1:,} more"


def _lede(report: TraceReport) -> str:
    bill = report.bill if report.whole.device is not None else report.host_bill
    told = []
    ranked = sorted((loss for loss in bill.losses if loss.share), key=lambda loss: -(loss.share or 0)) if bill is not None else []
    if bill is not None and ranked and bill.seconds:
        whose = "GPU-seconds" if report.whole.device is not None else tables.host_seconds(report)
        told.append(f"{bill.seconds:,.4g} {whose} fall short of full, {percent(ranked[0].share)} of them by “{ranked[0].label}”.")
    if report.idle is not None and report.idle.total and (report.region is None or not report.tables_of):
        cause, ns = max(report.idle.causes.items(), key=lambda item: item[1])
        told.append(f"Devices idled most ({percent(ns / report.idle.total)}) with their {_HOST[cause]}.")
    if report.partial:
        told.append("Something of the run is missing: see the notes.")
    return " ".join(told)


_HOST = {
    "useful": "host computing",
    "offload": "host in GPU calls",
    "sync": "host waiting for a device",
    "communication": "host in communication",
    "off": "host thread descheduled",
    "launched": "work launched already, but not begun",
    "unknown": "host doing what nobody recorded",
}


def _figures(report: TraceReport) -> list[tuple[str, str, str]]:
    whole = report.whole
    rows = [("Elapsed", seconds(whole.elapsed), f"window {report.window}")]
    if whole.device is not None and whole.device_totals is not None:
        count, doubt = whole.device_totals.devices, bounds(whole.device)
        of = f"of {count:,} {'GPU' if count == 1 else 'GPUs'}"
        rows.append(("Device efficiency", stated(whole.device), f"{of}, {doubt}" if doubt else of))
    if whole.host is not None and whole.host_totals is not None:
        of, doubt = f"of {hosts(whole.host_totals, len(whole.host_parts))}", bounds(whole.host)
        rows.append(("Host efficiency", stated(whole.host), f"{of}, {doubt}" if doubt else of))
    if (made := host_instructions(whole.host_totals)) is not None:
        rows.append(("Instructions per cycle", f"{made.per_cycle:.3g}", f"in the hosts' useful time, {made.clock / 1e9:.3g} GHz"))
    if report.bill is not None and report.bill.money is not None:
        rows.append(("Lost", money(report.bill.money), "at the price given"))
    rows.append(("Mode", report.mode, "collectives count as work" if report.mode == "talp" else "collectives apart from work"))
    return [*rows, ("Source", report.source, "partial" if report.partial else "whole")]


def _sections(report: TraceReport) -> list[Child]:
    return [
        _trees(report),
        _lanes(report),
        _bill(report),
        _what_if(report),
        _idle(report),
        section("code", "What code it is", _CODE, *found) if (found := tables.code(report)) else None,
        _steps(report),
        _kernels(report),
        _late(report),
        section("regions", "Regions", _REGIONS, tables.views("region", report.regions)) if report.regions else None,
        section("devices", "Devices", "", tables.devices(report), _each("device", report.devices)) if report.whole.device_parts else None,
        section("ranks", "Processes", "", tables.processes(report), _each("rank", report.ranks)) if report.whole.host_parts else None,
        _restatement(report),
        section("notes", "Notes", "", listed([harmless(note, 1000) for note in report.notes])) if report.notes else None,
    ]


def _trees(report: TraceReport) -> Markup:
    whole, shares = report.whole, _shares(report)
    drawn = figure(lambda w: tree(whole.host, whole.device, title="Efficiency", shares=shares, width=w, standalone=False))
    return section("trees", "Efficiency", _TREES, drawn)


def _shares(report: TraceReport) -> dict[str, float]:
    found = [loss for bill in (report.bill, report.host_bill) if bill is not None for loss in bill.losses]
    return {loss.metric: tables.share(loss.share) or 0.0 for loss in found if loss.share is not None}


def _lanes(report: TraceReport) -> Markup | None:
    run = report.run
    if run is None:
        return None
    drawn = figure(lambda w: timeline(run, width=w, mode=report.mode, standalone=False))
    return section("timeline", "Over time", _TIMELINE, drawn)


def _bill(report: TraceReport) -> Markup | None:
    found = [(name, bill) for name, bill in (("devices", report.bill), ("hosts", report.host_bill)) if bill is not None and bill.losses]
    if not found:
        return None
    parts: list[Child] = []
    for name, bill in found:
        unit = "GPU-seconds" if name == "devices" else tables.host_seconds(report)
        parts += [element("h3", f"The {name}' time") if len(found) > 1 else None, tables.bill(bill, name, unit)]
        parts.append(_unsplit(bill))
    return section("bill", "What the loss is made of", _BILL, *parts)


def _what_if(report: TraceReport) -> Markup | None:
    parts = tables.what_if(report)
    return section("what-if", "What if", _WHAT_IF, *parts) if parts else None


def _each(by: str, found: Sequence[View]) -> list[Markup] | None:
    """Return the efficiencies of each device or rank; of one they are the run's."""
    return [element("h3", f"Efficiencies by {by}"), tables.views(by, found)] if len(found) > 1 else None


def _late(report: TraceReport) -> Markup | None:
    more = [*_told_by_nccl(report), *tables.lengths(report), *tables.links(report)]
    if report.late is None:
        return section("late", "Collectives", "", *more) if more else None
    who = (_said_in_a_line(matched(report.late, "")), tables.late(report))
    return section("late", "Who comes late", f"{_LATE}{_of(report)}", *who, *more)


def _told_by_nccl(report: TraceReport) -> list[Child]:
    if report.nccl is None or not report.nccl.collectives:
        return []
    return [element("h3", "As NCCL told it"), _said_in_a_line(told_by_nccl(report.nccl)), tables.nccl(report.nccl)]


def _restatement(report: TraceReport) -> Markup | None:
    found = report.restated
    if found is None or not found.compared:
        return None
    said = [_said_in_a_line(harmless(why, 400)) for why in reasons(found)]
    return section("restated", "What TALP printed", _RESTATED, _said_in_a_line(compared(found)), tables.contradictions(report), said)


def _said_in_a_line(words: str) -> Markup | None:
    return element("p", f"{words[:1].upper()}{words[1:]}.") if words else None


def _of(report: TraceReport) -> str:
    """Return what a section is of, where that is more than the trees."""
    return f" Here it is of {report.tables_of}." if report.tables_of else ""


def _unsplit(bill: Bill) -> Markup | None:
    if len(bill.unsplit) < 2:
        return None
    return element("p", "Factors joined by × are known only together.", class_="more")


def _idle(report: TraceReport) -> Markup | None:
    idle = report.idle
    if idle is None or not idle.total:
        return None
    drawn = figure(lambda w: causes(idle.causes, CAUSES, width=w, standalone=False))
    longest = [element("h3", "Longest gaps"), tables.gaps(report)] if idle.gaps else []
    return section("idle", "Why devices idled", f"{_IDLE}{_of(report)}", drawn, _said_in_a_line(rhythm(report)), longest)


def _steps(report: TraceReport) -> Markup | None:
    if len(report.steps) < 2:
        return None
    drawn = figure(lambda w: steps(report.steps, width=w, standalone=False)) if report.whole.device is not None else None
    return section("steps", "Step by step", _STEPS, drawn, tables.views("step", report.steps))


def _kernels(report: TraceReport) -> Markup | None:
    found = report.kernels
    if found is None or not found.kernel_time:
        return None
    names = [element("h3", "By name"), tables.names(report)] if found.kernels else []
    hides = _said_in_a_line(hidden(report))
    return section("kernels", "Kernels", f"{_KERNELS}{_of(report)}", tables.families(report), hides, names, tables.gemms(report))


_TREES = "Each efficiency is the product of those that hang from it, so the smallest says where to look first."
_TIMELINE = (
    "A lane for each process and, below it, its devices. Of a long run the upper strip shows the whole, and the lanes what lies in "
    "its frame; where events are finer than a pixel, colours are stacked by their share of it."
)
_BILL = "The shares are −ln of each factor over the sum of all, so they add up to 100 % in whatever order the factors stand."
_WHAT_IF = (
    "The run replayed along what its threads and devices waited for, with other durations: how many times as fast it would be. Below: the "
    "chain of work and waits that made it as long as it was."
)
_IDLE = "Idle time of the devices, by what the host thread did that launched the next work."
_CODE = (
    "Idle time by what the host thread was in that launched the next work, and kernels by what launched them: the innermost operator, "
    "Python function, and range or module. Devices waited for a call while it was in progress on that thread."
)
_STEPS = "The devices' time in each step. Neighbours should look alike; one that does not is worth a look in the trace."
_KERNELS = "Times are summed over streams, so kernels that ran at the same time both count."
_LATE = "Collectives matched across ranks: the last to come makes all others wait."
_RESTATED = "The efficiencies that TALP printed beside its raw times, held against what these give."
_REGIONS = "The same efficiencies within each region that the program named; kernels that cross an edge are cut there."
_CLOSING = (
    "Efficiencies after POP and TALP. Parallel efficiency says how much of the time is useful, not how well it is used: "
    "see OFU for that. A dash means not known."
)
