"""Matrix products in tensor memory, of one thread for its thread block or a pair: `tcgen05.mma` (PTX ISA 9.0, "tcgen05 instructions")."""

from ullage.kernels.sass.probe import matrix, probe

matrix("tcgen05.mma.cta_group::1.kind::f16")
matrix("tcgen05.mma.cta_group::2.kind::f16")
matrix("tcgen05.mma.cta_group::1.kind::tf32")
matrix("tcgen05.mma.cta_group::1.kind::f8f6f4")
matrix("tcgen05.mma.cta_group::1.kind::i8")
matrix("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale")
matrix("tcgen05.mma.cta_group::1.kind::mxf4.block_scale")
matrix("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X")
matrix("tcgen05.mma.sp.cta_group::1.kind::f16")
probe(
    "tcgen05.ld.sync.aligned.32x32b.x4.b32",
    "tcgen05",
    """unsigned a, b, c, d;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];\\n tcgen05.wait::ld.sync.aligned;"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(memory[0]));
    memory[threadIdx.x] = a + b + c + d;""",
    shows=("LDTM",),
)
