"""What a lint of machine code finds. Begin with `lint.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ullage.kernels.sass.asked import MatrixInstruction
from ullage.kernels.sass.ceilings import InstructionCeiling
from ullage.kernels.sass.instruction import Function, Instruction

Sort = Literal["emulated", "legacy", "local memory"]


@dataclass(frozen=True)
class Issued:
    """A tensor instruction of a function: how often it stands there, and how often in loops."""

    opcode: str
    count: int
    looped: int


@dataclass(frozen=True)
class KernelFinding:
    """What keeps a kernel below the peak, with the instruction that shows it.

    `count` such instructions stand in the function, `looped` of them in loops. `stand_in` is the opcode that does an emulated
    type's work ("" where none does); `certain` is False where the source may have meant it so. `ceiling` is what can be had at best (None
    where the question does not arise), `asked` what the PTX says, where that is at hand; `remedy` what to do.
    """

    sort: Sort
    what: str
    evidence: Instruction
    count: int
    looped: int
    stand_in: str = ""
    certain: bool = True
    ceiling: InstructionCeiling | None = None
    asked: MatrixInstruction | None = None
    remedy: str = ""


@dataclass(frozen=True)
class Linted:
    """A function, the tensor instructions that it really issues, and what was found."""

    function: Function
    issued: tuple[Issued, ...]
    findings: tuple[KernelFinding, ...]
