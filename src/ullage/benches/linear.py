"""A linear layer in each precision over its size: where FP8 begins to pay (Hopper paper, figure 4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ullage.benches import engine, products
from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench

SIZES = (1024, 2048, 4096, 8192, 16384)
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}  # of the layer's input, weight and output
# Largest error over √n: rounding of the result at four deviations; FP8 rounds its operands too, each by up to 6 %.
ALLOWED = {"fp32": 1e-4, "fp16": 0.02, "bf16": 0.05, "fp8": 0.4}


@bench(
    "linear",
    title="Linear layer by precision and size",
    source="Hopper paper, figure 4 (a picture without numbers)",
    layout=TableLayout(rows=("n", "library"), across=("dtype",), plot=("n", "throughput", ("dtype", "library"))),
    needs="torch",
    seconds=30,
)
def cases(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """Throughput of a linear layer on an n × n input, forward, in FP32 (without TF32), FP16, BF16 and FP8.

    FP8 begins and ends in BF16: input and weight are scaled by their largest magnitude and cast within the time measured, as
    Transformer Engine does, so that small layers lose by it. By plain PyTorch always, and by Transformer Engine where it is
    installed. The paper tells in words what its figure 4 shows: at small n FP8 is slower than FP16 or FP32, at n = 8192 it
    gains, and at n = 16384 it is almost twice as fast as FP16 on the H800 and the RTX 4090.
    """
    for n in (4096, 16384) if quick else SIZES:
        if 4 * 4 * n * n > target.memory:  # input, weight and result in FP32, and what FP8 needs beside
            continue
        for dtype in TYPES:
            if dtype == "fp8" and not has_fp8(target):
                continue
            yield case(n, dtype, "torch", partial(_torch, n, dtype))
            if engine.here():
                yield case(n, dtype, "te", partial(_engine, n, dtype))


def has_fp8(target: Target) -> bool:
    """Return whether a target multiplies FP8 on tensor cores: Ada, Hopper and later."""
    return target.architecture != "sm_80"


def case(n: int, dtype: str, library: str, prepare: Any) -> LibraryCase:
    """Return the case of one layer."""
    return LibraryCase(
        {"n": n, "library": library, "dtype": dtype},
        prepare,
        ("throughput", "time"),
        needs=(engine.NAME,) if library == "te" else (),
        flops=2 * n**3,
        precision=None if dtype == "fp32" else dtype,
    )


def _torch(n: int, dtype: str, torch: Any, data: Data) -> Prepared:
    values, weight = (products.matrix(torch, n, n, getattr(torch, TYPES[dtype]), data) for _ in range(2))
    return checked(torch, lambda: products.linear(torch, values, weight, dtype), values, weight, dtype)


def _engine(n: int, dtype: str, torch: Any, data: Data) -> Prepared:
    import transformer_engine.pytorch as te

    kind = getattr(torch, TYPES[dtype])
    values = products.matrix(torch, n, n, kind, data)
    module = te.Linear(n, n, bias=False, params_dtype=kind)
    with torch.no_grad():
        module.weight.copy_(products.matrix(torch, n, n, kind, data))
    return checked(torch, engine.called(torch, module, dtype, values), values, module.weight.detach(), dtype)


def checked(torch: Any, run: Any, values: Any, weight: Any, dtype: str) -> Prepared:
    """Return a layer's call with the check of its corners against double precision."""
    return Prepared(run, lambda: products.wrong_corners(torch, run(), values, weight, ALLOWED[dtype]))
