"""A machine's GPUs as `ullage top` shows them: the answer, a row a device, and what must be said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import Annotated, Any

from msgspec import Meta

from ullage.errors import harmless
from ullage.live.sampling.course import Course
from ullage.live.sampling.gpu_processes import GpuProcess
from ullage.live.sampling.watched_device import Watched
from ullage.render import devices
from ullage.render.devices import ReadingDocument
from ullage.render.top_panels import (
    BLOCKS,
    LINK_COLUMNS,
    NARROW_LINKS,
    NARROW_PROCESSES,
    PROCESS_COLUMNS,
    factor_table,
    history_table,
    key_table,
    link_row,
    process_rows,
)
from ullage.render.top_screen import TopScreen
from ullage.views.declared import At, Document, Made, Ratio, Words, plain_data
from ullage.views.notation import FIGURES, PERCENT, PERCENT_1, UNCUT, WORDS, Notation
from ullage.views.numbers import counted, moment
from ullage.views.shown import ShownByView
from ullage.views.table import GAP
from ullage.views.text import text
from ullage.views.view import Cell, Column, Headline, Paragraph, Section, Table, Value, View, words_of

RECENT_MS = 300_000  # what the small curve spans
NARROW, WIDE = 10, 40  # cells of the small curve
UNSEEN = 120  # columns where nobody looks: a pipe or a file
CURVE = ""  # its heading says what it spans

# heading -> its notation; in the order in which they stand
_HEADS: dict[str, Notation] = {
    "GPU": WORDS, "OFU": PERCENT_1, "mean": PERCENT_1, "tensor": PERCENT, "SM": PERCENT, "util": PERCENT, CURVE: WORDS,
    "clock, MHz": FIGURES, "power, W": FIGURES, "°C": FIGURES, "memory, GB": FIGURES, "held back by": WORDS,
}  # fmt: skip
# what room goes to
_FIRST = ("GPU", "OFU", "mean", "tensor", "SM", "util", CURVE, "power, W", "clock, MHz", "°C", "held back by", "memory, GB")
ROOMY = 100  # columns from which a list shows all of its columns
LEAST_ROWS = 1
LEAST_NAME = 8  # characters of what a GPU is called


@dataclass(frozen=True)
class WatchedMachine(ShownByView, view="ullage.render.top"):
    """What is looked at: the devices, where they are read from, and how they are to be shown. `sort` is one of `SORTS`;
    `complete` is whether all of the place could be read. `processes` are those on its GPUs, where they can be known, and `screen` is what
    somebody at a terminal has chosen to see."""

    course: Course
    place: str
    sort: str = "gpu"
    prices: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True
    processes: tuple[GpuProcess, ...] = ()
    screen: TopScreen | None = None


def ordered(machine: WatchedMachine) -> list[Watched]:
    """Return the devices as they are to stand: by number; by OFU the emptiest first; by the others the highest first."""
    found, screen = list(machine.course), machine.screen or TopScreen(sort=machine.sort)
    found = _sorted_devices(found, screen.sort)
    return found[::-1] if screen.reverse else found


def _sorted_devices(found: list[Watched], sort: str) -> list[Watched]:
    if sort == "gpu":
        return found
    fields = {"util": "gpu_util", "power": "power", "temperature": "temperature", "memory": "memory_used"}
    if sort in ("ofu", "mean"):
        values = {id(d): d.ofu if sort == "ofu" else d.mean_ofu for d in found}
        return sorted(found, key=lambda d: (values[id(d)] is None, values[id(d)] or 0.0))
    return sorted(found, key=lambda d: -(d.row.get(fields[sort]) or 0.0))


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


def shown_devices(machine: WatchedMachine) -> list[Watched]:
    """Return the devices that the words of a filter leave, as they are to stand: of those, words are looked for in every column of
    devices and of links, however many of them a terminal has room for."""
    find = "" if machine.screen is None else machine.screen.find
    return [device for device in ordered(machine) if not find or _has_words(_words_of_device(device, machine.course), find)]


def _words_of_device(device: Watched, course: Course) -> str:
    columns = [*(Column(head, notation) for head, notation in _HEADS.items()), *LINK_COLUMNS]
    return _words_of_row(columns, [*_cells(device, course).values(), *link_row(device, "")])


def grid(machine: WatchedMachine, width: int) -> Table:
    """Return the columns for which there is room, the most telling first; the curve takes what is left over."""
    found = shown_devices(machine)
    rows = [_cells(device, machine.course) for device in found]
    need = {head: _wide(Column(head, notation), [row[head] for row in rows]) for head, notation in _HEADS.items()}
    need["GPU"] = room = min(need["GPU"], max(LEAST_NAME, width // 3))
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
    columns = [Column(head or words, _HEADS[head], head or "curve", room=room + len(_MARK) if head == "GPU" else 0) for head in heads]
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
        sections=[Section("devices", "Devices", [grid(machine, width)]), *_process_section(machine, width)],
        notes=_notes(machine),
    )


def _process_section(machine: WatchedMachine, width: int) -> list[Section]:
    """Return the processes as a section, none where none are known."""
    if not machine.processes:
        return []
    rows = process_rows(machine.processes, machine.course, "gpu", reverse=False, tree=False)
    return [Section("processes", "Processes", [_with_room("processes", PROCESS_COLUMNS, NARROW_PROCESSES, rows, width)])]


def _with_room(name: str, columns: Sequence[Column], narrow: Sequence[int], rows: Sequence[Sequence[Value | Cell]], width: int) -> Table:
    """Return a table of those columns for which a terminal has room."""
    shown = range(len(columns)) if width >= ROOMY else narrow
    return Table(name, [columns[place] for place in shown], [[row[place] for place in shown] for row in rows], brief=len(rows))


def fitted_view(machine: WatchedMachine, width: int, height: int | None) -> View:
    """Return the answer as a terminal of this size shows it: what somebody has chosen there, in as many lines as there are."""
    if machine.screen is None:
        return view(machine, width)
    table, rest = listed(machine, width), replace(view(machine, width), sections=[], notes=[])
    keys = Paragraph(_key_line(machine, machine.screen, width))
    above = text(rest, width=width, fill=True).count("\n")
    room = len(table.rows) if height is None else max(LEAST_ROWS, height - above - 5)  # blanks around, the heading, the keys
    first = max(0, min(machine.screen.chosen - room // 2, len(table.rows) - room))
    shown = replace(table, rows=table.rows[first : first + room], brief=room)
    nothing = Paragraph(_NOTHING.get(table.name, "no row has these words"))
    return replace(rest, sections=[Section(table.name, "", [shown if table.rows else nothing]), Section("keys", "", [keys])])


_NOTHING = {
    "processes": "no process is known here: a driver tells its own machine's alone, and a container sees its own",
    "notes": "nothing to note",
}


def listed(machine: WatchedMachine, width: int = UNSEEN) -> Table:
    """Return all rows of the list that somebody has chosen, where the chosen row is marked."""
    screen = machine.screen or TopScreen()
    if screen.panel == "processes":
        rows = process_rows(machine.processes, machine.course, screen.process_sort, screen.reverse, screen.tree)
        left = [row for row in rows if _has_words(_words_of_row(PROCESS_COLUMNS, row), screen.find)]
        table = _with_room("processes", PROCESS_COLUMNS, NARROW_PROCESSES, left, width)
    elif screen.panel == "links":
        rows = [link_row(one, devices.named(one, machine.course)) for one in shown_devices(machine)]
        table = _with_room("links", LINK_COLUMNS, NARROW_LINKS, rows, width)
    elif screen.panel == "history" and len(machine.course):
        return history_table(chosen_device(machine), max(NARROW, width - 50))
    elif screen.panel == "factors":
        return factor_table(machine.course)
    elif screen.panel == "notes":
        return Table("notes", [Column("note", UNCUT)], [[harmless(line, 1000)] for note in _notes(machine) for line in wrap(note, width)])
    elif screen.panel == "help":
        return key_table()
    else:
        table = grid(machine, width - len(_MARK))
    chosen = max(0, min(screen.chosen, len(table.rows) - 1))
    marked: list[Sequence[Value | Cell]] = [[_marked(row[0], place == chosen), *row[1:]] for place, row in enumerate(table.rows)]
    return replace(table, rows=marked, brief=len(marked))


def rows_to_choose_from(machine: WatchedMachine) -> int:
    """Return among how many rows the keys choose: those of the list, and where one device is shown those of the list of devices."""
    in_history = machine.screen is not None and machine.screen.panel == "history"
    return len(shown_devices(machine)) if in_history else len(listed(machine).rows)


_MARK = "▸ "


def _marked(cell: Value | Cell, chosen: bool) -> Cell:
    return Cell(f"{_MARK if chosen else ' ' * len(_MARK)}{cell.value if isinstance(cell, Cell) else cell}")


def _words_of_row(columns: Sequence[Column], row: Sequence[Value | Cell]) -> str:
    return " ".join(words_of(cell if isinstance(cell, Cell) else Cell(cell), column) for cell, column in zip(row, columns, strict=True))


def _has_words(shown: str, words: str) -> bool:
    return all(word in shown.casefold() for word in words.casefold().split())


def chosen_device(machine: WatchedMachine) -> Watched:
    """Return the device whose row is chosen among those that the filter leaves, of all where it leaves none; there must be one."""
    screen, left = machine.screen or TopScreen(), shown_devices(machine) or ordered(machine)
    return left[max(0, min(screen.chosen, len(left) - 1))]


def _key_line(machine: WatchedMachine, screen: TopScreen, width: int) -> str:
    """Return the last line: what was chosen, and the keys that matter here."""
    if screen.typing:
        return harmless(f"/{screen.find}▏ Enter keeps, Esc drops", width)
    sort = screen.process_sort if screen.panel == "processes" else screen.sort
    chosen = [f"by {sort}{' reversed' if screen.reverse else ''}"] if screen.panel in ("devices", "processes", "links") else []
    chosen += [f"GPU {devices.named(chosen_device(machine), machine.course)}"] if screen.panel == "history" and len(machine.course) else []
    chosen += [f"/{screen.find}"] if screen.find else []
    chosen += ["HELD"] if screen.held else []
    chosen += [f"{counted(len(_notes(machine)), 'note')} (n)"] if _notes(machine) and screen.panel != "notes" else []
    keys = "q quit  h help  p processes  l links  Enter history  s sort  / filter"
    line = "; ".join(chosen)
    return harmless(f"{line}{'  ' if line else ''}{keys}"[:width], width)


def _notes(machine: WatchedMachine) -> list[str]:
    return devices.notes(machine.course, [*_age_notes(machine.course), *machine.notes])


def _age_notes(course: Course) -> Iterator[str]:
    """Say which processes and errors are older than the reading beside which they stand."""
    for what in ("processes", "errors"):
        ages = {devices.named(device, course): age for device in course if (age := device.age(what))}
        if ages:
            yield f"the {what} of GPU {devices.some(list(ages))} are up to {max(ages.values()):.0f} s old: the driver tells nothing newer"


Age = Annotated[float, Meta(description="s by which what is told of them is older than the reading: 0 where it came with it")]


class TopDeviceDocument(ReadingDocument):
    """A device: beside these keys every field that was last told of it, and the mean of each."""

    mean_ofu: Ratio | None
    processes_age: Age | None
    errors_age: Age | None
    held_back_by: str | None
    unknown: Words


class TopProcessDocument(Document):
    """A process on a device: memory in B, `cpu` in CPUs' worth, `running` in s; null is not known."""

    gpu: str
    mig: str | None
    pid: int
    kind: str
    user: str | None
    job: str | None
    sm_share: Ratio | None
    gpu_memory: float | None
    cpu: float | None
    host_memory: float | None
    running: float | None
    command: str | None


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
    processes: Annotated[list[TopProcessDocument], Made(list)]
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
        processes=[plain_data(TopProcessDocument, one, gpu=one.device[0], mig=one.device[1]) for one in machine.processes],
        notes=_notes(machine),
    )


def _device_record(device: Watched) -> dict[str, Any]:
    means = {f"mean_{name}": mean.value for name, mean in device.means.items()}
    ages = {f"{what}_age": device.age(what) for what in ("processes", "errors")}
    about = {**ages, "held_back_by": devices.held_back(device), "unknown": device.unknown or None}
    return {**devices.record(device), "mean_ofu": device.mean_ofu, **means, **about}
