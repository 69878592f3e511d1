"""What one observed product says: its MFU, OFU by two ways, and how much of its work was padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ullage.benches.gemm_ofu_plan import PlannedGemm
from ullage.benches.gemm_ofu_record import Observation
from ullage.gpus.chip import Chip
from ullage.kernels.gemms.gemm import GemmName, decode
from ullage.kernels.tiling import Cover, TiledProduct, Tiling
from ullage.metrics.metric import ratio
from ullage.metrics.ofu import exact_ofu, sampled_ofu

TOLERANCE = 0.15  # how far Δcycles/Δt may be from the sampled clock and still be that clock
UNSETTLED = 0.5  # the same before the span, while the clock comes to rest
Pair = tuple[float | None, float | None]


@dataclass(frozen=True)
class Estimate:
    """A product's figures, ratios. None: not known; `unknown` says why there is no `cover`, and so no tile efficiency.

    `sampled` is OFU from tensor activity and the sampled clock, `exact` from the cycle counters.
    """

    gemm: PlannedGemm
    mfu: float | None
    sampled: float | None
    exact: float | None
    cover: Cover | None
    unknown: str = ""

    @property
    def efficiency(self) -> float | None:
        """Tile efficiency: what the shape needs over what the kernel executes."""
        return None if self.cover is None else self.cover.efficiency

    def ofu(self, exact: bool, adjusted: bool) -> float | None:
        """Return OFU, by the cycle counters or by the sampled clock, with the padding taken out if asked."""
        raw = self.exact if exact else self.sampled
        if raw is None or not adjusted:
            return raw
        return None if self.efficiency is None else raw * self.efficiency


def estimate(seen: Observation, chip: Chip, sms: int) -> Estimate:
    """Return what an observation says on a chip of so many SMs."""
    covered = cover(seen.gemm, seen.kernels)
    known, why = (covered, "") if isinstance(covered, Cover) else (None, covered)
    rate = None if seen.flops is None else ratio(seen.flops, seen.seconds)
    mfu = None if rate is None else rate / chip.peak(seen.gemm.precision)
    active, clock = seen.tensor_active, seen.sm_clock
    sampled = None if active is None or clock is None else sampled_ofu(active, clock, chip.tensor_clock)
    return Estimate(seen.gemm, mfu, sampled, by_counters(seen, chip, sms), known, why)


def by_counters(seen: Observation, chip: Chip, sms: int) -> float | None:
    """Return OFU from the cycle counters alone; None without them, and where they fit the sampled clock in no way."""
    if seen.seconds is None or seen.settled is None or seen.sm_clock is None:
        return None
    way = counted(seen.sm_cycles, (seen.settled, seen.seconds), seen.sm_clock, sms)
    tensor = None if way is None else way[0](seen.tensor_cycles)
    if way is None or tensor is None:
        return None
    value: float | None = exact_ofu(tensor, seen.seconds, chip.tensor_clock, way[1])
    return value


def since_boot(answers: Pair) -> float | None:
    """Return how a counter that never starts anew grew in a span, from its answers before and for the span."""
    before, after = answers
    return None if before is None or after is None else after - before


def in_span(answers: Pair) -> float | None:
    """Return how a counter grew that tells the span alone."""
    return answers[1]


def counted(answers: Pair, seconds: tuple[float, float], clock: float, sms: int) -> tuple[Callable[[Pair], float | None], int] | None:
    """Return how the driver counts cycles: since boot or within the span, and per SM (1) or summed (the number of SMs).

    `answers` are elapsed cycles as told before the span and for it, `seconds` how long these two lasted. Cycles over time must be
    the clock. A counter of spans is the clock in both; one since boot only as it grows. None where neither fits.

    At 1.5 GHz, 5e9 before and 6.5e9 after a span of 1 s is a counter since boot:

    >>> counted((5e9, 6.5e9), seconds=(0.25, 1), clock=1.5e9, sms=132) == (since_boot, 1)
    True
    """
    for units in dict.fromkeys((1, sms)):
        rate = units * clock
        before = answers[0] is None or fits(answers[0], seconds[0] * rate, UNSETTLED)
        if before and fits(in_span(answers), seconds[1] * rate, TOLERANCE):
            return in_span, units
        if fits(since_boot(answers), seconds[1] * rate, TOLERANCE):
            return since_boot, units
    return None


def fits(value: float | None, wanted: float, tolerance: float) -> bool:
    """Return whether a value is what is wanted, give or take a share of it.

    >>> fits(110, 100, 0.15), fits(None, 100, 0.15)
    (True, False)
    """
    return value is not None and wanted > 0 and abs(value / wanted - 1) <= tolerance


def cover(gemm: PlannedGemm, kernels: Sequence[str]) -> Cover | str:
    """Return how a product was tiled, from the names of what it launched, or why that is not known.

    The product is row-major, cuBLAS counts column-major: M and N change places. Nothing is guessed: a kernel that splits K or
    pairs blocks, and a name that leaves out tile, step in K or cluster, give no cover.
    """
    decoded = [found for found in map(decode, kernels) if found is not None]
    if not kernels:
        return "the profiler told no kernel's name"
    if not decoded:
        return "the kernel's name is of no known scheme"
    if len(decoded) > 1:
        return "several kernels multiply"
    tiling = _tiling(decoded[0], split=any("splitk" in name.lower() for name in kernels))
    return tiling if isinstance(tiling, str) else Cover(TiledProduct(gemm.m, gemm.n, gemm.k).swapped, tiling)


def _tiling(name: GemmName, split: bool) -> Tiling | str:
    if name.doubts:
        return "the kernel's name breaks the rules of its scheme"
    if split or name.split or (name.split_k or 1) > 1:
        return "the kernel splits K"
    if name.two_cta:
        return "the kernel's blocks work in pairs"
    if name.tile is None or name.k_tile is None or name.cluster is None:
        return f"{name.library} names leave out tile, step or cluster"
    return Tiling(name.tile, name.k_tile, name.cluster)
