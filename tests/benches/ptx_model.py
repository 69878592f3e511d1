"""A model of as much PTX as the kernels of `gpu/` are written in: one thread, every operand of an `mma` the same in all of its warp.

With such operands the fragments' layout plays no part: an element of D is C plus K times the product of the two numbers.
"""

from __future__ import annotations

import re
import struct

import numpy as np

_BITS = re.compile(r"0[fF]([0-9A-Fa-f]{8})$")
_MMA = re.compile(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.f32\.(bf16|f16)\.\2\.f32 (.*)")


class Thread:
    """Runs a kernel as one thread of one block. `memory` are its u32 by address; `issued` counts the instructions of each kind."""

    def __init__(self, ptx: str, parameters: dict[str, int], special: dict[str, int] | None = None) -> None:
        body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("}")]
        self.lines = [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith((".reg", ".pragma"))]
        self.labels = {line[:-1]: at for at, line in enumerate(self.lines) if line.endswith(":")}
        self.parameters, self.registers = parameters, dict[str, object](special or {})
        self.memory: dict[int, int] = {}
        self.issued: dict[str, int] = {}

    def run(self) -> Thread:
        at = 0
        while (line := self.lines[at]) != "ret;":
            at += 1
            if line.endswith(":"):
                continue
            guard, deed = line[1:].split(" ", 1) if line.startswith("@") else ("", line)
            if guard and not self.registers[guard]:
                continue
            if deed.startswith("bra "):
                at = self.labels[deed[4:-1]]
            else:
                self.step(deed.rstrip(";"))
        return self

    def step(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        self.issued[name.split(".")[0]] = self.issued.get(name.split(".")[0], 0) + 1
        if found := _MMA.match(line):
            self.multiply(int(found[1]), found[2], found[3])
            return
        operands = [one.strip() for one in rest.split(",")]
        if name.startswith("ld.param"):
            self.registers[operands[0]] = self.parameters[operands[1].strip("[]")]
        elif name.startswith(("cvta", "mov")):
            self.registers[operands[0]] = self.value(operands[1])
        elif name.startswith("cvt.rn.f32.u32"):
            self.registers[operands[0]] = np.float32(self.value(operands[1]))
        elif name.startswith("add"):
            total = self.value(operands[1]) + self.value(operands[2])
            self.registers[operands[0]] = np.float32(total) if name == "add.f32" else total % 2**32
        elif name == "setp.lt.u32":
            self.registers[operands[0]] = self.value(operands[1]) < self.value(operands[2])
        elif name == "setp.neu.f32":
            self.registers[operands[0]] = self.value(operands[1]) != self.value(operands[2])
        elif name == "red.global.add.u32":
            address = self.address(operands[0])
            self.memory[address] = self.memory.get(address, 0) + self.value(operands[1])
        elif name == "ld.global.u32":
            self.registers[operands[0]] = self.memory.get(self.address(operands[1]), 0)
        elif name == "st.global.u32":
            self.memory[self.address(operands[0])] = self.value(operands[1])
        else:
            raise AssertionError(f"the model knows no {line}")

    def multiply(self, k: int, kind: str, rest: str) -> None:
        d, a, b, c = ([one.strip() for one in group.split(",")] for group in re.findall(r"\{([^}]*)\}", rest))
        ones, parts = ({_halves(self.value(one), kind) for one in group} for group in (a, b))
        assert len(ones) == len(parts) == 1, "the model takes the same number in all fragments"
        for to, old in zip(d, c, strict=True):
            self.registers[to] = np.float32(self.value(old) + k * min(ones) * min(parts))

    def value(self, operand: str) -> object:
        if bits := _BITS.match(operand):
            return np.float32(struct.unpack("<f", int(bits[1], 16).to_bytes(4, "little"))[0])
        return self.registers[operand] if operand.startswith("%") else int(operand, 0)

    def address(self, operand: str) -> int:
        base, _, offset = operand.strip("[]").partition("+")
        return self.value(base) + int(offset or 0)


def _halves(word: int, kind: str) -> float:
    """Return the number that stands twice in a register."""
    low, high = word & 0xFFFF, word >> 16
    assert low == high
    if kind == "bf16":
        return struct.unpack("<f", struct.pack("<I", low << 16))[0]
    return float(np.uint16(low).view(np.float16))
