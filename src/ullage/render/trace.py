"""The view of a run's report: the efficiencies, what the loss is made of, then what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ullage.errors import harmless
from ullage.metrics.instructions import host_instructions
from ullage.metrics.losses import Bill
from ullage.metrics.tree import Node
from ullage.render.gemms import sizes, summary
from ullage.render.svg.causes import causes as causes_picture
from ullage.render.svg.steps import steps as steps_picture
from ullage.render.svg.timeline import timeline
from ullage.render.svg.tree import stated
from ullage.render.svg.tree import tree as tree_picture
from ullage.render.trace_code import code_tables, host_code
from ullage.render.trace_collectives import collectives
from ullage.render.trace_json import record as record
from ullage.render.trace_parts import between, devices, efficiencies, processes, trees_table
from ullage.render.trace_what_if import what_if
from ullage.reports.trace.part import RunPart
from ullage.reports.trace.trace import TraceReport
from ullage.sums.lanes.idle import Gap
from ullage.totals import RESOURCES, HostTotals
from ullage.views.notation import COUNT, FACTOR, FACTOR_4, KERNEL, PATH, PERCENT, PERCENT_1, QUANTITY, TERAFLOPS, TIME, MoneyTerms
from ullage.views.numbers import counted, percent
from ullage.views.times import seconds
from ullage.views.view import Cell, Column, Fact, Headline, Item, ItemList, Paragraph, Part, Picture, Section, Table, Value, View

SHOWN = 12  # rows of a table in a terminal
NAMES, GAPS = 30, 10  # kernels, and gaps, on a page
SMALL = 0.0005  # a share that is 0.0 % in a table
_MORE = "--top shows them"

# What the host did while a device had nothing to do: for a table, and within a sentence.
CAUSES = {
    "useful": "host computing (or Python)",
    "offload": "in GPU calls (launch, copy, allocate)",
    "sync": "host waiting for a device",
    "communication": "in MPI or a host collective",
    "off": "host thread descheduled",
    "launched": "launched, waiting in the queue",
    "unknown": "not known",
}
_WITH = {
    "useful": "with their host computing",
    "offload": "with their host in GPU calls",
    "sync": "with their host waiting for a device",
    "communication": "with their host in communication",
    "off": "with their host thread descheduled",
    "launched": "with work launched and waiting in the queue",
    "unknown": "while nobody recorded what their host did",
}


def view(report: TraceReport, *, by: str | None = None, top: int = SHOWN) -> View:
    """Return the report as data; `by` adds a table of ranks, devices, regions or steps; short forms show `top` rows of a table."""
    window = f", window {report.window}" if report.run is not None else ""
    late = report.late is not None
    return View(
        kind="trace",
        subject="Trace report",
        window=f"{_places(report)} ({report.source}); {report.mode} mode{window}",
        headline=headline(report),
        lede=[*_lede(report)],
        facts=[*_facts(report)],
        sections=[
            Section("trees", "Efficiency", [*_trees(report)], _TREES, opens=True),
            *_asked(report, by, top),
            Section("timeline", "Over time", [*_timeline(report)], _TIMELINE),
            Section("bill", "What the loss is made of", [*_bills(report)], _BILL),
            Section("what-if", "What if", what_if(report.what_if, top), _WHAT_IF),
            Section("idle", "Why devices idled", [*_idle(report)], _IDLE),
            Section("code", "What code it is", code_tables(report, max(top // 2, 1)), _CODE),
            Section("kernels", "Kernels", [*_kernels(report, top)], _KERNELS),
            Section("late", "Who arrives last" if late else "Collectives", [*collectives(report, top)], _LATE if late else ""),
            *_parts(report, by, top),
            Section("restated", "What TALP printed", [*_restated(report)], _RESTATED),
        ],
        notes=[harmless(note, 1000) for note in report.notes],
        closing=_CLOSING,
    )


# --- the opening ---


def headline(report: TraceReport) -> Headline:
    """Return the answer: the efficiencies, of what, over what."""
    whole = report.whole
    said = [f"{name} parallel efficiency {_stated(tree)}" for name, tree in (("device", whole.device), ("host", whole.host)) if tree]
    first, *others = said or ["no efficiency can be computed"]
    count = [hosts(whole.host_totals, len(whole.host_parts))] if whole.host_totals else []
    count += [counted(whole.device_totals.devices, "device")] if whole.device_totals else []
    of = [*others, f"of region '{harmless(report.region, 60)}'"] if report.region else others
    aside = ", ".join([*of, f"over {_elapsed(report)}"]) + (f": {', '.join(count)}" if count else "")
    return Headline(first[:1].upper() + first[1:], before="partial: " if report.partial else "", aside=aside)


def _stated(node: Node) -> str:
    return stated(node) if node.certain else f"unknown, {between(node)}"


def _elapsed(report: TraceReport) -> str:
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
    said = counted(totals.processes, totals.resource, RESOURCES[totals.resource])
    return f"{said} of {counted(processes, 'process', 'processes')}" if totals.resource == "thread" else said


def _places(report: TraceReport) -> str:
    shown = harmless(report.places[0], 100) if report.places else "no file"
    return shown if len(report.places) < 2 else f"{shown} and {len(report.places) - 1:,} more"


def _lede(report: TraceReport) -> Iterator[str]:
    on_devices = report.whole.device is not None
    bill = report.bill if on_devices else report.host_bill
    ranked = sorted((loss for loss in bill.losses if loss.share), key=lambda loss: -(loss.share or 0)) if bill is not None else []
    if bill is not None and ranked and bill.seconds:
        unit = "GPU-seconds" if on_devices else _host_seconds(report)
        yield f"{bill.seconds:,.4g} {unit} fall short of full, {percent(ranked[0].share)} of them by “{ranked[0].label}”."
    if report.idle is not None and report.idle.total and (report.region is None or not report.tables_of):
        cause, ns = max(report.idle.causes.items(), key=lambda item: item[1])
        yield f"Devices idled most ({percent(ns / report.idle.total)}) {_WITH[cause]}."


def _host_seconds(report: TraceReport) -> str:
    """Return the unit of the hosts' time: seconds of processes, of threads or of CPUs."""
    totals = report.whole.host_totals
    return f"{'process' if totals is None else totals.resource}-seconds"


