"""Triton, from PyTorch's compiler or by hand: `triton_tem_fused_addmm_relu_2`, `_gemm_kernel_BLOCK_SIZE_M_64_BLOCK_SIZE_N_128_…`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, grammar
from ullage.kernels.gemms.number_types import number_type
from ullage.kernels.gemms.shapes import SIZE

_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "matmul", "gemm", "linear"}
_OTHERS = {"attention", "flex", "convolution", "conv", "conv2d", "conv3d"}
_NAME = re.compile(r"(\w+)(?:\.kd)?", re.ASCII)  # the whole text: such a kernel has no namespace and no arguments
_SIGNATURE = re.compile(r"_(?:[0-9]{1,3}d(?:[0-9]{0,3}[ce])*){2,}$")  # Triton's older names end in how each argument is specialised
_BLOCK = re.compile(rf"_BLOCK_(?:SIZE_)?(?P<side>[MNK])_(?P<size>{SIZE})(?=_|$)")
_SPLIT = re.compile(rf"_(?:NUM_KSPLIT|SPLIT_K)_(?P<slices>{SIZE})(?=_|$)")


# triton_kernels: strides, types of result, A and B, then tile and slices of K.
_TYPE = "mxfp4|bf16|fp16|fp32|fp8e[0-9][a-z0-9]*?"
_KERNELS = re.compile(
    rf"_(?:p_)?matmul\w*?_[NT]{{3}}_(?P<result>{_TYPE})x(?P<a>{_TYPE})x(?P<b>{_TYPE})"
    rf"_(?P<m>{SIZE})x(?P<n>{SIZE})x(?P<k>{SIZE})x(?P<slices>{SIZE})(?:_\w+)?",
    re.ASCII,
)


@grammar(
    "Triton", source="torch/_inductor of PyTorch (names of templates); ROCm/aiter (constants in names); triton_kernels' make_matmul_repr"
)
def triton(text: str) -> GemmName | None:
    """Read a name of Triton's: that it is a product; its tile only where the name spells its constants out.

    >>> triton("triton_tem_fused_mm_5").tile is None, triton("triton_poi_fused_relu_0") is None
    (True, True)
    >>> triton("_gemm_a16_w16_kernel_BLOCK_SIZE_M_64_BLOCK_SIZE_N_128_BLOCK_SIZE_K_256_GROUP_SIZE_M_4").tile
    (64, 128)
    """
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    name = found[1]
    if packaged := _KERNELS.fullmatch(name):
        return _packaged(name, packaged)
    words = name.lower().split("_")
    sizes = {block["side"]: int(block["size"]) for block in _BLOCK.finditer(name)}
    if not _written_by_triton(name, words, sizes) or not _PRODUCTS & {*words} or _OTHERS & {*words}:
        return None
    split = _SPLIT.search(name)
    slices = int(split["slices"]) if split else None
    return GemmName(
        name=name,
        library="triton",
        tile=(sizes["M"], sizes["N"]) if {"M", "N"} <= sizes.keys() else None,
        k_tile=sizes.get("K"),
        split=slices is not None and slices > 1,
        split_k=slices,
    )


def _written_by_triton(name: str, words: list[str], sizes: dict[str, int]) -> bool:
    """Return whether a name is Triton's: it says so (PyTorch's templates: "triton_tem"), ends in a signature, or spells its blocks."""
    if words[0] == "triton":
        return "tem" in words
    return "triton" in words or _SIGNATURE.search(name) is not None or {"M", "N"} <= sizes.keys()


def _packaged(name: str, found: re.Match[str]) -> GemmName:
    return GemmName(
        name=name,
        library="triton",
        a=number_type(found["a"]),
        b=number_type(found["b"]),
        result=number_type(found["result"]),
        tile=(int(found["m"]), int(found["n"])),
        k_tile=int(found["k"]),
        split=int(found["slices"]) > 1,
        split_k=int(found["slices"]),
    )
