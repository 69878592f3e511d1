"""Copies that run beside the arithmetic: `cp.async`, bulk copies and TMA tensors (PTX ISA 9.0, "Data Movement and Conversion")."""

from ullage.kernels.sass.probe import probe

_PLACES = """unsigned at = (unsigned)__cvta_generic_to_shared(shared), barrier = at + 2048;"""

probe(
    "cp.async.cg.shared.global 16",
    "copy",
    _PLACES
    + """
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\\n cp.async.commit_group;\\n cp.async.wait_group 0;"
                 :: "r"(at + 16 * threadIdx.x), "l"(memory + 4 * threadIdx.x) : "memory");
    __syncthreads();
    memory[threadIdx.x] = shared[threadIdx.x + 1];""",
    shows=("LDGSTS",),
)
probe(
    "cp.async.bulk.shared::cluster.global",
    "copy",
    _PLACES
    + """
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at), "l"(memory), "r"(1024), "r"(barrier) : "memory");""",
    shows=("UBLKCP",),
)
probe(
    "cp.async.bulk.tensor.2d.shared::cluster.global",
    "copy",
    _PLACES
    + """
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(at), "l"(memory), "r"(0), "r"(0), "r"(barrier) : "memory");""",
    shows=("UTMALDG",),
)
probe(
    "cp.async.bulk.tensor.2d.global.shared::cta",
    "copy",
    _PLACES
    + """
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(memory), "r"(0), "r"(0), "r"(at) : "memory");""",
    shows=("UTMASTG",),
)
probe(
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
    "copy",
    _PLACES
    + """
    unsigned a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
    memory[threadIdx.x] = a + b + c + d;""",
    shows=("LDSM",),
)
