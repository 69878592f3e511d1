"""A load with known FLOPs: square matrix products on the GPU, queued without a gap, or with gaps of a given pattern.

PyTorch makes them where it sees the GPU; else cuBLAS, called by ctypes; else a tensor-core kernel of ours does about the same work.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from ullage.benches.sustained import AHEAD, BURST, SustainedWork, TorchStream, captured, sustained
from ullage.errors import UllageError

__all__ = ["AHEAD", "BURST", "Load", "SustainedWork", "gemm"]
VARIABLE = "ULLAGE_GPU_LOAD"  # "torch", "cublas" or "own": no other load than this one
Start = Callable[..., AbstractContextManager[SustainedWork]]


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
) -> Iterator[SustainedWork]:
    """Keep the GPU busy with `size` × `size` products while the body runs; yields the `Work`, complete after the body.

    With `off` it computes for `on` seconds and then rests for `off` seconds, again and again. Operands are random
    normal numbers; `zeros` draw less power, so that the clock stays high. Raises ArithmeticError when a product is wrong, and
    what the GPU's library raised while the body ran.
    """
    kind = getattr(torch, dtype)
    a, b = (torch.randn(size, size, device="cuda", dtype=kind) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=kind)
    stream = TorchStream(torch)
    burst = captured(stream, lambda: torch.matmul(a, b, out=c))
    _refuse_wrong(a, b, c, size)
    if zeros:  # in place: the graph knows the operands' addresses
        a.zero_()
        b.zero_()
    work = SustainedWork(size, dtype, 2.0 * size**3 * burst.calls)
    with sustained(stream, burst, work, on, off, clock, sleep):
        yield work


def _refuse_wrong(a: Any, b: Any, c: Any, size: int) -> None:
    """Compare a corner of the product with the same in double precision. An element's standard deviation is √size."""
    corner = min(8, size)
    truth = a[:corner].double() @ b[:, :corner].double()
    error = float((c[:corner, :corner].double() - truth).abs().max())
    if not error <= 0.05 * size**0.5:  # BF16 keeps 8 bits: 0.4 % of up to four standard deviations
        raise ArithmeticError(f"a product of size {size} is wrong by {error:g}")


@dataclass(frozen=True)
class Load:
    """The load of this machine: called with what `gemm` takes after its first parameter. It is chosen when it is first needed.

    `find_torch` gives PyTorch where it sees the GPU, else None.
    """

    find_torch: Callable[[], Any]
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def _chosen(self) -> tuple[str, Start]:
        wanted = self.environment.get(VARIABLE, "")
        makers = {"torch": self._by_torch, "cublas": _by_cublas, "own": _by_own_kernel}
        if wanted and wanted not in makers:
            raise UllageError(f"{VARIABLE} is '{wanted}'", f"it may be {', '.join(makers)}")
        for make in [makers[wanted]] if wanted else makers.values():
            found = make()
            if found is not None:
                return found
        raise UllageError(f"{VARIABLE} asks for the load '{wanted}', which this machine lacks", f"unset {VARIABLE}")

    def _by_torch(self) -> tuple[str, Start] | None:
        torch = self.find_torch()
        return None if torch is None else (f"PyTorch {torch.__version__}", partial(gemm, torch))

    @property
    def name(self) -> str:
        """What makes the load, for evidence: "PyTorch 2.11.0", "cuBLAS 13.1", "own wgmma kernel"."""
        return self._chosen[0]

    def __call__(self, size: int, *arguments: Any, **options: Any) -> AbstractContextManager[SustainedWork]:
        """Return the context in which the GPU is busy: see `gemm`."""
        return self._chosen[1](size, *arguments, **options)


def _by_cublas() -> tuple[str, Start] | None:
    from gpu.cublas import version
    from gpu.driver_load import driver_load, product_by
    from gpu.libraries import loaded

    with suppress(OSError):
        library = loaded("cublas")
        return f"cuBLAS {version(library)}", partial(driver_load, product_by(library))
    return None


def _by_own_kernel() -> tuple[str, Start]:
    from gpu.driver_load import driver_load, instruction, own_kernel

    return f"own {instruction()} kernel", partial(driver_load, own_kernel)
