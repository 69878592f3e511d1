"""What binds the kernels of a waterfall's trace: a section of its view, and plain data."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import UNSET, UnsetType

from ullage.errors import harmless
from ullage.product import attention, product
from ullage.render.gemms import sizes
from ullage.reports.waterfall.kernel_roofs import KernelRoof, KernelRoofs, StepSum
from ullage.reports.waterfall.remedies import Remedy
from ullage.views.declared import At, Document, Rate, Ratio, Words, filled
from ullage.views.notation import BYTES, COUNT, FLOPS, PERCENTAGE_POINTS, TIME, Notation
from ullage.views.view import Column, Item, ItemList, Paragraph, Part, Section, Table, Value

TOP = 5  # kernels shown; JSON has all
UNTOLD = "what the trace does not tell"
WORDS = {"itself": "the kernels themselves"}
LONGEST = 44  # characters of a kernel's name in a terminal, without what many have in common
LONGEST_ON_PAGE = 120
_PREFIX = re.compile(r"^(void )?((at::native|\(anonymous namespace\)|<unnamed>|cutlass|pytorch_flash|flash)::)*")
_KERNEL = Notation("", lambda name: harmless(_PREFIX.sub("", name), LONGEST_ON_PAGE), numeric=False)


def section(roofs: KernelRoofs) -> Section:
    """Return the kernels that lose most, what to do about them, and what all kernels come to step by step."""
    shown = roofs.ranked[:TOP]
    columns = [Column("", COUNT, "place"), Column("kernel", _KERNEL, room=LONGEST), Column("asked for"), Column("bound by")]
    columns += [Column("calls", COUNT), Column("time", TIME), Column("FLOPs", FLOPS), Column("bytes", BYTES)]
    columns += [Column("points", PERCENTAGE_POINTS)]
    rows = [_row(place, row) for place, row in enumerate(shown, 1)]
    kernels = Table("kernels", columns, rows, note=ceilings(roofs))
    unranked = Paragraph("" if rows else ceilings(roofs))
    parts: list[Part] = [Paragraph(answer(roofs)), kernels, unranked, ItemList(_remedies(shown), "what helps them"), _sums(roofs)]
    return Section("kernels", "What binds the kernels", parts, "Against their ceilings, the largest loss first.")


def _row(place: int, row: KernelRoof) -> list[Value]:
    work = row.work
    done = round(work.flops) if work is not None and work.flops else None
    moved = None if work is None or work.bytes is None else round(work.bytes)
    return [place, _name(row), asked(row), row.bound_by or "not told", row.calls, row.time * 1e9, done, moved, row.points]


def _name(row: KernelRoof) -> str:
    return harmless(row.kernel, 400) if row.kernel else "(unnamed)"


def _sums(roofs: KernelRoofs) -> Table:
    columns = [Column("all kernels", key="step"), Column("points", PERCENTAGE_POINTS)]
    columns += [Column("in the waterfall", key="within"), Column("points", PERCENTAGE_POINTS, "points within")]
    rows: list[list[Value]] = [[one.step, one.points, one.within, one.own] for one in roofs.sums]
    return Table("kernel steps", columns, rows if roofs.evidence else [])


def _remedies(shown: tuple[KernelRoof, ...]) -> list[Item]:
    """Return the first remedy of each kernel, with the places of those that it helps, and why it does."""
    helped: dict[Remedy, list[int]] = {}
    for place, row in enumerate(shown, 1):
        if row.remedies:
            helped.setdefault(row.remedies[0], []).append(place)
    return [
        Item(f"{', '.join(map(str, places))}: {remedy.what}", remedy.source, [f"{place}: {shown[place - 1].because}" for place in places])
        for remedy, places in helped.items()
    ]


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


def asked(row: KernelRoof) -> str:
    """Return what a kernel was asked for, in words: the sizes of a product or of attention."""
    if (found := attention(row.asked)) is not None:
        kind = f"{'causal ' if found.causal else ''}attention{', backward' if found.backward else ''}"
        return f"{found.batch} × {found.heads} × {found.queries} × {found.keys} × {found.dim} {kind}"
    return sizes(product(row.asked))


class RemedyDocument(Document):
    """What is usually done about a step, and where it is documented."""

    what: str
    source: str


class AskedSizesDocument(Document, kw_only=True):
    """What a kernel was asked for: sizes of a product (`m`, `n`, `k`), or of attention."""

    batch: int
    m: int | UnsetType = UNSET
    n: int | UnsetType = UNSET
    k: int | UnsetType = UNSET
    heads: int | UnsetType = UNSET
    kv_heads: int | UnsetType = UNSET
    queries: int | UnsetType = UNSET
    keys: int | UnsetType = UNSET
    dim: int | UnsetType = UNSET
    value_dim: int | UnsetType = UNSET
    causal: bool | UnsetType = UNSET
    backward: bool | UnsetType = UNSET
    precision: str


class KernelRoofDocument(Document):
    """A kernel: what it was asked for, what it took, what bounds it, and what that costs in points of MFU."""

    kernel: str
    kind: str
    asked: Words
    sizes: AskedSizesDocument | None
    family: str
    precision: str | None
    calls: int
    time: float
    flops: Annotated[float | None, At("work.flops")]
    executed_flops: Annotated[float | None, At("work.executed")]
    waves: Annotated[float | None, At("work.waves")]
    bytes: Annotated[float | None, At("work.bytes")]
    bound_by: str | None
    because: Words
    points: float | None
    lost: Annotated[Ratio | None, At("loss.loss")]
    steps: Annotated[dict[str, float] | None, At("loss.steps")]
    step_points: Annotated[dict[str, float] | None, At("steps")]
    at_most: Annotated[list[str] | None, At("loss.cut")]
    remedies: list[RemedyDocument]


class KernelRoofsDocument(Document):
    """What binds the kernels of a trace."""

    answer: str
    held_against: str
    computing: float
    reached: float
    unknown: float
    peaks: dict[str, Rate]
    bandwidth: Annotated[float, At("sources.bandwidth")]
    bandwidth_source: Annotated[str, At("sources.bandwidth_source")]
    clock: Annotated[float | None, At("sources.clock")]
    steps: Annotated[list[StepSum], At("sums")]
    rows: list[KernelRoofDocument]


def declared(roofs: KernelRoofs) -> KernelRoofsDocument:
    """Return the same as a document, of all kernels: times in s, FLOPs, bytes, points of MFU; null for what is not known."""
    rows = [_declared_row(row) for row in roofs.rows]
    return filled(KernelRoofsDocument, roofs, answer=answer(roofs), held_against=ceilings(roofs), rows=rows)


def _declared_row(row: KernelRoof) -> KernelRoofDocument:
    said = product(row.asked) or attention(row.asked)
    return filled(KernelRoofDocument, row, kernel=_name(row), sizes=None if said is None else filled(AskedSizesDocument, said))
