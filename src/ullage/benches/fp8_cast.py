"""What a linear layer in FP8 spends beside its product: finding scales and casting, part by part (Hopper paper, figure 3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ullage.benches import products
from ullage.benches.bench import Data, LibraryCase, Prepared, TableLayout, Target, bench
from ullage.benches.linear import ALLOWED, SIZES, has_fp8

PARTS = ("input absmax", "input cast", "weight absmax", "weight cast", "product", "whole")
_CAST_ERROR = 0.07  # E4M3 keeps 3 bits: 1/16 of a value, and the scaled value is rounded to BF16 before


@bench(
    "fp8-cast",
    title="FP8 linear layer, part by part",
    source="Hopper paper, figure 3 (a picture without numbers)",
    layout=TableLayout(rows=("n",), across=("part",), plot=("n", "time", ("part",))),
    needs="torch",
    seconds=30,
)
def cases(target: Target, quick: bool) -> Iterator[LibraryCase]:
    """Time of each part of a linear layer in FP8 on an n × n input in BF16, each run alone, and of the whole.

    The scale is per tensor: the largest magnitude is found (one pass over the tensor), then all is multiplied by 448 over it
    and cast to E4M3. The layer does that to its input and to its weight; scaling back is part of the product. These are the
    kernels of plain PyTorch, not fused: Transformer Engine's own are fewer, its figure's proportions others. The paper
    says that for small matrices conversion takes significantly more of the time than the product. Parts run back
    to back add up to more than the whole where the host is slower than the GPU.
    """
    if not has_fp8(target):
        return
    for n in (4096,) if quick else SIZES:
        if 12 * n * n > target.memory:
            continue
        for part in PARTS:
            flops = 2 * n**3 if part in ("product", "whole") else 0
            yield LibraryCase({"n": n, "part": part}, partial(_prepare, n, part), ("time",), flops=flops, precision="fp8")


def _prepare(n: int, part: str, torch: Any, data: Data) -> Prepared:
    values, weight = (products.matrix(torch, n, n, torch.bfloat16, data) for _ in range(2))
    if part == "whole":
        return _multiplied(torch, lambda: products.linear(torch, values, weight, "fp8"), values, weight)
    if part == "product":
        largest = products.absmax(torch, values), products.absmax(torch, weight)
        a, b = products.cast(torch, values, largest[0]), products.cast(torch, weight, largest[1])
        return _multiplied(torch, lambda: products.scaled(torch, a, b, largest, torch.bfloat16), values, weight)
    of = values if part.startswith("input") else weight
    return _absmax(torch, of) if part.endswith("absmax") else _cast(torch, of)


def _multiplied(torch: Any, run: Any, values: Any, weight: Any) -> Prepared:
    return Prepared(run, lambda: products.wrong_corners(torch, run(), values, weight, ALLOWED["fp8"]))


def _absmax(torch: Any, values: Any) -> Prepared:
    def wrong() -> str | None:
        found, truth = float(products.absmax(torch, values)), max(float(values.abs().max()), 1e-12)
        return None if abs(found - truth) <= 1e-6 * truth else f"the largest magnitude is {found:g}, not {truth:g}"

    return Prepared(lambda: products.absmax(torch, values), wrong)


def _cast(torch: Any, values: Any) -> Prepared:
    largest = products.absmax(torch, values)

    def wrong() -> str | None:
        row = values[-1].float()
        error = (products.cast(torch, values, largest)[-1].float() * (largest / products.HIGHEST) - row).abs()
        worst = float((error - _CAST_ERROR * row.abs()).max() / largest)
        return None if worst <= 2.0**-10 / products.HIGHEST * 1.01 else f"a value is off by {worst:.3g} of the largest"

    return Prepared(lambda: products.cast(torch, values, largest), wrong)
