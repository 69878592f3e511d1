"""The CUDA driver as cuda-bindings gives it: answers turned into values, codes into errors that say what to do."""

from __future__ import annotations

import importlib
from typing import Any

from ullage.errors import UllageError, missing_extra

# After one of these every later call in the context answers the same: only a new context helps.
FATAL = (
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_CONTAINED",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_EXTERNAL_DEVICE",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    "CUDA_ERROR_UNKNOWN",
)
HINTS = {
    "CUDA_ERROR_NO_DEVICE": "is a GPU there, and not hidden by CUDA_VISIBLE_DEVICES? `nvidia-smi -L` lists them",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the driver was updated and not yet loaded: restart the machine or the container",
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": "take CUDA's compatibility libraries out of LD_LIBRARY_PATH, or update the driver",
    "CUDA_ERROR_STUB_LIBRARY": "the stub of libcuda.so.1 stands before the driver's own in LD_LIBRARY_PATH",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the kernel was compiled for another architecture",
    "CUDA_ERROR_OUT_OF_MEMORY": "does another process hold the GPU's memory? `nvidia-smi` lists them",
}


class CudaError(UllageError):
    """What the driver refused: `code` is the name of its answer; `fatal` says that the context is lost."""

    def __init__(self, deed: str, code: str, explanation: str) -> None:
        reason = f"{code}: {explanation}" if explanation else code
        super().__init__(f"the CUDA driver refuses {deed} ({reason})", HINTS.get(code, ""))
        self.code = code

    @property
    def fatal(self) -> bool:
        """Whether nothing works in this context any more."""
        return self.code in FATAL


def bindings() -> Any:
    """Return the module `cuda.bindings.driver`, initialised. Raises UllageError without cuda-bindings, driver or GPU."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise missing_extra("cuda-bindings", "gpu", "running microbenchmarks") from error
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError as error:
        raise _silent(error) from error
    refuse(driver, code, "to start")
    return driver


def answer(driver: Any, returned: tuple[Any, ...], deed: str) -> Any:
    """Return what a call of the driver gives beside its code, None where it gives no more; raises CudaError for any other code."""
    code, *values = returned
    refuse(driver, code, deed)
    return values[0] if values else None


def refuse(driver: Any, code: Any, deed: str) -> None:
    """Raise CudaError, with the driver's own name and explanation, unless the code is success."""
    if code == driver.CUresult.CUDA_SUCCESS:
        return
    raise CudaError(deed, name(code), _explained(driver, code))


def name(code: Any) -> str:
    """Return the name of a driver's answer ("CUDA_ERROR_NO_DEVICE"), or its number where the library knows none."""
    return str(getattr(code, "name", code))


def _explained(driver: Any, code: Any) -> str:
    try:
        found, words = driver.cuGetErrorString(code)
    except (RuntimeError, TypeError, ValueError):
        return ""
    return words.decode(errors="replace") if found == driver.CUresult.CUDA_SUCCESS and words else ""


def _silent(error: RuntimeError) -> UllageError:
    """cuda-bindings finds no libcuda.so.1, or one that lacks what it asks for."""
    told = (str(error).splitlines() or [type(error).__name__])[0][:200]
    if "function" in told.lower():
        return UllageError(
            f"the NVIDIA driver is too old for this cuda-bindings ({told})", "update the driver, or install an older cuda-bindings"
        )
    return UllageError("no NVIDIA driver answers on this machine", "is a GPU there? a container must be started with `--gpus all`")
