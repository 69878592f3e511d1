"""Kernels on a CPU: CUDA C++ made into C++ by replacing each `asm` by a call of the model in `emulated_gpu.cpp`, built by g++, run.

The kernel's source is built with -fsanitize=thread, without the sanitizer's library: g++ then calls a function of the model before each
access to memory. Statements that order something are numbered, so that a test can leave each out without building the kernel again.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ullage.benches.bench import Case, TensorMap
from ullage.benches.running.checking import wrong
from ullage.benches.running.device import POISON, three
from ullage.benches.source import CLOCKS, whole

MODEL = Path(__file__).with_suffix(".cpp")
_SHARED = re.compile(r"extern __shared__(?: __align__\(\d+\))? (\w+) (\w+)\[\];")
_ASM = re.compile(r"\basm(?: volatile)?\s*\(")
# Where a kernel, a function of kernels or a macro begins.
_BEGINNING = re.compile(
    r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\s*\(|^__device__ __forceinline__ \w+ (\w+)\(|^#define (\w+)',
    re.MULTILINE,
)
# What orders something: instructions by their names, and calls of a kernel's own functions of such instructions.
_NAMES = r"fence\.|wgmma\.(?:fence|commit|wait)|cp\.async\.(?:bulk\.)?(?:commit|wait)|barrier\.cluster"
_INSTRUCTION = rf'asm volatile\("(?:{_NAMES})[^;]*;"[^;]*;'
_CALL = r"\b(?:__syncthreads|cluster_sync|commit)\(\);|\bawait(?:_others)?\((?!u32)[^;]*\);"
_ORDERING = re.compile(f"{_INSTRUCTION}|{_CALL}")
COMPILER = ("g++", "-std=c++20", "-O1", "-fPIC", "-fno-strict-aliasing", "-fno-gnu-unique", "-w", "-c")
WATCH = ("-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0")


@dataclass(frozen=True)
class Statement:
    """A statement that orders something: its number in the whole source, the kernel, function or macro that it stands in, its text."""

    number: int
    place: str
    text: str


def ordering_statements(source: str, entry: str) -> list[Statement]:
    """Return the statements of a kernel that order something, those of the functions and macros that it names among them."""
    text = whole(source)
    parts = [(found.start(), next(filter(None, found.groups()))) for found in _BEGINNING.finditer(text)]
    ends = [*(start for start, _ in parts[1:]), len(text)]
    (body,) = [text[start:end] for (start, name), end in zip(parts, ends, strict=True) if name == entry]
    every = [
        Statement(number, [name for start, name in parts if start <= found.start()][-1], found[0])
        for number, found in enumerate(_ORDERING.finditer(text))
    ]
    return [statement for statement in every if re.search(rf"\b{statement.place}\b", body)]


def emulated(case: Case, folder: Path, seed: int = 0, extra: str = "", left_out: int = -1) -> str | None:
    """Return what is wrong with a case on the model, None when nothing is; `folder` keeps the built kernels.

    Wrong is a result that differs from the reference, or something that the kernel does without the order that PTX asks for. `left_out`
    is the number of a statement that is not executed.
    """
    arrays = tuple(np.ascontiguousarray(array).copy() for array in case.inputs(np.random.default_rng(seed), "random"))
    given = tuple(array.copy() for array in arrays)
    outputs = [
        np.full(one.shape, POISON, np.uint8).repeat(np.dtype(one.dtype).itemsize).view(one.dtype).reshape(one.shape) for one in case.outputs
    ]
    clocks = np.full(int(np.prod(three(case.grid))) * CLOCKS, -1, np.int64)
    maps = [_tensor_map(one, arrays[one.input]) for one in case.maps]
    places = [array.ctypes.data for array in (clocks, *arrays, *outputs, *maps)]
    values = [*places, case.check_trips, *case.scalars]
    library = ctypes.CDLL(str(built(case.source, folder, extra)))
    function = ctypes.cast(getattr(library, case.entry), ctypes.c_void_p)
    library.launch.restype = ctypes.c_char_p
    problem = library.launch(function, _three(case.grid), _three(case.block), case.cluster, (ctypes.c_uint64 * 12)(*values), left_out)
    if problem is not None:
        return str(problem.decode())
    if (clocks == -1).any():
        return "a block noted no cycles"
    return wrong(outputs, case.reference(given, case.check_trips), case.tolerance)


def _tensor_map(seen: TensorMap, array: np.ndarray) -> np.ndarray:
    """Return a tensor map as the model reads it: address, rank, swizzle, then the extents of the tensor and of the box."""
    assert int(np.prod(seen.shape)) == array.size and array.itemsize == 8
    shape, box = ((*extents, *[1] * (3 - len(extents))) for extents in (seen.shape, seen.box))
    return np.array([array.ctypes.data, len(seen.shape), seen.swizzle, *shape, *box, *[0] * 7], np.uint64)


def _three(shape: int | tuple[int, int, int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*three(shape))


def built(source: str, folder: Path, extra: str = "") -> Path:
    """Return the shared library of a kernel's source; the model is built once for all."""
    text = f'#include "emulated_gpu.hpp"\n{extra}{translated(whole(source))}'
    model, kernel = _object(folder, MODEL.read_text()), _object(folder, text, *WATCH)
    library = kernel.with_suffix(".so")
    if not library.exists():
        made = _own(library)
        _run("g++", "-shared", str(kernel), str(model), "-o", str(made))
        made.replace(library)
    return library


def _own(place: Path) -> Path:
    """Return a name of this process beside a place: several processes that build the same do so side by side."""
    return place.with_name(f"{place.stem}-{os.getpid()}{place.suffix}")


def _object(folder: Path, text: str, *options: str) -> Path:
    name = folder / hashlib.sha256((text + _model() + str(options)).encode()).hexdigest()[:16]
    place = name.with_suffix(".o")
    if not place.exists():
        source, made = _own(name.with_suffix(".cpp")), _own(place)
        source.write_text(text)
        _run(*COMPILER, *options, f"-I{MODEL.parent}", str(source), "-o", str(made))
        made.replace(place)
    return place


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def _model() -> str:
    return "".join(part.read_text() for part in sorted(MODEL.parent.glob("emulated_*.hpp")))


def translated(source: str) -> str:
    """Return CUDA C++ as C++."""
    numbers = itertools.count()
    source = _ORDERING.sub(lambda found: f"{{ if (gpu::kept({next(numbers)})) {{ {found[0]} }} }}", source)
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
    given = ", ".join(["asm_", f'"{words}"', *refs])
    return f"{{ static int asm_; gpu::assembly({given}); }}"


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
