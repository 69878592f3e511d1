"""The views of the GPUs that Ullage knows: all of them, one in full, or one of its peaks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError
from ullage.gpus import overrides
from ullage.gpus.chip import Chip
from ullage.gpus.links import MIB, Link, Pcie
from ullage.gpus.measured import Ceilings, ceilings_of
from ullage.render import ceilings
from ullage.views.declared import Document, Rate, Words, filled, plain
from ullage.views.notation import COUNT, UNCUT, Notation
from ullage.views.numbers import tera
from ullage.views.shown import ShownByView
from ullage.views.view import Cell, Column, Headline, Section, Table, Value, View

PEAK = Notation("FLOP/s", tera)  # under a heading that says TFLOP/s
MEGAHERTZ = Notation("Hz", lambda value: f"{value / 1e6:,.0f}")
GIGABYTES = Notation("B", lambda value: f"{value / 1e9:,.0f}")
WATTS = Notation("W", lambda value: f"{value:,.0f}")
SHOWN = ("bf16", "fp8", "fp4")  # precisions of the list


@dataclass(frozen=True)
class GpuList(ShownByView, view="ullage.render.gpus"):
    """GPUs that Ullage knows, with a precision if one was asked for; `named` is whether a single one was, by its name."""

    chips: tuple[Chip, ...]
    precision: str | None = None
    named: bool = False


def view(report: GpuList) -> View:
    """Return a list of GPUs, one in full, or one of its peaks."""
    if not report.named:
        return list_view(report.chips, report.precision)
    return peak_view(report.chips[0], report.precision) if report.precision else chip_view(report.chips[0])


def list_view(chips: Sequence[Chip], precision: str | None = None) -> View:
    """Return a list of GPUs with their dense peaks: at one precision, or at those that matter most."""
    wanted = [precision] if precision else SHOWN
    columns = [
        Column("name", UNCUT),
        Column("architecture", detail=True),
        Column("SMs", COUNT),
        Column("MHz", MEGAHERTZ, "tensor clock"),
    ]
    columns += [Column(one.upper(), PEAK) for one in wanted]
    columns += [Column("memory, GB", GIGABYTES, "memory", detail=True), Column("TDP, W", WATTS, detail=True), Column("confidence")]
    table = Table("gpus", columns, [_row(chip, wanted) for chip in chips], brief=len(chips), page=len(chips))
    asterisk = [] if precision else ["a chip without BF16 shows its FP16 peak, with an asterisk"]
    return View(
        kind="gpus",
        subject="GPUs that Ullage knows",
        headline=Headline(
            f"{len(chips)} GPUs", f"{f' with {precision.upper()}' if precision else ''}; peaks are dense, in TFLOP/s at the tensor clock"
        ),
        sections=[Section("gpus", "GPUs", [table])],
        notes=[*asterisk, *_overridden()],
    )


def _row(chip: Chip, precisions: Iterable[str]) -> list[Value | Cell]:
    peaks = [_peak(chip, precision) for precision in precisions]
    return [chip.name, chip.architecture, chip.sms, chip.tensor_clock, *peaks, chip.memory, chip.power, chip.confidence]


def _peak(chip: Chip, precision: str) -> Value | Cell:
    if precision in chip.precisions:
        return chip.peak(precision)
    return Cell(chip.peak("fp16"), f"{tera(chip.peak('fp16'))}*") if precision == "bf16" and "fp16" in chip.precisions else None


def peak_view(chip: Chip, precision: str) -> View:
    """Return one figure: the dense peak of a GPU at a precision."""
    answer = Headline(f"{tera(chip.peak(precision))} TFLOP/s", f" dense {precision.upper()}, {chip.name}")
    return View("gpus", chip.name, answer, notes=[*filter(None, [chip.warning]), *_overridden()])


def chip_view(chip: Chip) -> View:
    """Return everything about one GPU: its peak, its facts, a row a precision, where it comes from, and what was measured of it."""
    sixteen = "bf16" if "bf16" in chip.precisions else "fp16"
    at = f" TFLOP/s dense {sixteen.upper()} at {MEGAHERTZ.words(chip.clock(sixteen))} MHz"
    found, damaged = measured(chip)
    pair = [Column(""), Column("", wraps=True)]
    return View(
        kind="gpus",
        subject=f"{chip.vendor} {chip.architecture}",
        headline=Headline(tera(chip.peak(sixteen)), at, f"{chip.name}: "),
        sections=[
            Section("facts", "The board", [Table("facts", pair, [*map(list, _facts(chip))], brief=99)]),
            Section("precisions", "Peaks", [_precisions(chip)], _PEAKS),
            Section("sources", "Where this is from", [Table("sources", pair, [*map(list, _sources(chip))])]),
            *([ceilings.section(found, chip)] if found is not None else []),
        ],
        notes=[note for note in (chip.note, chip.warning, chip.clock_warning, *_overridden(), damaged) if note],
    )  # fmt: skip


def _facts(chip: Chip) -> Iterator[tuple[str, str]]:
    yield "architecture", f"{chip.vendor} {chip.architecture}, {chip.compute_capability}"
    yield "SMs" if chip.vendor == "NVIDIA" else "compute units", str(chip.sms)
    yield "highest SM clock", f"{MEGAHERTZ.words(chip.sm_clock)} MHz" if chip.sm_clock else "not published"
    yield "tensor clock", f"{MEGAHERTZ.words(chip.tensor_clock)} MHz ({chip.tensor_clock_status})"
    yield "memory", f"{GIGABYTES.words(chip.memory)} GB, {chip.bandwidth / 1e12:.2f} TB/s"
    yield "memory clock", f"{MEGAHERTZ.words(chip.memory_clock)} MHz" if chip.memory_clock else "not known"
    yield "L2 cache", _cache(chip)
    yield "link to GPUs", _link(chip.link)
    yield "link to CPU", _link(chip.host_link)
    yield "PCIe", _pcie(chip.pcie)
    yield "power", f"{WATTS.words(chip.power)} W"
    yield "MIG", f"{chip.mig_slices} slices" if chip.mig_slices else "none"
    yield "also called", ", ".join(chip.aliases + chip.shared_names) or "-"


def _cache(chip: Chip) -> str:
    size = "" if chip.l2 is None else f"{chip.l2 / MIB:,g} MiB"
    rate = "" if chip.l2_bandwidth is None else f"{chip.l2_bandwidth / 1e12:.1f} TB/s"
    return ", ".join(part for part in (size, rate) if part) or "not known"


def _link(link: Link | None) -> str:
    if link is None:
        return "not known or none"
    return f"{link.name}, {link.bandwidth / 1e9:,g} GB/s both directions together, {link.per_direction / 1e9:,g} each"


def _pcie(pcie: Pcie | None) -> str:
    if pcie is None:
        return "not known or none"
    return f"{pcie.generation} x{pcie.lanes}, {pcie.per_direction / 1e9:.1f} GB/s each direction"


def _precisions(chip: Chip) -> Table:
    columns = [Column("precision"), Column("FLOPs/cycle/SM", COUNT), Column("MHz", MEGAHERTZ, "clock")]
    columns += [Column("TFLOP/s", PEAK, "peak"), Column("stated", PEAK)]
    return Table("precisions", columns, [_precision(chip, precision) for precision in chip.precisions])


def _precision(chip: Chip, precision: str) -> list[Value]:
    rate = chip.flops_per_cycle.get(precision)
    return [precision, rate, chip.clock(precision) if rate else None, chip.peak(precision), chip.stated.get(precision)]


def _sources(chip: Chip) -> Iterator[tuple[str, str]]:
    yield "source", chip.source
    yield "checked", chip.checked or "no second source"
    yield "confidence", chip.confidence
    if chip.links_source:
        yield "links and caches", chip.links_source


def _overridden() -> Iterator[str]:
    if given := overrides.peaks(os.environ.get(overrides.PEAK, "")):
        listed = ", ".join(f"{precision} {tera(flops)}" for precision, flops in given.items())
        yield f"{overrides.PEAK} is set: reports take {listed} TFLOP/s for every GPU, whatever stands here"


def measured(chip: Chip) -> tuple[Ceilings | None, str]:
    """Return the ceilings that `ullage bench --save` kept of such a GPU, None without; and what is wrong where they can't be read."""
    try:
        return ceilings_of(chip.name), ""
    except UllageError as error:
        return None, f"{error.problem}: {error.hint}"


