"""What binds the kernels of a waterfall's trace: as text, as parts of a page, and as plain data."""

from __future__ import annotations

import re
from typing import Any

from ullage.errors import harmless
from ullage.product import attention, product
from ullage.render.gemms import sizes
from ullage.render.html_tables import Cell, listed
from ullage.render.html_tables import table as html_table
from ullage.reports.kernel_roofs import KernelRoof, KernelRoofs
from ullage.reports.remedies import Remedy
from ullage.views.markup import Markup, element
from ullage.views.numbers import UNKNOWN, flops
from ullage.views.table import table
from ullage.views.times import seconds

TOP = 5  # kernels shown; JSON has all
UNTOLD = "what the trace does not tell"
WORDS = {"itself": "the kernels themselves"}
LONGEST = 44  # characters of a kernel's name in a terminal, without what many have in common
LONGEST_ON_PAGE = 120
_PREFIX = re.compile(r"^(void )?((at::native|\(anonymous namespace\)|<unnamed>|cutlass|pytorch_flash|flash)::)*")
_HEAD = ["", "kernel", "asked for", "bound by", "calls", "time", "FLOPs", "bytes", "points"]
_SUMS = ["all kernels", "points", "in the waterfall", "points"]


def answer(roofs: KernelRoofs) -> str:
    """Return in a line what the kernels that lose most are worth, and by which steps of their losses."""
    shown = roofs.ranked[:TOP]
    if not shown:
        return "no kernel of the trace is known to lose anything against its ceilings"
    by: dict[str, float] = {}
    for row in shown:
        for name, points in (row.steps or {UNTOLD: row.points or 0.0}).items():
            by[name] = by.get(name, 0.0) + points
    told = [(points, WORDS.get(name, name)) for name, points in by.items() if round(points, 1)]
    parts = ", ".join(f"{points:.1f} by {words}" for points, words in sorted(told, key=lambda one: -one[0]))
    which = "this kernel is" if len(shown) == 1 else f"these {len(shown)} kernels are"
    return f"{which} worth {sum(by.values()):.1f} points of MFU: {parts}"


def ceilings(roofs: KernelRoofs) -> str:
    """Return what kernels are held against, in a line."""
    peaks = [f"{peak / 1e12:,.1f} TFLOP/s in {name.upper()}" for name, peak in roofs.peaks.items()]
    clock = "" if roofs.sources.clock is None else f", the clock under load at {roofs.sources.clock:.3f} of the tensor clock"
    memory = f"{roofs.sources.bandwidth / 1e12:.3g} TB/s of memory ({roofs.sources.bandwidth_source})"
    return f"held against {', '.join([*peaks, memory])}{clock}"


def text(roofs: KernelRoofs | None) -> str:
    """Return the kernels that lose most, what to do about them, and what all kernels come to step by step; "" without any."""
    if roofs is None:
        return ""
    shown = roofs.ranked[:TOP]
    rows = [[f"{n}", _short(row, LONGEST), *_cells(row)] for n, row in enumerate(shown, 1)]
    kernels = [table(_HEAD, rows, left=4)] if rows else []
    remedies = [
        f"{_numbers(places)}: {remedy.what}\n{_why(shown, places)}    {remedy.source}" for remedy, places in _by_remedy(shown).items()
    ]
    sums = [[one.step, _points(one.points), one.within, _points(one.own)] for one in roofs.sums if roofs.evidence]
    tables = [table(_SUMS, sums)] if sums else []
    return "\n\n".join("\n".join(part) for part in ([answer(roofs), ceilings(roofs)], kernels, remedies, tables) if part)


def _why(shown: tuple[KernelRoof, ...], places: list[int]) -> str:
    return "".join(f"    {place}: {shown[place - 1].because}\n" for place in places)


def _by_remedy(shown: tuple[KernelRoof, ...]) -> dict[Remedy, list[int]]:
    """Return the first remedy of each kernel, with the places of those that it helps."""
    found: dict[Remedy, list[int]] = {}
    for place, row in enumerate(shown, 1):
        if row.remedies:
            found.setdefault(row.remedies[0], []).append(place)
    return found


def _numbers(places: list[int]) -> str:
    return ", ".join(str(place) for place in places)


def _short(row: KernelRoof, most: int) -> str:
    name = _PREFIX.sub("", _name(row))
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _name(row: KernelRoof) -> str:
    return harmless(row.kernel, 400) if row.kernel else "(unnamed)"


