"""Whose work each factor of the waterfall is, what is lost there, and the remedies, each with its source.

This is the one place where remedies are registered. Some help against what binds a kernel: they are chosen where a trace's kernels show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.metrics.telemetry import WHOSE


@dataclass(frozen=True)
class Remedy:
    """What is usually done about a loss, and who documents it.

    `binding` is the step of kernels' losses (`ullage.metrics.kernel_losses`) that it helps against, "" for what needs no kernels to show
    it; `products` whether it is for kernels that multiply matrices (None: for any).
    """

    what: str
    source: str
    binding: str = ""
    products: bool | None = None

    def helps(self, binding: str, products: bool) -> bool:
        """Return whether it helps a kernel that is bound so."""
        return self.binding == binding and self.products in (None, products)


@dataclass(frozen=True)
class Owner:
    """Whose work a factor is, what is lost where it is low, and what is usually done."""

    whose: str
    lost: str
    remedies: tuple[Remedy, ...]


TUNING = "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide"
OVERLAP = "https://docs.nvidia.com/nemo/megatron-bridge/latest/training/communication-overlap.html"
GRAPHS = "https://docs.nvidia.com/nemo/megatron-bridge/0.5.0/training/cuda-graphs.html"
RECOMPUTE = "https://docs.nvidia.com/nemo/megatron-bridge/latest/training/activation-recomputation.html"
PACKING = "https://docs.nvidia.com/nemo/megatron-bridge/latest/training/packed-sequences.html"
GEMMS = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"
COMPILE = "https://docs.pytorch.org/docs/stable/torch.compiler_get_started.html"
CLOCKS = "https://docs.nvidia.com/deeplearning/tensorrt/10.16.1/performance/hw-sw-environment.html"
CUTLASS = "https://docs.nvidia.com/cutlass/latest/media/docs/cpp/efficient_gemm.html"
AUTOTUNE = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"
PRECISION = "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/fp8_primer.html"
THROTTLE = "https://docs.nvidia.com/datacenter/dcgm/3.1/dcgm-api/dcgm-api-field-constants.html"

OWNERS: dict[str, Owner] = {
    "load_balance": Owner(
        WHOSE["load_balance"],
        "some GPUs compute longer than others, which wait for them",
        (
            Remedy("give every rank as many tokens: sequences of unequal length make ranks wait for the longest", TUNING),
            Remedy("see which rank comes late: `ullage trace … --by rank`", "docs/efficiency-trees.md"),
        ),
    ),
    "communication": Owner(
        "the network, overlap",
        "collectives and copies that no computing hides",
        (
            Remedy(
                "overlap gradient reduction and parameter gathering with computing (overlap_grad_reduce, overlap_param_gather)", OVERLAP
            ),
            Remedy("overlap tensor-parallel collectives with their matrix products (tp_comm_overlap)", OVERLAP),
            Remedy("see which collectives nothing hides, and which rank they wait for: `ullage trace …`", "docs/efficiency-trees.md"),
        ),
    ),
    "orchestration": Owner(
        "the host, the data loader",
        "even the busiest GPU has nothing to do",
        (
            Remedy("load data in worker processes into pinned memory (DataLoader: num_workers, pin_memory)", TUNING),
            Remedy("avoid what makes the host wait for the GPU: .item(), printing a tensor, copies to the CPU", TUNING),
            Remedy("launch with CUDA graphs where shapes are static: many small kernels are bound by their launches", GRAPHS),
        ),
    ),
    "sm_fill": Owner(
        WHOSE["sm_fill"],
        "kernels too small to give every SM work, or last waves that fill few",
        (
            Remedy(
                "larger products (a larger micro-batch): tiles for every SM in each wave, and a last wave that weighs less", GEMMS, "wave"
            ),
            Remedy("split K over more blocks (split-K, stream-K) where there are few tiles and K is long", CUTLASS, "wave"),
        ),
    ),
    "tensor_issue": Owner(
        WHOSE["tensor_issue"],
        "SMs hold work while their tensor pipes rest: elementwise work, memory traffic, products too small to feed them",
        (
            Remedy(
                "fuse elementwise and normalisation kernels: they move memory and multiply nothing (torch.compile)",
                COMPILE,
                "memory",
                False,
            ),
            Remedy(
                "larger products, which have more FLOPs for each byte; sizes in multiples of 16 bytes, better of 128", GEMMS, "memory", True
            ),
            Remedy(
                "narrower numbers where the model allows it (FP8): half the bytes for each FLOP, at twice the peak",
                PRECISION,
                "memory",
                True,
            ),
            Remedy(
                "choose the kernel by measuring (torch.compile, mode='max-autotune'), or try another library or version",
                AUTOTUNE,
                "itself",
                True,
            ),
            Remedy(
                "a fused or vectorised kernel for the same operator (torch.compile): its bytes need less time than it takes",
                AUTOTUNE,
                "itself",
                False,
            ),
            Remedy("see which kernels take the time: `ullage trace …` lists them by family and by name", "docs/efficiency-trees.md"),
        ),
    ),
    "clock": Owner(
        WHOSE["clock"],
        "the SM clock under load lies below the clock that the peak is stated at",
        (
            Remedy(
                "watch power, temperature and clock while the job runs (nvidia-smi dmon -s pcu); nvidia-smi -q has the power cap",
                CLOCKS,
                "clock",
            ),
            Remedy(
                "tell a power cap from heat by the bits of DCGM_FI_DEV_CLOCK_THROTTLE_REASONS: SW_POWER_CAP, HW_THERMAL", THROTTLE, "clock"
            ),
        ),
    ),
    "tile": Owner(
        "the shapes",
        "tiles that reach over the edge of a matrix: what they compute there is thrown away",
        (
            Remedy("make dimensions multiples of the tile (128 or 256 elements for large ones): vocabulary, widths, tokens", GEMMS, "tile"),
            Remedy("see which products are padded: `ullage gemm M N K --kernel NAME`", "docs/gemm.md", "tile"),
        ),
    ),
    "model": Owner(
        "recomputation, padding",
        "work that is executed and the model does not need",
        (
            Remedy("recompute selectively before whole layers: a whole layer costs about 30 % more", RECOMPUTE),
            Remedy("pack sequences instead of padding them: tokens of padding are computed, and masked out afterwards", PACKING),
        ),
    ),
    "unexplained": Owner(
        "whoever counts",
        "OFU, tile and model efficiency and the MFU contradict one another",
        (Remedy("look for the mistake: `ullage audit mfu --config … --reported … --ofu …`", "docs/mfu-audit.md"),),
    ),
}


def whose(names: tuple[str, ...]) -> str:
    """Return whose work some factors are, each owner once.

    >>> whose(("clock", "tile"))
    'power, cooling; the shapes'
    """
    return "; ".join(dict.fromkeys(OWNERS[name].whose for name in names))


# What tells factors apart that are merged: by which factors are among them
_APART = (
    (
        {"load_balance", "communication", "orchestration"},
        "a trace of every rank (--trace) tells load balance, communication and orchestration",
    ),
    ({"sm_fill", "tensor_issue", "clock"}, "telemetry with sm_active, tensor_active and sm_clock tells SM fill, tensor issue and clock"),
    ({"tile"}, "the products' kernels or tiles (--gemms, --tile-efficiency) tell the tile efficiency"),
    ({"model"}, "the model's config and its step (--config) tell the model efficiency"),
)


def apart(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return what would tell merged factors apart; nothing for a single one.

    >>> apart(("tile", "model"))[1]
    "the model's config and its step (--config) tell the model efficiency"
    """
    return tuple(how for which, how in _APART if which & set(names)) if len(names) > 1 else ()


