"""CUDA C++ to machine code, in memory and without a GPU: NVRTC, which comes with PyPI's `nvidia-cuda-nvrtc` or the toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ullage.errors import UllageError, missing_extra

# The architectures for which kernels are written; "a": with the instructions of that chip alone (wgmma, tcgen05).
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_120a")


def compile_cubin(source: str, architecture: str, options: Sequence[str] = ()) -> bytes:
    """Return the cubin of a CUDA C++ program for an architecture such as "sm_90a".

    Raises UllageError without NVRTC, for an architecture that it does not know, and, with the compiler's own words, for a
    program that it refuses.
    """
    return _compiled(source, architecture, tuple(options))


@lru_cache(maxsize=1024)
def _compiled(source: str, architecture: str, options: tuple[str, ...]) -> bytes:
    nvrtc = _nvrtc()
    program = _answer(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
    try:
        words = [f"--gpu-architecture={architecture}".encode(), b"-std=c++17", *(option.encode() for option in options)]
        (code,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise _refused(nvrtc, program, code, architecture)
        cubin = b" " * _answer(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        _answer(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _refused(nvrtc: Any, program: Any, code: Any, architecture: str) -> UllageError:
    log = b" " * _answer(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    nvrtc.nvrtcGetProgramLog(program, log)
    said = log.decode(errors="replace").strip("\0 \n") or str(code)
    line = next((one for one in said.splitlines() if "error" in one), said.splitlines()[0])
    hint = "NVRTC is older than this architecture; update it" if "gpu-architecture" in said else said[:2000]
    return UllageError(f"the compiler refuses the kernel for {architecture}: {line.strip()[:300]}", hint)


def compiler_version() -> str:
    """Return NVRTC's version as "13.5"; raises UllageError without NVRTC."""
    nvrtc = _nvrtc()
    code, major, minor = nvrtc.nvrtcVersion()
    return f"{major}.{minor}" if code == nvrtc.nvrtcResult.NVRTC_SUCCESS else "unknown"


def _answer(nvrtc: Any, returned: tuple[Any, ...]) -> Any:
    """Return what a call of NVRTC gives beside its code; raises UllageError for any code but success."""
    code, *values = returned
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise UllageError(f"NVRTC answers {code}", "update nvidia-cuda-nvrtc")
    return values[0] if values else None


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise missing_extra("cuda-bindings (with nvidia-cuda-nvrtc)", "kernels", "compiling kernels") from error
    return nvrtc
