"""A machine's GPUs as `ullage top` shows them: the answer, a row a device, and what must be said; as text, for a terminal, as data."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ullage.errors import harmless
from ullage.live.sampling.course import Course
from ullage.live.sampling.watched_device import Watched
from ullage.render import devices
from ullage.render.devices import ReadingDocument
from ullage.views.declared import At, Document, Made, Ratio, Words, plain_data
from ullage.views.numbers import moment
from ullage.views.table import table

RECENT_MS = 300_000  # what the small curve spans
NARROW, WIDE = 10, 40  # cells of the small curve
BLOCKS = "▁▂▃▄▅▆▇█"
GAP = 2

# heading -> its cell; in the order in which they stand
_HEADS = ("GPU", "OFU", "mean", "tensor", "SM", "util", "", "clock, MHz", "power, W", "°C", "memory, GB", "held back by")
_FIRST = (
    "GPU",
    "OFU",
    "mean",
    "tensor",
    "SM",
    "util",
    "",
    "power, W",
    "clock, MHz",
    "°C",
    "held back by",
    "memory, GB",
)  # what room goes to
SORTS = ("gpu", "ofu", "mean", "util", "power", "temperature", "memory")


@dataclass(frozen=True)
class TopView:
    """What is looked at: the devices, where they are read from, and how they are to be shown. `sort` is one of `SORTS`."""

    course: Course
    place: str
    sort: str = "gpu"
    prices: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def ordered(view: TopView) -> list[Watched]:
    """Return the devices as they are to stand: by number; by OFU the emptiest first; by the others the highest first."""
    found = list(view.course)
    if view.sort == "gpu":
        return found
    fields = {"util": "gpu_util", "power": "power", "temperature": "temperature", "memory": "memory_used"}
    if view.sort in ("ofu", "mean"):
        values = {id(d): d.ofu if view.sort == "ofu" else d.mean_ofu for d in found}
        return sorted(found, key=lambda d: (values[id(d)] is None, values[id(d)] or 0.0))
    return sorted(found, key=lambda d: -(d.row.get(fields[view.sort]) or 0.0))


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


def _cells(device: Watched, course: Course) -> dict[str, str]:
    row = device.row
    return {
        "GPU": devices.named(device, course),
        "OFU": devices.fine(device.ofu),
        "mean": devices.fine(device.mean_ofu),
        "tensor": devices.share(row.get("tensor_active")),
        "SM": devices.share(row.get("sm_active")),
        "util": devices.share(row.get("gpu_util")),
        "": " " * NARROW,  # drawn once its width is known
        "clock, MHz": devices.clock(device),
        "power, W": devices.power(device),
        "°C": devices.temperature(device),
        "memory, GB": devices.memory(device),
        "held back by": "does not answer" if device.silent else devices.held_back(device, 20),
    }


@dataclass(frozen=True)
class TopGrid:
    """The heads and the cells that fit a width, and their devices."""

    heads: list[str]
    rows: list[list[str]]
    devices: list[Watched]


def grid(view: TopView, width: int) -> TopGrid:
    """Return the columns for which there is room, the most telling first; the curve takes what is left over."""
    found = ordered(view)
    rows = [_cells(device, view.course) for device in found]
    need = {head: max(len(head), *(len(row[head]) for row in rows)) if rows else len(head) for head in _HEADS}
    taken, used = set[str](), -GAP
    for head in _FIRST:
        if used + GAP + need[head] <= width:
            taken.add(head)
            used += GAP + need[head]
    heads = [head for head in _HEADS if head in taken]
    words, cells = "", NARROW
    if "" in taken:
        cells = min(WIDE, NARROW + width - used)
        span, words = _lately(view.course, cells)
        rows = [{**row, "": curve(device, cells, span)} for row, device in zip(rows, found, strict=True)]
    return TopGrid([head or words[:cells] for head in heads], [[row[head] for head in heads] for row in rows], found)


def _lines(view: TopView) -> tuple[str, str]:
    totals = view.course.totals(view.prices)
    when = f"{moment(view.course.last, seconds=True)} UTC" if view.course.last else "no reading yet"
    return devices.headline(totals, now=True), f"{harmless(view.place, 60)}, {when}: {devices.basis(totals)}"


def _notes(view: TopView) -> list[str]:
    return devices.notes(view.course, list(view.notes))


def text(view: TopView, width: int) -> str:
    """Return the view as plain text no wider than `width`."""
    shown = grid(view, width)
    parts = ["\n".join(textwrap.fill(line, width) for line in _lines(view))]
    if shown.rows:
        parts.append(_table(shown))
    parts.append("\n".join(textwrap.fill(f"note: {note}", width, subsequent_indent="  ") for note in _notes(view)))
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(shown: TopGrid) -> str:
    """Return the table, words to the left and numbers to the right."""
    columns = list(zip(shown.heads, *shown.rows, strict=True))
    padded = [[cell.ljust(max(map(len, column))) if _words(column[0]) else cell for cell in column] for column in columns]
    head, *rows = zip(*padded, strict=True)
    return table(head, rows)


def _words(head: str) -> bool:
    """Return whether a column holds words and not numbers."""
    return head in ("GPU", "held back by") or head.startswith("last")


def screen(view: TopView, width: int) -> Group:
    """Return the view for a terminal, in colour where the terminal has any."""
    shown = grid(view, width)
    answer, rest = _lines(view)
    body = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for head in shown.heads:
        body.add_column(
            head,
            justify="left" if _words(head) else "right",
            no_wrap=True,
            style="cyan" if head.startswith("last") else _STYLES.get(head, ""),
        )
    for device, row in zip(shown.devices, shown.rows, strict=True):
        cells = [Text(cell, style=_level(device.ofu) if head == "OFU" else "") for head, cell in zip(shown.heads, row, strict=True)]
        body.add_row(*cells, style="red" if device.silent else "")
    notes = [Text(f"note: {note}", style="dim") for note in _notes(view)]
    return Group(Text(answer, style="bold"), Text(rest, style="dim"), Text(""), body, *([Text(""), *notes] if notes else []))


_STYLES = {"held back by": "yellow", "util": "dim"}


def _level(ofu: float | None) -> str:
    return "dim" if ofu is None else "bold red" if ofu < 0.2 else "bold yellow" if ofu < 0.4 else "bold green"


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


def as_data(view: TopView) -> dict[str, Any]:
    """Return the view as plain data, null for what is not known."""
    totals = view.course.totals(view.prices)
    return plain_data(
        TopDocument,
        totals,
        time=view.course.last or None,
        place=view.place,
        method=None if totals.ofu is None else "exact" if totals.exact else "sampled",
        devices=[_device_record(device) for device in ordered(view)],
        notes=_notes(view),
    )


def _device_record(device: Watched) -> dict[str, Any]:
    means = {f"mean_{name}": mean.value for name, mean in device.means.items()}
    about = {"held_back_by": devices.held_back(device), "unknown": device.unknown or None}
    return {**devices.record(device), "mean_ofu": device.mean_ofu, **means, **about}
