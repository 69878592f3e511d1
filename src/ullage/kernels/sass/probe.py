"""What a probe is: one instruction, in the smallest kernel that holds it, to be compiled for every architecture.

Begin here; each module of `probes/` holds the probes of one family. A probe is one call of `matrix(...)` (an instruction on
matrices: its registers follow from its name) or of `probe(...)` (anything else, as C++).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ullage.kernels.sass.asked import BITS, MatrixInstruction
from ullage.kernels.sass.work import TENSOR
from ullage.registry import Registry

Family = Literal["mma", "wgmma", "tcgen05", "vector", "copy", "cluster"]


@dataclass(frozen=True)
class Probe:
    """An instruction as a program asks for it, the C++ statements that ask (`memory` points to global memory, `shared` to shared
    memory), and the roots of the opcodes that may answer. `asked` is None where it is no instruction on matrices."""

    name: str
    family: Family
    body: str
    shows: frozenset[str]
    asked: MatrixInstruction | None = None

    def kernel(self, entry: str) -> str:
        """Return the CUDA C++ of a kernel called `entry`."""
        head = f'extern "C" __global__ void {entry}(unsigned *memory)'
        return f"{head} {{\n    __shared__ alignas(128) unsigned shared[1024];\n    {self.body}\n}}\n"


PROBES: Registry[Probe] = Registry("probe", package="ullage.kernels.sass.probes", command="ullage sass --table")


def probe(name: str, family: Family, body: str, shows: tuple[str, ...]) -> None:
    """Register an instruction in C++ statements; `shows` are the roots of the opcodes that carry it out."""
    PROBES.add(name, Probe(name, family, body, frozenset(shows)))


def matrix(text: str, *, registers: bool = False) -> None:
    """Register an instruction on matrices by its PTX name; `registers` takes wgmma's A from registers, not from shared memory."""
    asked = MatrixInstruction(text)
    name = f"{text} (A in registers)" if registers else text
    PROBES.add(name, Probe(name, asked.family, matrix_body(asked, registers), TENSOR, asked))


def matrix_body(asked: MatrixInstruction, registers: bool = False) -> str:
    """Return the C++ statements that ask for an instruction on matrices, with all the registers that it needs."""
    if asked.family == "wgmma":
        return _wgmma(asked, registers)
    return _tcgen05(asked) if asked.family == "tcgen05" else _mma(asked)


def _mma(asked: MatrixInstruction) -> str:
    m, n, k = asked.shape or (0, 0, 0)
    result, a, b, _ = asked.types[:4]
    narrow = 4 if asked.kind in ("mxf4", "mxf4nvf4") else None
    bits = 1024 if a != "f64" else 2048  # of one register of each of the 32 threads
    registers = {
        "d": (m * n * BITS[result] // bits, result),
        "a": (m * k * (narrow or BITS[a]) // (2 if asked.sparse else 1) // bits, a),
        "b": (k * n * (narrow or BITS[b]) // bits, b),
    }
    operands = [_vector(name, registers[name]) for name in "dabd"]
    if asked.sparse:
        registers["e"] = (1, "b32")
        operands += ["e0", "0x0"]
    if "block_scale" in asked.text:
        registers["s"] = (2, "b32")
        operands += ["s0", "{0, 0}", "s1", "{0, 0}"]
    return _assembly(registers, [f"{asked.text} {', '.join(operands)};"])


def _wgmma(asked: MatrixInstruction, a_in_registers: bool) -> str:
    m, n, _ = asked.shape or (0, 0, 0)
    result, a, _ = asked.types[:3]
    registers = {"d": (m * n * BITS[result] // 32 // 128, result), "a": (4 if a_in_registers else 0, "b32"), "e": (1, "b32")}
    operands = [_vector("d", registers["d"]), _vector("a", registers["a"]) if a_in_registers else "left", "right"]
    operands += ["e0", "0"] if asked.sparse else []
    operands += ["accumulate"]
    if result != "s32":
        operands += ["1", "1"]  # signs of A and B
    if a in ("f16", "bf16"):
        operands += ["0"] if a_in_registers else ["0", "0"]  # transposes
    lines = ["wgmma.fence.sync.aligned;", f"{asked.text} {', '.join(operands)};"]
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    return _assembly(registers, [*_DESCRIPTORS, *lines])


def _tcgen05(asked: MatrixInstruction) -> str:
    operands = ["[e0]", "left", "right", *(["[e1]"] if asked.sparse else []), "e2"]
    operands += ["[e1]", "[e1]"] if "block_scale" in asked.text else []
    return _assembly({"d": (0, "b32"), "e": (3, "b32")}, [*_DESCRIPTORS, f"{asked.text} {', '.join([*operands, 'accumulate'])};"])


_DESCRIPTORS = (
    ".reg .b64 left, right; .reg .pred accumulate;",
    "ld.volatile.global.b64 left, [%0]; ld.volatile.global.b64 right, [%0+8];",
    "setp.ne.b64 accumulate, left, right;",
)


def _assembly(registers: dict[str, tuple[int, str]], lines: list[str]) -> str:
    """Return an asm statement: registers filled from memory, the lines, and the registers "d" written back."""
    wide = {name: "b64" if kind == "f64" else "b32" for name, (_, kind) in registers.items()}
    text = [f".reg .{wide[name]} {name}<{count}>;" for name, (count, _) in registers.items() if count]
    text += [f"ld.volatile.global.{wide[name]} {name}{i}, [%0+{8 * i}];" for name, (count, _) in registers.items() for i in range(count)]
    text += [*lines, *(f"st.volatile.global.{wide['d']} [%0+{8 * i}], d{i};" for i in range(registers["d"][0]))]
    joined = "\\n".join(["{", *text, "}"])
    return f'asm volatile("{joined}" :: "l"(memory) : "memory");'


def _vector(name: str, register: tuple[int, str]) -> str:
    return "{" + ", ".join(f"{name}{i}" for i in range(register[0])) + "}"
