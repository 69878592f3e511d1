"""How well OFU tells the MFU of products whose FLOPs are known: the OFU paper's table II, and figures 1, 3 and 4, on this GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ullage.benches.gemm_ofu_plan import PRECISIONS, STEP
from ullage.benches.gemm_ofu_record import GemmRecording
from ullage.gpus.chip import Chip, find
from ullage.metrics.metric import ratio
from ullage.metrics.tiles import mean_absolute_error
from ullage.reports.bench.suite import MeasuredAnswer
from ullage.reports.gemms.ofu_estimates import Estimate, estimate
from ullage.views.shown import ShownByView

PAPER_COUNT = 500  # products a configuration
# OFU paper, table II: mean absolute error in points, share within 2 and 5 points; of OFU, then of adjusted OFU.
PAPER: dict[tuple[str, str], tuple[tuple[float, float, float], tuple[float, float, float]]] = {
    ("H100", "fp16"): ((1.90, 0.64, 0.96), (0.06, 1.00, 1.00)),
    ("H100", "tf32"): ((3.46, 0.44, 0.86), (0.50, 0.99, 0.99)),
    ("H100", "fp8"): ((1.58, 0.73, 0.99), (0.07, 1.00, 1.00)),
    ("GB200", "fp16"): ((1.08, 0.86, 0.99), (1.04, 1.00, 1.00)),
    ("GB200", "tf32"): ((2.10, 0.65, 0.88), (1.03, 1.00, 1.00)),
    ("GB200", "fp8"): ((0.64, 0.96, 1.00), (0.70, 1.00, 1.00)),
    ("GB200", "fp4"): ((1.21, 0.87, 0.98), (1.15, 0.95, 1.00)),
}
_PAPERS = {"Hopper": "H100", "Blackwell": "GB200"}
BASE = "tf32"  # what speedups are told against, as in figure 3


@dataclass(frozen=True)
class Statistics:
    """How far estimates of MFU are off: mean absolute error and mean error (`bias`, above 0: too high) as ratios; shares within."""

    count: int
    error: float
    within_2: float
    within_5: float
    bias: float | None = None


@dataclass(frozen=True)
class EstimatorRow:
    """A row of table II: whose (a GPU, or the paper's), the precision, the estimator, and its statistics."""

    gpu: str
    precision: str
    exact: bool | None
    adjusted: bool
    statistics: Statistics
    paper: bool = False


@dataclass(frozen=True)
class PrecisionSpeedup:
    """A square product's rate over TF32's (figure 3): measured, and as OFU × peak tells it."""

    size: int
    precision: str
    measured: float
    by_ofu: float


@dataclass(frozen=True)
class GemmOfuReport(MeasuredAnswer, ShownByView, view="ullage.render.gemm_ofu"):
    """The answer for one GPU. `overheads` are (size, executed beyond need) of squares by precision, for figure 1.

    `exact` says whether OFU by the cycle counters is there; else pictures and headline take the sampled one. `picture` names the one
    that a file takes which holds one picture.
    """

    chip: Chip
    recording: GemmRecording
    estimates: tuple[Estimate, ...]
    exact: bool
    rows: tuple[EstimatorRow, ...]
    speedups: tuple[PrecisionSpeedup, ...]
    overheads: dict[str, tuple[tuple[int, float], ...]]
    notes: tuple[str, ...]
    picture: str = "errors"

    def errors(self, precision: str, adjusted: bool) -> list[float]:
        """Return estimate − MFU of each random product, in ratios."""
        return differences([one for one in self.estimates if one.gemm.precision == precision], self.exact, adjusted)


def gemm_ofu(recording: GemmRecording) -> GemmOfuReport:
    """Return what a recorded run says. Raises UllageError for a GPU whose peaks nobody knows."""
    chip = find(recording.gpu)
    told = recording.machine.get("sms")
    sms = told if isinstance(told, int) and told > 0 else chip.sms
    estimates = tuple(estimate(seen, chip, sms) for seen in recording.observations if not seen.problem)
    rows = tuple(row for precision in PRECISIONS for row in _rows(chip, precision, estimates))
    exact = any(one.exact is not None for one in estimates)
    speedups = tuple(_speedups(estimates, chip, exact))
    said = [chip.warning, chip.clock_warning if estimates and not exact else ""]
    notes = (*_notes(recording, estimates), *filter(None, said))
    return GemmOfuReport(chip, recording, estimates, exact, rows, speedups, _overheads(estimates), notes)


def differences(estimates: Iterable[Estimate], exact: bool, adjusted: bool) -> list[float]:
    """Return estimate − MFU of the random products of which both are known."""
    pairs = ((one.ofu(exact, adjusted), one.mfu) for one in estimates if one.gemm.kind == "random")
    return [ofu - mfu for ofu, mfu in pairs if ofu is not None and mfu is not None]


def statistics(errors: Sequence[float]) -> Statistics | None:
    """Return the statistics of errors (estimate − MFU, ratios); None of none. A limit itself counts as within it.

    >>> statistics([0.5, -0.25, 0.0])
    Statistics(count=3, error=0.25, within_2=0.333..., within_5=0.333..., bias=0.083...)
    """
    if not errors:
        return None
    count, sizes = len(errors), [abs(error) for error in errors]
    within_2, within_5 = (sum(size <= limit + 1e-12 for size in sizes) / count for limit in (0.02, 0.05))
    return Statistics(count, mean_absolute_error(sum(sizes), count), within_2, within_5, sum(errors) / count)


def _rows(chip: Chip, precision: str, estimates: Sequence[Estimate]) -> Iterator[EstimatorRow]:
    mine = [one for one in estimates if one.gemm.precision == precision]
    for exact in (True, False):
        for adjusted in (False, True):
            found = statistics(differences(mine, exact, adjusted))
            if found is not None:
                yield EstimatorRow(chip.name, precision, exact, adjusted, found)
    theirs = _PAPERS.get(chip.architecture, "")
    if mine:
        for adjusted, figures in zip((False, True), PAPER.get((theirs, precision), ()), strict=False):
            yield EstimatorRow(theirs, precision, None, adjusted, Statistics(PAPER_COUNT, figures[0] / 100, *figures[1:]), paper=True)


def _speedups(estimates: Sequence[Estimate], chip: Chip, exact: bool) -> Iterator[PrecisionSpeedup]:
    squares = {(one.gemm.m, one.gemm.precision): one for one in estimates if one.gemm.kind == "square"}
    for (size, precision), one in squares.items():
        base = squares.get((size, BASE))
        if base is None or precision == BASE:
            continue
        peaks = ratio(chip.peak(precision), chip.peak(BASE))
        measured, by_ofu = ratio(one.mfu, base.mfu), ratio(one.ofu(exact, False), base.ofu(exact, False))
        if measured is not None and by_ofu is not None:
            yield PrecisionSpeedup(size, precision, measured * peaks, by_ofu * peaks)


def _overheads(estimates: Sequence[Estimate]) -> dict[str, tuple[tuple[int, float], ...]]:
    found: dict[str, dict[int, float]] = {}
    for one in estimates:
        if one.gemm.kind != "random" and one.cover is not None:
            found.setdefault(one.gemm.precision, {})[one.gemm.m] = one.cover.overhead
    return {precision: tuple(sorted(found[precision].items())) for precision in PRECISIONS if precision in found}


def _notes(recording: GemmRecording, estimates: Sequence[Estimate]) -> Iterator[str]:
    settings = recording.settings
    yield (
        f"dimensions are random multiples of {STEP} up to {settings.get('largest')}, each product sustained for "
        f"{settings.get('seconds'):g} s (paper: 5 minutes, and its FLOPs counted by Nsight Compute; here the kernel's name tells them)"
    )
    yield from (f"{precision.upper()} is left out: {why}" for precision, why in settings.get("left_out", {}).items())
    yield from settings.get("notes", ())
    unknown = Counter(one.unknown for one in estimates if one.unknown and one.gemm.kind == "random")
    if unknown:
        told = ", ".join(f"{why} ({count:,})" for why, count in unknown.most_common())
        yield f"{sum(unknown.values()):,} products have no adjusted OFU: {told}"
    failed = [seen for seen in recording.observations if seen.problem]
    if failed:
        yield f"{len(failed):,} products have no number: {failed[0].gemm.words}: {failed[0].problem}" + (", …" if len(failed) > 1 else "")
    random = [one for one in estimates if one.gemm.kind == "random"]
    if random and all(one.exact is None for one in random):
        yield "the driver told no cycle counters that fit the clock: OFU is of the sampled clock alone"
    above = sum(1 for one in random if one.mfu is not None and one.mfu > 1)
    if above:
        yield f"{above:,} products are above the stated peak: the SM clock passed the tensor clock, or the peak is wrong"
