"""Kernels on a CPU: CUDA C++ made into C++ by replacing each `asm` by a call of the model in `emulated_gpu.cpp`, built by g++, run."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ullage.benches.bench import Case
from ullage.benches.running.checking import wrong
from ullage.benches.running.device import POISON, three
from ullage.benches.source import CLOCKS, whole

MODEL = Path(__file__).with_suffix(".cpp")
_SHARED = re.compile(r"extern __shared__(?: __align__\(\d+\))? (\w+) (\w+)\[\];")
_ASM = re.compile(r"\basm(?: volatile)?\s*\(")


def emulated(case: Case, folder: Path, seed: int = 0, extra: str = "") -> str | None:
    """Return what is wrong with a case's result on the model, None when it is right; `folder` keeps the built kernels."""
    arrays = tuple(np.ascontiguousarray(array).copy() for array in case.inputs(np.random.default_rng(seed), "random"))
    given = tuple(array.copy() for array in arrays)
    outputs = [
        np.full(one.shape, POISON, np.uint8).repeat(np.dtype(one.dtype).itemsize).view(one.dtype).reshape(one.shape) for one in case.outputs
    ]
    clocks = np.full(int(np.prod(three(case.grid))) * CLOCKS, -1, np.int64)
    places = [array.ctypes.data for array in (clocks, *arrays, *outputs)]
    values = [*places, case.check_trips, *case.scalars]
    library = ctypes.CDLL(str(built(case.source, folder, extra)))
    function = ctypes.cast(getattr(library, case.entry), ctypes.c_void_p)
    library.launch(function, _three(case.grid), _three(case.block), case.cluster, (ctypes.c_uint64 * 12)(*values))
    if (clocks == -1).any():
        return "a block noted no cycles"
    return wrong(outputs, case.reference(given, case.check_trips), case.tolerance)


def _three(shape: int | tuple[int, int, int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*three(shape))


def built(source: str, folder: Path, extra: str = "") -> Path:
    """Return the shared library of a kernel's source; the model is built once for all."""
    model = _library(folder, "-c", MODEL.read_text(), ".o")
    return _library(folder, "-shared", f'#include "emulated_gpu.hpp"\n{extra}{translated(whole(source))}', ".so", model)


def _library(folder: Path, kind: str, text: str, ending: str, *others: Path) -> Path:
    name = folder / hashlib.sha256((text + _model() + str(others)).encode()).hexdigest()[:16]
    place = name.with_suffix(ending)
    if not place.exists():
        name.with_suffix(".cpp").write_text(text)
        words = [
            "g++",
            "-std=c++20",
            "-O1",
            "-fPIC",
            "-fno-strict-aliasing",
            "-fno-gnu-unique",
            "-w",
            kind,
            f"-I{MODEL.parent}",
            str(name.with_suffix(".cpp")),
        ]
        subprocess.run([*words, *map(str, others), "-o", str(place)], check=True, capture_output=True, text=True)
    return place


def _model() -> str:
    return "".join(part.read_text() for part in sorted(MODEL.parent.glob("emulated_*.hpp")))


def translated(source: str) -> str:
    """Return CUDA C++ as C++."""
    source = _SHARED.sub(r"\n#undef \2\n#define \2 ((\1 *)gpu::dynamic())\n", source)
    parts, at = [], 0
    while found := _ASM.search(source, at):
        end = _closing(source, found.end())
        parts += [source[at : found.start()], _call(source[found.end() : end])]
        at = end + 1
    return "".join([*parts, source[at:]])


def _closing(text: str, at: int) -> int:
    """Return where the bracket closes that is open at a place; brackets in strings don't count."""
    depth, quoted = 1, False
    while depth:
        quoted ^= text[at] == '"'
        depth += 0 if quoted else {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1


def _call(statement: str) -> str:
    template, outputs, inputs, *_ = [*_split(statement, ":"), "", "", ""]
    words = "".join(re.findall(r'"([^"]*)"', template))
    refs = [
        f"gpu::{'out' if constraint[0] in '=+' else 'in'}({value})" for part in (outputs, inputs) for constraint, value in _operands(part)
    ]
    given = f"const gpu::Ref refs_[] = {{{', '.join(refs) or 'gpu::in(0)'}}}"
    return f'{{ static int asm_; {given}; gpu::assembly(asm_, "{words}", refs_, {len(refs)}); }}'


def _operands(part: str) -> Iterator[tuple[str, str]]:
    for one in _split(part, ","):
        if one.strip():
            found = re.fullmatch(r'\s*"([^"]*)"\s*\((.*)\)\s*', one, re.DOTALL)
            assert found, f"no operand: {one}"
            yield found[1], found[2]


def _split(text: str, by: str) -> list[str]:
    """Split at a character outside of strings and brackets."""
    parts, depth, quoted, begin = [], 0, False, 0
    for at, letter in enumerate(text):
        quoted ^= letter == '"'
        depth += 0 if quoted else {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == by and not quoted and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]
