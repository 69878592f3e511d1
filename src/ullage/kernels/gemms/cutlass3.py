"""CUTLASS 3: `cutlass3x_sm90_tensorop_gemm_f16_f16_f32_void_f16_128x256x64_2x1x1_0_tnn_align8_warpspecialized_pingpong`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import Types, number_type
from ullage.kernels.gemms.shapes import SIZE, grid, number, triple

_NAME = re.compile(
    r"(?<![A-Za-z_])cutlass3x_sm(?P<architecture>[0-9]{2,3})_(?P<operation>[a-z]*tensorop|simt)_g?(?P<accumulator>[shdicz])?"
    rf"(?P<shape>{SIZE}x{SIZE}x{SIZE})?(?P<mathematics>[a-z][a-z0-9]*)??(?P<sparse>sp)?gemm(?P<types>(?:_[a-z0-9]+)*?)_(?P<m>{SIZE})x(?P<n>{SIZE})x(?P<k>{SIZE})"
    rf"(?:_(?P<cluster>[0-9]{{1,2}}x[0-9]{{1,2}}x[0-9]{{1,2}}))?_(?P<stages>[0-9]{{1,3}})_(?P<layout>[ntch]{{2,3}})"
    rf"(?:_align(?P<align>{SIZE}))?(?P<words>(?:_[a-z0-9]+)*)",
    re.ASCII,
)
_CONVOLUTION = re.compile("conv|fprop|dgrad|wgrad")
_STREAM_K = re.compile("_stream_?k(_|$)")
_TENSOR_MEMORY = ("100", "101", "103", "110")


@grammar("CUTLASS 3", source="NVIDIA/cutlass, python/cutlass_library/gemm_operation.py (procedural_name, extended_name_3x)")
def cutlass3(text: str) -> GemmName | None:
    """Read a name of CUTLASS 3. Stages of 0 are chosen by the builder, a cluster of 0 by the launch: None.

    On data-centre Blackwell the tile of the name is the instruction's; one of "2sm" is shared by two blocks, half of M each.

    >>> found = cutlass3("cutlass3x_sm100_tensorop_gemm_f16_f16_f32_void_f16_256x128x64_2x1x1_0_tnt_align8_2sm")
    >>> found.tile, found.k_tile, found.cluster, found.stages, found.two_cta, found.unit
    ((128, 128), 64, (2, 1), None, True, 'tcgen05')
    """
    found = _NAME.search(text)
    if found is None or _CONVOLUTION.search(found[0]):
        return None
    words = found["words"].split("_")[1:]
    kinds, types = _types(found["types"].split("_")[1:], found["mathematics"], tensor=found["operation"] != "simt")
    two_sm = "2sm" in words
    m = int(found["m"])
    return GemmName(
        name=found[0],
        library="cutlass3",
        unit=_unit(found["operation"], found["architecture"]),
        architecture=f"sm{found['architecture']}",
        instruction=triple(found["shape"]),
        **types,
        tile=(m // 2 if two_sm and m % 2 == 0 else m, int(found["n"])),
        k_tile=int(found["k"]),
        stages=int(found["stages"]) or next((int(w[5:]) for w in words if re.fullmatch("stage[1-9][0-9]?", w)), None),
        cluster=grid(found["cluster"]),
        two_cta=two_sm,
        split=bool(_STREAM_K.search(found["words"])),
        layout=found["layout"],
        align=number(found["align"]),
        features=tuple(kinds + (["sparse"] if found["sparse"] else []) + [w for w in words if not re.fullmatch("2sm|stage[0-9]+", w)]),
        doubts=_doubts(found["architecture"], m, words),
    )


def _types(words: list[str], mathematics: str | None, tensor: bool) -> tuple[list[str], Types]:
    """Return the words that name no type, and the types of A, B, the accumulator and D; before an x stands a type of scales.

    `mathematics` is the type in which A and B are multiplied, where it is another than theirs.
    """
    bases = [word.rpartition("x")[2] for word in words]
    named = [number_type(base) for base in bases if number_type(base) or base == "void"]
    kinds = [word for word, base in zip(words, bases, strict=True) if not number_type(base) and base != "void"]
    said = number_type(mathematics)
    if mathematics and said is None:
        kinds.append(mathematics)
    if len(named) < 5:
        return kinds, {}
    a, b = [said or ("tf32" if tensor and kind == "fp32" else kind) for kind in named[:2]]
    return kinds, {"a": a, "b": b, "accumulator": named[2], "result": named[4]}


def _unit(operation: str, architecture: str) -> Unit:
    if operation == "simt":
        return "simt"
    return "wgmma" if architecture == "90" else "tcgen05" if architecture in _TENSOR_MEMORY else "mma"


def _doubts(architecture: str, m: int, words: list[str]) -> tuple[str, ...]:
    silent = architecture in _TENSOR_MEMORY and m > 128 and not {"1sm", "2sm"} & {*words}
    return (f"the name does not say whether two blocks share the {m} rows of its tile",) if silent else ()
