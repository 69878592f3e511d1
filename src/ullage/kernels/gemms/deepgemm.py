"""DeepGEMM, whose kernels are templates: `deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 128u, …>`."""

from __future__ import annotations

import re

from ullage.kernels.gemms.gemm import GemmName, Unit, grammar
from ullage.kernels.gemms.number_types import number_type

_KERNEL = r"(?P<architecture>sm[0-9]{2,3})_(?:fp8_fp4|fp8|fp4|bf16|tf32_hc_prenorm)_gemm(?:_1d[12]d)?_impl"
_NAME = re.compile(
    rf"(?:deep_gemm(?:::|[0-9]+)|(?<![\w:]))(?P<kernel>{_KERNEL}|(?<=deep_gemm::)fp8_gemm_kernel)(?P<arguments>[<I].*)?",
    re.ASCII | re.DOTALL,
)
_NUMBER = re.compile(r"(?:\((?:unsigned )?int\))?([0-9]{1,6})u?")
_TRUTH = re.compile(r"true|false|\(bool\)[01]")
_MANGLED = re.compile(r"Lj([0-9]{1,6})E|L(b)([01])E")
_TYPE = re.compile(r"\b(?:__nv_)?(bfloat16_t|bfloat16|float_e4m3_t|float_e5m2_t|float_e2m1_unpacksmem_t|float_e2m1_t|float)\b")
_TYPES = {"fp8_fp4": None, "fp8": "e4m3", "fp4": "fp4", "bf16": "bf16", "tf32": "tf32"}
_UNITS: dict[str, Unit] = {"sm90": "wgmma", "sm100": "tcgen05", "sm120": "mma"}

# Where a kernel's template has the tile and, by how many numbers it has in all, the stages; versions differ in what stands between.
_TILES = {"sm90": 4, "sm100": 3}
_STAGES = {("1d2d", 15): 10, ("1d2d", 14): 10, ("1d2d", 13): 8, ("1d1d", 13): 9, ("bf16", 14): 10, ("kernel", 12): 8}


@grammar(
    "DeepGEMM", source="deepseek-ai/DeepGEMM, deep_gemm/include/deep_gemm/impls: the template parameters, in versions of 2025 and 2026"
)
def deepgemm(text: str) -> GemmName | None:
    """Read a name of DeepGEMM: library, instruction and types; with template arguments also tile, stages and cluster.

    >>> found = deepgemm("void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 4096u, 1024u, 1u, 256u, 128u, 128u, "
    ...                  "128u, 128u, 128u, 3u, 128u, 256u, 2u, true, 132u, (deep_gemm::GemmType)0>(float*, int*)")
    >>> found.a, found.tile, found.k_tile, found.stages, found.cluster
    ('e4m3', (256, 128), 128, 3, (1, 2))
    """
    found = _NAME.search(text)
    if found is None:
        return None
    kernel, architecture = found["kernel"], found["architecture"]
    numbers, on_a = _arguments(found["arguments"] or "")
    tile = _tile(kernel, architecture, numbers) if on_a is not None or "hc_prenorm" in kernel else None
    cluster = _cluster(numbers[-1], on_a) if tile and on_a is not None else None
    slices = numbers[5] if tile and "hc_prenorm" in kernel else None
    a, b, result = _types(kernel, found["arguments"] or "")
    return GemmName(
        name=kernel,
        library="deepgemm",
        unit=_UNITS.get(architecture or "sm90"),  # fp8_gemm_kernel, of the first versions, was for Hopper alone
        architecture=architecture,
        a=a,
        b=b,
        result=result,
        tile=tile[:2] if tile else None,
        k_tile=tile[2] if tile else None,
        stages=_stages(kernel, architecture, numbers) if tile else None,
        cluster=cluster,
        two_cta=architecture == "sm100" and cluster in ((1, 2), (2, 1)),
        split=slices is not None and slices > 1,
        split_k=slices,
    )


def _arguments(arguments: str) -> tuple[list[int], bool | None]:
    """Return the template's numbers up to its first truth value (whether a cluster shares A), and that; None without one."""
    numbers: list[int] = []
    if arguments.startswith("I"):
        for number, boolean, truth in _MANGLED.findall(arguments):
            if boolean:
                return numbers, truth == "1"
            numbers.append(int(number))
        return numbers, None
    for argument in (part.strip() for part in arguments[1:].partition(">(")[0].split(",")):
        if _TRUTH.fullmatch(argument):
            return numbers, argument in ("true", "(bool)1")
        if found := _NUMBER.fullmatch(argument.rstrip(">")):
            numbers.append(int(found[1]))
    return numbers, None


def _tile(kernel: str, architecture: str | None, numbers: list[int]) -> tuple[int, int, int] | None:
    """Return BLOCK_M, BLOCK_N, BLOCK_K; None where the numbers that stand there are none."""
    first = 2 if kernel == "fp8_gemm_kernel" or "hc_prenorm" in kernel else _TILES.get(architecture or "")
    if first is None:
        return None
    if architecture == "sm100" and len(numbers) >= 16:
        first += 2  # granularity of the scales comes before
    sizes = numbers[first : first + 3]
    plausible = len(sizes) == 3 and sizes[2] in (32, 64, 128, 256) and all(0 < size <= 512 and size % 8 == 0 for size in sizes)
    return (sizes[0], sizes[1], sizes[2]) if plausible else None


def _stages(kernel: str, architecture: str | None, numbers: list[int]) -> int | None:
    count = len(numbers)
    if "hc_prenorm" in kernel:
        place = 7 if count == 10 else None
    elif architecture == "sm100":
        place = {13: 10, 14: 10, 16: 12, 17: 12}.get(count)
    else:
        place = next((at for (word, length), at in _STAGES.items() if word in kernel and length == count), None)
    return numbers[place] if place is not None else None


def _cluster(multicast: int, on_a: bool) -> tuple[int, int] | None:
    """Return the cluster: blocks that share A's part lie side by side along N, those that share B's along M."""
    return {1: (1, 1), 2: (1, 2) if on_a else (2, 1)}.get(multicast)


def _types(kernel: str, arguments: str) -> tuple[str | None, str | None, str | None]:
    """Return the types of A, B and the result; a kernel for FP8 and FP4 says which among its arguments."""
    said = [number_type(word) for word in _TYPE.findall(arguments.partition(">(")[0])]
    named = next((kind for word, kind in _TYPES.items() if word in kernel), None)
    if len(said) >= 3:
        return said[0], said[1], said[2]
    return named, named, said[0] if len(said) == 1 else None
