"""How much of a product of matrices is padding, under a kernel's tiles or predicted ones: the answer of `ullage gemm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ullage.errors import UllageError, harmless
from ullage.gpus import chip as gpus
from ullage.gpus.chip import Chip
from ullage.gpus.precision import PRECISIONS, canonical
from ullage.kernels.gemms.gemm import GemmName
from ullage.kernels.gemms.legacy import impossible_on, legacy_on
from ullage.kernels.gemms.number_types import BITS as NAMED_BITS
from ullage.kernels.heuristics import advise
from ullage.kernels.prediction import RESULT_BITS, PredictionMachine, machine, predict, suited
from ullage.kernels.tiling import Cover, TiledProduct, Tiling
from ullage.metrics.tiles import adjusted_ofu
from ullage.reports.gemms.question import TAKEN, decoded, known, refuse_slices
from ullage.reports.gemms.question import GemmRequest as GemmRequest
from ullage.reports.gemms.question import Heuristics as Heuristics
from ullage.reports.gemms.question import TilingSource as TilingSource
from ullage.views.shown import ShownByView

DEFAULT_GPU = "H100 SXM"
_THEIRS = "nvMatmulHeuristics"
# The board that an architecture of a name means, where its kernels run on no other generation; an sm80 kernel runs on all later ones
_USUAL = {"sm90": "H100 SXM", "sm100": "B200", "sm103": "B300"}
_UNALIGNED = "rows of M or K elements that are not multiples of 16 bytes: TMA fetches none such, tiles are those of older kernels"
_NAMED = {"e4m3": "fp8", "e5m2": "fp8", "uint8": "int8"}  # types of kernels' names that share the peak of another


@dataclass(frozen=True)
class GemmReport(ShownByView, view="ullage.render.gemm"):
    """A product as it is executed; `chip` None: no GPU is known, and nothing is said of waves and peaks.

    `unknown` are the parts of the tiling that nobody told ("cluster", "k_tile", "split_k") and that `cover` goes without.
    """

    cover: Cover
    source: TilingSource
    dtype: str
    chip: Chip | None = None
    kernel: GemmName | None = None
    ofu: float | None = None
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def product(self) -> TiledProduct:
        """The product, with M and N as the library counts them."""
        return self.cover.product

    @property
    def tiling(self) -> Tiling:
        """The tiles it is cut into."""
        return self.cover.tiling

    @property
    def waves(self) -> int | None:
        """In how many waves the blocks run."""
        return None if self.chip is None else self.cover.waves(self.chip.sms)

    @property
    def wave_efficiency(self) -> float | None:
        """How full these waves are."""
        return None if self.chip is None else self.cover.wave_efficiency(self.chip.sms)

    @property
    def intensity(self) -> float:
        """FLOPs per byte of memory, when A and B are read once and C is written once."""
        p = self.product
        result = NAMED_BITS.get(self.kernel.result or "") if self.kernel is not None else None
        inputs = NAMED_BITS[self.dtype]
        bits = p.batch * ((p.m * p.k + p.k * p.n) * inputs + p.m * p.n * (result or RESULT_BITS.get(self.dtype, inputs)))
        return p.flops * 8 / bits

    @property
    def peak(self) -> float | None:
        """The GPU's peak at this precision in FLOP/s; None without a GPU, and for types that have no peak of tensor cores."""
        return None if self.chip is None or self.dtype not in PRECISIONS else self.chip.peak(self.dtype)

    @property
    def ridge(self) -> float | None:
        """The arithmetic intensity at which the GPU reaches its peak, FLOP/B."""
        return None if self.chip is None or self.peak is None else self.peak / self.chip.bandwidth

    @property
    def memory_bound(self) -> bool | None:
        """Whether memory bandwidth holds the product below the peak."""
        return None if self.ridge is None else self.intensity < self.ridge

    @property
    def legacy(self) -> str | None:
        """Why the kernel cannot reach this GPU's peak, None where it can or where nothing is known of it."""
        if self.kernel is None or self.chip is None:
            return None
        return legacy_on(self.kernel, self.chip.compute_capability)

    @property
    def mfu_ceiling(self) -> float | None:
        """The MFU that padding, the last wave and memory leave at most: less than that is the kernel's and the clock's doing.

        A peak is stated at the clock of tensor cores under load, and a cool GPU may run its SMs faster.
        """
        if self.wave_efficiency is None or self.ridge is None:
            return None
        return min(self.cover.efficiency * self.wave_efficiency * self.clock_headroom, self.intensity / self.ridge)

    @property
    def clock_headroom(self) -> float:
        """The highest SM clock over the one at which the peak is stated; 1 where neither is known to be higher."""
        clock = 0.0 if self.chip is None or self.dtype not in PRECISIONS else self.chip.clock(self.dtype)
        return max(1.0, (self.chip.sm_clock or 0.0) / clock) if self.chip is not None and clock else 1.0

    @property
    def adjusted_ofu(self) -> float | None:
        """The measured OFU without the padding (eq. 8): the MFU to expect of these products alone."""
        value: float | None = None if self.ofu is None else adjusted_ofu(self.ofu, self.cover.efficiency)
        return value


def gemm(product: TiledProduct, question: GemmRequest) -> GemmReport:
    """Return how a product is executed. Raises UllageError for an unknown GPU, precision or kernel, and for a name without a tile."""
    return sweep([product], question)[0]


