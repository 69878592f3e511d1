"""A matrix product by PyTorch in each precision, ready to be timed, with a corner of it checked in double precision.

Operands are normal random numbers (or zeros), rows before columns: A is m × k, B is k × n, of FP8 and FP4 column-major as
`torch._scaled_mm` asks for. FP32 runs without TF32, TF32 on float32 operands with `allow_tf32`. Results are in the operands'
type, of FP8 and FP4 in BF16. FP8 sums up precisely unless `fast`: then the tensor cores keep fewer bits between steps of K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.benches.bench import Data, Prepared
from ullage.kernels.tiling import TiledProduct

# Largest error of an element over √k (its standard deviation): a result's rounding at four deviations, and what sums lose.
TOLERANCE = {"fp32": 1e-4, "tf32": 0.01, "fp16": 0.02, "bf16": 0.05, "fp8": 0.1, "fp4": 0.1}
MULTIPLE = {"fp8": 16, "fp4": 128}  # of which sizes must be; `torch._scaled_mm` refuses others (FP4: its scales come in blocks of 128)
HIGHEST = 448.0  # of float8_e4m3fn
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # E2M1 without its sign (Open Compute Project, MX specification 1.0, 5.3.3)
FP4_SQUARE = sum(value**2 for value in FP4_VALUES) / len(FP4_VALUES)  # mean square of random codes: an element's deviation is that × √k
_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_CORNER = 8
Call = Callable[[], object]


def device(torch: Any) -> str:
    """Return where PyTorch computes: "cuda" where it has a GPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def product(torch: Any, shape: TiledProduct, precision: str, data: Data = "random", *, fast: bool = False) -> Prepared:
    """Return a product of one shape, its operands made; `run` writes into the same result again and again.

    `precision` is a key of `TOLERANCE`. Raises what PyTorch raises for a shape or a type that the GPU does not have.
    """
    made = {"fp8": _fp8, "fp4": _fp4}.get(precision)
    if made is not None:
        run, result, truth = made(torch, shape, data, fast)
    else:
        run, result, truth = _plain(torch, shape, precision, data)
    deviation = (FP4_SQUARE if precision == "fp4" else 1.0) * shape.k**0.5

    def wrong() -> str | None:
        result.fill_(float("nan"))
        run()
        error = float((_corners(torch, result) - truth()).abs().max())
        allowed = TOLERANCE[precision] * deviation
        return None if error <= allowed else f"an element is off by {error:.3g}, where {allowed:.3g} is allowed"

    return Prepared(run, wrong)


def _plain(torch: Any, shape: TiledProduct, precision: str, data: Data) -> tuple[Call, Any, Call]:
    kind = getattr(torch, _TYPES[precision])
    a, b = (matrix(torch, rows, columns, kind, data) for rows, columns in ((shape.m, shape.k), (shape.k, shape.n)))
    c = torch.empty(shape.m, shape.n, device=device(torch), dtype=kind)

    def run() -> object:
        set_tf32(torch, precision)
        return torch.matmul(a, b, out=c)

    return run, c, lambda: _edges(torch, a) @ _edges(torch, b.t()).t()


def _fp8(torch: Any, shape: TiledProduct, data: Data, fast: bool) -> tuple[Call, Any, Call]:
    a = matrix(torch, shape.m, shape.k, torch.bfloat16, data).to(torch.float8_e4m3fn)
    b = matrix(torch, shape.n, shape.k, torch.bfloat16, data).to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=device(torch))
    c = torch.empty(shape.m, shape.n, device=device(torch), dtype=torch.bfloat16)

    def run() -> object:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast, out=c)

    return run, c, lambda: _edges(torch, a) @ _edges(torch, b.t()).t()


def _fp4(torch: Any, shape: TiledProduct, data: Data, fast: bool) -> tuple[Call, Any, Call]:  # noqa: ARG001 - FP4 sums up in one way
    codes = [_codes(torch, rows, shape.k, data) for rows in (shape.m, shape.n)]
    a, b = codes[0].view(torch.float4_e2m1fn_x2), codes[1].view(torch.float4_e2m1fn_x2).t()
    scales = [_ones(torch, rows, shape.k) for rows in (shape.m, shape.n)]
    c = torch.empty(shape.m, shape.n, device=device(torch), dtype=torch.bfloat16)

    def run() -> object:
        return torch._scaled_mm(a, b, scale_a=scales[0], scale_b=scales[1], out_dtype=torch.bfloat16, out=c)

    return run, c, lambda: fp4_values(torch, _ends(torch, codes[0])) @ fp4_values(torch, _ends(torch, codes[1])).t()


