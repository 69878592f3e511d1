"""The view of a stall report, and the forms that it alone has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import UNSET, UnsetType

from ullage.cupti.stalls import GROUPS, Reason
from ullage.errors import harmless
from ullage.render.svg.flame import flame
from ullage.reports.stalls.frames import frames, paths
from ullage.reports.stalls.shares import KernelStalls, Spot, StallReport, StallShare
from ullage.views.declared import At, Document, Made, Ratio, Words, filled, plain_data
from ullage.views.files import FORMS as VIEW_FORMS
from ullage.views.files import Form
from ullage.views.notation import COUNT, PERCENT, Notation
from ullage.views.numbers import counted, percent
from ullage.views.shown import ShownByView
from ullage.views.view import Column, Headline, Item, ItemList, Part, Picture, Section, Table, Value, View

FORMS = (*VIEW_FORMS, ".svg", ".folded")
CLOSELY = 5  # kernels that are looked at closely
HOW = "a stall is counted at the instruction that waits, not at the one it waits for"
ADDRESS = Notation("B", lambda value: f"0x{value:04x}", numeric=False)


def view(report: StallReport, *, top: int = 10) -> View:
    """Return the answer as data: the flame graph, the kernels, then of each of the first its reasons, lines, instructions, advice.

    Short forms show the first `top` of each.
    """
    measured = _measured(report)
    return View(
        kind="stalls",
        subject="Warp stalls",
        headline=headline(report),
        basis=[measured] if measured else [],
        sections=[
            Section("stacks", "Where the samples are", [Picture(lambda width: flame(report, width=width, standalone=False))]),
            Section("kernels", "Kernels", [_kernels(report, top)], "Most samples first."),
            *(_section(number, kernel, top) for number, kernel in enumerate(report.kernels[: min(top, CLOSELY)])),
        ],
        notes=[*report.notes, HOW],
    )


def headline(report: StallReport) -> Headline:
    """Return the answer: what most samples waited for, of how many samples and kernels."""
    about = f"{report.samples:,} samples of {counted(len(report.kernels), 'kernel')}"
    if report.worst is None:
        return Headline("nothing was waited for", f" in {about}")
    share = percent(_share(report.worst.samples, report.samples))
    return Headline(share, f" of {about} waited for {_for(report.worst)}")


def _for(share: StallShare) -> str:
    return f"{share.reason.waits} ({share.reason.name})" if share.reason.waits != share.reason.name else harmless(share.reason.name, 60)


def _measured(report: StallReport) -> str:
    facts = report.facts
    every = f"one sample every {facts.cycles:,} cycles" if facts.cycles else ""
    clock = f"at {facts.clock / 1e6:,.0f} MHz" if facts.clock else ""
    known = [facts.chip or "", every, clock, facts.mode or "", f"CUPTI {facts.release}" if facts.release else ""]
    return ", ".join(harmless(one, 60) for one in known if one)


def _share(count: int, whole: int) -> float | None:
    return count / whole if whole else None


_COUNTED = (Column("samples", COUNT), Column("share", PERCENT))


def _kernels(report: StallReport, top: int) -> Table:
    columns = [Column("kernel", room=60), *_COUNTED]
    columns += [*(Column(state, PERCENT) for state in ("issued", "ready", "waits")), Column("mostly for")]
    rows = [_kernel(kernel, report.samples) for kernel in report.kernels]
    return Table("kernels", columns, rows, brief=top, page=200, elsewhere="--top shows them")


def _kernel(kernel: KernelStalls, samples: int) -> list[Value]:
    worst = next((one for one in kernel.shares if one.waits), None)
    states = (kernel.count("issued"), kernel.count("ready"), kernel.waiting)
    shares = [_share(kernel.samples, samples), *(_share(count, kernel.samples) for count in states)]
    return [kernel.name, kernel.samples, *shares, None if worst is None else worst.reason.name]


def _section(number: int, kernel: KernelStalls, top: int) -> Section:
    parts: list[Part] = [*_tables(number, kernel, top)]
    if kernel.advised:
        parts.append(ItemList([Item(f"{one.reason.name}: {one.reason.advice}") for one in kernel.advised]))
    return Section(f"kernel-{number}", harmless(kernel.name, 120), parts, "Where its samples are.", headed=True)


def _tables(number: int, kernel: KernelStalls, top: int) -> Iterator[Table]:
    """Yield a kernel's stall reasons, its lines of source, its instructions, each with its samples."""
    shares = [[one.reason.name, one.reason.meaning, one.samples, _share(one.samples, kernel.samples)] for one in kernel.shares]
    yield Table(f"reasons-{number}", [Column("reason"), Column("meaning"), *_COUNTED], shares, brief=5, page=50)
    mostly = Column("mostly", room=30)
    if kernel.lines:
        sums = [(place, shares, sum(one.samples for one in shares)) for place, shares in kernel.lines]
        lines = [[place.short, shares[0].reason.name, count, _share(count, kernel.samples)] for place, shares, count in sums]
        yield Table(f"lines-{number}", [Column("line", room=60), mostly, *_COUNTED], lines, brief=top, page=50)
    columns = [Column("at", ADDRESS), Column("instruction", room=44), Column("line", room=40), mostly, *_COUNTED]
    spots = [_spot(spot, kernel) for spot in kernel.spots]
    yield Table(f"instructions-{number}", columns, spots, brief=top, page=50, elsewhere="--top shows them")


