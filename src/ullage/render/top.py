"""A machine's GPUs as `ullage top` shows them: the answer, a row a device, and what must be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from ullage.errors import harmless
from ullage.live.sampling.course import Course
from ullage.live.sampling.watched_device import Watched
from ullage.render import devices
from ullage.render.devices import ReadingDocument
from ullage.views.declared import At, Document, Made, Ratio, Words, plain_data
from ullage.views.notation import FIGURES, PERCENT, PERCENT_1, WORDS, Notation
from ullage.views.numbers import moment
from ullage.views.shown import ShownByView
from ullage.views.table import GAP
from ullage.views.view import Cell, Column, Headline, Section, Table, View, words_of

RECENT_MS = 300_000  # what the small curve spans
NARROW, WIDE = 10, 40  # cells of the small curve
UNSEEN = 120  # columns where nobody looks: a pipe or a file
BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = ""  # its heading says what it spans

# heading -> its notation; in the order in which they stand
_HEADS: dict[str, Notation] = {
    "GPU": WORDS, "OFU": PERCENT_1, "mean": PERCENT_1, "tensor": PERCENT, "SM": PERCENT, "util": PERCENT, CURVE: WORDS,
    "clock, MHz": FIGURES, "power, W": FIGURES, "°C": FIGURES, "memory, GB": FIGURES, "held back by": WORDS,
}  # fmt: skip
# what room goes to
_FIRST = ("GPU", "OFU", "mean", "tensor", "SM", "util", CURVE, "power, W", "clock, MHz", "°C", "held back by", "memory, GB")
SORTS = ("gpu", "ofu", "mean", "util", "power", "temperature", "memory")


@dataclass(frozen=True)
class WatchedMachine(ShownByView, view="ullage.render.top"):
    """What is looked at: the devices, where they are read from, and how they are to be shown. `sort` is one of `SORTS`;
    `complete` is whether all of the place could be read."""

    course: Course
    place: str
    sort: str = "gpu"
    prices: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True


def ordered(machine: WatchedMachine) -> list[Watched]:
    """Return the devices as they are to stand: by number; by OFU the emptiest first; by the others the highest first."""
    found = list(machine.course)
    if machine.sort == "gpu":
        return found
    fields = {"util": "gpu_util", "power": "power", "temperature": "temperature", "memory": "memory_used"}
    if machine.sort in ("ofu", "mean"):
        values = {id(d): d.ofu if machine.sort == "ofu" else d.mean_ofu for d in found}
        return sorted(found, key=lambda d: (values[id(d)] is None, values[id(d)] or 0.0))
    return sorted(found, key=lambda d: -(d.row.get(fields[machine.sort]) or 0.0))


def curve(device: Watched, cells: int, span_ms: int = RECENT_MS) -> str:
    """Return the device's OFU over the last `span_ms` as blocks from empty to full, a blank where it is not known."""
    sums, counts = [0.0] * cells, [0] * cells
    for time, span, ofu in device.course:
        age = device.time - time
        for back in range(age * cells // span_ms, min(cells - 1, int(age + span - 1) * cells // span_ms) + 1):
            if ofu is not None:
                sums[cells - 1 - back] += ofu
                counts[cells - 1 - back] += 1
    means = [part / count if count else None for part, count in zip(sums, counts, strict=True)]
    return "".join(" " if mean is None else BLOCKS[max(0, min(7, int(mean * 8 + 1e-6)))] for mean in means)


def _lately(course: Course, cells: int) -> tuple[int, str]:
    """Return the time that the curve spans, in ms and in words: five minutes at most, and at least a reading a cell."""
    watched = course.last - (course.start or 0)
    span = min(RECENT_MS, max(watched, round(1000 * course.interval) * cells))
    return span, f"last {span / 60_000:.0f} min" if span >= 100_000 else f"last {span / 1000:.0f} s"


def _cells(device: Watched, course: Course) -> dict[str, Cell]:
    row = device.row
    return {
        "GPU": Cell(devices.named(device, course)),
        "OFU": Cell(device.ofu, level=device.ofu),
        "mean": Cell(device.mean_ofu, level=device.mean_ofu),
        "tensor": Cell(row.get("tensor_active")),
        "SM": Cell(row.get("sm_active")),
        "util": Cell(row.get("gpu_util")),
        CURVE: Cell(" " * NARROW),  # drawn once its width is known
        "clock, MHz": Cell(row.get("sm_clock"), devices.clock(device)),
        "power, W": Cell(row.get("power"), devices.power(device)),
        "°C": Cell(row.get("temperature"), devices.temperature(device)),
        "memory, GB": Cell(row.get("memory_used"), devices.memory(device)),
        "held back by": Cell("does not answer" if device.silent else devices.held_back(device, 20)),
    }


def grid(machine: WatchedMachine, width: int) -> Table:
    """Return the columns for which there is room, the most telling first; the curve takes what is left over."""
    found = ordered(machine)
    rows = [_cells(device, machine.course) for device in found]
    need = {head: _wide(Column(head, notation), [row[head] for row in rows]) for head, notation in _HEADS.items()}
    taken, used = set[str](), -len(GAP)
    for head in _FIRST:
        if used + len(GAP) + need[head] <= width:
            taken.add(head)
            used += len(GAP) + need[head]
    heads = [head for head in _HEADS if head in taken]
    words = ""
    if CURVE in taken:
        cells = min(WIDE, NARROW + width - used)
        span, words = _lately(machine.course, cells)
        drawn = [curve(device, cells, span) for device in found]
        rows = [{**row, CURVE: Cell(blocks, level=device.ofu)} for row, blocks, device in zip(rows, drawn, found, strict=True)]
        words = words[:cells]
    columns = [Column(head or words, _HEADS[head], head or "curve") for head in heads]
    return Table("devices", columns, [[row[head] for head in heads] for row in rows], brief=len(rows))


def _wide(column: Column, cells: Sequence[Cell]) -> int:
    return max(len(column.heading), *(len(words_of(cell, column)) for cell in cells)) if cells else len(column.heading)


def view(machine: WatchedMachine, width: int = UNSEEN) -> View:
    """Return the answer as data, of each device what fits a terminal of this width."""
    totals, last = machine.course.totals(machine.prices), machine.course.last
    when = f"{moment(last, seconds=True)} UTC" if last else "no reading yet"
    return View(
        kind="top",
        subject="GPUs",
        headline=Headline(devices.headline(totals, now=True)),
        basis=[f"{harmless(machine.place, 60)}, {when}: {devices.basis(totals)}"],
        sections=[Section("devices", "Devices", [grid(machine, width)])],
        notes=_notes(machine),
    )


def fitted_view(machine: WatchedMachine, width: int, height: int | None) -> View:  # noqa: ARG001 - a describer's `fitted`
    """Return the answer as a terminal of this width shows it."""
    return view(machine, width)


def _notes(machine: WatchedMachine) -> list[str]:
    return devices.notes(machine.course, list(machine.notes))


class TopDeviceDocument(ReadingDocument):
    """A device: beside these keys every field that was last told of it, and the mean of each."""

    mean_ofu: Ratio | None
    held_back_by: str | None
    unknown: Words


class TopDocument(Document):
    """The answer of `ullage top`: ratios in [0, 1], SI units, `time` in ms since 1970."""

    time: int | None
    place: str
    ofu_now: Annotated[Ratio | None, At("now")]
    ofu: Ratio | None
    method: str | None
    gpus: float
    gpus_known: Annotated[float, At("known")]
    ullage_gpus: Annotated[float | None, At("ullage")]
    cost_per_hour: Annotated[float | None, At("cost")]
    silent: int
    devices: Annotated[list[TopDeviceDocument], Made(list)]
    notes: list[str]


def record(machine: WatchedMachine) -> dict[str, Any]:
    """Return the readings as plain data, null for what is not known."""
    totals = machine.course.totals(machine.prices)
    return plain_data(
        TopDocument,
        totals,
        time=machine.course.last or None,
        place=machine.place,
        method=None if totals.ofu is None else "exact" if totals.exact else "sampled",
        devices=[_device_record(device) for device in ordered(machine)],
        notes=_notes(machine),
    )


def _device_record(device: Watched) -> dict[str, Any]:
    means = {f"mean_{name}": mean.value for name, mean in device.means.items()}
    about = {"held_back_by": devices.held_back(device), "unknown": device.unknown or None}
    return {**devices.record(device), "mean_ofu": device.mean_ofu, **means, **about}
