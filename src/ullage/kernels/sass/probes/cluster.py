"""Thread blocks that work together: clusters and their shared memory (PTX ISA 9.0, "barrier.cluster", "mapa")."""

from ullage.kernels.sass.probe import probe

probe(
    "barrier.cluster.arrive + wait",
    "cluster",
    'asm volatile("barrier.cluster.arrive.aligned;\\n barrier.cluster.wait.aligned;" ::: "memory");',
    shows=("UCGABAR_ARV", "UCGABAR_WAIT"),
)
probe(
    "mapa.shared::cluster + ld.shared::cluster",
    "cluster",
    """unsigned at = (unsigned)__cvta_generic_to_shared(shared + threadIdx.x), there, value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(memory[0]));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
    memory[threadIdx.x] = value;""",
    shows=("MAPA", "PRMT", "LD", "LDS"),
)