def remedies(names: tuple[str, ...], evidence: Mapping[tuple[str, bool], float] | None = None) -> tuple[Remedy, ...]:
    """Return the remedies of some factors, each once: the usual ones, or those that help the kernels of a trace.

    `evidence` is what kernels lose in points, by what binds them and whether they multiply matrices. What helps against the larger loss
    stands first then, and what helps no kernel that loses `LEAST_POINTS` is left out; without such a kernel the usual ones remain.
    """
    usual = tuple(dict.fromkeys(remedy for name in names for remedy in OWNERS[name].remedies))
    helped = {remedy: _helped(remedy, evidence or {}) for remedy in usual}
    chosen = [remedy for remedy in usual if helped[remedy] >= LEAST_POINTS]
    if not chosen:
        return usual
    rest = [remedy for remedy in usual if not remedy.binding]
    return (*sorted(chosen, key=lambda remedy: -helped[remedy]), *rest)


def help_kernels(chosen: tuple[Remedy, ...], evidence: Mapping[tuple[str, bool], float] | None) -> bool:
    """Return whether remedies were chosen by what kernels lose, and are not the usual ones.

    >>> help_kernels(kernel_remedies("tile", True), {("tile", True): 1.0}), help_kernels(kernel_remedies("tile", True), None)
    (True, False)
    """
    return any(_helped(remedy, evidence or {}) >= LEAST_POINTS for remedy in chosen)


LEAST_POINTS = 0.1  # of MFU; a remedy for less is not worth a line


def _helped(remedy: Remedy, evidence: Mapping[tuple[str, bool], float]) -> float:
    return sum(points for (binding, products), points in evidence.items() if remedy.helps(binding, products))


def kernel_remedies(binding: str, products: bool) -> tuple[Remedy, ...]:
    """Return what helps a kernel that is bound so; `products`: it multiplies matrices.

    >>> [remedy.source for remedy in kernel_remedies("memory", False)] == [COMPILE]
    True
    """
    return tuple(remedy for owner in OWNERS.values() for remedy in owner.remedies if remedy.helps(binding, products))
