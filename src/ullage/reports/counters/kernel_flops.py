"""The FLOPs of each kernel by type, as its instructions were counted while it ran once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ullage.cupti.counters.sass_metrics import INSTRUCTIONS, ExecutedInstructions, ExecutedKernel
from ullage.cupti.counters.work import vector_flops
from ullage.errors import UllageError
from ullage.kernels.mangled import readable
from ullage.views.shown import ShownByView


@dataclass(frozen=True)
class KernelFlops:
    """A kernel by name: its launches together. `instructions` are those of warps, None where the chip does not count them; `flops` are by
    type ("fp32"), of the vector pipes alone: products of tensor cores are not among them."""

    name: str
    launches: int
    instructions: int | None
    flops: Mapping[str, float]


@dataclass(frozen=True)
class ProgramFlops(ShownByView, view="ullage.render.kernel_flops"):
    """The kernels, those with most instructions first; the FLOPs of all by type, the chips that counted, and notes."""

    kernels: tuple[KernelFlops, ...]
    flops: Mapping[str, float]
    chips: tuple[str, ...]
    notes: tuple[str, ...]


def program_flops(found: ExecutedInstructions, notes: Sequence[str] = ()) -> ProgramFlops:
    """Return the FLOPs of a program's kernels by what was counted. Raises UllageError where nothing was."""
    if not found.kernels:
        why = "; ".join(found.problems) or "did the program launch a kernel? `ullage cupti check` says what stands in the way"
        raise UllageError("no kernel's instructions were counted", why)
    shown = readable(found.kernels)
    kernels = [_kernel(shown[name], kernel) for name, kernel in found.kernels.items()]
    kernels.sort(key=lambda kernel: (-(kernel.instructions or 0), kernel.name))
    total: dict[str, float] = {}
    for kernel in kernels:
        for kind, value in kernel.flops.items():
            total[kind] = total.get(kind, 0) + value
    lost = [f"CUPTI dropped {found.dropped:,} records of instructions: counts are too low"] if found.dropped else []
    without = [f"this chip does not count {', '.join(found.lacking)}"] if found.lacking else []
    return ProgramFlops(tuple(kernels), total, found.chips, (*notes, *found.problems, *without, *lost))


def _kernel(name: str, kernel: ExecutedKernel) -> KernelFlops:
    counts = {f"{metric}.sum": float(value) for metric, value in kernel.counts.items()}
    flops = {kind.removesuffix(" vector"): value for kind, value in vector_flops(counts).items()}
    return KernelFlops(name, kernel.launches, kernel.counts.get(INSTRUCTIONS), flops)
