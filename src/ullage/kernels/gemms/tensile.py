"""Tensile, kernels of rocBLAS and hipBLASLt: `Cijk_Alik_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_…_GSU1_…_ISA942_…`."""

from __future__ import annotations

import re
from typing import Final

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import Types
from ullage.kernels.gemms.shapes import SIZE

# DataType.toChar(): S, D, C, Z as BLAS; H FP16, B BF16, I8, I INT32; F8 and B8 E4M3 and E5M2 (N: AMD's own forms of them); X XF32.
_TYPES: Final = {
    "S": "fp32", "D": "fp64", "C": "complex64", "Z": "complex128", "H": "fp16", "B": "bf16", "I8": "int8", "I": "int32",
    "F8": "e4m3", "B8": "e5m2", "F8N": "e4m3", "B8N": "e5m2", "F6": "fp6", "B6": "fp6", "F4": "fp4", "X": "tf32",
}  # fmt: skip
_MIXED: Final = {"F8B8": ("F8", "B8"), "B8F8": ("B8", "F8"), "F8B8N": ("F8", "B8"), "B8F8N": ("B8", "F8")}
_ONE = "F8N|B8N|F8|B8|F6|B6|F4|I8|I|S|D|C|Z|H|B|X"
_DATA = f"F8B8N|B8F8N|F8B8|B8F8|{_ONE}"

_NAME = re.compile(r"(?<![a-z0-9])Cijk_A(?P<a>ilk|lik)C?_B(?P<b>ljk|jlk)C?(?P<rest>_\w+)", re.ASCII)
# Types of data, result and compute together; else one type for all, with the letters of what it can (B: beta, H: sums in FP32).
_THREE = re.compile(rf"_(?:(?P<left>{_ONE})(?P<right>{_ONE})_)?(?P<data>{_DATA})_?(?P<result>{_ONE})(?P<compute>S|D|I|X)(?=_|$)")
_SINGLE = re.compile(rf"_(?P<data>{_DATA})(?:_MX(?P<xf32>))?_?B?(?P<wide>H)?I?(?:Ic)?(?=_|$)")
_TILE = re.compile(rf"_MT(?P<m>{SIZE})x(?P<n>{SIZE})x(?P<k>{SIZE})(?=_|$)")
_INSTRUCTION = re.compile(rf"_MI(?P<m>{SIZE})x(?P<n>{SIZE})(?:x(?P<k>{SIZE}))?x(?P<blocks>{SIZE})(?=_|$)")
_ISA = re.compile(r"_(?:ISA|gfx)(?P<isa>[0-9]{3,4}|90a)(?=_|$)")
_SPLIT = re.compile(rf"_GSU(?P<slices>{SIZE})(?=_|$)")


@grammar(
    "Tensile",
    source="ROCm/Tensile and hipBLASLt's tensilelite: ProblemType.__str__, DataType, and Kernel parameters in ROCm's documentation",
)
def tensile(text: str) -> GemmName | None:
    """Read a name of Tensile: the order of A's and B's indices is the layout, MT the tile and step in K, MI the matrix instruction.

    Newer names leave K out of MI, and how far K is split to the launch.

    >>> found = tensile("Cijk_Alik_Bljk_HHS_BH_MT128x64x32_MI32x32x8x1_SN_GSU4_ISA90a_WG64_4_1")
    >>> found.a, found.result, found.layout, found.tile, found.k_tile, found.instruction, found.split_k, found.architecture
    ('fp16', 'fp16', 'tn', (128, 64), 32, (32, 32, 8), 4, 'gfx90a')
    """
    found = _NAME.search(text)
    if found is None:
        return None
    rest = found["rest"]
    tile, matrix, isa, split = (pattern.search(rest) for pattern in (_TILE, _INSTRUCTION, _ISA, _SPLIT))
    slices = int(split["slices"]) if split else None
    return GemmName(
        name=found[0],
        library="tensile",
        unit=_unit(isa["isa"] if isa else None) if matrix else None,
        architecture=f"gfx{isa['isa']}" if isa else None,
        instruction=(int(matrix["m"]), int(matrix["n"]), int(matrix["k"])) if matrix and matrix["k"] else None,
        **_types(rest),
        tile=(int(tile["m"]), int(tile["n"])) if tile else None,
        k_tile=int(tile["k"]) if tile else None,
        cluster=(1, 1) if isa and (isa["isa"].startswith("9")) else None,
        split=slices is not None and slices > 1,
        split_k=slices,
        layout={"ilk": "n", "lik": "t"}[found["a"]] + {"ljk": "n", "jlk": "t"}[found["b"]],
        features=tuple((rest[: tile.start()] if tile else rest).split("_")[2:]),
    )


def _unit(isa: str | None) -> Unit | None:
    """Return the class of the matrix instruction: MFMA on CDNA (gfx9…), WMMA on RDNA (gfx11, gfx12)."""
    if isa is None:
        return None
    return "mfma" if isa.startswith("9") else "wmma" if isa.startswith(("11", "12")) else None


def _types(rest: str) -> Types:
    """Return the types of A, B, accumulator and result; nothing where the letters are of another age."""
    if found := _THREE.match(rest):
        left, right = (found["left"], found["right"]) if found["left"] else _MIXED.get(found["data"], (found["data"], found["data"]))
        return {"a": _TYPES[left], "b": _TYPES[right], "accumulator": _TYPES[found["compute"]], "result": _TYPES[found["result"]]}
    if found := _SINGLE.match(rest):
        left, right = _MIXED.get(found["data"], (found["data"], found["data"]))
        stored = _TYPES[left]
        multiplied = "tf32" if found["xf32"] is not None else stored
        return {
            "a": multiplied,
            "b": multiplied if left == right else _TYPES[right],
            "accumulator": "fp32" if found["wide"] and stored in ("fp16", "bf16") else stored if left == right else None,
            "result": stored if left == right else None,
        }
    return {}
