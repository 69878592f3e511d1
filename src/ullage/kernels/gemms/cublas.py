"""Kernels of cuBLAS named after a generation: `ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn`, `volta_sgemm_64x64_nt`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.cutlass2 import multiplied
from ullage.kernels.gemms.gemm import GemmName, grammar
from ullage.kernels.gemms.number_types import ACCUMULATORS, number_type
from ullage.kernels.gemms.shapes import SIZE, instruction, number

_NAME = re.compile(
    r"(?<![A-Za-z0-9])(?:trt_)?(?P<architecture>maxwell|pascal|volta|turing|ampere|ada|hopper)_(?:(?P<result>[a-z]+[0-9]+)_)?"
    r"g?(?P<accumulator>[shdicz])(?P<shape>[0-9]{3,6})?gemm(?:_(?P<inputs>[a-z]+[0-9]+))?"
    rf"_(?P<m>{SIZE})x(?P<n>{SIZE})(?:x(?P<k>{SIZE}))?(?P<words>(?:_[A-Za-z0-9]+)*)",
    re.ASCII,
)
_STAGES = re.compile(rf"_stages_(?P<k>{SIZE})x(?P<stages>{SIZE})")
_LAYOUT = re.compile("_([ntch]{2})(?=_|$)")


@grammar("cuBLAS by generation", source="not documented; letters and instruction as in CUTLASS 2, NVIDIA/cutlass issue 1025")
def cublas(text: str) -> GemmName | None:
    """Read a name of cuBLAS that begins with a generation; without digits before "gemm" it computes without tensor cores.

    >>> found = cublas("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn")
    >>> found.unit, found.instruction, found.tile, found.k_tile, found.stages, found.layout
    ('mma', (16, 8, 16), (128, 64), 64, 4, 'nn')
    >>> cublas("volta_sgemm_32x32_sliced1x4_nt").unit
    'simt'
    """
    found = _NAME.search(text)
    if found is None:
        return None
    words = found["words"]
    stages, layout = _STAGES.search(words), _LAYOUT.search(words)
    accumulator = ACCUMULATORS[found["accumulator"]]
    tensor = found["shape"] is not None
    a, b = multiplied([found["inputs"] or ""], accumulator, None, tensor)
    rest = _LAYOUT.sub("", _STAGES.sub("", words)).split("_")[1:]
    return GemmName(
        name=found[0],
        library="cublas",
        unit="mma" if tensor else "simt",
        architecture=found["architecture"],
        instruction=instruction(found["shape"]),
        a=a,
        b=b,
        accumulator=accumulator,
        result=number_type(found["result"]) or accumulator,
        tile=(int(found["m"]), int(found["n"])),
        k_tile=int(stages["k"]) if stages else number(found["k"]),
        stages=int(stages["stages"]) if stages else None,
        cluster=None if found["architecture"] == "hopper" else (1, 1),
        split=any(word.lower().startswith("splitk") for word in rest),
        layout=layout[1] if layout else None,
        features=tuple(rest),
    )
