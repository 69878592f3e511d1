"""A load with known FLOPs: square matrix products on the GPU, queued without a gap, or with gaps of a given pattern."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ullage.benches.sustained import AHEAD, BURST, Work, captured, sustained

__all__ = ["AHEAD", "BURST", "Work", "gemm"]


@contextmanager
def gemm(
    torch: Any,
    size: int,
    dtype: str = "bfloat16",
    on: float = 0.0,
    off: float = 0.0,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    zeros: bool = False,
) -> Iterator[Work]:
    """Keep the GPU busy with `size` × `size` products while the body runs; yields the `Work`, complete after the body.

    With `off` it computes for `on` seconds and then rests for `off` seconds, again and again. Operands are random
    normal numbers; `zeros` draw less power, so that the clock stays high. Raises ArithmeticError when a product is wrong, and
    what the GPU's library raised while the body ran.
    """
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=kind)
    burst = captured(torch, lambda: torch.matmul(a, b, out=c))
    _refuse_wrong(a, b, c, size)
    if zeros:  # in place: the graph knows the operands' addresses
        a.zero_()
        b.zero_()
    work = Work(size, dtype, 2.0 * size**3 * burst.calls)
    with sustained(torch, burst, work, on, off, clock, sleep):
        yield work


def _refuse_wrong(a: Any, b: Any, c: Any, size: int) -> None:
    """Compare a corner of the product with the same in double precision. An element's standard deviation is √size."""
    corner = min(8, size)
    truth = a[:corner].double() @ b[:, :corner].double()
    error = float((c[:corner, :corner].double() - truth).abs().max())
    if not error <= 0.05 * size**0.5:  # BF16 keeps 8 bits: 0.4 % of up to four standard deviations
        raise ArithmeticError(f"a product of size {size} is wrong by {error:g}")
