"""The words and letters that kernel names have for types of numbers, as Ullage's own words."""

from __future__ import annotations

from typing import Final, TypedDict

# CUTLASS ("f16", "s8", "e2m1"), XMMA ("i8"), cuBLAS ("fp16"), DeepGEMM ("bfloat16_t"), trtllm-gen ("Bfloat16"), Triton ("fp8e5").
WORDS: Final = {
    "f64": "fp64", "f32": "fp32", "fp32": "fp32", "float": "fp32", "tf32": "tf32",
    "f16": "fp16", "fp16": "fp16", "half": "fp16", "half_t": "fp16", "bf16": "bf16", "bfloat16": "bf16", "bfloat16_t": "bf16",
    "f8": "fp8", "fp8": "fp8", "e4m3": "e4m3", "float_e4m3_t": "e4m3", "e5m2": "e5m2", "float_e5m2_t": "e5m2",
    "f6": "fp6", "e2m3": "fp6", "e3m2": "fp6", "f4": "fp4", "fp4": "fp4", "mxfp4": "fp4", "e2m1": "fp4", "float_e2m1_t": "fp4",
    "float_e2m1_unpacksmem_t": "fp4", "fp8e4nv": "e4m3", "fp8e4b8": "e4m3", "fp8e5": "e5m2", "fp8e5b16": "e5m2",
    "s32": "int32", "i32": "int32", "s8": "int8", "i8": "int8", "int8": "int8", "u8": "uint8", "uint8": "uint8",
    "s4": "int4", "int4": "int4", "u4": "uint4", "b1": "binary",
    "cf32": "complex64", "cf64": "complex128",
}  # fmt: skip

# BLAS letters of the accumulator ("s16816gemm", "hgemm", "i16832gemm"): CUTLASS's ShortDataTypeNames; cuBLAS uses the same.
ACCUMULATORS: Final = {"s": "fp32", "h": "fp16", "d": "fp64", "i": "int32", "c": "complex64", "z": "complex128"}

# One letter a type: header of nvMatmulHeuristics 0.1 ("Supported precisions"). F is a way to compute: FP32 data as TF32.
LETTERS: Final = {
    "h": "fp16", "t": "bf16", "s": "fp32", "c": "complex64", "d": "fp64", "z": "complex128",
    "b": "uint8", "i": "int32", "q": "e4m3", "r": "e5m2", "o": "fp4", "f": "tf32",
}  # fmt: skip

BITS: Final = {
    "complex128": 128, "complex64": 64, "fp64": 64, "fp32": 32, "tf32": 32, "int32": 32, "fp16": 16, "bf16": 16,
    "fp8": 8, "e4m3": 8, "e5m2": 8, "int8": 8, "uint8": 8, "fp6": 6, "fp4": 4, "int4": 4, "uint4": 4, "binary": 1,
}  # fmt: skip


class Types(TypedDict, total=False):
    """Types of a product, as fields of a GemmName: A, B, the accumulator, the result."""

    a: str | None
    b: str | None
    accumulator: str | None
    result: str | None


def number_type(word: str | None) -> str | None:
    """Return the type that a word of a kernel's name means, None for a word that names none.

    >>> number_type("f16"), number_type("e2m1"), number_type("relu")
    ('fp16', 'fp4', None)
    """
    return WORDS.get(word.lower()) if word else None


def lettered(code: str) -> Types:
    """Return the types of A, B, accumulator and result for three letters (A and B, compute, C and D) or five (A, B, C, compute, D).

    >>> lettered("hss") == {"a": "fp16", "b": "fp16", "accumulator": "fp32", "result": "fp32"}
    True
    >>> lettered("qrtst")["b"], lettered("sfs")["a"]
    ('e5m2', 'tf32')
    """
    a, b, compute, result = (code[0], code[1], code[3], code[4]) if len(code) == 5 else (code[0], code[0], code[1], code[2])
    if compute == "f":
        a, b, compute = "f", "f", "s"
    return {"a": LETTERS.get(a), "b": LETTERS.get(b), "accumulator": LETTERS.get(compute), "result": LETTERS.get(result)}
