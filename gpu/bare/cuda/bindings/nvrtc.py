"""NVRTC by ctypes, under the names and the calling conventions of cuda-bindings: what compiling a kernel asks for.

The library is found where CUDA's wheels and toolkits put it; where it is not, this module can't be imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from gpu.libraries import loaded


class nvrtcResult(int):
    """An answer of NVRTC."""

    NVRTC_SUCCESS = 0


try:
    _LIBRARY = loaded("nvrtc")
except OSError as error:
    raise ImportError(str(error)) from error


def _ask(name: str, *arguments: Any) -> nvrtcResult:
    return nvrtcResult(getattr(_LIBRARY, name)(*arguments))


def _texts(words: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * len(words))(*words)


def nvrtcVersion() -> tuple[nvrtcResult, int, int]:
    """Return (code, major, minor)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    return _ask("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor)), major.value, minor.value


def nvrtcCreateProgram(
    src: bytes, name: bytes, numHeaders: int, headers: Sequence[bytes], includeNames: Sequence[bytes]
) -> tuple[nvrtcResult, int]:
    """Return (code, the program)."""
    program = ctypes.c_void_p()
    code = _ask("nvrtcCreateProgram", ctypes.byref(program), src, name, numHeaders, _texts(headers), _texts(includeNames))
    return code, program.value or 0


def nvrtcCompileProgram(prog: int, numOptions: int, options: Sequence[bytes]) -> tuple[nvrtcResult]:
    """Compile a program; returns (code,)."""
    return (_ask("nvrtcCompileProgram", ctypes.c_void_p(prog), numOptions, _texts(options)),)


def nvrtcDestroyProgram(prog: int) -> tuple[nvrtcResult]:
    """Free a program; returns (code,)."""
    return (_ask("nvrtcDestroyProgram", ctypes.byref(ctypes.c_void_p(prog))),)


def nvrtcGetCUBINSize(prog: int) -> tuple[nvrtcResult, int]:
    """Return (code, the bytes of the cubin)."""
    return _size("nvrtcGetCUBINSize", prog)


def nvrtcGetCUBIN(prog: int, cubin: bytes) -> tuple[nvrtcResult]:
    """Write the cubin over the bytes that are given, as cuda-bindings does; returns (code,)."""
    return (_ask("nvrtcGetCUBIN", ctypes.c_void_p(prog), cubin),)


def nvrtcGetProgramLogSize(prog: int) -> tuple[nvrtcResult, int]:
    """Return (code, the bytes of what the compiler said)."""
    return _size("nvrtcGetProgramLogSize", prog)


def nvrtcGetProgramLog(prog: int, log: bytes) -> tuple[nvrtcResult]:
    """Write what the compiler said over the bytes that are given; returns (code,)."""
    return (_ask("nvrtcGetProgramLog", ctypes.c_void_p(prog), log),)


def _size(name: str, prog: int) -> tuple[nvrtcResult, int]:
    size = ctypes.c_size_t()
    return _ask(name, ctypes.c_void_p(prog), ctypes.byref(size)), size.value
