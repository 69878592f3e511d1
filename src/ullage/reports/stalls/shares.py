"""What a stall report is made of: shares of stall reasons, of instructions, of kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ullage.cupti.pc_sampling.samples import Facts
from ullage.cupti.stalls import Reason
from ullage.kernels.sass.instruction import Instruction
from ullage.kernels.sass.lines import SourceLine
from ullage.views.shown import ShownByView

BUSY = ("issued", "ready")  # groups of states in which a warp doesn't wait
WORTH = 0.1  # of a kernel's samples that a reason needs for its advice to be given


@dataclass(frozen=True)
class StallShare:
    """A stall reason with its samples, and how many of them are latency samples: the scheduler issued nothing in that cycle."""

    reason: Reason
    samples: int
    latency: int = 0

    @property
    def waits(self) -> bool:
        """Whether a warp in this state waits."""
        return self.reason.group not in BUSY


@dataclass(frozen=True)
class Spot:
    """An instruction with its samples: `pc` in bytes from the function's start; the instruction and its line where they are known."""

    pc: int
    shares: tuple[StallShare, ...]
    instruction: Instruction | None = None
    place: SourceLine | None = None

    @cached_property
    def samples(self) -> int:
        """All samples of it."""
        return sum(one.samples for one in self.shares)


@dataclass(frozen=True)
class KernelStalls:
    """A kernel: `name` as people write it and as the binary does, the CRC of its cubin, its instructions (most samples first), its stall
    reasons (most samples first), and how its machine code was found ("crc", "name", "" if it wasn't)."""

    name: str
    mangled: str
    cubin: int
    spots: tuple[Spot, ...]
    shares: tuple[StallShare, ...]
    matched: str = ""

    @cached_property
    def samples(self) -> int:
        """All samples of it."""
        return sum(one.samples for one in self.shares)

    def count(self, group: str) -> int:
        """Return the samples of a group of reasons (`ullage.cupti.stalls.GROUPS`)."""
        return sum(one.samples for one in self.shares if one.reason.group == group)

    @property
    def waiting(self) -> int:
        """Samples in which a warp waited."""
        return sum(one.samples for one in self.shares if one.waits)

    @property
    def lines(self) -> list[tuple[SourceLine, tuple[StallShare, ...]]]:
        """Lines of source with their shares, most samples first; none where the machine code has no lines."""
        found: dict[SourceLine, list[tuple[StallShare, ...]]] = defaultdict(list)
        for spot in self.spots:
            if spot.place is not None:
                found[spot.place].append(spot.shares)
        summed = [(place, added(shares)) for place, shares in found.items()]
        return sorted(summed, key=lambda one: (-sum(share.samples for share in one[1]), str(one[0])))

    @property
    def advised(self) -> list[StallShare]:
        """The reasons for waiting that are worth something being done about."""
        return [one for one in self.shares if one.waits and one.reason.advice and one.samples >= WORTH * self.samples]


@dataclass(frozen=True)
class StallReport(ShownByView, view="ullage.render.stalls"):
    """Kernels, most samples first; the stall reasons of all of them; how it was measured; notes."""

    kernels: tuple[KernelStalls, ...]
    shares: tuple[StallShare, ...]
    facts: Facts
    notes: tuple[str, ...]

    @property
    def samples(self) -> int:
        """All samples of these kernels."""
        return sum(one.samples for one in self.shares)

    @property
    def worst(self) -> StallShare | None:
        """What was waited for most; None where nothing was."""
        return next((one for one in self.shares if one.waits), None)


def added(parts: Iterable[Iterable[StallShare]]) -> tuple[StallShare, ...]:
    """Return the shares of many parts, added up by reason."""
    summed: dict[str, StallShare] = {}
    for share in (one for part in parts for one in part):
        before = summed.get(share.reason.name, StallShare(share.reason, 0))
        summed[share.reason.name] = StallShare(share.reason, before.samples + share.samples, before.latency + share.latency)
    return ordered(summed.values())


def ordered(shares: Iterable[StallShare]) -> tuple[StallShare, ...]:
    """Return shares, most samples first."""
    return tuple(sorted(shares, key=lambda one: (-one.samples, one.reason.name)))
