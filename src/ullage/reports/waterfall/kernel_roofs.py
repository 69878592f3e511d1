"""What binds each kernel of a job's trace: its loss against the ceilings, step by step, in points of MFU, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.gpus.chip import Chip
from ullage.gpus.precision import PRECISIONS
from ullage.kernels.family import family
from ullage.metrics.kernel_losses import STEPS, KernelCeilings, KernelLoss, KernelWork, kernel_loss
from ullage.metrics.metric import ratio
from ullage.metrics.steps import LABELS, ChainStep
from ullage.product import Multiplied, attention, moved_bytes, multiplied
from ullage.reports.gemms.uses import GemmUse, cover_of, gemm_use, is_beside, is_stream_k
from ullage.reports.trace.code import WITHIN_DEVICE, direction
from ullage.reports.trace.trace import TraceReport
from ullage.reports.waterfall.remedies import Remedy, kernel_remedies
from ullage.reports.waterfall.step import WITHOUT_PRODUCTS
from ullage.sums.lanes.kernels import merge_kernels
from ullage.sums.lanes.products import KernelProduct, merge_products
from ullage.sums.lanes.run import Run
from ullage.views.numbers import percent

# The factors of the waterfall that hold each step of a kernel. SMs that a kernel leaves idle for other reasons than its last wave (blocks
# that take unequally long, SMs that a collective holds) are SM fill in the waterfall, and lie in the kernel itself here
FACTORS = {
    "tile": ("tile",),
    "clock": ("clock",),
    "wave": ("sm_fill",),
    "memory": ("sm_fill", "tensor_issue"),
    "itself": ("sm_fill", "tensor_issue"),
}
HELD = {factor for factors in FACTORS.values() for factor in factors}
WORTH_SAYING = 0.05  # points: what is less is not to be seen in the numbers
ABOVE = 1.0  # points: by so much OFU, which the waterfall's steps rest on, may be off as a measure of executed FLOPs
SIDE_BY_SIDE = 1.001  # times the united time: below, no two kernels ran at once that count


@dataclass(frozen=True)
class RoofSources:
    """What kernels are held against: the `chip` with its peaks, the `clock` under load over the chip's tensor clock (None: not known), and
    the `bandwidth` of its memory in B/s, with where that is from."""

    chip: Chip
    clock: float | None
    bandwidth: float
    bandwidth_source: str


@dataclass(frozen=True)
class KernelRoof:
    """Kernels of one name that were asked for the same (`asked`: a word of `ullage.product`, "" where it is not known), over all calls.

    `time` is in s, summed over streams and devices; `flops` are those needed (0: it multiplies nothing) and `bytes` the least to move;
    None where not known. `loss` is in s, None where FLOPs are not known. `points` of MFU are the loss as a share of all devices' time,
    `steps` its parts. `because` is the evidence for what it is bound by, in words, `legacy` why it can't reach its GPU's peak (None: it
    can, or not known), and `remedies` what helps. Copies and memsets within a device's memory are here too, by their `kind`.
    """

    kernel: str
    asked: str
    family: str
    precision: str | None
    calls: int
    time: float
    work: KernelWork | None
    peak: float | None = None
    loss: KernelLoss | None = None
    points: float | None = None
    steps: Mapping[str, float] | None = None
    because: str = ""
    legacy: str | None = None
    remedies: tuple[Remedy, ...] = ()
    kind: str = "kernel"

    @property
    def multiplies(self) -> bool:
        """Whether it is known to multiply matrices."""
        return self.work is not None and self.work.flops > 0

    @property
    def bound_by(self) -> str | None:
        """The largest step of its loss, None where none is known."""
        return None if self.loss is None else self.loss.bound_by


@dataclass(frozen=True)
class StepSum:
    """One step over all kernels, in points of MFU (None: no kernel tells it), and what the waterfall's own steps that hold it take (None:
    it has none); `within` names these.

    `above`: all kernels' steps that those hold come to more than they may take; then the kernels' are the most that it may be.
    """

    step: str
    points: float | None
    within: str
    own: float | None
    above: bool


@dataclass(frozen=True)
class KernelRoofs:
    """All kernels of a trace against their ceilings, the largest loss first; points of MFU, of all devices' time.

    `computing` = `reached` + the losses of kernels + `unknown` (of kernels that may multiply, whose FLOPs nobody tells: they lose no more).
    Copies lose beside that, in the waterfall's communication.
    `peaks` are in FLOP/s by precision; `clock` is that under load over the tensor clock.
    """

    rows: tuple[KernelRoof, ...]
    sums: tuple[StepSum, ...]
    computing: float
    reached: float
    unknown: float
    peaks: Mapping[str, float]
    sources: RoofSources
    notes: tuple[str, ...]

    @property
    def ranked(self) -> tuple[KernelRoof, ...]:
        """The kernels whose loss is known and above 0."""
        return tuple(row for row in self.rows if row.points is not None and row.points > 0)

    @property
    def evidence(self) -> dict[tuple[str, bool], float]:
        """Points by step, of kernels that multiply and of the others."""
        found: dict[tuple[str, bool], float] = {}
        for row in (row for row in self.rows if row.kind == "kernel"):
            for step, points in (row.steps or {}).items():
                found[step, row.multiplies] = found.get((step, row.multiplies), 0.0) + points
        return found


def kernel_roofs(report: TraceReport, sources: RoofSources, steps: Sequence[ChainStep] = ()) -> KernelRoofs | None:
    """Return what each kernel of a trace loses; `steps` are the waterfall's. None where no kernel ran.

    The kernels are those of each file's window. Where kernels ran side by side, or the window common to all ranks is shorter, losses
    count in proportion, so that with what was reached they sum to the share of time in which the waterfall has the devices compute.
    """
    totals, run = report.whole.device_totals, report.run
    if totals is None or run is None or not totals.kernel_time:
        return None
    rows = _rows(merge_products([capture.products for capture in run.captures]), sources)
    if not rows:
        return None
    weights = _weights(run, rows, totals.kernel_time / (totals.devices * totals.elapsed))
    copies, of_copies = _copies(run, totals.memory_time / (totals.devices * totals.elapsed))
    weighted = [_weighted(row, weights.of_loss, sources) for row in rows] + [_weighted(row, of_copies, sources) for row in copies]
    ranked = tuple(sorted(weighted, key=lambda row: (-(row.points or 0.0), -row.time, row.kernel)))
    sums = tuple(_sums([row for row in ranked if row.kind == "kernel"], steps))
    return KernelRoofs(
        rows=ranked,
        sums=sums,
        computing=weights.computing,
        reached=weights.reached,
        unknown=weights.unknown,
        peaks={row.precision: row.peak for row in ranked if row.precision is not None and row.peak is not None},
        sources=sources,
        notes=tuple(_notes(weights, sums, ranked, sources)),
    )


def _rows(products: Iterable[KernelProduct], sources: RoofSources) -> list[KernelRoof]:
    """Return the kernels by name and by what was asked for, over layers and grids."""
    found: dict[tuple[str, str], KernelRoof] = {}
    for row in products:
        one = _row(row, sources.chip)
        old = found.get((one.kernel, one.asked))
        found[one.kernel, one.asked] = one if old is None else _added(old, one)
    return list(found.values())


def _row(row: KernelProduct, chip: Chip) -> KernelRoof:
    use = gemm_use(row, chip)
    work, precision, peak = _work(row, use, chip)
    asked = "" if work is None or (not work.flops and work.bytes is None) else row.product
    sort = family(row.kernel)
    return KernelRoof(row.kernel, asked, sort, precision, row.count, row.time / 1e9, work, peak, legacy=use.legacy if use else None)


def _work(row: KernelProduct, use: GemmUse | None, chip: Chip) -> tuple[KernelWork | None, str | None, float | None]:
    """Return what a kernel did, in which precision, and its peak in FLOP/s; no work where it may multiply and nobody tells how much."""
    time = row.time / 1e9
    if (several := multiplied(row.product)) is not None and not is_beside(row.kernel):
        return _several_work(row, several, use, chip, time)
    if use is not None:
        known = use.theoretical_flops is not None and use.peak is not None
        return (_product_work(row, use, chip, time) if known else None), use.precision, use.peak
    if (asked := attention(row.product)) is not None and family(row.kernel) == "attention" and not _beside_attention(row.kernel):
        precision = asked.precision if asked.precision in chip.precisions else None
        size = BYTES.get(asked.precision)
        moved = None if size is None else row.count * asked.elements * size
        work = None if precision is None else KernelWork(time, row.count * asked.flops, bytes=moved)
        return work, precision, None if precision is None else chip.peak(precision)
    if family(row.kernel) in WITHOUT_PRODUCTS or is_beside(row.kernel) or _beside_attention(row.kernel):
        size = moved_bytes(row.product)
        return KernelWork(time, 0, bytes=None if size is None else row.count * size), None, None
    return None, None, None


BYTES: Mapping[str, float] = {"fp32": 4, **dict(zip(PRECISIONS, (8, 4, 2, 2, 1, 1, 0.5), strict=True))}  # of a number
_NARROWEST_RESULT = 2  # B: products of narrower numbers are written in 16 bits or more
_BESIDE_ATTENTION = ("dot_do_o", "convert_dq", "convert_dkv", "preprocess", "postprocess", "combine")


def _beside_attention(kernel: str) -> bool:
    """Return whether a kernel only prepares or sums up what an attention kernel beside it multiplies."""
    return family(kernel) == "attention" and any(word in kernel.lower() for word in _BESIDE_ATTENTION)


def _several_work(
    row: KernelProduct, asked: Multiplied, use: GemmUse | None, chip: Chip, time: float
) -> tuple[KernelWork | None, str | None, float | None]:
    """Return what a convolution's kernel or one of grouped products did; in single precision it multiplies as its name says."""
    named = use.precision if use is not None else None
    precision = named or ("tf32" if asked.precision == "fp32" and "tf32" in row.kernel.lower() else asked.precision)
    if precision not in chip.precisions:
        return None, None, None
    size = BYTES.get(asked.precision)
    moved = None if size is None else row.count * asked.elements * size
    return KernelWork(time, row.count * asked.flops, bytes=moved), precision, chip.peak(precision)


