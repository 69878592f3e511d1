"""Whether somebody's table of peaks is right: each row held against the GPU it names, with the mistake that explains it.

Peaks are dense. The ways in which tables go wrong are few, and each has a number to be known by: the figure with sparsity
(twice the dense one), the figure of another precision or of another board of the family, half the figure, a unit that the
other rows do not use, a fallback that makes MFU 0 or nonsense, and a name that is part of another GPU's name.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ullage.audit.peak_tables import FALLBACK_NAMES, PeakRow
from ullage.errors import UllageError
from ullage.gpus.chip import CHIPS, Chip, find
from ullage.gpus.names import fold

Kind = Literal["right", "sparse", "precision", "sku", "unit", "half", "ambiguous", "fallback", "unexplained", "unknown", "unjudged"]

# What a verdict means. "unknown" and "unjudged" accuse nobody: Ullage does not know.
MEANINGS: Final[dict[Kind, str]] = {
    "right": "the dense peak",
    "sparse": "the figure with sparsity, twice the dense one",
    "precision": "the peak of another precision",
    "sku": "the peak of another GPU",
    "unit": "in another unit than the other rows",
    "half": "half the peak: a dense figure halved",
    "ambiguous": "the name is of several GPUs with different peaks",
    "fallback": "no peak: MFU becomes 0, infinite or negative, and nobody is told",
    "unexplained": "no peak that is known",
    "unknown": "no GPU of this name is known",
    "unjudged": "the peak of this precision is not known",
}
ROUNDING: Final = 0.015  # makers print 2,000 for 1,979, and state rounded clocks: nearer than this is the same figure
COPIED: Final = 0.005  # a figure copied from a GPU of another family is its own but for rounding: of a hundred, one is often near
SOUND: Final = frozenset({"right", "unknown", "unjudged"})

# Units by the size of the number: a peak lies between 5 TFLOP/s (an old GPU's FP64) and 50,000 (FP4 with sparsity, and room).
_UNITS: Final = ((1e9, 1.0, "FLOP/s"), (5e4, 1e9, "GFLOP/s"), (5.0, 1e12, "TFLOP/s"), (0.0, 1e15, "PFLOP/s"))

# Drivers' names of boards that `ullage gpus` does not have, whose name holds that of a much faster or slower one.
OTHER_BOARDS: Final = ("NVIDIA L20X", "NVIDIA RTX A400", "NVIDIA T400 4GB")

_WITHOUT_SPARSITY: Final = ("Volta", "Turing", "CDNA", "CDNA 2")  # no matrix unit of theirs skips zeros, so no maker prints twice the peak


@dataclass(frozen=True)
class Trap:
    """A GPU whose driver's name holds a row's name: a lookup by substring gives it this row's peak. `peak` is its own, if known."""

    gpu: str
    peak: float | None


@dataclass(frozen=True)
class Judgement:
    """A row and what is wrong with it. `value` and `right` are in FLOP/s, `right` the peak of the GPU named, where known.

    `of` names what the number really is: GPU, precision, with sparsity. `factor` is what the row does to an MFU.
    """

    row: PeakRow
    kind: Kind
    value: float | None
    right: float | None = None
    precision: str = "bf16"
    of: tuple[str, ...] = ()
    traps: tuple[Trap, ...] = ()

    @property
    def wrong(self) -> bool:
        """Whether the row gives a wrong peak to any GPU that is known."""
        return self.kind not in SOUND or bool(self.traps)

    @property
    def factor(self) -> float | None:
        """The factor that the row puts on an MFU, 1 where it is right."""
        return self.right / self.value if self.right and self.value else None


def judge(rows: Sequence[PeakRow], precision: str = "bf16", *, exact: bool = False) -> list[Judgement]:
    """Return a judgement for every row, in order. `precision` is that of rows that name none.

    `exact` says that names are compared whole: then being part of another name does no harm.
    """
    unit = _usual_unit(rows)
    return [_judged(row, row.precision or precision, unit, () if exact else rows) for row in rows]


def unit_of(number: float) -> tuple[float, str]:
    """Return the factor to FLOP/s of a peak's number, by its size, and the unit's name.

    >>> unit_of(989.4), unit_of(9.89e14)
    ((1000000000000.0, 'TFLOP/s'), (1.0, 'FLOP/s'))
    """
    return next((factor, name) for least, factor, name in _UNITS if number >= least)


def _usual_unit(rows: Iterable[PeakRow]) -> float:
    """Return the unit that most rows are written in."""
    found = [unit_of(row.number)[0] for row in rows if row.unit is None and 0 < row.number < math.inf and _names(row.name)]
    return statistics.mode(found) if found else 1e12


def _judged(row: PeakRow, precision: str, unit: float, table: Sequence[PeakRow]) -> Judgement:
    if not row.key or not 0 < row.number < math.inf or row.name.strip().lower() in FALLBACK_NAMES:
        return Judgement(row, "fallback", row.number * unit if 0 < row.number < math.inf else None, precision=precision)
    chips = _names(row.name)
    small = precision in ("fp64", "fp32") and row.number < _UNITS[2][0]  # few TFLOP/s rather than PFLOP/s
    own = unit if small or not chips else unit_of(row.number)[0]
    value = row.number * (own if row.unit is None else row.unit)
    if not chips or precision == "fp32":
        kind: Kind = "unjudged" if chips else "unknown"
        return Judgement(row, kind, value, precision=precision, traps=() if chips else tuple(_traps(row, [value], precision, (), table)))
    peaks = [peak for chip in chips for peak in _peaks(chip, precision)]
    matching = [chip for chip in chips if any(_same(value, peak) for peak in _peaks(chip, precision))]
    kind, of = _verdict(value, precision, chips, matching)
    if kind == "right" and row.unit is None and own != unit:
        kind, of = "unit", (unit_of(row.number)[1],)
    traps = tuple(_traps(row, [value, *peaks], precision, chips, table))
    return Judgement(row, kind, value, peaks[0] if peaks else None, precision, of, traps)


