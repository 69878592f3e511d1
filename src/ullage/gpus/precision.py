"""The precisions of a matrix multiplication, by the names that people give them."""

from __future__ import annotations

from typing import Final

from ullage.errors import UllageError, did_you_mean, harmless

PRECISIONS: Final = ("fp64", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")

_ALIASES: Final = {
    "double": "fp64",
    "float64": "fp64",
    "tfloat32": "tf32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8": "fp8",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "mxfp8": "fp8",
    "float4": "fp4",
    "nvfp4": "fp4",
    "mxfp4": "fp4",
    **{name: name for name in PRECISIONS},
}


def canonical(precision: str) -> str:
    """Return the one name of a precision; raises UllageError for a word that names none.

    >>> canonical("bfloat16"), canonical("E4M3"), canonical("nvfp4")
    ('bf16', 'fp8', 'fp4')
    """
    name = _ALIASES.get(precision.strip().lower())
    if name is None:
        word = harmless(precision, 40)
        raise UllageError(
            f"no precision is called '{word}'", f"known are {', '.join(PRECISIONS)}; {did_you_mean(word, _ALIASES, 'ullage gpus')}"
        )
    return name