def in_order(chips: Iterable[Chip]) -> list[Chip]:
    """Return the chips by maker (NVIDIA first), then by age of the architecture, then by speed."""
    return sorted(chips, key=lambda c: (c.vendor != "NVIDIA", _age(c.compute_capability), c.peak("fp16"), c.name))


def _age(compute_capability: str) -> list[int]:
    """ "9.0" is [9, 0]; "gfx90a" counts as hexadecimal, [2314]."""
    if compute_capability.startswith("gfx"):
        return [int(compute_capability[3:], 16)]
    return [int(digits) for digits in re.findall(r"\d+", compute_capability)]


class LinkDocument(Document):
    """A link of a GPU: B/s of both directions together, and of one."""

    name: str
    bandwidth: float
    per_direction: float


class PcieDocument(Document):
    """PCI Express of a GPU: B/s of both directions together, and of one."""

    generation: int
    lanes: int
    bandwidth: float
    per_direction: float


class ToldClockDocument(Document):
    """By which factors the driver told an SM clock above what SMs counted under tensor load, and on what that was measured."""

    least: float
    most: float
    measured: str


class GpuDocument(Document):
    """A GPU in SI units (Hz, FLOP/s, B/s, B, W): what its maker says, its derived peaks, its warning, what was measured of it."""

    name: str
    vendor: str
    architecture: str
    compute_capability: str
    sms: int
    sm_clock: float | None
    tensor_clock: float
    tensor_clock_status: str
    flops_per_cycle: dict[str, int]
    bandwidth: float
    memory: float
    power: float
    stated: dict[str, Rate]
    source: str
    confidence: str
    checked: str
    note: str
    caution: str
    aliases: list[str]
    shared_names: list[str]
    mig_slices: int
    precision_clock: dict[str, float]
    link: LinkDocument | None
    host_link: LinkDocument | None
    pcie: PcieDocument | None
    l2: float | None
    l2_bandwidth: float | None
    memory_clock: float | None
    links_source: str
    told_clock: ToldClockDocument | None
    peak: dict[str, Rate]
    warning: Words
    measured: Ceilings | None


class GpusDocument(Document):
    """The answer of `ullage gpus`."""

    gpus: list[GpuDocument]


def record(report: GpuList) -> dict[str, Any]:
    """Return GPUs for JSON."""
    return plain(GpusDocument(gpus=[_gpu(chip) for chip in report.chips]))


def chip_record(chip: Chip) -> dict[str, Any]:
    """Return a chip for JSON."""
    return plain(_gpu(chip))


def _gpu(chip: Chip) -> GpuDocument:
    return filled(GpuDocument, chip, peak={one: chip.peak(one) for one in chip.precisions}, measured=measured(chip)[0])


_PEAKS = "Dense: FLOPs per cycle of an SM × SMs × clock. Stated: the maker's own figure."
