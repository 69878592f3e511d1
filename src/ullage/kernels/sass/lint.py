"""What stands between a kernel and the tensor cores' peak: emulated types, instructions of older generations, local memory.

Everything is told from the instructions themselves, and each finding shows the one that proves it. With the program's PTX at
hand (what was asked) the verdict on emulation is certain; without it, it is so where the compiler calls a routine of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ullage.kernels.sass import ceilings
from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.emulation import emulated
from ullage.kernels.sass.finding import Issued, KernelFinding, Linted
from ullage.kernels.sass.flow import in_loops
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.work import TENSOR

_NEWER = {"sm_90": "wgmma", **dict.fromkeys(("sm_100", "sm_101", "sm_103", "sm_110"), "tcgen05")}
_OLDER = ("HMMA", "IMMA", "BMMA", "QMMA")  # DMMA has no successor


def lint(function: Function, asked: Sequence[MatrixInstruction] | None = None) -> Linted:
    """Return what a function issues and what is wrong with it; `asked` are the matrix instructions of its PTX, None without it.

    A matrix instruction of a warp is called legacy only in a loop, and only where the function has none of the newer kind.

    >>> loop = (Instruction(0, "HMMA.16816.F32"), Instruction(16, "BRA", "0x0", "@P0"))
    >>> [finding.what for finding in lint(Function("k", "sm_90", loop)).findings]
    ['HMMA.16816.F32 in a loop, where sm_90 has wgmma']
    """
    tensor = [one for one in function.instructions if one.root in TENSOR]
    looped = in_loops(function)
    inside = Counter(one.opcode for one in tensor if one.address in looped)
    issued = tuple(Issued(opcode, count, inside[opcode]) for opcode, count in Counter(one.opcode for one in tensor).most_common())
    stood_in = emulated(function, tensor, looped, asked)
    taken = {finding.stand_in for finding in stood_in}
    legacy = _legacy(function, [one for one in tensor if one.address in looped and one.opcode not in taken])
    return Linted(function, issued, (*stood_in, *legacy, *_local(function, looped)))


def _legacy(function: Function, tensor: Sequence[Instruction]) -> list[KernelFinding]:
    """Return a finding for each older opcode among tensor instructions that run in loops."""
    newer = _NEWER.get(function.architecture)
    if newer is None or any(one.root not in (*_OLDER, "DMMA") for one in tensor):
        return []
    found: dict[str, list[Instruction]] = {}
    for one in tensor:
        if one.root in _OLDER:
            found.setdefault(one.opcode, []).append(one)
    return [
        KernelFinding(
            "legacy",
            f"{opcode} in a loop, where {function.architecture} has {newer}",
            sites[0],
            len(sites),
            len(sites),
            ceiling=ceilings.legacy(opcode, function.architecture),
            remedy=f"use {newer} (CUTLASS 3, cuBLAS, Triton), compiled for {function.architecture}a",
        )
        for opcode, sites in found.items()
    ]


def _local(function: Function, looped: frozenset[int]) -> list[KernelFinding]:
    """Return a finding where loops read or write local memory: registers that did not fit, or arrays indexed at run time."""
    sites = [one for one in function.instructions if one.root in ("LDL", "STL")]
    inside = [one for one in sites if one.address in looped]
    if not inside:
        return []
    what = "loops use local memory: registers that did not fit, or an array indexed at run time"
    return [KernelFinding("local memory", what, inside[0], len(sites), len(inside), remedy="`ptxas -v` tells how many bytes are spilled")]
