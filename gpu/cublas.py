"""cuBLAS by ctypes: matrix products where there is the library and no PyTorch."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

from ullage.benches.running.device import BenchDevice
from ullage.errors import UllageError

# cublas_api.h and library_types.h
TYPES = {"bfloat16": 14, "float16": 2}  # CUDA_R_16BF, CUDA_R_16F
_PLAIN, _FLOAT_SUMS, _DEFAULT = 0, 68, -1  # CUBLAS_OP_N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT
WORKSPACE = 32 << 20  # bytes: what cuBLAS' documentation recommends for Hopper, more than for older GPUs


class Cublas:
    """A handle of cuBLAS on a device's stream; `library` is libcublas, loaded. Closed with `close`, or in a `with`."""

    def __init__(self, library: Any, device: BenchDevice) -> None:
        self._library, self._handle = library, ctypes.c_void_p()
        self._ask("cublasCreate_v2", ctypes.byref(self._handle))
        self._ask("cublasSetStream_v2", self._handle, ctypes.c_void_p(int(device.stream)))
        # its own: what cuBLAS allocates by itself can't be captured in a graph everywhere
        self._ask("cublasSetWorkspace_v2", self._handle, ctypes.c_void_p(device.allocate(WORKSPACE)), ctypes.c_size_t(WORKSPACE))

    def product(self, a: int, b: int, c: int, size: int, dtype: str) -> None:
        """Queue C = A·B, square matrices at these addresses, row by row, sums in FP32.

        cuBLAS counts columns first, and so sees each matrix transposed: Cᵀ = Bᵀ·Aᵀ.
        """
        one, zero, kind = ctypes.c_float(1), ctypes.c_float(0), TYPES[dtype]
        first, second, result = (ctypes.c_void_p(address) for address in (b, a, c))
        sizes, sums = (size, size, size), (_FLOAT_SUMS, _DEFAULT)
        operands = (ctypes.byref(one), first, kind, size, second, kind, size, ctypes.byref(zero), result, kind, size)
        self._ask("cublasGemmEx", self._handle, _PLAIN, _PLAIN, *sizes, *operands, *sums)

    def _ask(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self._library, name)(*arguments))
        if code:
            raise UllageError(f"cuBLAS answers {code} to {name}", "is its CUDA newer than the driver's?")

    def close(self) -> None:
        """Give the handle back; the workspace is the device's. Whatever is refused here was refused, and told, before."""
        self._library.cublasDestroy_v2(self._handle)

    def __enter__(self) -> Cublas:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def version(library: Any) -> str:
    """Return the release of a libcublas, "13.1"."""
    told = [ctypes.c_int(), ctypes.c_int()]
    for which, number in enumerate(told):  # MAJOR_VERSION, MINOR_VERSION
        if library.cublasGetProperty(which, ctypes.byref(number)):
            return "unknown"
    return ".".join(str(number.value) for number in told)