def _facts(report: TraceReport) -> Iterator[Fact]:
    whole = report.whole
    yield Fact("Elapsed", whole.elapsed, TIME, f"window {report.window}")
    if whole.device is not None and whole.device_totals is not None:
        yield _efficiency("Device efficiency", whole.device, f"of {counted(whole.device_totals.devices, 'GPU')}")
    if whole.host is not None and whole.host_totals is not None:
        yield _efficiency("Host efficiency", whole.host, f"of {hosts(whole.host_totals, len(whole.host_parts))}")
    if (made := host_instructions(whole.host_totals)) is not None:
        yield Fact("Instructions per cycle", made.per_cycle, QUANTITY, f"in the hosts' useful time, {made.clock / 1e9:.3g} GHz")
    if report.bill is not None and report.bill.money is not None:
        yield Fact("Lost", report.bill.money, report.terms.notation, report.terms.at_which_price)
    yield Fact("Mode", report.mode, note="collectives count as work" if report.mode == "talp" else "collectives apart from work")
    yield Fact("Source", report.source, note="partial" if report.partial else "whole")


def _efficiency(name: str, node: Node, of: str) -> Fact:
    doubt = between(node)
    return Fact(name, stated(node), note=f"{of}, {doubt}" if doubt else of)


# --- what is lost, and why ---


def _trees(report: TraceReport) -> Iterator[Part]:
    whole = report.whole
    lost = [loss for bill in (report.bill, report.host_bill) if bill is not None for loss in bill.losses]
    shares = {loss.metric: round(loss.share, 6) + 0.0 for loss in lost if loss.share is not None}  # what rounding left of 0 is 0
    yield Picture(lambda w: tree_picture(whole.host, whole.device, title="Efficiency", shares=shares, width=w, standalone=False))
    yield trees_table([(title, tree) for title, tree in (("Host", whole.host), ("Device", whole.device)) if tree is not None])
    if (made := host_instructions(whole.host_totals)) is not None:
        rates = f"{made.per_cycle:.3g} a cycle, {made.clock / 1e9:.3g} GHz"
        yield Paragraph(f"Useful time of the hosts: {made.instructions:,.4g} instructions, {rates}.")


def _timeline(report: TraceReport) -> Iterator[Part]:
    if (run := report.run) is not None:
        yield Picture(lambda w: timeline(run, width=w, mode=report.mode, standalone=False))


def _bills(report: TraceReport) -> Iterator[Part]:
    for bill, whose, unit in ((report.bill, "devices", "GPU-seconds"), (report.host_bill, "hosts", _host_seconds(report))):
        if bill is not None and bill.seconds:
            yield _bill(bill, whose, unit, report.terms)


