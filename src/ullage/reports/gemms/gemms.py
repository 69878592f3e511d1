"""The matrix products of a run: each kernel's name decoded, the operator's shapes beside it, and what tiles cost of them together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

from ullage.errors import UllageError
from ullage.gpus.chip import Chip, find
from ullage.metrics.metric import ratio
from ullage.metrics.tiles import tile_efficiency
from ullage.product import CONVOLUTION, EARLIER, GRAPH, GROUPED
from ullage.reports.gemms.uses import GemmUse, gemm_use
from ullage.sums.lanes.products import merge_products
from ullage.sums.lanes.run import Run
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class GemmSums:
    """Sums over some GEMM kernels: `time` in ns, the part of it that is `shaped` (the product is known), `covered_time` (its tile
    loss is) and `legacy_time` (in kernels that cannot reach this GPU's peak); FLOPs of the covered part, where `executed_at_most` counts
    kernels whose name is silent on clusters in the one that pads most; `flops` of the shaped part.

    `padding` is the time in ns that goes by on padding, of the covered part.
    """

    count: int
    time: int
    shaped: int
    covered_time: int
    legacy_time: int
    theoretical_flops: int
    executed_flops: int
    executed_at_most: int
    flops: int
    padding: float

    @property
    def covered(self) -> float:
        """The share of the time of which the tile loss is known."""
        return ratio(self.covered_time, self.time) or 0.0

    @property
    def tile_efficiency(self) -> float | None:
        """The share of executed FLOPs that is no padding, over the kernels for which that is known."""
        value: float | None = tile_efficiency(self.theoretical_flops, self.executed_flops) if self.executed_flops else None
        return value

    @property
    def rate(self) -> float | None:
        """FLOP/s while kernels ran whose product is known, padding not counted."""
        value: float | None = ratio(self.flops, self.shaped / 1e9) if self.shaped else None
        return value


@dataclass(frozen=True)
class GemmGroup(GemmSums):
    """The GEMM kernels of one product (`name` is its word) or of one layer (the path of its modules and regions), in `precision`."""

    name: str
    precision: str | None
    kernels: int


@dataclass(frozen=True)
class GemmSummary(GemmSums, ShownByView, view="ullage.render.gemms"):
    """All of a run's GEMM kernels: `rows` by kernel and product, `products` by product, `layers` by layer, most time first.

    `unshaped` is the time in ns without a product, by why: words of `ullage.product`, "" where nothing is known. `ofu` is the job's, where
    it was given, to be adjusted; `complete` says whether all of the run is there.
    """

    rows: tuple[GemmUse, ...]
    products: tuple[GemmGroup, ...]
    layers: tuple[GemmGroup, ...]
    unshaped: dict[str, int]
    notes: tuple[str, ...]
    ofu: float | None = None
    complete: bool = True


def gemm_summary(run: Run) -> GemmSummary | None:
    """Return what a run's matrix products did, None where no kernel is a GEMM."""
    chip = chip_of(run)
    rows = merge_products([capture.products for capture in run.captures])
    uses = [use for row in rows if (use := gemm_use(row, chip)) is not None]
    if not uses:
        return None
    unshaped: dict[str, int] = {}
    for use in uses:
        if use.product is None:
            unshaped[use.why] = unshaped.get(use.why, 0) + use.time
    listed = _merged(uses)
    return GemmSummary(
        **vars(_sums(uses)),
        rows=listed,
        products=_groups(uses, lambda use: (use.product.word if use.product is not None else "", use.precision)),
        layers=_groups(uses, lambda use: (use.layer, None)),
        unshaped=unshaped,
        notes=(
            *_notes(listed, unshaped, {capture.recording.source for capture in run.captures}),
            *([chip.warning] if chip is not None and chip.warning else []),
        ),
    )


def chip_of(run: Run) -> Chip | None:
    """Return the GPU that all of a run's devices are, None where they differ or their name is not known.

    ROCm numbers devices otherwise in events than in the list of their names: then it is what all of that list are.
    """
    names = {device.name for device in run.devices if device.name}
    if not names:
        names = {device.name for capture in run.captures for device in capture.recording.devices.values() if device.name}
    try:
        found = {find(name).name: find(name) for name in names}
    except UllageError:
        return None
    return next(iter(found.values())) if len(found) == 1 else None


def _merged(uses: Sequence[GemmUse]) -> tuple[GemmUse, ...]:
    """Return the uses of each kernel for each product as one, over layers and grids, most time first."""
    found: dict[Hashable, GemmUse] = {}
    for use in uses:
        key = (use.kernel, use.product, use.why)
        old = found.get(key)
        found[key] = (
            use
            if old is None
            else replace(
                old,
                layer="",
                count=old.count + use.count,
                time=old.time + use.time,
                theoretical_flops=_plus(old.theoretical_flops, use.theoretical_flops),
                executed_flops=_plus(old.executed_flops, use.executed_flops),
                executed_at_most=_plus(old.executed_at_most, use.executed_at_most),
            )
        )
    return tuple(sorted(found.values(), key=lambda use: (-use.time, use.kernel)))


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _groups(uses: Sequence[GemmUse], key: Callable[[GemmUse], tuple[str, str | None]]) -> tuple[GemmGroup, ...]:
    parts: dict[tuple[str, str | None], list[GemmUse]] = {}
    for use in uses:
        parts.setdefault(key(use), []).append(use)
    groups = [
        GemmGroup(**vars(_sums(part)), name=name, precision=precision, kernels=len({use.kernel for use in part}))
        for (name, precision), part in parts.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.time, group.name)))


