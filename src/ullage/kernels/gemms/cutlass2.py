"""CUTLASS 2, also inside cuBLAS and cuDNN: `cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_nn_align8`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import ACCUMULATORS, number_type
from ullage.kernels.gemms.shapes import SIZE, instruction, number

_UNITS: dict[str, Unit] = {"tensorop": "mma", "sptensorop": "mma", "wmma_tensorop": "wmma", "simt": "simt"}

# The digit before the name is a length, where the name stands mangled. Only capital letters follow it there, so words are lower case.
_NAME = re.compile(
    r"(?<![A-Za-z_])cutlass_(?:(?P<architecture>[0-9]{2,3})_)?(?P<unit>sptensorop|wmma_tensorop|tensorop|simt)_(?:(?P<result>[a-z]+[0-9]+)_)?"
    r"g?(?P<accumulator>[shdicz])(?P<shape>[0-9]{3,6})?(?P<mathematics>[a-z][a-z0-9]*?)??(?P<sparse>sp)?gemm(?P<words>(?:_[a-z][a-z0-9]*)*?)"
    rf"_(?P<m>{SIZE})x(?P<n>{SIZE})(?:_(?P<k>{SIZE})x(?P<stages>{SIZE}))?_(?P<layout>(?:[ntch][0-9]*){{2}})(?:_align(?P<align>{SIZE}))?",
    re.ASCII,
)


@grammar("CUTLASS 2", source="NVIDIA/cutlass, python/cutlass_library/gemm_operation.py (procedural_name, extended_name)")
def cutlass2(text: str) -> GemmName | None:
    """Read a name of CUTLASS 2: types that equal the accumulator's are left out of it; how far K is split is an argument, not told.

    >>> found = cutlass2("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8>(…)")
    >>> found.a, found.accumulator, found.result, found.instruction, found.tile, found.k_tile, found.stages
    ('fp16', 'fp32', 'fp16', (16, 8, 16), (256, 128), 32, 3)
    """
    found = _NAME.search(text)
    if found is None:
        return None
    words = found["words"].split("_")[1:]
    accumulator = ACCUMULATORS[found["accumulator"]]
    mathematics = found["mathematics"]
    a, b = multiplied(words, accumulator, mathematics, tensor=found["unit"] != "simt")
    rest = [word for word in words if number_type(word) is None]
    rest += [mathematics] if mathematics and number_type(mathematics) is None else []
    return GemmName(
        name=found[0],
        library="cutlass2",
        unit=_UNITS[found["unit"]],
        architecture=f"sm{found['architecture']}" if found["architecture"] else None,
        instruction=instruction(found["shape"]),
        a=a,
        b=b,
        accumulator=accumulator,
        result=number_type(found["result"]) or accumulator,
        tile=(int(found["m"]), int(found["n"])),
        k_tile=number(found["k"]),
        stages=number(found["stages"]),
        cluster=(1, 1),
        layout=found["layout"],
        align=number(found["align"]),
        features=tuple(rest + (["sparse"] if found["sparse"] else [])),
    )


def multiplied(words: list[str], accumulator: str, mathematics: str | None, tensor: bool) -> tuple[str, str]:
    """Return in which types A and B are multiplied: as the name says, else as they are stored, else as they are summed.

    Tensor cores take no FP32: FP32 data without another word are multiplied in TF32.

    >>> multiplied(["relu", "bf16"], "fp32", None, True), multiplied([], "fp32", None, True), multiplied([], "fp32", None, False)
    (('bf16', 'bf16'), ('tf32', 'tf32'), ('fp32', 'fp32'))
    """
    stored = [kind for kind in map(number_type, words) if kind] or [accumulator]
    a, b = (stored[0], stored[1]) if len(stored) > 1 else (stored[0], stored[0])
    said = number_type(mathematics)
    if said:
        return said, said
    return ("tf32" if tensor and a == "fp32" else a), ("tf32" if tensor and b == "fp32" else b)