def _product_work(row: KernelProduct, use: GemmUse, chip: Chip, time: float) -> KernelWork:
    asked, cover = use.product, cover_of(use.product, use.decoded, row.blocks)
    assert asked is not None and use.theoretical_flops is not None
    size = BYTES.get(asked.precision or use.precision or "")
    inputs, result = asked.m * asked.k + asked.k * asked.n, asked.m * asked.n
    moved = None if size is None else row.count * asked.batch * (inputs * size + result * max(size, _NARROWEST_RESULT))
    waves = None
    decoded = use.decoded
    in_waves = decoded is not None and not decoded.split and decoded.split_k in (None, 1) and not is_stream_k(decoded)
    if cover is not None and in_waves and cover.slots(chip.sms):
        waves = cover.wave_efficiency(chip.sms)
    return KernelWork(time, use.theoretical_flops, use.executed_flops, waves, moved)


def _added(one: KernelRoof, other: KernelRoof) -> KernelRoof:
    """Return two rows of one kernel as one. Waves are those of the work: their mean, weighted by what is executed."""
    together = replace(one, calls=one.calls + other.calls, time=one.time + other.time)
    if one.work is None or other.work is None:
        return replace(together, work=None)
    parts = (one.work, other.work)
    waves = None
    if all(part.waves is not None for part in parts):
        done = [part.executed or part.flops for part in parts]
        waves = sum(done) / sum(size / (part.waves or 1.0) for size, part in zip(done, parts, strict=True))
    return replace(
        together,
        work=KernelWork(
            together.time,
            one.work.flops + other.work.flops,
            _plus(one.work.executed, other.work.executed),
            waves,
            _plus(one.work.bytes, other.work.bytes),
        ),
    )


