"""Which types a function multiplies by instructions that are not theirs: from its machine code, and from its PTX where that is at hand."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.kernels.sass import ceilings
from ullage.kernels.sass.asked import MatrixInstruction, carries
from ullage.kernels.sass.finding import KernelFinding
from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.signs import Sign, signs

_CALLED = {
    **dict.fromkeys(("s4", "u4"), "INT4"),
    **dict.fromkeys(("s8", "u8"), "INT8"),
    **dict.fromkeys(("e4m3", "e5m2"), "FP8"),
    "b1.and": "binary",
    "b1.xor": "binary XOR",
    "f16": "Volta-shaped FP16",
}
_NATIVE = {
    "INT4": "sm_80 and sm_89 have INT4 instructions; elsewhere unpack to INT8 once, or use FP8 or FP4",
    "FP8": "on Hopper use wgmma, on sm_100 and sm_103 tcgen05; mma has FP8 on sm_89 and sm_120 only",
    "binary": "sm_80, sm_89 and sm_90 have binary instructions",
    "binary XOR": "sm_80 and sm_89 have it; Hopper has AND, from which XOR follows by population counts",
    "Volta-shaped FP16": "use m16n8k16",
}


def emulated(
    function: Function, tensor: Sequence[Instruction], looped: frozenset[int], asked: Sequence[MatrixInstruction] | None
) -> list[KernelFinding]:
    """Return a finding for every emulated type of a function; `tensor` are its tensor instructions, `looped` the addresses in loops."""
    seen = signs(function)
    if asked is None:
        return _told_apart([_shown(sign, function, tensor, looped) for sign in seen])
    replaced = {one.kind: one for one in reversed(asked) if not any(one.carried_out_by(i.opcode) for i in tensor)}
    findings = []
    for sign in seen:
        wanted = replaced.pop(sign.kind, None)
        if sign.certain or wanted:  # conversions that the source wrote are no emulation
            findings.append(_shown(sign, function, tensor, looped, wanted))
    rest = [Sign(kind, tuple(tensor) or function.instructions[:1], False) for kind in replaced]
    return _told_apart(findings + [_shown(sign, function, tensor, looped, replaced[sign.kind]) for sign in rest if sign.sites])


def _told_apart(findings: Sequence[KernelFinding]) -> list[KernelFinding]:
    """Leave out that metadata is rearranged where an emulated type is the reason for it."""
    types = [one for one in findings if one.stand_in]
    return types or list(findings)


def _shown(
    sign: Sign, function: Function, tensor: Sequence[Instruction], looped: frozenset[int], asked: MatrixInstruction | None = None
) -> KernelFinding:
    inside = [one for one in sign.sites if one.address in looped]
    if sign.kind == "metadata":
        what, stand_in, ceiling = "the positions of a sparse matrix are rearranged by a routine before each product", "", ceilings.UNKNOWN
        remedy = "write mma.sp::ordered_metadata"
    else:
        stand_in = next((one.opcode for one in tensor if not carries(sign.kind, one.opcode)), "")
        name = _CALLED.get(sign.kind, sign.kind.upper())
        what = f"{name} mma is emulated {f'by {stand_in}' if stand_in else 'without tensor cores'}"
        if not (sign.certain or asked):
            what = f"{name} is unpacked and multiplied by {stand_in}: an emulated mma, or conversions in the source"
        ceiling = ceilings.emulated(sign.kind, stand_in, function.architecture)
        remedy = _NATIVE.get(name, "")
    site = (inside or sign.sites)[0]
    certain = sign.certain or asked is not None
    return KernelFinding("emulated", what, site, len(sign.sites), len(inside), stand_in, certain, ceiling, asked, remedy)
