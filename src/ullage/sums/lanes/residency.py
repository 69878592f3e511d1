"""Of how many SMs kernels and collectives make use while they run: from their grids and the room that their blocks take.

A kernel of g blocks is on no more than min(g, N) of N SMs at any time, and where its blocks take equally long on as many on average as
`active_sms` says. A collective holds min(g, N) SMs as long as it runs, for its blocks wait for those of other ranks; fewer only where an
SM holds several of its blocks. It may hold an SM together with a computing kernel only where blocks of both fit side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ullage.kernels.occupancy import LIMITS, KernelLaunches, SmLimits, active_sms, fits_beside, resident_blocks
from ullage.sums.lanes.gather import KIND, LaneRows
from ullage.sums.lanes.launches import only
from ullage.sums.lanes.products import row_groups
from ullage.sums.lanes.spans import BLOCK

Shares = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Residency:
    """Integrals over time of the share of a device's SMs, in ns; the device's own times are 1 × its time.

    While it computes (for `computing` ns) kernels are on at most `most_computed` and, where blocks of a kernel take equally long and
    find the SMs that collectives leave, on `equal_computed`, which is known for `told` ns of it. Collectives hold `hidden` meanwhile,
    of which `apart` is surely on SMs without a computing kernel. Beside nothing that computes they hold `exposed`, at least
    `least_exposed`. `unsized` of all that is only what they may hold, of collectives whose grid nobody tells.
    """

    computing: float = 0.0
    told: float = 0.0
    most_computed: float = 0.0
    equal_computed: float = 0.0
    hidden: float = 0.0
    apart: float = 0.0
    exposed: float = 0.0
    least_exposed: float = 0.0
    unsized: float = 0.0

    def __add__(self, other: Residency) -> Residency:
        return Residency(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def scaled(self, computing: float, exposed: float) -> Residency:
        """Return what is expected of a part of the time, given which share of computing and of exposed collectives it is."""
        beside = ("exposed", "least_exposed")
        return Residency(*(getattr(self, f.name) * (exposed if f.name in beside else computing) for f in fields(self)))


NO_RESIDENCY = Residency()


def residency(rows: LaneRows, sms: int | None, capability: str = "") -> Residency:
    """Return how many of a device's SMs its kernels and collectives were on; of `sms` that are not known, between none and all.

    `rows` are the device's, as `resident_rows` gives them; a graph of which no kernel is known computes.
    """
    if not len(rows):
        return Residency()
    first, sort, _ = row_groups((rows.kind, rows.blocks, rows.threads, rows.registers, rows.shared))
    return _swept(rows, sort, _weights(rows.where(first), sms, LIMITS.get(capability)))


def _weights(sorts: LaneRows, sms: int | None, limits: SmLimits | None) -> Shares:
    """Return what one of each sort of launch adds while it runs, a row for each of the quantities below."""
    collective = sorts.kind == KIND["collective"]
    weights = np.zeros((_WEIGHTS, len(sorts)))
    weights[_COMPUTES], weights[_COLLECTIVES] = ~collective, collective
    talks, works = _launches(sorts, collective), _launches(sorts, ~collective)
    most, equal = _computed(works, sms, limits)
    weights[_MOST, ~collective], weights[_EQUAL, ~collective] = most, np.where(np.isnan(equal), 0.0, equal)
    weights[_UNTOLD, ~collective] = np.isnan(equal)
    weights[_SHARING, ~collective] = fits_beside(works, talks, limits)
    weights[_HELD, collective], weights[_LEAST, collective] = _held(talks, sms, limits)
    weights[_UNSIZED, collective] = (talks.blocks <= 0) | (not sms)
    return weights


_WEIGHTS = 9
_COMPUTES, _COLLECTIVES, _MOST, _EQUAL, _UNTOLD, _SHARING, _HELD, _LEAST, _UNSIZED = range(_WEIGHTS)


def _launches(rows: LaneRows, of: npt.NDArray[np.bool_]) -> KernelLaunches:
    return KernelLaunches(*(column[of].astype(np.int64) for column in (rows.blocks, rows.threads, rows.registers, rows.shared)))


def _computed(works: KernelLaunches, sms: int | None, limits: SmLimits | None) -> tuple[Shares, Shares]:
    """Return the share of SMs that each kernel can be on at most, and that it is on where its blocks take equally long (NaN: not known)."""
    if not sms:
        return np.ones(len(works.blocks)), np.full(len(works.blocks), np.nan)
    resident = resident_blocks(works, limits)
    known = (works.blocks > 0) & (resident > 0)
    equal = active_sms(np.maximum(works.blocks, 1), np.maximum(resident, 1), sms) / sms
    # whoever has no more blocks than SMs never gets a second on one, whatever fits
    equal = np.where(works.blocks > 0, np.where(works.blocks <= sms, works.blocks / sms, np.where(known, equal, np.nan)), np.nan)
    return np.where(works.blocks > 0, np.minimum(works.blocks / sms, 1.0), 1.0), equal


def _held(talks: KernelLaunches, sms: int | None, limits: SmLimits | None) -> tuple[Shares, Shares]:
    """Return the share of SMs that each collective holds, and holds at least."""
    if not sms:
        return np.ones(len(talks.blocks)), np.zeros(len(talks.blocks))
    resident = resident_blocks(talks, limits)
    by_threads = np.clip(_MOST_THREADS // np.maximum(talks.threads, 1), 1, _MOST_BLOCKS)
    resident = np.where(resident > 0, resident, np.where(talks.threads > 0, by_threads, _MOST_BLOCKS))
    told = talks.blocks > 0
    most = np.where(told, np.minimum(talks.blocks / sms, 1.0), 1.0)
    return most, np.where(told, np.minimum(-(-talks.blocks // resident) / sms, 1.0), 1 / sms)


_MOST_THREADS, _MOST_BLOCKS = 2048, 32  # that any SM holds


def _swept(rows: LaneRows, sort: npt.NDArray[np.intp], weights: Shares) -> Residency:
    """Return the integrals: between two edges, as many kernels run as began before and did not end."""
    moment = np.concatenate((rows.start, rows.end))
    order = np.argsort(moment, kind="stable")
    found, running = Residency(), np.zeros((_WEIGHTS, 1))
    for low in range(0, max(len(order) - 1, 0), BLOCK):
        edge = order[low : low + BLOCK]
        lasts = np.diff(moment[order[low : low + BLOCK + 1]])
        signed = weights[:, sort[edge % len(rows)]] * np.where(edge < len(rows), 1.0, -1.0)
        level = running + np.cumsum(signed, axis=1)
        running = level[:, -1:]
        found += _integrated(level[:, : len(lasts)], lasts.astype(np.float64))
    return found


def _integrated(level: Shares, lasts: Shares) -> Residency:
    """Return the integrals over stretches of time that last so long (ns), from the sums of weights of what runs in each."""
    counts, shares = np.rint(level), np.clip(level, 0.0, 1.0)
    computes, talks = counts[_COMPUTES] > 0, counts[_COLLECTIVES] > 0
    told = computes & (counts[_UNTOLD] == 0)
    apart = computes & talks & (counts[_SHARING] == 0)
    least = shares[_LEAST] / np.maximum(counts[_COLLECTIVES], 1)  # of several, the mean: the largest is no smaller
    alone = talks & ~computes
    room = np.where(apart, 1 - least, 1.0)  # what collectives leave to kernels that share no SM with them

    def total(share: Shares, when: npt.NDArray[np.bool_]) -> float:
        return float((share * lasts)[when].sum())

    return Residency(
        computing=float(lasts[computes].sum()),
        told=float(lasts[told].sum()),
        most_computed=total(np.minimum(shares[_MOST], room), computes),
        equal_computed=total(np.minimum(shares[_EQUAL], room), told),
        hidden=total(shares[_HELD], computes & talks),
        apart=total(least, apart),
        exposed=total(shares[_HELD], alone),
        least_exposed=total(least, alone),
        unsized=total(shares[_HELD], counts[_UNSIZED] > 0),
    )


def resident_rows(rows: LaneRows, window: tuple[int, int] | None) -> LaneRows:
    """Return a device's kernels, collectives and graphs, cut to a window (None: all of them)."""
    inside = np.isin(rows.kind, [KIND[kind] for kind in ("kernel", "collective", "graph")]) & (rows.end > rows.start)
    if window is not None:
        inside &= (rows.end > window[0]) & (rows.start < window[1])
    kept = only(rows, inside, "kind", "blocks", "threads", "registers", "shared")
    if window is not None:
        kept.start, kept.end = np.maximum(kept.start, window[0]), np.minimum(kept.end, window[1])
    return kept