def _plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True)
class _Weights:
    """How many points one second counts: of the time that kernels would need at their peaks, and of their losses.

    `summed` and `united` are kernels' times in s, over streams and at once.
    """

    computing: float
    reached: float
    unknown: float
    of_loss: float
    summed: float
    united: float


def _weights(run: Run, rows: Sequence[KernelRoof], computing: float) -> _Weights:
    united = sum(device.kernel.total for device in run.devices) / 1e9
    graphs = sum(device.graph.total for device in run.devices) / 1e9
    needed = sum(row.work.flops / row.peak for row in rows if row.work is not None and row.peak)
    silent = sum(row.time for row in rows if row.work is None) + graphs
    summed = sum(row.time for row in rows) + graphs
    second = ratio(100 * computing, united) or 0.0
    share = ratio(united - needed, summed - needed)
    each = second * (1.0 if share is None else max(share, 0.0))
    return _Weights(100 * computing, second * needed, each * silent, each, summed, united)


def _copies(run: Run, exposed: float) -> tuple[list[KernelRoof], float]:
    """Return copies and memsets within a device's memory, and how many points one second of them counts: only what no kernel hides does.

    A copy reads its bytes and writes them. Copies over a link are none of the memory's.
    """
    moves = [row for row in merge_kernels([capture.kernels for capture in run.captures]).rows if row[1] in ("memcpy", "memset")]
    found = []
    for name, kind, count, time, _, size in moves:
        times = 1 if kind == "memset" else 2
        if time and (kind == "memset" or direction(name).startswith(WITHIN_DEVICE)):
            work = KernelWork(time / 1e9, 0, bytes=times * size if size else None)
            found.append(KernelRoof(name, "", "copy" if kind == "memcpy" else kind, None, count, time / 1e9, work, kind=kind))
    return found, ratio(100 * exposed, sum(row[3] for row in moves) / 1e9) or 0.0


