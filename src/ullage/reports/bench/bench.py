"""What microbenchmarks found, as tables in the papers' own layout: measured beside published, and beside the stated peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from ullage.benches.bench import BENCHES, Bench, Labels, Plain, Quantity
from ullage.benches.result import BenchResult, CaseRow, Stamp, Value
from ullage.errors import UllageError, harmless
from ullage.gpus.chip import Chip, find
from ullage.gpus.measured import Ceilings
from ullage.metrics.metric import ratio
from ullage.reports.bench.power_curve import power_notes
from ullage.reports.bench.roofline import ceilings
from ullage.reports.bench.suite import MeasuredAnswer
from ullage.views.shown import ShownByView

Key = tuple[Plain, ...]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
Place = tuple[Key, Quantity]  # a column of a table: the labels that spread, and what is told under them
MEMORY = "global"  # how the labels of paths and levels begin that go through the device's memory


@dataclass(frozen=True)
class BenchNumber:
    """One number of a table. `value` is None where nothing was measured, `problem` says why if it was tried.

    `published` are the paper's figures by GPU, `peak` is what the maker states for this GPU, in the same unit, and `share` the
    measured part of it (None where the maker states none).
    """

    quantity: Quantity
    value: Value | None
    published: Mapping[str, float]
    stamp: Stamp | None = None
    problem: str = ""
    peak: float | None = None

    @property
    def share(self) -> float | None:
        """The measured value over the stated peak."""
        return None if self.value is None or self.peak is None else ratio(self.value.value, self.peak)


@dataclass(frozen=True)
class BenchLine:
    """A row of a table: the labels that name it, and its cells by column; a place that nobody tried has none."""

    labels: Key
    cells: Mapping[Place, BenchNumber]


@dataclass(frozen=True)
class BenchTable:
    """One bench's table. `places` are its columns: those that have a number somewhere, in the order of the cases and of `QUANTITIES`.

    `published` are the GPUs with figures, `nearest` the one of them of the measured GPU's generation, or "".
    """

    member: Bench
    result: BenchResult | None
    lines: tuple[BenchLine, ...]
    places: tuple[Place, ...]
    published: tuple[str, ...]
    nearest: str

    @property
    def cells(self) -> tuple[BenchNumber, ...]:
        """All cells, line by line."""
        return tuple(cell for line in self.lines for cell in line.cells.values())

    @property
    def measured(self) -> bool:
        """Whether there is any number of this machine's."""
        return any(cell.value is not None for cell in self.cells)

    @property
    def problems(self) -> dict[str, int]:
        """Why cases have no number, and how many for that reason."""
        return dict(Counter(row.problem for row in (self.result.rows if self.result else ()) if row.problem))


@dataclass(frozen=True)
class BenchList(ShownByView, view="ullage.render.bench:list"):
    """The microbenchmarks that there are."""


@dataclass(frozen=True)
class BenchReport(MeasuredAnswer, ShownByView, view="ullage.render.bench"):
    """Tables of one device (None: nothing measured yet, published figures alone), and what must be said with them."""

    gpu: str | None
    chip: Chip | None
    tables: tuple[BenchTable, ...]
    notes: tuple[str, ...]

    @property
    def results(self) -> tuple[BenchResult, ...]:
        """What was measured, bench by bench."""
        return tuple(table.result for table in self.tables if table.result is not None)

    @property
    def ceilings(self) -> Ceilings | None:
        """What bursts reached and what was sustained; None where nothing was measured, and where the results are of several devices."""
        devices = {result.machine.get("uuid_hash") for result in self.results}
        return ceilings(self.results) if len(devices) == 1 else None


def bench_report(results: Sequence[BenchResult], names: Iterable[str] = ()) -> BenchReport:
    """Return the tables of what was measured on one model of GPU, and of the benches `names` even where nothing was.

    Of a bench that was measured several times the newest result counts; results of a bench that is no longer known are left out;
    the notes say both. Raises UllageError for results of several models.
    """
    gpus = dict.fromkeys(result.gpu for result in results)
    if len(gpus) > 1:
        raise UllageError(f"the results are of several GPUs: {', '.join(harmless(gpu, 80) for gpu in gpus)}", "give the files of one")
    gpu = next(iter(gpus), None)
    chip, notes = _chip(gpu)
    newest, left_out = _newest(results)
    tables = tuple(table(BENCHES[name], newest.get(name), chip) for name in dict.fromkeys([*newest, *names]))
    said = [*notes, *left_out, *_said(newest.values()), *power_notes([*newest.values()])]
    return BenchReport(gpu, chip, tables, tuple(dict.fromkeys(said)))


def _chip(gpu: str | None) -> tuple[Chip | None, list[str]]:
    if gpu is None:
        return None, ["not measured yet: the figures are the papers' own"]
    try:
        chip = find(gpu)
    except UllageError as error:
        return None, [f"{error.problem}: nothing is compared with a stated peak"]
    return chip, [chip.warning] if chip.warning else []


