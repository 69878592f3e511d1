"""How many blocks of a kernel an SM holds at a time, and of how many SMs a grid makes use: CUDA's occupancy rules.

A block is placed whole: its warps, its registers (in units of 256 a warp, in the quarter of the SM where the warp runs) and its shared
memory (with what the system reserves) must be free. Blocks are spread over SMs before an SM gets a second one, and all of a grid that
doesn't fit at once follows as blocks end: in waves, where blocks take equally long.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (limits), "Shared Memory" (1 KiB reserved a block
from 8.0 on); CUDA Toolkit, cuda_occupancy.h (units of allocation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Whole = npt.NDArray[np.int64]
NOT_KNOWN = -1
WARP = 32  # threads
REGISTER_UNIT = 256  # registers that a warp is given at once
PARTITIONS = 4  # of an SM, each with a quarter of its registers


@dataclass(frozen=True)
class SmLimits:
    """What an SM holds: `warps`, `blocks`, `registers` and `shared` memory (B), of which a block takes `reserved` more, in `unit`s."""

    warps: int
    blocks: int
    shared: int
    reserved: int = 1024
    unit: int = 128
    registers: int = 65536


LIMITS: Mapping[str, SmLimits] = {
    "7.0": SmLimits(64, 32, 96 << 10, reserved=0, unit=256),
    "7.5": SmLimits(32, 16, 64 << 10, reserved=0, unit=256),
    "8.0": SmLimits(64, 32, 164 << 10),
    "8.6": SmLimits(48, 16, 100 << 10),
    "8.7": SmLimits(48, 16, 164 << 10),
    "8.9": SmLimits(48, 24, 100 << 10),
    "9.0": SmLimits(64, 32, 228 << 10),
    "10.0": SmLimits(64, 32, 228 << 10),
    "10.3": SmLimits(64, 32, 228 << 10),
    "12.0": SmLimits(48, 24, 100 << 10),
}


@dataclass(frozen=True)
class KernelLaunches:
    """How kernels were launched, an array each: `blocks` of the grid, `threads` of a block, `registers` of a thread, `shared` memory of a
    block (B); `NOT_KNOWN` where nobody tells."""

    blocks: Whole
    threads: Whole
    registers: Whole
    shared: Whole

    def room(self, limits: SmLimits) -> tuple[Whole, Whole, Whole]:
        """Return the warps, the registers and the shared memory (B) that one block takes, where they are known."""
        warps = -(-self.threads // WARP)
        registers = warps * (-(-self.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT)
        return warps, registers, -(-(self.shared + limits.reserved) // limits.unit) * limits.unit

    @property
    def told(self) -> npt.NDArray[np.bool_]:
        """Of which kernels everything is known that an SM's room for their blocks depends on."""
        told: npt.NDArray[np.bool_] = (self.threads > 0) & (self.registers > 0) & (self.shared >= 0)
        return told


def resident_blocks(launches: KernelLaunches, limits: SmLimits | None) -> Whole:
    """Return how many blocks of each kernel an SM holds at a time; `NOT_KNOWN` where the launch or the SM is not, and for what can't fit.

    A matrix product with 384 threads of 168 registers and 200 KiB fills an SM of an H100 alone; of a pointwise kernel 8 blocks fit:

    >>> told = [np.array(column) for column in ((132, 4096), (384, 256), (168, 32), (200 << 10, 0))]
    >>> resident_blocks(KernelLaunches(*told), LIMITS["9.0"]).tolist()
    [1, 8]
    """
    if limits is None:
        return np.full(len(launches.blocks), NOT_KNOWN, np.int64)
    warps, _, shared = launches.room(limits)
    warps = np.maximum(warps, 1)
    each = np.maximum(-(-launches.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT, 1)
    by_registers = limits.registers // PARTITIONS // each * PARTITIONS // warps
    by_shared = limits.shared // np.maximum(shared, 1)
    found = np.minimum.reduce([np.full_like(warps, limits.blocks), limits.warps // warps, by_registers, by_shared])
    return np.where(launches.told & (found > 0), found, NOT_KNOWN)


def fits_beside(launches: KernelLaunches, others: KernelLaunches, limits: SmLimits | None) -> npt.NDArray[np.bool_]:
    """Return beside which kernels a block of any of the `others` may lie on one SM; of what is not known, it may.

    It may not where warps, registers or shared memory of the two together exceed an SM's. A collective of 544 threads lies beside no
    matrix product that takes the registers of a whole SM:

    >>> product, collective = ([np.array([n]) for n in told] for told in ((132, 384, 168, 200 << 10), (24, 544, 96, 40 << 10)))
    >>> fits_beside(KernelLaunches(*product), KernelLaunches(*collective), LIMITS["9.0"]).tolist()
    [False]
    """
    if limits is None or not others.told.all():
        return np.ones(len(launches.blocks), bool)
    most = (limits.warps, limits.registers, limits.shared)
    fits = np.ones(len(launches.blocks), bool)
    for own, other, room in zip(launches.room(limits), others.room(limits), most, strict=True):
        fits &= own + (other.min() if len(other) else 0) <= room
    return fits | ~launches.told


def active_sms(blocks: Whole, resident: Whole, sms: int) -> npt.NDArray[np.float64]:
    """Return how many of the SMs have a block of a grid, on average over its run, where blocks take equally long.

    `blocks` of the grid, `resident` of them on an SM at a time (arrays, positive); in full waves every SM has one, in the last
    wave as many as there are blocks left.

    >>> active_sms(np.array([198, 66, 396]), np.array([1, 2, 2]), 132).tolist()
    [99.0, 66.0, 132.0]
    """
    slots = resident * sms
    full, left = blocks // slots, blocks % slots
    active: npt.NDArray[np.float64] = (full * sms + np.minimum(left, sms)) / (full + (left > 0))
    return active