def _bill(bill: Bill, whose: str, unit: str, terms: MoneyTerms) -> Table:
    """Return what each factor costs, in seconds of its resource and money; the shares add up to 100 %."""
    priced = bill.money is not None
    money = Column(terms.heading_with_price("money"), terms.amounts, key="money")
    columns = [Column("factor"), Column("share", PERCENT_1), Column(unit, QUANTITY), *([money] if priced else [])]
    costly = (loss for loss in bill.losses if loss.share and abs(loss.share) >= SMALL)
    rows: list[list[Value | Cell]] = [
        [loss.label, loss.share, loss.seconds, *([loss.money] if priced else [])]
        for loss in sorted(costly, key=lambda loss: -(loss.share or 0))
    ]
    total: list[Value | Cell] = ["all", 1.0, bill.seconds, *([bill.money] if priced else [])]
    unsplit = "Factors joined by × are known only together." if len(bill.unsplit) > 1 else ""
    title = f"What the {whose}' loss is made of"
    return Table(f"loss of the {whose}", columns, rows, title, brief=len(rows), last=[total], note=unsplit)


def of_all(report: TraceReport) -> str:
    """Return the words for what a table is of, where that is more than the trees."""
    return f", of {report.tables_of}" if report.tables_of else ""


def _idle(report: TraceReport) -> Iterator[Part]:
    idle = report.idle
    if idle is None or not idle.total:
        return
    ranked = sorted(((ns, cause) for cause, ns in idle.causes.items() if ns >= SMALL * idle.total), reverse=True)
    columns = [Column("cause"), Column("share", PERCENT_1), Column("device time", TIME)]
    rows: list[list[Value | Cell]] = [[CAUSES[cause], ns / idle.total, ns] for ns, cause in ranked]
    title = f"Why devices idled: what their host did{of_all(report)}"
    yield Picture(lambda w: causes_picture(idle.causes, CAUSES, width=w, standalone=False))
    yield Table("causes", columns, rows, title, drawn=True)
    yield Paragraph(_rhythm(report))
    if idle.gaps:
        yield _gaps(report, idle.gaps, idle.origin)


def _rhythm(report: TraceReport) -> str:
    """Return in a sentence how the devices are fed: gaps, and how long work waits from launch to start."""
    found = None if report.idle is None else report.idle.rhythm
    if found is None:
        return ""
    words = [f"{found.gaps:,} gaps{of_all(report)}, median {seconds(found.median)}"]
    if found.short is not None:
        words.append(f"{percent(found.short, 1)} of idle time in gaps under 10 µs")
    if found.delay is not None:
        words.append(f"from launch to start {seconds(found.delay)} (median), {seconds(found.delay_95)} (95th percentile)")
    return f"{'; '.join(words)}."


def _gaps(report: TraceReport, gaps: Sequence[Gap], origin: int) -> Table:
    """Return the longest gaps, each with the code that its host was in, or its main cause, and what ran around it."""
    numbers = {device.key: number for number, device in enumerate(report.run.devices)} if report.run is not None else {}
    code = [host_code(gap) for gap in gaps]
    columns = [
        Column("device"),
        Column("mostly", PATH, room=48),
        *([Column("its host", detail=True)] if any(code) else []),
        Column("after", KERNEL, room=30),
        Column("before", KERNEL, room=30),
        Column("at", TIME),
        Column("idle", TIME),
    ]
    rows: list[list[Value | Cell]] = [
        [
            f"GPU {numbers.get(gap.device, '?')}",
            within or CAUSES.get(gap.cause, gap.cause),
            *([CAUSES.get(gap.cause, gap.cause)] if any(code) else []),
            gap.before or "window start",
            gap.after or "window end",
            gap.start - origin,
            gap.end - gap.start,
        ]
        for gap, within in zip(gaps, code, strict=True)
    ]
    return Table("longest gaps", columns, rows[:GAPS], "Longest gaps", brief=5, elsewhere="--out FILE.html shows them")


# --- what ran ---


