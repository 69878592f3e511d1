"""What one issue of an instruction does: floating-point operations and bytes, as far as its opcode tells. Nothing is guessed."""

from __future__ import annotations

import re
from typing import Literal

from ullage.kernels.sass.instruction import Instruction

Unit = Literal["warp", "warpgroup", "cta"]

WARP = 32  # threads
_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)|(16|8)8(\d+)")  # 64x256x16, or m n k without a sign between: 16816, 8832
_WARP_TENSOR = ("HMMA", "IMMA", "BMMA", "DMMA", "QMMA", "OMMA")
_GROUP_TENSOR = ("HGMMA", "IGMMA", "BGMMA", "QGMMA")
_CTA_TENSOR = ("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA")
TENSOR = frozenset(_WARP_TENSOR + _GROUP_TENSOR + _CTA_TENSOR)

# Operations of a thread; an instruction on a pair ("2") does them twice. HADD2.F32 converts, and so has no entry.
_PER_THREAD = {
    **dict.fromkeys(("FADD", "FMUL", "DADD", "DMUL"), 1),
    **dict.fromkeys(("FFMA", "DFMA", "HADD2", "HMUL2", "FADD2", "FMUL2"), 2),
    **dict.fromkeys(("HFMA2", "FFMA2"), 4),
}

_SPACES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("LDG", "STG"), ("global",)),
    **dict.fromkeys(("LDS", "STS", "LDSM", "STSM"), ("shared",)),
    **dict.fromkeys(("LDL", "STL"), ("local",)),
    **dict.fromkeys(("LD", "ST"), ("generic",)),
    "LDGSTS": ("global", "shared"),
}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "F16": 2, "BF16": 2, "32": 4, "64": 8, "128": 16, "256": 32}


def unit(opcode: str) -> Unit:
    """Return who issues an instruction once: a warp, a group of four warps (`wgmma`), or one thread for its thread block (`tcgen05`).

    >>> unit("HMMA.16816.F32"), unit("HGMMA.64x256x16.F32"), unit("UTCHMMA")
    ('warp', 'warpgroup', 'cta')
    """
    root = opcode.partition(".")[0]
    return "warpgroup" if root in _GROUP_TENSOR else "cta" if root in _CTA_TENSOR else "warp"


def shape(opcode: str) -> tuple[int, int, int] | None:
    """Return m, n and k of a tensor instruction, None where the opcode does not carry them (`tcgen05` keeps them in a descriptor).

    The k of a sparse instruction is that of the matrix with its zeros. Volta's HMMA.884 is one step of four and carries no whole product.

    >>> shape("HMMA.16816.F32"), shape("HGMMA.SP.64x256x32.F32"), shape("UTCHMMA.2CTA")
    ((16, 8, 16), (64, 256, 32), None)
    """
    root, *words = opcode.split(".")
    if root not in TENSOR or (root == "HMMA" and "884" in words):
        return None
    found = next((match for word in words if (match := _SHAPE.fullmatch(word))), None)
    if found is None:
        return None
    return (int(found[1]), int(found[2]), int(found[3])) if found[1] else (int(found[4]), 8, int(found[5]))


def flops(opcode: str) -> int | None:
    """Return the operations of one issue by its `unit`, None where the opcode does not tell or the instruction does not count.

    A multiplication and an addition are two. Tensor instructions: 2·m·n·k; a sparse one counts the zeros that it skips, as vendors'
    sparse peaks do. On vectors: of all 32 threads. BMMA's and with population count is counted alike, 2·m·n·k.

    A warp's m16n8k16 does 2 × 16 × 8 × 16; a fused multiply-add of 32 threads 64.

    >>> flops("HMMA.16816.F32"), flops("FFMA"), flops("HFMA2.BF16_V2"), flops("MOV")
    (4096, 64, 128, None)
    """
    product = shape(opcode)
    if product:
        m, n, k = product
        return 2 * m * n * k
    root, *words = opcode.split(".")
    if root not in _PER_THREAD or (root == "HADD2" and "F32" in words):
        return None
    return WARP * _PER_THREAD[root]


def moved(instruction: Instruction) -> dict[str, int]:
    """Return the bytes that one thread moves by an instruction, by memory space; empty where the opcode does not tell.

    Spaces: "global", "shared", "local" (spills), "generic". LDGSTS reads global and writes shared memory. LDSM and STSM move 8 × 8
    matrices of 16-bit elements, 4 B of each for a thread. Bulk copies (UBLKCP, UTMALDG) have their size in a register.

    >>> moved(Instruction(0, "LDG.E.128.CONSTANT")), moved(Instruction(0, "LDS")), moved(Instruction(0, "UTMALDG.2D"))
    ({'global': 16}, {'shared': 4}, {})
    """
    root, *words = instruction.opcode.split(".")
    if root in ("LDSM", "STSM"):
        size = 4 * next((int(word) for word in words if word in ("2", "4")), 1)
    else:
        size = next((_WIDTHS[word] for word in words if word in _WIDTHS), 4)
    return dict.fromkeys(_SPACES.get(root, ()), size)
