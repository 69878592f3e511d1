"""Which instructions of a function run in a loop, by its control flow."""

from __future__ import annotations

from collections.abc import Sequence

from ullage.kernels.sass.instruction import Function, Instruction

_JUMPS = ("BRA", "JMP", "WARPSYNC")
_ENDS = ("BRA", "JMP", "BRX", "JMX", "EXIT", "RET", "KILL")


def in_loops(function: Function) -> frozenset[int]:
    """Return the addresses of the instructions that can run again: those on a cycle of the control flow.

    A branch back from code that stands out of line (a slow path behind the end) makes no loop. What only a CALL reaches counts as
    in a loop when any call of the function is: where calls lead is not in the disassembly.

    >>> sorted(in_loops(Function("k", "sm_90", (Instruction(0, "MOV"), Instruction(16, "FFMA"), Instruction(32, "BRA", "0x10", "@P0")))))
    [16, 32]
    """
    code = function.instructions
    after = [_next(code, n) for n in range(len(code))]
    found = {n for group in _cycles(after) for n in group}
    if any(code[n].root == "CALL" for n in found):
        found |= set(range(len(code))) - _reached(after)
    return frozenset(code[n].address for n in found)


def _next(code: Sequence[Instruction], n: int) -> list[int]:
    """Return the positions that may follow position n."""
    one = code[n]
    target = one.operands.replace(" ", "").split(",")[-1] if one.root in _JUMPS else ""
    step = code[1].address - code[0].address if len(code) > 1 else 16
    found = [int(target, 16) // step] if target.startswith("0x") else []
    always = one.root in _ENDS and not one.predicate and "," not in one.operands  # BRA.U UP0, 0x80 is conditional
    if not always:
        found.append(n + 1)
    return [place for place in found if place < len(code)]


def _reached(after: Sequence[Sequence[int]]) -> set[int]:
    seen: set[int] = set()
    waiting = [0] if after else []
    while waiting:
        n = waiting.pop()
        if n not in seen:
            seen.add(n)
            waiting.extend(after[n])
    return seen


def _cycles(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the strongly connected groups that hold a cycle (Kosaraju), without those that only jump to themselves."""
    before: list[list[int]] = [[] for _ in after]
    for n, following in enumerate(after):
        for place in following:
            before[place].append(n)
    seen: set[int] = set()
    groups = []
    for n in reversed(_finished(after)):
        group, waiting = [], [n]
        while waiting:
            place = waiting.pop()
            if place not in seen:
                seen.add(place)
                group.append(place)
                waiting.extend(before[place])
        if len(group) > 1:
            groups.append(group)
    return groups


def _finished(after: Sequence[Sequence[int]]) -> list[int]:
    """Return all positions in the order in which a depth-first walk leaves them."""
    order: list[int] = []
    seen: set[int] = set()
    for start in range(len(after)):
        waiting = [(start, False)]
        while waiting:
            n, left = waiting.pop()
            if left:
                order.append(n)
            elif n not in seen:
                seen.add(n)
                waiting.append((n, True))
                waiting.extend((place, False) for place in after[n] if place not in seen)
    return order
