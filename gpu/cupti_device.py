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
_SMS, _MAJOR, _MINOR = 16, 75, 76  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, …_COMPUTE_CAPABILITY_…
# What the driver's commoner answers to a module mean (cuda.h); the others are told by their names.
_MEANINGS = {
    218: "its compiler refuses the PTX",
    221: "it has no PTX compiler here (libnvidia-ptxjitcompiler)",
    222: "the PTX is newer than it",
}


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
            raise UllageError(f"the CUDA driver answers {code} to {function}{self._meaning(code)}")

    def _meaning(self, code: int) -> str:
        name = ctypes.c_char_p()
        with contextlib.suppress(AttributeError):  # a double has no names
            self.cuda.cuGetErrorName(code, ctypes.byref(name))
        words = _MEANINGS.get(code) or (name.value or b"").decode(errors="replace")
        return f" ({words})" if words else ""

    def attribute(self, number: int) -> int:
        """Return a CU_DEVICE_ATTRIBUTE of the GPU."""
        value = ctypes.c_int()
        self.ask("cuDeviceGetAttribute", ctypes.byref(value), number, self.number)
        return value.value

    @property
    def architecture(self) -> str:
        """What the compiler calls this GPU, "sm_90"."""
        return f"sm_{self.attribute(_MAJOR)}{self.attribute(_MINOR)}"

    @property
    def sms(self) -> int:
        """How many SMs the GPU has."""
        return self.attribute(_SMS)

    def use(self) -> None:
        """Make the context current in the calling thread."""
        self.ask("cuCtxSetCurrent", self.context)

    def enter_new_context(self) -> None:
        """Go on in a context of its own: it is made now, and current in the calling thread."""
        self.context = ctypes.c_void_p()
        self.ask("cuCtxCreate_v2", ctypes.byref(self.context), 0, self.number)
        self.spinning = self.function(self.spin_module(), "spin")

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

    def launch(self, function: ctypes.c_void_p, grid: int, block: int = 1, *parameters: Any, shared: int = 0) -> None:
        """Queue a kernel; its parameters are ctypes values, `shared` the bytes of shared memory that it is given."""
        places = (ctypes.c_void_p * max(len(parameters), 1))(*(ctypes.addressof(value) for value in parameters))
        self.ask("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, None, places, None)

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

    def fetch(self, data: Any, source: ctypes.c_void_p) -> Any:
        """Wait for all that is queued, fill a ctypes array from the GPU, and return it."""
        self.wait()
        self.ask("cuMemcpyDtoH_v2", data, source, ctypes.c_size_t(ctypes.sizeof(data)))
        return data