def _spot(spot: Spot, kernel: KernelStalls) -> list[Value]:
    instruction = None if spot.instruction is None else str(spot.instruction)
    place = None if spot.place is None else spot.place.short
    return [
        spot.pc,
        instruction,
        place,
        spot.shares[0].reason.name if spot.shares else None,
        spot.samples,
        _share(spot.samples, kernel.samples),
    ]


@dataclass(frozen=True)
class StallReasons(ShownByView, view="ullage.render.stalls:reasons"):
    """The stall reasons that CUPTI tells."""

    reasons: tuple[Reason, ...]


def reasons_view(report: StallReasons, **_: int) -> View:
    """Return the stall reasons, what each means, and what it was called before."""
    rows = [[one.name, one.old or None, GROUPS[one.group], one.meaning] for one in report.reasons]
    table = Table("reasons", [Column("reason"), Column("old name"), Column("state"), Column("meaning")], rows, brief=len(rows))
    answer = Headline(counted(len(rows), "stall reason"), ", each also counted as latency samples (_not_issued)")
    return View("stall-reasons", "Warp stalls", answer, sections=[Section("reasons", "Reasons", [table])])


class ReasonDocument(Document):
    """A reason for which a warp does not issue, what it means and what helps."""

    name: str
    group: str
    waits: str
    meaning: str
    advice: str
    old: Words


def reasons_record(report: StallReasons) -> dict[str, Any]:
    """Return the stall reasons for JSON."""
    return plain_data(ReasonsDocument, report)


def _counts(shares: Sequence[StallShare]) -> dict[str, int]:
    return {one.reason.name: one.samples for one in shares}


def more_forms(report: StallReport, *_: View) -> dict[str, Form]:
    """Return the forms that this report alone has: the flame graph, and folded stacks for other viewers."""
    return {".svg": lambda: str(flame(report)), ".folded": lambda: folded(report)}


def folded(report: StallReport) -> str:
    """Return folded stacks, `kernel;line;reason samples` a line, which flame graph viewers read."""
    return "".join(f"{';'.join(_folded(name) for name in names)} {count}\n" for names, count in paths(frames(report)))


def _folded(name: str) -> str:
    return harmless(name, 400).replace(";", ",")


class StallShareDocument(Document):
    """A reason to wait, and how many samples have it."""

    reason: Annotated[str, At("reason.name")]
    group: Annotated[str, At("reason.group")]
    samples: int
    latency_samples: Annotated[int, At("latency")]
    share: Ratio
    meaning: Annotated[str, At("reason.meaning")]


class StallLineDocument(Document):
    """A line of source, and its samples by reason."""

    file: str
    line: int
    reasons: dict[str, int]


class StallSpotDocument(Document):
    """An instruction, and its samples by reason."""

    pc: int
    samples: int
    instruction: Annotated[str | None, Made(lambda found: None if found is None else str(found))]
    file: Annotated[str | None, At("place.file")]
    line: Annotated[int | None, At("place.line")]
    reasons: Annotated[dict[str, int], At("shares"), Made(_counts)]


class StallAdviceDocument(Document):
    """What helps against a reason."""

    reason: Annotated[str, At("reason.name")]
    advice: Annotated[str, At("reason.advice")]


class StalledKernelDocument(Document):
    """A kernel: what its warps waited for, by reason, by line and by instruction."""

    name: str
    mangled: str
    cubin: Annotated[str, Made(lambda checksum: f"{checksum:016x}")]
    matched_by: Annotated[Words, At("matched")]
    samples: int
    share: Ratio
    states: dict[str, int]
    reasons: list[StallShareDocument]
    lines: list[StallLineDocument]
    instructions: Annotated[list[StallSpotDocument], At("spots")]
    advice: Annotated[list[StallAdviceDocument], At("advised")]


class StallsDocument(Document):
    """The answer of `ullage cupti stalls` and `ullage run --stalls`, which adds the program's `exit`."""

    samples: int
    chip: Annotated[str | None, At("facts.chip")]
    cupti: Annotated[str | None, At("facts.release")]
    mode: Annotated[str | None, At("facts.mode")]
    cycles_per_sample: Annotated[int | None, At("facts.cycles")]
    sm_clock: Annotated[float | None, At("facts.clock")]
    counted: Annotated[int | None, At("facts.total")]
    dropped: Annotated[int | None, At("facts.dropped")]
    hardware_buffer_overflows: Annotated[int, At("facts.full")]
    reasons: list[StallShareDocument]
    kernels: list[StalledKernelDocument]
    notes: list[str]
    exit: int | UnsetType = UNSET


class ReasonsDocument(Document):
    """The answer of `ullage cupti stalls --reasons`."""

    reasons: list[ReasonDocument]


def record(report: StallReport) -> dict[str, Any]:
    """Return the report as plain data; what is not known is None."""
    kernels = [_kernel_document(one, report.samples) for one in report.kernels]
    return plain_data(StallsDocument, report, reasons=_shares(report.shares, report.samples), kernels=kernels)


def _kernel_document(kernel: KernelStalls, samples: int) -> StalledKernelDocument:
    return filled(
        StalledKernelDocument,
        kernel,
        share=kernel.samples / samples,
        states={group: kernel.count(group) for group in GROUPS},
        reasons=_shares(kernel.shares, kernel.samples),
        lines=[StallLineDocument(file=place.file, line=place.line, reasons=_counts(shares)) for place, shares in kernel.lines],
    )


def _shares(found: Sequence[StallShare], samples: int) -> list[StallShareDocument]:
    return [filled(StallShareDocument, one, share=one.samples / samples) for one in found]
