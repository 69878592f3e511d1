"""What the ordinary pipes do: fused multiply-adds, and the dynamic-programming instructions (DPX; CUDA C++ Programming Guide, "DPX")."""

from ullage.kernels.sass.probe import probe

_MINMAX = ("VIADDMNMX", "VIMNMX", "VIMNMX3", "IMNMX", "VIADD", "IADD3", "IADD", "ISETP", "SEL", "PRMT", "VIMNMX.S16x2")


def _dpx(call: str) -> None:
    arguments = call.partition("(")[0]
    probe(arguments, "vector", f"memory[threadIdx.x + 64] = {call};", shows=_MINMAX)


_X = "memory[threadIdx.x]"
_Y = "memory[threadIdx.x + 32]"
_Z = "memory[threadIdx.x + 96]"

_dpx(f"__viaddmax_s32({_X}, {_Y}, {_Z})")
_dpx(f"__viaddmax_s32_relu({_X}, {_Y}, {_Z})")
_dpx(f"__viaddmax_s16x2_relu({_X}, {_Y}, {_Z})")
_dpx(f"__vimax3_s32({_X}, {_Y}, {_Z})")
_dpx(f"__vimax3_s16x2({_X}, {_Y}, {_Z})")
_dpx(f"__vimax_s32_relu({_X}, {_Y})")

probe(
    "fma.rn.f64",
    "vector",
    "double *x = (double *)memory; x[threadIdx.x] = fma(x[threadIdx.x], x[threadIdx.x + 32], x[threadIdx.x + 64]);",
    shows=("DFMA",),
)
probe(
    "fma.rn.f32x2",
    "vector",
    """unsigned long long *x = (unsigned long long *)memory, d;
    asm volatile("fma.rn.f32x2 %0, %1, %2, %3;" : "=l"(d) : "l"(x[threadIdx.x]), "l"(x[threadIdx.x + 32]), "l"(x[threadIdx.x + 64]));
    x[threadIdx.x] = d;""",
    shows=("FFMA2", "FFMA"),
)
