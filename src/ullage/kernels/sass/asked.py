"""What a program asked of the tensor cores: the matrix instructions in its PTX, and which machine instructions would be theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

# Bits of an element; narrow floats stand in bytes, but for the kinds mxf4 and mxf4nvf4.
BITS = {
    "f64": 64,
    **dict.fromkeys(("tf32", "f32", "s32"), 32),
    **dict.fromkeys(("f16", "bf16"), 16),
    **dict.fromkeys(("s8", "u8", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"), 8),
    **dict.fromkeys(("s4", "u4"), 4),
    "b1": 1,
}

# Which opcodes multiply a type, or a kind of tcgen05, in hardware. What does so by none of these is emulated.
_NATIVE = {
    "f64": r"DMMA",
    "f16": r"HMMA|HGMMA|UTCHMMA",
    "bf16": r"HMMA.*BF16|HGMMA.*BF16|UTCHMMA",
    "tf32": r"HMMA.*TF32|HGMMA.*TF32|UTCHMMA",
    **dict.fromkeys(("s8", "u8"), r"IMMA.*[SU]8|IGMMA|UTCIMMA"),
    **dict.fromkeys(("s4", "u4"), r"IMMA.*[SU]4"),
    "b1.and": r"BG?MMA.*AND",
    "b1.xor": r"BG?MMA.*XOR",
    **dict.fromkeys(("e4m3", "e5m2", "f8f6f4", "mxf8f6f4"), r"QMMA|QGMMA|UTCQMMA"),
    **dict.fromkeys(("e3m2", "e2m3", "e2m1"), r"QMMA|UTCQMMA|OMMA|UTCOMMA"),
    **dict.fromkeys(("mxf4", "mxf4nvf4"), r"OMMA|UTCOMMA"),
    "i8": r"UTCIMMA",
}

_INSTRUCTION = re.compile(r"\b(wgmma\.mma_async|tcgen05\.mma|wmma\.mma|mma)(\.[\w.:]{1,200})")
_PLACE = re.compile(r"\.(?:entry|func)\b(?:\s{0,99}\([^)]{0,999}\))?\s{0,99}([\w$.]+)")  # bounded, as the others: it may be any text
_ENTRY = re.compile(r"\.entry\s{1,99}([\w$.]+)")
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_KIND = re.compile(r"kind::(\w+)")


@dataclass(frozen=True)
class MatrixInstruction:
    """A matrix instruction of PTX: as written, its line (from 1), and the function it stands in."""

    text: str
    line: int = 0
    function: str = ""

    @property
    def family(self) -> Literal["mma", "wgmma", "tcgen05"]:
        """How it is issued: "mma" (also wmma), "wgmma" or "tcgen05".

        >>> MatrixInstruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16").family
        'wgmma'
        """
        first = self.text.partition(".")[0]
        return "wgmma" if first == "wgmma" else "tcgen05" if first == "tcgen05" else "mma"

    @property
    def sparse(self) -> bool:
        """Whether it multiplies 2:4 sparse matrices."""
        return ".sp" in self.text

    @property
    def types(self) -> tuple[str, ...]:
        """The types as written: of mma the result, A, B, and the accumulator; of wgmma the result, A, B; none of tcgen05.

        >>> MatrixInstruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32").types
        ('f32', 'e4m3', 'e4m3', 'f32')
        """
        return tuple(word for word in self.text.split(".") if word in BITS)

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """m, n, k; None for tcgen05, whose shape is in a descriptor."""
        found = _SHAPE.search(self.text)
        return (int(found[1]), int(found[2]), int(found[3])) if found else None

    @property
    def kind(self) -> str:
        """What is multiplied: the type of A, with the operation for bits ("b1.and"), or the kind that the instruction names.

        >>> MatrixInstruction("tcgen05.mma.cta_group::1.kind::f16").kind
        'f16'
        >>> MatrixInstruction("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc").kind
        'b1.xor'
        """
        named = _KIND.search(self.text)
        if named and (named[1] != "f8f6f4" or not self.types):
            return named[1]
        types = self.types
        if len(types) < 2:
            return types[0] if types else ""
        return f"b1.{'xor' if '.xor' in self.text else 'and'}" if types[1] == "b1" else types[1]

    def carried_out_by(self, opcode: str) -> bool:
        """Whether a machine instruction is the one for this, and not a stand-in.

        >>> four = MatrixInstruction("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
        >>> four.carried_out_by("IMMA.16864.S4.S4"), four.carried_out_by("IMMA.16832.S8.S8")
        (True, False)
        """
        return carries(self.kind, opcode)


def carries(kind: str, opcode: str) -> bool:
    """Whether a machine instruction multiplies a kind ("s4", "e4m3", "b1.and", …) in hardware; an unknown kind, any matrix instruction."""
    return re.match(_NATIVE.get(kind, r"\w*MMA\b"), opcode) is not None


def read(ptx: str) -> list[MatrixInstruction]:
    """Return the matrix instructions of a PTX program in the order of its text; what stands in comments is none.

    >>> program = ".entry k()\\n{\\n  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {d}, {a}, {b}, {d};\\n}"
    >>> [(one.kind, one.line, one.function) for one in read(program)]
    [('f64', 3, 'k')]
    """
    plain = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), ptx)
    return list(_read(plain.split("\n")))


def entries(ptx: str) -> list[str]:
    """Return the names of the kernels of a PTX program.

    >>> entries(".visible .entry k(.param .u64 p)\\n{ ret; }\\n.func helper()")
    ['k']
    """
    return _ENTRY.findall(ptx)


def _read(lines: Iterable[str]) -> Iterable[MatrixInstruction]:
    function = ""
    for number, line in enumerate(lines, 1):
        code = line.partition("//")[0]
        place = _PLACE.search(code)
        function = place[1] if place else function
        for found in _INSTRUCTION.finditer(code):
            yield MatrixInstruction(found[0], number, function)
