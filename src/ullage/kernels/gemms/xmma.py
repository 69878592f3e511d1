"""XMMA, in cuBLAS and TensorRT: `sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize96x64x32_stage3_warpsize2x2x1_tensor16x8x16_kernel`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import number_type
from ullage.kernels.gemms.shapes import SIZE, grid, triple

_TYPE = "tf32|bf16|f16|f32|f64|e4m3|e5m2|i32|i8|u8"
_NAME = re.compile(
    rf"(?<!\w)sm(?P<architecture>[0-9]{{2,3}})_xmma_(?P<sparse>sparse_)?gemm_(?P<a>{_TYPE})(?P<result>{_TYPE})_(?P<b>{_TYPE})(?P<accumulator>{_TYPE})"
    rf"_(?:{_TYPE})(?:_(?P<inputs>[ntch]{{2}})_(?P<output>[nt])(?![a-z0-9]))?(?P<words>(?:_[A-Za-z0-9]*)*)",
    re.ASCII,
)
_SIZES = re.compile(rf"(tilesize|warpsize|tensor|cgasize)({SIZE}x{SIZE}x{SIZE})")
_STAGES = re.compile(r"(?:^|_)stage([1-9][0-9]?)(?![0-9])")
_READ = re.compile("(?:tilesize|warpsize|tensor|cgasize|stage)[0-9].*")


@grammar("XMMA", source="not documented (NVIDIA/TensorRT-LLM issue 1541); order of types from public runs whose types are known")
def xmma(text: str) -> GemmName | None:
    """Read a name of XMMA: types of A and result, of B and accumulator, of the epilogue. Hopper's names mostly leave the cluster out.

    >>> found = xmma("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x64_stage4_warpsize2x2x1_tensor16x8x32_kernel")
    >>> found.a, found.accumulator, found.result, found.tile, found.k_tile, found.stages, found.warps, found.instruction
    ('e4m3', 'fp32', 'bf16', (64, 128), 64, 4, (2, 2, 1), (16, 8, 32))
    """
    found = _NAME.search(text)
    if found is None:
        return None
    words = found["words"]
    sizes = dict(_SIZES.findall(words))
    tile = triple(sizes.get("tilesize"))
    stages = _STAGES.search(words)
    a, b = number_type(found["a"]), number_type(found["b"])
    if b == "tf32":
        a = "tf32"  # FP32 in memory
    before_clusters = int(found["architecture"]) < 90
    return GemmName(
        name=found[0],
        library="xmma",
        unit=_unit(before_clusters, words, a),
        architecture=f"sm{found['architecture']}",
        instruction=triple(sizes.get("tensor")),
        a=a,
        b=b,
        accumulator=number_type(found["accumulator"]),
        result=number_type(found["result"]),
        tile=tile[:2] if tile else None,
        k_tile=tile[2] if tile else None,
        stages=int(stages[1]) if stages else None,
        cluster=(1, 1) if before_clusters else grid(sizes.get("cgasize")),
        warps=triple(sizes.get("warpsize")),
        split="split_k" in words,
        layout=found["inputs"] + found["output"] if found["inputs"] else None,
        features=tuple((["sparse"] if found["sparse"] else []) + [w for w in words.split("_") if w and not _READ.fullmatch(w)]),
    )


def _unit(before_clusters: bool, words: str, a: str | None) -> Unit | None:
    """Return the class of instruction: warp groups are Hopper's, "tensor" is mma; FP32 that is not TF32 has no tensor core."""
    if "warpgroupsize" in words:
        return "wgmma"
    if "tensor" in words:
        return "mma" if before_clusters else None
    return "simt" if a == "fp32" else None
