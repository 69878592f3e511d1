"""The matrix products that a step's ledger stands for: M, N, K and how often, forward and the two of the backward pass.

    forward   Y = X·W        rows × columns over inner         rows: tokens (or what else the work is done over)
    dgrad     dX = dY·Wᵀ     rows × inner over columns         inner × columns: the weight
    wgrad     dW = Xᵀ·dY     inner × columns over rows

Sizes are those of one GPU, as cuBLAS counts them (column-major): M is the width of the result, N its rows. Left out, since other
kernels than a library's GEMM do them: products of two activations (attention, scans) and convolutions but patch embeddings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ullage.errors import UllageError
from ullage.models.formula import Formula, Precisions, precision_of
from ullage.models.passes import Pass, Training, executed
from ullage.models.step import Step
from ullage.models.work import Work

_EXPERTS = "moe.experts"


@dataclass(frozen=True)
class Sharding:
    """How a step is cut over GPUs: `data` ranks share its samples (data, context and sequence parallel), `tensor` its weights.

    `batches` is how many micro-batches follow one another; `expert` how many ranks share the experts.
    """

    data: int = 1
    tensor: int = 1
    expert: int = 1
    batches: int = 1


@dataclass(frozen=True)
class StepGemm:
    """One size of product of a step: the ledger's term it belongs to, its sizes on one GPU, and how often all GPUs do it."""

    name: str
    pass_: Pass
    precision: str
    m: int
    n: int
    k: int
    count: int

    @property
    def flops(self) -> int:
        """FLOPs of all of them.

        >>> StepGemm("mlp.up", "forward", "bf16", m=4, n=3, k=2, count=10).flops
        480
        """
        return 2 * self.m * self.n * self.k * self.count


def gemms(
    formula: Formula, step: Step, training: Training, precisions: Precisions | None = None, sharding: Sharding | None = None
) -> list[StepGemm]:
    """Return the matrix products of a step, those of equal size together, in the ledger's order.

    Rows are what the hardware sees (padded where the step is), spread evenly over data ranks, micro-batches and experts, and
    rounded up to whole rows. A tensor-parallel rank holds a share of the columns of what reads the stream, of the inner side
    of what writes to it (Megatron's column and row parallel layers). Raises UllageError for more ranks than there is to share.
    """
    cut = sharding or Sharding()
    run = step if step.padded is None else replace(step, samples=step.padded)
    most = max((run.value(work.quantity) // run.repeats for work in formula.works if is_gemm(work)), default=0)
    if 0 < most < cut.data * cut.batches:
        ranks = f"{cut.data * cut.batches:,} ranks and micro-batches"
        raise UllageError(
            f"the step has {most:,} rows, too few to share among {ranks}", "give a larger batch, or a smaller --dp or --accumulation"
        )
    routed = {work.stack: work.shape[1] for work in formula.works if work.name == "moe.router" and work.shape}
    sums: Counter[tuple[str, Pass, str, int, int, int]] = Counter()
    trained = replace(training, spares=formula.model.kind != "diffusion")
    for work, pass_, layers in executed(formula.works, trained):
        for rows, times in _rows(work, run, cut, routed):
            for m, n, k, many in _products(work, pass_, rows, layers, cut):
                sums[work.name, pass_, precision_of(work.name, precisions or {}), m, n, k] += times * many
    return [StepGemm(*key, count) for key, count in sums.items() if count]


def is_gemm(work: Work) -> bool:
    """Return whether a library's matrix product does this work: it has a weight, and is no convolution over neighbours."""
    return work.shape is not None and work.flops > 0 and not any(part.startswith("conv") for part in work.name.split("."))


def _rows(work: Work, step: Step, cut: Sharding, routed: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Yield (rows of one product, how many such products a layer does, over all GPUs and micro-batches)."""
    if not is_gemm(work):
        return
    assert work.shape is not None
    once = step.value(work.quantity) // step.repeats
    if not once:
        return
    calls = cut.data * cut.batches
    rows = -(-once // calls)
    times = work.flops // (2 * work.shape[0] * work.shape[1])
    if work.name.startswith(_EXPERTS) and routed.get(work.stack):
        experts = routed[work.stack]
        if cut.expert > experts:
            raise UllageError(f"{cut.expert:,} ranks can't share {experts:,} experts", "give a smaller --ep")
        # each rank's tokens, and those that other ranks of its experts send, spread over the experts as evenly as whole tokens are
        each, more = divmod(rows * times * cut.expert, experts)
        for size, many in ((each + 1, more), (each, experts - more)):
            if size and many:
                yield size, many * calls * step.repeats // cut.expert or 1
    else:
        yield rows, times * calls * step.repeats


def _products(work: Work, pass_: Pass, rows: int, layers: int, cut: Sharding) -> Iterator[tuple[int, int, int, int]]:
    """Yield (M, N, K, count) of a work in one pass over `layers`; the last says how often, tensor ranks included."""
    assert work.shape is not None
    inner, columns = work.shape
    by_columns = work.to is None or work.name == "head"
    if cut.tensor > (columns if by_columns else inner):
        raise UllageError(f"{work.name} of {inner:,} × {columns:,} can't be shared by {cut.tensor:,} ranks", "give a smaller --tp")
    if by_columns:
        columns = -(-columns // cut.tensor)
    else:
        inner = -(-inner // cut.tensor)
    count = layers * cut.tensor
    if pass_ == "dgrad":
        yield inner, rows, columns, count
    elif pass_ == "wgrad":
        yield columns, inner, rows, count
    else:
        yield columns, rows, inner, count


def share(found: Sequence[StepGemm], executed_flops: int) -> float:
    """Return the share of a ledger's executed FLOPs that the products are: 1 where nothing is left out."""
    return min(sum(gemm.flops for gemm in found) / executed_flops, 1.0) if executed_flops else 0.0