def _codes(torch: Any, rows: int, columns: int, data: Data) -> Any:
    """Return random FP4 codes, two a byte."""
    if data == "zero":
        return torch.zeros(rows, columns // 2, device=device(torch), dtype=torch.uint8)
    return torch.randint(0, 256, (rows, columns // 2), device=device(torch), dtype=torch.uint8)


def _ones(torch: Any, rows: int, columns: int) -> Any:
    """Return NVFP4's scales, one for 16 elements, all 1: then it does not matter that the hardware wants them in another order."""
    count = -(-rows // 128) * 128 * -(-columns // 64) * 4
    return torch.ones(count, device=device(torch)).to(torch.float8_e4m3fn)


def fp4_values(torch: Any, codes: Any) -> Any:
    """Return what bytes of two FP4 codes stand for, as doubles: the low half first, the fourth bit of each the sign."""
    values = torch.tensor([*FP4_VALUES, *(-value for value in FP4_VALUES)], device=codes.device, dtype=torch.float64)
    halves = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
    return values[halves.long()]


def matrix(torch: Any, rows: int, columns: int, kind: Any, data: Data = "random") -> Any:
    """Return a matrix of normal random numbers, or of zeros."""
    make = torch.zeros if data == "zero" else torch.randn
    return make(rows, columns, device=device(torch), dtype=kind)


def set_tf32(torch: Any, precision: str) -> None:
    """Let products of float32 use TF32 where that is the precision, and forbid it where FP32 is."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def absmax(torch: Any, values: Any) -> Any:
    """Return the largest magnitude of a tensor, on its device, in one pass; at least 1e-12, so that zeros can be scaled."""
    return torch.linalg.vector_norm(values, ord=float("inf"), dtype=torch.float32).clamp(min=1e-12)


def cast(torch: Any, values: Any, largest: Any) -> Any:
    """Return a tensor as FP8 (E4M3), scaled so that its largest magnitude becomes E4M3's."""
    return (values * (HIGHEST / largest)).to(torch.float8_e4m3fn)


def linear(torch: Any, values: Any, weight: Any, precision: str) -> Any:
    """Return `values` × `weight`ᵀ; in FP8 both are scaled (per tensor) and cast first, as a linear layer in FP8 does.

    `values` is tokens × inputs, `weight` outputs × inputs; the result is in the type of `values`.
    """
    if precision != "fp8":
        set_tf32(torch, precision)
        return torch.nn.functional.linear(values, weight)
    largest = absmax(torch, values), absmax(torch, weight)
    a, b = cast(torch, values, largest[0]), cast(torch, weight, largest[1])
    return scaled(torch, a, b, largest, values.dtype)


def scaled(torch: Any, a: Any, b: Any, largest: tuple[Any, Any], kind: Any) -> Any:
    """Return the product a × bᵀ of what `cast` made, scaled back, in the type `kind`."""
    back = [value / HIGHEST for value in largest]
    return torch._scaled_mm(a, b.t(), scale_a=back[0], scale_b=back[1], out_dtype=kind, use_fast_accum=True)


def wrong_corners(torch: Any, result: Any, values: Any, weight: Any, allowed: float) -> str | None:
    """Say how far the corners of `values` × `weight`ᵀ are off where that is more than `allowed` × √inputs; None where they are right."""
    truth = _edges(torch, values) @ _edges(torch, weight).t()
    error = float((_corners(torch, result) - truth).abs().max())
    limit = allowed * values.shape[-1] ** 0.5
    return None if error <= limit else f"an element is off by {error:.3g}, where {limit:.3g} is allowed"


def _ends(torch: Any, rows: Any) -> Any:
    """Return the first and the last rows."""
    return torch.cat([rows[:_CORNER], rows[-_CORNER:]])


def _edges(torch: Any, rows: Any) -> Any:
    """Return the first and the last rows, in double precision (by way of single: FP8 knows no shorter one)."""
    return torch.cat([rows[:_CORNER].float(), rows[-_CORNER:].float()]).double()


def _corners(torch: Any, result: Any) -> Any:
    """Return the elements where the first and last rows meet the first and last columns."""
    return _edges(torch, _edges(torch, result).t()).t()
