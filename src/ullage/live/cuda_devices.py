"""The GPUs that CUDA shows to this process, by the driver alone: nothing is put on them."""

from __future__ import annotations

import ctypes
import uuid
from dataclasses import dataclass
from typing import Any

from ullage.errors import UllageError

_COMPUTE_MODE, _EXCLUSIVE = 20, 3  # CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_EXCLUSIVE_PROCESS


@dataclass(frozen=True)
class CudaDevice:
    """A GPU: its number for CUDA, its UUID as NVML writes it ("MIG-…" for an instance), its name.

    `exclusive` says that it serves one process at a time.
    """

    ordinal: int
    uuid: str
    name: str
    exclusive: bool = False


def cuda_devices(driver: Any = None) -> list[CudaDevice]:
    """Return the GPUs in CUDA's order; `driver` is libcuda as ctypes has it (None: this machine's).

    cuInit is called and no context is made. Raises UllageError where there is no driver or no GPU.
    """
    cuda = driver or _driver()
    code, count = cuda.cuInit(0), ctypes.c_int()
    if code or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        told = f"answers {code}" if code else "shows no GPU"
        raise UllageError(
            f"the NVIDIA driver {told} to this process", "is the GPU hidden by CUDA_VISIBLE_DEVICES? `nvidia-smi` must list it"
        )
    return [_device(cuda, ordinal) for ordinal in range(count.value)]


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise UllageError("there is no NVIDIA driver on this machine", "run it where `nvidia-smi` answers") from None


def _device(cuda: Any, ordinal: int) -> CudaDevice:
    handle, mode, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(handle), ordinal)
    cuda.cuDeviceGetName(name, len(name), handle)
    cuda.cuDeviceGetAttribute(ctypes.byref(mode), _COMPUTE_MODE, handle)
    whole, own = _uuid(cuda.cuDeviceGetUuid, handle), _uuid(cuda.cuDeviceGetUuid_v2, handle)  # the second has an instance's own
    return CudaDevice(ordinal, f"{'GPU' if own == whole else 'MIG'}-{own}", name.value.decode(errors="replace"), mode.value == _EXCLUSIVE)


def _uuid(ask: Any, handle: ctypes.c_int) -> str:
    raw = ctypes.create_string_buffer(16)
    ask(raw, handle)
    return str(uuid.UUID(bytes=raw.raw))
