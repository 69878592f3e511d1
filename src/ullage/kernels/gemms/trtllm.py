"""trtllm-gen, in TensorRT-LLM and FlashInfer: `bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_c1x1x1_…`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, grammar
from ullage.kernels.gemms.number_types import number_type
from ullage.kernels.gemms.shapes import SIZE, grid, triple

_TYPE = "(?:Mx)?(?:Bfloat16|Fp16|Fp32|E4m3|E5m2|E2m1|E2m3|E3m2|Int8|Int4)"
_NAME = re.compile(
    rf"(?<![a-z0-9_])(?P<kind>[Bb]mm|[Bb]atchedGemm(?:Kernel)?|[Gg]emm(?:GatedAct)?(?:Kernel)?)_(?P<result>{_TYPE})_(?P<a>{_TYPE})(?P<b>{_TYPE})?"
    rf"_(?P<accumulator>{_TYPE})(?P<scales>(?:_[A-Za-z0-9]+)*?)_(?:t|tile)(?P<m>{SIZE})x(?P<n>{SIZE})x(?P<k>{SIZE})(?:u[0-9])?(?P<words>(?:_[A-Za-z0-9]+)*)",
    re.ASCII,
)
_READ = re.compile(
    rf"(?:s(?P<stages>{SIZE})|(?:m|mma)(?P<instruction>{SIZE}x{SIZE}x{SIZE})|(?:c|cga|cluster)(?P<cluster>{SIZE}x{SIZE}x{SIZE})"
    rf"|splitK(?P<split>{SIZE})|(?P<layout>[NT]{{2}})|(?P<architecture>sm[0-9]{{2,3}})[af]?)"
)


@grammar(
    "trtllm-gen", source="NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/kernels/trtllmGenKernels: KernelMetaInfo.h lists names with their options"
)
def trtllm(text: str) -> GemmName | None:
    """Read a name of trtllm-gen: types of C, of A and B, of the accumulator; tile, stages, instruction, cluster.

    "transOut" computes the transposed product: then M is the weight's side. An instruction higher than the tile is two blocks'.

    >>> found = trtllm("bmm_E4m3_E4m3E4m3_Fp32_t128x64x256_s5_et128x64_m256x64x32_c2x1x1_rM_TN_transOut_sm100f")
    >>> found.result, found.tile, found.k_tile, found.stages, found.instruction, found.cluster, found.two_cta
    ('e4m3', (128, 64), 256, 5, (256, 64, 32), (2, 1), True)
    """
    found = _NAME.search(text)
    if found is None:
        return None
    read, rest = _words((found["scales"] + found["words"]).split("_")[1:])
    instruction = triple(read.get("instruction"))
    m = int(found["m"])
    return GemmName(
        name=found[0],
        library="trtllm",
        # no warp group's instruction is higher than 64 rows, no warp's higher than 16
        unit="tcgen05" if read.get("architecture") in ("sm100", "sm103") or (instruction and instruction[0] >= 128) else None,
        architecture=read.get("architecture"),
        instruction=instruction,
        a=_type(found["a"]),
        b=_type(found["b"] or found["a"]),
        accumulator=_type(found["accumulator"]),
        result=_type(found["result"]),
        tile=(m, int(found["n"])),
        k_tile=int(found["k"]),
        stages=int(read["stages"]) if "stages" in read else None,
        cluster=grid(read.get("cluster")),
        two_cta=instruction is not None and instruction[0] > m,
        split="split" in read,
        split_k=int(read["split"]) if "split" in read else None,
        layout=read["layout"].lower() if "layout" in read else None,
        features=tuple(rest),
    )


def _words(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return what the words tell, by the names of `_READ`, and the words that tell nothing we read."""
    matches = [_READ.fullmatch(word) for word in words]
    read = {key: value for match in matches if match for key, value in match.groupdict().items() if value}
    return read, [word for word, match in zip(words, matches, strict=True) if match is None]


def _type(word: str) -> str | None:
    return number_type(word.removeprefix("Mx"))
