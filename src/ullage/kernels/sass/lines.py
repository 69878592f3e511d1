"""A cubin's instructions with the lines of source that they come from, where it was compiled with `-lineinfo` (by nvdisasm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ullage.errors import UllageError, harmless
from ullage.kernels.sass.disassembler import STEP, written
from ullage.kernels.sass.instruction import Function, Instruction

LARGEST = 32 << 20  # bytes of a cubin that is disassembled whole; of a larger one only chosen functions are


@dataclass(frozen=True)
class SourceLine:
    """A line of source."""

    file: str
    line: int

    @property
    def short(self) -> str:
        """The file's name without its folder, and the line."""
        return f"{self.file.rpartition('/')[2]}:{self.line}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Lined:
    """A function and, for each of its instructions, where it comes from; None where the cubin doesn't say."""

    function: Function
    places: tuple[SourceLine | None, ...]

    def at(self, pc: int) -> tuple[Instruction, SourceLine | None] | None:
        """Return the instruction at `pc` bytes from the function's start, with its line; None where there is none."""
        number, rest = divmod(pc, STEP)
        return None if rest or number >= len(self.places) else (self.function.instructions[number], self.places[number])


def disassemble_lined(cubin: bytes, indices: Sequence[int] = ()) -> list[Lined]:
    """Return the functions of a cubin; only those whose symbols have these `indices`, if any are given.

    Raises UllageError without nvdisasm, for what it can't read, and for a cubin that is too large to be taken whole.
    """
    if not indices and len(cubin) > LARGEST:
        raise UllageError(
            f"a cubin of {len(cubin) / 2**20:,.0f} MiB is too large to disassemble whole", "extract one kernel's: nvdisasm -fun"
        )
    try:
        head, functions, *more = written(cubin, ["-g", *(["-fun", ",".join(map(str, indices))] if indices else [])])
        version = head["SM"]["version"]
        files = _files(more)
        return [_lined(one, f"sm_{version['major']}{version['minor']}", files) for one in functions]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        said = harmless(str(error), 100)
        raise UllageError(f"nvdisasm writes a form that is not known here ({said})", "tell us its version: `nvdisasm --version`") from error


def _lined(found: dict[str, Any], architecture: str, files: list[str]) -> Lined:
    instructions, places = [], []
    place: SourceLine | None = None
    for number, row in enumerate(found["sass-instructions"]):
        if "source-line" in row:  # it is written where it changes, and holds until it does again
            place = SourceLine(files[row["source-file-id"]], int(row["source-line"]))
        places.append(place)
        instructions.append(Instruction(STEP * number, str(row["opcode"]), str(row.get("operands", "")), str(row.get("predicate", ""))))
    return Lined(Function(str(found["function-name"]), architecture, tuple(instructions)), tuple(places))


def _files(more: Sequence[dict[str, Any]]) -> list[str]:
    told = more[0] if more else {}
    folders = told.get("directories", [])
    return [str(Path(str(folders[one["dir-idx"]]), str(one["file"]))) for one in told.get("files", [])]