def _verdict(value: float, precision: str, chips: Sequence[Chip], matching: Sequence[Chip]) -> tuple[Kind, tuple[str, ...]]:
    """Return the verdict on a value for the chips of its name, of which some have that peak, and what the value is."""
    if matching:
        others = tuple(chip.name for chip in chips if chip not in matching)
        return ("ambiguous", others) if others else ("right", (chips[0].name,))
    kind, of = _explained(value, precision, chips)
    return ("unjudged", ()) if kind == "unexplained" and not _peaks(chips[0], precision) else (kind, of)


def _explained(value: float, precision: str, chips: Sequence[Chip]) -> tuple[Kind, tuple[str, ...]]:
    """Return the mistake that turns a peak into the value, and what the value really is; the likeliest first."""
    chip, peaks = chips[0], _peaks(chips[0], precision)
    found: list[tuple[Kind, str]] = []
    sparsity = chip.architecture not in _WITHOUT_SPARSITY
    if sparsity and any(_same(value, 2 * peak) for peak in peaks):
        found.append(("sparse", f"{precision} with sparsity"))
    found += [("precision", f"{other} of {chip.name}") for other in chip.precisions if other != precision and _is(value, chip, other)][:1]
    if any(_same(value, peak / 2) for peak in peaks):
        found.append(("half", f"half of {precision}"))
    found = found or _of_others(value, precision, chip)
    if not found and sparsity:
        found = [("sparse", f"{other} with sparsity") for other in chip.precisions if _is(value / 2, chip, other)][:1]
    return (found[0][0] if found else "unexplained"), tuple(of for _, of in found)


def _of_others(value: float, precision: str, chip: Chip) -> list[tuple[Kind, str]]:
    """Return the other GPUs whose peak the value is, with sparsity if not without; those of the nearest names, one of each silicon.

    A GPU of another family, with no word of its name in common, must have the very figure.
    """
    near, far = _others(chip)
    sparse = [other for other in near if other.architecture not in _WITHOUT_SPARSITY]
    found = [(other, other.name) for other in near if _is(value, other, precision)]
    found = found or [(other, f"{other.name} with sparsity") for other in sparse if _is(value / 2, other, precision)]
    found = found or [(other, other.name) for other in far if any(abs(value / peak - 1) <= COPIED for peak in _peaks(other, precision))]
    nearest: dict[tuple[int, float], str] = {}
    for other, said in found:
        if _shared(other, chip) == _shared(found[0][0], chip):
            nearest.setdefault((other.sms, other.tensor_clock), said)
    return [("sku", said) for said in list(nearest.values())[:3]]


def _others(chip: Chip) -> tuple[list[Chip], list[Chip]]:
    """Return the other chips of the same architecture or with a word of the name in common, nearest first, and all the rest."""
    others = [other for other in CHIPS.values() if other is not chip]
    others.sort(key=lambda other: (other.architecture != chip.architecture, -_shared(other, chip), len(other.name)))
    near = [other for other in others if other.architecture == chip.architecture or _shared(other, chip)]
    return near, [other for other in others if other not in near]


def _shared(other: Chip, chip: Chip) -> int:
    return len(_model_words(chip) & _model_words(other))


def _model_words(chip: Chip) -> set[str]:
    """Return the words of a chip's name without the size of its memory, which boards of any family may share."""
    words = fold(chip.name)
    return {word for word, after in zip(words, (*words[1:], ""), strict=True) if word != "gb" and after != "gb"}


def _traps(row: PeakRow, allowed: Sequence[float], precision: str, chips: Sequence[Chip], table: Sequence[PeakRow]) -> Iterator[Trap]:
    """Yield the GPUs that a lookup by substring would take for this row's: no longer name of the table holds for them.

    A GPU whose peak is among the `allowed` ones (the row's, or the right one) is none.
    """
    name = row.name.strip().casefold()
    if len(name) < 2 or not table or not fold(name):
        return
    longer = [other.name.strip().casefold() for other in table if other.key and len(other.name.strip()) > len(name)]
    own = {fold(row.name), *(fold(chip.name) for chip in chips)}
    boards = [(chip.name, _peaks(chip, precision)) for chip in CHIPS.values()] + [(board, []) for board in OTHER_BOARDS]
    for board, peaks in boards:
        driver = board.casefold()
        if name not in driver or fold(board) in own or any(other in driver for other in longer):
            continue
        if not any(_same(value, peak) for value in allowed for peak in peaks):
            yield Trap(board, peaks[0] if peaks else None)


def _names(name: str) -> list[Chip]:
    """Return the chips that a name means: one, several of different peaks, or none."""
    try:
        return [find(name)]
    except UllageError as error:
        if "may be any of" not in error.problem:
            return []
    words = fold(name)
    return [chip for chip in CHIPS.values() if words in map(fold, chip.shared_names)]


def _peaks(chip: Chip, precision: str) -> list[float]:
    """Return the peak by rates and clock, and the maker's own figure where it differs; of a GPU without BF16, FP16's."""
    wanted = "fp16" if precision == "bf16" and "bf16" not in chip.precisions else precision
    if wanted not in chip.precisions:
        return []
    stated = chip.stated.get(wanted)
    return [chip.peak(wanted), *([] if stated is None else [stated])]


def _is(value: float, chip: Chip, precision: str) -> bool:
    return precision in chip.precisions and any(_same(value, peak) for peak in _peaks(chip, precision))


def _same(value: float, peak: float) -> bool:
    return abs(value - peak) <= ROUNDING * peak