def _newest(results: Sequence[BenchResult]) -> tuple[dict[str, BenchResult], list[str]]:
    """Return the result that counts for each bench, in the order given, and what is to be said about the others."""
    found: dict[str, BenchResult] = {}
    notes = []
    for result in results:
        if result.bench not in BENCHES:
            notes.append(f"no microbenchmark is called '{harmless(result.bench, 60)}' any more: its results are left out")
        elif result.bench in found:
            notes.append(f"{result.bench} was measured more than once: the newest counts")
            found[result.bench] = max(found[result.bench], result, key=lambda one: one.date)
        else:
            found[result.bench] = result
    return found, notes


def _said(results: Iterable[BenchResult]) -> Iterable[str]:
    results = list(results)
    yield from (note for result in results for note in result.notes)
    devices = {result.machine.get("uuid_hash") for result in results}
    if len(devices) > 1:
        yield f"the results are of {len(devices)} devices of this model"
    if any(result.quick for result in results):
        yield "only the cases that matter most were measured (--quick)"


def table(member: Bench, result: BenchResult | None, chip: Chip | None) -> BenchTable:
    """Return one bench's table; lines that were measured first, in their order, then those that were only published."""
    layout = member.layout
    measured: dict[tuple[Key, Key], list[CaseRow]] = {}
    for row in result.rows if result is not None else ():
        measured.setdefault((_key(row.labels, layout.rows), _key(row.labels, layout.across)), []).append(row)
    published = _published(member)
    both = list(dict.fromkeys([*measured, *((line, column) for line, column, _ in published)]))
    places = _places(dict.fromkeys(column for _, column in both), measured, published)
    lines = tuple(
        BenchLine(labels, {(c, q): _cell(q, measured.get((labels, c), []), published.get((labels, c, q), {}), chip)
                      for c, q in places if (labels, c) in measured or (labels, c, q) in published})
        for labels in dict.fromkeys(line for line, _ in both)
    )  # fmt: skip
    gpus = tuple(dict.fromkeys(figure.gpu for figure in member.figures))
    return BenchTable(member, result, lines, places, gpus, _nearest(gpus, chip))


def _key(labels: Labels, names: Sequence[str]) -> Key:
    return tuple(labels.get(name) for name in names)


_Published = Mapping[tuple[Key, Key, Quantity], Mapping[str, float]]


def _published(member: Bench) -> _Published:
    found: dict[tuple[Key, Key, Quantity], dict[str, float]] = {}
    for figure in member.figures:
        place = _key(figure.labels, member.layout.rows), _key(figure.labels, member.layout.across), figure.quantity
        found.setdefault(place, {})[figure.gpu] = figure.value
    return found


def _places(columns: Iterable[Key], measured: Mapping[tuple[Key, Key], list[CaseRow]], published: _Published) -> tuple[Place, ...]:
    """Return the columns with the quantities that have a number there; where all failed, with those of the other columns."""
    found: dict[Key, set[str]] = {column: set() for column in columns}
    for (_, column), rows in measured.items():
        found[column].update(name for row in rows for name in row.values)
    for _, column, quantity in published:
        found[column].add(quantity)
    anywhere = set().union(*found.values())
    return tuple((c, q) for c, here in _in_order(found).items() for q in QUANTITIES if q in (here or anywhere))


def _in_order(columns: Mapping[Key, set[str]]) -> Mapping[Key, set[str]]:
    """Return columns that are all numbers in ascending order, others as they came."""
    numbers = all(isinstance(label, int | float) for column in columns for label in column)
    return dict(sorted(columns.items(), key=lambda item: item[0])) if numbers else columns


def _cell(quantity: Quantity, rows: Sequence[CaseRow], published: Mapping[str, float], chip: Chip | None) -> BenchNumber:
    """Return the number of the row that has it; a case may tell one quantity of a place and another case the next."""
    row = next((row for row in rows if quantity in row.values), None)
    if row is not None:
        return BenchNumber(quantity, row.values[quantity], published, row.stamp, "", _peak(quantity, row, chip))
    return BenchNumber(quantity, None, published, problem=next((row.problem for row in rows if row.problem), ""))


def _peak(quantity: Quantity, row: CaseRow, chip: Chip | None) -> float | None:
    """Return what the maker states: FLOP/s of the row's precision (doubled for sparse products), B/s of the device's memory."""
    if chip is None:
        return None
    if quantity == "throughput" and row.precision in chip.precisions:
        return chip.peak(str(row.precision)) * (2 if row.sparse else 1)
    return chip.bandwidth if quantity == "bandwidth" and _through_memory(row.labels) else None


def _through_memory(labels: Labels) -> bool:
    """Whether bytes go through the device's memory: a path or level named so, or the weights of a whole model, which no cache holds."""
    return "model" in labels or any(isinstance(label, str) and label.startswith(MEMORY) for label in labels.values())


def _nearest(gpus: Sequence[str], chip: Chip | None) -> str:
    """Return the first published GPU of the measured one's generation; "" where none is or nothing was measured."""
    if chip is None:
        return ""
    return next((gpu for gpu in gpus if find(gpu).architecture == chip.architecture), "")
