"""Signs in the machine code that an instruction on matrices was replaced: a routine of the compiler's own, or operands unpacked first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ullage.kernels.sass.instruction import Function, Instruction
from ullage.kernels.sass.work import moved

# Routines that ptxas puts in; what they stand for is in their names, as ptxas 12.2 to 13.5 write them.
_ROUTINES = {
    "s4": r"mma_sub_byte_internal\w*_s4_",
    "u4": r"mma_sub_byte_internal\w*_u4_",
    "b1.and": r"mma_bit_internal_and",
    "b1.xor": r"mma_bit_internal_xor",
    "f16": r"mma_(?:row|col)_(?:row|col)_f(?:16|32)_f16",
    "metadata": r"[hi]mma_mdata",
}
_OWN = re.compile(r"__cuda_sm_\d+x_(\w+)")
_UNPACK = re.compile(r"F2FP\.\S*(E4M3|E5M2)\.UNPACK")
_REGISTER = re.compile(r"R(\d+)")


@dataclass(frozen=True)
class Sign:
    """A replacement of one kind ("s4", "b1.and", "e4m3", "f16"; "metadata": only the positions of a sparse matrix are rearranged),
    the instructions that show it, and whether they prove it."""

    kind: str
    sites: tuple[Instruction, ...]
    certain: bool


def signs(function: Function) -> list[Sign]:
    """Return the replacements that a function shows, by kind, in the order of their first site.

    >>> call = Instruction(0, "CALL.REL.NOINC", "$__internal_0_$__cuda_sm_9x_mma_sub_byte_internal_m16n8k64_s4_s4")
    >>> [(sign.kind, len(sign.sites)) for sign in signs(Function("k", "sm_90", (call, call)))]
    [('s4', 2)]
    """
    found: dict[tuple[str, bool], list[Instruction]] = {}
    for one in function.instructions:
        kind = _called(one)
        if kind:
            found.setdefault((kind, True), []).append(one)
    for one, kind in _unpacked(function.instructions):
        found.setdefault((kind, False), []).append(one)
    return [Sign(kind, tuple(sites), certain) for (kind, certain), sites in found.items()]


def _called(one: Instruction) -> str | None:
    routine = _OWN.search(one.operands) if one.root == "CALL" else None
    if routine is None:
        return None
    return next((kind for kind, pattern in _ROUTINES.items() if re.match(pattern, routine[1] + "_")), None)


def _unpacked(instructions: Iterable[Instruction]) -> Iterable[tuple[Instruction, str]]:
    """Yield the HMMAs whose A and B both come from unpacked FP8, with its type. Conversions in the source look the same."""
    written: dict[int, str] = {}  # the FP8 type that a register was unpacked from
    for one in instructions:
        registers = [_REGISTER.match(word.strip()) for word in one.operands.split(",")]
        numbers = [int(found[1]) if found else -1 for found in registers]
        if one.root == "HMMA" and len(numbers) >= 3:
            kinds = {written.get(number) for number in numbers[1:3]}
            if len(kinds) == 1 and None not in kinds:
                yield one, str(kinds.pop())
        unpack = _UNPACK.match(one.opcode)
        for number in _results(one, numbers):
            written.pop(number, None)
            if unpack:
                written[number] = unpack[1].lower()


def _results(one: Instruction, numbers: list[int]) -> range:
    """Return the registers that an instruction writes, as far as its first operand and its width tell."""
    wide = 4 if one.root == "HMMA" else max([1, *(size // 4 for size in moved(one).values())])
    return range(numbers[0], numbers[0] + wide) if numbers and numbers[0] >= 0 else range(0)
