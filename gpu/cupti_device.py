"""A GPU by the driver's own functions, and a kernel that takes as long as it is told: what programs with known loads are made of."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from ullage.errors import UllageError
from ullage.kernels.compiling import compile_cubin

# A grid of n blocks takes n microseconds: the first block looks at the GPU's own clock, the others end at once.
SPIN = """
extern "C" __global__ void spin() {
    if (blockIdx.x) return;
    unsigned long long now, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    end = now + 1000ull * gridDim.x;
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now < end);
}
"""
# The same, for a machine without NVRTC.
SPIN_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin()
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %t<4>;
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra OVER;
    mov.u32 %r2, %nctaid.x;
    mul.wide.u32 %t1, %r2, 1000;
    mov.u64 %t2, %globaltimer;
    add.u64 %t1, %t1, %t2;
AGAIN:
    mov.u64 %t3, %globaltimer;
    setp.lt.u64 %p2, %t3, %t1;
    @%p2 bra AGAIN;
OVER:
    ret;
}
\0"""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…


class Device:
    """GPU 0 and its primary context, current in the thread that made this. Raises UllageError where the driver refuses something."""

    def __init__(self) -> None:
        try:
            self.cuda: Any = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise UllageError("no NVIDIA driver answers on this machine") from error
        self.ask("cuInit", 0)
        self.number = ctypes.c_int()
        self.ask("cuDeviceGet", ctypes.byref(self.number), 0)
        self.context = ctypes.c_void_p()
        self.ask("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.number)
        self.ask("cuCtxSetCurrent", self.context)
        self.spinning = self.function(self.spin_module(), "spin")

    def ask(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver."""
        code = int(getattr(self.cuda, function)(*arguments))
        if code:
            raise UllageError(f"the CUDA driver answers {code} to {function}")

    @property
    def architecture(self) -> str:
        """What the compiler calls this GPU, "sm_90"."""
        numbers = [ctypes.c_int(), ctypes.c_int()]
        for number, attribute in zip(numbers, (_MAJOR, _MINOR), strict=True):
            self.ask("cuDeviceGetAttribute", ctypes.byref(number), attribute, self.number)
        return f"sm_{numbers[0].value}{numbers[1].value}"

    def module(self, code: bytes) -> ctypes.c_void_p:
        """Return a module of machine code, or of PTX."""
        found = ctypes.c_void_p()
        self.ask("cuModuleLoadData", ctypes.byref(found), code)
        return found

    def spin_module(self) -> ctypes.c_void_p:
        """Return the module with the kernel that takes time."""
        with contextlib.suppress(UllageError):
            return self.module(compile_cubin(SPIN, self.architecture))
        return self.module(SPIN_PTX)

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """Return a kernel of a module."""
        found = ctypes.c_void_p()
        self.ask("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        return found

    def launch(self, function: ctypes.c_void_p, grid: int, block: int = 1, *parameters: Any) -> None:
        """Queue a kernel; its parameters are ctypes values."""
        places = (ctypes.c_void_p * max(len(parameters), 1))(*(ctypes.addressof(value) for value in parameters))
        self.ask("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, places, None)

    def spin(self, microseconds: int) -> None:
        """Queue a kernel that takes so long."""
        self.launch(self.spinning, microseconds)

    def wait(self) -> None:
        """Wait for all that is queued."""
        self.ask("cuCtxSynchronize")

    def room(self, size: int) -> ctypes.c_void_p:
        """Return the address of so many bytes of the GPU's memory."""
        found = ctypes.c_void_p()
        self.ask("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        return found

    def copy(self, to: ctypes.c_void_p, data: Any) -> None:
        """Copy a ctypes array to the GPU, and wait for it."""
        self.ask("cuMemcpyHtoD_v2", to, data, ctypes.c_size_t(ctypes.sizeof(data)))
