"""Which GPU this is and what it has: read from the CUDA driver, changing nothing."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from ullage.benches.bench import Target
from ullage.benches.running.driver import answer, refuse
from ullage.errors import UllageError
from ullage.gpus.chip import find

# The architecture whose kernels run on a compute capability. Those for "a" run on that chip alone; those for 8.0 on all of 8.x.
ARCHITECTURES = {
    (8, 0): "sm_80",
    (8, 6): "sm_80",
    (8, 7): "sm_80",
    (8, 9): "sm_89",
    (9, 0): "sm_90a",
    (10, 0): "sm_100a",
    (10, 3): "sm_103a",
    (12, 0): "sm_120a",
}
# L1 and shared memory of an SM together, KiB (CUDA C++ Programming Guide, technical specifications per compute capability).
UNIFIED = {"sm_80": 192, "sm_89": 128, "sm_90a": 256, "sm_100a": 256, "sm_103a": 256, "sm_120a": 128}


def architecture_of(capability: tuple[int, int], gpu: str = "this GPU") -> str:
    """Return the architecture to compile for; raises UllageError for a GPU for which there are no kernels.

    >>> architecture_of((9, 0)), architecture_of((8, 6))
    ('sm_90a', 'sm_80')
    """
    if capability not in ARCHITECTURES:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise UllageError(
            f"{gpu} has compute capability {capability[0]}.{capability[1]}, for which there are no kernels", f"there are for {known}"
        )
    return ARCHITECTURES[capability]


def known_name(told: str) -> str:
    """Return the name that `ullage.gpus` has for a driver's name, or the driver's where it knows none."""
    try:
        return find(told).name
    except UllageError:
        return told


@dataclass(eq=False)
class Board:
    """A GPU as the driver describes it. `handle` is the driver's for the GPU that CUDA counts as `index`."""

    driver: Any
    index: int
    handle: Any

    def asked(self, function: str, *arguments: Any, deed: str = "") -> Any:
        """Return what a function of the driver gives; raises CudaError, "the driver refuses <deed>"."""
        return answer(self.driver, getattr(self.driver, function)(*arguments), deed or f"an answer to {function}")

    @property
    def name(self) -> str:
        """The driver's name of the GPU."""
        return _text(self.asked("cuDeviceGetName", 256, self.handle))

    @property
    def uuid(self) -> str:
        """The UUID as NVML writes it: "GPU-…"."""
        return f"GPU-{uuid.UUID(bytes=bytes(self.asked('cuDeviceGetUuid', self.handle).bytes)[:16])}"

    @property
    def pci(self) -> str:
        """The bus id, "0000:3B:00.0"."""
        return _text(self.asked("cuDeviceGetPCIBusId", 32, self.handle))

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, (9, 0)."""
        return self.attribute("COMPUTE_CAPABILITY_MAJOR"), self.attribute("COMPUTE_CAPABILITY_MINOR")

    @property
    def cuda(self) -> tuple[int, int]:
        """The CUDA version that the driver knows, (13, 0)."""
        number = int(self.asked("cuDriverGetVersion"))
        return number // 1000, number % 1000 // 10

    def attribute(self, which: str) -> int:
        """Return a device attribute by the end of its name ("MULTIPROCESSOR_COUNT")."""
        wanted = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{which}")
        return int(self.asked("cuDeviceGetAttribute", wanted, self.handle))

    def free_memory(self) -> int:
        """Return the bytes that can be had now."""
        code, free, _ = self.driver.cuMemGetInfo()
        refuse(self.driver, code, "to tell its free memory")
        return int(free)

    def target(self) -> Target:
        """Return what cases are made for; its memory is what is free now. Raises UllageError for a GPU without kernels."""
        architecture = architecture_of(self.capability, self.name)
        return Target(
            architecture,
            known_name(self.name),
            sms=self.attribute("MULTIPROCESSOR_COUNT"),
            l1=UNIFIED[architecture] * 1024,
            l2=self.attribute("L2_CACHE_SIZE"),
            memory=self.free_memory(),
            shared_per_block=self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_per_sm=self.attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        )


def _text(told: bytes) -> str:
    return told.split(b"\0")[0].decode(errors="replace").strip()
