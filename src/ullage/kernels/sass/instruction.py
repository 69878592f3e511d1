"""What a SASS instruction is, and a function of them. Begin here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """One instruction: `address` in bytes from the function's start, `opcode` with its modifiers ("HGMMA.64x256x16.F32"), `operands`
    as the disassembler writes them, `predicate` ("@!P0", "" for none)."""

    address: int
    opcode: str
    operands: str = ""
    predicate: str = ""

    @property
    def root(self) -> str:
        """The opcode without modifiers.

        >>> Instruction(0, "HMMA.16816.F32").root
        'HMMA'
        """
        return self.opcode.partition(".")[0]

    def __str__(self) -> str:
        return " ".join(word for word in (self.predicate, self.opcode, self.operands) if word)


@dataclass(frozen=True)
class Function:
    """A function of a cubin: its name as written in the file, its architecture ("sm_90"), its instructions in order of address."""

    name: str
    architecture: str
    instructions: tuple[Instruction, ...]


def loops(function: Function) -> list[tuple[Instruction, ...]]:
    """Return the bodies of a function's loops, the tightest first: what lies between a backward branch and its target.

    The branch that stands for the end of the program (a branch to itself) is none.
    """
    found = []
    for branch in function.instructions:
        target = _target(branch) if branch.root in ("BRA", "BRX", "JMP") else None
        if target is not None and target < branch.address:
            found.append(tuple(i for i in function.instructions if target <= i.address <= branch.address))
    return sorted(found, key=len)


def _target(branch: Instruction) -> int | None:
    """Return where a branch leads, None where the operand is no address.

    >>> _target(Instruction(0x100, "BRA", "UP0,0x80")), _target(Instruction(0x100, "BRX", "R2"))
    (128, None)
    """
    word = branch.operands.replace(" ", "").split(",")[-1]
    return int(word, 16) if word.startswith("0x") else None
