"""nvjet, cuBLAS's own kernels since Hopper: `nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import BITS, lettered
from ullage.kernels.gemms.shapes import SIZE

SHARED_MEMORY = 227 * 1024  # bytes that one thread block may have, compute capability 9.0 and 10.x (CUDA Programming Guide)
_STEP = 128  # bytes of A along K in one stage: a row of the widest swizzle of shared memory
_TENSOR = ("fp16", "bf16", "tf32", "e4m3", "e5m2", "fp4", "uint8")  # what wgmma and tcgen05 multiply, of the letters

_NAME = re.compile(
    rf"(?<!\w)nvjet(?:_(?P<architecture>sm[0-9]{{2,3}}))?_(?P<types>[a-z]{{5}}|[a-z]{{3}})_(?P<m>{SIZE})x(?P<n>{SIZE})"
    rf"_(?P<k>{SIZE})x(?P<stages>{SIZE})_(?P<cluster_m>{SIZE})x(?P<cluster_n>{SIZE})(?P<words>(?:_[A-Za-z0-9]+)*)",
    re.ASCII,
)
_LAYOUT = re.compile("[NT]{3,4}", re.IGNORECASE)


@grammar("nvjet", source="letters: header of nvMatmulHeuristics 0.1; fields: not documented, fitted to 69 public names")
def nvjet(text: str) -> GemmName | None:
    """Read a name of nvjet for Hopper or data-centre Blackwell; a name without an architecture may be of either.

    >>> found = nvjet("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT")
    >>> found.a, found.tile, found.k_tile, found.stages, found.cluster, found.layout, found.unit
    ('bf16', (256, 128), 64, 4, (1, 2), 'nnt', None)
    """
    found = _NAME.search(text)
    if found is None:
        return None
    words = found["words"].split("_")[1:]
    layout = words.pop().lower() if words and _LAYOUT.fullmatch(words[-1]) else None
    two_cta = "2cta" in words
    types = lettered(found["types"])
    name = GemmName(
        name=found[0],
        library="nvjet",
        unit=_unit(found["architecture"], two_cta) if types["a"] in _TENSOR else None,
        architecture=found["architecture"],
        **types,
        tile=(int(found["m"]), int(found["n"])),
        k_tile=int(found["k"]),
        stages=int(found["stages"]),
        cluster=(int(found["cluster_m"]), int(found["cluster_n"])),
        two_cta=two_cta,
        split="splitK" in words,
        layout=layout,
        features=tuple(word for word in words if word not in ("2cta", "splitK")),
    )
    return _doubted(name)


def _unit(architecture: str | None, two_cta: bool) -> Unit | None:
    if two_cta or architecture in ("sm100", "sm101", "sm103", "sm110"):
        return "tcgen05"
    return "wgmma" if architecture == "sm90" else None


def _doubted(name: GemmName) -> GemmName:
    """Return the name with a sentence for each rule of such names that it breaks: then one of its fields means something else."""
    doubts = [doubt for doubt in (_letters(name), _step(name), _memory(name), _raster(name)) if doubt]
    return GemmName(**{**vars(name), "doubts": tuple(doubts)}) if doubts else name


def _letters(name: GemmName) -> str | None:
    known = name.a and name.b and name.accumulator and name.result
    return None if known else f"the letters of {name.name} are not all known types"


def _step(name: GemmName) -> str | None:
    bits = BITS.get(name.a or "")
    if bits is None or name.k_tile is None or name.k_tile * bits == _STEP * 8:
        return None
    return f"a step of {name.k_tile} in K is {name.k_tile * bits / 8:g} bytes of {name.a}; such kernels take {_STEP}"


def _memory(name: GemmName) -> str | None:
    """Say when the pipeline of A and B exceeds a block's shared memory; of two blocks that share an instruction, each holds half of B."""
    bits = BITS.get(name.a or "")
    if bits is None or name.tile is None or name.k_tile is None or name.stages is None:
        return None
    rows = name.tile[0] + name.tile[1] / (2 if name.two_cta else 1)
    size = rows * name.k_tile * name.stages * bits / 8
    return f"{name.stages} stages hold {size / 1024:g} KiB; a block has {SHARED_MEMORY // 1024}" if size > SHARED_MEMORY else None


def _raster(name: GemmName) -> str | None:
    """Say when the order of tiles (v: down, h: across) is not along a cluster that is a row or a column; of 4 × 2 both are known."""
    if name.cluster is None or name.cluster[0] == name.cluster[1] or min(name.cluster) > 1:
        return None
    along, other = ("v", "h") if name.cluster[0] > name.cluster[1] else ("h", "v")
    if other not in name.features:
        return None
    return f"tiles in order {other} with a cluster of {name.cluster[0]} × {name.cluster[1]}; such kernels go in order {along}"