@dataclass(frozen=True)
class GemmSweep(ShownByView, view="ullage.render.gemm_sweep"):
    """Several products under one question."""

    reports: tuple[GemmReport, ...]


def sweep(products: Sequence[TiledProduct], question: GemmRequest) -> list[GemmReport]:
    """Return the reports of several products under one question; NVIDIA's heuristics are asked once for all."""
    kernel = decoded(question.kernel)
    dtype, notes = _dtype(question, kernel)
    chip, said = _chip(question, kernel)
    _refuse_chip(chip, dtype, kernel)
    notes += said
    tiling, source, unknown = known(question, kernel)
    notes += (
        [TAKEN[part] for part in unknown]
        + list(kernel.doubts if kernel is not None else ())
        + ([chip.warning] if chip is not None and chip.warning else [])
    )
    blank = GemmReport(Cover(products[0], Tiling((1, 1))), source, dtype, chip, kernel, question.ofu, unknown, tuple(notes))
    if tiling is not None:
        for product in products:
            refuse_slices(product, tiling, question)
        return [replace(blank, cover=Cover(product, tiling)) for product in products]
    assert chip is not None  # without a kernel or a tile a GPU is taken
    return [
        replace(blank, cover=Cover(product, found), source=by, notes=(*blank.notes, *why))
        for product, (found, by, why) in zip(products, predicted(products, dtype, chip, question.heuristics), strict=True)
    ]


def squares(report: GemmReport) -> list[GemmReport]:
    """Return square products from 1024 to 16384 on the terms of a report: the same tile, or each predicted as this one was."""
    products = [TiledProduct(size, size, size) for size in range(1024, 16385, 128)]
    if report.source.whose != "predicted" or report.chip is None:
        return [replace(report, cover=Cover(product, report.tiling)) for product in products]
    found = predicted(products, report.dtype, report.chip, "nvidia" if report.source.by.startswith(_THEIRS) else "ours")
    return [replace(report, cover=Cover(product, tiling), source=by) for product, (tiling, by, _) in zip(products, found, strict=True)]


Prediction = tuple[Tiling, TilingSource, tuple[str, ...]]


def predicted(products: Sequence[TiledProduct], dtype: str, chip: Chip, heuristics: Heuristics) -> list[Prediction]:
    """Return for each product a tiling, who predicted it, and a note where NVIDIA's library was wanted and gave no answer."""
    on = machine(chip.compute_capability, chip.sms, chip.peak(dtype) / (chip.sms * chip.clock(dtype)), dtype)
    if heuristics != "nvidia":
        return [_own(product, dtype, on) for product in products]
    advice = advise(products, dtype, chip.name)
    theirs = TilingSource("predicted", f"{_THEIRS} {advice.version}")
    fallback = (f"{advice.problem}; our own model is used instead",)
    return [
        (tiling, theirs, ()) if tiling is not None else _own(product, dtype, on, fallback)
        for product, tiling in zip(products, advice.tilings, strict=True)
    ]


def _own(product: TiledProduct, dtype: str, on: PredictionMachine, notes: tuple[str, ...] = ()) -> Prediction:
    """Return what our own model predicts."""
    used = suited(on, product, dtype)
    source = TilingSource("predicted", f"our own model, {used.unit} tiles on {on.sms} SMs")
    return predict(product, dtype, used), source, (*notes, _UNALIGNED) if used != on else notes


def _dtype(question: GemmRequest, kernel: GemmName | None) -> tuple[str, list[str]]:
    """Return the precision: as asked, else as the kernel's name says, else bf16; with a note where the two disagree."""
    named = _NAMED.get(kernel.a or "", kernel.a) if kernel is not None else None
    if question.dtype is None and named is not None and named not in PRECISIONS:
        return named, [f"{named} has no peak of tensor cores: nothing is said of MFU"]
    if question.dtype is None:
        return named or "bf16", [] if named or kernel is None else ["the name says no type: bf16 is assumed"]
    asked = canonical(question.dtype)
    return asked, [f"the name says {named}, and --dtype {asked}"] if named and named != asked else []


def _refuse_chip(chip: Chip | None, dtype: str, kernel: GemmName | None) -> None:
    """Raise where the GPU lacks the precision, or can't run the kernel."""
    if chip is None:
        return
    if kernel is not None and (why := impossible_on(kernel, chip.compute_capability)) is not None:
        raise UllageError(f"'{harmless(kernel.name, 120)}' {why} ({chip.name})", "name another --gpu, or leave it out")
    if dtype in PRECISIONS:
        chip.peak(dtype)


def _chip(question: GemmRequest, kernel: GemmName | None) -> tuple[Chip | None, list[str]]:
    """Return the GPU: as asked, else the usual board of the kernel's architecture; to predict, an H100 where nothing is said."""
    if question.gpu is not None:
        return gpus.find(question.gpu), []
    if kernel is not None:
        usual = _USUAL.get(kernel.architecture or "")
        return (gpus.find(usual), [f"{kernel.architecture} is taken for {usual}: --gpu names another"]) if usual else (None, [])
    if question.tile is not None:
        return None, []
    return gpus.find(DEFAULT_GPU), [f"no --gpu was given: {DEFAULT_GPU} is assumed"]
