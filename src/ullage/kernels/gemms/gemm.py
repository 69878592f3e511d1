"""What the name of a matrix-product kernel tells: library, types, instruction, tile, stages, cluster, split, layout.

Begin here; every other module of this folder but `number_types`, `shapes` and `legacy` holds one naming scheme, one function under
`@grammar`. What a name does not carry is None: nothing is filled in from what such kernels usually do. Adding a scheme is such
a file: docs/kernel-names.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from ullage.registry import Registry

Unit = Literal["wgmma", "tcgen05", "mma", "wmma", "mfma", "simt"]


@dataclass(frozen=True)
class GemmName:
    """What one kernel's name says. Sizes are elements; M, N and K are those of the library that wrote the kernel.

    `library` is who wrote it ("nvjet", "cutlass2", "cutlass3", "xmma", "cublas", "deepgemm", "trtllm", "tensile", "triton").
    `unit` is the class of instruction: "wgmma" (Hopper's warp groups), "tcgen05" (Blackwell's tensor memory), "mma" (warps,
    Volta and later), "wmma", AMD's "mfma", "simt" (no tensor cores); `instruction` its shape as m, n, k. `architecture` is
    the one that the name gives ("sm90", "ampere", "gfx942"). Types are Ullage's precisions where there is one ("bf16", "fp16",
    "tf32", "fp8", "e4m3", …): of A and B as they are multiplied (FP32 data in TF32 is "tf32"), the accumulator, and the result.
    `tile` is what one thread block computes, m × n (where two blocks share an instruction, `two_cta`, it is one block's half);
    `k_tile` the step in K, `stages` the depth of the pipeline, `cluster` thread blocks along m and n (1 × 1 where the
    architecture has none), `warps` along m, n and k, `split_k` the number of slices of K (None: not told; `split` says that
    there are some), `layout` the letters of transposes in lower case ("n": not transposed, "t": transposed), of A, B and,
    where told, C and D. `features` are the rest of the name's words; `doubts` are sentences about what cannot be so.
    """

    name: str
    library: str
    unit: Unit | None = None
    architecture: str | None = None
    instruction: tuple[int, int, int] | None = None
    a: str | None = None
    b: str | None = None
    accumulator: str | None = None
    result: str | None = None
    tile: tuple[int, int] | None = None
    k_tile: int | None = None
    stages: int | None = None
    cluster: tuple[int, int] | None = None
    warps: tuple[int, int, int] | None = None
    two_cta: bool = False
    split: bool = False
    split_k: int | None = None
    layout: str | None = None
    align: int | None = None
    features: tuple[str, ...] = ()
    doubts: tuple[str, ...] = field(default=(), compare=False)

    @property
    def silent_on_cluster(self) -> bool:
        """Whether the kernel may run in clusters and its name does not say in which."""
        return self.cluster is None and self.unit not in ("mma", "wmma", "mfma", "simt")


@dataclass(frozen=True)
class Grammar:
    """A naming scheme: `parse` gives what a name says, or None for a name of another scheme."""

    name: str
    source: str
    parse: Callable[[str], GemmName | None]


GRAMMARS: Registry[Grammar] = Registry("naming scheme", package="ullage.kernels.gemms", command="docs/kernel-names.md")
Parser = Callable[[str], GemmName | None]
_LONGEST = 6000  # characters; what a name says of its tiles, it says before that, and templates are long


def grammar(name: str, *, source: str) -> Callable[[Parser], Parser]:
    """Register the decorated parser as a naming scheme, and return it unchanged. `source` says where its meaning is told."""

    def register(parse: Parser) -> Parser:
        GRAMMARS.add(name, Grammar(name, source, parse))
        return parse

    return register


@lru_cache(maxsize=65536)
def decode(name: str) -> GemmName | None:
    """Return what a kernel's name says of its matrix product, None for a name of no known scheme.

    >>> decode("void at::native::vectorized_elementwise_kernel<4>()") is None
    True
    """
    plain = name[:_LONGEST].strip()
    return next((found for scheme in GRAMMARS.values() if (found := scheme.parse(plain)) is not None), None)