def _cells(row: KernelRoof) -> list[str]:
    work = row.work
    done = None if work is None or not work.flops else round(work.flops)
    moved = None if work is None or work.bytes is None else round(work.bytes)
    return [asked(row), _bound(row), f"{row.calls:,}", seconds(row.time * 1e9), flops(done), flops(moved, "B"), _points(row.points)]


def _bound(row: KernelRoof) -> str:
    return row.bound_by or "not told"


def _points(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1f}".replace("-", "−")


def asked(row: KernelRoof) -> str:
    """Return what a kernel was asked for, in words: the sizes of a product or of attention."""
    if (found := attention(row.asked)) is not None:
        kind = f"{'causal ' if found.causal else ''}attention{', backward' if found.backward else ''}"
        return f"{found.batch} × {found.heads} × {found.queries} × {found.keys} × {found.dim} {kind}"
    return sizes(product(row.asked))


def parts(roofs: KernelRoofs) -> list[Markup]:
    """Return the same as parts of a page."""
    shown = roofs.ranked[:TOP]
    head = ["kernel", "asked for", "bound by", "because", "calls", "time", "FLOPs", "bytes", "points"]
    sums = [
        [Cell(one.step), Cell(one.within), Cell(_points(one.points), one.points), Cell(_points(one.own), one.own)]
        for one in roofs.sums
        if roofs.evidence
    ]
    return [
        element("p", answer(roofs)),
        element("p", ceilings(roofs), class_="how"),
        *([html_table("kernels", head, [_row(n, row) for n, row in enumerate(shown, 1)], words=4, sorts=True)] if shown else []),
        *([listed([_advice(remedy, places) for remedy, places in _by_remedy(shown).items()])] if shown else []),
        *([html_table("steps of all kernels", ["all kernels", "in the waterfall", "points", "there"], sums, words=2)] if sums else []),
    ]


def _row(place: int, row: KernelRoof) -> list[Cell]:
    what, bound, *numbers = _cells(row)
    work = row.work
    values = [row.calls, row.time, work.flops if work else None, work.bytes if work else None, row.points]
    words = [Cell(f"{place}. {_short(row, LONGEST_ON_PAGE)}"), Cell(what), Cell(bound), Cell(row.because or UNKNOWN)]
    return [*words, *(Cell(shown, value) for shown, value in zip(numbers, values, strict=True))]


def _advice(remedy: Remedy, places: list[int]) -> Markup:
    """Return what helps some kernels, by their numbers in the table."""
    what = element("a", remedy.what, href=remedy.source) if remedy.source.startswith("https://") else remedy.what
    return element("span", f"{_numbers(places)}: ", what)


def record(roofs: KernelRoofs | None) -> dict[str, Any] | None:
    """Return the same as plain data, of all kernels: times in s, FLOPs, bytes, points of MFU; null for what is not known."""
    if roofs is None:
        return None
    return {
        "answer": answer(roofs),
        "held_against": ceilings(roofs),
        "computing": roofs.computing,
        "reached": roofs.reached,
        "unknown": roofs.unknown,
        "peaks": dict(roofs.peaks),
        "bandwidth": roofs.sources.bandwidth,
        "bandwidth_source": roofs.sources.bandwidth_source,
        "clock": roofs.sources.clock,
        "steps": [vars(one) for one in roofs.sums],
        "rows": [_record(row) for row in roofs.rows],
    }


def _record(row: KernelRoof) -> dict[str, Any]:
    work, loss = row.work, row.loss
    said = product(row.asked) or attention(row.asked)
    return {
        "kernel": _name(row),
        "kind": row.kind,
        "asked": row.asked or None,
        "sizes": None if said is None else vars(said),
        "family": row.family,
        "precision": row.precision,
        "calls": row.calls,
        "time": row.time,
        "flops": None if work is None else work.flops,
        "executed_flops": None if work is None else work.executed,
        "waves": None if work is None else work.waves,
        "bytes": None if work is None else work.bytes,
        "bound_by": row.bound_by,
        "because": row.because or None,
        "points": row.points,
        "lost": None if loss is None else loss.loss,
        "steps": None if loss is None else dict(loss.steps),
        "step_points": None if row.steps is None else dict(row.steps),
        "at_most": None if loss is None else list(loss.cut),
        "remedies": [{"what": remedy.what, "source": remedy.source} for remedy in row.remedies],
    }
