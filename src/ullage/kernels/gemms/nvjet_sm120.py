"""nvjet on GeForce and RTX PRO Blackwell: `nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, grammar
from ullage.kernels.gemms.number_types import BITS, lettered
from ullage.kernels.gemms.shapes import SIZE

SHARED_MEMORY = 99 * 1024  # bytes that one thread block may have, compute capability 12.0 (CUDA Programming Guide)

_NAME = re.compile(
    rf"(?<!\w)nvjet_(?P<architecture>sm[0-9]{{2,3}})_(?P<types>[a-z]{{5}}|[a-z]{{3}})_mma_(?P<m>{SIZE})x(?P<n>{SIZE})x(?P<k>{SIZE})"
    rf"_(?P<stages>{SIZE})_(?P<warp_m>{SIZE})x(?P<warp_n>{SIZE})x(?P<warp_k>{SIZE})(?P<words>(?:_[A-Za-z0-9]+)*)",
    re.ASCII,
)
_LAYOUT = re.compile("[NT]{3,4}", re.IGNORECASE)


@grammar(
    "nvjet sm120", source="letters: header of nvMatmulHeuristics 0.1; fields: not documented, sizes agree with NCU's in public reports"
)
def nvjet_sm120(text: str) -> GemmName | None:
    """Read a name of nvjet whose unit is mma; the second tile is one warp's, so its share of the first is the number of warps.

    >>> found = nvjet_sm120("nvjet_sm120_hss_mma_128x176x64_2_32x88x64_tmaAB_alignCD4_bz_NNNN")
    >>> found.tile, found.k_tile, found.stages, found.warps, found.result
    ((128, 176), 64, 2, (4, 2, 1), 'fp32')
    """
    found = _NAME.search(text)
    if found is None:
        return None
    words = found["words"].split("_")[1:]
    layout = words.pop().lower() if words and _LAYOUT.fullmatch(words[-1]) else None
    tile, warp = [tuple(int(found[prefix + side]) for side in "mnk") for prefix in ("", "warp_")]
    types = lettered(found["types"])
    whole = all(size % part == 0 for size, part in zip(tile, warp, strict=True))
    return GemmName(
        name=found[0],
        library="nvjet",
        unit="mma",
        architecture=found["architecture"],
        **types,
        tile=(tile[0], tile[1]),
        k_tile=tile[2],
        stages=int(found["stages"]),
        warps=(tile[0] // warp[0], tile[1] // warp[1], tile[2] // warp[2]) if whole else None,
        split="splitK" in words,
        layout=layout,
        features=tuple(word for word in words if word != "splitK"),
        doubts=tuple(_doubts(tile, int(found["stages"]), BITS.get(types["a"] or ""), whole)),
    )


def _doubts(tile: tuple[int, ...], stages: int, bits: int | None, whole: bool) -> list[str]:
    doubts = [] if whole else ["the tile of a warp does not divide that of the block"]
    size = (tile[0] + tile[1]) * tile[2] * stages * (bits or 0) / 8
    if size > SHARED_MEMORY:
        doubts.append(f"{stages} stages hold {size / 1024:g} KiB; a block has {SHARED_MEMORY // 1024}")
    return doubts