def _kernels(report: TraceReport, top: int) -> Iterator[Part]:
    found = report.kernels
    if found is None or not found.kernel_time:
        return
    counts = [Column("count", COUNT), Column("time", TIME)]
    families = [[row.family, row.names, row.count, row.time, row.share] for row in found.families]
    columns = [Column("family"), Column("names", COUNT), *counts, Column("share", PERCENT_1)]
    yield Table("kernels by family", columns, families, f"Kernels by family{of_all(report)}", brief=top, elsewhere=_MORE)
    yield Paragraph(_hidden(report))
    columns = [Column("kernel", KERNEL, room=60), Column("family", room=20), *counts, Column("mean", TIME), Column("longest", TIME)]
    names = [[row.name, row.family, row.count, row.time, row.mean, row.longest, row.share] for row in found.kernels]
    title = f"Kernels by name{of_all(report)}"
    yield Table(
        "kernels by name", [*columns, Column("share", PERCENT_1)], names, title, brief=max(top // 2, 1), page=NAMES, elsewhere=_MORE
    )
    yield from _gemms(report)


def _hidden(report: TraceReport) -> str:
    """Return in a sentence how much of collectives and copies computing hid; "" without any."""
    if report.kernels is None:
        return ""
    found, words = report.kernels.overlap_all, []
    if found.collective:
        words.append(f"{percent(found.collective_hidden)} of {seconds(found.collective)} of collectives hidden behind computing")
    if found.memory:
        words.append(f"{percent(found.memory_hidden)} of {seconds(found.memory)} of copies hidden behind kernels")
    return f"{'; '.join(words)}." if words else ""


def _gemms(report: TraceReport) -> Iterator[Part]:
    """Yield what tiles cost of the matrix products, and those that took the most time; nothing where the trace tells no shapes."""
    found = report.gemms
    if found is None or found.tile_efficiency is None:
        return
    yield Paragraph(f"Matrix products: {summary(found)}{of_all(report)}. `ullage trace gemms` lists them.")
    columns = [Column("kernel", KERNEL, room=60), Column("M × N × K"), Column("count", COUNT), Column("time", TIME)]
    columns += [Column("tile efficiency", FACTOR_4), Column("TFLOP/s", TERAFLOPS), Column("of peak", PERCENT)]
    rows = [
        [use.kernel, sizes(use.product), use.count, use.time, use.tile_efficiency, use.rate, use.share_of_peak]
        for use in found.rows
        if use.product is not None
    ]
    yield Table("matrix products", columns, rows, "Matrix products", page=NAMES, detail=True)


# --- parts of the run ---

_NONE = {
    "rank": "No times by rank are known.",
    "device": "No times by device are known.",
    "region": "No region was recorded.",
    "step": "No step was recorded.",
}


def _asked(report: TraceReport, by: str | None, top: int) -> Iterator[Section]:
    """Yield what `--by` asked for."""
    if by is not None:
        found = {"rank": report.ranks, "device": report.devices, "region": report.regions, "step": report.steps}[by]
        yield Section(f"by-{by}", f"By {by}", [efficiencies(by, found, top)] if found else [Paragraph(_NONE[by])])


def _parts(report: TraceReport, by: str | None, top: int) -> Iterator[Section]:
    """Yield the efficiencies of regions, and what processes and devices spent their time on; of each step, process and device in detail."""
    whole, brief = report.whole, by is None
    if len(report.steps) > 1 and by != "step":
        steps, part = report.steps, efficiencies("step", report.steps, top, detail=True)
        picture = Picture(lambda w: steps_picture(steps, width=w, standalone=False))
        yield Section("steps", "Step by step", [*([picture] if whole.device is not None else []), part], _STEPS)
    if report.regions and by != "region":
        yield Section("regions", "Regions", [efficiencies("region", report.regions, top, detail=not brief)], _REGIONS)
    several = max(len(whole.host_parts), len(whole.device_parts)) > 1
    if whole.device_parts:
        lanes = devices(whole, report.mode, detail=not brief or not several)
        yield Section("devices", "Devices", [lanes, *_each("device", report.devices, by, top)])
    if whole.host_parts:
        yield Section("ranks", "Processes", [processes(whole, detail=not brief or not several), *_each("rank", report.ranks, by, top)])


def _each(name: str, found: Sequence[RunPart], by: str | None, top: int) -> Iterator[Table]:
    """Yield the efficiencies of each device or rank, which a terminal shows when asked for; of one they are the run's."""
    if len(found) > 1 and by != name:
        yield efficiencies(name, found, top, detail=True)


def _restated(report: TraceReport) -> Iterator[Part]:
    """Yield how the efficiencies that TALP printed compare with those that its raw times give."""
    found = report.restated
    if found is None or not found.compared:
        return
    said = f"{found.compared:,} printed efficiencies compared with the raw times: {found.agree:,} agree"
    said += f", {found.explained:,} differ by their definition" if found.explained else ""
    yield Paragraph(f"{said}{f', {len(found.contradictions):,} contradict them' if found.contradictions else ''}.")
    columns = [Column("region", room=40), Column("TALP's name"), Column("printed", FACTOR), Column("by its times", FACTOR)]
    rows = [[row.region, row.key, row.stated, row.recomputed] for row in found.contradictions]
    yield Table("contradictions", columns, rows, "Contradictions", brief=12, elsewhere="--json has them all")
    why = [f"differs by definition: {why}" for why in dict.fromkeys(row.why for row in found.rows if row.why)]
    yield ItemList([Item(harmless(line, 400)) for line in (*why, *found.notes[:3])])


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
_LATE = "Collectives matched across ranks: the last to arrive makes all others wait."
_RESTATED = "The efficiencies that TALP printed beside its raw times, held against what these give."
_REGIONS = "The same efficiencies within each region that the program named; kernels that cross an edge are cut there."
_CLOSING = (
    "Efficiencies after POP and TALP. Parallel efficiency says how much of the time is useful, not how well it is used: "
    "see OFU for that. A dash means not known."
)