def _sums(uses: Sequence[GemmUse]) -> GemmSums:
    known = [use for use in uses if use.executed_flops is not None]
    return GemmSums(
        count=sum(use.count for use in uses),
        time=sum(use.time for use in uses),
        shaped=sum(use.time for use in uses if use.product is not None),
        covered_time=sum(use.time for use in known),
        legacy_time=sum(use.time for use in uses if use.legacy is not None),
        theoretical_flops=sum(use.theoretical_flops or 0 for use in known),
        executed_flops=sum(use.executed_flops or 0 for use in known),
        executed_at_most=sum(use.executed_at_most or 0 for use in known),
        flops=sum(use.theoretical_flops or 0 for use in uses),
        padding=sum(use.padding or 0.0 for use in known),
    )


_WHY = {
    GRAPH: "runs in graphs, which record no operators",
    EARLIER: "was launched before the recording began, or by calls that it lacks",
    GROUPED: "is grouped products, many sizes in one kernel",
    CONVOLUTION: "is convolutions, whose products the library forms itself",
    "": "was launched by operators that record no sizes of one product",
}


def _notes(rows: Sequence[GemmUse], unshaped: dict[str, int], sources: set[str]) -> Iterable[str]:
    whole = sum(use.time for use in rows)
    if not any(use.product is not None for use in rows):
        here = "the trace has no shapes of matrix products: record it with record_shapes=True"
        yield here if sources == {"kineto"} else "only PyTorch's profiler records shapes of matrix products (record_shapes=True)"
    else:
        for why, time in sorted(unshaped.items(), key=lambda item: -item[1]):
            yield f"{_share(time, whole)} of the GEMMs' time has no shapes: it {_WHY[why]}"
    if any(use.executed_flops is not None for use in rows):
        yield "products count row-major, as PyTorch does; BLAS libraries' kernels take M and N the other way round"
    if any(use.decoded is not None and use.executed_flops is not None and use.decoded.cluster is None for use in rows):
        yield "names that tell no cluster are counted without one: their tile efficiency is an upper bound"
    if legacy := next((use for use in rows if use.legacy is not None), None):
        yield f"{legacy.kernel[:80]}: {legacy.legacy}"


def _share(time: int, whole: int) -> str:
    """Return a share in percent.

    >>> _share(999, 1000), _share(316, 1000), _share(3, 1000)
    ('100 %', '32 %', '0.3 %')
    """
    share = 100 * time / max(whole, 1)
    return f"{share:.0f} %" if share >= 1 else f"{share:.2g} %"