def _weighted(row: KernelRoof, of_loss: float, sources: RoofSources) -> KernelRoof:
    if row.work is None:
        return row
    # the clock of a precision's peak may be another than that which the telemetry's is held against
    clock = sources.clock
    if clock is not None and row.precision in sources.chip.precisions:
        clock *= sources.chip.tensor_clock / sources.chip.clock(str(row.precision))
    ceilings = KernelCeilings(row.peak, sources.bandwidth, clock)
    loss = kernel_loss(row.work, ceilings)
    steps = {step: lost * of_loss for step, lost in loss.steps.items()}
    found = replace(row, loss=loss, points=loss.loss * of_loss, steps=steps)
    if loss.bound_by is None:
        return found
    because = _because(row.work, loss, ceilings) + (f"; {row.legacy}" if row.legacy and loss.bound_by == "itself" else "")
    return replace(found, because=because, remedies=kernel_remedies(loss.bound_by, row.multiplies))


def _because(work: KernelWork, loss: KernelLoss, ceilings: KernelCeilings) -> str:
    """Return the evidence for what a kernel is bound by, in words."""
    part = {step: (ratio(lost, work.time) or 0.0) for step, lost in loss.steps.items()}
    most = " at most" if loss.bound_by in loss.cut else ""
    said = {
        "tile": lambda: f"whole tiles execute {(work.executed or 0) / work.flops:.3g} times the FLOPs needed",
        "clock": lambda: f"the clock under load is {ceilings.clock or 0:.3g} of that of the peak",
        "wave": lambda: f"its waves are {percent(work.waves or 0)} full",
        "memory": lambda: (
            f"its bytes need {percent((work.bytes or 0) / ceilings.bandwidth / work.time)} of its time"
            + (": caches hold some of them" if "memory" in loss.cut else "")
        ),
        "itself": lambda: f"its ceilings allow {percent(1 - part['itself'])} of its time",
    }
    name = loss.bound_by or "itself"
    return said[name]() + (f"; that is {percent(part[name])} of its time{most}" if name not in ("memory", "itself") else "")


def _sums(rows: Sequence[KernelRoof], steps: Sequence[ChainStep]) -> Iterator[StepSum]:
    """Yield what each step of kernels comes to, beside the waterfall's own."""
    told = {step: [row.steps[step] for row in rows if row.steps and step in row.steps] for step in STEPS}
    points = {step: sum(found) for step, found in told.items()}
    for step in STEPS:
        own = [one for one in steps if set(one.names) & set(FACTORS[step])]
        names = {name for one in own for name in one.names}
        beside = sum(points[other] for other in STEPS if names.issuperset(FACTORS[other]))
        lost = 100 * sum(one.lost for one in own)
        # the kernel itself is what the other steps leave, so that their errors are its own
        uncertain = [one for one in steps if set(one.names) <= HELD] if step in ("memory", "itself") else own
        most = lost + sum(max(100 * (one.lost_between[1] - one.lost), 0.0) for one in uncertain if one.lost_between is not None)
        within = " and ".join([one.short for one in own] or [LABELS[name] for name in FACTORS[step]])
        above = bool(own) and beside > most + ABOVE
        yield StepSum(step, points[step] if told[step] else None, within, lost if own else None, above)


def _notes(weights: _Weights, sums: Sequence[StepSum], rows: Sequence[KernelRoof], sources: RoofSources) -> Iterator[str]:
    if weights.unknown >= WORTH_SAYING:
        yield (
            f"kernels of {weights.unknown:.1f} points may multiply matrices, and the trace doesn't tell how large ones "
            "(record it with record_shapes=True): what they lose lies between 0 and that"
        )
    unsplit = sum(row.points or 0.0 for row in rows if row.kind == "kernel" and row.loss is not None and row.loss.itself is None)
    if unsplit >= WORTH_SAYING:
        yield f"kernels that lose {unsplit:.1f} points tell no bytes: what of that their memory traffic needs is not known"
    if weights.summed > SIDE_BY_SIDE * weights.united:
        yield (
            f"kernels ran side by side for part of the time ({weights.summed:.4g} s over streams, {weights.united:.4g} s at once): "
            "their losses count in proportion"
        )
    for within in dict.fromkeys(one.within for one in sums if one.above):
        yield (
            f"the kernels of the trace lose more than the waterfall has in {within}, whose sources are of other times or products: "
            "theirs is the most that it may be"
        )
    if sources.clock is None and any(row.multiplies for row in rows):
        yield "without telemetry nobody tells the clock under load: what it costs is part of the kernel itself"
