"""What each kernel loses against its ceilings, in steps that sum to the loss: tile, clock, wave, memory, itself.

A kernel that needs F FLOPs and took the time T could have taken F / peak. Between the two lie levels, each the least time
under one condition more (Williams, Waterman, Patterson: Roofline, CACM 52, 2009; OFU paper, IV-A):

    needed    F / peak               every cycle of every tensor pipe on what the model needs
    tile      E / peak               E ≥ F: whole tiles are executed
    clock     E / (peak c)           c: the SM clock under load over the clock of the peak
    wave      E / (peak c w)         w: how full the waves of its blocks are
    memory    max(that, B / bandwidth)   B: the bytes that must be moved
    itself    T

The steps are the differences. A condition that is not known takes no step; what it costs lies in "itself". A level never lies above
the time that was measured: where it would, the step holds what is left, and is the most that it may be.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS = ("tile", "clock", "wave", "memory", "itself")


@dataclass(frozen=True)
class KernelWork:
    """What a kernel did over all its calls: `time` in s, `flops` that are needed (0: it multiplies nothing), `executed` with whole
    tiles, how full its `waves` are (above 0, at most 1) and the least `bytes` that it moves; None for what is not known."""

    time: float
    flops: float
    executed: float | None = None
    waves: float | None = None
    bytes: float | None = None


@dataclass(frozen=True)
class KernelCeilings:
    """The ceilings of a kernel: `peak` of its precision in FLOP/s (None: it multiplies nothing), `bandwidth` of the memory in B/s, and
    its `clock` over the clock of that peak (None: not known)."""

    peak: float | None
    bandwidth: float
    clock: float | None = None


@dataclass(frozen=True)
class KernelLoss:
    """What a kernel loses in s, step by step; None for a step that nobody can tell apart from the kernel "itself".

    Where no step at all can be told, `itself` is None too, and only the whole `loss` is known. `cut` are the steps that the measured
    time limits: their model asks for more.
    """

    loss: float
    tile: float | None = None
    clock: float | None = None
    wave: float | None = None
    memory: float | None = None
    itself: float | None = None
    cut: tuple[str, ...] = ()

    @property
    def steps(self) -> dict[str, float]:
        """The steps that are known, in s; where `itself` is, they sum to the loss."""
        found = {name: getattr(self, name) for name in STEPS}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def bound_by(self) -> str | None:
        """The largest step, the earlier of equals; None where none is above 0 or known."""
        name = max(self.steps, key=lambda step: self.steps[step], default=None)
        return None if name is None or self.steps[name] <= 0 else name


def kernel_loss(work: KernelWork, roofs: KernelCeilings) -> KernelLoss:
    """Return what a kernel loses. Of one that multiplies nothing that is its whole time: what its bytes need, and itself.

    8 s of a product that needs 2 s at the peak: with whole tiles 3 s, at 3/4 of the clock 4 s, in waves that are 4/5 full 5 s; its
    bytes need 6 s:

    >>> work, roofs = KernelWork(8, 200, executed=300, waves=0.8, bytes=60), KernelCeilings(peak=100, bandwidth=10, clock=0.75)
    >>> kernel_loss(work, roofs).steps, kernel_loss(work, roofs).bound_by
    ({'tile': 1.0, 'clock': 1.0, 'wave': 1.0, 'memory': 1.0, 'itself': 2.0}, 'itself')
    >>> kernel_loss(KernelWork(8, 0, bytes=60), roofs).steps
    {'memory': 6.0, 'itself': 2.0}
    """
    needed = work.flops / roofs.peak if work.flops and roofs.peak else 0.0
    levels = _levels(work, roofs, needed)
    if not levels:
        return KernelLoss(work.time - needed)
    most, level, steps, cut = max(work.time, needed), needed, {}, []
    for name, wanted in levels:
        reached = min(wanted, most)
        steps[name], level = reached - level, reached
        if wanted > most * (1 + _ROUNDING):
            cut.append(name)
    return KernelLoss(work.time - needed, **steps, itself=work.time - level, cut=tuple(cut))


_ROUNDING = 1e-9  # relative; a level that is above the time by less is not


def _levels(work: KernelWork, roofs: KernelCeilings, needed: float) -> list[tuple[str, float]]:
    """Return the least time in s under each condition that is known, one after another."""
    level, found = needed, []
    if needed:
        factors = (
            ("tile", None if work.executed is None else work.executed / work.flops),
            ("clock", None if roofs.clock is None else 1 / roofs.clock),
            ("wave", None if work.waves is None else 1 / work.waves),
        )
        for name, factor in factors:
            if factor is not None:
                level *= factor
                found.append((name, level))
    if work.bytes is not None:
        found.append(("memory", max(level, work.bytes / roofs.bandwidth)))
    return found
