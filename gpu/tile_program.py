"""The program that Nsight Compute counts: one matrix product after the other, a mark behind each."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from ullage.benches.gemm_ofu_plan import PlannedGemm, random_shapes
from ullage.benches.products import product
from ullage.kernels.tiling import TiledProduct

EACH, SEED, LARGEST = 8, 1, 4096  # random products a precision, and their largest dimension
PRECISIONS = ("fp16", "bf16", "tf32", "fp8")
LONG = PlannedGemm("square", "bf16", 8192, 8192, 8192)  # the one that is also watched by NVML
ROOT = Path(__file__).resolve().parents[1]
MARK = "FillFunctor"  # in the name of the kernel that stands behind each product: PyTorch's fill_


def gemms(precisions: tuple[str, ...] = PRECISIONS) -> list[PlannedGemm]:
    """Return the products, in order: the long one first."""
    return [LONG, *(PlannedGemm("random", one, *shape) for one in precisions for shape in random_shapes(EACH, SEED, LARGEST))]


def command(precisions: tuple[str, ...]) -> list[str]:
    """Return what starts the program."""
    paths = [str(ROOT), str(ROOT / "src")]
    return [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; from gpu.tile_program import main; main({precisions!r})"]


def main(precisions: tuple[str, ...]) -> None:
    """Run every product once unseen, then once between the profiler's marks; print, as JSON, why those failed that did."""
    torch: Any = importlib.import_module("torch")
    ready, problems = [], {}
    for number, gemm in enumerate(gemms(precisions)):
        try:
            made = product(torch, TiledProduct(gemm.m, gemm.n, gemm.k), gemm.precision)
            problem = made.wrong()
        except Exception as error:  # what one type lacks, the next may have
            problem = f"{type(error).__name__}: {str(error)[:200]}"
        if problem:
            problems[number] = problem
        ready.append(None if problem else made)
    mark = torch.zeros(1, device="cuda")
    mark.fill_(1.0)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for one in ready:
        if one is not None:
            one.run()
        mark.fill_(2.0)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(json.dumps({"problems": problems}))
